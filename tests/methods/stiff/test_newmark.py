"""Newmark, pushforward Newmark and Zhang-Skeel against METHODS.md section 2."""

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.curvature import Curvature, curvature
from holonomix.methods.zhang_skeel import modified_force
from holonomix.study.certificates.limits import LimitStudy
from holonomix.study.certificates.stability import LinearStability, StabilityMap
from tests.tools import slope, symplectic_defect

from .tools import advance, away

STIFF = hx.models.penalized_double_pendulum()
RIGID = hx.models.double_pendulum()


def test_force_is_minus_the_gradient_of_the_modified_potential():
    # the identity M f = -grad W, also with unequal masses
    system = hx.models.double_pendulum(masses=(1.0, 3.0)).system.penalized(20.0)
    q, _ = away(STIFF, 0.01)
    h, beta = 0.1, 0.4

    def modified(x):
        gradient = system.gradient(x).reshape(-1)
        a = beta * h**2 * jax.hessian(system.potential)(x).reshape(4, 4) + system.full.mass_form(x).matrix_at(x)
        return system.potential(x) - 0.5 * beta * h**2 * gradient @ jnp.linalg.solve(a, gradient)

    force = jax.jit(lambda x: modified_force(system, x, h, beta)[0])(q)
    assert float(jnp.max(jnp.abs(force + jax.jit(jax.grad(modified))(q)))) < 1e-12


@pytest.mark.parametrize(
    ("method", "low", "high"),
    [
        (hx.ZhangSkeel(0.4), 0, 1e-12),
        (hx.PushforwardNewmark(0.4), 0, 1e-12),
        (hx.ZhangSkeelSimplified(0.4), 1e-2, np.inf),
        (hx.LinearlyImplicitNewmark(0.4), 1, np.inf),
        (hx.Newmark(0.4), 1e-2, np.inf),  # symplectic only after the change of variables
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_symplecticity_tells_the_methods_apart(method, low, high):
    q, p = away(STIFF, 0.01)
    assert low <= symplectic_defect(STIFF.system, method, q, p, 0.1) < high


def test_simplified_method_is_symplectic_in_one_degree_of_freedom():
    one = hx.System(lambda q: jnp.cosh(q[0]) + q[0] ** 4)
    assert symplectic_defect(one, hx.ZhangSkeelSimplified(0.4), jnp.array([0.7]), jnp.array([0.3]), 0.3) < 1e-12


TURN = jnp.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])


@pytest.mark.parametrize(
    ("potential", "low", "high"),
    [
        (lambda q: jnp.sum(jnp.cosh(TURN @ q)) + jnp.sum((TURN @ q) ** 4), 0, 1e-12),
        (lambda q: jnp.cosh(q[0]) * jnp.cosh(2 * q[1]) + q[0] ** 4, 1e-6, 1),  # the control: the basis turns
    ],
    ids=["fixed", "turning"],
)
def test_simplified_method_is_symplectic_where_the_hessian_eigenbasis_is_constant(potential, low, high):
    q, p = jnp.array([0.7, -0.4]), jnp.array([0.3, 0.2])
    assert low <= symplectic_defect(hx.System(potential), hx.ZhangSkeelSimplified(0.4), q, p, 0.3) < high


def test_pushforward_is_newmark_in_other_variables():
    system, beta, h = STIFF.system, 0.4, 0.1
    q, p = away(STIFF, 0.01, 0.3)
    eta = lambda q, p: (q + beta * h**2 * system.velocity(q, system.gradient(q)), p)
    run = lambda m, q, p: hx.simulate(system, m, q, p, dt=h, steps=3)
    a, b = run(hx.PushforwardNewmark(beta), *eta(q, p)), run(hx.Newmark(beta), q, p)
    x, y = eta(jnp.asarray(b.final_q), b.final_p)
    assert np.max(np.abs(a.final_q - x)) < 1e-11 and np.max(np.abs(a.final_p - y)) < 1e-11


@pytest.fixture(scope="module")
def reference():
    return hx.simulate(RIGID, hx.Composition(hx.RATTLE(), 8), dt=0.1, t1=50.0).q


