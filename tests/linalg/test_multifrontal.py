"""Multifrontal elimination: against dense algebra, with derivatives, with dependent rows, in kernels and outside."""

from __future__ import annotations

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.compiler import native
from holonomix.compiler.emit import KernelEmitter
from holonomix.linalg.multifrontal import factor, plan_of, shortest, solution, written
from holonomix.linalg.multifrontal.operations import solve_p

if jax.default_backend() != "cpu":
    pytest.skip("the compiled elimination runs on a CPU", allow_module_level=True)


def grid(n):
    at = np.arange(n * n).reshape(n, n)
    across, down = (np.stack([a.ravel(), b.ravel()], 1) for a, b in ((at[:, :-1], at[:, 1:]), (at[:-1], at[1:])))
    return np.concatenate([across, down])


def ring(n):
    return np.stack([np.arange(n), (np.arange(n) + 1) % n], 1)


GRAPHS = {"grid": (grid(5), 1), "ring": (ring(12), 5), "chain": (ring(40)[:-1], 2), "star": (ring(30) * [1, 0], 1)}


def problem(name, seed=0):
    """Rows of a Jacobian that touch two particles of three coordinates each, their plan, and both Gram matrices."""
    edges, r = GRAPHS[name]
    rng = np.random.default_rng(seed)
    m = len(edges)
    jac = np.zeros((m, r, edges.max() + 1, 12))
    for side in (0, 1):
        jac[np.arange(m), :, edges[:, side]] = rng.normal(size=(m, r, 12))
    rows = rng.permutation(m * r).reshape(m, r)
    jac = jac.reshape(m * r, -1)[np.argsort(rows.reshape(-1))]
    moved = jac + 0.05 * rng.normal(size=jac.shape) * (jac != 0)
    met = (edges[:, None, :, None] == edges[None, :, None, :]).any((2, 3))
    i, j = np.nonzero(met)
    return plan_of(i, j, rows), (i, j, rows), jac @ jac.T, moved @ jac.T


def entries(matrix, places):
    i, j, rows = places
    return jnp.asarray(matrix[rows[i].T[:, None], rows[j].T[None]].reshape(-1))


@pytest.mark.parametrize("name", GRAPHS)
def test_solves_like_dense_algebra(name):
    plan, places, definite, general = problem(name)
    b = jnp.asarray(np.random.default_rng(1).normal(size=plan.n))
    for matrix, symmetric in ((definite, True), (general, False)):
        a = entries(matrix, places)
        factors = factor(plan, a, symmetric)
        x = solution(plan, a, factors, b)
        rounding = 1e-14 * np.linalg.cond(matrix) * np.abs(x).max()
        np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=0, atol=rounding)
        pulled = jax.vjp(lambda b: solution(plan, a, factors, b), b)[1](b)[0]  # noqa: B023
        np.testing.assert_allclose(pulled, np.linalg.solve(matrix.T, b), rtol=0, atol=rounding)
        assert 1e-6 < factors[0] <= 1.0


@pytest.mark.slow
def test_derivatives_of_any_order_and_batches():
    plan, places, _, general = problem("grid")
    i, j, rows = places
    a, b = entries(general, places), jnp.ones(plan.n)

    def ours(a, b):
        return jnp.sum(jnp.sin(solution(plan, a, factor(plan, a, False), b)))

    def dense(a, b):
        full = jnp.zeros((plan.n, plan.n)).at[rows[i, 0], rows[j, 0]].set(a)
        return jnp.sum(jnp.sin(jnp.linalg.solve(full, b)))

    for mine, theirs in zip(jax.grad(ours, (0, 1))(a, b), jax.grad(dense, (0, 1))(a, b), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)
    second = [jax.jvp(jax.grad(fn), (a, b), (0.1 * a, b))[1] for fn in (ours, dense)]
    np.testing.assert_allclose(*second, rtol=1e-8, atol=1e-10)
    many = jax.vmap(ours, (0, None))(jnp.stack([a, 2 * a]), b)
    np.testing.assert_array_equal(many, [ours(a, b), ours(2 * a, b)])


