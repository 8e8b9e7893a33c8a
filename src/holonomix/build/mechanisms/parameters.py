"""Numbers of a mechanism as parameters of its system: masses, inertias, joint places, lengths, stiffness and damping.

Parts of a system (mass, potential, terms of the constraint, force) are modules whose leaves hold numbers. Each number
is a polynomial of the parameters, of degree at most two in one parameter (`c = L^2` of a rod) and without products of
two. `vary` finds the coefficients by finite differences, which are exact for a polynomial up to round-off: it builds
the parts of the mechanism at values around the current ones. A part is then evaluated at the current parameters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.checks import is_traced
from ...core.errors import InputError, ShapeError
from ...core.types import Numbers
from ...mechanics import Local, Rheonomic
from ...mechanics.mass import ParameterMass
from ...mechanics.projection import project
from ...mechanics.structured import AbstractLocal
from ...trace.indexing import Indices, add_at
from .assembly import Equations
from .bodies import Body, Inertia
from .forms import PhaseRow, Row, Vector
from .joints import Joint

if TYPE_CHECKING:
    from .mechanism import Mechanism

Undo = Callable[[], None]
SHIFT = 0.25  # relative change of a number; large enough that zeros of the mechanism become nonzero
NOISE = 1e-13  # changes of a number below this share of it are round-off


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number, or several, that can be a parameter of a mechanism. `write` returns a function that undoes it."""

    read: Callable[[], np.ndarray]
    write: Callable[[np.ndarray], Undo]
    size: float  # of a value that is zero
    allowed: Literal["positive", "zero or more", "finite"] = "positive"


def quantities(m: Mechanism) -> dict[str, Quantity]:
    """All of them by name: `link.mass`, `elbow.point_a`, `rod.length`, `spring 1.stiffness`."""
    found: dict[str, Quantity] = {}

    def add(name: str, quantity: Quantity) -> None:
        """A second torsion spring of a joint is `elbow.stiffness 2`."""
        k = next(k for k in itertools.count(1) if (name if k == 1 else f"{name} {k}") not in found)
        found[name if k == 1 else f"{name} {k}"] = quantity

    points = [x for joint in m.joints if joint.place for x in (joint.place.point_a, joint.place.point_b)]
    length = max((float(np.abs(x).max()) for x in points), default=0.0) or 1.0
    for body in m.bodies:
        if body.rotor is None:
            found[f"{body.name}.mass"] = _mass(body, 1.0)
        else:
            name, bracket, which = body.name.removeprefix("rotor of ").removesuffix(", body").partition("[")
            add(f"{name}.armature{bracket}{which}", _mass(body, body.rotor[1] ** 2))
        if body.inertia is not None and body.inertia.directors:
            found[f"{body.name}.inertia"] = _moments(body)
    for joint in m.joints:
        if joint.kind == "distance":
            found[f"{joint.name}.length"] = _length(joint)
        if joint.place is not None and joint.kind != "drive":
            ends = ("point_a", joint.a, joint.stack[0]), ("point_b", joint.b, joint.stack[-1])
            for side, body, owner in ends:  # several joints between two bodies have one point in each
                if joint is owner and "point" not in body.kind:
                    add(f"{joint.name}.{side}", _point(joint, side, length))
    for k, (joint, which, *_) in enumerate(m._joint_springs):
        end = f"[{which}]" if which else ""
        add(f"{joint.name}.stiffness{end}", _entry(m._joint_springs, k, 2, "zero or more"))
        add(f"{joint.name}.rest{end}", _entry(m._joint_springs, k, 3, "finite"))
    for k, (joint, which, _, torque) in enumerate(m._joint_forces):
        if torque is None:
            end = f"[{which}]" if which else ""
            add(f"{joint.name}.damping{end}", _entry(m._joint_forces, k, 2, "zero or more"))
    for k, spring in enumerate(m._springs):
        for at, name in ((2, "stiffness"), (3, "length"), (4, "damping")):
            if spring[at] != 0:
                add(f"spring {k + 1}.{name}", _entry(m._springs, k, at, "positive" if at == 3 else "zero or more"))
    return found


def _set(owner: Body, name: str, value: Inertia) -> Undo:
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def _mass(body: Body, factor: float) -> Quantity:
    made: Any = lambda: body.inertia
    write = lambda x: _set(body, "inertia", dataclasses.replace(made(), mass=float(x) / factor))
    return Quantity(lambda: np.asarray(made().mass * factor), write, 1.0)


