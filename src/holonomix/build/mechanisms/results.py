"""Positions, rates and reactions of bodies and joints, read from a solution.

A solution is anything with rows `t`, `q`, `p` and `multipliers`; the mechanism knows
which particles and rows belong to a body or joint.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike, HasRows

if TYPE_CHECKING:
    from .joints import Joint
    from .mechanism import Mechanism


def cross(a: np.ndarray, b: np.ndarray) -> Any:
    """`a x b`; in the plane the number `a_1 b_2 - a_2 b_1`."""
    if np.shape(a)[-1] == 3:
        return np.cross(a, b)
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def moment(arms: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """`sum_k a_k x b_k` over the last axis but one."""
    return cross(arms, vectors).sum(axis=-2 if arms.shape[-1] == 3 else -1)


F = TypeVar("F", bound=Callable[..., Any])


class Lane:
    """One trajectory of an ensemble, with its parameters."""

    def __init__(self, several: Any, k: int):
        loop = several.loop
        self.several, self.k, self.loop = several, k, None
        self.system = loop.lane_system(k)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.several, name)[self.k]


def of_run(method: F) -> F:
    """A method of a mechanism, a body or a joint, evaluated at the parameters of the run `sol` among its arguments."""

    @functools.wraps(method)
    def evaluated(self: Any, *args: Any, **options: Any) -> Any:
        sol = options.pop("sol", None)
        args = args if sol is None else (sol, *args)
        sol = next((x for x in args if hasattr(x, "q")), None)
        owner = (
            self._owner() if isinstance(self, JointResults) else self.owner if isinstance(self, BodyResults) else self
        )
        if owner is None:
            return method(self, *args, **options)
        loop: Any = getattr(sol, "loop", None)
        system = getattr(sol, "system", None if loop is None else loop.system)
        numbers = owner._numbers_in(system)
        if numbers and loop is not None and not (hasattr(sol, "system") or loop.shared_system):  # an ensemble
            of_each = [[lane if x is sol else x for x in args] for lane in (Lane(sol, k) for k in range(loop.count))]
            return jax.tree.map(lambda *x: np.stack(x), *(evaluated(self, *each, **options) for each in of_each))
        with owner._with_numbers(numbers):
            return method(self, *args, **options)

    return evaluated  # pyright: ignore[reportReturnType]


class BodyResults:
    """Results of a solution for a body, as methods of what `m.body(...)` returns."""

    owner: Any = None  # the mechanism

    def _frames(self: Any, sol: HasRows) -> tuple[np.ndarray, np.ndarray]:
        if self.owner is None or self.fixed:
            raise InputError(f"body {self.name!r} does not move: it has no results")
        return self.owner.frame(sol.q, self), self.owner.frame_rate(sol, self)

    def rotation(self: Any, sol: HasRows) -> np.ndarray:
        """The rotation matrix of the body's own frame, `(rows, dim, dim)`; of a rod only its axis is known."""
        frame, _ = self._frames(sol)
        if self.kind in ("rod", "point", "planar point"):
            raise InputError(
                f"body {self.name!r} is a {self.kind}: it has no rotation; its axis is m.frame(sol.q, body)"
            )
        return np.swapaxes(frame[..., 1:, :], -1, -2) @ self.axes.T

    def position(self: Any, sol: HasRows) -> np.ndarray:
        """The position of the origin of the body's frame, `(rows, dim)`; without `center=` it is the center of mass."""
        return self.point(sol)

    def point(self: Any, sol: HasRows, at: ArrayLike | None = None) -> np.ndarray:
        """The path of a point given in body coordinates (its origin by default), `(rows, dim)`."""
        at = np.zeros(self.dimension) if at is None else np.asarray(at, float)
        c = self.point_coefficients(at, f"body {self.name!r}")
        return np.einsum("k,...kd->...d", c, self._frames(sol)[0])

    def velocity(self: Any, sol: HasRows, at: ArrayLike | None = None) -> np.ndarray:
        """The velocity of a point given in body coordinates, `(rows, dim)`."""
        at = np.zeros(self.dimension) if at is None else np.asarray(at, float)
        c = self.point_coefficients(at, f"body {self.name!r}")
        return np.einsum("k,...kd->...d", c, self._frames(sol)[1])

    def angular_velocity(self: Any, sol: HasRows) -> np.ndarray:
        """`omega` in world coordinates, `(rows, 3)`, in the plane `(rows,)`; of a rod the part across its axis."""
        frame, rate = self._frames(sol)
        spin = moment(frame[..., 1:, :], rate[..., 1:, :])
        return spin if self.kind == "rod" else 0.5 * spin

    def jacobian(self: Any, q: ArrayLike | Mapping[str, float]) -> Any:
        """Velocity of the origin and angular velocity per rate: see `Mechanism.jacobian`."""
        if self.owner is None or self.fixed:
            raise InputError(f"body {self.name!r} does not move: it has no results")
        return self.owner.jacobian(self, q)

    @of_run
    def angular_momentum(self: Any, sol: HasRows) -> np.ndarray:
        """About the center of mass, in world coordinates."""
        frame, rate = self._frames(sol)
        n = len(self.particles)
        masses = np.asarray(self.inertia.directors)[:, None]
        return moment(frame[..., 1:n, :], masses * rate[..., 1:n, :])


