"""Named rows, the common part of solutions and ensembles."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable

import numpy as np

from ..core import columns
from ..core.errors import InputError
from .loop import Loop


class AbstractRows(abc.ABC):
    """Results whose arrays are in `rows`, by the keys of `core.columns`; those in a store are loaded when used."""

    loop: Loop
    load: Callable[[], dict[str, np.ndarray]]

    @functools.cached_property
    def rows(self) -> dict[str, np.ndarray]:
        return self.load()

    @property
    def t(self) -> np.ndarray:
        return self.rows["t"]

    @property
    def q(self) -> np.ndarray:
        return self.rows["q"]

    @property
    def p(self) -> np.ndarray:
        return self.rows["p"]

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of the coordinates, if the problem has any."""
        return () if self.loop.problem is None else self.loop.problem.coordinates

    def _named_axis(self) -> dict[str, list[str]]:
        """The names as a coordinate of an `xarray.Dataset`."""
        return {"q_0": list(self.coordinate_names)} if self.coordinate_names else {}

    def __getitem__(self, name: object) -> np.ndarray:
        """The rows of a coordinate, a momentum (`p_NAME`) or an observable, by name."""
        if not isinstance(name, str):
            rows = f"; row {name} (of an ensemble, trajectory {name}) is .q[{name}]" if isinstance(name, int) else ""
            raise TypeError(f"a result is indexed by names, such as sol['theta'], not by {name!r}{rows}")
        names = self.coordinate_names
        known = {columns.entry_name(key, k, names): (key, k) for key in "qp" for k in range(len(names))}
        if name in known:
            key, k = known[name]
            return self.rows[key][..., k]
        if name in self.observables:
            return self.observables[name]
        listed = ", ".join([*known, *self.observables]) or "no names: use sol.q and sol.p"
        raise InputError(f"there is no column {name!r}; there are {listed}")

    @property
    def observables(self) -> dict[str, np.ndarray]:
        """The user's observables by name."""
        return columns.select(self.rows, columns.OBSERVABLE)

    @property
    def step_multipliers(self) -> dict[str, np.ndarray]:
        """The multipliers that each step solved for, by name; the start has none and shows zeros."""
        return columns.select(self.rows, columns.STEP)
