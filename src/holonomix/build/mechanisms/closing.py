"""Close loops by joint positions, for files with loops so far open that moving single bodies fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .assembly import Equations, row_sizes
from .bodies import KINDS
from .joints import Joint
from .tree import Branch, move_rotors, spanning_tree

if TYPE_CHECKING:
    from .mechanism import Mechanism

MAX_STARTS = 40  # the given positions, then random ones around them
SWEEPS = 60
DIFFERENCE = 1e-6
CLOSED = 1e-7  # residual; the rows of all bodies are solved to round-off afterward


class _Tree:
    """Frames of all bodies as a function of the positions of the joints of a spanning tree, many at a time."""

    def __init__(self, mechanism: Mechanism, equations: Equations, held: set[str]):
        self.bodies, self.branches = equations.bodies, spanning_tree(mechanism)
        self.slots: list[tuple[Branch, Any]] = []  # a coordinate, or the number of a component of a rotation vector
        self.x0: list[float] = []
        q = mechanism._start()[0]
        self.fixed: dict[int, float] = {}
        for branch in self.branches:
            if branch.joint.kind == "spherical":
                self.slots += [(branch, k) for k in range(3)]
                self.x0 += [0.0] * 3
            for part in branch.joint.stack:
                for coordinate in part.coordinates:
                    value = float(coordinate.value(q))
                    if part.name in held:
                        self.fixed[id(coordinate)] = value
                    else:
                        self.slots.append((branch, coordinate))
                        self.x0.append(value)
        known = {id(branch.joint) for branch in self.branches}
        self.loops = [j for j in equations.joints if id(j) not in known and not j.b.rotor and j.rows]

    def frames(self, x: np.ndarray) -> np.ndarray:
        """`(several, bodies, dim + 1, dim)` for positions `(several, n)`."""
        count, dim = len(x), self.bodies[0].dimension
        poses = {-1: (np.zeros((count, dim)), np.broadcast_to(np.eye(dim), (count, dim, dim)))}
        moving = {branch.far.number for branch in self.branches}
        for body in self.bodies:
            if body.number not in moving:
                poses[body.number] = (
                    np.broadcast_to(body.origin, (count, dim)),
                    np.broadcast_to(body.attitude, (count, dim, dim)),
                )
        values = {
            (id(branch), id(c) if not isinstance(c, int) else c): x[:, k] for k, (branch, c) in enumerate(self.slots)
        }
        for branch in self.branches:
            poses[branch.far.number] = self._place_body(branch, poses[branch.near.number], values, count)
        out = np.zeros((count, len(self.bodies), dim + 1, dim))
        for body in self.bodies:
            (origin, turn), n = poses[body.number], dim + 1 if body.kind == "plate" else KINDS[body.kind]
            out[:, body.number, 0] = origin + turn @ body.center
            out[:, body.number, 1:] = np.swapaxes(turn @ body.axes, 1, 2)
            if body.kind in ("rod", "point", "planar point"):
                out[:, body.number, n:] = 0.0
        return out

    def _place_body(
        self,
        branch: Branch,
        near: tuple[np.ndarray, np.ndarray],
        values: Mapping[tuple[int, int], np.ndarray],
        count: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Origins and attitudes of the body at the far end of a joint, from the `near` ones and joint positions."""
        joint: Any = branch.joint
        place, dim = joint.place, joint.a.dimension
        fa, fb = place.frame_a, place.frame_b
        turn, shift = np.broadcast_to(np.eye(dim), (count, dim, dim)), np.zeros((count, dim))
        if joint.kind == "spherical":
            w = np.stack([values[id(branch), k] for k in range(3)], axis=1)
            turn = fa.T @ joint.a.attitude.T @ joint.b.attitude @ fb @ turns(w)
        for part in joint.stack:
            for c in part.coordinates:
                value = values.get((id(branch), id(c)), np.full(count, self.fixed.get(id(c), 0.0)))
                if c.kind == "distance":
                    shift = shift + value[:, None] * (turn @ c.axis)
                    continue
                turned = turn @ (turns(value[:, None] * c.axis) if dim == 3 else _planar(value))
                if c.point is not None:
                    shift = shift + turn @ c.point - turned @ c.point
                turn = turned
        origin, attitude = near
        relative = fa @ turn @ fb.T
        if branch.forward:
            far = attitude @ relative
            return origin + attitude @ place.point_a + _apply(attitude @ fa, shift) - far @ place.point_b, far
        far = attitude @ np.swapaxes(relative, 1, 2)
        return origin + attitude @ place.point_b - _apply(far @ fa, shift) - far @ place.point_a, far


