"""The oracle of the kernel tests: a program of the kernel compiler, interpreted node by node with NumPy.

One trajectory at a time, no code generation, no lanes, no shared memory: what the emitters may get wrong is not here.
Fused products and sums are rounded once, as processors with such an instruction do it.
"""

from __future__ import annotations

from fractions import Fraction

import jax
import numpy as np
import scipy.special

from holonomix.compiler.graph import FLOATS, SIGNED, Scope, dtype_of
from holonomix.compiler.program import Leaf, Program
from holonomix.compiler.runner import batch_axes, from_arrays, to_arrays


def _quotient(x, y):
    """Integers are divided as XLA does it: toward zero, x/0 is -1, the one overflow wraps."""
    if x.dtype.kind == "f":
        return x / y
    zero = y == 0
    with np.errstate(all="ignore"):
        signed = x.dtype.kind == "i"
        safe = np.where(zero | ((y == -1) if signed else False), y.dtype.type(1), y)
        found = np.where(signed & ~zero & (y.astype(np.int64) == -1), -x, (x - np.fmod(x, safe)) // safe)
    return np.where(zero, y.dtype.type(0) - y.dtype.type(1), found).astype(x.dtype)


def _remainder(x, y):
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    bad = (y == 0) | (y.astype(np.int64) == -1)
    found = np.fmod(x, np.where(bad, y.dtype.type(1), y))
    return np.where(y == 0, x, np.where(bad, x if x.dtype.kind == "u" else x.dtype.type(0), found)).astype(x.dtype)


def _shift(op):
    def shifted(x, y):
        width = 8 * x.dtype.itemsize
        bits, signed = np.dtype(f"u{x.dtype.itemsize}"), np.dtype(f"i{x.dtype.itemsize}")
        over = y.astype(bits) >= width
        amount = np.where(over, width - 1, y).astype(bits)
        if op == "sar":
            return (x.astype(signed) >> amount.astype(signed)).astype(x.dtype)
        moved = (x.astype(bits) << amount) if op == "shl" else (x.astype(bits) >> amount)
        return np.where(over, bits.type(0), moved).astype(x.dtype)

    return shifted


def _leading_zeros(x):
    width = 8 * x.dtype.itemsize
    return np.array([width - int(v).bit_length() for v in np.ravel(x.astype(f"u{x.dtype.itemsize}"))]).reshape(x.shape)


def _fused(x, y, c):
    """x*y + c, rounded once."""
    if np.ndim(x) or np.ndim(y) or np.ndim(c):
        columns = np.broadcast_arrays(x, y, c)
        return np.array([_fused(*row) for row in zip(*columns, strict=True)])
    plain = x * y + c
    if plain.dtype != np.float64 or not np.isfinite(plain):
        return plain
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(c))
    return np.float64(float(exact)) if exact else plain


PLAIN = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _quotient, "rem": _remainder, "neg": np.negative,
    "max": np.maximum, "min": np.minimum, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
    "round_even": np.round, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "cbrt": np.cbrt, "atan2": np.arctan2, "pow": np.power, "nextafter": np.nextafter, "erf": scipy.special.erf,
    "erfc": scipy.special.erfc, "erf_inv": scipy.special.erfinv, "lgamma": scipy.special.gammaln,
    "round_away": lambda x: np.where(np.abs(x) < 2**52, np.trunc(x + np.copysign(0.5, x)), x),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "select": np.where, "is_finite": np.isfinite, "popcount": np.bitwise_count, "clz": _leading_zeros,
    "shl": _shift("shl"), "shr": _shift("shr"), "sar": _shift("sar"), "same": lambda x: x,
    "fma": _fused, "fms": lambda x, y, c: _fused(x, y, -c), "fnma": lambda x, y, c: _fused(-x, y, c),
    "rsum": np.sum, "rprod": np.prod, "rmax": np.max, "rmin": np.min, "rand": np.all, "ror": np.any,
}  # fmt: skip


