"""What a solution and an ensemble have in common: named rows."""

from __future__ import annotations

import abc

import numpy as np

__all__ = ["AbstractRows"]


class AbstractRows(abc.ABC):
    """Results whose arrays are in `rows`, by name; observables carry the prefix `obs/`."""

    rows: dict[str, np.ndarray]

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
        return {name[4:]: value for name, value in self.rows.items() if name.startswith("obs/")}
