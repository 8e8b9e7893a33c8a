"""Types that all layers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Float

from .status import Status

Array = jax.Array
if TYPE_CHECKING:
    # For type checkers: inside a run every value is a JAX array.
    Numbers: TypeAlias = jax.Array
    Coordinates: TypeAlias = Float[jax.Array, "*shape"]
    Real: TypeAlias = jax.Array | np.floating[Any] | float
    Index: TypeAlias = jax.Array | int
    Key: TypeAlias = jax.Array
    # User input before it is checked: numbers, lists and arrays of them; functions; one constraint or several.
    ArrayLike: TypeAlias = npt.ArrayLike
    Function: TypeAlias = Callable[..., Any]
    Constraints: TypeAlias = Function | Sequence[Function] | Mapping[str, Function]

    class Factor(Protocol):
        """A factored matrix; `pivot` is its smallest pivot, relative to the size of its row."""

        @property
        def pivot(self) -> Any: ...

        def solve(self, b: Any, /) -> Any: ...

    class HasRows(Protocol):
        """Results with rows: a solution, an ensemble, or anything of the same form."""

        @property
        def t(self) -> np.ndarray: ...

        @property
        def q(self) -> np.ndarray: ...

        @property
        def p(self) -> np.ndarray: ...
else:
    # For run-time checks: arrays and numbers of NumPy and Python too. User input is checked by `core.checks`.
    Numbers = Real = Index = Key = jax.Array | np.ndarray | np.generic | float | int
    Coordinates = Float[jax.Array | np.ndarray, "*shape"]
    ArrayLike = Function = Constraints = Factor = HasRows = object


def known_array(x: Any, dtype: DTypeLike | None = None) -> Array:
    """`jnp.asarray` without compiling; JAX itself compiles a program for each shape of known numbers, for 12 ms."""
    weak = isinstance(x, float | int) and not isinstance(x, np.generic) and dtype is None
    if not weak and all(isinstance(leaf, np.ndarray | np.generic | float | int) for leaf in jax.tree.leaves(x)):
        numbers = np.array(x, dtype)  # a copy, because JAX may keep using its memory
        if numbers.dtype.kind in "fiu":
            with jax.ensure_compile_time_eval():
                return jax.device_put(numbers)
    return jnp.asarray(x, dtype)


class State(eqx.Module):
    """Position, momentum, time and step count. `q` and `p` share one shape, which may be any shape."""

    q: Coordinates
    p: Coordinates
    t: Any = 0.0
    n: Any = 0


class Report(eqx.Module):
    """Diagnostics of one step.

    `status` is an int of `Status`; `iterations` counts sweeps of the nonlinear solver, `residual` is what was left.
    `multipliers` is a dict of the multipliers the step solved for (not `Lambda(q, p)`, which the driver computes).
    """

    status: Numbers
    iterations: Numbers
    residual: Numbers
    multipliers: dict[str, Any] = eqx.field(default_factory=dict)

    @staticmethod
    def ok(**multipliers: Numbers) -> Report:
        """The report of a step that had nothing to solve."""
        return Report(jnp.asarray(Status.OK, jnp.int32), jnp.asarray(0, jnp.int32), jnp.asarray(0.0), multipliers)


StepResult: TypeAlias = tuple[State, Any, Report]  # of one step: the new state, the new carry, the diagnostics


class Info(eqx.Module):
    """Results that `integrate(..., info=True)` adds: times, multipliers `Lambda(q, p)`, status and statistics."""

    t: Any
    multipliers: Any
    status: Any
    stats: dict[str, Any]

    @property
    def message(self) -> str:
        """How the run ended, in words; needs a concrete `status`, outside of `jit`."""
        codes = [Status(int(code)) for code in np.unique(np.asarray(self.status))]
        return "; ".join(f"{status.name}: {status.message}" for status in codes)

    def __repr__(self) -> str:
        known = not any(isinstance(x, Tracer) for x in (self.status, *self.stats.values()))
        status = self.message if known else self.status
        stats = {name: np.asarray(x).tolist() if known else x for name, x in self.stats.items()}
        shown = ", ".join(f"{name} {x}" for name, x in stats.items() if known and not isinstance(x, list))
        return f"Info({status}{', ' + shown if shown else ''})"


@runtime_checkable
class Sink(Protocol):
    """The interface of a store.

    `restart` returns the last valid checkpoint (named arrays and JSON) or None, and drops all rows after it; `begin`
    opens a new run; `append` adds rows; `checkpoint` records the complete state after the rows appended so far; `close`
    records how the run ended; `load` returns all rows under the keys they were appended with.

    The first axis of every array of `append` counts rows. In an ensemble the second axis counts trajectories, except in
    `t`; `begin` receives `trajectories`, their number, and `dims`, the names of the axes after the first.
    """

    def restart(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None: ...

    def begin(self, meta: dict[str, Any]) -> None: ...

    def append(self, rows: dict[str, np.ndarray]) -> None: ...

    def checkpoint(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None: ...

    def close(self, meta: dict[str, Any]) -> None: ...

    def load(self) -> dict[str, np.ndarray]: ...
