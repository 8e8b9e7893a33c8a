"""The same motion in all units: bit for bit for powers of two, to 1e-12 in meters, kilograms and seconds."""

from __future__ import annotations

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.linalg.small import Dense
from holonomix.mechanics.projection import check_start
from holonomix.methods.registry import registry

from .problems import MOLECULAR, NATURAL, STEP, powers_of_two, problem, run


def _name(method: Any) -> str:
    return f"{method.name}-{type(getattr(method, 'solver', None)).__name__}".removesuffix("-NoneType")


QUICK = [
    (hx.RATTLE(), "constrained"),
    (hx.RATTLE(), "mixed"),
    (hx.ImplicitMidpoint(), "free"),
    (hx.LineIntegral(), "constrained"),
    (hx.GLA(), "constrained"),
    (hx.ConstrainedHMC(inner_steps=2), "constrained"),
]


def everything() -> list[tuple[Any, str]]:
    """Every method and variant of the registry on every kind of system that it declares."""
    cases = [(hx.RATTLE(solver), "constrained") for solver in (hx.SymmetricNewton(), hx.SOR(1.3), hx.GaussSeidel())]
    cases += [
        (hx.SHAKE(), "mixed"),
        (hx.MollifiedImpulse(substeps=4), "stiff"),
        (hx.StormerVerlet(), "constrained"),
        (hx.VRATTLE(hx.monitors.ArcLengthMonitor()), "constrained"),
    ]
    for entry in registry().values():
        for make in (entry.make, *entry.variants):
            method = make()
            if "SO3" in entry.name:
                cases += [(method, "stiff rotation" if "stiff" in method.traits else "rotation")]
            else:
                cases += [(method, kind) for kind in method.traits]
    return cases


def _same(method: Any, kind: str, seed: int, **options: Any) -> None:
    length, mass, time = powers_of_two(seed)
    units = (length, mass**2 if "stiff" in kind else mass, time)  # a penalty is given by the root of a stiffness
    natural, scaled = (run(method, kind, given, **options) for given in (NATURAL, units))
    for name, values in natural.items():
        assert np.all(np.isfinite(values))
        np.testing.assert_array_equal(scaled[name], values, err_msg=name)
    molecular = run(method, kind, MOLECULAR, **options)
    for name in "qpt":
        size = np.max(np.abs(natural[name]))
        np.testing.assert_allclose(molecular[name], natural[name], atol=1e-12 * size, rtol=0, err_msg=name)


@pytest.mark.parametrize("method, kind", QUICK, ids=lambda x: x if isinstance(x, str) else _name(x))
def test_same_motion_in_all_units(method, kind):
    _same(method, kind, 1)


@pytest.mark.slow
@pytest.mark.parametrize("method, kind", everything(), ids=lambda x: x if isinstance(x, str) else _name(x))
def test_same_motion_in_all_units_everywhere(method, kind):
    for seed in (2, 3):  # one after the other: they share compiled programs
        _same(method, kind, seed, steps=40, backend="auto")


def test_an_absolute_tolerance_would_be_noticed(monkeypatch):
    """The control: with `1 + max|x|` for a scale, as it once was, the motion depends on the units."""
    module = sys.modules["holonomix.linalg.iterate"]
    monkeypatch.setattr(module, "row_sizes", lambda matrix, x: jnp.full(len(matrix), 1.0 + jnp.max(x)))
    method = hx.PoincareEuler(max_iterations=49)  # nothing compiled for another test
    natural, molecular = (run(method, "constrained", units) for units in (NATURAL, MOLECULAR))
    assert np.max(np.abs(molecular["q"] - natural["q"])) > 1e-9


