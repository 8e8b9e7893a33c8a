"""Where the rows of a run go: memory, or a store."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .. import columns
from ..errors import InputError
from ..types import Sink
from .plan import Plan
from .solution import map_rows, multipliers_of
from .table import Rows

__all__ = ["Record", "scene_entry"]

MOST_BONDS = 1000  # a larger scene is not recorded: the description is written with every checkpoint


def scene_entry(plan: Plan) -> dict[str, Any]:
    """The scene of a run as part of what a store is told, unless it is large."""
    scene = plan.scene
    if scene is None or len(scene.bonds) > MOST_BONDS or sum(len(g.indices) for g in scene.particles) > MOST_BONDS:
        return {}
    return {"scene": scene.as_dict()}


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

    def description(self) -> dict[str, Any]:
        """What a store is told at the start."""
        plan, shape = self.plan, list(self.plan.q0.shape)
        return {"steps": plan.steps, "shape": shape, **scene_entry(plan)}

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
        """Rows of one trajectory as a sink takes them."""
        out = {key: x[0] for key, x in columns.visible(rows).items()}
        if self.plan.system.has_constraints:
            out["multipliers"] = map_rows(multipliers_of, self.plan.system, out["q"], out["p"], out["t"])
        return out

    def taken(self) -> list[Rows]:
        """The rows since the last call, which are then forgotten."""
        parts, self.parts = self.parts, []
        return parts

    def collected(self) -> Rows:
        """All rows: (row, ...) of one trajectory; of many (trajectory, row, ...), or (trajectory, ...) at the end."""
        if self.sink is not None:
            return self.sink.load()
        parts = self.parts
        if not self.plan.many:
            return {key: np.concatenate([part[key][0] for part in parts]) for key in parts[0]}
        rows = parts[0]
        if len(parts) > 1:
            rows = {key: np.concatenate([part[key] for part in parts], axis=1) for key in rows}
        return rows if self.plan.saves else {key: x[:, 0] for key, x in rows.items()}
