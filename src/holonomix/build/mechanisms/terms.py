"""Rows of bodies and joints as functions, and as terms of a system: structured constraints, one per kind of joint.

Joints of one kind between the same kinds of bodies become one `Local`: their coefficients are data with one entry for
each joint, so a long chain costs as little to compile as a short one. `assembly` evaluates the same rows by NumPy.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.types import Numbers, Real
from ...linalg.fronts import fronts_available
from ...linalg.sparse import SparseLayout
from ...linalg.tridiagonal import ChainLayout
from ...mechanics import Local, Rheonomic, as_mass
from ...mechanics.coupling import find_structure
from ...mechanics.rigid import Orthonormal
from .bodies import KINDS, Body
from .forms import JointCoordinate, PhaseRow, ProductRow, Row, Vector, coordinate_of, frames_of

# Between these numbers of rows one dense matrix is faster to compile and to factor, unless the band is narrow.
DENSE_FROM, DENSE_TO = 17, 600
NARROW, SPARSE = 6, 16


def row_bodies(rows: list[Row] | tuple[Row, ...]) -> tuple[Body, ...]:
    """The moving bodies that rows touch, by number."""
    found = {body.number: body for row in rows for vector in row.vectors for body, _ in vector.parts}
    return tuple(found[k] for k in sorted(found))


def rigid_terms(bodies: list[Body]) -> list[tuple[Orthonormal, list[Body]]]:
    """Orthonormal directors, one term for each number of them."""
    out = []
    for count in (3, 2, 1):
        chosen = [body for body in bodies if KINDS[body.kind] == count + 1]
        if chosen:
            names = tuple(f"{body.name} (rigid)" for body in chosen)
            out.append((Orthonormal([body.particles[1:] for body in chosen], name=names), chosen))
    return out


def rigid_products(body: Body) -> list[ProductRow]:
    """The same rows as products of vectors fixed in the body."""
    n, none = KINDS[body.kind] - 1, np.zeros(body.dimension)
    d = [Vector(((body, c),), none) for c in np.eye(body.dimension + 1)[1 : n + 1]]
    return [
        *(ProductRow(d[i], d[i], 1.0) for i in range(n)),
        *(ProductRow(d[i], d[j]) for i in range(n) for j in range(i + 1, n)),
    ]


class ProductRows(eqx.Module):
    """The rows `A . B - c` of one joint; `pattern` says per row which coefficients of A and B may differ from zero.

    Without a pattern all may: one program serves joints of all kinds, and NumPy evaluates many rows at once.
    """

    kinds: tuple[str, ...] = eqx.field(static=True)
    pattern: tuple[Any, ...] | None = eqx.field(static=True)

    def __call__(self, x: Any, data: dict[str, Any], *params: PyTree) -> Any:
        frames = frames_of(self.kinds, x)
        if self.pattern is None:
            a, b = (data[side] @ frames + data[f"{side}0"] for side in "ab")
            return (a * b).sum(axis=-1) - data["c"]
        rows = []
        for r, (component, first, second) in enumerate(self.pattern):
            b = _vector(frames, data["b"][r], data["b0"][r], second)
            if component is not None:
                rows.append(b[component] - data["c"][r])
            else:
                rows.append(jnp.sum(_vector(frames, data["a"][r], data["a0"][r], first) * b) - data["c"][r])
        return jnp.stack(rows)


def _vector(frames: Numbers, c: Numbers, constant: Numbers, pattern: tuple[tuple[int, ...], bool]) -> Any:
    used, shifted = pattern
    parts = [c[k] * frames[k] for k in used] + ([constant] if shifted else [])
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _component(vector: Vector) -> int | None:
    """The number of the unit vector that a constant vector is."""
    at = np.flatnonzero(vector.constant)
    if vector.parts or at.size != 1 or vector.constant[at[0]] != 1.0:
        return None
    return int(at[0])


def _product_term(names: list[str], several: list[tuple[ProductRow, ...]]) -> Local:
    """One `Local` for joints whose rows have the same form."""
    bodies = [row_bodies(rows) for rows in several]
    kinds = tuple(body.kind for body in bodies[0])
    stack = lambda get: np.asarray([[get(row, who) for row in rows] for rows, who in zip(several, bodies, strict=True)])
    a, b = (stack(lambda row, who, s=side: getattr(row, s).coefficients(who)) for side in "ab")
    a0, b0 = (stack(lambda row, who, s=side: getattr(row, s).constant) for side in "ab")
    pattern = []
    for r in range(a.shape[1]):
        component = _component(several[0][r].a)
        sides = [
            (tuple(int(k) for k in np.flatnonzero(np.any(c[:, r] != 0, axis=0))), bool(np.any(c0[:, r] != 0)))
            for c, c0 in ((a, a0), (b, b0))
        ]
        pattern.append((component, *sides))
    data = {"a": a, "a0": a0, "b": b, "b0": b0, "c": stack(lambda row, who: row.c)}
    indices = [[k for body in who for k in body.particles] for who in bodies]
    return Local(ProductRows(kinds, tuple(pattern)), indices, data, name=tuple(names))


def product_data(rows: list[ProductRow]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Data of `ProductRows` without a pattern for rows of all kinds, over frames of two bodies; and their numbers."""
    dim = len(rows[0].a.constant)
    data: dict[str, Any] = {side: np.zeros((len(rows), 2 * (dim + 1))) for side in "ab"}
    data |= {f"{side}0": np.stack([getattr(row, side).constant for row in rows]) for side in "ab"}
    data["c"] = np.array([row.c for row in rows])
    numbers = np.zeros((len(rows), 2), int)
    for r, row in enumerate(rows):
        known: list[int] = []
        for side in "ab":
            for body, c in getattr(row, side).parts:
                if body.number not in known:
                    known.append(body.number)
                slot = known.index(body.number) * (dim + 1)
                data[side][r, slot : slot + dim + 1] = c
        numbers[r] = known if len(known) == 2 else known * 2
    return data, numbers


