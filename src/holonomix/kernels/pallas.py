"""The pallas back end: all steps of all rows in one GPU kernel, one trajectory a thread.

A block of `lanes` trajectories (one warp by default) runs the program on vectors; loops end when every lane of the
block is done. Off the GPU the kernel is interpreted, which is slow and serves the tests.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from .evaluator import Evaluator, group
from .graph import BOOL, dtype_of
from .program import Leaf, Program
from .runner import batch_axes, from_arrays, to_arrays

WARP = 32


def _memory_type(kind: str) -> np.dtype:
    """Truth values travel as integers."""
    return np.dtype(np.int32) if kind == BOOL else dtype_of(kind)


class PallasRunner:
    """Runs the program as one Pallas kernel (Triton on NVIDIA GPUs)."""

    def __init__(self, program: Program, lanes: int | None = None, interpret: bool | None = None):
        self.program = program
        self.lanes = lanes or WARP
        self.interpret = jax.default_backend() != "gpu" if interpret is None else interpret
        self._compiled = jax.jit(self._advance, static_argnames=("capacity", "axes"))

    def run(self, carry, consts, *, rows: int, every: int):
        """One trajectory, as a batch of one: for checks only."""
        p = self.program
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry")
        given = to_arrays(p.consts, p.consts_tree, consts, "consts")
        out, saved = self._call([a[None] for a in carry_in], given, (None,) * len(given), rows, every)
        carry_out = from_arrays(p.carry, p.carry_tree, [a[0] for a in out])
        return carry_out, from_arrays(p.rows, p.rows_tree, [a[0] for a in saved])

    def run_batch(self, carry, consts, consts_axes=None, *, rows: int, every: int):
        """Many trajectories; carry leaves have a leading axis, constants where `consts_axes` says 0."""
        p = self.program
        count = int(jax.tree.leaves(carry)[0].shape[0])
        axes = tuple(batch_axes(p.consts_tree, consts, consts_axes))
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", [count] * len(p.carry))
        given = to_arrays(p.consts, p.consts_tree, consts, "consts", [count if a == 0 else None for a in axes])
        out, saved = self._call(carry_in, given, axes, rows, every)
        return from_arrays(p.carry, p.carry_tree, out), from_arrays(p.rows, p.rows_tree, saved)

    def _call(self, carry_in, given, axes, rows: int, every: int):
        if rows < 0 or every < 0:
            raise ValueError("rows and every must not be negative")
        capacity = 1 << max(rows - 1, 0).bit_length()
        out, saved = self._compiled(carry_in, given, np.int64(rows), np.int64(every), capacity=capacity, axes=axes)
        return [np.asarray(a) for a in out], [np.asarray(a)[:, :rows] for a in saved]

    # -- traced ------------------------------------------------------------------------------------
    def _advance(self, carry, given, rows, every, *, capacity: int, axes: tuple[Any, ...]):
        p, width = self.program, self.lanes
        count = carry[0].shape[0]
        blocks = pl.cdiv(count, width)
        padded = blocks * width

        def columns(leaf: Leaf, array):
            """(batch, ...) to (scalars, padded batch); the padding repeats the last trajectory."""
            flat = jnp.reshape(array, (count, leaf.count)).astype(_memory_type(leaf.kind)).T
            return jnp.pad(flat, ((0, 0), (0, padded - count)), mode="edge")

        given_in = [
            columns(leaf, a) if axis == 0 else jnp.reshape(a, -1).astype(_memory_type(leaf.kind))
            for leaf, a, axis in zip(p.consts, given, axes, strict=True)
        ]
        carry_in = [columns(leaf, a) for leaf, a in zip(p.carry, carry, strict=True)]
        # arrays without elements do not travel
        inputs = [a for a in (*given_in, *carry_in) if a.size]
        carry_out = [leaf for leaf in p.carry if leaf.count]
        rows_out = [leaf for leaf in p.rows if leaf.count]
        shapes = [jax.ShapeDtypeStruct((leaf.count, padded), _memory_type(leaf.kind)) for leaf in carry_out]
        shapes += [jax.ShapeDtypeStruct((capacity, leaf.count, padded), _memory_type(leaf.kind)) for leaf in rows_out]
        whole = pl.BlockSpec((1,), lambda i: (0,))
        specs = [
            pl.BlockSpec((a.shape[0], width), lambda i: (0, i))
            if a.ndim == 2
            else pl.BlockSpec(a.shape, lambda i: (0,))
            for a in inputs
        ]
        out_specs = [pl.BlockSpec((leaf.count, width), lambda i: (0, i)) for leaf in carry_out]
        out_specs += [pl.BlockSpec((capacity, leaf.count, width), lambda i: (0, 0, i)) for leaf in rows_out]
        call = pl.pallas_call(
            self._kernel,
            out_shape=shapes,
            grid=(blocks,),
            in_specs=[whole, whole, *specs],
            out_specs=out_specs,
            interpret=self.interpret,
            **self._options(),
        )
        results = call(jnp.reshape(rows, 1), jnp.reshape(every, 1), *inputs)
        return self._unpack(results, count, capacity)

    def _options(self) -> dict[str, Any]:
        if self.interpret:
            return {}
        from jax.experimental.pallas import triton

        return {"compiler_params": triton.CompilerParams(num_warps=max(1, self.lanes // WARP), num_stages=1)}

    def _kernel(self, rows_ref, every_ref, *refs):
        p = self.program
        evaluator = Evaluator(p, self.lanes, gather=False)
        rest = list(refs)

        def take(leaf: Leaf) -> Any:
            return rest.pop(0) if leaf.count else None

        def load(leaf: Leaf, ref) -> list:
            values = [ref[k, :] if len(ref.shape) == 2 else ref[k] for k in range(leaf.count)]
            return [v != 0 if leaf.kind == BOOL else v for v in values]

        env = evaluator.constants([load(leaf, take(leaf)) for leaf in p.consts])
        carry = [evaluator.spread(v, leaf.kind) for leaf in p.carry for v in load(leaf, take(leaf))]
        carry_refs = [take(leaf) for leaf in p.carry]
        row_refs = [take(leaf) for leaf in p.rows]
        every = every_ref[0]

        def save(k, values):
            values = evaluator.row_steps(env, values, every)
            row = evaluator.read(env, values)
            for leaf, ref, part in zip(p.rows, row_refs, group(p.rows, row), strict=True):
                for j, v in enumerate(part):
                    ref[k, j, :] = v.astype(_memory_type(leaf.kind))
            return values

        carry = jax.lax.fori_loop(np.int64(0), rows_ref[0], save, carry)
        for leaf, ref, part in zip(p.carry, carry_refs, group(p.carry, carry), strict=True):
            for j, v in enumerate(part):
                ref[j, :] = v.astype(_memory_type(leaf.kind))

    def _unpack(self, results, count: int, capacity: int):
        p, results = self.program, list(results)
        carry, saved = [], []
        for leaf in p.carry:
            flat = results.pop(0)[:, :count].T if leaf.count else jnp.zeros((count, 0))
            carry.append(flat.astype(dtype_of(leaf.kind)).reshape(count, *leaf.shape))
        for leaf in p.rows:
            flat = jnp.moveaxis(results.pop(0)[:, :, :count], 2, 0) if leaf.count else jnp.zeros((count, capacity, 0))
            saved.append(flat.astype(dtype_of(leaf.kind)).reshape(count, capacity, *leaf.shape))
        return carry, saved