def close_by_joints(mechanism: Mechanism, equations: Equations, t: float, held: set[str]) -> np.ndarray | None:
    """Particles with all loops closed to `CLOSED`, near the present joint positions if possible.

    Uses the Levenberg-Marquardt method over the joint positions of a spanning tree; joints in `held` do not move.
    """
    tree = _Tree(mechanism, equations, held)
    guides = [row for joint in mechanism.joints for row in joint.guides]
    rest = [
        *tree.loops,
        *([Joint("guides", "guide", mechanism.ground, mechanism.ground, guides, None)] if guides else []),
    ]
    if not rest or not tree.slots:
        return None
    rows = Equations(equations.bodies, rest, equations.masses)
    first = sum(kind == "body" for kind, _, _ in rows.owners)
    q = mechanism._start()[0]
    units = row_sizes(rows.jacobian(q, t), rows.sizes(q))[first:]
    loops = Equations([], rest, np.zeros(0))
    length = float(rows.sizes(q).max())
    sizes = np.array([1.0 if isinstance(c, int) or c.kind == "angle" else length for _, c in tree.slots])

    def residuals(x: np.ndarray) -> np.ndarray:
        return loops.values_along(tree.frames(x * sizes), np.full(len(x), t)) / units

    rng = np.random.default_rng(0)
    start = np.array(tree.x0) / sizes
    for k in range(MAX_STARTS):
        wide = 0.0 if k == 0 else 2.0 * (k + 1) / MAX_STARTS
        found, size = _least_squares(residuals, start + wide * rng.uniform(-1, 1, start.size))
        if size < CLOSED:
            frames = tree.frames((found * sizes)[None])[0]
            q = np.concatenate([frames[b.number, : KINDS[b.kind]] for b in equations.bodies])
            return move_rotors(equations.bodies, q, np.zeros_like(q))[0]
    return None


def _least_squares(residuals: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> tuple[np.ndarray, float]:
    """Positions and their largest residual, by the Levenberg-Marquardt method with finite differences."""
    steps = DIFFERENCE * np.eye(x.size)
    damping = 1e-3
    for _ in range(SWEEPS):
        several = residuals(np.concatenate([x[None], x + steps, x - steps]))
        r, slope = several[0], (several[1 : x.size + 1] - several[x.size + 1 :]).T / (2 * DIFFERENCE)
        if np.abs(r).max() < CLOSED:
            break
        u, s, vt = np.linalg.svd(slope, full_matrices=False)
        weights = damping * 4.0 ** np.arange(-4, 12)
        trials = np.stack([x - vt.T @ (s / (s**2 + w * s[0] ** 2) * (u.T @ r)) for w in weights])
        sizes = np.linalg.norm(residuals(trials), axis=1)
        best = int(np.argmin(sizes))
        if not sizes[best] < np.linalg.norm(r) * (1 - 1e-6):
            break
        x, damping = trials[best], max(min(weights[best], 1e3), 1e-12)
    return x, float(np.abs(residuals(x[None])).max())


def turns(w: np.ndarray) -> np.ndarray:
    """Rotations by rotation vectors, `(several, 3, 3)`."""
    angle = np.linalg.norm(w, axis=1)[:, None, None]
    k = np.zeros((len(w), 3, 3))
    k[:, 0, 1], k[:, 0, 2], k[:, 1, 2] = -w[:, 2], w[:, 1], -w[:, 0]
    k -= np.swapaxes(k, 1, 2)
    return np.eye(3) + np.sinc(angle / np.pi) * k + 0.5 * np.sinc(angle / (2 * np.pi)) ** 2 * (k @ k)


def _planar(angle: np.ndarray) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)


def _apply(turn: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.einsum("sij,sj->si", turn, x)
