"""`Mechanism`: bodies and joints that are assembled and become a `Problem`."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import ConstraintRankError, ConvergenceError, HolonomixError, InputError
from ...core.types import ArrayLike, Function, HasRows, known_array
from ...mechanics import System
from ...mechanics.problem import Problem
from ...run.events import Event
from ...trace.signatures import Parametrized
from . import queries
from .actuators import Range, Stop
from .assembly import Equations, Redundancy, close, find_redundant
from .bodies import KINDS, Body, expand, frame_rate
from .closing import close_by_joints
from .description import Description
from .forces import JointForce, JointSpring, MechanismForce, MechanismPotential, bound, depends_on_rate, make_pairs
from .forms import PhaseRow, coordinate_of
from .frames import Frame
from .joints import Joint
from .observables import observables
from .parameters import (
    Start,
    as_mass,
    chosen,
    independent,
    numbers_in,
    quantities,
    vary,
    with_values,
)
from .pictures import make_scene
from .results import JointAlong, cross, moment, of_run
from .terms import local_terms, packed, rigid_terms
from .tree import configure, move_rotors, spanning_tree
from .velocities import given_by_body, given_by_joint, start_velocities

if TYPE_CHECKING:
    from xarray import Dataset


class Mechanism(Description):
    """Bodies, joints, springs and motors that become a `Problem`: `m = hx.Mechanism(gravity=(0, 0, -9.81))`.

    `dimensions=2` makes a planar mechanism (gravity then has two numbers). Points and axes of joints are given in world
    coordinates for the bodies as they are placed (`at`, `axis`), or in coordinates of the bodies (`point_a`, `point_b`,
    `axis_a`, `axis_b`), in which case the positions may be a rough guess. Names are optional texts; `m["elbow"]` finds
    a body or joint by its name.
    """

    redundancy: Redundancy | None = None  # known after `problem`
    _kept: tuple[tuple[str, Any, int], ...] = ()  # the owners of the system's rows, in its order

    # -- assembly ---------------------------------------------------------------------------------------------------

    @property
    def equations(self) -> Equations:
        return Equations(self.bodies, self.joints, self._start()[2])

    def _start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not self.bodies:
            raise InputError(f"the mechanism has no bodies: {self.when_empty}")
        parts = [body.start() for body in self.bodies]
        q, v, masses = (np.concatenate(x) for x in zip(*parts, strict=True))
        return *move_rotors(self.bodies, q, v), masses

    def assemble(self, t: float = 0.0) -> Mechanism:
        """Move the bodies to the nearest positions in which all joints are closed; return the mechanism.

        Distances are weighted by mass, so heavy bodies move least. `ConvergenceError` names joints that cannot close.
        """
        q = self._closed(self.equations, t)
        for body in self.bodies:
            frame = self.frame(q, body)
            if body.kind in ("rigid", "plate", "planar"):
                body.attitude = frame[1:].T @ body.axes.T
            elif body.kind == "rod":
                body.attitude = _turned(body.attitude @ body.axes[:, 0], frame[1]) @ body.attitude
            body.origin = frame[0] - body.attitude @ body.center
        return self

    def _closed(self, equations: Equations, t: float) -> np.ndarray:
        """The closed configuration that keeps the positions given to `configure`, or the nearest one if none does."""
        q = self._start()[0]
        guides = [row for joint in self.joints for row in joint.guides]
        if guides:  # closed loops of frames: not half a turn away
            found = close_by_joints(self, equations, t, set(self._named))
            if found is not None:
                return close(equations, found, t, self.name)
            with contextlib.suppress(ConvergenceError):
                guide = Joint("guides", "guide", self.ground, self.ground, guides, None)
                q = close(Equations(self.bodies, [*self.joints, guide], equations.masses), q, t, self.name, 40)
        held = [(self[name], k, x) for name, several in self._named.items() for k, x in enumerate(several)]
        if held:
            rows = [PhaseRow(((1.0, joint.coordinates[k]),), float(x)) for joint, k, x in held]
            kept = Joint("positions", "held", self.ground, self.ground, [*rows], None)
            try:
                q = close(Equations(self.bodies, [*self.joints, kept], equations.masses), q, t, self.name, 40)
            except ConvergenceError:
                pass  # they are a first guess
        try:
            return close(equations, q, t, self.name)
        except ConvergenceError:
            found = close_by_joints(self, equations, t, set(self._named))
            if found is None and self._named:
                found = close_by_joints(self, equations, t, set())
            if found is None:
                raise
            return close(equations, found, t, self.name)

    def configure(self, positions: Any = None, velocities: Any = None) -> Mechanism:
        """Place the bodies, from the ground outward, by names and positions of joints; return the mechanism.

        Joints that are not named get the position zero, or the one that follows from a gear. `assemble` (or `problem`)
        closes loops. Named joints keep their positions if that is possible; otherwise these are a first guess. The
        position of a ball joint is a rotation (a quaternion or a matrix) of b relative to a, in coordinates of a.
        `velocities` are rates of joints, which replace the velocities of bodies. Named rates are kept exactly, other
        joints of a tree rest, and the rates of joints in loops follow.
        """
        for what, given in (("positions", positions), ("velocities", velocities)):
            if given is not None and not isinstance(given, Mapping):
                raise InputError(f"{what} must be a dictionary of joint names, not {given!r}")
        configure(self, positions or {}, velocities)
        return self

    def keyframe(self, name: str) -> Mechanism:
        """Places all bodies, with their velocities, as in a keyframe of the file; returns the mechanism."""
        if name not in self.keyframes:
            raise InputError(f"there is no keyframe {name!r}; there are {', '.join(self.keyframes) or 'none'}")
        configure(self, {}, {})
        for of, (origin, attitude, velocity, spin) in self.keyframes[name].items():
            body = self[of]
            body.origin, body.attitude, body.velocity0, body.spin0 = origin, attitude, velocity, spin
        return self

    def problem(
        self, dt: float = 1e-3, t1: float = 10.0, *, t0: float = 0.0, name: str = "", params: Any = ()
    ) -> Problem:
        """Assemble the mechanism and return it as a `Problem` with consistent velocities and without redundant rows.

        Velocities given to bodies and joints are kept; the others are as near to rest as possible. An `InputError`
        names velocities that contradict the joints or each other. `ConstraintRankError` means that the mechanism starts
        in a singular position. Afterward `m.redundancy` says how many rows depend on others; reactions use all rows.

        `params` names numbers of `m.parameters()` that become parameters of the system, such as `["arm.mass"]`, or
        gives their values, `{"arm.mass": 2.0}`, also traced ones. `problem.with_params({...})` changes them later.
        """
        names = chosen(self, params)
        masses = self._start()[2]
        equations = self.equations
        q = self._closed(equations, t0)
        self._drop(equations, q, t0)
        v = self._velocities(equations, q, t0)
        sizes = equations.sizes(q).reshape(q.shape)
        q, v = (np.where(np.abs(x) <= 1e-15 * sizes * np.abs(x / sizes).max(), 0.0, x) for x in (q, v))  # no noise
        each = np.repeat(masses[:, None], self.dimensions, axis=1)
        q0, p0 = known_array(q), known_array(each * v)
        held = independent(self, equations, q) if names else []

        def build() -> list[Any]:
            each = np.repeat(self._start()[2][:, None], self.dimensions, axis=1)
            holding = [term for term, _ in local_terms([("positions", held)])]  # one for each row
            parts = [known_array(each), self._potential(), self._force(), *self._bounces()]
            return [*parts, *holding, *self._terms(each)]

        mass, potential, force, *terms = vary(self, names, build) if names else build()
        walls, terms = terms[: (count := len(self._bounces()))], terms[count:]
        holding, terms = terms[: len(held)], terms[len(held) :]
        if not all(isinstance(wall, Range) for wall in walls):
            raise InputError("the places of joints that bounce cannot be parameters; elastic stops follow them")
        mass, known = as_mass(mass), {name: quantities(self)[name].read() for name in names}
        values = self.commands() | known or None
        if values and force is not None:
            force = Parametrized(force)
        system = System(potential, terms or None, mass=mass, force=force, params=values)
        start = None
        if names:
            holder = System(potential, [*terms, *holding], mass=mass, params=values) if holding else None
            start = Start(self, system, holder, q0, known_array(v), t0)
        label = name or self.name
        scene, events = make_scene(self), tuple(Event(wall, direction=1, bounce=True) for wall in walls)
        problem = Problem(system, q0, p0, dt, t1, name=label, scene=scene, source=self, start=start, events=events)
        return problem.with_params(dict(params)) if names and isinstance(params, Mapping) else problem

    def parameters(self) -> dict[str, np.ndarray]:
        """The numbers that `problem(params=...)` can turn into parameters of the system, with their current values.

        Masses, principal moments of inertia, the places of joints in their bodies, lengths of rods, stiffness, rest
        positions, lengths and damping of springs, armatures. A second spring of a joint is `elbow.stiffness 2`.
        """
        return {name: quantity.read() for name, quantity in quantities(self).items()}

    def _velocities(self, equations: Equations, q: np.ndarray, t: float) -> np.ndarray:
        """Consistent velocities at q: the given ones are kept, the others are as near to rest as possible."""
        given = [one for body in self.bodies for one in given_by_body(q, body)]
        rates = [(self[name], k, x) for name, several in self._configured.items() for k, x in enumerate(several)]
        given += [given_by_joint(q, *rate) for rate in (*self._rates, *rates)]
        v = self._start()[1]
        return start_velocities(equations, q, v, self._drive_rates(equations, t), t, given, self.name)

    def _consistent(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Closed positions and consistent velocities of the particles."""
        equations = self.equations
        q = self._closed(equations, t)
        return q, self._velocities(equations, q, t)

    def _numbers_in(self, system: Any) -> dict[str, Any]:
        """The numbers of the mechanism that are parameters of a system, with their values there."""
        return numbers_in(self, system)

    def _with_numbers(self, numbers: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
        """The mechanism with other numbers, to evaluate the results of a run."""
        return with_values(self, numbers) if numbers else contextlib.nullcontext()

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Restore the start of the mechanism on exit."""
        kept = [(b, b.origin, b.attitude, b.velocity0, b.spin0, set(b.given)) for b in self.bodies]
        named, configured = self._named, self._configured
        try:
            yield
        finally:
            for body, origin, attitude, velocity, spin, given in kept:
                body.origin, body.attitude, body.velocity0, body.spin0 = origin, attitude, velocity, spin
                body.given = given
            self._named, self._configured = named, configured

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_force_program": None, "_multipliers": (None, None)}  # caches; they hold programs

    def _revision(self) -> tuple[int, ...]:
        """A key that changes when something is added."""
        several = (
            self.bodies,
            self.joints,
            self._springs,
            self._joint_springs,
            self._joint_forces,
            self._applied,
            self._stops,
        )
        return tuple(len(x) for x in several)

    def _drop(self, equations: Equations, q: np.ndarray, t: float) -> None:
        owners, branches = equations.owners, {id(branch.joint) for branch in spanning_tree(self)}
        if all(
            id(joint) in branches or joint.b.rotor for joint in self.joints if joint.rows
        ):  # every joint moves another body
            found = Redundancy(len(owners), len(owners), len(owners), q.size, (), ())
        else:
            found = find_redundant(equations, q, t)
        if found.singular:
            names = _row_texts(owners, found.involved)
            raise ConstraintRankError(
                f"{self.name} stands in a singular position: the rank of its {found.rows} rows is "
                f"{found.rank_at_start} here and {found.rank} nearby ({names} depend on each other only here). Start "
                "from a position beside it"
            )
        for joint in self.joints:
            joint.dropped = set()
        for k in found.dropped:
            owners[k][1].dropped.add(owners[k][2])
        self.redundancy = found

    def redundant_rows(self) -> list[str]:
        """Rows that depend on others all along the motion, such as "joint 'elbow', row 3"; known after `problem`."""
        if self.redundancy is None:
            raise InputError("redundant rows are known after m.problem(...)")
        owners = self.equations.owners
        return [_row_text(*owners[k]) for k in self.redundancy.dropped]

    def _drive_rates(self, equations: Equations, t: float) -> np.ndarray:
        """`dg/dt` of every row; only those of drives are not zero."""
        rates = np.zeros(len(equations.owners))
        for k, (_, owner, r) in enumerate(equations.owners):
            row = owner.rows[r] if isinstance(owner, Joint) else None
            if isinstance(row, PhaseRow) and row.drive is not None:
                rates[k] = -float(jax.jvp(row.drive, (jnp.asarray(t),), (jnp.asarray(1.0),))[1]) / row.scale
        return rates

    def _terms(self, mass: np.ndarray) -> list[Any]:
        kept_rows: list[tuple[str, Any, int]] = []
        terms: list[Any] = []
        for term, bodies in rigid_terms(self.bodies):
            terms.append(term)
            for body in bodies:
                n = KINDS[body.kind] - 1
                kept_rows += [("body", body, k) for k in range(n * (n + 1) // 2)]
        kept = [(j.name, [(k, row) for k, row in enumerate(j.rows) if k not in j.dropped]) for j in self.joints]
        for term, places in local_terms(kept):
            terms.append(term)
            kept_rows += [("joint", self.joints[j], k) for j, k in places]
        self._kept = tuple(kept_rows)
        names = [f"{x.name} (rigid)" if kind == "body" else x.name for kind, x, _ in kept_rows]
        return packed(terms, names, mass, known_array(np.zeros(mass.shape)))

    def _potential(self) -> MechanismPotential:
        weight = np.zeros((self._particles, self.dimensions))
        for body in self.bodies:
            weight[body.first] = 0.0 if body.rotor else -body.mass * self.gravity
        springs = tuple(
            JointSpring(coordinate_of(joint.coordinates[which]), jnp.asarray(k), jnp.asarray(rest))
            for joint, which, k, rest in self._joint_springs
        )
        stops = tuple(Stop(reach, jnp.asarray(k)) for _, reach, k in self._ranges() if k is not None)
        pairs = make_pairs([spring[:5] for spring in self._springs if spring[2] != 0])
        return MechanismPotential(known_array(weight), tuple(pairs), (*springs, *stops))

    def _ranges(self) -> list[tuple[Joint, Range, float | None]]:
        """The joints with stops, their ranges, and the stiffness of elastic stops."""
        return [
            (joint, Range(coordinate_of(joint.coordinates[which]), jnp.asarray(lower), jnp.asarray(upper)), k)
            for joint, which, lower, upper, k in self._stops
        ]

    def _bounces(self) -> list[Range]:
        return [reach for _, reach, k in self._ranges() if k is None]

    def observables(self, problem: Problem) -> dict[str, Any]:
        """Positions, rates and reaction forces of all joints for `observe=`, by names such as `elbow.angle`.

        `problem` is the result of `m.problem(...)`. Angles lie in (-pi, pi]. Forces are those of `joint.force(sol)`;
        they are left out if constraints of the mechanism are redundant.
        """
        return observables(self, problem.system)

    def commands(self) -> dict[str, Any]:
        """The commands (named motors, forces and torques), at zero, and the user's own parameters, by name.

        `problem.with_params({"elbow motor": 2.0, ...})` sets them, and they can be inputs of an FMU.
        """
        return {name: np.zeros(shape) for name, shape in self._commands.items()} | self._own

    def _force(self) -> MechanismForce | None:
        pairs = make_pairs([spring[:5] for spring in self._springs if spring[4] != 0])
        others = [
            JointForce(coordinate_of(joint.coordinates[which]), jnp.asarray(c), torque, self._rated(c, torque))
            for joint, which, c, torque in self._joint_forces
        ]
        if not (pairs or others or self._applied):
            return None
        return MechanismForce(tuple(pairs), (*others, *self._applied), (self._particles, self.dimensions))

    def _rated(self, damping: float, torque: Function | str | None) -> bool:
        """Whether a force on a joint depends on its rate."""
        return damping != 0 or (callable(torque) and depends_on_rate(bound(torque, self._own), (), (), ()))

    # -- results ----------------------------------------------------------------------------------------------------

    def frame(self, q: ArrayLike, body: Body) -> np.ndarray:
        """Center and directors of a body along rows of q, `(..., dim + 1, dim)`."""
        return expand(body.kind, np.asarray(q)[..., list(body.particles), :], np)

    @of_run
    def frame_rate(self, sol: HasRows, body: Body) -> np.ndarray:
        """Derivatives of center and directors along a solution."""
        at = list(body.particles)
        x = np.asarray(sol.q)[..., at, :]
        v = np.asarray(sol.p)[..., at, :] / body.start()[2][:, None]
        return frame_rate(body.kind, x, v)

    def acceleration(
        self, q: ArrayLike | Mapping[str, float], v: ArrayLike | Mapping[str, float], t: float = 0.0
    ) -> Any:
        """Accelerations of the particles for q and v in the shape of `problem.q0`; or of joints, by names.

        `m.acceleration({"elbow": 0.3}, {"elbow": 1.0})` places the joints as `configure` does (joints that are not
        named are at zero and at rest) and gives the second derivatives of all joint positions.
        """
        return queries.acceleration(self, q, v, t)

    def inverse_dynamics(
        self, q: ArrayLike | Mapping[str, float], v: ArrayLike | Mapping[str, float], a: Any, t: float = 0.0
    ) -> dict[str, float]:
        """Torques (forces of slides) that give joints the accelerations `a`; both are dictionaries by joint names.

        Joints that `a` does not name, and a free base, get no torque and move freely. In a mechanism with loops, name
        as many joints as it has degrees of freedom; if there are several solutions, the result is the smallest one.
        """
        return queries.inverse_dynamics(self, q, v, a, t)

    @of_run
    def center_of_mass(self, sol: HasRows) -> np.ndarray:
        """The center of mass of all bodies, `(rows, dim)`."""
        return queries.center_of_mass(self, sol)

    @of_run
    def momentum(self, sol: HasRows, about: ArrayLike | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Linear momentum and angular momentum about a point of the world (the origin) of all bodies."""
        return queries.momentum(self, sol, about)

    def jacobian(self, frame: Frame | Body, q: ArrayLike | Mapping[str, float]) -> Any:
        """Velocity and angular velocity of a frame or body, per velocity of the particles or per rate of joints.

        For q in the shape of `problem.q0` it is `(6, *q.shape)` (in the plane 3): `sum(J * v)` are the velocity of the
        origin and the angular velocity, in world coordinates. For joint positions by name it is a dictionary with the
        six numbers of each joint while the others and a free base rest. Joints of loops cannot move alone; an error
        names them.
        """
        return queries.jacobian(self, frame, q)

    def energy(self, sol: Any) -> np.ndarray:
        """Kinetic and potential energy along a solution."""
        return sol.energy()

    def joint_along(self, name: str, sol: HasRows) -> JointAlong:
        """See `Solution.joint`."""
        joint = self._names.get(f"joint {name}", self._names.get(name))
        if not isinstance(joint, Joint):
            raise InputError(f"there is no joint {name!r}; there are {', '.join(j.name for j in self.joints)}")
        return JointAlong(joint, sol)

    @of_run
    def add_to_dataset(self, data: Dataset, sol: HasRows) -> Any:
        """See `Solution.to_xarray`."""
        return queries.add_to_dataset(self, data, sol)

    @of_run
    def joint_error(self, sol: HasRows) -> dict[str, np.ndarray]:
        """The largest residual of each joint along a solution, rows left out as redundant included."""
        frames = self.equations.frames(np.asarray(sol.q))
        along = lambda joint: np.abs(Equations([], [joint], np.zeros(0)).values_along(frames, sol.t)).max(axis=1)
        return {joint.name: along(joint) for joint in self.joints if joint.rows}

    @of_run
    def joint_multipliers(self, sol: Any, joint: Joint) -> np.ndarray:
        """Multipliers of all rows of a joint along a solution; those of least norm if rows are redundant."""
        return self._all_multipliers(sol)[:, [k for k, x in enumerate(self.equations.owners) if x[1] is joint]]

    def _all_multipliers(self, sol: Any) -> np.ndarray:
        cached = getattr(self, "_multipliers", (None, None))
        if cached[0] is sol:
            return cached[1]  # pyright: ignore[reportReturnType]
        if not self._kept:
            raise InputError("reactions are known for solutions of m.problem(...)")
        owners = self.equations.owners
        place = {(id(owner), k): at for at, (_, owner, k) in enumerate(owners)}
        kept = [place[(id(owner), k)] for _, owner, k in self._kept]
        found = np.zeros((len(sol.t), len(owners)))
        found[:, kept] = np.asarray(sol.multipliers)
        if self.redundancy is not None and self.redundancy.dropped:
            for n, (q, t) in enumerate(zip(np.asarray(sol.q), np.asarray(sol.t), strict=True)):
                rows = self.equations.jacobian(q, float(t))
                found[n] = np.linalg.lstsq(rows.T, rows.T @ found[n], rcond=1e-10)[0]
        self._multipliers = (sol, found)
        return found

    @of_run
    def reaction(self, sol: Any, joint: Joint, body: Body) -> tuple[np.ndarray, np.ndarray]:
        """Force and torque of a joint on one of its bodies along a solution, about the joint's point in that body."""
        if body.fixed:  # minus the reaction on the other body, about the same point
            force, torque = self.reaction(sol, joint, joint.a if body is joint.b else joint.b)
            return -force, -torque
        multipliers, frame = self.joint_multipliers(sol, joint), self.frame(sol.q, body)
        total = np.zeros_like(frame)
        frames = self.equations.frames(np.asarray(sol.q))
        for rows, bodies, _, slopes in Equations([], [joint], np.zeros(0)).blocks(frames, sol.t):
            own = np.where((bodies == body.number)[:, :, None, None], slopes, 0.0)
            total -= np.einsum("tr,trbfd->tfd", multipliers[:, rows], own)
        force, torque = total[:, 0], moment(frame[:, 1:], total[:, 1:])
        if joint.place is not None:
            point = joint.place.point_a if body is joint.a else joint.place.point_b
            arm = np.einsum("k,tkd->td", body.point_coefficients(point, joint.name), frame) - frame[:, 0]
            torque = torque - cross(arm, force)
        return force, torque

    # -- files ------------------------------------------------------------------------------------------------------

    @staticmethod
    def from_urdf(path: str | Path, **options: Any) -> Mechanism:
        """A robot from a URDF file; see `holonomix.build.mechanisms.urdf.from_urdf`."""
        from .urdf import from_urdf

        return from_urdf(path, **options)

    @staticmethod
    def from_mjcf(path: str | Path, **options: Any) -> Mechanism:
        """A model from a MuJoCo XML file; see `holonomix.build.mechanisms.mjcf.from_mjcf`."""
        from .mjcf import from_mjcf

        return from_mjcf(path, **options)

    def _repr_html_(self) -> str:
        """A picture of the start for notebooks, if the mechanism can be assembled already."""
        try:
            shown = self.problem()._repr_html_()
        except HolonomixError as error:
            shown = f"<p>no picture yet: {html.escape(str(error))}</p>"
        return f"<p>{html.escape(repr(self))}</p>{shown}"

    def __repr__(self) -> str:
        return f"Mechanism({self.name!r}, {len(self.bodies)} bodies, {len(self.joints)} joints)"


def _row_text(kind: str, owner: Body | Joint, row: int) -> str:
    return f"{kind} {owner.name!r}, row {row}"


def _row_texts(owners: list[Any], rows: tuple[int, ...]) -> str:
    names = list(dict.fromkeys(_row_text(*owners[k]) for k in rows))
    return "; ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _turned(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smallest rotation that takes the unit vector a to b."""
    axis, c = np.cross(a, b), float(a @ b)
    if c < -1 + 1e-12:
        u = np.eye(3)[int(np.argmin(np.abs(a)))]
        u = u - (u @ a) * a
        u /= np.linalg.norm(u)
        return 2 * np.outer(u, u) - np.eye(3)
    k = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + k + k @ k / (1 + c)