def test_dependent_rows_get_the_multipliers_of_least_norm():
    plan, places, definite, _ = problem("ring")
    rng = np.random.default_rng(2)
    mix = np.eye(plan.n)  # two rows of a node become combinations of its other three
    rows = places[2]
    mix[rows[3, 3:]] = rng.normal(size=(2, 3)) @ mix[rows[3, :3]]
    matrix = mix @ definite @ mix.T
    a = entries(matrix, places)
    b = jnp.asarray(matrix @ rng.normal(size=plan.n))
    factors = factor(plan, a, True, 1e-9)
    least = shortest(plan, a, factors, solution(plan, a, factors, b))
    np.testing.assert_allclose(least, np.linalg.pinv(matrix, rcond=1e-10) @ b, rtol=0, atol=1e-10)
    assert int(jnp.sum(factors[8 : 8 + plan.n] == 0)) == 2
    assert factor(plan, a, True)[0] < 1e-12  # without a threshold the vanishing pivot is reported


def test_kernels_have_the_same_bits_alone_and_in_lanes():
    plan, places, definite, general = problem("grid")
    given = {"definite": entries(definite, places), "general": entries(general, places)}

    def step(b, given):
        x = solution(plan, given["definite"], factor(plan, given["definite"], True), b)
        factors = factor(plan, given["general"], False)
        return shortest(plan, given["definite"], factors, solution(plan, given["general"], factors, x + b))

    loop = SimpleNamespace(step=step, read=lambda b, given: b, halted=lambda b, given: jnp.asarray(False))
    b = jnp.asarray(np.random.default_rng(1).normal(size=plan.n))
    runner = kernels.build(kernels.lower(loop, b, given), backend="native")
    _, alone = runner.run_one(b, given, rows=1, every=2)
    _, many = runner.run(jnp.stack([b, 2 * b, b]), given, rows=1, every=2)
    np.testing.assert_array_equal(many[[0, 2]], np.stack([alone, alone]))
    np.testing.assert_array_equal(many[1], 2 * alone)
    np.testing.assert_allclose(alone[0], step(step(b, given), given), rtol=1e-12)


@pytest.mark.parametrize("name", ["ring", "star"])
def test_a_solve_that_is_written_out_has_the_bits_of_the_loops(name, monkeypatch):
    """Fronts with children, with padded rows, with a row that depends on others, and transposed."""
    plan, places, definite, general = problem(name)
    last = np.eye(plan.n)
    last[-1] = np.random.default_rng(3).normal(size=plan.n) * (np.arange(plan.n) < plan.n - 1) * (definite[-1] != 0)
    given = {"definite": entries(definite, places), "general": entries(general, places)}
    given["dependent"] = entries(last @ definite @ last.T * (definite != 0), places)

    def step(b, given):
        x = solution(plan, given["definite"], factor(plan, given["definite"], True), b)
        x = x + solution(plan, given["dependent"], factor(plan, given["dependent"], True, 1e-3), b)
        factors = factor(plan, given["general"], False)
        y = solve_p.bind(factors, x, plan=plan, transposed=True)
        return solution(plan, given["general"], factors, y)

    loop = SimpleNamespace(step=step, read=lambda b, given: b, halted=lambda b, given: jnp.asarray(False))
    b = jnp.asarray(np.random.default_rng(1).normal(size=(3, plan.n)))
    program = kernels.lower(loop, b[0], given)
    found = []
    for longest in (written.MAX_PRODUCTS, 0):
        monkeypatch.setattr(written, "MAX_PRODUCTS", longest)
        written.written_solve.cache_clear()
        runner = kernels.build(program, backend="native")
        found.append([runner.run_one(b[0], given, rows=1, every=2)[1], runner.run(b, given, rows=1, every=2)[1]])
        text = KernelEmitter(program, 1, native.has_fma()).module()
        assert (f"@multifrontal_solve_{plan.key}_transposed_1(" in text) == (longest > 0)
    written.written_solve.cache_clear()
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(found[0][0], found[0][1][0])
    np.testing.assert_allclose(found[0][0][0], step(step(b[0], given), given), rtol=1e-12)