class Interpreter:
    """A runner with the interface of the native one."""

    def __init__(self, program: Program):
        self.program, self.graph = program, program.graph

    def run_one(self, carry, consts, *, rows: int, every: int):
        p = self.program
        given = to_arrays(p.consts, p.consts_tree, consts, "consts")
        end, saved = self._one(to_arrays(p.carry, p.carry_tree, carry, "carry"), given, rows, every)
        return from_arrays(p.carry, p.carry_tree, end), from_arrays(p.rows, p.rows_tree, saved)

    def run(self, carry, consts, consts_axes=None, *, rows: int, every: int):
        p = self.program
        count = int(jax.tree.leaves(carry)[0].shape[0])
        axes = batch_axes(consts, consts_axes)
        given = to_arrays(p.consts, p.consts_tree, consts, "consts", [count if a == 0 else None for a in axes])
        start = to_arrays(p.carry, p.carry_tree, carry, "carry", [count] * len(p.carry))
        found = [
            self._one(
                [a[k] for a in start], [a[k] if x == 0 else a for a, x in zip(given, axes, strict=True)], rows, every
            )
            for k in range(count)
        ]
        stacked = [[np.stack(c) for c in zip(*(f[part] for f in found), strict=True)] for part in (0, 1)]
        return from_arrays(p.carry, p.carry_tree, stacked[0]), from_arrays(p.rows, p.rows_tree, stacked[1])

    def _one(self, carry: list, given: list, rows: int, every: int) -> tuple[list, list]:
        p = self.program
        with np.errstate(all="ignore"):
            env = self._enter({}, p.consts, given)
            env.update((-1 - k, np.ravel(a)) for k, a in enumerate(given))
            self._block(env, self.graph.root)
            out = []
            for _ in range(rows):
                for _ in range(every):
                    inner = self._enter(dict(env), p.carry, carry)
                    self._block(inner, p.scope, "head")
                    if self._value(inner, p.halted):
                        break
                    self._block(inner, p.scope, "body")
                    carry = self._leave(inner, p.step)
                inner = self._enter(dict(env), p.read_carry, carry)
                self._block(inner, p.read_scope)
                out.append(self._leave(inner, p.rows))
        saved = [
            np.stack([r[k] for r in out]) if out else np.empty((0, *leaf.shape), dtype_of(leaf.kind))
            for k, leaf in enumerate(p.rows)
        ]
        return carry, saved

    def _enter(self, env: dict, leaves: list[Leaf], arrays: list) -> dict:
        for leaf, array in zip(leaves, arrays, strict=True):
            flat = np.ravel(array)
            for k, n in enumerate(leaf.nodes):
                places = leaf.starts[k] + leaf.stride * np.arange(leaf.length) if leaf.length else k
                env[n] = flat[places]
        return env

    def _leave(self, env: dict, leaves: list[Leaf]) -> list:
        out = []
        for leaf in leaves:
            flat = np.empty(leaf.count, dtype_of(leaf.kind))
            for k, n in enumerate(leaf.nodes):
                places = leaf.starts[k] + leaf.stride * np.arange(leaf.length) if leaf.length else k
                flat[places] = self._value(env, n)
            out.append(flat.reshape(leaf.shape))
        return out

    def _value(self, env: dict, n: int):
        return self.graph.attr[n] if self.graph.op[n] == "const" else env[n]

    def _block(self, env: dict, scope: Scope, part: str = "all") -> None:
        block = self.program.blocks[scope]
        parts = {"all": block.nodes, "head": block.nodes[: block.head], "body": block.nodes[block.head :]}
        for n in parts[part]:
            op = self.graph.op[n]
            if op == "while":
                self._while(env, n)
            elif op == "cond":
                branches = self.graph.attr[n]
                which = int(np.clip(int(self._value(env, self.graph.args[n][0])), 0, len(branches.scopes) - 1))
                self._block(env, branches.scopes[which])
                env[n] = [env.get(r, self.graph.value.get(r)) for r in branches.results[which]]
            elif op in ("proj", "collected"):
                whole = env[self.graph.args[n][0]]
                env[n] = whole[self.graph.attr[n]] if op == "proj" else whole[-1][self.graph.attr[n]]
            else:
                env[n] = self._plain(env, n)

    def _while(self, env: dict, n: int) -> None:
        loop = self.graph.attr[n]
        moving = [j for j, p in enumerate(loop.params) if p in self.program.live]
        state = [self._value(env, a) if j in moving else None for j, a in enumerate(self.graph.args[n])]
        filled = [[None] * (loop.trips or 0) for _ in loop.collect[1:]]
        while True:
            env.update((loop.params[j], state[j]) for j in moving)
            self._block(env, loop.scope, "head")
            if not self._value(env, loop.go):
                break
            self._block(env, loop.scope, "body")
            for k, c in enumerate(loop.collect[1:]):
                if c in env or c in self.graph.value:
                    filled[k][int(self._value(env, loop.collect[0]))] = self._value(env, c)
            state = [self._value(env, loop.results[j]) if j in moving else None for j in range(len(state))]
        env[n] = [*state, [np.array(f) for f in filled]]

    def _plain(self, env: dict, n: int):
        g = self.graph
        op, kind, args = g.op[n], g.kind[n], [self._value(env, a) for a in g.args[n]]
        if op == "convert":
            return self._convert(args[0], kind)
        if op == "bitcast":
            return args[0].view(dtype_of(kind))
        if op in ("table", "pack"):
            return np.array(args, dtype_of(kind) if kind != "none" else None)
        if op == "fetch":
            return env[-1 - g.attr[n]][int(args[0])]
        if op == "load":
            return args[0][int(args[1])]
        if op == "vconst":
            return g.attr[n].array
        if op in ("take", "gsum"):
            places = g.attr[n].array
            found = np.where(places < 0, args[0].dtype.type(0), args[0][places])
            return found.sum(0) if op == "gsum" else found
        if op == "window":
            places = int(args[1]) + np.arange(g.length[n])
            inside = (places >= 0) & (places < len(args[0]))
            return np.where(inside, args[0][np.clip(places, 0, len(args[0]) - 1)], args[0].dtype.type(0))
        return np.asarray(PLAIN[op](*args)).astype(dtype_of(kind))[()]

    def _convert(self, x, kind: str):
        """Floats become integers by truncation, at the ends of the range where they are outside, NaN becomes 0."""
        if x.dtype.kind != "f" or kind in FLOATS or kind == "b1":
            return x.astype(dtype_of(kind))
        limits = np.iinfo(dtype_of(kind))
        assert kind in SIGNED or limits.min == 0
        clipped = [min(max(int(v), limits.min), limits.max) if np.isfinite(v) else
                   0 if np.isnan(v) else limits.max if v > 0 else limits.min for v in np.ravel(x)]  # fmt: skip
        return np.array(clipped, dtype_of(kind)).reshape(np.shape(x))[()]
