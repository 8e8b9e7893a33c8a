"""Assembly of a mechanism, and a search for rows that depend on others; dense, once per mechanism."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.errors import ConvergenceError
from .bodies import KINDS, Body, expand, pull
from .forms import PhaseRow, ProductRow
from .host import values_and_slopes
from .joints import Joint
from .terms import ProductRows, product_data, rigid_products

RANK = 1e-9  # singular values of the scaled Jacobian below this share of the largest count as zero
STEP = 1e-2  # distance to other positions for the rank decision, in units of the size of the mechanism


@dataclasses.dataclass
class Equations:
    """All rows of a mechanism: first those that keep bodies rigid, then those of the joints in their order."""

    bodies: list[Body]
    joints: list[Joint]
    masses: np.ndarray  # (particles,)
    _last: tuple[np.ndarray, float, np.ndarray, np.ndarray] | None = None

    @functools.cached_property
    def owners(self) -> list[tuple[str, Any, int]]:
        """(kind, body or joint, row) for every row."""
        out: list[tuple[str, Any, int]] = []
        for body in self.bodies:
            n = KINDS[body.kind] - 1
            out += [("body", body, k) for k in range(n * (n + 1) // 2)]
        return out + [("joint", joint, k) for joint in self.joints for k in range(len(joint.rows))]

    @functools.cached_property
    def _rows(self) -> tuple[list[tuple[int, ProductRow]], list[tuple[int, PhaseRow]]]:
        """Numbered rows: the products, and the others."""
        rows = [*(row for body in self.bodies for row in rigid_products(body))]
        rows += [row for joint in self.joints for row in joint.rows]
        products = [(k, row) for k, row in enumerate(rows) if isinstance(row, ProductRow)]
        return products, [(k, row) for k, row in enumerate(rows) if isinstance(row, PhaseRow)]

    @functools.cached_property
    def _products(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return product_data([row for _, row in self._rows[0]])

    def blocks(self, frames: np.ndarray, t: np.ndarray) -> Iterator[tuple[Any, Any, np.ndarray, np.ndarray]]:
        """Rows for `frames` of all bodies at several times, `(times, bodies, dim + 1, dim)`, in blocks.

        Each block has the numbers of its rows, the numbers of the bodies of each row `(rows, bodies)`, the values
        `(times, rows)`, and the derivatives with respect to the frames, `(times, rows, bodies, dim + 1, dim)`.
        """
        products, phases = self._rows
        if products:
            x, data = self._given(frames)
            value, slopes = values_and_slopes(ProductRows((), None), x, **data)
            bodies = self._products[1]
            shape = (len(frames), *bodies.shape, *frames.shape[2:])
            yield [k for k, _ in products], bodies, value.reshape(shape[:2]), slopes.reshape(shape)
        by_number = {k: frames[:, k] for k in range(frames.shape[1])}
        for number, row in phases:
            value, found = row.over_frames(by_number, t)
            yield [number], np.array([[*found]]), value[:, None], np.stack([*found.values()], axis=1)[:, None]

    def values_along(self, frames: np.ndarray, t: np.ndarray) -> np.ndarray:
        """The values alone, `(times, rows)`."""
        products, phases = self._rows
        out = np.zeros((len(frames), len(self.owners)))
        if products:
            (data, bodies), numbers = self._products, np.array([k for k, _ in products])
            for pair in np.unique(bodies, axis=0):
                own = (bodies == pair).all(axis=1)
                x = frames[:, pair].reshape(len(frames), -1, frames.shape[-1])
                out[:, numbers[own]] = ProductRows((), None)(x, {name: value[own] for name, value in data.items()})
        by_number = {k: frames[:, k] for k in range(frames.shape[1])}
        for number, row in phases:
            out[:, number] = row.over_frames(by_number, t)[0]
        return out

    def _given(self, frames: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Frames and data for all products at all times, one block each."""
        data, bodies = self._products
        x = frames[:, bodies].reshape(-1, 2 * frames.shape[2], frames.shape[3])
        times = len(frames)
        return x, {name: np.tile(value, (times, *(1,) * (value.ndim - 1))) for name, value in data.items()}

    def frames(self, q: np.ndarray) -> np.ndarray:
        """The frames of all bodies, `(..., bodies, dim + 1, dim)`."""
        return np.stack([expand(body.kind, q[..., list(body.particles), :], np) for body in self.bodies], axis=-3)

    def _evaluated(self, q: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Values, `(rows,)`, and derivatives with respect to frames, `(rows, bodies, dim + 1, dim)`."""
        if self._last is None or self._last[0] is not q or self._last[1] != t:
            frames = self.frames(q)
            found, slopes = np.zeros(len(self.owners)), np.zeros((len(self.owners), *frames.shape))
            for rows, bodies, value, slope in self.blocks(frames[None], np.array([t])):
                found[rows] = value[0]
                for k in range(bodies.shape[1]):  # the two bodies of a row may be the same one
                    slopes[rows, bodies[:, k]] += slope[0, :, k]
            self._last = (q, t, found, slopes)
        return self._last[2:]

    def values(self, q: np.ndarray, t: float = 0.0) -> np.ndarray:
        """`(rows,)`."""
        return self._evaluated(q, t)[0]

    def jacobian(self, q: np.ndarray, t: float = 0.0) -> np.ndarray:
        """`(rows, coordinates)`."""
        slopes = self._evaluated(q, t)[1]
        out = np.zeros((len(slopes), *q.shape))
        for body in self.bodies:
            at = list(body.particles)
            out[:, at] = pull(body.kind, q[at], slopes[:, body.number])
        return out.reshape(len(out), q.size)

    def scaled(self, q: np.ndarray, t: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """`G M^-1/2`, and the roots of the masses per coordinate."""
        root = np.repeat(np.sqrt(self.masses), q.shape[1])
        return self.jacobian(q, t) / root, root

    def sizes(self, q: np.ndarray) -> np.ndarray:
        """The natural scale of each coordinate, `(coordinates,)`: the mechanism's length, or 1 for directors.

        With it, nothing depends on the unit of length.
        """
        centers = q[[body.first for body in self.bodies]]
        reach = [float(np.abs(centers - centers[0]).max())]
        for body in self.bodies:
            at = list(body.particles)
            reach.append(float(np.sqrt(self.masses[at[1:]] / self.masses[at[0]]).max(initial=0.0)))
        parts = [c for joint in self.joints for row in joint.rows for v in row.vectors for _, c in v.parts]
        reach += [float(np.abs(c[1:]).max()) for c in parts if c[0] != 0]
        out = np.ones_like(q)
        out[[body.first for body in self.bodies]] = max(reach) or float(np.abs(centers).max()) or 1.0
        return out.reshape(-1)


def close(equations: Equations, q: np.ndarray, t: float, what: str, iterations: int = 200) -> np.ndarray:
    """The configuration with all rows zero nearest to q (nearly, in the mass metric), by Levenberg-Marquardt.

    `ConvergenceError` names the joints that stay open and by how much.
    """
    if not equations.bodies:
        return q
    sizes = equations.sizes(q)
    units = row_sizes(equations.jacobian(q, t), sizes)
    g = equations.values(q, t) / units
    damping = 0.0
    best = float(np.abs(g).max(initial=0.0))
    for _ in range(iterations):
        if best < 1e-15:
            break
        a, root = equations.scaled(q, t)
        u, s, vt = np.linalg.svd(a / units[:, None], full_matrices=False)
        kept = s > RANK * s[0]
        weight = np.where(kept, s / np.where(kept, s**2 + damping * s[0] ** 2, 1.0), 0.0)
        trial = q - ((vt.T @ (weight * (u.T @ g))) / root).reshape(q.shape)
        new = equations.values(trial, t) / units
        size = float(np.abs(new).max())
        if size < best:
            q, g = trial, new
            if size > 0.5 * best and size < 1e-11:
                best = size
                break  # at round-off
            best, damping = size, damping / 10 if damping > 1e-9 else 0.0
        elif best < 1e-11:
            break
        else:
            damping = max(10 * damping, 1e-6)
            if damping > 1e8:
                break
    if best > 1e-10 * (1.0 + float(np.abs(q.reshape(-1) / sizes).max())):
        worst: dict[str, float] = {}
        for (kind, owner, _), value, unit in zip(equations.owners, g, units, strict=True):
            if abs(value) > max(1e-9, 1e-3 * best):
                name = f"{kind} {owner.name!r}"
                worst[name] = max(worst.get(name, 0.0), abs(float(value * unit)))
        ranked = sorted(worst.items(), key=lambda x: -x[1])[:8]
        text = ", ".join(f"{name} by {gap:.3g}" for name, gap in ranked)
        raise ConvergenceError(
            f"{what} cannot be assembled from these positions: what stays open is {text}. Check lengths and axes, or "
            "start from positions that are nearer to closed"
        )
    return q


def row_sizes(jacobian: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """How much each row changes when the coordinates change by their sizes."""
    found = np.linalg.norm(jacobian * sizes, axis=1)
    return np.where(found > 0, found, 1.0)


@dataclasses.dataclass(frozen=True)
class Redundancy:
    """The rank of the rows at the start and along the motion, and the rows that are left out of the solves."""

    rows: int
    rank: int
    rank_at_start: int
    coordinates: int
    dropped: tuple[int, ...]
    involved: tuple[int, ...]  # rows that depend on each other at the start, beyond those left out

    @property
    def degrees_of_freedom(self) -> int:
        return self.coordinates - self.rank

    @property
    def singular(self) -> bool:
        """Whether the start has a lower rank than its surroundings."""
        return self.rank_at_start < self.rank


def find_redundant(equations: Equations, q: np.ndarray, t: float) -> Redundancy:
    """Rows that depend on others at q and around it; the choice of rows to leave out is the best conditioned one.

    A row that depends on others in every position affects only the reactions. If only the start is special (all bars
    of a parallelogram in one line), the rank is higher at nearby positions, which are also tested.
    """
    values, null, basis = _rank(equations, q, t)
    rank_at_start = rank = int(values)
    start_null = null
    rng = np.random.default_rng(0)
    for _ in range(2):
        if basis.shape[1] == 0:
            break
        moved = _nearby(equations, q, basis @ rng.normal(size=basis.shape[1]), t)
        if moved is None:
            continue
        other, other_null, _ = _rank(equations, moved, t)
        if other > rank:
            rank, null = other, other_null
    dropped = _choose(equations, null)
    involved: tuple[int, ...] = ()
    if rank_at_start < rank:
        weights = np.abs(start_null).max(axis=1)
        involved = tuple(int(k) for k in np.flatnonzero(weights > 1e-3 * weights.max()))
    return Redundancy(len(equations.owners), rank, rank_at_start, q.size, dropped, involved)


def _rank(equations: Equations, q: np.ndarray, t: float) -> tuple[int, np.ndarray, np.ndarray]:
    """Rank, combinations of rows that vanish, and velocities (in the mass metric) that all rows allow."""
    a, root = equations.scaled(q, t)
    size = np.linalg.norm(a, axis=1, keepdims=True)
    a = a / np.where(size > 0, size, 1.0)
    u, s, vt = np.linalg.svd(a, full_matrices=True)
    rank = int(np.sum(s > RANK * s.max(initial=0.0)))
    return rank, u[:, rank:], vt[rank:].T / root[:, None]


def _nearby(equations: Equations, q: np.ndarray, way: np.ndarray, t: float) -> np.ndarray | None:
    """A point of the manifold a little further along a tangent direction."""
    size = STEP / np.abs(way / equations.sizes(q)).max()
    try:
        return close(equations, q + size * way.reshape(q.shape), t, "", iterations=40)
    except ConvergenceError:
        return None


def _choose(equations: Equations, null: np.ndarray) -> tuple[int, ...]:
    """Rows to leave out, one per vanishing combination: rows of joints only, later joints first if equally good."""
    left = null.copy()
    allowed = np.array([kind == "joint" for kind, _, _ in equations.owners])
    for at, (kind, owner, k) in enumerate(equations.owners):
        if kind == "joint" and getattr(owner.rows[k], "drive", None) is not None:
            allowed[at] = False
    out = []
    for _ in range(null.shape[1]):
        size = np.where(allowed, np.linalg.norm(left, axis=1), 0.0)
        best = size.max()
        k = int(np.flatnonzero(size > best * (1 - 1e-6))[-1])
        out.append(k)
        allowed[k] = False
        direction = left[k] / np.linalg.norm(left[k])
        left = left - np.outer(left @ direction, direction)
    return tuple(sorted(out))
