"""What the kernel back ends share: the choice of a program, arrays in and out of it, calls from inside of `jax.jit`."""

from __future__ import annotations

import abc
import copy
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from ..core.types import Index
from .foreign import called
from .graph import Defect, Unavailable, Unsupported, defects_are_fatal
from .program import Leaf, Program, Traced, lower_traced, trace_loop

log = logging.getLogger("holonomix")

# Maximum operations of a straight-line program if its back end was named, or if the alternative is the array path on a
# CPU. LLVM takes 0.2 s per 1 000 operations; XLA takes longer for a step of that length.
ASKED_LIMIT = 100_000
IRREGULAR_LIMIT = 40_000  # maximum operations of a program with loops over irregular axes
LOOP_COST_FACTOR = 1.1  # loops win if their work times this is less than that of a long unrolled program
UNROLLED = 4_000  # operations beyond which loops over long axes are tried
GAIN = {"single": 2, "lanes": 8}  # how many times shorter loops must be: trajectories side by side gain as well


@runtime_checkable
class LoopBody(Protocol):
    """What a kernel runs, for one trajectory. Once `halted` is true the carry is frozen; rows are still written."""

    def step(self, carry: PyTree, consts: PyTree, /) -> Any: ...

    def read(self, carry: PyTree, consts: PyTree, /) -> Any: ...

    def halted(self, carry: PyTree, consts: PyTree, /) -> Any: ...


def choose_program(loop: LoopBody, carry: PyTree, consts: PyTree, alone: bool, asked: bool, longest: int) -> Program:
    """The unrolled program where it is small, else one with loops over long axes where that is much shorter.

    Each form has a budget of operations and of work, counted and not timed, so that the choice is always the same. An
    unrolled program of more than `longest` operations is the last resort.
    """
    unrolled, error, second = None, None, None
    gain = GAIN["single" if alone else "lanes"]  # the same for CPUs and GPUs, for the same bits
    traced = trace_loop(loop, carry, consts)
    try:
        unrolled = lower_traced(traced)
    except Unsupported as reason:
        if not reason.operation.startswith("too many"):
            raise
        error = reason
    if unrolled is None or unrolled.operations > UNROLLED:
        try:
            wide = lower_traced(traced, wide=True)
            if unrolled is None or (1 if unrolled.operations > longest else gain) * wide.effort <= unrolled.effort:
                size = f"{unrolled.operations} operations" if unrolled is not None else ""
                wide.note = f"; unrolled it would have {error.short if error else size}"
                return wide
        except Unsupported as reason:
            second = reason
            log.info("no loops over axes: %s", reason)
        except Defect as reason:  # vector loops are optional
            if defects_are_fatal():
                raise
            log.warning("no loops over axes: %s", reason)
    if unrolled is not None:
        return unrolled
    if asked:
        return lower_traced(traced, limit=ASKED_LIMIT)
    assert error is not None
    if longest >= ASKED_LIMIT and second is not None:
        try:
            return _last_resort(traced, alone, error)
        except Unsupported as reason:
            error = reason
    raise error if second is None else Unsupported(f"{error.short}; with loops over axes: {second.short}")


def _last_resort(traced: Traced, alone: bool, error: Unsupported) -> Program:
    """For a CPU: a long unrolled program of one trajectory, or loops over irregular axes, whichever is cheaper.

    A tree of bodies has irregular axes: its joints access memory without a constant stride, through index tables.
    """
    found: list[Program] = []
    if alone:
        try:
            found.append(lower_traced(traced, limit=ASKED_LIMIT))
        except Unsupported as reason:
            error = reason
    try:
        wide = lower_traced(traced, limit=IRREGULAR_LIMIT, wide=True, irregular=True)
        wide.note = f"; unrolled it would have {f'{found[0].operations} operations' if found else error.short}"
        found.append(wide)
    except (Unsupported, Defect) as reason:
        if isinstance(reason, Defect) and defects_are_fatal():
            raise
        log.info("no loops over irregular axes: %s", reason)
    if not found:
        raise error
    return min(found, key=lambda program: program.effort * (LOOP_COST_FACTOR if program.wide else 1.0))


def lower_with(
    make: Callable[[Program], Any],
    loop: LoopBody,
    carry: PyTree,
    consts: PyTree,
    *,
    alone: bool,
    asked: bool,
    longest: int = ASKED_LIMIT,
) -> Any:
    """The runner that `make` builds for the program of a loop, or the exception that says why there is none.

    A defect of the compiler is raised where the back end was `asked` for, and costs only speed otherwise.
    """
    try:
        return make(choose_program(loop, carry, consts, alone, asked, longest))
    except (Unsupported, Unavailable, Defect) as error:
        if isinstance(error, Defect):
            if asked or defects_are_fatal():
                raise
            log.warning("the array path is taken because of %s", error)
        return copy.copy(error)  # without its traceback, which holds the whole program


_contiguous = functools.partial(np.asarray, order="C")


def to_arrays(
    leaves: list[Leaf],
    tree: Any,
    given: PyTree,
    what: str,
    batch: Sequence[int | None] | None = None,
    make: Callable[[Any, Any], Any] | None = _contiguous,
) -> list[Any]:
    """Flatten a tree into arrays of the program's types, by `make`; `batch` is the leading axis of each leaf.

    Without `make` arrays stay as they are: a block converts what is written into it.
    """
    flat, structure = jax.tree.flatten(given)
    if structure != tree:
        raise TypeError(f"{what} has structure {structure}, the program was lowered for {tree}")
    out = []
    for k, (leaf, value) in enumerate(zip(leaves, flat, strict=True)):
        if leaf.key is not None:
            value = jax.random.key_data(value)
        array = value if make is None and hasattr(value, "shape") else (make or np.asarray)(value, leaf.dtype)
        lead = batch[k] if batch else None
        expected = leaf.shape if lead is None else (lead, *leaf.shape)
        if array.shape != expected:
            raise TypeError(f"leaf {k} of {what} has shape {array.shape}, expected {expected}")
        out.append(array)
    return out


