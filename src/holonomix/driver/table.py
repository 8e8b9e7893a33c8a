"""The rows of one chunk of a run."""

from __future__ import annotations

import numpy as np

__all__ = ["Rows", "Table", "blanked"]

Rows = dict[str, np.ndarray]


class Table:
    """The rows of one chunk, of all trajectories; those that wait for an event are filled in later."""

    def __init__(self, first: int, last: int, every: int):
        self.first, self.every = first // every, every
        self.rows = last // every - self.first
        self.values: Rows = {}
        self.valid: np.ndarray | None = None

    def place(self, out: Rows, before: np.ndarray) -> None:
        """Take the rows of one call that stand on a multiple of `every` and are new; a halted run repeats its last."""
        n = out["n"]
        earlier = np.concatenate([before[:, None], n[:, :-1]], axis=1)
        good = (n > earlier) & (n % self.every == 0)
        if self.valid is None and n.shape[1] == self.rows:
            self.values, self.valid = out, good
            return
        if not self.rows or not good.any():
            return
        if self.valid is None:
            self.valid = np.zeros((len(n), self.rows), bool)
            self.values = {key: np.zeros((len(n), self.rows, *x.shape[2:]), x.dtype) for key, x in out.items()}
        lane, row = np.nonzero(good)
        slot = n[lane, row] // self.every - self.first - 1
        for key, x in out.items():
            if not self.values[key].flags.writeable:
                self.values[key] = self.values[key].copy()
            self.values[key][lane, slot] = x[lane, row]
        self.valid[lane, slot] = True

    def result(self) -> tuple[Rows, np.ndarray]:
        assert self.valid is not None
        return self.values, self.valid


def blanked(x: np.ndarray, where: np.ndarray) -> np.ndarray:
    """NaN where a trajectory has no row."""
    if x.dtype.kind != "f":
        return x
    return np.where(where.reshape(where.shape + (1,) * (x.ndim - 2)), np.nan, x)
