"""The table of primitives: what is missing in which column, and NumPy evaluation and dependence against JAX."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from holonomix.compiler import program  # noqa: F401  (the kernel rules)
from holonomix.trace import (
    stepwise,  # noqa: F401  (the evaluation of loops and branches)
    taylor,  # noqa: F401  (the recurrences)
)
from holonomix.trace.jaxprs import Params, called
from holonomix.trace.primitives import TABLE, Dependence, evaluate_equation
from holonomix.trace.sparsity import dependence

# Primitives of `jax.lax` without a row: collectives, complex numbers, convolutions, tokens, windows.
WITHOUT_ROW = """
    after_all all_gather all_to_all approx_top_k axis_index complex conj conv_general_dilated create_token dce_sink
    device_put fft mulhi pmax pmin ppermute psum ragged_all_to_all reduce_window reduce_window_max reduce_window_min
    reduce_window_sum rng_bit_generator rng_uniform select_and_gather_add select_and_scatter select_and_scatter_add
    stage
"""
SPECIAL = "bessel_i0e bessel_i1e igamma igamma_grad_a igammac polygamma regularized_incomplete_beta zeta "
RANDOM = "iota_2x32_shape random_bits random_fold_in random_seed random_split random_unwrap random_wrap "
FRONTS = "multifrontal_factor multifrontal_shorten multifrontal_solve "
DISCRETE = """and argmax argmin clz eq eq_to ge gt is_finite le le_to lt lt_to ne not or population_count reduce_and
    reduce_or reduce_xor shift_left shift_right_arithmetic shift_right_logical threefry2x32 xor """
MATRICES = "cholesky custom_linear_solve lu triangular_solve "
# Who fills a gap removes its name here.
ACCEPTED = {
    # evaluated by JAX
    "evaluate": SPECIAL + RANDOM + FRONTS + MATRICES + """bitcast_convert_type clz eq_to erf erf_inv erfc le_to lgamma
        lt_to one_minus_square platform_index polynomial population_count reduce reduce_precision shift_left
        shift_right_arithmetic shift_right_logical threefry2x32 top_k""",
    # every entry is taken to depend on all
    "dependence": RANDOM + FRONTS + MATRICES + """cond cumlogsumexp cummax cummin cumprod cumsum empty empty2 iota
        platform_index reduce scan scatter-add scatter-max scatter-min scatter-mul scatter-sub scatter_add scatter_max
        scatter_min scatter_mul scatter_sub sort top_k while zeros_like""",
    # a step with one of these runs on the array path
    "kernel": SPECIAL + "cholesky cumlogsumexp imag lu real top_k",
    "wide": MATRICES + """cond cumlogsumexp platform_index random_fold_in random_seed random_split random_unwrap
        random_wrap reduce reduce_xor scan top_k while""",
    # Taylor methods refuse these, but for integers and truth values, which follow the center of the expansion
    "recurrence": SPECIAL + RANDOM + FRONTS + MATRICES + DISCRETE + """bitcast_convert_type cumlogsumexp cummax cummin
        cumprod empty empty2 iota log2 nextafter one_minus_square platform_index polynomial reduce
        scatter-max scatter-min scatter-mul scatter-sub scatter_max scatter_min scatter_mul scatter_sub sort top_k
        while zeros_like""",
}  # fmt: skip


def test_every_primitive_of_lax_has_a_row_or_is_known_to_have_none():
    names = {getattr(lax, name).name for name in dir(lax) if name.endswith("_p")}
    assert names - set(TABLE) <= set(WITHOUT_ROW.split())
    assert not set(TABLE) & set(WITHOUT_ROW.split())


@pytest.mark.parametrize("column", ACCEPTED)
def test_the_gaps_of_a_column_are_the_accepted_ones(column):
    missing = {row.name for row in TABLE.values() if getattr(row, column) in (None, Dependence.ALL)}
    assert missing == set(ACCEPTED[column].split())


X, Y = jnp.asarray(np.linspace(-0.7, 1.2, 6).reshape(2, 3)), jnp.asarray([0.4, -0.7, 0.9])
N, B = jnp.asarray([3, -1, 2]), jnp.asarray([True, False, True])
INDEX = jnp.array([2, 0, 7])


def arithmetic(x, y):
    total = (-x + y - y * x) / (1 + y) + jnp.square(x) + x**3 + x**-2 + (1 + x) ** y - jnp.fmod(x, y) + jnp.real(x)
    roots = jnp.sqrt(1 + x), lax.rsqrt(1 + x), jnp.cbrt(x), jnp.abs(x), jnp.sign(y), lax.nextafter(x, x + 1)
    return total, *roots, jnp.clip(x, -0.2, 0.5), lax.clamp(-0.2, x, 0.5), jnp.imag(x + 0j), lax.stop_gradient(x)


def functions(x, y):
    exps = jnp.exp(x), jnp.exp2(x), jnp.expm1(x), jnp.log(1 + x), jnp.log1p(x), jnp.log2(1 + x), jax.nn.sigmoid(x)
    angles = jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arcsin(y), jnp.arccos(y), jnp.arctan(x), jnp.arctan2(x, y)
    hyperbolic = jnp.sinh(x), jnp.cosh(x), jnp.tanh(x), jnp.arcsinh(x), jnp.arccosh(2 + x), jnp.arctanh(y)
    return *exps, *angles, *hyperbolic, lax.digamma(x)


def comparisons(x, y):
    tests = x < y, x <= y, x > y, x >= y, x == y, x != y, jnp.isfinite(x), B & ~(y < 0), B | (y < 0), B ^ (y < 0)
    bits = N & 1, N | 4, N ^ 5, ~N, N.astype(float), y.astype(jnp.float32), (3 * y).astype(int)
    rounded = jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.maximum(x, y), jnp.minimum(x, y), jnp.where(B, x, y)
    return *tests, *bits, *rounded


def moves(x, y):
    padded = lax.pad(x, 3.0, ((1, -1, 1), (-1, 2, 0)))
    windows = lax.dynamic_slice(x, (1, 5), (1, 2)), lax.dynamic_update_slice(x, padded[:1, :2], (-3, 1))
    reads = x[:, INDEX], x.at[:, INDEX].get(mode="fill"), x.at[:, INDEX].get(mode="clip"), N.at[INDEX].get(mode="fill")
    batched = jax.vmap(lambda row, k: row[k])(x, INDEX[:2]), jax.vmap(lambda row, k: row.at[k].set(1.0))(x, INDEX[:2])
    writes = [getattr(y.at[INDEX], op)(jnp.arange(3.0)) for op in ("set", "add", "multiply", "min", "max", "subtract")]
    clipped = y.at[INDEX].set(2.0, mode="clip"), x.at[:, 1:].add(y[:2]), y.at[INDEX].apply(jnp.sin)
    parts = *jnp.split(y, [1]), *lax.optimization_barrier((x, y)), jnp.array(x), *jnp.unstack(x), jnp.stack([y, 2 * y])
    shapes = x.T, x[::-1], x[:, ::2], jnp.concatenate([x, x], 1), jnp.tile(y, 2), x.reshape(3, 2), lax.iota(int, 3)
    return padded, *windows, *reads, *batched, *writes, *clipped, *parts, *shapes, jnp.zeros(3), x[None], y[:, None]


def reductions(x, y):
    sums = jnp.sum(x, 0), jnp.prod(x, 1), jnp.max(x, 0), jnp.min(x), jnp.all(x > 0, 0), jnp.any(x > 0, 1)
    places = jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.sort(y), jnp.bitwise_xor.reduce(N), jnp.sum(N)
    totals = jnp.cumsum(x, 1), jnp.cumprod(y), lax.cummax(y), lax.cummin(y, reverse=True), lax.cumlogsumexp(y)
    products = x @ y, x @ x.T, jnp.einsum("ij,kj->ikj", x, x), jnp.einsum("bi,bij->bj", x, x[:, :, None] * y)
    return *sums, *places, *totals, *products


def loops(x, y):
    halved = lax.while_loop(lambda z: jnp.sum(z) > 0.1, lambda z: z / 2, x)
    either = [lax.cond(jnp.sum(y) > bound, jnp.sin, jnp.cos, y) for bound in (0.0, 5.0)]
    return halved, *lax.scan(lambda c, r: (c + r, c * r), y, x, reverse=True), *either


EXAMPLES = (arithmetic, functions, comparisons, moves, reductions, loops)
# Names in other versions of JAX, or without a function that traces to them.
UNTESTED = """
    add_any copy_p empty empty2 expand_dims log2 mesh_cast name pvary real scatter_add scatter_max scatter_min
    scatter_mul scatter_sub sharding_constraint tie zeros_like