def from_arrays(leaves: list[Leaf], tree: Any, arrays: list):
    """The inverse, with typed random keys put together again."""
    wrapped = [
        jax.random.wrap_key_data(jax.numpy.asarray(a), impl=leaf.key._impl.name) if leaf.key is not None else a
        for leaf, a in zip(leaves, arrays, strict=True)
    ]
    return jax.tree.unflatten(tree, wrapped)


def batch_axes(consts: PyTree, axes: PyTree) -> list[int | None]:
    """One entry, 0 or None, for each leaf of the constants, from a tree prefix."""
    is_none = lambda x: x is None
    spread = jax.tree.map(lambda a, sub: [a] * len(jax.tree.leaves(sub)), axes, consts, is_leaf=is_none)
    flat = [a for part in jax.tree.leaves(spread, is_leaf=lambda x: isinstance(x, list)) for a in part]
    if any(a not in (0, None) for a in flat):
        raise ValueError("consts_axes may hold 0 and None only")
    return flat


class KernelRunner(abc.ABC):
    """Runs one program; a back end says how it calls its code on arrays of the host."""

    name: str

    def __init__(self, program: Program):
        self.program, self.operations, self.loops = program, program.operations, program.loops
        kind = "a program with loops over axes," if program.wide else "a scalar program of"
        self.description = f"the step is {kind} {program.operations} operations{program.note}"

    @abc.abstractmethod
    def run(self, carry: PyTree, consts: PyTree, axes: PyTree = None, *, rows: int, every: int) -> tuple[Any, Any]:
        """Many trajectories: `rows` rows, each after `every` steps.

        Leaves of the carry have a leading axis over trajectories, and so have the constants where `axes` is 0.
        """

    @abc.abstractmethod
    def _single(self, carry_in: list, given: list, rows: int, every: int) -> tuple[list, list]: ...

    @abc.abstractmethod
    def _batch(
        self, count: int, carry_in: list[Any], given: list[Any], per_lane: Sequence[bool], rows: int, every: int
    ) -> tuple[list, list]: ...

    def prepare(self, rows: int, *, callback: bool = False) -> KernelRunner:
        """Ready for calls of so many rows; with `callback`, for `under_jit`. The code was compiled in `lower`."""
        return self

    fetch = staticmethod(jax.device_get)

    def run_one(self, carry: PyTree, consts: PyTree, *, rows: int, every: int) -> tuple[Any, Any]:
        """One trajectory, without an axis: for checks and measurements."""
        p = self.program
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", make=None)
        given = to_arrays(p.consts, p.consts_tree, consts, "consts", make=None)
        carry_out, saved = self._single(carry_in, given, rows, every)
        return from_arrays(p.carry, p.carry_tree, carry_out), from_arrays(p.rows, p.rows_tree, saved)

    def under_jit(self, carry: PyTree, consts: PyTree, *, rows: int, every: Index):
        """`run` for use inside of `jax.jit`, as a callback; under `jax.vmap` it is one batch. `every` may be traced."""
        p = self.program
        wanted = [
            jax.ShapeDtypeStruct(shape, leaf.dtype)
            for leaf, shape in (*((f, f.shape) for f in p.carry), *((f, (rows, *f.shape)) for f in p.rows))
        ]
        given = [
            to_arrays(leaves, tree, values, what, make=jax.numpy.asarray)
            for leaves, tree, values, what in (
                (p.carry, p.carry_tree, carry, "carry"),
                (p.consts, p.consts_tree, consts, "consts"),
            )
        ]
        target = self._target(rows, every) if isinstance(every, int) else None
        if target is not None:
            out = called(target, wanted, [*given[0], *given[1]])
        else:
            steps, call = jax.numpy.asarray(every, np.int64), functools.partial(self._host, rows)
            out = jax.pure_callback(call, wanted, steps, *given, vmap_method="broadcast_all")
        split = len(p.carry)
        return from_arrays(p.carry, p.carry_tree, out[:split]), from_arrays(p.rows, p.rows_tree, out[split:])

    def _target(self, rows: int, every: int) -> str | None:
        """The name of a custom call of XLA that does the same without a copy to the host, where there is one."""
        return None

    def _host(self, rows: int, every: jax.Array | np.ndarray, carry: list[Any], given: list[Any]) -> list[np.ndarray]:
        p = self.program
        every = np.asarray(every)
        lead = every.shape
        if not lead:
            out, saved = self._single(carry, given, rows, int(every))
            return [*out, *saved]
        if np.any(every != every.flat[0]):
            raise ValueError("the number of steps must be the same for all trajectories of a batch")
        count = every.size
        flat = [
            _contiguous(a).reshape(count, *f.shape)
            for a, f in zip((*carry, *given), (*p.carry, *p.consts), strict=True)
        ]
        lanes, split = [True] * len(given), len(carry)
        out, saved = self._batch(count, flat[:split], flat[split:], lanes, rows, int(every.flat[0]))
        return [a.reshape(*lead, *a.shape[1:]) for a in (*out, *saved)]
