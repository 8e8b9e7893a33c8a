"""What a user tries first: at rest, at zero, on a line through the origin, with a shifted origin, with long steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.linalg import careful
from holonomix.linalg.iterate import iterate
from holonomix.linalg.scales import stall_rule
from holonomix.mechanics.projection import check_start
from holonomix.mechanics.projection.terms import term_sizes

PENDULUM = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q @ q - 1.0]))
VERTEX = lambda q: jnp.array([q[1] - 0.5 * q[0] ** 2])
SYSTEMS = {
    "pendulum": (PENDULUM, [1.0, 0.0]),
    "bead": (hx.System(lambda q: 9.81 * q[1] - q[0], VERTEX), [0.0, 0.0]),
    "bead with friction": (
        hx.System(lambda q: 9.81 * q[1] - q[0], VERTEX, force=lambda q, v, t: -0.1 * v),
        [0.0, 0.0],
    ),
    "free bead": (hx.System(lambda q: 0.0 * q[0], VERTEX), [0.0, 0.0]),
    "moving track": (
        hx.System(
            lambda q: 9.81 * q[1],
            hx.Rheonomic(lambda q, t: jnp.array([q[1] - 0.1 * t**2])),
            force=lambda q, v, t: -0.1 * v,
        ),
        [0.0, 0.0],
    ),
    "no constraint": (hx.System(lambda q: 0.5 * q @ q - q[0]), [0.0, 0.0]),
    "M(q) on a track": (
        hx.System(
            lambda q: 9.81 * jnp.sum(q[:, 1]),
            lambda q: jnp.array([q[0, 1], jnp.sum((q[1] - q[0]) ** 2) - 1.0]),
            mass=lambda q: jnp.diag(jnp.array([2.0, 2.0, 1.0, 1.0])),
        ),
        [[0.0, 0.0], [1.0, 0.0]],
    ),
}
QUICK = [
    ("pendulum", hx.HBVM(4, 2), 0.0),
    ("pendulum", hx.Gauss(2), 0.0),
    ("bead", hx.SHAKE(), 0.0),
    ("bead", hx.LobattoIIIAB(3), 0.0),
    ("bead", hx.TaylorAdaptive(), 0.0),
    ("bead with friction", hx.RATTLE(), 0.0),
    ("free bead", hx.RATTLE(), 1.0),
    ("moving track", hx.RATTLE(), 0.0),
    ("no constraint", hx.TaylorAdaptive(), 0.0),
    ("M(q) on a track", hx.RATTLE(), 0.0),
]
METHODS = [
    *(hx.RATTLE(), hx.RATTLE(hx.SymmetricNewton()), hx.RATTLE(hx.SOR(1.2)), hx.SHAKE(), hx.SHAKE("velocity")),
    *(hx.Composition(hx.RATTLE(), order=4), hx.HBVM(4, 2), hx.Gauss(2), hx.LineIntegral(4), hx.LineIntegral(6)),
    *(hx.LobattoIIIAB(3), hx.TaylorAdaptive(), hx.ImplicitMidpoint(), hx.Taylor(4)),
]


def _started(name: str, method, speed: float):
    system, start = SYSTEMS[name]
    q = np.asarray(start)
    p = np.zeros_like(q)
    p.reshape(-1)[0] = speed if q.ndim == 1 and not q.any() else 0.0
    end = {"t1": 0.2} if method.adaptive else {"steps": 10}
    return hx.simulate(system, method, q, p, dt=0.02, throw=False, **end)


@pytest.mark.parametrize("name, method, speed", QUICK, ids=lambda x: getattr(x, "name", str(x)))
def test_ordinary_starts_run(name, method, speed):
    sol = _started(name, method, speed)
    assert sol.status == hx.Status.OK and sol.stats["retries"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}-{type(getattr(m, 'solver', None)).__name__}")
def test_every_ordinary_start_runs(method):
    for name, (system, _) in SYSTEMS.items():
        try:
            method.check(system)
        except hx.MethodError:
            continue  # refused by name
        for speed in (0.0, 1.0, 1e-9):
            sol = _started(name, method, speed)
            assert sol.status == hx.Status.OK and sol.stats["retries"] == 0, (name, speed)
            if method.traits_on(system).constraint_exact:
                assert np.max(sol.constraint_error()) < 1e-14, (name, speed)


@pytest.mark.parametrize(
    "monitor", [hx.monitors.ArcLengthMonitor(), hx.monitors.ForceMonitor()], ids=lambda m: type(m).__name__
)
def test_variable_steps_on_a_track_through_zero(monitor):
    track = hx.System(lambda q: 9.81 * q[1] + 0.5 * q[0] ** 2, lambda q: jnp.array([q[1]]))
    sol = hx.simulate(track, hx.VRATTLE(monitor), [1.0, 0.0], [0.3, 0.0], dt=0.01, t1=0.2, throw=False)
    assert sol.status == hx.Status.OK


def test_a_start_at_the_origin_is_judged_by_the_terms_of_the_constraint():
    """0.1 + 0.2 - 0.3 is 5.6e-17: q = 0 is as near to the manifold as arithmetic allows. 1e-13 is not."""
    for offset, fine in ((0.0, True), (1e-13, False)):
        system = hx.System(lambda q: q[1], lambda q, c=offset: jnp.array([q[0] + 0.1 + 0.2 - 0.3 + c]))
        assert float(abs(system.constraint(jnp.zeros(2))[0])) > 0
        if fine:
            check_start(system, jnp.zeros(2), jnp.zeros(2))
        else:
            with pytest.raises(hx.InconsistentStateError):
                check_start(system, jnp.zeros(2), jnp.zeros(2))


def parabola(size, shift, offset):
    place = lambda q: q / size - jnp.asarray(shift)
    rows = lambda x: jnp.array([x[1] - x[0] ** 2 + offset])
    return hx.System(lambda q: 9.81 * size**2 * place(q)[1], lambda q: size * rows(place(q)))


@pytest.mark.parametrize("speed", [0.0, 1.0])
@pytest.mark.parametrize("size", [1.0, 2.0**-40])
def test_a_start_at_the_origin_is_judged_by_curvature_and_step(size, speed):
    """A constant of 1e-16 has no term to be compared with, and at zero q has no size; about (3, 2) it has one."""
    p = size * jnp.array([speed, 0.0])
    for shift in ((0.0, 0.0), (3.0, 2.0)):
        sol = hx.simulate(parabola(size, shift, 1e-16), hx.RATTLE(), size * jnp.asarray(shift), p, dt=0.01, steps=5)
        assert sol.status == hx.Status.OK
    with pytest.raises(hx.InconsistentStateError):
        hx.simulate(parabola(size, (0.0, 0.0), 1e-11), hx.RATTLE(), jnp.zeros(2), p, dt=0.01, steps=5)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[::2], ids=lambda m: f"{m.name}-{type(getattr(m, 'solver', None)).__name__}")
def test_rods_that_pass_the_origin(method):
    """Rounding of the constraint's own terms (its length, 1 or 1e3) is far above that of q, which is nearly zero."""
    circle = hx.System(lambda q: 0.8 * q[1] + 0.5 * q @ q, lambda q: jnp.array([(q[0] + 1) ** 2 + q[1] ** 2 - 1]))
    far = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q[0] ** 2 + (q[1] - 1e3) ** 2 - 1e6]))
    norm = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([jnp.sqrt(q[0] ** 2 + (q[1] - 1) ** 2) - 1]))
    for system, way in ((circle, [0.0, 1.0]), (far, [1.0, 0.0]), (norm, [1.0, 0.0])):
        for dt in (0.1, 0.01, 1e-4):
            for speed in (0.0, 1e-8):
                end = {"t1": 20 * dt} if method.adaptive else {"steps": 20}
                p = speed * np.asarray(way)
                assert hx.simulate(system, method, [0.0, 0.0], p, dt=dt, throw=False, **end).status == hx.Status.OK


