"""Points between steps: on the manifold, at the method's own order, and such that a run can be continued from them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.projection import check_start

DOUBLE = hx.models.double_pendulum()
TIMES = np.asarray([0.003, 0.111, 0.2, 0.2871, 0.5])
RIGID = hx.models.planar_pendulum()
SUPPORT = hx.System(
    lambda q: q[1],
    constraint=hx.Rheonomic(lambda q, t: jnp.array([q[0] ** 2 + (q[1] - 0.3 * jnp.sin(2 * t)) ** 2 - 1])),
)


def all_methods():
    """Every deterministic method of the registry that treats constraints; variants are in the table of combinations."""
    methods = [entry.make() for entry in hx.methods.registry().values()]
    return [m for m in methods if not m.stochastic and "constrained" in m.traits]


def consistent(problem, method, everything=False):
    """Largest violations between the steps. A run can be continued from a point of `at`, `save_at` and an event."""
    system, options = problem.system, {"dt": 0.05, "t1": 0.6, "backend": "array"}
    event = hx.Event(lambda q, p, t: t - 0.51, terminal=True)
    dense = hx.simulate(system, method, problem.q0, problem.p0, dense=True, events=event, **options)
    assert dense.status == hx.Status.TERMINATED
    q, p = dense.at(TIMES)
    points = [*zip(q, p, TIMES, strict=True), (dense.final_q, dense.final_p, dense.final_t)]
    if everything:
        wanted = hx.simulate(system, method, problem.q0, problem.p0, save_at=TIMES, **options)
        assert np.max(np.abs(q - wanted.q)) < 1e-13 and np.max(np.abs(p - wanted.p)) < 1e-13
        points += [*zip(wanted.q, wanted.p, TIMES, strict=True)]
        for q, p, t in points[-3:]:
            hx.simulate(system, method, q, p, dt=0.05, steps=1, t0=t, backend="array")
    worst = 0.0
    for q, p, t in points:
        q, p = jnp.asarray(q), jnp.asarray(p)
        check_start(system, q, p, t)
        worst = max(
            worst, *(float(jnp.max(jnp.abs(x))) for x in (system.constraint(q, t), system.hidden_constraint(q, p, t)))
        )
    return worst


@pytest.mark.parametrize(
    "method",
    [hx.SHAKE(), hx.VRATTLE(), hx.RK4()],
    ids=lambda m: m.name,
)
def test_points_between_steps_are_consistent(method):
    assert consistent(RIGID, method) < 4e-15


@pytest.mark.slow
@pytest.mark.parametrize("method", all_methods(), ids=lambda m: m.name)
def test_points_between_steps_of_every_method_are_consistent(method):
    problem = hx.models.magnetized_body() if "SO3" in method.name else DOUBLE
    assert problem.system.kind == "constrained"
    assert consistent(problem, method, everything=True) < 1e-13


def test_moving_constraints_hold_between_steps():
    q0, p0 = jnp.array([0.0, -1.0]), jnp.array([0.4, 0.6])
    problem = hx.Problem(SUPPORT, q0, p0, 0.05, 1.0)
    assert consistent(problem, hx.RATTLE(), everything=True) < 4e-15


def test_order_eight_holds_between_steps():
    method = hx.Composition(hx.RATTLE(), order=8)
    times = np.linspace(0.0, 3.95, 80)
    at_steps = hx.simulate(RIGID, method, dt=0.1, t1=4.0)
    between = hx.simulate(RIGID, method, dt=0.1, t1=4.0, save_at=times)
    error, reference = (np.max(np.abs(x.energy_error())) for x in (between, at_steps))
    assert error < 4 * reference, (error, reference)
    exact_q, exact_p = RIGID.reference(times)
    exact_at = RIGID.reference(at_steps.t)
    off = np.max(np.abs(between.q - exact_q)) + np.max(np.abs(between.p - exact_p))
    off_at = np.max(np.abs(at_steps.q - exact_at[0])) + np.max(np.abs(at_steps.p - exact_at[1]))
    assert off < 2 * off_at, (off, off_at)


def test_the_curve_is_smooth_where_steps_meet():
    sol = hx.simulate(RIGID, hx.RATTLE(), dt=0.1, steps=4, dense=True)
    small = 1e-4
    left, here, right = (sol.at(0.2 + d)[0] for d in (-small, 0.0, small))
    kink = np.max(np.abs(right - 2 * here + left)) / small
    assert kink < 4e-4  # small |q''|; a corner would leave a jump of the velocity, of order dt^2
    assert np.max(np.abs(here - sol.q[2])) < 1e-15


def test_a_record_of_events_prints_in_one_line():
    sol = hx.simulate(RIGID, hx.RATTLE(), dt=0.05, t1=20.0, events=lambda q, p: q[0])
    text = repr(sol.events[0])
    assert "\n" not in text and len(text) < 120 and f"{len(sol.events[0].t)} passages" in text, text
    none = hx.simulate(RIGID, hx.RATTLE(), dt=0.05, steps=2, events=lambda q, p: q[1] - 9.0)
    assert repr(none.events[0]) == "EventRecord(0 passages, q and p of shape (2,))"
