r"""Rigid bodies among the constraints: orthonormal directors, and their elimination from `G M^-1 G^T`.

A body is a center and one to three directors `d_i` with masses `m_i` and rows `d_i . d_j = delta_ij`. On the manifold
the Gram matrix of these rows R is diagonal,

    D = diag(4/m_i, 1/m_i + 1/m_j),

so that they are eliminated cheaply. Another row, with derivatives `A_i` by the directors, keeps its part along
rotations: `t_ij = d_i . A_j - d_j . A_i` with the weight `1/(m_i + m_j)`, and with the weight `1/m_i` the part across
the directors, if there are fewer directors than dimensions. A hinge between two bodies keeps 5 rows over 6 + 6 numbers
instead of 11 over 12 + 12, and the matrix `S` of all joints couples neighbors only:

    S = J P M^-1 J^T,   S l_J = r_J - J M^-1 R^T D^-1 r_R,   l_R = D^-1 (r_R - R M^-1 J^T l_J).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import check_name
from ..core.types import ArrayLike, Numbers
from ..linalg.fronts import FrontLayout, SegmentLayout, StoredFrontLayout
from ..linalg.tridiagonal import lane_products
from ..trace.indexing import Indices, add_at, take
from .coupling import Coupling, coupling_of
from .joint_fronts import JointFronts, joint_fronts
from .mass import DiagonalMass
from .names import Name
from .structured import AbstractLocal

if TYPE_CHECKING:
    from .gram import StructuredJacobian

SHAPES = {(3, 3), (2, 3), (1, 3), (1, 2)}  # (directors, dimensions) of the bodies that can be eliminated


class Orthonormal(AbstractLocal):
    """`q_i . q_j = delta_ij` for the particles of every block: `Orthonormal(indices)`, with blocks of directors.

    The rows of a block are those of the lengths, then those of the pairs (0, 1), (0, 2), (1, 2).
    """

    indices: Indices = eqx.field(static=True)
    anchors: Any
    name: Name = eqx.field(static=True)

    def __init__(self, indices: ArrayLike, name: object = None):
        self.indices, self.anchors = Indices(np.asarray(indices)), None
        self.name = check_name("Orthonormal", name, self.indices.array.shape[0])

    def lane_data(self, part: slice, extra: tuple[Any, ...]) -> Any:
        return None

    def lane_values(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> Any:
        lengths = [jnp.sum(d * d, axis=0) - 1.0 for d in x]
        return jnp.stack(lengths + [jnp.sum(x[i] * x[j], axis=0) for i, j in pairs(len(x))])

    def lane_slopes(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> list[Any]:
        none = jnp.zeros_like(x[0])
        rows = [[2.0 * d if k == i else none for k in range(len(x))] for i, d in enumerate(x)]
        rows += [[x[j] if k == i else x[i] if k == j else none for k in range(len(x))] for i, j in pairs(len(x))]
        return [jnp.stack([row[k] for row in rows]) for k in range(len(x))]


def pairs(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


@dataclasses.dataclass(frozen=True, eq=False)
class Turn:
    """The slots of a part that are directors of one body: `slots` by director (None: not touched)."""

    part: int  # of the coupling: the part with the rows of the bodies
    bodies: np.ndarray  # the block of that part, for every block of this one
    slots: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class RigidPlan:
    """The parts of a coupling that are rows of bodies, and the couplings that remain between the other rows."""

    bodies: tuple[int, ...]  # parts with the rows of bodies
    others: tuple[int, ...]
    plain: tuple[tuple[int, ...], ...]  # slots of each other part that are no directors
    turns: tuple[tuple[Turn, ...], ...]
    reduced: Coupling
    joints: JointFronts | None  # None: `reduced` says how to assemble and factor


@functools.lru_cache(maxsize=64)
def rigid_plan(coupling: Coupling, terms: tuple[int, ...], shape: tuple[int, ...]) -> RigidPlan | None:
    """The plan for the `terms` of a coupling that are `Orthonormal`; None where bodies cannot be eliminated."""
    parts = coupling.parts
    bodies = tuple(k for k, part in enumerate(parts) if part.term in terms)
    others = tuple(k for k in range(len(parts)) if k not in bodies)
    if len(shape) != 2 or not bodies or not others:
        return None
    if any((parts[k].indices.shape[1], shape[1]) not in SHAPES for k in bodies):
        return None
    owner = np.full((shape[0] + 1, 3), -1)  # part, block, director of a particle; fixed points read the last
    first, count = {}, shape[0]
    for k in bodies:
        table = parts[k].indices
        if (owner[table, 0] >= 0).any() or np.unique(table).size != table.size:
            return None
        for i in range(table.shape[1]):
            owner[table[:, i]] = np.stack([np.full(len(table), k), np.arange(len(table)), np.full(len(table), i)], 1)
        first[k], count = count, count + len(table)
    owner[-1] = -1
    plain, turns, signature = [], [], []
    for k in others:
        table = parts[k].indices
        owned = owner[np.where(table < 0, shape[0], table)]  # (blocks, slots, 3)
        if (owned[:, :, [0, 2]] != owned[:1, :, [0, 2]]).any():
            return None
        kind = owned[0]
        groups: dict[tuple[int, bytes], dict[int, int]] = {}
        for s in np.flatnonzero(kind[:, 0] >= 0).tolist():
            group = groups.setdefault((int(kind[s, 0]), owned[:, s, 1].tobytes()), {})
            if int(kind[s, 2]) in group:
                return None
            group[int(kind[s, 2])] = s
        free = tuple(np.flatnonzero(kind[:, 0] < 0).tolist())
        mine = [
            Turn(p, np.frombuffer(raw, owned.dtype), tuple(slots.get(i) for i in range(parts[p].indices.shape[1])))
            for (p, raw), slots in groups.items()
        ]
        columns = [table[:, s] for s in free] + [first[turn.part] + turn.bodies for turn in mine]
        plain.append(free)
        turns.append(tuple(mine))
        signature.append((Indices(np.stack(columns, axis=1)), 1, parts[k].rows))
    reduced = coupling_of(tuple(signature))
    if reduced.layout is None:
        return None
    fronts = isinstance(reduced.layout, (FrontLayout, SegmentLayout, StoredFrontLayout))
    joints = joint_fronts(tuple(signature)) if fronts else None
    return RigidPlan(bodies, others, tuple(plain), tuple(turns), reduced, joints)


def _turning(d: list[Any], a: list[Any], w: list[Any]) -> tuple[list[Any], list[Any]]:
    """The components along rotations of derivatives `a`, (rows, dim, blocks) for each director; and their weights."""
    along = lambda i, j: None if a[j] is None else jnp.sum(d[i][None] * a[j], axis=1)
    found, weights = [], []
    for i, j in pairs(len(d)):
        up, down = along(i, j), along(j, i)
        both = [x for x in (up, None if down is None else -down) if x is not None]
        if both:
            found.append(both[0] if len(both) == 1 else both[0] + both[1])
            weights.append(w[i] * w[j] / (w[i] + w[j]))
    if len(d) == 3:
        return found, weights
    if len(d) == 2:
        across = [jnp.cross(d[0], d[1], axis=0)] * 2
    else:
        x = d[0]
        if x.shape[0] == 2:
            across = [jnp.stack([-x[1], x[0]])]
        else:
            turned = jnp.cross(x[None], a[0], axis=1)
            return [turned[:, k] for k in range(3)], [w[0]] * 3
    for e, row, weight in zip(across, a, w, strict=True):
        if row is not None:
            found.append(jnp.sum(e[None] * row, axis=1))
            weights.append(weight)
    return found, weights


class RigidGram(eqx.Module):
    """`G M^-1 G^T` at a point of the manifold, with the rows of rigid bodies eliminated."""

    jac: Any  # StructuredJacobian
    directors: list[list[Any]]  # for each part of bodies, (dim, blocks) of each director
    inverse: list[list[Any]]  # their inverse masses, (blocks,)
    weight: Any  # inverse masses of all particles
    plan: RigidPlan = eqx.field(static=True)

    @classmethod
    def of(cls, jac: StructuredJacobian, plan: RigidPlan, mass: DiagonalMass, q: Numbers) -> RigidGram:
        weight = 1.0 / jnp.broadcast_to(mass.value, q.shape)[:, 0]
        tables = [jac.coupling.parts[k].indices for k in plan.bodies]
        directors = [[take(q.T, table[:, i]) for i in range(table.shape[1])] for table in tables]
        inverse = [[take(weight, table[:, i]) for i in range(table.shape[1])] for table in tables]
        return cls(jac, directors, inverse, weight, plan)

    def _reduced(self) -> list[list[tuple[Any, Any]]]:
        """For each other part and each slot of the reduced coupling: the rows left, and the same times `P M^-1`."""
        out, plan = [], self.plan
        for k, free, turns in zip(plan.others, plan.plain, plan.turns, strict=True):
            slopes, table = self.jac.slopes[k], self.jac.coupling.parts[k].indices
            slots = []
            for s in free:
                at = np.where(table[:, s] < 0, -1, table[:, s])
                slots.append((slopes[s], slopes[s] * take(self.weight, at)))
            for turn in turns:
                p = plan.bodies.index(turn.part)
                d = [take(x, turn.bodies) for x in self.directors[p]]
                w = [take(x, turn.bodies) for x in self.inverse[p]]
                found, weights = _turning(d, [None if s is None else slopes[s] for s in turn.slots], w)
                rows = jnp.stack(found, axis=1)
                slots.append((rows, rows * jnp.stack(weights)))
            out.append(slots)
        return out

    def factor(self, symmetric: bool = True) -> RigidFactor:
        if self.plan.joints is not None:
            inner = self.plan.joints.assemble(self._reduced()).factor(True)
            return RigidFactor(self, inner, inner.pivot)
        slots, reduced = self._reduced(), self.plan.reduced
        pieces = []
        for junction in reduced.junctions:
            if not junction.first:
                continue
            (p, s, left), (r, t, right) = junction.left, junction.right
            product = lane_products(take(slots[p][s][0], left), take(slots[r][t][1], right))
            pieces.append((product, junction.entries))
            if junction.mirrored is not None:
                turned = junction.mirrored if junction.mirrored.ndim == 1 else junction.mirrored.transpose(1, 0, 2)
                pieces.append((product.transpose(1, 0, 2), turned))
        layout: Any = reduced.layout
        inner = layout.assemble(pieces).factor(True)
        return RigidFactor(self, inner, inner.pivot)


class RigidFactor(eqx.Module):
    """Solves with a `RigidGram`."""

    gram: RigidGram
    inner: Any
    pivot: Any

    def solve(self, b: Numbers) -> Any:
        gram, plan, jac = self.gram, self.gram.plan, self.gram.jac
        parts = jac._split(take(b, jac.layout))
        lengths = []  # y = D^-1 r_R
        moved: dict[int, list[Any]] = {}  # M^-1 R^T y
        for k, d, w in zip(plan.bodies, gram.directors, gram.inverse, strict=True):
            n, r = len(d), parts[k]
            y = [0.25 * r[i] / w[i] for i in range(n)]
            y += [r[n + c] / (w[i] + w[j]) for c, (i, j) in enumerate(pairs(n))]
            lengths.append(y)
            push = [2.0 * d[i] * y[i] for i in range(n)]
            for c, (i, j) in enumerate(pairs(n)):
                push[i], push[j] = push[i] + d[j] * y[n + c], push[j] + d[i] * y[n + c]
            moved[k] = [w[i] * push[i] for i in range(n)]
        left = []
        for k, turns in zip(plan.others, plan.turns, strict=True):
            r = parts[k]
            for turn in turns:
                for i, s in enumerate(turn.slots):
                    if s is not None:
                        r = r - jnp.sum(jac.slopes[k][s] * take(moved[turn.part][i], turn.bodies)[None], axis=1)
            left.append(r)
        found = self._solve_reduced(left)
        lanes = {k: [[] for _ in d] for k, d in zip(plan.bodies, gram.directors, strict=True)}
        for k, turns, lam in zip(plan.others, plan.turns, found, strict=True):
            for turn in turns:
                for i, s in enumerate(turn.slots):
                    if s is not None:
                        lanes[turn.part][i].append((jnp.sum(jac.slopes[k][s] * lam[:, None], axis=0), turn.bodies))
        out: list[Any] = [None] * len(parts)
        for k, lam in zip(plan.others, found, strict=True):
            out[k] = lam
        for k, d, w, y in zip(plan.bodies, gram.directors, gram.inverse, lengths, strict=True):
            n = len(d)
            z = [w[i] * add_at(lanes[k][i], d[i].shape[-1]) if lanes[k][i] else jnp.zeros_like(d[i]) for i in range(n)]
            dot = lambda a, b: jnp.sum(a * b, axis=0)
            rows = [y[i] - 0.5 * dot(d[i], z[i]) / w[i] for i in range(n)]
            rows += [
                y[n + c] - (dot(d[j], z[i]) + dot(d[i], z[j])) / (w[i] + w[j]) for c, (i, j) in enumerate(pairs(n))
            ]
            out[k] = jnp.stack(rows)
        return jac._natural(out, None)

    def _solve_reduced(self, parts: list[Any]) -> list[Any]:
        """`S^-1` of rows `(rows, blocks)` of each part."""
        if self.gram.plan.joints is not None:
            flat = self.inner.solve(jnp.concatenate([x.reshape(-1) for x in parts]))
            bounds = np.cumsum([0, *(x.size for x in parts)])
            return [flat[a : a + x.size].reshape(x.shape) for a, x in zip(bounds[:-1], parts, strict=True)]
        layout: Any = self.gram.plan.reduced.layout
        flat = jnp.concatenate([x.T.reshape(-1) for x in parts])
        flat = take(self.inner.solve(take(flat, layout.order)), layout.inverse)
        bounds = np.cumsum([0, *(x.size for x in parts)])
        cut = [flat[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        return [y.reshape(x.shape[::-1]).T for x, y in zip(parts, cut, strict=True)]