def test_sizes_of_terms():
    """Against sums by hand: a rod to an anchor, a norm, and a row that is zero in every term."""
    anchor = jnp.array([0.0, 2.0])
    rows = lambda q: jnp.stack([jnp.sum((q - anchor) ** 2) - 4.0, q[0] + 0.25 - 0.25, q[1] - 0.5 * q[0] ** 2])
    found = term_sizes(rows, jnp.zeros(2))
    # q - anchor is 2, which counts twice in its square 4; the sum is 4 again; the second row adds 0.25 once
    np.testing.assert_allclose(found, [8 + 4 + 4, 0.25, 0.0], rtol=1e-14, atol=0)


def _shifted(method, shift: float):
    anchor = jnp.array([shift, shift / 2])
    rods = lambda q: jnp.array([jnp.sum((q[0] - anchor) ** 2) - 1.0, jnp.sum((q[1] - q[0]) ** 2) - 1.0])
    system = hx.System(lambda q: 9.81 * jnp.sum(q[:, 1] - shift / 2), rods)
    start = np.array([[1.0, 0.0], [2.0, 0.0]]) + np.asarray(anchor)
    sol = hx.simulate(system, method, start, np.zeros((2, 2)), dt=0.01, steps=50, throw=False)
    assert sol.status == hx.Status.OK
    return sol.q[-1] - np.asarray(anchor)


