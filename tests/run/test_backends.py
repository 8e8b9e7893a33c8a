"""Back ends agree: every method of the registry, on every kind of system it declares."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.run import backends
from holonomix.trace.compiled import Recent

# After STEPS steps of size 0.01 the back ends differ by rounding only: this many ulps of the largest coordinate.
STEPS, ULPS = 20, 400
REGISTRY = hx.methods.registry()


def problem_of(kind):
    if kind == "constrained":
        return hx.models.double_pendulum()
    return hx.models.henon_heiles() if kind == "free" else None


CASES = [(name, kind) for name, entry in REGISTRY.items() for kind in entry.traits if kind in ("free", "constrained")]

# What must run natively, by name: a method that loses its native path, or a kind of system, fails a test.
NATIVE = {
    "free": """
        AdamsBashforth AdamsMoulton AdaptiveVerlet Composition ConstrainedHMC ExplicitEuler ExplicitMidpoint GLA Gauss
        GeodesicBAOAB HBVM ImplicitMidpoint Leapfrog LineIntegral LinearMultistep LinearlyImplicitNewmark LobattoIIIAB
        Newmark PartitionedRungeKutta PoincareEuler PushforwardNewmark RATTLE RK4 RungeKutta Splitting StormerVerlet
        SymplecticEuler Taylor TaylorAdaptive VariationalIntegrator ZhangSkeel ZhangSkeelSimplified
    """.split(),
    "constrained": """
        AdamsBashforth AdamsMoulton CayleyEulerSO3 Composition ConstrainedHMC ExplicitEuler ExplicitMidpoint GLA Gauss
        GeodesicBAOAB HBVM ImplicitMidpoint LineIntegral LinearMultistep LobattoIIIAB PoincareEuler RATTLE RK4
        RungeKutta SHAKE StormerVerlet SymplecticEuler Taylor TaylorAdaptive VRATTLE VSHAKE
    """.split(),
}

# The others take long to compile, and are run by make test-all.
LONG = {"AdamsBashforth", "AdamsMoulton", "ConstrainedHMC", "GeodesicBAOAB", "Taylor", "VSHAKE"}


def sometimes(name, kind):
    return pytest.param(name, kind, marks=() if kind == "free" or name not in LONG else pytest.mark.slow)


@functools.cache
def simulated(name, kind, backend):
    method = REGISTRY[name].default
    problem = hx.models.magnetized_body() if method.family == "so3" else problem_of(kind)
    assert problem.system.kind == kind, f"no {kind} model of rotation matrices is registered"
    options = {"dt": 0.01, "steps": STEPS, "save_every": 5, "key": jax.random.key(1) if method.stochastic else None}
    return hx.simulate(problem, method, **options, backend=backend)


def test_every_method_must_run_natively():
    assert sorted(CASES) == sorted((name, kind) for kind, names in NATIVE.items() for name in names)


@pytest.mark.parametrize(("name", "kind"), [sometimes(*case) for case in CASES])
def test_backends_agree(name, kind):
    method = REGISTRY[name].default
    fast, slow = (simulated(name, kind, backend) for backend in ("native", "array"))
    # normal numbers come from a rational approximation of erf^-1 and differ by up to 30 ulp themselves
    ulps = 20 * ULPS if method.stochastic else ULPS
    bound = ulps * np.finfo(float).eps * max(1.0, np.abs(slow.q).max(), np.abs(slow.p).max())
    assert np.abs(fast.q - slow.q).max() <= bound and np.abs(fast.p - slow.p).max() <= bound
    assert fast.stats["backend"] == "native" and len(fast.t) == 5


@pytest.mark.parametrize("name", ["RATTLE", "Composition", "HBVM", "LineIntegral"])
def test_backends_lane_equals_lane_in_a_batch(name):
    method, problem = REGISTRY[name].default, hx.models.double_pendulum()
    turn = np.linspace(0.0, 1.0, 21)
    q0 = np.stack([np.asarray(problem.q0) @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in turn])
    options = {"dt": 0.02, "steps": 25, "backend": "native"}
    batch = hx.simulate_ensemble(problem.system, method, q0, 0 * q0, **options)
    for k in (0, 11, 20):
        alone = hx.simulate(problem.system, method, q0[k], 0 * q0[k], **options)
        np.testing.assert_array_equal(batch.q[k], alone.final_q)
        np.testing.assert_array_equal(batch.p[k], alone.final_p)


def test_backends_nan_ends_one_lane_only():
    system = hx.System(lambda q: q[1] + 1e-9 * jnp.sqrt(q[1] + 0.5))  # NaN below -1/2
    q0 = np.stack([[0.0, y] for y in np.linspace(0.0, 8.0, 9)])
    ensemble = hx.simulate_ensemble(system, hx.StormerVerlet(), q0, 0 * q0, dt=0.1, steps=20, backend="native")
    expected = q0[:, 1] - 0.5 * 2.0**2 < -0.5
    assert (
        (ensemble.status == hx.Status.NONFINITE).tolist() == expected.tolist() and expected.any() and not expected.all()
    )
    np.testing.assert_allclose(ensemble.q[~expected][:, 1], q0[~expected][:, 1] - 2.0, rtol=0, atol=1e-7)


@dataclasses.dataclass
class StepByStep(backends.Runner):
    """A back end for one trajectory that runs every operation by itself; `docs/extending.md` shows it."""

    loop: Any
    name = "step-by-step"
    description = "one operation after the other"

    def run(self, carry, consts, axes=None, *, rows, every):
        carry, shown = jax.tree.map(lambda x: jnp.asarray(x)[0], carry), []
        with jax.disable_jit():
            for _ in range(rows):
                for _ in range(every):
                    if not self.loop.halted(carry, consts):
                        carry = self.loop.step(carry, consts)
                shown.append(self.loop.read(carry, consts))
        return jax.tree.map(lambda x: x[None], carry), jax.tree.map(lambda *x: np.stack(x)[None], *shown)


class StepByStepBackend:
    def lower(self, loop, carry, consts, *, alone, asked):
        return StepByStep(loop) if alone else NotImplementedError("it runs one trajectory at a time")


def test_a_fourth_back_end_is_one_entry(monkeypatch, tmp_path):
    problem, method = hx.models.double_pendulum(), hx.RATTLE()
    with pytest.raises(hx.InputError, match=r"backend must be one of.*'cuda'"):
        hx.simulate(problem, method, dt=0.01, steps=4, backend="step-by-step")
    monkeypatch.setitem(backends.BACKENDS, "step-by-step", StepByStepBackend())
    options = {"dt": 0.01, "save_every": 2, "backend": "step-by-step"}
    whole = hx.simulate(problem, method, steps=6, **options)
    native = hx.simulate(problem, method, steps=6, **options | {"backend": "native"})
    bound = ULPS * np.finfo(float).eps * max(1.0, np.abs(native.q).max(), np.abs(native.p).max())
    assert np.abs(whole.q - native.q).max() <= bound and np.abs(whole.p - native.p).max() <= bound
    assert whole.stats["backend"] == "step-by-step" and "step-by-step" in hx.explain(
        problem, method, backend="step-by-step"
    )
    hx.simulate(problem, method, steps=4, store=tmp_path / "run", **options)
    with pytest.raises(hx.InputError, match="'step-by-step'.*'native'"):
        hx.simulate(problem, method, steps=6, store=tmp_path / "run", **options | {"backend": "native"})
    np.testing.assert_array_equal(hx.simulate(problem, method, steps=6, store=tmp_path / "run", **options).q, whole.q)
    with pytest.raises(hx.InputError, match="one trajectory at a time.*backend='array'"):
        hx.simulate_ensemble(problem, method, problem.q0[None], problem.p0[None], steps=2, **options)


def test_backends_unknown_operation_is_named():
    def potential(q):
        return jnp.sum(jnp.linalg.eigvalsh(jnp.outer(q, q) + jnp.eye(3)))

    system = hx.System(potential)
    text = hx.explain(system, hx.StormerVerlet(), jnp.ones(3))
    assert text.backend == "array" and "eigh" in text
    sol = hx.simulate(system, hx.StormerVerlet(), jnp.ones(3), jnp.zeros(3), dt=0.01, steps=3)
    assert sol.stats["backend"] == "array" and "eigh" in sol.stats["backend_reason"]
    with pytest.raises(hx.InputError, match="eigh"):
        hx.simulate(system, hx.StormerVerlet(), jnp.ones(3), jnp.zeros(3), dt=0.01, steps=3, backend="native")


def test_backends_kernels_are_reused_for_new_numbers(monkeypatch):
    problem = hx.models.double_pendulum()
    hx.simulate(problem, hx.RATTLE(), dt=0.01, steps=5)
    monkeypatch.setattr("holonomix.compiler.lower", lambda *_: pytest.fail("lowered again"))
    other = hx.models.double_pendulum(gravity=2.0)
    again = hx.simulate(other, hx.RATTLE(), dt=0.02, steps=5)
    assert again.stats["backend"] == "native"


def test_the_budget_counts_work_and_explain_says_so(monkeypatch):
    """A step whose arrays are large although it has few operations is given up at the same place each time."""
    zeros = np.zeros((300, 300))
    system = hx.System(lambda q: jnp.sum(jnp.cos(q)) + jnp.sum((zeros + zeros[:, ::-1] * 2) @ jnp.tile(q, 50)[:300]))
    q = np.linspace(-1, 1, 6)
    assert hx.explain(system, hx.StormerVerlet(), q).backend == "native"
    monkeypatch.setattr(backends, "_CACHE", Recent(8))
    monkeypatch.setattr("holonomix.compiler.graph.WORK", 1)
    said = [hx.explain(system, hx.StormerVerlet(), q) for _ in range(2)]
    assert said[0].backend == "array" and "too many numbers (more than 100000" in said[0] and said[0] == said[1]
    assert "with loops over axes" in said[0].reason


def test_explain_says_why_there_are_loops():
    said = hx.explain(hx.models.chain(80), hx.RATTLE())
    assert "unrolled it would have too many operations" in said.reason
