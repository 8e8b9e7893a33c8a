"""With HOLONOMIX_X64=0 everything runs in 32-bit floats, to their round-off; what needs more is refused."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx


def weight(q):
    return q[1]


def rod(q):
    return jnp.array([q @ q - 1.0])


@pytest.fixture
def single():
    with jax.enable_x64(False):
        yield hx.System(weight, rod), jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])


@pytest.mark.parametrize("method", [hx.RATTLE(), hx.HBVM(6, 2)], ids=lambda m: m.name)
def test_a_run_keeps_its_constraint_to_round_off(single, method):
    system, q, p = single  # g(q) is 3e-8 here: no nearer point exists in single precision
    sol = hx.simulate(system, method, q, p, dt=0.01, steps=100, backend="array")
    assert sol.q.dtype == np.float32 and 0 < sol.constraint_error().max() < 1e-6
    with pytest.raises(hx.InconsistentStateError, match="0.0002"):
        hx.simulate(system, method, 1.0001 * q, p, dt=0.01, steps=100, backend="array")


def test_projection_and_refusals(single):
    system, q, p = single
    q1, p1 = hx.project(system, 1.01 * q, p)
    assert q1.dtype == jnp.float32 and abs(float(rod(q1)[0])) < 3e-7 and abs(float(q1 @ p1)) < 3e-7
    with pytest.raises(hx.InputError, match="1e-10.*float32"):
        hx.Newton(tol=1e-10)
    with pytest.raises(hx.InputError, match="HOLONOMIX_X64"):
        hx.certify(hx.models.planar_pendulum(), hx.RATTLE())


@pytest.mark.slow
def test_the_environment_variable():
    code = "import holonomix as hx, jax.numpy as jnp; hx.System; print(jnp.ones(2).dtype)"
    for value, kind in (("0", "float32"), ("1", "float64")):
        env = os.environ | {"HOLONOMIX_X64": value}
        env.pop("JAX_ENABLE_X64", None)
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == kind