@pytest.mark.parametrize(
    "method",
    [
        hx.RATTLE(),
        hx.HBVM(4, 2),
        pytest.param(hx.Gauss(2), marks=pytest.mark.slow),
        pytest.param(hx.LineIntegral(4), marks=pytest.mark.slow),
        pytest.param(hx.LobattoIIIAB(3), marks=pytest.mark.slow),
        pytest.param(hx.RATTLE(hx.SymmetricNewton()), marks=pytest.mark.slow),
        pytest.param(hx.Composition(hx.RATTLE(), order=6), marks=pytest.mark.slow),
    ],
    ids=lambda m: m.name,
)
def test_the_origin_does_not_matter(method):
    """Shifted by a power of two, a motion differs by the rounding of positions: 50 steps of a few ulp of the shift."""
    here = _shifted(method, 0.0)
    for shift in (2.0**4, 2.0**12, 2.0**20):
        assert np.max(np.abs(_shifted(method, shift) - here)) < 1000 * np.spacing(shift)


# -- long steps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        hx.Gauss(2),
        pytest.param(hx.HBVM(6, 2), marks=pytest.mark.slow),
        pytest.param(hx.LobattoIIIAB(3), marks=pytest.mark.slow),
        pytest.param(hx.LineIntegral(4), marks=pytest.mark.slow),
        pytest.param(hx.LineIntegral(6), marks=pytest.mark.slow),
    ],
    ids=lambda m: m.name,
)
def test_long_steps_run_through(method):
    """The fast iterations leave the basin of the solution here; what is found instead is a root to round-off."""
    problem = hx.models.modified_pendulum()
    repeated = 0
    for dt in (0.3, 0.35, 0.4, 0.45):
        sol = hx.simulate(problem.system, method, problem.q0, problem.p0, dt=dt, steps=600, throw=False)
        assert sol.status == hx.Status.OK, (dt, sol.stats)
        repeated += sol.stats["retries"]
        assert sol.stats["residual"] < 1e-8  # of the repeated steps, not of the attempts that diverged
        traits = method.traits_on(problem.system)
        if traits.energy_exact and method.name != "Gauss(2)":  # whose quadrature is not exact for this potential
            assert np.max(np.abs(sol.energy_error())) < 1e-12
            assert np.max(sol.constraint_error()) < 1e-12
    assert repeated > 0  # else this tests nothing


@pytest.mark.slow
def test_repeated_steps_of_an_ensemble_do_not_depend_on_the_others():
    problem, method = hx.models.modified_pendulum(), hx.LobattoIIIAB(3)
    q = np.repeat(np.asarray(problem.q0)[None], 40, 0)
    p = np.asarray(problem.p0)[None] * np.linspace(0.7, 1.3, 40).reshape(-1, *(1,) * problem.p0.ndim)
    run = lambda n: hx.simulate_ensemble(problem.system, method, q[:n], p[:n], dt=0.4, steps=100, save_every=10)
    all_of_them, some = run(40), run(11)
    assert all_of_them.ok.all() and all_of_them.stats["retries"] > some.stats["retries"] > 0
    np.testing.assert_array_equal(all_of_them.q[:11], some.q)


