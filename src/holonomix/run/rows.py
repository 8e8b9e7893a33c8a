"""What a solution and an ensemble have in common: named rows."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable

import numpy as np

from ..core import columns


class AbstractRows(abc.ABC):
    """Results whose arrays are in `rows`, by the keys of `core.columns`; those in a store are loaded when used."""

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
    def observables(self) -> dict[str, np.ndarray]:
        """The user's observables by name."""
        return columns.select(self.rows, columns.OBSERVABLE)

    @property
    def step_multipliers(self) -> dict[str, np.ndarray]:
        """The multipliers that each step solved for, by name; the start has none and shows zeros."""
        return columns.select(self.rows, columns.STEP)