def net(n):
    """A net of rigid bars hung from two corners, curved so that its rows are independent."""
    x, y = (u.ravel() / (n - 1) for u in np.meshgrid(np.arange(n), np.arange(n)))
    place = np.stack([x, 0.4 * np.sin(2.2 * x + 1) * np.cos(1.7 * y), y - 1.2 * x * (1 - x)], 1)
    held = [n * (n - 1), n * n - 1]
    number = np.zeros(n * n, int)
    free = np.setdiff1d(np.arange(n * n), held)
    number[free], number[held] = np.arange(free.size), (-1, -2)
    lengths = np.linalg.norm(np.diff(place[grid(n)], axis=1)[:, 0], axis=1)
    bars = hx.Distance(number[grid(n)], lengths, anchors=place[held])
    return hx.System(lambda q: jnp.sum(q[:, 2]), bars), jnp.asarray(place[free])


@pytest.mark.slow
def test_a_net_runs_as_a_kernel_with_the_same_bits_alone_and_in_lanes():
    system, q = net(6)
    assert "fronts" in system.structure(q)
    run = {"dt": 1e-2, "steps": 20}
    alone = hx.simulate(system, hx.RATTLE(), q, 0.0 * q, save_every=20, backend="native", **run)
    assert alone.constraint_error().max() < 1e-14
    array = hx.simulate(system, hx.RATTLE(), q, 0.0 * q, save_every=20, backend="array", **run)
    np.testing.assert_allclose(alone.q, array.q, rtol=0, atol=1e-12)
    starts = jnp.stack([q] * 3)
    many = hx.simulate_ensemble(system, hx.RATTLE(), starts, 0.0 * starts, save_every=20, backend="native", **run)
    for row in np.asarray(many.q):
        np.testing.assert_array_equal(row[-1], alone.q[-1])


def test_rows_of_bodies_and_of_joints_are_assembled_in_few_operations():
    """Six rows per body and five per hinge make a band of single entries; XLA takes long for an array per entry."""
    arm = hx.models.seven_axis_arm(mechanism=False)
    assert isinstance(arm, hx.Problem)
    system, q = arm.system, arm.q0
    linear = lambda q: system.linearize(q, 0.0)
    gram = lambda q, jac: system.gram(q, jac, jac).matrix.entries
    assert len(jax.make_jaxpr(gram)(q, eqx.filter_eval_shape(linear, q)).eqns) < 600
    assert "fronts" in system.structure(q)


def hinges(links: int) -> hx.Problem:
    m = hx.Mechanism((0.0, -9.81), dimensions=2)
    before = m.ground
    for k in range(links):
        bar = m.body(shape=hx.mechanisms.Rod(1.0), mass=1.0 + 0.1 * k, position=(k + 0.5, 0.0))
        m.revolute(f"pin {k}", before, bar, at=(float(k), 0.0))
        before = bar
    return m.problem()


def test_long_chains_of_hinges_run_as_kernels_with_loops():
    problem = hinges(50)
    sol = hx.simulate(problem, hx.RATTLE(), dt=1e-3, steps=20, save_every=20)
    assert sol.stats["backend"] == "native" and "loops over axes" in sol.stats["backend_reason"]
    assert sol.constraint_error().max() < 1e-13


def test_entries_in_segments_are_those_of_the_dense_matrix():
    problem = hinges(12)
    system, q = problem.system, problem.q0 + 0.1 * np.random.default_rng(0).normal(size=problem.q0.shape)

    @eqx.filter_jit
    def both(q):
        left, right = system.linearize(q, 0.0), system.linearize(1.1 * q, 0.0)
        grams = [system.gram(q, left, other) for other in (left, right)]
        assert all(gram.coupling.layout.segment == 12 for gram in grams)
        return [gram.todense() for gram in grams], left.todense(), right.todense()

    (same, mixed), left, right = both(jnp.asarray(q))
    masses = np.asarray(system.mass).reshape(-1)
    np.testing.assert_allclose(same, (left / masses) @ left.T, rtol=0, atol=1e-13)
    np.testing.assert_allclose(mixed, (left / masses) @ right.T, rtol=0, atol=1e-13)