# -- projections and checks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1e-10, 1.0, 7e6, 1e9])
def test_project_in_all_units(length):
    units = (length, 1.0, 1.0)
    system, q, p = problem("constrained", units)
    moved, tangent = hx.project(system, q * jnp.asarray([1.02, 1.0, 0.99, 1.0]), p + 0.1 * length)
    assert np.max(np.abs(system.constraint(moved))) <= 8e-16 * 4 * length**2
    assert np.max(np.abs(system.hidden_constraint(moved, tangent))) <= 1e-14 * length**2
    exact, _ = hx.project(*problem("constrained", NATURAL)[:1], (q / length) * jnp.asarray([1.02, 1.0, 0.99, 1.0]), p)
    np.testing.assert_allclose(moved / length, exact, rtol=0, atol=1e-14)
    # a start that is exact to one ulp is accepted, one that is off in the ninth digit is not
    hx.simulate(system, hx.RATTLE(), moved * (1 + 2.0**-52), tangent, dt=1e-3, steps=1)
    with pytest.raises(hx.InconsistentStateError):
        hx.simulate(system, hx.RATTLE(), moved * (1 + 1e-6), tangent, dt=1e-3, steps=1)


@pytest.mark.slow
def test_project_a_long_chain():
    """100 000 links, every joint moved by 1e-3: 7e-7 was left."""
    n = 100_000
    links = np.stack([np.cos(0.1 * np.arange(n)), 0.3 * np.sin(np.arange(n)) - 1.2], axis=1)
    q = np.cumsum(links / np.linalg.norm(links, axis=1)[:, None], axis=0)
    pairs = np.stack([np.arange(-1, n - 1), np.arange(n)], axis=1)
    system = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance(pairs, 1.0))
    moved = q + 1e-3 * np.random.default_rng(0).standard_normal(q.shape)
    q, _ = hx.project(system, moved, np.zeros_like(q))
    assert np.max(np.abs(system.constraint(q))) < 8 * np.spacing(np.max(np.abs(q)))


def test_a_start_at_the_origin_is_judged_by_the_radius_of_the_rod():
    anchor = jnp.asarray([0.3, 0.4])
    rod = hx.System(lambda q: q[1], lambda q: jnp.stack([jnp.sum((q - anchor) ** 2) - 0.25]))
    q = jnp.asarray([1e-16, 0.0])
    assert float(jnp.abs(rod.constraint(q)[0])) > 0
    hx.simulate(rod, hx.RATTLE(), q, jnp.zeros(2), dt=1e-2, steps=5)


def test_a_pendulum_may_pass_the_origin():
    """Rounding of the anchor, not of q, limits the residual there."""
    anchor = jnp.asarray([0.0, 1.0])
    rod = hx.System(lambda q: q[1], lambda q: jnp.stack([jnp.sum((q - anchor) ** 2) - 1.0]))
    q, p = jnp.asarray([0.0, 0.0]), jnp.asarray([1e-3, 0.0])
    for solver in (hx.Newton(), hx.SymmetricNewton()):
        sol = hx.simulate(rod, hx.RATTLE(solver), q, p, dt=1e-3, steps=50_000, save_every=1000)
        assert sol.status == hx.Status.OK


def test_momentum_that_is_off_is_refused_in_small_units():
    system, q, p = problem("constrained", MOLECULAR)
    with pytest.raises(hx.InconsistentStateError, match="not tangent"):
        hx.simulate(system, hx.RATTLE(), q, p * jnp.asarray([1.0, 1.01, 1.0, 1.0]), dt=1e-17, steps=1)


@pytest.mark.slow
def test_certify_judges_a_constraint_in_its_own_units():
    system, q, p = problem("constrained", MOLECULAR)
    given = hx.Problem(system, q, p, 1e-17, 1e-15)
    loose = hx.certify(given, hx.RATTLE(hx.Newton(tol=1e-15)), measure="constraint", steps=20)
    right = hx.certify(given, hx.RATTLE(), measure="constraint", steps=20)
    assert [f.kept for f in loose.findings if f.name == "constraint"] == [False]
    assert all(f.kept for f in right.findings)


# -- rows in different units ------------------------------------------------------------------------------------------


def test_pivots_are_judged_row_by_row():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20, 30))
    rows[10:] *= 1e-7
    factor = Dense(jnp.asarray(rows @ rows.T)).factor(symmetric=True)
    plain = rows.copy()
    plain[10:] *= 1e7
    assert float(factor.pivot) > 1e-3 * float(Dense(jnp.asarray(plain @ plain.T)).factor(symmetric=True).pivot)
    b = rng.standard_normal(20)
    scale = np.where(np.arange(20) < 10, 1.0, 1e-7)
    expected = np.linalg.solve(plain @ plain.T, b) / scale
    np.testing.assert_allclose(factor.solve(jnp.asarray(scale * b)), expected, rtol=1e-8)
    dependent = np.concatenate([rows[:19], rows[3:4] * 1e-7])
    assert float(Dense(jnp.asarray(dependent @ dependent.T)).factor(symmetric=True).pivot) < 1e-13


