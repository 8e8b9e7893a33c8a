"""The drawn systems as holonomix takes them: in any units, with any origin, with params or without."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

import holonomix as hx

from .features import AXIS_ALIGNED, Features
from .natural import PENALTY, ROD, TRIANGLE, Natural, surface
from .reference import Reference

UNITS = {"units": (2.0**-7, 2.0**11, 2.0**5), "molecular": (3e-10, 1e-26, 1.7e-13)}
SHIFTS = {"shifted": 8.0, "far": 1024.0}


@dataclasses.dataclass(frozen=True)
class Start:
    """A consistent start in natural units, and the units and origin in which it is given.

    `q = length (x + shift)`; `shift` has the shape of one particle, or of q where that has one axis.
    """

    label: str
    x: np.ndarray
    v: np.ndarray
    t0: float
    length: float
    mass: float
    time: float
    shift: np.ndarray

    @property
    def size(self) -> float:
        """The largest coordinate, in units of the system: what rounding is measured by."""
        return 1.0 + float(np.max(np.abs(self.shift)))


class Built:
    """A drawn system with its reference; `system(start)` reuses the same functions, so that nothing is traced again."""

    def __init__(self, features: Features, seed: int = 0):
        self.features, self.seed = features, seed
        self.natural = Natural(features, seed)
        self.reference = Reference(self.natural)
        self.functions = _functions(self.natural)

    def nowhere(self) -> Start:
        """A start for questions that depend on the system alone."""
        x = np.zeros(self.features.shape)
        return Start("nowhere", x, x, 0.0, 1.0, 1.0, 1.0, np.zeros(x.shape if x.ndim == 1 else x.shape[1:]))

    def start(self, label: str) -> Start:
        features, rest = self.features, label in ("rest", "origin-rest")
        clocked = features.time or features.moving or features.force
        t0 = 0.25 if clocked and not rest and features.geometry not in AXIS_ALIGNED else 0.0
        x, v = self.reference.start(t0, rest)
        shape = x.shape if x.ndim == 1 else x.shape[1:]
        shift = np.zeros(shape)
        if label.startswith("origin"):
            shift = -(x if x.ndim == 1 else x[0])
        elif label in SHIFTS:
            shift = SHIFTS[label] * (-1.0) ** np.arange(shift.size).reshape(shape)
        units = UNITS.get(label, (1.0, 1.0, 1.0))
        if features.geometry == "rotation":
            units = (1.0, *units[1:])
        return Start(label, x, v, t0, *units, shift)

    def params(self, start: Start, strength: Any = 1.0) -> dict[str, Any] | None:
        if not self.features.params:
            return None
        return {"k": strength, "L": start.length, "M": start.mass, "T": start.time, "c": jnp.asarray(start.shift)}

    def mass(self, start: Start) -> Any:
        """A constant mass in the start's units, as an array."""
        return jnp.asarray(start.mass * self.natural.mass_values())

    def omega(self, start: Start) -> Any:
        """The stiffness of a penalty in the start's units: `omega^2/2 |g|^2` is an energy."""
        return jnp.asarray(PENALTY * np.sqrt(start.mass) / (start.length * start.time))

    def system(self, start: Start, strength: Any = 1.0, params: Any = None, mass: Any = None, omega: Any = None) -> Any:
        """The system in the start's units; `params`, `mass` and `omega` may be given, traced, in their place."""
        params = self.params(start, strength) if params is None else params
        given = self.functions
        if "mass" not in given:
            value = self.mass(start) if mass is None else mass
            given = given | {"mass": hx.mechanics.BlockMass(value) if self.features.mass == "block" else value}
        constraint = given["constraint"]
        if constraint is not None:
            origin = start.length * start.shift if params is None else params["L"] * params["c"]
            given = given | {"constraint": [term(origin) if term in _ANCHORED else term for term in constraint]}
        system = hx.System(**given, params=params)
        if self.features.stiff:
            return system.penalized(self.omega(start) if omega is None else omega)
        return system

    def state(self, start: Start) -> tuple[np.ndarray, np.ndarray]:
        """q and p in the start's units."""
        p = np.asarray(self.reference.momentum(start.x, start.v))
        return start.length * (start.x + start.shift), start.mass * start.length / start.time * p


