"""Where the rows of a run go: memory, or a store."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .. import columns
from ..errors import InputError
from ..types import Sink
from .plan import Plan
from .solution import map_lanes, map_rows, multipliers_of
from .table import Rows

__all__ = ["Record"]

MOST_BONDS = 1000  # a larger scene is not recorded: the description is written with every checkpoint


class Record:
    """The rows so far. They come as (trajectory, row, ...), with one trajectory where there is only one."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.rows = 0
        self.parts: list[Rows] = []
        self.sink: Sink | None = None

    def open(self, store: Any) -> Sink:
        """Send the rows to a directory or a `Sink`."""
        if isinstance(store, (str, os.PathLike)):
            from ..io import Store

            store = Store(store)
        if not isinstance(store, Sink):
            raise InputError(f"store must be the name of a directory or a Sink, not {store!r}")
        self.sink = store
        return store

    def description(self, row: Rows) -> dict[str, Any]:
        """What a store is told at the start: sizes, and the names of axes."""
        plan = self.plan
        shape = list(plan.q0.shape[1:] if plan.many else plan.q0.shape)
        told: dict[str, Any] = {"steps": plan.steps, "shape": shape}
        if plan.scene is not None and len(plan.scene.bonds) <= MOST_BONDS and shape[0] <= MOST_BONDS:
            told["scene"] = plan.scene.as_dict()
        if plan.many:
            row = self.as_stored(row)
            dims = {key: columns.row_dims(key, x.shape, columns.TIME, columns.TRAJECTORY)[1:] for key, x in row.items()}
            told |= {
                "dims": {key: list(names) for key, names in dims.items() if key != "t"},
                "trajectories": plan.count,
            }
        return told

    def add(self, rows: Rows) -> None:
        """Take the next rows."""
        count = rows["t"].shape[1]
        if not count:
            return
        if self.sink is None:
            self.parts.append(rows)
        else:
            self.sink.append(self.as_stored(rows))
        self.rows += count

    def as_stored(self, rows: Rows) -> Rows:
        """Rows as a sink takes them: the row is the first axis, the trajectory the second."""
        plan = self.plan
        if not plan.many:
            out = {key: x[0] for key, x in columns.visible(rows).items()}
            if plan.system.constrained:
                out["multipliers"] = map_rows(multipliers_of, plan.system, out["q"], out["p"], out["t"])
            return out
        rows = columns.visible(rows)
        if plan.system.constrained:
            rows["multipliers"] = map_lanes(multipliers_of, plan, rows["q"], rows["p"], rows["t"])
        out = {key: np.moveaxis(x, 1, 0) for key, x in rows.items()}
        out["time"] = out.pop("t")
        if np.ndim(plan.consts.dt) == 0 and not plan.method.adaptive:
            # trajectories share their times; where one has failed, the time of the row is still that of the others
            n = (self.rows + np.arange(len(out["time"]))) * plan.every if plan.saves else np.array([plan.steps])
            out["t"] = float(plan.consts.t0) + n * float(plan.consts.dt)
            del out["time"]
        return out

    def collected(self) -> Rows:
        """All rows: (row, ...) of one trajectory; of many (trajectory, row, ...), or (trajectory, ...) at the end."""
        if self.sink is not None:
            rows = self.sink.load()
            return self._from_store(rows) if self.plan.many else rows
        parts = self.parts
        if not self.plan.many:
            return {key: np.concatenate([part[key][0] for part in parts]) for key in parts[0]}
        rows = {key: np.concatenate([part[key] for part in parts], axis=1) for key in parts[0]}
        return rows if self.plan.saves else {key: x[:, 0] for key, x in rows.items()}

    def _from_store(self, rows: Rows) -> Rows:
        rows = {key: np.moveaxis(x, 1, 0) if x.ndim > 1 else x for key, x in rows.items()}
        if "time" in rows:
            rows["t"] = rows.pop("time")
        else:
            # the clock of the store runs on where a trajectory has failed
            t = np.broadcast_to(rows["t"], rows["n"].shape)
            own = (
                np.arange(t.shape[1]) * self.plan.every == rows["n"]
                if self.plan.saves
                else rows["n"] == self.plan.steps
            )
            rows["t"] = np.where(own, t, np.nan)
        return rows if self.plan.saves else {key: x[:, 0] for key, x in rows.items()}
