"""The part of a `Mechanism` that describes it: bodies, joints, springs, motors and drives, by name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from ...core.checks import number, real_array, whole_number
from ...core.errors import InputError
from ...core.types import ArrayLike, Function
from .actuators import Motor, dry_friction
from .bodies import KINDS, Body, Inertia, make_inertia, rotation_matrix
from .forces import AppliedForce, AppliedTorque, bound, depends_on_rate
from .forms import Coordinate, PhaseRow, ProductRow, Row, Vector
from .frames import Frame, ends_of_joint
from .joints import Joint, coupling_row, make_joint, numbers, vector
from .stacks import make_stack

Given: TypeAlias = ArrayLike | None  # numbers from the user, checked by `joints.numbers`; None: the default


class Description:
    """Bodies, joints and forces of a mechanism, by name."""

    def __init__(self, gravity: Given = None, *, dimensions: int = 3, name: str = "mechanism", length_unit: str = "m"):
        if dimensions not in (2, 3):
            raise InputError(f"dimensions must be 2 or 3, not {dimensions!r}")
        self.dimensions, self.name, self.length_unit = dimensions, name, length_unit
        gravity = np.zeros(dimensions) if gravity is None else gravity
        self.gravity = numbers("Mechanism", "gravity", gravity, dimensions)
        self.ground = Body("ground", dimensions, None)
        self.bodies: list[Body] = []
        self.joints: list[Joint] = []
        self.unsupported: list[str] = []  # features of a file that the importer left out
        self.frames: dict[str, Frame] = {}
        self.repaired: list[str] = []  # inertias that an importer changed
        self.keyframes: dict[str, dict[str, tuple[np.ndarray, ...]]] = {}  # poses and velocities of bodies, by name
        self.when_empty = "add one with m.body(...)"
        self._names: dict[str, Body | Joint | Frame] = {"ground": self.ground}
        self._springs: list[Any] = []
        self._joint_springs: list[tuple[Joint, int, float, float]] = []
        self._joint_forces: list[tuple[Joint, int, float, Any]] = []
        self._commands: dict[str, tuple[int, ...]] = {}  # name -> shape of the values
        self._own: dict[str, np.ndarray] = {}  # parameters of the user's functions
        self._applied: list[Any] = []
        self._stops: list[tuple[Joint, int, float, float, float | None]] = []
        self.motors: dict[str, Motor] = {}  # those of a file; see `command`
        self._rates: list[tuple[Joint, int, float]] = []
        self._named: dict[str, np.ndarray] = {}  # positions and
        self._configured: dict[str, np.ndarray] = {}  # rates given to `configure`
        self._particles = 0
        self._force_program: Any = None  # cache of `acceleration`, valid until the mechanism changes

    # -- bodies ---------------------------------------------------------------------------------------------------

    def body(
        self,
        name: str | None = None,
        *,
        mass: Any = None,
        inertia: Given = None,
        shape: Any = None,
        density: Given = None,
        position: Given = None,
        rotation: Given = None,
        velocity: Given = None,
        angular_velocity: Given = None,
        center: Given = None,
        color: str = "",
    ) -> Body:
        """A rigid body: `mass` with `inertia`, or a `shape` with `density` or `mass`.

        `inertia` holds three principal moments along the body's axes or a 3 x 3 matrix, about the center of mass; in
        the plane it is one number. `position` and `rotation` (a matrix, a quaternion (w, x, y, z), or in the plane an
        angle) place the body's frame, `center` is the center of mass in it. `velocity` (of the origin of that frame)
        and `angular_velocity` are in world coordinates. Given velocities are kept; the others are as near to rest as
        the joints allow. A body without inertia about one or two of its axes (an ideal plate or rod) takes fewer
        coordinates.
        """
        name = self._new_name(name, "body")
        made = make_inertia(name, self.dimensions, mass, inertia, shape, density)
        body = self._add_body(name, made, position, center)
        body.attitude = rotation_matrix(f"body {name!r}", rotation, self.dimensions)
        self.start_velocity(body, velocity, angular_velocity)
        if shape is not None:
            body.shapes.append((shape, body.center, np.eye(3)))
        body.color = color
        return body

    def _turning(self, why: str, name: str, value: Any) -> np.ndarray:
        """An angular velocity or torque: three numbers, in the plane one."""
        if self.dimensions == 3:
            return numbers(why, name, value, 3)
        one = value[0] if isinstance(value, (list, tuple, np.ndarray)) and np.shape(value) == (1,) else value
        return np.asarray(number(f"{why}: {name}", one))

    def point_mass(
        self, name: str | None = None, *, mass: Any, position: Given = None, velocity: Given = None, color: str = ""
    ) -> Body:
        """A mass without extent: three coordinates (two in the plane)."""
        name = self._new_name(name, "body")
        try:
            value = float(mass)
        except (TypeError, ValueError):
            value = float("nan")
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"body {name!r}: mass must be a positive number, not {mass!r}")
        kind = "point" if self.dimensions == 3 else "planar point"
        body = self._add_body(name, Inertia(kind, value, np.eye(self.dimensions), ()), position, None)
        self.start_velocity(body, velocity)
        body.color = color
        return body

    def _add_body(self, name: str, inertia: Inertia, position: Given, center: Given) -> Body:
        why, dim = f"body {name!r}", self.dimensions
        center = None if center is None else numbers(why, "center", center, dim)
        body = Body(name, dim, inertia, center, len(self.bodies))
        if position is not None:
            body.origin = numbers(why, "position", position, dim)
        body.first, body.owner = self._particles, self
        self._particles += KINDS[body.kind]
        self.bodies.append(body)
        self._names[name] = body
        return body

    def add_frame(self, name: str, body: Body, *, position: Given = None, rotation: Given = None) -> Frame:
        """A named frame fixed in a body (or the ground), placed in coordinates of the body."""
        name, dim = self._new_name(name, "frame"), self.dimensions
        at = np.zeros(dim) if position is None else numbers(f"frame {name!r}", "position", position, dim)
        turn = rotation_matrix(f"frame {name!r}", rotation, dim)
        frame = Frame(self, name, self._own_body(f"frame {name!r}", body), at, turn)
        self._names[name] = self.frames[name] = frame
        return frame

    def _new_name(self, name: Any, what: str) -> str:
        if name is None:
            name = f"{what} {len(self.bodies if what == 'body' else self.joints) + 1}"
        if not isinstance(name, str) or not name:
            raise InputError(f"the name of a {what} must be a text, not {name!r}")
        if name in self._names:
            raise InputError(f"there is already a body or joint called {name!r}")
        return name

    def _free_name(self, what: str, name: str, taken: Collection[str] = ()) -> str:
        """The name from a file; if it is already taken, with the kind of the thing before it (`joint NAME`)."""
        return f"{what} {name}" if name in self._names or name in taken else name

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise InputError(f"there is no body, joint or frame {name!r}; there are {', '.join(self._names)}")
        return self._names[name]

    # -- joints ---------------------------------------------------------------------------------------------------

    def joint(self, kind: str, name: str | None, a: Body | Frame, b: Body | Frame, **options: Given) -> Joint:
        """A joint of the kind with this name; the methods below are shorter.

        A joint between frames, as in `m.fixed("loop", m["end_A"], m["end_B"])`, holds the frames together. Their
        origins are its points. Its axis is their z axis, or `axis` in their coordinates.
        """
        name = self._new_name(name, "joint")
        why = f"joint {name!r}"
        a, b, options = ends_of_joint(why, kind, a, b, options)
        for body in (a, b):
            self._own_body(why, body)
        return self._add_joint(make_joint(name, kind, a, b, options))

    def _add_stack(self, names: list[str], a: Body, b: Body, parts: list[Any]) -> list[Joint]:
        """Slides and hinges in series, each a joint with its own name; see `make_stack`."""
        names = [self._new_name(name, "joint") for name in names]
        return [self._add_joint(joint) for joint in make_stack(names, a, b, parts)]

    def _own_body(self, why: str, body: Any) -> Body:
        if not isinstance(body, Body):
            raise InputError(f"{why} needs bodies of this mechanism, not {body!r}")
        if body is not self.ground and body.owner is not self:
            raise InputError(f"{why}: body {body.name!r} belongs to another mechanism")
        return body

    def _add_joint(self, joint: Joint) -> Joint:
        self.joints.append(joint)
        self._names[joint.name] = joint
        return joint

    def revolute(
        self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, axis: Given = None, **own: Given
    ) -> Joint:
        """A hinge: a common point and axis. In the plane a pin, without an axis."""
        extra = {} if self.dimensions == 2 and axis is None else {"axis": axis}
        return self.joint("revolute", name, a, b, at=at, **extra, **own)

    def prismatic(
        self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, axis: Given = None, **own: Given
    ) -> Joint:
        """A slide along an axis fixed in a, without rotation."""
        return self.joint("prismatic", name, a, b, at=at, axis=axis, **own)

    def spherical(self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, **own: Given) -> Joint:
        """A ball joint: a common point."""
        return self.joint("spherical", name, a, b, at=at, **own)

    def universal(
        self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given, axis: Given, axis2: Given
    ) -> Joint:
        """A Cardan joint: a common point, and `axis` (fixed in a) keeps its angle to `axis2` (fixed in b)."""
        return self.joint("universal", name, a, b, at=at, axis=axis, axis2=axis2)

    def cylindrical(
        self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, axis: Given = None, **own: Given
    ) -> Joint:
        """A common axis: b slides along it and turns about it."""
        return self.joint("cylindrical", name, a, b, at=at, axis=axis, **own)

    def planar(
        self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, axis: Given = None, **own: Given
    ) -> Joint:
        """b slides on a plane of a with the given normal, and turns about the normal."""
        return self.joint("planar", name, a, b, at=at, axis=axis, **own)

    def fixed(self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, **own: Given) -> Joint:
        """A weld."""
        if at is None and "point_a" not in own and isinstance(a, Body) and isinstance(b, Body):
            at = (b if a.fixed else a).origin
        return self.joint("fixed", name, a, b, at=at, **own)

    def distance(
        self,
        name: str | None,
        a: Body | Frame,
        b: Body | Frame,
        *,
        point_a: Given = None,
        point_b: Given = None,
        length: Given = None,
    ) -> Joint:
        """A massless rod between two points given in the bodies; by default its length is their distance as placed."""
        return self.joint("distance", name, a, b, point_a=point_a, point_b=point_b, length=length)

    def point_on_line(
        self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, axis: Given = None, **own: Given
    ) -> Joint:
        """The point of b that is placed at `at` stays on a line of a, through `at` along `axis`."""
        return self.joint("point_on_line", name, a, b, at=at, axis=axis, **own)

    def point_on_plane(
        self, name: str | None, a: Body | Frame, b: Body | Frame, *, at: Given = None, axis: Given = None, **own: Given
    ) -> Joint:
        """The point of b that is placed at `at` stays on a plane of a, through `at` with the normal `axis`."""
        return self.joint("point_on_plane", name, a, b, at=at, axis=axis, **own)

    def screw(
        self,
        name: str | None,
        a: Body | Frame,
        b: Body | Frame,
        *,
        at: Given = None,
        axis: Given = None,
        pitch: Given,
        **own: Given,
    ) -> Joint:
        """A cylindrical joint that advances by `pitch` per turn."""
        return self.joint("screw", name, a, b, at=at, axis=axis, pitch=pitch, **own)

    def gear(self, name: str | None, first: Joint, second: Joint, *, ratio: Given, offset: float = 0.0) -> Joint:
        """The position of `second` is `ratio` times that of `first`, plus `offset`.

        Positions are angles or distances (a rack and pinion couples the two). For angles that make full turns, the
        ratio must be a quotient of whole numbers, such as numbers of teeth; full turns are then ignored. With any
        other ratio angles must stay within half a turn. If `configure` gets the position of one of the joints, the
        other one follows.
        """
        name = self._new_name(name, "joint")
        why = f"joint {name!r}"
        factor, offset = number(f"{why}: ratio", ratio), number(f"{why}: offset", offset)
        if factor == 0 or first is second:
            raise InputError(f"{why} needs two different joints and a ratio other than zero, not {ratio!r}")
        coordinates = [self._position(why, joint, 0) for joint in (first, second)]
        row, _ = coupling_row([(-factor, coordinates[0]), (1.0, coordinates[1])], offset)
        return self._add_gear(name, first, second, row, (factor, offset))

    def _add_gear(
        self, name: str, first: Joint, second: Joint, row: PhaseRow, relation: tuple[float, float] | None
    ) -> Joint:
        made = self._add_joint(Joint(name, "gear", first.b, second.b, [row], None))
        made.relation = None if relation is None else (first, second, *relation)
        return made

    def _position(self, why: str, joint: Any, which: int) -> Any:
        if not isinstance(joint, Joint) or joint.name not in self._names:
            raise InputError(f"{why} needs a joint of this mechanism, not {joint!r}")
        if whole_number(f"{why}: which", which, 0) >= len(joint.coordinates):
            raise InputError(f"{why}: joint {joint.name!r} ({joint.kind}) has no position number {which}")
        return joint.coordinates[which]

    def armature(self, joint: Joint, inertia: float, which: int = 0) -> Joint:
        """Add `inertia/2 x'^2` to the kinetic energy of a joint position x, as a geared rotor does.

        The rotor is a point on a circle (for a slide, on a line) that moves with the joint. It has no weight and no
        momentum, and masses remain constant.
        """
        coordinate = self._position("an armature", joint, which)
        value = number("an armature: inertia", inertia, 0)
        if not value > 0:
            raise InputError(f"joint {joint.name!r}: the inertia of an armature must be positive, not {value:g}")
        name = self._new_name(f"rotor of {joint.name}" + (f"[{which}]" if which else ""), "joint")
        dim, distance = self.dimensions, coordinate.kind == "distance"
        far = joint.a if joint.b.fixed else joint.b
        spread = (sum(far.inertia.directors) / far.mass) ** 0.5 if far.inertia is not None else 0.0
        radius = 1.0 if distance or not spread > 0 else spread
        kind = "point" if dim == 3 else "planar point"
        body = self._add_body(f"{name}, body", Inertia(kind, value / radius**2, np.eye(dim), ()), None, None)
        body.rotor = (coordinate, radius)
        place, e = vector(body, np.zeros(dim), name, point=True), [Vector((), x) for x in np.eye(dim)]
        rows: list[Row] = [ProductRow(x, place) for x in (e[1:] if distance else e[2:])]
        if not distance:
            rows.append(ProductRow(place, place, radius**2))
        own = Coordinate(coordinate.kind, (e[0], place) if distance else (e[0], e[1], place))
        rows.append(coupling_row([(1.0, coordinate), (-1.0, own)], 0.0)[0])
        return self._add_joint(Joint(name, "rotor", joint.b, body, rows, None))

    # -- forces and drives ------------------------------------------------------------------------------------------

    def spring(
        self,
        a: Body,
        point_a: Given,
        b: Body,
        point_b: Given,
        *,
        stiffness: float = 0.0,
        length: float = 0.0,
        damping: float = 0.0,
    ) -> None:
        """A spring and damper between two points given in the bodies (the ground: in the world)."""
        bodies = [self._own_body("a spring", body) for body in (a, b)]
        points = [numbers("a spring", "point", p, self.dimensions) for p in (point_a, point_b)]
        given = {"stiffness": stiffness, "length": length, "damping": damping}
        stiffness, length, damping = (number(f"a spring: {key}", value, 0) for key, value in given.items())
        if a is b or (a.fixed and b.fixed):
            raise InputError(f"a spring needs two different bodies, not {a.name!r} and {b.name!r}")
        first, second = (vector(body, p, "a spring", point=True) for body, p in zip(bodies, points, strict=True))
        moving = tuple(body for body in bodies if not body.fixed)
        self._springs.append((first - second, moving, stiffness, length, damping, bodies, points))

    def damper(self, a: Body, point_a: Given, b: Body, point_b: Given, *, damping: float) -> None:
        """A damper between two points given in the bodies; that of a joint is `torsion_spring(joint, damping=)`."""
        self.spring(a, point_a, b, point_b, damping=damping)

    def torsion_spring(
        self, joint: Joint, *, stiffness: float = 0.0, rest: float = 0.0, damping: float = 0.0, which: int = 0
    ) -> None:
        """A spring and damper on a joint's angle, or the distance of a slide; angles lie within pi of `rest`."""
        self._position("a torsion spring", joint, which)
        given = {"stiffness": stiffness, "damping": damping}
        stiffness, damping = (number(f"a torsion spring: {key}", value, 0) for key, value in given.items())
        rest = number("a torsion spring: rest", rest)
        if stiffness:
            self._joint_springs.append((joint, which, stiffness, rest))
        if damping:
            self._joint_forces.append((joint, which, damping, None))

    def motor(self, joint: Joint, torque: Callable[[Any, Any, Any], Any] | float | str, which: int = 0) -> None:
        """A torque (or force) `torque(t, angle, rate)` of a joint, opposite on its two bodies; or a constant one.

        `angle` lies in (-pi, pi]. A string names a command: a parameter of the system, initially zero.
        """
        self._position("a motor", joint, which)
        if isinstance(torque, str):
            self._name_command(torque, ())
        elif not callable(torque):
            value = number("a motor: torque", torque)
            torque = lambda t, x, rate: value
        self._joint_forces.append((joint, which, 0.0, torque))

    def parameter(self, name: str, value: ArrayLike) -> None:
        """A parameter of the system for your own functions, such as a gain.

        Functions of motors, forces and torques with a fourth argument receive all parameters in it:
        `m.motor(joint, lambda t, angle, rate, params: -params["gain"] * rate)`.
        """
        if not isinstance(name, str) or not name or name in self._commands:
            raise InputError(f"the name of a parameter must be a text that no command has, not {name!r}")
        self._own[name] = np.asarray(real_array(f"parameter {name!r}", value))

    def _name_command(self, name: str, shape: tuple[int, ...]) -> None:
        """Register a command; motors and forces with the same name share its values."""
        if not name:
            raise InputError("the name of a command must not be empty")
        if self._commands.setdefault(name, shape) != shape:
            raise InputError(f"command {name!r} has shape {self._commands[name]} elsewhere, not {shape}: use two names")

    def command(self, motor: str, command: ArrayLike | Function, *, dt: float | None = None) -> None:
        """Set the command of a motor of a file: a number, a function of `(t, position, rate)`, an array, or a name.

        An array has one entry per time step `dt`, from t = 0. It is interpolated between entries and constant after the
        last. A name makes it a parameter of the system, initially zero, as in `m.motor`; a function that requires a
        fourth argument gets all parameters in it. Commands have the units of the file. Angles lie in (-pi, pi], also
        in the laws of position servos. A new command replaces the previous one.
        """
        if motor not in self.motors:
            raise InputError(f"there is no motor {motor!r}; there are {', '.join(self.motors) or 'none'}")
        found = self.motors[motor]
        if isinstance(command, str):
            self._name_command(command, ())
        entry = (found.joint, found.which, 0.0, found.torque(command, dt))
        self._joint_forces = [x for x in self._joint_forces if x is not found.entry]
        self._joint_forces.append(entry)
        found.entry, self._force_program = entry, None

    def friction(self, joint: Joint, torque: float, *, speed: float = 1e-2, which: int = 0) -> None:
        """Dry friction of a joint, smoothed: `-torque tanh(rate / speed)`."""
        self._position("friction", joint, which)
        torque, speed = number("friction: torque", torque, 0), number("friction: speed", speed, 0)
        if not speed > 0:
            raise InputError(f"joint {joint.name!r}: the speed of friction must be positive")
        self._joint_forces.append((joint, which, 0.0, dry_friction(torque, speed)))

    def stop(self, joint: Joint, lower: float, upper: float, *, stiffness: float | None = None, which: int = 0) -> None:
        """Stops of a joint: outside of the range a spring of this `stiffness` acts; without one, the joint bounces.

        A bounce is elastic and changes only the momentum (`hx.Event(..., bounce=True)`). A range of angles spans
        at most one turn.
        """
        kind = self._position("a stop", joint, which).kind
        lower, upper = number("a stop: lower", lower), number("a stop: upper", upper)
        if stiffness is None:
            if lower == upper:
                raise InputError(
                    f"joint {joint.name!r}: its stops are both at {lower:g}, which leaves no room to bounce"
                )
        else:
            stiffness = number("a stop: stiffness", stiffness, 0)
        if not lower <= upper or (kind == "angle" and upper - lower >= 2 * np.pi):
            raise InputError(f"joint {joint.name!r}: its stops {lower:g} and {upper:g} must be a range within one turn")
        self._stops.append((joint, which, lower, upper, stiffness))

    def drive(
        self, joint: Joint, angle: Function | None = None, *, distance: Function | None = None, which: int = 0
    ) -> Joint:
        """Prescribe a joint's position as a function of time; the drive is a joint with a reaction of its own."""
        motion = angle if angle is not None else distance
        if not callable(motion) or (angle is not None and distance is not None):
            raise InputError("a drive needs angle= or distance=, a function of time")
        coordinate = self._position("a drive", joint, which)
        name = self._new_name(f"drive of {joint.name}", "joint")
        row = PhaseRow(((1.0, coordinate),), 0.0, motion)
        return self._add_joint(Joint(name, "drive", joint.a, joint.b, [row], joint.place, joint.axis))

    def start_velocity(self, body: Body, velocity: Given = None, angular_velocity: Given = None) -> None:
        """Set the start velocity of a body's origin, or its angular velocity, or both, in world coordinates.

        As `velocity` and `angular_velocity` of `body`, for bodies that exist already, for instance from a file.
        """
        why = f"body {self._own_body('a start velocity', body).name!r}"
        if body.fixed or ("point" in body.kind and angular_velocity is not None):
            raise InputError(
                f"{why} is a {body.kind}: it cannot be given {'a' if body.fixed else 'an angular'} velocity"
            )
        if velocity is not None:
            body.velocity0 = numbers(why, "velocity", velocity, self.dimensions)
            body.given.add("velocity")
        if angular_velocity is not None:
            body.spin0 = self._turning(why, "angular_velocity", angular_velocity)
            body.given.add("angular velocity")

    def start_rate(self, joint: Joint, rate: float, which: int = 0) -> None:
        """Set the rate of a joint at the start; velocities that are not given are the nearest to rest that fit."""
        self._position("a start rate", joint, which)
        self._rates.append((joint, which, number(f"joint {joint.name!r}: its rate", rate)))

    def force(self, body: Body, force: ArrayLike | Function, *, at: Given = None) -> None:
        """A force at a point of a body (its origin by default): a vector, or `force(t, position, velocity)`.

        A string names a command: a parameter of the system with one number per dimension, initially zero.
        """
        if self._own_body("a force", body).fixed:
            raise InputError("a force cannot act on the ground")
        at = numbers("a force", "at", np.zeros(self.dimensions) if at is None else at, self.dimensions)
        fn = force if callable(force) or isinstance(force, str) else None
        if isinstance(force, str):
            self._name_command(force, (self.dimensions,))
        value = None if fn else jnp.asarray(numbers("a force", "force", force, self.dimensions))
        c = jnp.asarray(body.point_coefficients(at, "a force"))
        rated = callable(force) and depends_on_rate(bound(force, self._own), (), *[(self.dimensions,)] * 2)
        self._applied.append(AppliedForce(c, value, body.kind, body.particles, fn, rated))

    def torque(self, body: Body, torque: ArrayLike | Function) -> None:
        """A torque on a body in world coordinates: constant, `torque(t, rotation, angular_velocity)`, or a command."""
        self._own_body("a torque", body)
        if body.kind in ("point", "planar point", "ground"):
            raise InputError(f"a torque cannot act on {body.name!r}, a {body.kind}")
        fn = torque if callable(torque) or isinstance(torque, str) else None
        dim = self.dimensions
        if isinstance(torque, str):
            self._name_command(torque, (3,) if dim == 3 else ())
        value = None if fn else jnp.asarray(self._turning("a torque", "torque", torque))
        shapes = (), (dim, dim), (3,) if dim == 3 else ()
        rated = callable(torque) and depends_on_rate(bound(torque, self._own), *shapes)
        self._applied.append(AppliedTorque(jnp.asarray(body.axes), value, body.kind, body.particles, fn, rated))
