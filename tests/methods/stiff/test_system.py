"""Stiff systems and their relatives: the limits, frequencies, actions, multipliers."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics import ResonanceWatch
from holonomix.mechanics.modes import generalized_modes

PROBLEM = hx.models.stiff_spring_double_pendulum(1e-2)


def test_a_stiff_system_answers_like_a_free_one():
    rigid = hx.models.double_pendulum()
    stiff = rigid.system.penalized(20.0)
    q = rigid.q0 + 0.01
    g = rigid.system.constraint(q)
    assert not stiff.has_constraints and stiff.constraint is None and stiff.constraint_count(q) == 0
    assert stiff.multipliers(q, q).shape == (0,)
    assert np.isclose(stiff.potential(q), rigid.system.potential(q) + 200 * jnp.sum(g**2), rtol=1e-14, atol=0)
    assert np.array_equal(stiff.manifold(q), g)
    back = stiff.constrained()
    assert back.has_constraints and np.array_equal(back.constraint(q), g)
    assert np.isclose(back.potential(q), rigid.system.potential(q), rtol=1e-15, atol=0)
    sol = hx.simulate(stiff, hx.RK4(), rigid.q0, rigid.p0, dt=0.005, steps=100)  # a method for free systems
    assert np.max(np.abs(sol.energy_error())) < 1e-4
    with pytest.raises(hx.MethodError, match="stiff"):
        hx.SHAKE().check(stiff)
    with pytest.raises(hx.InputError, match="omega must be positive"):
        rigid.system.penalized(-1.0)
    with pytest.raises(hx.InputError, match="needs epsilon"):
        hx.StiffSystem(lambda q: 0.0, lambda q: 0.0, lambda q: q[:1])


def test_two_modes_written_out_agree_with_the_general_solver():
    for seed in range(5):
        a, b = (jax.random.normal(k, (2, 2)) for k in jax.random.split(jax.random.key(seed)))
        s, b = a @ a.T + 0.1 * jnp.eye(2), b @ b.T + 0.5 * jnp.eye(2)
        values, modes = generalized_modes(s, b)
        exact = np.sort(np.linalg.eigvals(np.linalg.solve(b, s)).real)
        assert np.allclose(values, exact, rtol=1e-12, atol=0)
        assert np.allclose(modes.T @ b @ modes, np.eye(2), rtol=0, atol=1e-12)
        assert np.allclose(s @ modes, b @ modes * values, rtol=0, atol=1e-12)


def test_frequencies_are_those_of_the_pencil():
    stiff, (q, _) = PROBLEM.system, PROBLEM.system.project(PROBLEM.q0, PROBLEM.p0)
    hessian = np.asarray(jax.jit(jax.hessian(lambda x: stiff._stiff(x)))(q)).reshape(4, 4)
    exact = np.sqrt(np.linalg.eigvalsh(hessian)[2:])
    assert np.allclose(stiff.frequencies(q), exact, rtol=1e-10, atol=0)


def test_correction_force_equals_autodiff_through_the_eigenproblem():
    stiff, (q, _) = PROBLEM.system, PROBLEM.system.project(PROBLEM.q0, PROBLEM.p0)
    q = q + 0.05
    actions = jnp.array([0.3, 2.0])

    def whole(x):
        jac = stiff.constrained().linearize(x).todense()
        hessian = jax.hessian(stiff._stiff)(x).reshape(4, 4)
        b, s = jac @ jac.T, jac @ hessian @ jac.T
        return jnp.sum(actions * jnp.sqrt(generalized_modes(s, b)[0]))

    ours = jax.jit(jax.grad(lambda x: stiff.correction(x, actions)))(q)
    assert float(jnp.max(jnp.abs(ours - jax.jit(jax.grad(whole))(q)))) < 1e-10


@pytest.mark.parametrize("corrected", [pytest.param(True, marks=pytest.mark.slow), False], ids=["effective", "rigid"])
def test_resolved_motion_follows_the_effective_system(corrected):
    eps = 1e-3
    problem = hx.models.stiff_spring_double_pendulum(eps)
    stiff = problem.system
    sol = hx.simulate(stiff, hx.StormerVerlet(), problem.q0, problem.p0, dt=eps / 50, t1=2.0, save_every=5000)
    q, p = stiff.project(problem.q0, problem.p0)
    limit = hx.effective(stiff, problem.q0, problem.p0) if corrected else stiff.constrained()
    other = hx.simulate(limit, hx.RATTLE(), q, p, dt=0.002, t1=2.0, save_every=50)
    apart = np.max(np.abs(sol.q - other.q))
    assert apart < 3 * eps if corrected else apart > 0.2


def test_actions_vanish_on_the_manifold_and_resonances_warn():
    stiff, (q, p) = PROBLEM.system, PROBLEM.system.project(PROBLEM.q0, PROBLEM.p0)
    assert float(jnp.max(stiff.actions(q, p))) < 1e-20
    assert float(stiff.actions(PROBLEM.q0, PROBLEM.p0)[1]) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hx.mechanics.resonances(stiff, PROBLEM.q0[None])[0] > 0.2
    # equal springs at a bend with omega_2 = 2 omega_1 (1 + cos/1 - cos = 4)
    meeting = hx.models.stiff_spring_double_pendulum(1e-2, alpha=(1.0, 1.0))
    angles = np.linspace(0, np.pi / 2, 200)
    first = np.array([1.0, 0.0])
    rows = np.stack([np.stack([first, first + [np.cos(a), np.sin(a)]]) for a in angles])
    with pytest.warns(hx.errors.ResonanceWarning, match="sum of"):
        hx.mechanics.resonances(meeting.system, rows)


def warned(system, method, q, p, dt):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        hx.simulate(system, method, q, p, dt=dt, t1=3.5)
    return [str(w.message) for w in found if issubclass(w.category, hx.errors.ResonanceWarning)]


@pytest.mark.parametrize("alpha", [(1.0, 2.0), (1.0, 1.0)], ids=["apart", "resonant"])
@pytest.mark.parametrize("averaged", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["stiff", "effective"])
def test_a_run_that_meets_a_resonance_warns(alpha, averaged):
    problem = hx.models.stiff_spring_double_pendulum(1e-2, alpha=alpha)
    stiff, start = problem.system, (problem.q0, problem.p0)
    if averaged:
        messages = warned(hx.effective(stiff, *start), hx.RATTLE(), *stiff.project(*start), 0.01)
    else:
        messages = warned(stiff, hx.StormerVerlet(), *start, 1e-3)
        # oscillations without energy do not matter, however their frequencies lie
        assert not warned(stiff, hx.StormerVerlet(), *stiff.project(*start), 1e-3)
    assert len(messages) == (alpha == (1.0, 1.0))
    assert all("is the sum of 0 and 0" in m and "t = " in m for m in messages)


def test_rows_of_a_long_run_are_thinned_evenly():
    watch = ResonanceWatch(None, 1.0)
    for k in range(0, 3000, 7):
        rows = np.arange(k, min(k + 7, 3000), dtype=float)
        watch.add(rows, rows, rows)
    times = [t for t, *_ in watch.kept]
    assert len(times) <= 256 and times[0] == 0 and set(np.diff(times)) == {16.0}


def test_closed_form_of_section_three():
    omega = 50.0
    system = hx.System(lambda q: 0.5 * (q[1] - q[0]) ** 2, lambda q: q[:1])
    method = hx.Composition(hx.StormerVerlet(), 4)
    sol = hx.simulate(system.penalized(omega), method, [0.0, 1.0], [0.0, 0.0], dt=0.02 / omega, t1=3.0)
    root = np.sqrt(4 + omega**4)
    w1, w2 = (np.sqrt((2 + omega**2 + s * root) / 2) for s in (-1, 1))
    assert np.max(np.abs(sol.q[:, 0] - (np.cos(w1 * sol.t) - np.cos(w2 * sol.t)) / root)) < 1e-9
    raw = hx.certificates.penalty_multipliers(sol, 0.0)[1][:, 0]
    t, mean = hx.certificates.penalty_multipliers(sol, 0.5)
    assert np.max(np.abs(raw - np.cos(sol.t))) > 0.9  # no pointwise limit
    assert np.max(np.abs(mean[:, 0] - np.cos(t))) < 0.15
    # (1.11): a bounded Lipschitz function of the penalized motion averages to that of the rigid one
    phi = lambda x: np.tanh(3 * x)
    assert abs(np.mean(phi(sol.q[:, 0]))) < 1e-3


def test_multipliers_and_limit_of_the_double_pendulum():
    problem = hx.models.double_pendulum()
    study = hx.limit_study(problem, omegas=(20.0, 40.0), t1=5.0, rows=250)
    assert np.allclose(study.omega**2 * study.constraint, 2.25, rtol=0, atol=0.05)
    assert np.all(study.multipliers < 0.05) and np.all(study.raw > 0.25)
    assert abs(np.log2(study.position[0] / study.position[1]) - 2) < 0.2
    assert "raw" in str(study)
    loose = hx.simulate(
        problem.system.penalized(40.0), hx.StormerVerlet(), problem.q0, problem.p0 + 0.3, dt=1e-3, steps=2000
    )
    g = np.max(np.abs(hx.certificates.penalty_multipliers(loose, 0.0)[1])) / 40**2
    assert g > 5 * study.constraint[1]  # O(1/omega) from a start that is not tangent
    with pytest.raises(hx.InputError, match="stiff system"):
        hx.certificates.penalty_multipliers(hx.simulate(problem, hx.RATTLE(), dt=0.1, steps=2), 0.2)


def test_what_needs_a_stiff_system_or_a_sensible_number_says_so():
    problem = hx.models.double_pendulum()
    rigid, q, p = problem.system, problem.q0, problem.p0
    sol = hx.simulate(rigid.penalized(20.0), hx.StormerVerlet(), q, p, dt=0.01, steps=5)
    for bad, word in (
        (lambda: hx.effective(rigid, q, p), "limit of a stiff one"),
        (lambda: hx.mechanics.resonances(rigid, q[None]), "stiff system"),
        (lambda: rigid.penalized(20.0).penalized(30.0), "stiff already"),
        (lambda: hx.certificates.penalty_multipliers(sol, float("nan")), "window must be"),
        (lambda: hx.limit_study(problem, rows=0), "two rows"),
        (lambda: hx.limit_study(problem, t1=1.0, window=2.0), "window within it"),
        (lambda: hx.certificates.linear_stability([hx.GLA()]), "random numbers"),
    ):
        with pytest.raises(hx.InputError, match=word):
            bad()


def test_what_cannot_be_penalized_is_told_why():
    moving = hx.Rheonomic(lambda q, t: jnp.array([q @ q - (1.0 + t) ** 2]))
    fixed = lambda q: jnp.array([q[0]])
    cases = {
        r"its constraint is Rheonomic.*RATTLE.*omega\*\*2 / 2 \* sum\(g\(q, t\)\*\*2\)": {"constraint": moving},
        r"its constraints \[1\] are Rheonomic": {"constraint": [fixed, moving]},
        "no constraint": {"constraint": None},
        "its vector potential": {"constraint": fixed, "vector_potential": lambda q: q[::-1]},
    }
    for words, options in cases.items():
        with pytest.raises(hx.InputError, match=words):
            hx.System(lambda q: q[1], **options).penalized(10.0)
    with pytest.raises(hx.InputError, match="its potential depends on time"):
        hx.System(lambda q, t: t * q[1], fixed).penalized(10.0)
    problem = hx.Problem(hx.System(lambda q: q[1], moving), jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0]), 0.1, 1.0)
    with pytest.raises(hx.InputError, match="cannot be penalized"):
        hx.compare(problem, [hx.ZhangSkeel(0.4)])