def test_redundant_rows_in_different_units():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((18, 30))
    rows[9:] *= 1e-7
    rows = np.concatenate([rows, rows[:2]])
    gram, exact = jnp.asarray(rows @ rows.T), rng.standard_normal(20)
    factor = Dense(gram).factor_redundant(symmetric=True)
    found = factor.shortest(factor.solve(gram @ exact))
    np.testing.assert_allclose(rows.T @ found, rows.T @ exact, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found[:2], found[-2:], rtol=1e-6)  # least norm: shared equally


# -- no failure is discarded ------------------------------------------------------------------------------------------


def _no_point(q: Any) -> Any:
    """A manifold that no line from far out meets."""
    return jnp.stack([q[0] ** 2 + q[1] ** 2 + 1.0])


def test_a_foot_that_does_not_exist_is_an_error():
    stiff = hx.StiffSystem(lambda q: 0.0 * q[0], lambda q: 0.5 * jnp.sum(_no_point(q) ** 2), _no_point, epsilon=0.1)
    q = jnp.asarray([0.3, 0.4])
    with pytest.raises(hx.ConvergenceError, match="point of the manifold"):
        stiff.foot(q)
    assert np.all(np.isnan(eqx.filter_jit(lambda system, q: system.foot(q)[0])(stiff, q)))
    for mollifier in ("projection", "nearest"):
        method = hx.MollifiedImpulse(substeps=2, mollifier=mollifier)
        sol = hx.simulate(stiff, method, q, 0 * q, dt=1e-3, steps=2, throw=False, backend="array")
        assert sol.status == hx.Status.NOT_CONVERGED


def _jump(q: Any, v: Any, t: Any) -> Any:
    return jnp.stack([jnp.where(v[0] >= -0.1, 1.0, 0.0), 0 * v[0]])


def test_a_start_of_shake_that_fails_is_reported():
    # raw + dt/2 f(raw) = 0 has no solution for dt = 2; the steps after it would have one
    system = hx.System(lambda q: 0.0 * q[0], lambda q: jnp.stack([q[1]]), force=_jump)
    q = jnp.asarray([1.0, 0.0])
    sol = hx.simulate(system, hx.SHAKE(), q, 0 * q, dt=2.0, steps=1, throw=False, backend="array")
    assert sol.status == hx.Status.NOT_CONVERGED


def _twice(q: Any) -> Any:
    g = q[0] ** 2 + q[1] ** 2 - 1.0
    return jnp.stack([g, 2 * g])


def test_redundant_rows_reach_the_multipliers_of_integrate():
    system = hx.System(lambda q: q[1], _twice)
    q, p = jnp.asarray([0.6, -0.8]), jnp.asarray([0.8, 0.6])
    solver = hx.Newton(redundant="min-norm")
    info = hx.integrate(system, hx.RATTLE(solver), q, p, dt=0.05, steps=4, info=True, adjoint="forward")[2]
    first, second = info.multipliers
    np.testing.assert_allclose(second, 2 * first, rtol=1e-12)  # of least norm


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda s: hx.GLA(hx.RATTLE(s)), lambda s: hx.GeodesicBAOAB(solver=s)])
def test_redundant_rows_reach_thermostats(make):
    method = make(hx.Newton(redundant="min-norm"))
    q, p = jnp.asarray([0.6, -0.8]), jnp.asarray([0.8, 0.6])
    sol = hx.simulate(hx.System(lambda q: q[1], _twice), method, q, p, dt=0.05, steps=4, key=jax.random.key(0))
    assert sol.status == hx.Status.OK and np.all(np.isfinite(sol.p))