@pytest.mark.parametrize(
    ("method", "low", "high"),
    [
        (hx.RATTLE(), 0.020, 0.024),
        (hx.Newmark(0.4), 0.10, 0.11),
        (hx.PushforwardNewmark(0.4), 0.09, 0.10),
        (hx.ZhangSkeel(0.4), 0.09, 0.10),
        (hx.ZhangSkeelSimplified(0.4), 0.13, 0.16),
    ],
)
def test_errors_of_figure_one(reference, method, low, high):
    system = RIGID.system if isinstance(method, hx.RATTLE) else STIFF.system
    sol = hx.simulate(system, method, RIGID.q0, RIGID.p0, dt=0.1, t1=50.0)
    assert low < np.max(np.abs(sol.q[:, 1] - reference[:, 1])) < high


def test_lost_definiteness_ends_with_its_status():
    sol = hx.simulate(
        RIGID.system.penalized(40.0), hx.ZhangSkeel(0.4), RIGID.q0, RIGID.p0, dt=0.1, t1=50.0, throw=False
    )
    assert sol.status == hx.Status.INDEFINITE
    assert np.all(np.isfinite(sol.q)) and sol.final_t < 50
    with pytest.raises(hx.SimulationError, match="no longer positive definite"):
        hx.simulate(RIGID.system.penalized(40.0), hx.ZhangSkeel(0.4), RIGID.q0, RIGID.p0, dt=0.1, t1=50.0)
    assert hx.simulate(RIGID.system.penalized(30.0), hx.ZhangSkeel(0.4), RIGID.q0, RIGID.p0, dt=0.1, t1=50.0)


def three_bodies(q):
    r = [jnp.sqrt(jnp.sum((q[i] - q[j]) ** 2)) for i, j in ((0, 1), (1, 2), (0, 2))]
    return 50 * sum((x - 1.0) ** 2 for x in r)


@pytest.mark.parametrize("method", [hx.ZhangSkeel(0.4), hx.ZhangSkeelSimplified(0.4)], ids=["kept", "lost"])
def test_angular_momentum_of_three_free_bodies(method):
    system = hx.System(three_bodies, mass=jnp.array([[1.0], [2.0], [3.0]]))
    q0 = jnp.array([[0.0, 0.0], [1.1, 0.0], [0.4, 0.95]])
    p0 = jnp.array([[0.2, -0.5], [0.1, 0.9], [-0.6, 0.3]])
    sol = hx.simulate(system, method, q0, p0, dt=0.1, steps=500)
    spin = np.sum(sol.q[..., 0] * sol.p[..., 1] - sol.q[..., 1] * sol.p[..., 0], axis=1)
    assert np.ptp(spin) < 1e-12 if isinstance(method, hx.ZhangSkeel) else np.ptp(spin) > 1e-4
    assert np.max(np.ptp(np.sum(sol.p, axis=1), axis=0)) < 1e-12


def test_composition_reaches_order_four():
    # the force of Z&S depends on the step, so a composition has to ask for it anew in every substep
    system = RIGID.system.penalized(3.0)
    q, p = away(RIGID, 0.02, 0.5)
    run = lambda m, h: hx.simulate(system, m, q, p, dt=h, t1=0.8, save_every=1000).final_q
    exact = run(hx.Composition(hx.StormerVerlet(), 8), 0.01)
    steps = (0.04, 0.02, 0.01)
    four = hx.Composition(hx.ZhangSkeel(0.3), order=4)
    assert abs(slope(steps, [np.max(np.abs(run(four, h) - exact)) for h in steps]) - 4) < 0.2


@pytest.mark.parametrize("method", [hx.Newmark(0.4), hx.ZhangSkeel(0.4)], ids=lambda m: m.name)
def test_gradient_through_an_implicit_step(method):
    q, p = STIFF.q0, STIFF.p0 + 0.3

    @jax.jit
    def end(omega):
        return jnp.sum(advance(RIGID.system.penalized(omega), method, q, p, 0.1)[0] ** 2)

    exact = jax.jit(jax.grad(end))(20.0)
    difference = (end(20.0 + 1e-5) - end(20.0 - 1e-5)) / 2e-5
    assert abs(exact - difference) < 1e-6 * max(1.0, abs(difference))


@pytest.mark.slow
def test_curvature_follows_the_structure_of_the_potential():
    problem = hx.models.penalized_chain(20)
    system = problem.system.full
    q = problem.q0 + 0.01 * jax.random.normal(jax.random.key(0), problem.q0.shape)
    dense = 1e-4 * jax.jacfwd(system.gradient)(q).reshape(40, 40) + jnp.eye(40)
    structured = curvature(system, q, 1e-4)
    assert isinstance(structured, Curvature)  # not the dense fallback
    assert "block tridiagonal" in structured.pattern.layout.text
    b = jax.random.normal(jax.random.key(1), (40,))

    @jax.jit
    def solve(q):
        matrix = curvature(system, q, 1e-4)
        return matrix.todense(), matrix.factor().solve(b)

    matrix, x = solve(q)
    assert float(jnp.max(jnp.abs(matrix - dense))) < 1e-12
    assert float(jnp.max(jnp.abs(dense @ x - b))) < 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 20])
