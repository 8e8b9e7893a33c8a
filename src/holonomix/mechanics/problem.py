"""A system with an initial state: the result of models, builders and importers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PyTree

from ..core import pictures
from ..core.checks import real_array
from ..core.errors import InputError
from ..core.scene import Scene
from ..core.types import Function
from .abstract import AbstractSystem

if TYPE_CHECKING:
    from ase import Atoms


@dataclasses.dataclass(frozen=True, repr=False)
class Problem:
    """A system with an initial state, a suitable step and end time, and a reference solution if one is known.

    `reference(t)` returns `(q, p)` for an array of times; `None` if there is no closed form. `invariants` maps names to
    functions of `(q, p)` that the exact motion conserves, besides the energy. `bonds` are pairs of particles that a
    picture joins by a line (`-1` is the origin); `scene`, if given, describes the whole picture. `coordinates`
    names the entries of a q with one axis, for columns and plots. `source` is the mechanism that the problem was made
    from; solutions look up their joints in it. `start(params)` returns the `(q0, p0)` for other values of the
    parameters, if the start depends on them. `events` act in every run of the problem, beside those of the run: the
    bouncing stops of a mechanism.
    """

    system: Any  # a System or a StiffSystem
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
    coordinates: tuple[str, ...] = ()
    source: Any = dataclasses.field(default=None, compare=False)
    start: Callable[[PyTree], tuple[Any, Any]] | None = dataclasses.field(default=None, compare=False)
    events: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.system, AbstractSystem):
            raise InputError(f"system must be a System or a StiffSystem, not {type(self.system).__name__}")
        for name in ("q0", "p0"):
            if isinstance(getattr(self, name), (list, tuple)):
                object.__setattr__(self, name, real_array(name, getattr(self, name)))
        if not isinstance(self.events, (list, tuple)):
            object.__setattr__(self, "events", (self.events,))
        object.__setattr__(self, "system", self.system.shaped(np.shape(self.q0)))

    @staticmethod
    def from_ase(atoms: Atoms, potential: Function | None = None, **options: Any) -> Problem:
        """The problem of `ase.Atoms`, with `potential(q)` or `potential(q, params)` in eV, q of shape (atoms, 3).

        Positions, momenta, masses, `FixBondLengths`, `FixInternals` and `FixAtoms` are converted. Units are ASE's, so
        times are in `ase.units`. Options are `params`, further `constraints`, `dt` (1 fs), `t1` (1 ps) and `name`.
        """
        return pictures.atoms.from_ase(atoms, potential, **options)

    def with_params(self, params: PyTree) -> Problem:
        """The same problem with other parameter values, as in `System.with_params`; nothing is recompiled.

        The start of a mechanism follows its parameters; other starts do not change. The reference solution and the
        invariants are left out because they may depend on the parameters.
        """
        system = self.system.with_params(params)
        q0, p0 = (self.q0, self.p0) if self.start is None else self.start(system.params)
        return dataclasses.replace(self, system=system, q0=q0, p0=p0, reference=None, invariants={})

    def __repr__(self) -> str:
        """Three lines: the name, the size, and the run."""
        rows = self.system.constraint_count(self.q0) if self.system.has_constraints else 0
        invariants = f"; invariants: energy, {', '.join(self.invariants)}" if self.invariants else ""
        return (
            f"Problem {self.name or '(without a name)'}\n"
            f"  {type(self.system).__name__}: q of shape {np.shape(self.q0)}, {rows} constraint{'s' * (rows != 1)}\n"
            f"  dt = {self.dt:g}, t1 = {self.t1:g}{invariants}"
        )

    def _repr_html_(self) -> str:
        """The representation in notebooks: the numbers of the problem and a picture of its initial state."""
        facts = {"problem": self.name, "shape of q": np.shape(self.q0), "dt": self.dt, "t1": self.t1}
        picture = pictures.plotting.plot_problem(self)
        return pictures.plotting.facts_html({k: v for k, v in facts.items() if v != ""}, picture)