class JointResults:
    """Results of a solution for a joint, as methods of what `m.revolute(...)` and the like return."""

    def _owner(self: Any) -> Mechanism:
        moving = self.b if self.a.fixed else self.a
        return moving.owner

    def _coordinate(self: Any, kind: str, which: int) -> Any:
        found = [c for c in self.coordinates if c.kind == kind]
        if which >= len(found):
            known = ", ".join(c.kind for c in self.coordinates) or "nothing"
            raise InputError(f"joint {self.name!r} ({self.kind}) has no {kind} number {which}; it measures {known}")
        return found[which]

    @of_run
    def angle(self: Any, sol: HasRows, which: int = 0) -> np.ndarray:
        """The angle of b relative to a about the axis; full turns are counted from row to row (save often enough).

        If an ensemble keeps only final states, angles lie in (-pi, pi].
        """
        found = self._coordinate("angle", which).value(sol.q)
        ends = getattr(sol, "final_q", None)
        without_rows = ends is not None and np.shape(sol.q) == np.shape(ends)  # an ensemble of which only ends are kept
        return found if without_rows else np.unwrap(found)

    @of_run
    def distance(self: Any, sol: HasRows, which: int = 0) -> np.ndarray:
        """How far b has moved along the axis."""
        return self._coordinate("distance", which).value(sol.q)

    @of_run
    def rate(self: Any, sol: HasRows, which: int = 0) -> np.ndarray:
        """The derivative of the joint's angle (or distance, or of its n-th position)."""
        if which >= len(self.coordinates):
            raise InputError(f"joint {self.name!r} ({self.kind}) measures {len(self.coordinates)} positions")
        slopes = self.coordinates[which].value_and_slopes(sol.q)[1]
        return np.sum(slopes * (np.asarray(sol.p) / self._owner()._start()[2][:, None]), axis=(-2, -1))

    @of_run
    def force(self: Any, sol: HasRows) -> np.ndarray:
        """The force of the joint on its second body, in world coordinates, `(rows, dim)`.

        In an over-constrained mechanism many reactions fit the same motion; these are the ones of least norm.
        """
        return self._owner().reaction(sol, self.stack[0], self.b)[0]

    @of_run
    def torque(self: Any, sol: HasRows) -> np.ndarray:
        """The torque of the joint on its second body about the joint's point, `(rows, 3)`; in the plane `(rows,)`."""
        return self._owner().reaction(sol, self.stack[0], self.b)[1]


class JointAlong:
    """A joint along the rows of one solution, from `sol.joint("elbow")`."""

    def __init__(self, joint: Joint, sol: HasRows):
        self.joint, self.sol = joint, sol

    @property
    def angle(self) -> np.ndarray:
        """The angle of b relative to a about the axis, with full turns counted, `(rows,)`."""
        return self.joint.angle(self.sol)

    @property
    def distance(self) -> np.ndarray:
        """How far b has moved along the axis, `(rows,)`."""
        return self.joint.distance(self.sol)

    @property
    def rate(self) -> np.ndarray:
        """The derivative of the joint's first position, `(rows,)`."""
        return self.joint.rate(self.sol)

    @property
    def force(self) -> np.ndarray:
        """The force of the joint on its second body, in world coordinates, `(rows, dim)`."""
        return self.joint.force(self.sol)

    @property
    def torque(self) -> np.ndarray:
        """The torque of the joint on its second body about the joint's point."""
        return self.joint.torque(self.sol)

    def __repr__(self) -> str:
        return f"{self.joint!r} along {len(self.sol.t)} rows"
