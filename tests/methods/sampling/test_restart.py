"""A run that was cut in two gives the bits of one that was not: every draw depends on the key and the step alone."""

import jax
import numpy as np
import pytest

import holonomix as hx

from . import measures as m

METHODS = {
    "GLA": hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0),
    "GLA symmetric": hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0, symmetric=True),
    "GLA of a composition": hx.GLA(hx.Composition(hx.RATTLE(), order=4), friction=1.0, temperature=1.0),
    "GeodesicBAOAB": hx.GeodesicBAOAB(1.0, 1.0, geodesic_steps=2),
    "ConstrainedHMC": hx.ConstrainedHMC(3),
    "ConstrainedHMC partial": hx.ConstrainedHMC(3, friction=1.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_two_halves_are_one_run(name, tmp_path):
    q0, p0 = hx.project(m.SPHERE, np.array([0.6, 0.0, 0.8]), np.array([0.3, 0.5, 0.1]))

    def run(steps, key=3, **options):
        return hx.simulate(
            m.SPHERE, METHODS[name], q0, p0, dt=0.05, steps=steps, save_every=10, key=jax.random.key(key), **options
        )

    whole = run(2000)
    run(1000, store=tmp_path / "half")
    halves = run(2000, store=tmp_path / "half")
    np.testing.assert_array_equal(whole.q[-100:], halves.q[-100:])
    np.testing.assert_array_equal(whole.p[-100:], halves.p[-100:])
    # control: another key is another path
    assert np.max(np.abs(run(200, key=4).q[-1] - whole.q[20])) > 1e-3