def _moments(body: Body) -> Quantity:
    """Principal moments: three of a rigid body, two of a plate in its plane, one of a rod and of a planar body."""

    def read() -> np.ndarray:
        assert body.inertia is not None
        masses = np.asarray(body.inertia.directors)
        moments = masses.sum() - masses if len(masses) == 3 else masses[::-1]
        return moments if len(moments) > 1 else moments[0]

    def write(x: np.ndarray) -> Undo:
        assert body.inertia is not None
        x = np.atleast_1d(x)
        masses = x.sum() / 2 - x if len(x) == 3 else x[::-1]
        return _set(body, "inertia", dataclasses.replace(body.inertia, directors=tuple(masses.tolist())))

    return Quantity(read, write, 1.0)


def _length(joint: Joint) -> Quantity:
    row: Any = joint.rows[0]

    def write(x: np.ndarray) -> Undo:
        before = joint.rows[0]
        joint.rows[0] = dataclasses.replace(row, c=float(x) ** 2)
        return lambda: joint.rows.__setitem__(0, before)

    return Quantity(lambda: np.asarray(np.sqrt(joint.rows[0].c)), write, 1.0)  # pyright: ignore[reportAttributeAccessIssue]


def _entry(several: list[Any], k: int, at: int, allowed: Literal["positive", "zero or more", "finite"]) -> Quantity:
    """One number of a tuple in a list."""

    def write(x: np.ndarray) -> Undo:
        before = several[k]
        several[k] = (*before[:at], float(x), *before[at + 1 :])
        return lambda: several.__setitem__(k, before)

    return Quantity(lambda: np.asarray(float(several[k][at])), write, 1.0, allowed)


def _point(joint: Joint, side: str, size: float) -> Quantity:
    """The joint's point in one of its bodies, in coordinates of the body; across a rod it has no effect."""
    body = joint.a if side == "point_a" else joint.b

    def write(x: np.ndarray) -> Undo:
        place: Any = joint.place
        moved = np.asarray(x, float) - getattr(place, side)
        shift = body.axes.T @ moved
        shift[{"rod": 1, "point": 0, "planar point": 0}.get(body.kind, len(shift)) :] = 0.0
        kept = []
        for vector in _vectors(joint):
            if body.fixed:
                weight = sum(c[0] for _, c in vector.parts)
                kept.append((vector.constant, vector.constant.copy()))
                vector.constant[:] -= weight * moved
                continue
            for owner, c in vector.parts:
                if owner is body and c[0] != 0:
                    kept.append((c, c.copy()))
                    c[1:] += c[0] * shift
        joint.place = dataclasses.replace(place, **{side: np.asarray(x, float)})

        def undo() -> None:
            joint.place = place
            for array, before in kept:
                array[:] = before

        return undo

    return Quantity(lambda: np.asarray(getattr(joint.place, side)), write, size, "finite")


def _vectors(joint: Joint) -> list[Vector]:
    """The vectors of a joint that reach to its point; gears and drives of the joint share them."""
    rows = [vector for one in joint.stack for row in (*one.rows, *one.guides) for vector in row.vectors]
    rows += [vector for one in joint.stack for coordinate in one.coordinates for vector in coordinate.vectors]
    return [x for x in {id(vector): vector for vector in rows}.values() if any(c[0] != 0 for _, c in x.parts)]


@contextlib.contextmanager
def with_values(m: Mechanism, values: Mapping[str, Any]) -> Iterator[None]:
    """The mechanism with these values in place of its own."""
    known, undo = quantities(m), []
    try:
        for name, value in values.items():
            undo.append(known[name].write(np.asarray(value, float)))
        yield
    finally:
        for one in reversed(undo):
            one()


# -- parts of a system -------------------------------------------------------------------------------------------------


class Change(eqx.Module):
    """The change of one array by parameters: at `places`, `slopes * x + bends * x^2` with the shifts x of `sources`."""

    slopes: Any
    bends: Any
    leaf: int = eqx.field(static=True)
    places: Indices = eqx.field(static=True)
    sources: Indices = eqx.field(static=True)

    def added(self, leaf: Numbers, shift: Numbers) -> Any:
        x = shift[self.sources.array]
        more = add_at([(x * (self.slopes + self.bends * x), self.places.array)], leaf.size)
        return leaf + more.reshape(leaf.shape)


