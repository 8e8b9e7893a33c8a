"""The back ends of a run: array code through XLA, or the kernel compiler's scalar programs.

All of them advance a `LoopCarry` by whole rows: `runner.run(carry, consts, rows, every)`.
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import InputError, one_of
from ..core.names import BACKENDS
from ..core.types import Index
from ..trace.compiled import Recent, compiled
from .loop import Consts, LoopCarry

if TYPE_CHECKING:
    from ..compiler import LoopFunctions

__all__ = ["BACKENDS", "Choice", "choose"]

log = logging.getLogger("holonomix")

ASKED_LIMIT = 100_000  # operations of a straight-line program that somebody asked for: compiling takes seconds
UNROLLED = 4_000  # operations beyond which loops over long axes are tried
GAIN = {"single": 2, "lanes": 8}  # how many times shorter loops must be: trajectories side by side gain as well
LONGEST_ON_GPU = 8_000  # operations of a straight-line program; NVIDIA's compiler takes minutes for longer ones


class Choice(NamedTuple):
    """A runner with its name, and why it was taken."""

    name: str
    runner: Any
    reason: str
    operations: int | None = None
    loops: int = 0  # over long axes, in one step


@compiled
def _array_run(
    stepper: PyTree, carry: LoopCarry, consts: Consts, rows: Index, every: Index, capacity: int
) -> tuple[LoopCarry, dict[str, Any]]:
    def inner(carry: LoopCarry):
        def more(loop: tuple[Any, ...]):
            carry, k = loop
            return (k < every) & ~stepper.halted(carry, consts)

        return jax.lax.while_loop(
            more, lambda x: (stepper.step(x[0], consts), x[1] + 1), (carry, jnp.zeros_like(every))
        )[0]

    shapes = jax.eval_shape(stepper.read, carry, consts)
    buffers = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

    def save(k: Index, loop: tuple[Any, ...]):
        carry, buffers = loop
        carry = inner(carry)
        row = stepper.read(carry, consts)
        return carry, jax.tree.map(lambda b, x: jax.lax.dynamic_update_index_in_dim(b, x, k, 0), buffers, row)

    return jax.lax.fori_loop(0, rows, save, (carry, buffers))


class ArrayRunner:
    """XLA on array code: takes everything, one compiled program for any number of rows up to a capacity."""

    name = "array"

    def __init__(self, stepper: PyTree, capacity: int = 1):
        self.stepper, self.capacity = stepper, capacity

    def run(
        self, carry: LoopCarry, consts: Consts, *, rows: int, every: int
    ) -> tuple[LoopCarry, dict[str, np.ndarray]]:
        capacity = 1 << max(rows - 1, self.capacity - 1, 0).bit_length()
        carry, buffers = _array_run(self.stepper, carry, consts, jnp.asarray(rows), jnp.asarray(every), capacity)
        return carry, {name: np.asarray(x)[:rows] for name, x in buffers.items()}

    def run_batch(
        self, carry: LoopCarry, consts: Consts, axes: Consts, *, rows: int, every: int
    ) -> tuple[LoopCarry, dict[str, np.ndarray]]:
        capacity = 1 << max(rows - 1, self.capacity - 1, 0).bit_length()
        carry, buffers = _array_batch(
            self.stepper, carry, consts, axes, jnp.asarray(rows), jnp.asarray(every), capacity
        )
        return carry, {name: np.asarray(x)[:, :rows] for name, x in buffers.items()}


@compiled
def _array_batch(
    stepper: PyTree, carry: LoopCarry, consts: Consts, axes: Consts, rows: Index, every: Index, capacity: int
) -> tuple[LoopCarry, dict[str, Any]]:
    run = lambda carry, consts: _array_run(stepper, carry, consts, rows, every, capacity)
    return jax.vmap(run, in_axes=(0, axes))(carry, consts)


_CACHE: Recent[Any] = Recent(64)


def _signature(tree: PyTree) -> Any:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple(
        (x.shape, str(x.dtype)) if eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct) else x for x in leaves
    )


def _program(backend: str, loop: LoopFunctions, carry: PyTree, consts: Consts, asked: bool, gain: int) -> Any:
    """The unrolled program where it is small, else one with loops over long axes where that is much shorter.

    Each form has a budget of operations and of work, counted and not timed, so that the choice is always the same.
    """
    from .. import compiler as kernels

    unrolled, error, second = None, None, None
    traced = kernels.trace_loop(loop, carry, consts)
    try:
        unrolled = kernels.lower_traced(traced)
    except kernels.Unsupported as reason:
        if not reason.operation.startswith("too many"):
            raise
        error = reason
    if unrolled is None or unrolled.operations > UNROLLED:
        try:
            wide = kernels.lower_traced(traced, wide=True)
            too_long = unrolled is None or (backend == "cuda" and unrolled.operations > LONGEST_ON_GPU)
            if unrolled is None or (1 if too_long else gain) * wide.effort <= unrolled.effort:
                size = f"{unrolled.operations} operations" if unrolled is not None else ""
                wide.note = f"; unrolled it would have {error.short if error else size}"
                return wide
        except kernels.Unsupported as reason:
            second = reason
            log.info("no loops over axes: %s", reason)
        except kernels.Defect as reason:  # vector loops are optional
            if kernels.defects_are_fatal():
                raise
            log.warning("no loops over axes: %s", reason)
    if unrolled is None and asked:
        return kernels.lower_traced(traced, limit=ASKED_LIMIT)
    if unrolled is None and error is not None:
        raise error if second is None else kernels.Unsupported(f"{error.short}; with loops over axes: {second.short}")
    return unrolled


def _kernel(backend: str, stepper: PyTree, carry: PyTree, consts: Consts, asked: bool, batch: bool) -> Any:
    """A compiled kernel, from the cache where the same program was built before; what went wrong is cached too."""
    from .. import compiler as kernels

    gain = GAIN["lanes" if batch else "single"]  # the same for CPUs and GPUs, for the same bits
    try:
        key = (backend, asked, batch, _signature(stepper), _signature(carry), _signature(consts))
        hash(key)
    except TypeError:
        key = None
    found = _CACHE.get(key) if key is not None else None
    if found is None:
        try:
            loop = kernels.LoopFunctions(stepper.step, stepper.read, stepper.halted)
            program = _program(backend, loop, carry, consts, asked, gain)
            runner = kernels.build(program, backend=backend)
            runner.prepare(batch)
            found = (runner, program)
        except (kernels.Unsupported, kernels.Unavailable, kernels.Defect) as error:
            if isinstance(error, kernels.Defect):
                if asked or kernels.defects_are_fatal():
                    raise
                log.warning("the array path is taken because of %s", error)
            found = copy.copy(error)  # without its traceback, which holds the whole program
        if key is not None:
            _CACHE.put(key, found)
    if isinstance(found, Exception):
        raise copy.copy(found)
    return found


def callback_runner(backend: str, stepper: Any, carry: PyTree, consts: PyTree) -> Any | None:
    """A kernel that compiled functions of JAX can call back, for `stepper` with `step`, `read` and `halted`.

    None for the array path, where `backend` asks for it or `auto` finds nothing better.
    """
    if backend == "array":
        return None
    one, given = (jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), tree) for tree in (carry, consts))
    with jax.ensure_compile_time_eval():
        runner = choose(backend, stepper, one, given, batch=True).runner
    if isinstance(runner, ArrayRunner):
        return None
    if hasattr(runner, "prepare_callback"):
        runner.prepare_callback()
    return runner


def choose(
    backend: str, stepper: PyTree, carry: PyTree, consts: Consts, capacity: int = 1, *, batch: bool = False
) -> Choice:
    """The runner for one trajectory, or with `batch` for many; `carry` and `consts` are those of one.

    A call asks for at most `capacity` rows. Under `auto` nothing that goes wrong in lowering, emitting and compiling
    ends a run that the array path can do.
    """
    one_of("backend", backend, BACKENDS)
    if backend == "array":
        return Choice("array", ArrayRunner(stepper, capacity), "asked for")
    if consts.dt.dtype != jnp.float64 and backend == "auto":
        return Choice("array", ArrayRunner(stepper, capacity), "kernels are compiled for 64-bit floats only")
    try:
        from .. import compiler as kernels
    except ImportError as error:  # llvmlite is missing on this machine
        if backend != "auto":
            raise InputError(f"backend {backend!r} is not available here: {error}") from error
        return Choice("array", ArrayRunner(stepper, capacity), f"kernels are not available: {error}")
    shapes = jax.eval_shape(lambda x: x, (carry, consts))
    name = backend
    if backend == "auto":
        name = "cuda" if batch and jax.default_backend() == "gpu" else "native"
    try:
        runner, program = _kernel(name, stepper, *shapes, asked=backend != "auto", batch=batch)
    except (kernels.Unsupported, kernels.Unavailable, kernels.Defect, ImportError) as error:
        if isinstance(error, kernels.Defect) and (backend != "auto" or kernels.defects_are_fatal()):
            raise
        if backend != "auto":
            raise InputError(
                f"backend {backend!r} cannot take this step: {error}; backend='array' takes everything"
            ) from error
        log.info("not %s: %s", name, error)
        return Choice("array", ArrayRunner(stepper, capacity), f"array path, because {error}")
    kind = "a program with loops over axes," if program.wide else "a scalar program of"
    found = f"the step is {kind} {program.operations} operations{program.note}"
    return Choice(name, runner, found if backend == "auto" else "asked for", program.operations, program.loops)
