"""The matrix of joints, assembled in the order in which its products are computed, and eliminated in fronts.

Rows of one joint couple with each other, and with those of joints that share a body. The diagonal blocks of each kind
of joint are sums over its bodies, computed for all joints side by side. Every pair of joints that share a body adds one
block. The matrix is symmetric, and one half of it is computed. No entry is copied, because the plan of the elimination
reads entries wherever they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..linalg.fronts import FrontMatrix
from ..linalg.multifrontal import Plan, plan_of
from ..linalg.tridiagonal import lane_products
from ..trace.indexing import Indices, incoming, take
from .coupling import _join

Slots = list[list[tuple[Any, Any]]]  # by part and slot: rows (rows, dim, blocks), and the same weighted


@dataclasses.dataclass(frozen=True, eq=False)
class Meeting:
    """Blocks `left[k]` of one part and `right[k]` of another, which share a body in `slots` of them."""

    parts: tuple[int, int]
    slots: tuple[tuple[int, int], ...]
    left: np.ndarray
    right: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class JointFronts:
    """Products by part and by meeting, and the plan of the elimination; rows are numbered by part, row and block."""

    meetings: tuple[Meeting, ...]
    extra: tuple[np.ndarray, ...]  # of joints that meet again: where their products are added; else -1
    plan: Plan

    def assemble(self, slots: Slots) -> FrontMatrix:
        pieces = []
        for part in slots:
            own = lane_products(*(jnp.concatenate([x[side] for x in part], axis=1) for side in (0, 1)))
            pieces.append(own[np.triu_indices(own.shape[0])])
        for meeting in self.meetings:
            sides = []
            for side, (part, lanes) in enumerate(zip(meeting.parts, (meeting.left, meeting.right), strict=True)):
                rows = jnp.concatenate([slots[part][pair[side]][side] for pair in meeting.slots], axis=1)
                sides.append(take(rows, lanes))
            pieces.append(lane_products(*sides))
        flat = jnp.concatenate([x.reshape(-1) for x in pieces])
        flat = sum((take(flat, index) for index in self.extra), flat)
        return FrontMatrix(flat.astype(jnp.float64), self.plan)


def joint_fronts(signature: tuple[tuple[Indices, int, int], ...]) -> JointFronts | None:
    """The plan for parts given by what each slot of each block touches; None where a block touches one thing twice."""
    tables = [indices.array for indices, _, _ in signature]
    rows = [r for _, _, r in signature]
    starts = np.cumsum([0, *(r * len(table) for r, table in zip(rows, tables, strict=True))])
    columns = [(k, s) for k, table in enumerate(tables) for s in range(table.shape[1])]
    groups: dict[tuple[int, int, bytes, bytes], list[tuple[int, int]]] = {}
    for n, (k, s) in enumerate(columns):
        for r, t in columns[n:]:
            left, right = _join(tables[k][:, s], tables[r][:, t])
            if k == r:
                if s != t and (left == right).any():
                    return None
                keep = left < right if s == t else left != right
                left, right = left[keep], right[keep]
            if left.size:
                groups.setdefault((k, r, left.tobytes(), right.tobytes()), []).append((s, t))
    meetings = tuple(
        Meeting((k, r), tuple(slots), np.frombuffer(a, np.int64), np.frombuffer(b, np.int64))
        for (k, r, a, b), slots in groups.items()
    )
    row, column = [], []
    for k, (r, table) in enumerate(zip(rows, tables, strict=True)):
        a, b = np.triu_indices(r)
        blocks = np.arange(len(table))
        row.append((starts[k] + a[:, None] * len(table) + blocks).reshape(-1))
        column.append((starts[k] + b[:, None] * len(table) + blocks).reshape(-1))
    for meeting in meetings:
        (k, r), shape = meeting.parts, (rows[meeting.parts[0]], rows[meeting.parts[1]], meeting.left.size)
        a, b = np.arange(rows[k])[:, None, None], np.arange(rows[r])[:, None]
        row.append(np.broadcast_to(starts[k] + a * len(tables[k]) + meeting.left, shape).reshape(-1))
        column.append(np.broadcast_to(starts[r] + b * len(tables[r]) + meeting.right, shape).reshape(-1))
    i, j = np.concatenate(row), np.concatenate(column)
    n = int(starts[-1])
    _, first, which = np.unique(np.minimum(i, j) * n + np.maximum(i, j), return_index=True, return_inverse=True)
    target = first[which]
    target[first] = -1
    extra = tuple(incoming(target, i.size)) if (target >= 0).any() else ()
    i, j, size = i[first], j[first], i.size
    off = i != j
    i, j, place = (np.concatenate(x) for x in ((i, j[off]), (j, i[off]), (first, first[off])))
    plan = plan_of(i, j, np.arange(n)[:, None], place[None, None], size)
    return JointFronts(meetings, extra, plan)
