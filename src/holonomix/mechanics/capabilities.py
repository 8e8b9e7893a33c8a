"""Optional features of systems beyond a constant mass, a potential V(q), and fixed independent constraints.

A system lists the features it needs (`system.needs`), a method those it treats (`Traits.treats`).
"""

from __future__ import annotations

import enum


class Capability(enum.Enum):
    """A feature that a system may need; the value is its short name in tables."""

    MASS = "M(q)"
    FORCE = "f(q, v, t)"
    TIME = "V(q, t)"
    MAGNETIC = "A(q)"
    MOVING = "g(q, t)"
    REDUNDANT = "redundant rows"

    @property
    def meaning(self) -> str:
        """The feature in words."""
        return _MEANING[self][0]

    @property
    def condition(self) -> str:
        """The condition on systems for a method without this feature."""
        return _MEANING[self][1]


_MEANING = {
    Capability.MASS: ("a mass M(q) that depends on the position", "a constant mass"),
    Capability.FORCE: ("an applied force f(q, v, t)", "forces that derive from a potential, not an applied force"),
    Capability.TIME: ("a potential V(q, t) that depends on time", "a potential that does not depend on time"),
    Capability.MAGNETIC: ("a vector potential A(q)", "a system without a vector potential"),
    Capability.MOVING: ("a constraint g(q, t) that depends on time", "constraints that do not depend on time"),
    Capability.REDUNDANT: ("constraints that depend on each other", "constraints that are independent of each other"),
}
