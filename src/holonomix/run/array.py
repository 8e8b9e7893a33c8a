"""The array back end: plain XLA. It supports every step."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.types import Index
from ..trace.compiled import compiled
from .backends import Runner
from .stepper import Consts, over_trajectories

if TYPE_CHECKING:
    from ..compiler.runner import LoopBody


@dataclasses.dataclass(frozen=True)
class ArrayRunner(Runner):
    """Runs a loop as array code, with one compiled program for all numbers of rows up to `capacity`."""

    loop: Any
    capacity: int = 1

    name = "array"
    description = "array code"

    def prepare(self, rows: int, *, callback: bool = False) -> ArrayRunner:
        return ArrayRunner(self.loop, rows)

    def run(
        self, carry: PyTree, consts: Consts, axes: Consts | None = None, *, rows: int, every: int
    ) -> tuple[Any, dict[str, np.ndarray]]:
        capacity = 1 << max(rows - 1, self.capacity - 1, 0).bit_length()
        if axes is not None and axes.n_end is None:  # one program, whether or not trajectories end together
            count = len(jax.tree.leaves(carry)[0])
            consts = dataclasses.replace(consts, n_end=jnp.broadcast_to(consts.n_end, count))
            axes = dataclasses.replace(axes, n_end=0)
        carry, buffers = _run(self.loop, carry, consts, axes, jnp.asarray(rows), jnp.asarray(every), capacity)
        return carry, {name: np.asarray(x)[:, :rows] for name, x in buffers.items()}


def lower(loop: LoopBody, carry: PyTree, consts: PyTree, *, alone: bool, asked: bool) -> ArrayRunner:
    """A runner of the loop; see `run.backends.Backend`."""
    return ArrayRunner(loop)


@compiled
def _run(
    loop: LoopBody, carry: PyTree, consts: Consts, axes: Consts | None, rows: Index, every: Index, capacity: int
) -> tuple[Any, dict[str, Any]]:
    one = lambda consts, carry: _run_one(loop, carry, consts, rows, every, capacity)
    return over_trajectories(one, consts, axes, carry)


def _run_one(
    loop: LoopBody, carry: PyTree, consts: Consts, rows: Index, every: Index, capacity: int
) -> tuple[Any, dict[str, Any]]:
    """The final carry, and buffers of length `capacity` with a row per `every` steps; those beyond `rows` are zero."""

    def advance(carry: PyTree) -> Any:
        more = lambda x: (x[1] < every) & ~loop.halted(x[0], consts)
        step = lambda x: (loop.step(x[0], consts), x[1] + 1)
        return jax.lax.while_loop(more, step, (carry, jnp.zeros_like(every)))[0]

    shapes = jax.eval_shape(loop.read, carry, consts)
    buffers = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

    def save(k: Index, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, buffers = state
        carry = advance(carry)
        row = loop.read(carry, consts)
        return carry, jax.tree.map(lambda b, x: jax.lax.dynamic_update_index_in_dim(b, x, k, 0), buffers, row)

    return jax.lax.fori_loop(0, rows, save, (carry, buffers))