# -- samplers, monitors, stopping rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("length", [1e-10, 1.0, 1e6])
def test_the_way_back_is_judged_by_the_way(length, dtype):
    hmc, system = hx.ConstrainedHMC(), hx.System(lambda q: 0.0)
    q, way = length * np.array([0.6, -0.8]), length * np.array([0.03, 0.01])
    judge = lambda again: bool(hmc._returns(system, *(jnp.asarray(x, dtype) for x in (q, q + way, again))))
    assert judge(q * (1 + 4 * np.finfo(dtype).eps))
    assert not judge(q + 0.1 * way)


@pytest.mark.parametrize("at_rest", [False, True])
def test_monitors_scale_with_their_units(at_rest):
    length, mass, time = units = powers_of_two(7)
    force, speed = mass / time**2, length / time  # of a multiplier and of the others
    monitors = {
        hx.MultiplierMonitor(): force,
        hx.monitors.ForceMonitor(): speed,
        hx.monitors.ArcLengthMonitor(): speed,
        hx.monitors.FastestParticleMonitor(): speed,
    }
    for monitor, unit in monitors.items():
        natural, scaled = (
            float(monitor(system, q, 0.0 * p if at_rest else p))
            for system, q, p in (problem("constrained", given) for given in (NATURAL, units))
        )
        assert scaled == natural * unit and natural > 0, monitor
    # half of the forces at the start
    system, q, p = problem("constrained", NATURAL)
    lam, bare = (float(hx.MultiplierMonitor(floor)(system, q, p)) for floor in (None, 0.0))
    assert bare < lam <= 2 * bare


@pytest.mark.slow
@pytest.mark.parametrize("method", [hx.RATTLE(), hx.VRATTLE()], ids=_name)
def test_events_in_all_units(method):
    """The same passages, in times, states and directions, and the same end by a terminal event."""
    found = {}
    for units in (NATURAL, (1e-10, 1e-27, 1e-14)):
        length, mass, time = units
        system, q, p = problem("constrained", units)
        events = [
            hx.Event(lambda q, p, length=length: q[0] - 0.3 * length),
            hx.Event(lambda q, p: p[1] * 1e-3, direction=1),  # in units of nothing at all
            hx.Event(lambda q, p, t, time=time: t / time - 3.3, terminal=True),
        ]
        sol = hx.simulate(system, method, q, p, dt=STEP * time, t1=5 * time, events=events)
        assert sol.status == hx.Status.TERMINATED
        found[units] = [
            (np.asarray(e.t) / time, np.asarray(e.q) / length, np.asarray(e.p) / (mass * length / time))
            for e in sol.events
        ]
        found[units].append((sol.final_t / time, np.asarray(sol.final_q) / length))
    assert len(found[NATURAL][0][0]) and len(found[NATURAL][1][0])
    for natural, molecular in zip(*found.values(), strict=True):
        for a, b in zip(natural, molecular, strict=True):
            np.testing.assert_allclose(b, a, atol=1e-10, rtol=0)


def test_symmetric_newton_does_not_drift():
    """Stopped on one side of the manifold, it lost 9e-14 of the energy in 4e5 steps."""
    given = hx.models.double_pendulum()
    means = []
    for solver in (hx.Newton(), hx.SymmetricNewton()):
        args = (given.system, hx.RATTLE(solver), given.q0, given.p0)
        error = hx.simulate(*args, dt=2e-3, steps=400_000, save_every=200, backend="native").energy_error()
        means.append(np.mean(error[-500:]) - np.mean(error[:500]))
    assert abs(means[1] - means[0]) < 2e-14


def test_a_zero_coordinate_is_rounded_in_units_of_its_vector():
    """Noise in a component that is zero in these axes, or in a particle at the origin, is no inconsistent start."""
    system = hx.System(lambda q: q[1, 1], lambda q: jnp.stack([q[0, 2], q[1, 0], jnp.sum(q[1] ** 2) - 1.0]))
    q = jnp.asarray([[0.0, 0.0, 1e-25], [1e-17, 0.6, 0.8]])
    check_start(system, q, jnp.zeros_like(q))
    with pytest.raises(hx.InconsistentStateError):
        check_start(system, q.at[1, 0].set(1e-7), jnp.zeros_like(q))
