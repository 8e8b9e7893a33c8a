"""The few records that every layer shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .scene import Scene
from .status import Status

__all__ = ["Array", "Info", "Problem", "Report", "Sink", "State", "StepResult"]

Array = jax.Array


class State(eqx.Module):
    """Position, momentum, time and step count. `q` and `p` share one shape, which may be any shape."""

    q: Any
    p: Any
    t: Any = 0.0
    n: Any = 0


class Report(eqx.Module):
    """Diagnostics of one step.

    `status` is an int of `Status`; `iterations` counts sweeps of the nonlinear solver, `residual` is what was left.
    `multipliers` is a dict of the multipliers the step solved for (not `Lambda(q, p)`, which the driver computes).
    """

    status: Any
    iterations: Any
    residual: Any
    multipliers: dict[str, Any] = eqx.field(default_factory=dict)

    @staticmethod
    def ok(**multipliers: Any) -> Report:
        """The report of a step that had nothing to solve."""
        return Report(jnp.asarray(Status.OK, jnp.int32), jnp.asarray(0, jnp.int32), jnp.asarray(0.0), multipliers)


StepResult: TypeAlias = tuple[State, Any, Report]  # of one step: the new state, the new carry, the diagnostics


class Info(eqx.Module):
    """What `integrate(..., info=True)` adds: times, multipliers `Lambda(q, p)`, status and statistics."""

    t: Any
    multipliers: Any
    status: Any
    stats: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A system with a start, a sensible step and end time, and a reference solution where one is known.

    `reference(t)` gives `(q, p)` for an array of times; `None` where no closed form exists. `invariants` maps names to
    functions of `(q, p)` that the exact motion keeps, beside the energy. `bonds` are pairs of particles that a picture
    joins by a line (`-1` is the origin); `scene` says in full what pictures show, where a model knows it.
    """

    system: Any
    q0: Any
    p0: Any
    dt: float
    t1: float
    reference: Callable[[Any], tuple[Any, Any]] | None = None
    name: str = ""
    invariants: Mapping[str, Callable[[Any, Any], Any]] = dataclasses.field(default_factory=dict)
    bonds: tuple[tuple[int, int], ...] = ()
    notes: str = ""
    scene: Scene | None = None

    def __post_init__(self) -> None:
        if hasattr(self.system, "shaped"):
            object.__setattr__(self, "system", self.system.shaped(np.shape(self.q0)))

    def _repr_html_(self) -> str:
        """What notebooks show: the numbers of the problem and a picture of its start."""
        from .plotting import facts_html, plot_problem

        facts = {"problem": self.name, "shape of q": np.shape(self.q0), "dt": self.dt, "t1": self.t1}
        return facts_html({k: v for k, v in facts.items() if v != ""}, plot_problem(self))


@runtime_checkable
class Sink(Protocol):
    """What a store looks like to the driver.

    `restart` returns the last valid checkpoint (named arrays and JSON) or None, and leaves exactly the rows that it
    accounts for; `begin` opens a fresh run; `append` adds rows; `checkpoint` records the complete state after the rows
    appended so far; `close` records how the run ended; `load` gives all rows back under the keys they came with.

    The first axis of every array of `append` counts rows. In an ensemble the second axis counts trajectories, except in
    `t`; `begin` is told `trajectories`, their number, and `dims`, the names of the axes after the first.
    """

    def restart(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None: ...

    def begin(self, meta: dict[str, Any]) -> None: ...

    def append(self, rows: dict[str, np.ndarray]) -> None: ...

    def checkpoint(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None: ...

    def close(self, meta: dict[str, Any]) -> None: ...

    def load(self) -> dict[str, np.ndarray]: ...
