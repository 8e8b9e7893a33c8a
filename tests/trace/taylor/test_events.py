"""Events on the Taylor polynomial: several per step, in order, to machine precision."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import holonomix as hx


def test_several_passages_in_one_step_in_order():
    """Steps are longer than the interval between passages; a state found at a rounded time would miss the section."""
    system = hx.System(lambda q: 0.5 * q @ q)
    clock, section = hx.Event(lambda q, p, t: jnp.cos(4 * t)), hx.Event(lambda q, p: q[0])
    sol = hx.simulate(
        system, hx.TaylorAdaptive(), np.array([1.0]), np.array([0.0]), dt=0.1, t1=20.0, events=[clock, section]
    )
    assert np.max(np.diff(sol.t)) > 1.2 * np.pi / 4
    expected = np.arange(np.pi / 8, sol.t[-1], np.pi / 4)
    assert len(sol.events[0].t) == len(expected) and np.max(np.abs(sol.events[0].t - expected)) < 1e-14
    crossings = np.arange(np.pi / 2, sol.t[-1], np.pi)
    assert len(sol.events[1].t) == len(crossings) and np.max(np.abs(sol.events[1].t - crossings)) < 1e-14
    assert np.max(np.abs(sol.events[1].q)) < 2e-16 and np.max(np.abs(np.abs(sol.events[1].p) - 1)) < 2e-15