class Varied(eqx.Module):
    """A part of a system whose numbers depend on the params, the only dictionary among its arguments."""

    part: Any  # at the values `base` of the parameters
    base: Any
    changes: tuple[Change, ...]
    names: tuple[str, ...] = eqx.field(static=True)

    def at(self, params: Mapping[str, Any]) -> Any:
        """The part with the numbers that belong to these parameters."""
        shift = jnp.concatenate([jnp.ravel(params[name]) for name in self.names]) - self.base
        leaves, structure = jax.tree.flatten(self.part)
        for change in self.changes:
            leaves[change.leaf] = change.added(jnp.asarray(leaves[change.leaf]), shift)
        return jax.tree.unflatten(structure, leaves)

    def __call__(self, *args: PyTree) -> Any:
        return self.at(next(x for x in args if isinstance(x, dict)))(*args)

    @property
    def name(self) -> Any:
        """The name of the part, for errors and results."""
        return getattr(self.part, "name", None)

    @property
    def rate_count(self) -> int:
        """The `rate_count` of a force."""
        return getattr(self.part, "rate_count", 0)


class VariedLocal(AbstractLocal):
    """A `Local` whose data depend on the params."""

    varied: Varied
    anchors: Any
    indices: Indices = eqx.field(static=True)
    name: Any = eqx.field(static=True)

    def lane_data(self, part: slice, extra: tuple[Any, ...]) -> Any:
        return self.varied.at(extra[-1]).lane_data(part, extra)

    def lane_values(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> Any:
        return self.varied.at(extra[-1]).lane_values(x, data, extra)

    def lane_slopes(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> list[Any]:
        return self.varied.at(extra[-1]).lane_slopes(x, data, extra)


def vary(m: Mechanism, names: Sequence[str], build: Callable[[], list[Any]]) -> list[Any]:
    """The parts that `build` returns, as functions of the parameters if they depend on them."""
    known = quantities(m)
    values = [np.atleast_1d(known[name].read()).astype(float) for name in names]
    shapes = [np.shape(known[name].read()) for name in names]
    sizes = np.concatenate(
        [np.where(x != 0, np.abs(x), known[n].size) for n, x in zip(names, values, strict=True)], axis=None
    )
    ends = np.cumsum([x.size for x in values])[:-1]
    base = np.concatenate(values, axis=None) + SHIFT * sizes

    def made(x: np.ndarray) -> list[Any]:
        given = [part.reshape(shape) for part, shape in zip(np.split(x, ends), shapes, strict=True)]
        with with_values(m, dict(zip(names, given, strict=True))):
            return build()

    parts = made(base)
    middle = [[np.asarray(leaf) for leaf in jax.tree.leaves(part)] for part in parts]
    found: list[list[list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]]] = [[[] for _ in part] for part in middle]
    for k, size in enumerate(sizes):
        step = np.where(np.arange(base.size) == k, SHIFT / 2 * size, 0.0)
        sides = [made(base + sign * step) for sign in (1, -1)]
        _same_structure(parts, *sides)
        for p, part in enumerate(middle):
            above, below = (jax.tree.leaves(side[p]) for side in sides)
            for at, (leaf, *both) in enumerate(zip(part, above, below, strict=True)):
                up, down = (np.asarray(x) for x in both)
                first, second = (up - down) / 2, (up + down) / 2 - leaf
                tiny = NOISE * (np.abs(up) + np.abs(down))
                first, second = (np.where(np.abs(x) > tiny, x, 0.0).reshape(-1) for x in (first, second))
                places = np.flatnonzero((first != 0) | (second != 0))
                if places.size:
                    h = step[k]
                    found[p][at].append((k, places, first[places] / h, second[places] / h**2))
    return [_varied(part, base, entries, tuple(names)) for part, entries in zip(parts, found, strict=True)]


def _same_structure(parts: list[Any], *others: list[Any]) -> None:
    for other in others:
        if jax.tree.structure(other) != jax.tree.structure(parts):
            raise InputError("the form of the mechanism depends on these parameters; take them one by one")


def _varied(part: PyTree, base: np.ndarray, entries: list[list[Any]], names: tuple[str, ...]) -> Any:
    changes = []
    for at, several in enumerate(entries):
        if several:
            sources = np.concatenate([np.full(places.size, k) for k, places, *_ in several])
            places, slopes, bends = (np.concatenate([x[i] for x in several]) for i in (1, 2, 3))
            changes.append(Change(jnp.asarray(slopes), jnp.asarray(bends), at, Indices(places), Indices(sources)))
    if not changes:
        return part
    varied = Varied(part, jnp.asarray(base), tuple(changes), names)
    if isinstance(part, Local):
        return VariedLocal(varied=varied, anchors=None, indices=part.indices, name=part.name)
    return Rheonomic(varied, part.name) if isinstance(part, Rheonomic) else varied  # pyright: ignore[reportArgumentType]


def check_values(m: Mechanism, values: Mapping[str, Any]) -> None:
    """Raise if a shape does not fit, or if a known value that must be positive is not."""
    known = quantities(m)
    for name, value in values.items():
        if name in known and np.shape(value) != (shape := known[name].read().shape):
            raise ShapeError(f"parameter {name!r} has shape {shape}, not {np.shape(value)}")
        if name in known and not is_traced(value):
            x, allowed = np.asarray(value), known[name].allowed
            wrong = x[~np.isfinite(x) | {"positive": x <= 0, "zero or more": x < 0, "finite": False}[allowed]]
            if wrong.size:
                raise InputError(f"parameter {name!r} must be {allowed}, not {wrong.flat[0]:g}")


class Masses(eqx.Module):
    """The masses of the particles from the params."""

    varied: Varied

    def __call__(self, params: Mapping[str, Any]) -> Any:
        return self.varied.at(params)


def as_mass(found: Any) -> Any:
    """The mass as a system takes it."""
    return ParameterMass(Masses(found)) if isinstance(found, Varied) else found


def chosen(m: Mechanism, params: Any) -> list[str]:
    """The names in `params`, a list or a dictionary of values; an error names those that the mechanism lacks."""
    names = [params] if isinstance(params, str) else list(params)
    known = quantities(m)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 5, 0.4) or list(known)[:10]
            raise InputError(f"{m.name} has no parameter {name!r}; there are {', '.join(near)}: see m.parameters()")
        if name in m.commands():
            raise InputError(f"a command or parameter of your own is called {name!r} too: give it another name")
    return [name for name in known if name in names]