def _signature(rows: tuple[ProductRow, ...]) -> tuple[Any, ...]:
    """Joints with equal signatures go into one term: kinds of bodies, rows, and which rows are single components."""
    kinds = tuple(body.kind for body in row_bodies(rows))
    sides = tuple((_component(row.a), bool(row.a.parts)) for row in rows)
    return kinds, sides


class PhaseTerm(eqx.Module):
    """`PhaseRow` over the particles of its bodies; the drive, where there is one, is a function of time."""

    coordinates: tuple[JointCoordinate, ...]
    phase: Any
    factors: tuple[float, ...] = eqx.field(static=True)
    winding: bool = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    drive: Any = eqx.field(static=True)

    def row(self, x: Numbers, t: Real | None = None) -> Any:
        """The row, `(1,)`, from the particles of all its bodies."""
        phase = self.phase if self.drive is None else self.phase + self.drive(t)
        if not self.winding:
            total = -phase
            for n, coordinate in zip(self.factors, self.coordinates, strict=True):
                total = total + n * coordinate.position(x)
            return jnp.reshape(total / self.scale, (1,))
        angle = -phase
        c, s = jnp.ones((), x.dtype), jnp.zeros((), x.dtype)
        for n, coordinate in zip(self.factors, self.coordinates, strict=True):
            v = coordinate.products(x)
            if len(v) == 1:
                angle = angle + n * v[0]
            else:
                for _ in range(abs(int(n))):
                    c, s = (
                        (c * v[0] - s * v[1], c * v[1] + s * v[0])
                        if n > 0
                        else (c * v[0] + s * v[1], s * v[0] - c * v[1])
                    )
        return jnp.reshape((s * jnp.cos(angle) + c * jnp.sin(angle)) / self.scale, (1,))

    def __call__(self, x: Numbers, *extra: PyTree) -> Any:
        """As a `Local` term: `(particles)`; as a `Rheonomic` one: `(q, t)`."""
        if self.drive is None:
            return self.row(x)
        return self.row(self.coordinates[0].gather(x), extra[0])


def _phase_term(name: str, row: PhaseRow) -> Local | Rheonomic:
    bodies = row_bodies([row])
    coordinates = tuple(coordinate_of(coordinate, bodies) for _, coordinate in row.terms)
    factors = tuple(float(n) for n, _ in row.terms)
    term = PhaseTerm(coordinates, jnp.asarray(row.phase), factors, row.winding, row.scale, row.drive)
    if row.drive is not None:
        return Rheonomic(term, name=name)
    return Local(term, [[k for body in bodies for k in body.particles]], name=name)


def local_terms(joints: list[tuple[str, list[tuple[int, Row]]]]) -> list[tuple[Any, list[tuple[int, int]]]]:
    """Terms of a system for joints given as (name, numbered rows), each with the (joint, row) of every row it has."""
    groups: dict[Any, list[int]] = {}
    phases = []
    products = []
    for j, (name, rows) in enumerate(joints):
        plain = tuple(row for _, row in rows if isinstance(row, ProductRow))
        products.append([(j, k) for k, row in rows if isinstance(row, ProductRow)])
        if plain:
            groups.setdefault(_signature(plain), []).append(j)
        phases += [(_phase_term(name, row), [(j, k)]) for k, row in rows if isinstance(row, PhaseRow)]
    out: list[tuple[Any, list[tuple[int, int]]]] = []
    for members in groups.values():
        several = [tuple(row for _, row in joints[j][1] if isinstance(row, ProductRow)) for j in members]
        term = _product_term([joints[j][0] for j in members], several)
        out.append((term, [place for j in members for place in products[j]]))
    # rows that depend on time are plain functions and come last
    return out + sorted(phases, key=lambda x: isinstance(x[0], Rheonomic))


class AllRows(eqx.Module):
    """Several terms as one plain function, whose Gram matrix is dense."""

    terms: tuple[Any, ...]
    name: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, q: Numbers, *params: PyTree) -> Any:
        return jnp.concatenate([term(q, *params) for term in self.terms])


def packed(terms: list[Any], names: list[str], mass: np.ndarray, q: Numbers) -> list[Any]:
    """The terms of a system: structured, or one plain function if a dense matrix is faster.

    Narrow bands (planar chains) and sparse graphs (many legs) use their structure; wide bands, as of hinges in space,
    do so on a CPU, and on other devices only beyond a few hundred rows.
    """
    still = [term for term in terms if not isinstance(term, Rheonomic)]
    rows = len(names) - (len(terms) - len(still))
    if not DENSE_FROM <= rows <= DENSE_TO or fronts_available():
        return terms
    found, _ = find_structure(tuple((term, ()) for term in still), as_mass(mass, q), q)
    layout = None if found is None else found.coupling.layout
    if layout is not None:
        narrow = not isinstance(layout, ChainLayout) or layout.width * layout.rows <= NARROW
        if narrow and (not isinstance(layout, SparseLayout) or layout.plan.entries <= SPARSE * rows):
            return terms
    return [AllRows(tuple(still), tuple(names[:rows])), *terms[len(still) :]]
