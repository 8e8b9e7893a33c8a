"""The back ends of a run, and the choice of one.

A back end turns a loop of steps into a `Runner`, which advances trajectories by whole rows. `BACKENDS` lists them; a
new one is one file and one entry.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import one_of
from ..core.errors import InputError
from ..trace.compiled import Recent

if TYPE_CHECKING:
    from ..compiler.runner import LoopBody

__all__ = ["BACKENDS", "Backend", "Choice", "Runner", "choose"]

log = logging.getLogger("holonomix")


@runtime_checkable
class Runner(Protocol):
    """A loop that is ready to run. All trees of arrays have a leading axis over trajectories, even for a single one."""

    name: str
    description: str  # a description of the compiled loop
    operations: int | None = None  # in one step, if known
    loops: int = 0  # over long axes, in one step
    under_jit: Callable[..., Any] | None = None  # `run` inside of `jax.jit`; None where JAX traces through the loop

    def prepare(self, rows: int, *, callback: bool = False) -> Runner:
        """The runner for calls of at most `rows` rows; with `callback`, for calls of `under_jit`."""
        return self

    def run(self, carry: PyTree, consts: PyTree, axes: PyTree = None, *, rows: int, every: int) -> tuple[Any, Any]:
        """The carry after `rows` rows of `every` steps each, and the rows: (trajectory, row, ...) by column.

        Leaves of `consts` have an axis over trajectories where `axes`, a prefix of their tree, is 0. Without `axes`
        there is one trajectory. A halted trajectory keeps its state and repeats its last row.
        """
        ...

    def fetch(self, tree: PyTree) -> Any:
        """The arrays of a tree on the host."""
        return jax.device_get(tree)


@runtime_checkable
class Backend(Protocol):
    """Turns loops into runners."""

    def lower(self, loop: LoopBody, carry: PyTree, consts: PyTree, *, alone: bool, asked: bool) -> Runner | Exception:
        """A runner of `loop`, which has `step`, `read` and `halted`; or an exception that says why there is none.

        `carry` and `consts` are the shapes of one trajectory. `alone` means that there is only one trajectory, `asked`
        that the user named this back end: then compilation may take long, and a defect is raised.
        """
        ...


@dataclasses.dataclass(frozen=True)
class InModule:
    """A back end in a module that is imported on first use, so that the array path runs without LLVM."""

    name: str

    def lower(self, *args: Any, **options: Any) -> Runner | Exception:
        return importlib.import_module(self.name, __package__).lower(*args, **options)


BACKENDS: dict[str, Backend] = {
    "array": InModule(".array"),
    "native": InModule("..compiler.native"),
    "cuda": InModule("..compiler.cuda"),
}
TAKES_ALL = "array"  # the back end that can run every step


class Choice(NamedTuple):
    """A runner, and the reason for its choice; `refused` says that a preferred back end could not take the loop."""

    runner: Runner
    reason: str
    refused: bool = False


_CACHE: Recent[Runner | Exception] = Recent(64)


def _signature(tree: PyTree) -> Any:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple(
        (x.shape, str(x.dtype)) if eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct) else x for x in leaves
    )


def _lower(backend: str, loop: LoopBody, carry: PyTree, consts: PyTree, alone: bool, asked: bool) -> Runner | Exception:
    """`lower` of a back end, from the cache where the same loop was lowered before; refusals are cached too."""
    try:
        key = (backend, asked, alone, _signature(loop), _signature(carry), _signature(consts))
        hash(key)
    except TypeError:
        key = None
    found = _CACHE.get(key) if key is not None else None
    if found is None:
        try:
            found = BACKENDS[backend].lower(loop, carry, consts, alone=alone, asked=asked)
        except ImportError as error:  # llvmlite is missing on this machine
            return error
        if isinstance(found, Exception):  # a traceback would keep all traced values alive
            found.__traceback__ = found.__context__ = found.__cause__ = None
        if key is not None:
            _CACHE.put(key, found)
    return copy.copy(found) if isinstance(found, Exception) else found


def choose(backend: str, loop: LoopBody, carry: PyTree, consts: PyTree, *, alone: bool = True) -> Choice:
    """The runner of a loop with `step`, `read` and `halted`; `carry` and `consts` are those of one trajectory.

    Under `auto`, an error in lowering, emitting or compiling does not end a run: the array path takes over.
    """
    one_of("backend", backend, ("auto", *BACKENDS))
    carry, consts = jax.eval_shape(lambda x: x, (carry, consts))
    if backend != "auto":
        found = _lower(backend, loop, carry, consts, alone, asked=True)
        if isinstance(found, Exception):
            text = f"backend {backend!r} cannot take this step: {found}; backend={TAKES_ALL!r} takes everything"
            raise InputError(text) from found
        return Choice(found, "asked for")
    if consts.dt.dtype == jnp.float64:
        name = "cuda" if not alone and jax.default_backend() == "gpu" else "native"
        found = _lower(name, loop, carry, consts, alone, asked=False)
        if not isinstance(found, Exception):
            return Choice(found, found.description)
        log.info("not %s: %s", name, found)
        reason = f"array path, because {found}"
    else:
        reason = "kernels are compiled for 64-bit floats only"
    found = _lower(TAKES_ALL, loop, carry, consts, alone, asked=False)
    if isinstance(found, Exception):
        raise found
    return Choice(found, reason, refused=True)


def callback(backend: str, loop: LoopBody, carry: PyTree, consts: PyTree) -> Callable[..., Any] | None:
    """`under_jit` of the chosen runner, which compiled functions of JAX can call back."""
    one, given = (jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), tree) for tree in (carry, consts))
    with jax.ensure_compile_time_eval():
        return choose(backend, loop, one, given, alone=False).runner.prepare(1, callback=True).under_jit
