"""Programs whose long axes stay loops: they compute what the unrolled programs compute."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import Functions, bits
from interpreter import Interpreter
from jax import lax

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.compiler import native, runner, values
from holonomix.compiler.ptx import team_ptx
from holonomix.compiler.wide import Axes, in_step
from holonomix.linalg.cyclic import CyclicTridiagonal
from holonomix.linalg.tridiagonal import Tridiagonal
from holonomix.run import backends
from holonomix.trace.compiled import Recent

N = 13
SHAPES = ((N, 3), (3 * N,), (2, N))


def _arguments(seed: int):
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=s) for s in SHAPES)


def _lowered(fn, *args, long=(N, 3 * N), **kw):
    loop = Functions(lambda c, k: c, lambda c, k: fn(*c), lambda c, k: False)
    return kernels.lower(loop, tuple(args), (), wide=Axes(set(long)), **kw)


def _row(program, args):
    _, rows = kernels.build(program, "native").run_one(tuple(args), (), rows=1, every=0)
    return jax.tree.map(lambda a: np.asarray(a)[0], rows)


PLACES = np.random.default_rng(1).integers(0, N, 3 * N)
PAIRS = np.array([(i, j) for i in range(N) for j in range(i)])
FUNCTIONS = {
    "elementwise": lambda a, b, c: jnp.sin(a) * 2.0 + jnp.where(a > 0.1, jnp.exp(a), -a) / (1.0 + a * a),
    "mixed dealing": lambda a, b, c: a.reshape(-1) * b + b[::-1],
    "broadcast": lambda a, b, c: a[:, :, None] * jnp.array([1.0, -2.0]) + c.T[:, None, :],
    "transpose": lambda a, b, c: (a.T @ a, jnp.stack([a.T, a.T * 2], 1)),
    "slices": lambda a, b, c: (a[2:5], a[::-1, 1], b[1::3], b[4:-3].sum(), c[1, 3]),
    "dealt slices": lambda a, b, c: b.reshape(N, 3)[:, 1] - b[2::3] * a[:, 0],
    "concatenate": lambda a, b, c: jnp.concatenate([c[0, 5:], c[1, :5]]) * a[:, 0],
    "shift": lambda a, b, c: a - jnp.concatenate([jnp.zeros((1, 3)), a[:-1]]),
    "pad": lambda a, b, c: lax.pad(c[0], 0.5, [(3 * N - 1 - 2 * (N - 1), 0, 2 - 1)]) + b,
    "interior pad": lambda a, b, c: lax.pad(a[:, 0], 0.0, [(1, 1, 2)]) * b,
    "gather": lambda a, b, c: a[PLACES].reshape(-1)[:7] + b[PLACES[:7]],
    "gather long": lambda a, b, c: (a[PLACES] * b[:, None]).sum(0) + c[0][PLACES[:3]],
    "scatter-add": lambda a, b, c: a.at[PLACES].add(b[:, None] * jnp.arange(3.0)),
    "scatter-add of pieces": lambda a, b, c: jnp.zeros((N,)).at[3:9].add(c[0, :6]).at[5:10].add(c[0, 2:7]),
    "scatter": lambda a, b, c: c.at[:, 2].set(0.0).at[0, 5].set(a[0, 1]),
    "reductions": lambda a, b, c: (a.sum(), a.sum(0), a.sum(1), a.max(), b.min(), c.max(1), jnp.abs(b).sum()),
    "truth": lambda a, b, c: ((a > -9).all(), (a > 2).any(1), (b > 0).any(), (c > 9).any()),
    "sums of constants": lambda a, b, c: jnp.full((N,), 2.5).sum() + jnp.ones((N, 3)).max() + jnp.prod(1 + c[0] / 9),
    "batched products": lambda a, b, c: jnp.einsum("ni,nj->nij", a, c.T)[4] + jnp.einsum("ni,ni->n", a, a).sum(),
    "products over the axis": lambda a, b, c: (c @ a, c @ c.T, b @ b),
    "short axes": lambda a, b, c: (jnp.cumsum(a, 1), jnp.argmax(a, 1), jnp.sort(a, 1)[:, 0], jnp.flip(a, 1)),
    "integers": lambda a, b, c: (jnp.arange(N) * 3 + a[:, 0].astype(int), b.astype(jnp.float32)),
    "dynamic slice": lambda a, b, c: (lax.dynamic_slice(a, (4, 1), (5, 2)), lax.dynamic_update_slice(a, a[:2], (3, 0))),
    "moving slice": lambda a, b, c: lax.dynamic_slice(b, (jnp.argmax(a[4]) * 20,), (N,)) * a[:, 0],
    "moving update": lambda a, b, c: lax.dynamic_update_slice(b * 2, c[0], (jnp.argmin(a[4]) * 18 - 3,)),
    "few of a long axis": lambda a, b, c: (lax.dynamic_slice(a, (jnp.argmax(a[4]) * 7, jnp.argmax(a[5])), (2, 2)),
                                           b[(9 * b[:4]).astype(int)], a[jnp.argmin(b)], c[jnp.argmax(a[2]) // 2]),
    "places outside": lambda a, b, c: (b.at[(99 * b[:3]).astype(int)].get(mode="fill"), b[(99 * b[:3]).astype(int)],
                                       b.at[(30 * b[:5]).astype(int)].add(7.0), a.at[(9 * b[:3]).astype(int)].mul(2.0)),
    "many places": lambda a, b, c: (b[(9 * c[0]).astype(int)], a[(5 * c[1]).astype(int) % N] * a[:, :1],
                                    jax.vmap(lambda r, k: r[(3 * k).astype(int)])(a, c[0])),
    "few written": lambda a, b, c: (lax.dynamic_update_slice(a, a[:2, :2], (jnp.argmax(a[4]) * 7, jnp.argmax(a[5]))),
                                    c.at[jnp.argmax(a[1]) // 2].set(a[:, 0]), b.at[jnp.argmax(b)].apply(jnp.sin),
                                    b.at[PLACES[:4]].min(a[0, 0]), c.at[1, 3].max(a[1, 1])),
    "along": lambda a, b, c: (jnp.cumsum(b), lax.cummax(c, 1, reverse=True), jnp.cumprod(1 + a / 9, 0),
                              jnp.argmax(a, 0), jnp.argmin(jnp.where(b > 1.2, jnp.nan, b)),
                              jnp.argmax((5 * c).astype(int), 1)),
    "while": lambda a, b, c: lax.while_loop(lambda s: jnp.abs(s[0]).max() > 0.3, lambda s: (s[0] * 0.7, s[1] + a[:, 0]),
                                            (a, jnp.zeros(N))),
    "cond": lambda a, b, c: lax.cond(b[0] > 0, lambda x: (jnp.sin(x @ x.T[:, :2]).sum(), x * 2 + jnp.exp(x)),
                                     lambda x: (b.sum(), x), a),
    "scan": lambda a, b, c: lax.scan(lambda s, x: (s + x * a, jnp.sum(s[0])), a, b[:4])[0],
    "scan along": lambda a, b, c: lax.scan(lambda s, x: (jnp.sin(s * 0.5) + x, s * x.sum()), jnp.zeros(3), a),
    "scan of nothing": lambda a, b, c: lax.scan(lambda s, x: (s, s + x[1].sum()), 0.0,
                                                (lax.scan(lambda s, x: (s, x[:0]), 0.0, a)[1], c[0]))[1],
    "scan back": lambda a, b, c: lax.scan(lambda s, x: (s * 0.5 + x, s), 0.0, c[0], reverse=True),
    "no elements": lambda a, b, c: (jnp.zeros((0, N)), jnp.concatenate([a[:0], a]), a[:, :0].sum(1), a[:0].sum(0)),
    "no array": lambda a, b, c: (jnp.zeros((N, 3)), jnp.ones((N,)) * b[0]),
    "pairs": lambda a, b, c: jax.grad(lambda q: (1 / jnp.sum((q[PAIRS[:, 0]] - q[PAIRS[:, 1]]) ** 2, -1)).sum())(a),
    "random": lambda a, b, c: jax.random.normal(jax.random.key(3), (N, 3)) * a,
}  # fmt: skip


@pytest.fixture(scope="module")
def everything():
    """All functions in one program."""

    def fn(*args):
        return {name: f(*args) for name, f in FUNCTIONS.items()}

    return jax.jit(fn), _lowered(fn, *_arguments(0), long=(N, 3 * N, len(PAIRS)))


@pytest.mark.parametrize("seed", range(2))
def test_primitives(everything, seed):
    """To a few roundings what JAX computes."""
    reference, program = everything
    args = _arguments(seed)
    found = _row(program, args)
    for name, expected in reference(*args).items():
        for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(found[name]), strict=True):
            bound = 1e-13 if y.dtype == np.float64 else 1e-6
            np.testing.assert_allclose(y, x, rtol=bound, atol=bound, err_msg=name)


def test_the_oracle_agrees(everything):
    """The interpreter of the tests reads the same program and finds the same numbers."""
    _, program = everything
    args = _arguments(1)
    _, rows = Interpreter(program).run_one(args, (), rows=1, every=0)
    for x, y in zip(jax.tree.leaves(rows), jax.tree.leaves(_row(program, args)), strict=True):
        np.testing.assert_allclose(y, x[0], rtol=1e-13, atol=1e-13)


def test_bits_do_not_depend_on_the_width_of_registers(everything, monkeypatch):
    _, program = everything
    args = _arguments(1)
    found = []
    for width in (8, 1):
        monkeypatch.setattr(native, "default_lanes", lambda width=width: width)
        found.append(bits(_row(program, args)))
    assert found[0] == found[1]


def test_arrays_of_a_cpu_share_memory(everything, monkeypatch):
    _, program = everything
    args = _arguments(1)
    found = bits(_row(program, args))
    monkeypatch.setattr(values, "IN_REGISTERS", 0)  # short arrays in the memory that the caller gives, too
    assert bits(_row(program, args)) == found
    assert native.function(program, 1).scratch < 0.75 * program.space  # 0.86 without sharing


@pytest.mark.parametrize(("kind", "n"), [(Tridiagonal, 100), (CyclicTridiagonal, 96)])
def test_chains_and_rings_are_solved_without_gathers(kind, n):
    """Neighbors, and the halves of each level of a reduction, are loads of registers."""
    random = np.random.default_rng(5)
    upper, diagonal, b = (random.normal(size=n) + c for c in (0.0, 6.0, 0.0))
    upper[-1] *= kind is CyclicTridiagonal
    args = (np.roll(upper, 1), diagonal, upper, b)

    def fn(*rows):
        return kind(*rows[:3]).factor(symmetric=True).solve(rows[3])

    loop = Functions(lambda c, k: c, lambda c, k: fn(*c), lambda c, k: False)
    program = kernels.lower(loop, args, (), wide=True)
    g = program.graph
    takes = [m for m in program.live if g.op[m] == "take"]
    loose = [m for m in takes if in_step(g.attr[m].array, g.length[g.args[m][0]]) is None]
    assert len(takes) > 10 and len(loose) <= 2
    np.testing.assert_allclose(_row(program, args), fn(*args), rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_moves_of_random_shapes(seed):
    """Chains of reshapes, transposes, slices and gathers move every element to its place."""
    random = np.random.default_rng(seed)
    n, k = int(random.integers(6, 40)), int(random.integers(2, 5))
    places = random.integers(0, n, n)
    cut = slice(int(random.integers(0, 3)), None, int(random.integers(1, 3)))

    def fn(x, y, xp=jnp):
        z = xp.transpose(x.reshape(n, k, 2), (2, 0, 1))
        w = xp.concatenate([z[:, places], z[:, ::-1] * 2.0], axis=0)[:, :, cut]
        return w, (w[0] + y[:, None]).T, xp.repeat(y, k).reshape(n, k) - x.reshape(n, k, 2)[places, :, 1]

    args = (random.normal(size=(n * k, 2)), random.normal(size=n))
    found = _row(_lowered(fn, *args, long=(n, n * k)), args)
    for x, y in zip(fn(*args, xp=np), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-15)


def _chain(links: int):
    """Explicit Euler of a chain of springs; it halts when a spring is too long."""

    def step(c, k):
        q, p, n = c
        pull = jnp.diff(q, axis=0, prepend=jnp.zeros((1, 2))) * k
        return q + 0.01 * p, p + 0.01 * (jnp.concatenate([pull[1:], jnp.zeros((1, 2))]) - pull), n + 1

    start = np.random.default_rng(2).normal(size=(2, links, 2)).cumsum(1)
    loop = Functions(step, lambda c, k: {"q": c[0], "n": c[2]}, lambda c, k: ~(jnp.abs(c[0]).max() < 1e3))
    return loop, (start[0], start[1], np.int64(0)), np.float64(3.0)


def test_a_chain_and_its_batch():
    """Rows, restarts and batches of a chain: bits do not depend on how a run is cut."""
    loop, carry, consts = _chain(30)
    plain = kernels.build(kernels.lower(loop, carry, consts), "native")
    program = kernels.lower(loop, carry, consts, wide=True)
    assert program.wide and 5 * program.operations < plain.program.operations
    runner = kernels.build(program, "native", threads=2)
    end, rows = runner.run_one(carry, consts, rows=4, every=50)
    _, expected = plain.run_one(carry, consts, rows=4, every=50)
    np.testing.assert_allclose(rows["q"], expected["q"], rtol=1e-12, atol=1e-12)
    middle, first = runner.run_one(carry, consts, rows=2, every=50)
    last, second = runner.run_one(middle, consts, rows=2, every=50)
    assert bits(last) == bits(end)
    assert bits(jax.tree.map(lambda a, b: np.concatenate([a, b]), first, second)) == bits(rows)
    many = jax.tree.map(lambda x: np.stack([x] * 5), carry)
    many[0][3] *= 2
    ends, _ = runner.run(many, consts, None, rows=4, every=50)
    assert bits(jax.tree.map(lambda x: x[4], ends)) == bits(end) != bits(jax.tree.map(lambda x: x[3], ends))


def test_nan_halts_a_wide_program():
    loop, carry, consts = _chain(20)
    runner = kernels.build(kernels.lower(loop, carry, consts, wide=True), "native")
    bad = (carry[0].copy(), carry[1], carry[2])
    bad[0][7, 1] = np.nan
    (q, _, n), rows = runner.run_one(bad, consts, rows=2, every=10)
    assert n == 0 and np.isnan(q[7, 1]) and np.isfinite(np.delete(q, 7, 0)).all()
    assert bits(rows["q"][0]) == bits(rows["q"][1]) == bits(bad[0])


def test_what_is_not_taken():
    with pytest.raises(kernels.Unsupported, match="two long axes"):
        _lowered(lambda a, b, c: jnp.outer(a[:, 0], b), *_arguments(0))
    with pytest.raises(kernels.Unsupported, match="39 updates one by one"):
        _lowered(lambda a, b, c: a.at[b.astype(int) % N].add(1.0), *_arguments(0))
    with pytest.raises(kernels.Unsupported, match="no long axes"):
        loop = Functions(lambda c, k: c, lambda c, k: c, lambda c, k: False)
        kernels.lower(loop, np.zeros(3), (), wide=True)


def test_irregular_axes():
    """Pieces of several lengths are copied one after the other, and elements from many vectors one by one."""
    random = np.random.default_rng(2)
    rows, columns = random.integers(0, 20, 70), random.integers(0, N, 70)

    def joined(a, b, c):
        return jnp.concatenate([c[0] + 1.0, c[1] * 2.0, a[2:9, 1], jnp.full(9, 3.0)])

    def packed(a, b, c):
        return jnp.stack([a[:, 0] * c[0, k % N] + k for k in range(20)])[rows, columns]

    args = _arguments(0)
    for fn, length, op in ((joined, 42, "join"), (packed, 70, "pack")):
        loop = Functions(lambda c, k: c, lambda c, k, fn=fn: fn(*c), lambda c, k: False)
        axes = Axes({N, length}, irregular=True)
        program = kernels.lower(loop, tuple(args), (), wide=axes)
        assert any(program.graph.op[n] == op for n in program.live)
        np.testing.assert_allclose(_row(program, args), fn(*args), rtol=1e-15)
    with pytest.raises(kernels.Unsupported, match="pieced together"):
        _lowered(packed, *args, long=(N, 70))


def _never_wide(lower, traced, wide=False, **options):
    if wide:
        raise kernels.Unsupported("loops over axes")
    return lower(traced, **options)


@pytest.mark.slow
def test_water_runs_in_loops(monkeypatch):
    """Seven rigid waters: the choice says so, and the numbers are those of the unrolled program."""
    problem = hx.models.water_cluster(7, units="eV")
    method = hx.GLA(hx.RATTLE(hx.SymmetricNewton()), friction=0.01, temperature=0.02)
    said = hx.explain(problem, method)
    assert said.backend == "native" and "loops over axes" in said and said.operations < 3000

    def run(backend):
        start = {"dt": problem.dt, "steps": 8, "key": jax.random.key(1), "backend": backend}
        return hx.simulate(problem, method, **start)

    loops = run("auto")
    monkeypatch.setattr(backends, "_CACHE", Recent(8))
    monkeypatch.setattr(runner, "lower_traced", partial(_never_wide, kernels.lower_traced))
    unrolled = run("native")
    assert loops.stats["operations"] < 3000 < 15_000 < unrolled.stats["operations"]
    np.testing.assert_allclose(loops.q, unrolled.q, rtol=1e-13)
    np.testing.assert_allclose(loops.p, unrolled.p, rtol=1e-10, atol=1e-12)


def test_nan_of_a_potential_has_its_status(monkeypatch):
    monkeypatch.setattr(runner, "UNROLLED", 0)
    monkeypatch.setitem(runner.GAIN, "single", 0)
    system = hx.System(lambda q: jnp.sum(q[:, 1] + 1e-9 * jnp.sqrt(q[:, 1] + 0.5)))  # NaN below -1/2
    q, p = np.linspace(0.0, 1.0, 16).reshape(8, 2), np.zeros((8, 2))
    assert "loops over axes" in hx.explain(system, hx.StormerVerlet(), q, p)
    found = hx.simulate(system, hx.StormerVerlet(), q, p, dt=0.1, steps=100, throw=False)
    assert found.stats["backend"] == "native" and found.status is hx.Status.NONFINITE
    assert 5 < found.stats["steps"] < 20 and np.isfinite(found.q).all()


def test_ptx_has_the_loops():
    """The text for a GPU does not grow with the length of a chain, and its arrays are a thread's own."""
    sizes = []
    for links in (20, 200):
        loop, carry, consts = _chain(links)
        text, _ = team_ptx(kernels.lower(loop, carry, consts, wide=True), 90)
        assert "ld.local" in text and "st.local" in text
        sizes.append(text.count("\n"))
    assert sizes[1] < 1.1 * sizes[0]
