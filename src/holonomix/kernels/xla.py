"""The xla back end: the scalar program through XLA, on any device that JAX has.

The numbers agree with the native back end to round-off. One compiled function serves any number of rows up to the
next power of two.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .evaluator import Evaluator, flatten_leaves, group
from .graph import dtype_of
from .program import Program
from .runner import batch_axes, from_arrays, to_arrays


class XlaRunner:
    """Runs the program through XLA; compilation happens on first use of each form."""

    def __init__(self, program: Program):
        self.program = program
        self._compiled = jax.jit(self._advance, static_argnames=("capacity", "axes"))

    def run(self, carry, consts, *, rows: int, every: int):
        """One trajectory: `rows` rows, each after `every` steps."""
        p = self.program
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry")
        given = to_arrays(p.consts, p.consts_tree, consts, "consts")
        return self._run(carry_in, given, None, rows, every)

    def run_batch(self, carry, consts, consts_axes=None, *, rows: int, every: int):
        """Many trajectories; carry leaves have a leading axis, constants where `consts_axes` says 0."""
        p = self.program
        count = int(jax.tree.leaves(carry)[0].shape[0])
        axes = tuple(batch_axes(p.consts_tree, consts, consts_axes))
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", [count] * len(p.carry))
        given = to_arrays(p.consts, p.consts_tree, consts, "consts", [count if a == 0 else None for a in axes])
        return self._run(carry_in, given, axes, rows, every)

    def _run(self, carry_in, given, axes, rows: int, every: int):
        if rows < 0 or every < 0:
            raise ValueError("rows and every must not be negative")
        p = self.program
        capacity = 1 << max(rows - 1, 0).bit_length()
        out, saved = self._compiled(carry_in, given, np.int64(rows), np.int64(every), capacity=capacity, axes=axes)
        lead = (slice(None), slice(0, rows)) if axes is not None else slice(0, rows)
        carry_out = from_arrays(p.carry, p.carry_tree, [np.asarray(a) for a in out])
        return carry_out, from_arrays(p.rows, p.rows_tree, [np.asarray(a)[lead] for a in saved])

    def _advance(self, carry, given, rows, every, *, capacity: int, axes: tuple[Any, ...] | None):
        p = self.program
        width = None if axes is None else carry[0].shape[0]
        evaluator = Evaluator(p, width)
        per_lane = [a == 0 for a in axes] if axes is not None else [False] * len(given)
        flat = [flatten_leaves([leaf], [a], b) for leaf, a, b in zip(p.consts, given, per_lane, strict=True)]
        env = evaluator.constants(flat)
        values = [
            evaluator.spread(v, leaf.kind)
            for leaf, part in zip(
                p.carry, group(p.carry, flatten_leaves(p.carry, carry, width is not None)), strict=True
            )
            for v in part
        ]
        shape = (capacity,) if width is None else (capacity, width)
        buffers = [jnp.zeros(shape, dtype_of(leaf.kind)) for leaf in p.rows for _ in leaf.nodes]

        def save(k, state):
            values, buffers = state
            values = evaluator.row_steps(env, values, every)
            row = evaluator.read(env, values)
            return values, [b.at[k].set(v) for b, v in zip(buffers, row, strict=True)]

        values, buffers = jax.lax.fori_loop(0, rows, save, (values, buffers))
        return self._pack(p.carry, values, width), self._pack_rows(buffers, width, capacity)

    def _pack(self, leaves, values, width):
        lead = () if width is None else (width,)
        return [
            (jnp.stack(part, -1) if part else jnp.zeros((*lead, 0), dtype_of(leaf.kind))).reshape(*lead, *leaf.shape)
            for leaf, part in zip(leaves, group(leaves, values), strict=True)
        ]

    def _pack_rows(self, buffers, width, capacity: int):
        out = []
        for leaf, part in zip(self.program.rows, group(self.program.rows, buffers), strict=True):
            lead = (capacity,) if width is None else (width, capacity)
            stacked = jnp.stack(part, -1) if part else jnp.zeros((*lead, 0), dtype_of(leaf.kind))
            stacked = jnp.moveaxis(stacked, 0, 1) if width is not None and part else stacked
            out.append(stacked.reshape(*lead, *leaf.shape))
        return out


__all__ = ["XlaRunner"]