def _functions(n: Natural) -> dict[str, Any]:
    """The arguments of `hx.System`, params apart; a constant mass is left out, anchored distances are made later."""
    f, closed = n.features, not n.features.params
    x_of = lambda q, P: q / P["L"] - P["c"]
    energy = lambda P: P["M"] * P["L"] ** 2 / P["T"] ** 2
    if closed:
        given: dict[str, Any] = {"potential": n.potential if f.time else lambda q: n.potential(q, 0.0)}
        if f.time:
            given["potential"] = lambda q, t: n.potential(q, t)
    elif f.time:
        given = {"potential": lambda q, t, P: energy(P) * n.potential(x_of(q, P), t / P["T"], P["k"])}
    else:
        given = {"potential": lambda q, P: energy(P) * n.potential(x_of(q, P), 0.0, P["k"])}
    if f.magnetic:
        dimension = lambda P: P["M"] * P["L"] / P["T"]
        magnetic = lambda q, P: dimension(P) * n.vector_potential(x_of(q, P))
        given["vector_potential"] = n.vector_potential if closed else magnetic
    if f.force:
        unit = lambda P: P["M"] * P["L"] / P["T"] ** 2
        force = lambda q, v, t, P: unit(P) * n.force(x_of(q, P), v * (P["T"] / P["L"]), t / P["T"])
        given["force"] = n.force if closed else force
    if f.mass.startswith("M(q)"):
        given["mass"] = n.mass_at if closed else lambda q, P: P["M"] * n.mass_at(x_of(q, P))
    given["constraint"] = _constraint(n) if f.constrained else None
    return given


_ANCHORED: list[Any] = []


def _constraint(n: Natural) -> list[Any]:
    """The rows of `n.rows` as terms of a system, structured where the features say so."""
    f, closed = n.features, not n.features.params
    square = lambda P: P["L"] ** 2
    if f.form == "plain":
        if f.moving and closed:
            return [hx.Rheonomic(n.rows)]
        if f.moving:
            return [hx.Rheonomic(lambda q, t, P: square(P) * n.rows(q / P["L"] - P["c"], t / P["T"]))]
        if closed:
            return [lambda q: n.rows(q, 0.0)]
        return [lambda q, P: square(P) * n.rows(q / P["L"] - P["c"], 0.0)]
    terms = _distances(f, closed) if f.form == "distance" else _local(f, closed)
    if f.redundant:
        if closed:
            terms.append(lambda q: n.rows(q, 0.0)[-1:])
        else:
            terms.append(lambda q, P: square(P) * n.rows(q / P["L"] - P["c"], 0.0)[-1:])
    return terms


def _distances(f: Features, closed: bool) -> list[Any]:
    lengths = (lambda values: values) if closed else (lambda values: lambda P: P["L"] * jnp.asarray(values))
    if f.geometry == "triangle":
        return [hx.Distance(TRIANGLE, lengths([ROD] * 3))]

    def anchored(origin: Any) -> Any:
        return hx.Distance([[-1, 0], [0, 1]], lengths([1.0, ROD]), anchors=jnp.asarray(origin)[None])

    _ANCHORED.append(anchored)
    return [anchored]


def _local(f: Features, closed: bool) -> list[Any]:
    def local(fn: Any, indices: Any) -> Any:
        if closed:
            return hx.Local(fn, indices)
        return hx.Local(lambda x, P: P["L"] ** 2 * jnp.atleast_1d(fn(x / P["L"] - P["c"])), indices)

    rod = lambda x: jnp.sum((x[1] - x[0]) ** 2) - ROD**2
    first = {
        "rods": lambda x: jnp.sum(x[0] ** 2) - 1,
        "chain": lambda x: jnp.sum(x[0] ** 2) - 1,
        "track": lambda x: x[0, 1],
        "rods-3d": lambda x: surface(x[0]),
    }
    if f.geometry == "triangle":
        return [local(rod, TRIANGLE)]
    if f.geometry == "rotation":
        return [local(lambda x: (x.T @ x - jnp.eye(3))[np.triu_indices(3)], [[0, 1, 2]])]
    return [local(first[f.geometry], [[0]]), local(rod, [[0, 1]])]