@pytest.mark.slow
def test_a_run_with_repeated_steps_resumes_to_the_same_bits(tmp_path):
    problem, method = hx.models.modified_pendulum(), hx.LobattoIIIAB(3)
    given = (problem.system, method, problem.q0, problem.p0)
    whole = hx.simulate(*given, dt=0.4, steps=120)
    hx.simulate(*given, dt=0.4, steps=70, store=tmp_path / "run")
    rest = hx.simulate(*given, dt=0.4, steps=120, store=tmp_path / "run")
    np.testing.assert_array_equal(rest.q, whole.q)
    assert rest.stats["retries"] == whole.stats["retries"] > 0
    assert rest.stats["residual"] == whole.stats["residual"] < 1e-8


@pytest.mark.slow
def test_gradients_through_repeated_steps():
    problem, method = hx.models.modified_pendulum(), hx.LobattoIIIAB(3)

    def end(q):
        return hx.integrate(problem.system, method, q, problem.p0, dt=0.35, steps=30, careful=True)[0].sum()

    gradient = jax.jit(jax.grad(end))(problem.q0)
    h = 1e-6
    differences = [(end(problem.q0 + h * e) - end(problem.q0 - h * e)) / (2 * h) for e in jnp.eye(3)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=0)
    fast = jax.jit(lambda q: hx.integrate(problem.system, method, q, problem.p0, dt=0.35, steps=30)[0])(problem.q0)
    assert np.all(np.isnan(fast))  # the control: without care the same run fails


def test_damped_newton_finds_what_plain_newton_misses():
    """arctan(x) = 0 from x = 3: whole corrections diverge."""
    with careful.careful_solves():
        assert careful.is_careful(1)
        found = careful.rescue(
            jnp.asarray(False),
            jnp.asarray([jnp.nan]),
            lambda x, fraction: jnp.arctan(x),
            jnp.asarray([3.0]),
            lambda x, norm, k: x,
        )
    assert bool(found[0]) and abs(float(found[1][0])) < 1e-15
    assert not careful.is_careful(1)


def test_no_root_is_not_found():
    """x^2 + 1 = 0: no schedule converges, and what was found before is kept."""
    with careful.careful_solves():
        good, kept = careful.rescue(
            jnp.asarray(False),
            jnp.asarray([7.0]),
            lambda x, fraction: x**2 + 1,
            jnp.asarray([0.5]),
            lambda x, norm, k: x,
        )
    assert not bool(good) and float(kept[0]) == 7.0


def _norms(values):
    """The verdict of `iterate` on an iteration whose residual norms are these, the last two repeated for ever."""
    table = jnp.asarray(values)
    last = len(values)
    residual = lambda k: ((), table[jnp.where(k < last, k, last - 2 + (k - last) % 2)])
    options = {"tol": 1e-16, "floor": 1e-14, "limit": 3e-11, "max_iterations": 60}
    return bool(iterate(lambda k, r: k + 1, residual, jnp.asarray(0), **options).converged)


def test_rounding_errors_that_alternate_have_converged():
    assert _norms([1e-3, 1e-5, 1e-7, 1e-9, 3.9e-11, 1.1e-11])  # one value above the limit, one below
    assert not _norms([1e-3, 1e-5, 1e-7, 3.9e-9, 1.1e-9])  # far above round-off


def _newton_norms(values, bend=None):
    """The verdict on a quadratic iteration with these norms; `bend` is the curvature along its last correction."""
    table = jnp.asarray(values)
    residual = lambda k: ((), table[jnp.minimum(k, len(values) - 1)])
    options = stall_rule(jnp.dtype(float), quadratic=True) | ({} if bend is None else {"curvature": lambda a, b: bend})
    done = iterate(lambda k, r: k + 1, residual, jnp.asarray(0), tol=1e-16, max_iterations=len(values) - 1, **options)
    return bool(done.converged)


def test_a_stall_is_round_off_only_if_it_is_level_and_straight():
    assert _newton_norms([1.0, 1e-5, 3e-9, 2e-9])  # round-off of large constants
    assert not _newton_norms([1.0, 1e-9, 1e-8])  # moves away from a singular point
    stalled = [1.0, 2.9e-6, 2.3e-6]  # of two links in line
    assert not _newton_norms(stalled) and not _newton_norms(stalled, 4.6e-6) and _newton_norms(stalled, 1e-9)