"""


def equations(closed, args):
    """Every equation of a program, with the values of its arguments and of its results."""
    jaxpr, held = closed.jaxpr, {}
    held.update(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))
    for eqn in jaxpr.eqns:
        ins = [x.val if hasattr(x, "val") else held[x] for x in eqn.invars]
        out = eqn.primitive.bind(*ins, **eqn.params)
        out = out if eqn.primitive.multiple_results else [out]
        held.update(zip(eqn.outvars, out, strict=True))
        if called(eqn) is not None:
            yield from equations(called(eqn), ins)
        else:
            yield eqn, ins, out


@functools.cache
def examples():
    return [found for fn in EXAMPLES for found in equations(jax.make_jaxpr(fn)(X, Y), (X, Y))]


def test_numpy_evaluation_agrees_with_jax():
    """To round-off, and bit by bit where the table says so. (XLA's division is not always correctly rounded.)"""
    seen = set()
    for eqn, ins, out in examples():
        row = TABLE[eqn.primitive.name]
        seen.add(row.name)
        found = evaluate_equation(Params(eqn), [np.asarray(x) for x in ins])
        for ours, theirs in zip(found, out, strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, row.name
            if row.exact and row.name != "div":
                assert ours.tobytes() == np.asarray(theirs).tobytes(), row.name
            np.testing.assert_allclose(ours, theirs, 1e-13, 1e-15, err_msg=row.name)
    assert {row.name for row in TABLE.values() if row.evaluate is not None} - seen <= set(UNTESTED.split())


def test_no_dependence_is_missed():
    """Where a change of an argument changes a result, the table must say that the one depends on the other."""
    sparse = 0
    for eqn, ins, _ in examples():
        which = [k for k, x in enumerate(ins) if jnp.result_type(x).name == "float64"]
        q = np.concatenate([np.ravel(ins[k]) for k in which]) if which else np.zeros(0)
        ends = np.cumsum([np.size(ins[k]) for k in which])[:-1]

        def call(q, eqn=eqn, ins=ins, which=which, ends=ends):
            given = dict(zip(which, jnp.split(q, ends)))
            args = [given[k].reshape(np.shape(x)) if k in given else x for k, x in enumerate(ins)]
            found = eqn.primitive.bind(*args, **eqn.params)
            return jnp.ravel(found[0] if eqn.primitive.multiple_results else found)

        said = dependence(jax.make_jaxpr(call)(q), 0).toarray() if q.size else np.ones(1, bool)
        for k in range(q.size):
            before, after = call(jnp.asarray(q)), call(jnp.asarray(q).at[k].add(0.01))
            changed = np.asarray((before != after) & ((before == before) | (after == after)))  # a NaN that stays
            assert not (changed & ~said[:, k]).any(), eqn.primitive.name
        sparse += not said.all()
    assert sparse > 60


def test_written_entries_depend_on_what_was_written():
    def fn(q):
        first, second = jnp.split(q, 2)
        return jnp.concatenate([first.at[1].set(second[0]), lax.dynamic_update_slice(second, first[:1] ** 2, (1,))])

    expected = np.zeros((6, 6), bool)
    expected[[0, 1, 2, 3, 4, 5], [0, 3, 2, 3, 0, 5]] = True
    np.testing.assert_array_equal(dependence(jax.make_jaxpr(fn)(jnp.ones(6)), 0).toarray(), expected)
