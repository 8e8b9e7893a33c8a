"""Evaluates the scheduled program with jax.numpy: the common part of the `xla` and `pallas` back ends.

Values are scalars (one trajectory) or vectors with one element a trajectory. In the second form loops run while any
lane wants to and keep the values of finished lanes by a select, as in the native back end; a loop counter stays a
scalar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .graph import Scope, Unsupported, dtype_of
from .program import Leaf, Program

_SAME_TYPE: dict[str, Callable] = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "max": jnp.maximum, "min": jnp.minimum,
    "neg": jnp.negative,
    "abs": jnp.abs, "sqrt": jnp.sqrt, "floor": jnp.floor, "ceil": jnp.ceil, "sin": jnp.sin, "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": jnp.arcsin, "acos": jnp.arccos, "atan": jnp.arctan, "sinh": jnp.sinh, "cosh": jnp.cosh, "tanh": jnp.tanh,
    "asinh": jnp.arcsinh, "acosh": jnp.arccosh, "atanh": jnp.arctanh, "exp": jnp.exp, "exp2": jnp.exp2,
    "expm1": jnp.expm1, "log": jnp.log, "log1p": jnp.log1p, "cbrt": jnp.cbrt, "atan2": jnp.arctan2, "pow": jnp.power,
    "nextafter": jnp.nextafter, "erf": lax.erf, "erfc": lax.erfc, "erf_inv": lax.erf_inv, "lgamma": lax.lgamma,
    "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor, "not": jnp.bitwise_not,
    "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater, "ge": jnp.greater_equal, "eq": jnp.equal,
    "ne": jnp.not_equal, "select": jnp.where, "is_finite": jnp.isfinite, "popcount": lax.population_count,
    "clz": lax.clz,
    "fma": lambda x, y, c: x * y + c, "fms": lambda x, y, c: x * y - c, "fnma": lambda x, y, c: c - x * y,
    "same": lambda x: x,
}  # fmt: skip
_LAX_PAIR = {"div": lax.div, "rem": lax.rem, "shl": lax.shift_left, "shr": lax.shift_right_logical,
             "sar": lax.shift_right_arithmetic}  # fmt: skip
LARGEST_TABLE = 64  # entries of a table that is read by selects


class Evaluator:
    """Runs blocks over an environment `node -> value`.

    `width` is None for one trajectory, else the number of lanes. `gather` says whether tables may be real arrays;
    without it they are chains of selects, which is all that a GPU kernel can do.
    """

    def __init__(self, program: Program, width: int | None = None, gather: bool = True):
        self.program, self.graph, self.width, self.gather = program, program.graph, width, gather
        self.projections: dict[int, list[int]] = {}
        for n in sorted(program.live):
            if self.graph.op[n] in ("proj", "collected"):
                self.projections.setdefault(self.graph.args[n][0], []).append(n)

    # -- values ------------------------------------------------------------------------------------
    def value(self, env: dict[int, Any], n: int):
        if self.graph.op[n] == "const":
            return self.graph.attr[n]
        return env[n]

    def spread(self, x, kind: str):
        """A full value, as loops and rows need it: an array of the right type, over all lanes."""
        shape = () if self.width is None else (self.width,)
        return jnp.broadcast_to(jnp.asarray(x, dtype_of(kind)), shape)

    def any(self, mask):
        if self.width is None:
            return mask
        return jnp.max(mask.astype(jnp.int32)) > 0

    def block(self, env: dict[int, Any], scope: Scope, mask, part: str = "all") -> None:
        block = self.program.blocks[scope]
        nodes = block.nodes
        nodes = nodes[: block.head] if part == "head" else nodes[block.head :] if part == "body" else nodes
        for n in nodes:
            op = self.graph.op[n]
            if op == "while":
                self._while(env, n, mask)
            elif op == "cond":
                self._cond(env, n, mask)
            elif op not in ("proj", "collected"):
                env[n] = self._plain(env, n)

    def _plain(self, env, n: int):
        g = self.graph
        op, kind = g.op[n], g.kind[n]
        args = [self.value(env, a) for a in g.args[n]]
        if op in _SAME_TYPE:
            return _SAME_TYPE[op](*args)
        if op == "div" and kind[0] == "f":
            return jnp.divide(*args)
        if op in _LAX_PAIR:
            a, b = jnp.broadcast_arrays(*(jnp.asarray(x) for x in args))
            return _LAX_PAIR[op](a, b)
        if op == "convert":
            return jnp.asarray(args[0]).astype(dtype_of(kind))
        if op == "bitcast":
            return lax.bitcast_convert_type(args[0], dtype_of(kind))
        if op in ("round_even", "round_away"):
            method = lax.RoundingMethod.TO_NEAREST_EVEN if op == "round_even" else lax.RoundingMethod.AWAY_FROM_ZERO
            return lax.round(args[0], method)
        if op == "table":
            return jnp.stack(jnp.broadcast_arrays(*args)) if self.gather else list(args)
        if op == "load":
            return self._load(*args)
        raise Unsupported(op, "no code in this back end")

    def _load(self, table, index):
        if isinstance(index, np.generic):
            return table[int(index)]
        if not self.gather:
            return self._pick(table, index)
        if jnp.ndim(index) == 0 or table.ndim == 1:
            return table[index]
        return jnp.take_along_axis(table, index[None], 0)[0]

    def _pick(self, table: list, index):
        if len(table) > LARGEST_TABLE:
            raise Unsupported(f"table of {len(table)} entries", "in this back end")
        value = table[0]
        for k, item in enumerate(table[1:], 1):
            value = jnp.where(index == k, item, value)
        return value

    # -- control flow ------------------------------------------------------------------------------
    def _while(self, env, n: int, mask) -> None:
        g, loop = self.graph, self.graph.attr[n]
        counted = loop.trips is not None
        moving = [j for j, p in enumerate(loop.params) if p in self.program.live and not (counted and j == 0)]
        kinds = [g.kind[loop.params[j]] for j in moving]
        start = [self.spread(self.value(env, g.args[n][j]), k) for j, k in zip(moving, kinds, strict=True)]
        tables = [u for u in self.projections.get(n, []) if g.op[u] == "collected"]
        if tables and loop.trips > LARGEST_TABLE and not self.gather:
            raise Unsupported(f"table of {loop.trips} entries", "in this back end")
        rows: list[Any] = [[self.spread(0, g.kind[u])] * (loop.trips or 0) for u in tables]
        rows = [jnp.stack(r) for r in rows] if self.gather else rows
        collect = [loop.collect[1 + g.attr[u]] for u in tables]

        def enter(values, counter):
            inner = dict(env)
            inner.update(zip((loop.params[j] for j in moving), values, strict=True))
            if counted:
                inner[loop.params[0]] = counter
            return inner

        def advance(values, counter, rows, active):
            inner = enter(values, counter)
            self.block(inner, loop.scope, active, "head")
            self.block(inner, loop.scope, active, "body")
            new = [self.spread(self.value(inner, loop.results[j]), k) for j, k in zip(moving, kinds, strict=True)]
            place = self.value(inner, loop.collect[0]) if rows else None
            for k, c in enumerate(collect):
                item = self.spread(self.value(inner, c), g.kind[c])
                old = rows[k]
                rows[k] = (
                    old.at[place].set(item)
                    if self.gather
                    else [jnp.where(place == i, item, v) for i, v in enumerate(old)]
                )
            return new, rows

        if counted:
            values, rows = lax.fori_loop(
                0, np.int64(loop.trips), lambda i, s: advance(s[0], i, s[1], mask), (start, rows)
            )
        else:

            def test(values, running):
                inner = enter(values, None)
                self.block(inner, loop.scope, running, "head")
                go = self.value(inner, loop.go)
                return go if self.width is None else running & go

            def body(state):
                values, running = state
                new, _ = advance(values, None, [], running)
                if self.width is not None:
                    new = [jnp.where(running, a, b) for a, b in zip(new, values, strict=True)]
                return new, test(new, running)

            first = test(start, mask)
            values, _ = lax.while_loop(lambda s: self.any(s[1]), body, (start, first))
        env.update(zip((loop.params[j] for j in moving), values, strict=True))
        for u in self.projections.get(n, []):
            if g.op[u] == "proj":
                env[u] = env[loop.params[g.attr[u]]]
        env.update(zip(tables, rows, strict=True))

    def _cond(self, env, n: int, mask) -> None:
        g, branches = self.graph, self.graph.attr[n]
        users = [u for u in self.projections.get(n, []) if g.op[u] == "proj"]
        which = self.value(env, g.args[n][0])
        which = jnp.clip(jnp.asarray(which).astype(jnp.int32), 0, len(branches.scopes) - 1)

        def branch(k: int, active) -> list:
            inner = dict(env)
            self.block(inner, branches.scopes[k], active)
            return [self.spread(self.value(inner, branches.results[k][g.attr[u]]), g.kind[u]) for u in users]

        if self.width is None:
            values = lax.switch(which, [lambda k=k: branch(k, mask) for k in range(len(branches.scopes))])
        else:
            values = [self.spread(0, g.kind[u]) for u in users]
            for k in range(len(branches.scopes)):
                mine = mask & (which == k)
                new = lax.cond(self.any(mine), lambda m=mine, k=k: branch(k, m), lambda v=values: v)
                values = [jnp.where(mine, a, b) for a, b in zip(new, values, strict=True)]
        env.update(zip(users, values, strict=True))

    # -- the time loop -----------------------------------------------------------------------------
    def constants(self, leaves: list[list]) -> dict[int, Any]:
        """An environment with the constants of the run and all that depends on them alone."""
        env: dict[int, Any] = {}
        for leaf, values in zip(self.program.consts, leaves, strict=True):
            env.update(zip(leaf.nodes, values, strict=True))
        self.block(env, self.graph.root, self.all_lanes())
        return env

    def all_lanes(self):
        return np.bool_(True) if self.width is None else jnp.ones((self.width,), bool)

    def row_steps(self, env: dict[int, Any], carry: list, every):
        """Advance the carry, a flat list of values, by at most `every` steps."""
        p = self.program
        params = [n for leaf in p.carry for n in leaf.nodes]
        results = [(n, leaf.kind) for leaf in p.step for n in leaf.nodes]

        def active(values):
            inner = dict(env)
            inner.update(zip(params, values, strict=True))
            self.block(inner, p.scope, self.all_lanes(), "head")
            return ~jnp.asarray(self.value(inner, p.halted))

        def body(state):
            k, values, running = state
            inner = dict(env)
            inner.update(zip(params, values, strict=True))
            self.block(inner, p.scope, running, "head")
            self.block(inner, p.scope, running, "body")
            new = [self.spread(self.value(inner, n), kind) for n, kind in results]
            if self.width is not None:
                new = [jnp.where(running, a, b) for a, b in zip(new, values, strict=True)]
            return k + 1, new, self.spread(active(new), "b1")

        start = (jnp.zeros_like(every), carry, self.spread(active(carry), "b1"))
        return lax.while_loop(lambda s: (s[0] < every) & self.any(s[2]), body, start)[1]

    def read(self, env: dict[int, Any], carry: list) -> list:
        """The values of a row, flat."""
        p = self.program
        inner = dict(env)
        inner.update(zip((n for leaf in p.read_carry for n in leaf.nodes), carry, strict=True))
        self.block(inner, p.read_scope, self.all_lanes())
        return [self.spread(self.value(inner, n), leaf.kind) for leaf in p.rows for n in leaf.nodes]


def flatten_leaves(leaves: list[Leaf], arrays: list, batched: bool) -> list:
    """Arrays to a flat list of scalars, or of vectors over the leading axis."""
    out = []
    for leaf, array in zip(leaves, arrays, strict=True):
        flat = jnp.reshape(array, (array.shape[0], -1)) if batched else jnp.reshape(array, -1)
        out += [flat[..., k] for k in range(leaf.count)]
    return out


def group(leaves: list[Leaf], values: list) -> list[list]:
    """A flat list, cut into one list for each leaf."""
    out, at = [], 0
    for leaf in leaves:
        out.append(values[at : at + leaf.count])
        at += leaf.count
    return out
