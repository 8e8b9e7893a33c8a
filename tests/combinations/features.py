"""What a drawn system has: a geometry with its shape of q, and the capabilities beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from holonomix.mechanics import Capability

# geometry -> shape of q; the names say where the constraint comes from
SHAPES = {
    "free": (2,),
    "free-2d": (2, 2),
    "free-3d": (2, 3),
    "free-matrix": (3, 3),
    "surface": (3,),
    "parabola": (2,),
    "plane": (2,),
    "circle": (2,),
    "horizontal": (2,),
    "rods": (2, 2),
    "chain": (2, 2),
    "track": (2, 2),
    "rods-3d": (2, 3),
    "rotation": (3, 3),
    "triangle": (3, 3),
}
FREE = ("free", "free-2d", "free-3d", "free-matrix")
# their starts lie on axes or at zero, where a coordinate has no size of its own
AXIS_ALIGNED = ("parabola", "plane", "circle", "horizontal", "chain", "track")
MASSES = ("scalar", "diagonal", "particles", "block", "full", "M(q)", "M(q)-diagonal")
FORMS = ("plain", "distance", "local")
STARTS = ("generic", "rest", "origin", "origin-rest", "units", "molecular", "shifted", "far")
DISTANCES = ("rods", "chain", "triangle")


@dataclasses.dataclass(frozen=True)
class Features:
    """One system; `str` and `Features.parse` convert to and from the text that names it."""

    geometry: str = "surface"
    mass: str = "scalar"
    form: str = "plain"
    time: bool = False  # V(q, t)
    magnetic: bool = False  # A(q)
    force: bool = False
    moving: bool = False
    redundant: bool = False
    stiff: bool = False  # the constraint as a penalty
    params: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return SHAPES[self.geometry]

    @property
    def constrained(self) -> bool:
        return self.geometry not in FREE

    @property
    def kind(self) -> str:
        return "stiff" if self.stiff else "constrained" if self.constrained else "free"

    @property
    def needs(self) -> frozenset[Capability]:
        """What a method must declare to treat this system."""
        found = {
            Capability.MASS: self.mass.startswith("M(q)"),
            Capability.FORCE: self.force,
            Capability.TIME: self.time,
            Capability.MAGNETIC: self.magnetic,
            Capability.MOVING: self.moving,
            Capability.REDUNDANT: self.redundant,
        }
        return frozenset(c for c, needed in found.items() if needed)

    @property
    def valid(self) -> bool:
        """Whether such a system can be written down."""
        if self.mass in ("particles", "block") and len(self.shape) < 2:
            return False
        if not self.constrained and (self.form != "plain" or self.moving or self.redundant or self.stiff):
            return False
        if self.form == "distance" and self.geometry not in DISTANCES:
            return False
        if self.form == "local" and len(self.shape) < 2:
            return False
        if self.form != "plain" and self.moving:
            return False
        return not (self.stiff and (self.time or self.magnetic or self.moving or self.redundant))

    @property
    def starts(self) -> tuple[str, ...]:
        """The starts that this system has."""
        if not self.params:
            return ("generic", "rest")
        if self.geometry == "rotation":  # a rotation matrix has no units of length and no other origin
            return ("generic", "rest", "units", "molecular")
        if self.geometry in ("parabola", "plane", "circle"):  # at the origin already
            return ("generic", "rest", "units", "molecular", "shifted")
        return STARTS

    def __str__(self) -> str:
        switches = ("time", "magnetic", "force", "moving", "redundant", "stiff")
        words = [self.geometry, self.mass, self.form, *(s for s in switches if getattr(self, s))]
        return "+".join([*words, *([] if self.params else ["closed"])])

    @staticmethod
    def parse(text: str) -> Features:
        geometry, mass, form, *rest = text.split("+")
        switches = {word: True for word in rest if word != "closed"}
        return Features(geometry, mass, form, **switches, params="closed" not in rest)

    def values(self) -> Iterator[tuple[str, str]]:
        """The values of the factors whose pairs are covered."""
        yield "mass", {"particles": "diagonal", "M(q)-diagonal": "M(q)"}.get(self.mass, self.mass)
        yield "shape", str(self.shape) if len(self.shape) > 1 and self.shape != (3, 3) else str(self.shape)
        constraint = "stiff" if self.stiff else "structured" if self.form != "plain" else "plain"
        yield "constraint", constraint if self.constrained else "none"
        for name in ("time", "magnetic", "force", "moving", "redundant", "params"):
            yield name, "yes" if getattr(self, name) else "no"


def draw(rng: np.random.Generator) -> Features:
    """A random valid system; simple ones are as frequent as those with several capabilities."""
    while True:
        rich = rng.uniform(0.1, 0.6)
        switch = lambda: bool(rng.uniform() < rich)  # noqa: B023
        found = Features(
            str(rng.choice(list(SHAPES))),
            str(rng.choice(MASSES)),
            str(rng.choice(FORMS)),
            time=switch(),
            magnetic=switch(),
            force=switch(),
            moving=switch(),
            redundant=switch(),
            stiff=bool(rng.uniform() < 0.15),
            params=bool(rng.uniform() < 0.8),
        )
        if found.valid:
            return found