def independent(m: Mechanism, equations: Equations, q: np.ndarray) -> list[tuple[int, Row]]:
    """Independent rows that fix the joint positions given to `configure`."""
    rows, root = equations.scaled(q, 0.0)
    found: list[tuple[int, Row]] = []
    for name, several in m._named.items():
        for coordinate in m[name].coordinates[: len(several)]:
            value, slopes = coordinate.value_and_slopes(q)
            row = slopes.reshape(-1) / root
            rest = row - np.linalg.lstsq(rows.T, row, rcond=None)[0] @ rows
            if np.abs(rest).max() > 1e-6 * np.abs(row).max():
                rows = np.concatenate([rows, row[None]])
                found.append((len(found), PhaseRow(((1.0, coordinate),), float(value))))
    return found


class Start:
    """The start for values of the parameters: the one nearest to that of the mechanism, in the mass metric.

    Joint positions given to `configure` do not change, and velocities change as little as possible.
    """

    def __init__(self, m: Mechanism, system: Any, holder: Any, q: Numbers, v: Numbers, t: float):
        self.m, self.system, self.holder, self.q, self.v, self.t = m, system, holder, q, v, t

    def __call__(self, params: Mapping[str, Any]) -> tuple[Any, Any]:
        check_values(self.m, params)
        return self._traced(params) if is_traced(params) else self._nearest(params)

    @functools.cached_property
    def _traced(self) -> Any:
        return jax.jit(self._nearest)  # as one program, also under a `grad` outside of `jit`

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in self.__dict__.items() if name != "_traced"}  # a compiled program

    def _nearest(self, params: Mapping[str, Any]) -> tuple[Any, Any]:
        system, q = self.system.with_params(params), self.q
        if self.holder is not None:
            q, _ = project(self.holder.with_params(params), q, jnp.zeros_like(q), self.t)
        return project(system, q, system.momentum(q, self.v), self.t)


def numbers_in(m: Mechanism, system: Any) -> dict[str, Any]:
    """The numbers of the mechanism that are parameters of a system, with their values there."""
    params = getattr(system, "params", None)
    own = {name: x for name, x in params.items() if name not in m.commands()} if isinstance(params, dict) else {}
    known = quantities(m) if own else {}
    return {name: x for name, x in own.items() if name in known}