def test_smallest_pivot_tells_definite_from_indefinite(count):
    problem = hx.models.penalized_chain(count)
    seen = set()

    @jax.jit
    def measure(q, shift):
        matrix = curvature(problem.system.full, q, shift)
        return matrix.todense(), matrix.factor().smallest

    for shift in (1e-5, 1e-4, 3e-4, 1e-3, 1e-2):
        for seed in range(4):
            q = problem.q0 + 0.3 * jax.random.normal(jax.random.key(seed), problem.q0.shape)
            matrix, smallest = measure(q, shift)
            truth = bool(np.linalg.eigvalsh(np.asarray(matrix))[0] > 0)
            assert bool(smallest > 0) == truth
            seen.add(truth)
    assert seen == {True, False}


def test_linear_stability_needs_a_quarter():
    scan = hx.certificates.linear_stability(
        {
            "quarter": hx.ZhangSkeel(0.25),
            "below": hx.ZhangSkeel(0.2499),
            "newmark": hx.Newmark(0.25),
            "verlet": hx.StormerVerlet(),
        },
        np.geomspace(0.01, 1000, 201),
    )
    assert scan.stable().tolist() == [True, False, True, False]
    assert np.max(np.abs(scan.radius[0] - 1)) < 1e-9
    assert abs(scan.limit()[1] - 2 / np.sqrt(1 - 4 * 0.2499)) < 10
    assert abs(scan.limit()[3] - 2) < 0.2


def test_nonlinear_stability_map():
    # at h = 0.1 Z&S needs omega h^2 below about 0.3
    found = hx.certificates.stability_map(
        RIGID, {"Z&S": hx.ZhangSkeel(0.4)}, omegas=(30, 36, 2000), dts=(0.1,), t1=50.0
    )
    ends = [found.of("Z&S", omega, 0.1)[0] for omega in (30, 36, 2000)]
    assert ends == [hx.Status.OK, hx.Status.INDEFINITE, hx.Status.INDEFINITE]
    assert found.ended[0, 0, 0] == pytest.approx(50.0, rel=1e-13) and found.ended[0, 2, 0] < 1  # fails at once


@pytest.mark.slow
def test_methods_that_survive_and_methods_that_do_not():
    kinds = {
        "Newmark": hx.Newmark(0.4),
        "midpoint": hx.ImplicitMidpoint(),
        "Z&Ss": hx.ZhangSkeelSimplified(0.4, definite=False),  # goes on with a lost matrix
    }
    found = hx.certificates.stability_map(RIGID, kinds, omegas=(100, 2000), dts=(0.1,), t1=50.0)
    ends = {name: [found.of(name, omega, 0.1)[0] for omega in (100, 2000)] for name in kinds}
    ok, lost = hx.Status.OK, hx.Status.NOT_CONVERGED
    assert ends == {"Newmark": [ok, ok], "midpoint": [ok, lost], "Z&Ss": [ok, ok]}
    assert found.of("Newmark", 2000, 0.1)[1] < 1e-5
    assert found.of("Z&Ss", 100, 0.1)[1] < 0.01 < 0.05 < found.of("Z&Ss", 2000, 0.1)[1]


def test_pictures_of_the_scans():
    matplotlib.use("Agg")
    x = np.geomspace(0.1, 10, 20)
    scan = LinearStability(("a", "b"), x, np.stack([x, np.ones(20)]))
    assert [line.get_label() for line in scan.plot().axes[0].lines][:2] == ["a", "b"]
    ends = np.array([[[hx.Status.OK], [hx.Status.INDEFINITE]]])
    found = StabilityMap(("a",), np.array([10.0, 20.0]), np.array([0.1]), ends, 0.1 * np.ones((1, 2, 1)), ends)
    assert [text.get_text() for text in found.plot().legends[0].get_texts()] == ["indefinite", r"$\omega h^2 = 0.3$"]
    study = LimitStudy(x, 1 / x, 1 / x**2, 1 / x, np.ones(20), 0.2)
    assert len(study.plot().axes[0].lines) == 5
    plt.close("all")
