"""Accelerations, inverse dynamics, center of mass and momentum of a mechanism; dense, by NumPy.

`M a + G^T lambda = f`, `G a = -gamma` with `gamma = d^2g/dt^2` at `a = 0`; redundant rows do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...core.checks import number
from ...core.errors import InputError
from ...core.types import ArrayLike, HasRows, Numbers
from ...trace.functions import user_function_errors
from ...trace.stepwise import evaluate
from .assembly import RANK, Equations, row_sizes
from .bodies import Body, expand, frame_rate, pull
from .forms import Coordinate, CoordinateRow
from .frames import Frame
from .host import values
from .results import cross
from .terms import ProductRows

if TYPE_CHECKING:
    from xarray import Dataset

    from .joints import Joint
    from .mechanism import Mechanism


class SecondRate(eqx.Module):
    """The second derivative of a row along `x + s rate`."""

    row: Any

    def __call__(self, x: Numbers, data: dict[str, Any]) -> Any:
        rest = {name: value for name, value in data.items() if name != "rate"}
        first = lambda y: jax.jvp(lambda z: self.row(z, rest), (y,), (data["rate"],))[1]
        return jax.jvp(first, (x,), (data["rate"],))[1]


def frame_rates(equations: Equations, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Derivatives of the frames of all bodies, `(bodies, dim + 1, dim)`."""
    at = [list(body.particles) for body in equations.bodies]
    return np.stack([frame_rate(body.kind, q[k], v[k]) for body, k in zip(equations.bodies, at, strict=True)])


def _bends(equations: Equations, v: np.ndarray) -> np.ndarray:
    """Second derivatives of the frames at zero acceleration: only a plate's third director `d_1 x d_2` has one."""
    dim = v.shape[-1]
    out = np.zeros((len(equations.bodies), dim + 1, dim))
    for k, body in enumerate(equations.bodies):
        if body.kind == "plate":
            first, second = v[list(body.particles[1:])]
            out[k, 3] = 2 * np.cross(first, second)
    return out


def _coordinate_bend(c: Coordinate, frames: np.ndarray, rates: np.ndarray, bends: np.ndarray) -> float:
    pick = lambda x: {body.number: x[body.number][None] for body in c.bodies}
    x, data = c._given(pick(frames))
    rate, _ = c._given(pick(rates))
    value = float(values(SecondRate(CoordinateRow(c.kind, c.part)), x, rate=rate, **data)[0])
    if bends.any():
        slopes = c.over_frames(pick(frames))[1]
        value += sum(float(np.sum(slope[0] * bends[k])) for k, slope in slopes.items())
    return value


def bias(equations: Equations, q: np.ndarray, v: np.ndarray, t: float) -> np.ndarray:
    """`d^2g/dt^2` at zero acceleration, `(rows,)`."""
    frames, rates, bends = equations.frames(q), frame_rates(equations, q, v), _bends(equations, v)
    out = np.zeros(len(equations.owners))
    products, phases = equations._rows
    if products:
        x, data = equations._given(frames[None])
        rate, _ = equations._given(rates[None])
        rows = [k for k, _ in products]
        out[rows] = values(SecondRate(ProductRows((), None)), x, rate=rate, **data)
    if bends.any():
        for rows, bodies, _, slopes in equations.blocks(frames[None], np.array([t])):
            if len(rows) > 1 or rows[0] in dict(products):
                out[rows] += np.einsum("rbfd,rbfd->r", slopes[0], bends[bodies])
    for k, row in phases:
        total = sum(n * _coordinate_bend(c, frames, rates, bends) for n, c in row.terms)
        if row.drive is not None:
            slope = jax.grad(lambda s, row=row: jnp.asarray(row.drive(s), float))
            total -= float(jax.grad(slope)(float(t)))
        out[k] = total / row.scale
    return out


def applied(mechanism: Mechanism, q: np.ndarray, v: np.ndarray, t: float) -> np.ndarray:
    """Weight, springs, dampers, motors and applied forces, in the shape of q."""
    numbers = {name: np.asarray(x, float) for name, x in (mechanism.parameters() | mechanism.commands()).items()}
    shapes = tuple((name, x.shape) for name, x in numbers.items())
    key = (mechanism._revision(), q.shape, tuple(mechanism.gravity), shapes)
    if mechanism._force_program is None or mechanism._force_program[0] != key:
        potential, force = mechanism._potential(), mechanism._force()

        def both(x: Numbers, u: Numbers, s: Numbers, *values: Numbers) -> Any:
            total = -jax.grad(potential)(x)
            return total if force is None else total + force(x, u, s, dict(zip(numbers, values, strict=True)))

        like = [jax.ShapeDtypeStruct(shape, q.dtype) for shape in (q.shape, q.shape, (), *(s for _, s in shapes))]
        with user_function_errors("force", q, "(t, position, rate) for motors"):
            program = jax.make_jaxpr(both)(*like)
        mechanism._force_program = (key, program)
    return evaluate(mechanism._force_program[1], [q, v, np.asarray(float(t)), *numbers.values()])[0]


def solve(
    mechanism: Mechanism, q: np.ndarray, v: np.ndarray, t: float, driven: list[tuple[Coordinate, float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Accelerations of the particles, and the generalized forces that the driven positions need.

    `driven` holds joint positions whose second derivatives are prescribed.
    """
    equations = mechanism.equations
    a, root = equations.scaled(q, t)
    gamma = bias(equations, q, v, t)
    if driven:
        frames, rates, bends = equations.frames(q), frame_rates(equations, q, v), _bends(equations, v)
        more = np.stack([c.value_and_slopes(q)[1].reshape(-1) for c, _ in driven])
        own = [_coordinate_bend(c, frames, rates, bends) - x for c, x in driven]
        a, gamma = np.concatenate([a, more / root]), np.concatenate([gamma, own])
    units = row_sizes(a, np.ones(q.size))
    a, gamma = a / units[:, None], gamma / units
    f = applied(mechanism, q, v, t).reshape(-1) / root
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    kept = s > RANK * s.max(initial=0.0)
    u, s, vt = u[:, kept], s[kept], vt[kept]
    x = f
    for _ in range(2):
        x = x - vt.T @ (u.T @ (a @ x + gamma) / s)
    forces = np.zeros(0)
    if driven:
        forces = (u @ ((vt @ (x - f)) / s))[len(a) - len(driven) :] / units[len(a) - len(driven) :]
    return (x / root).reshape(q.shape), forces


def add_stops(mechanism: Mechanism, ranges: list[tuple[Joint, float, float]], time: float | None) -> None:
    """Stops of joints: elastic with the stiffness `inertia / time^2` of the start, or bouncing if `time` is None."""
    if not ranges:
        return
    equations, (q, _, _) = mechanism.equations, mechanism._start()
    a, root = equations.scaled(q, 0.0)
    a = a / row_sizes(a, np.ones(q.size))[:, None]
    s = np.stack([joint.coordinates[0].value_and_slopes(q)[1].reshape(-1) for joint, _, _ in ranges]) / root
    free = s - (np.linalg.lstsq(a.T, s.T, rcond=RANK)[0].T @ a)
    for (joint, lower, upper), mobility in zip(ranges, np.sum(free**2, axis=1), strict=True):
        if mobility > RANK * np.sum(s**2, axis=1).max():
            mechanism.stop(joint, lower, upper, stiffness=None if time is None else float(1 / mobility) / time**2)


def _state(
    mechanism: Mechanism, q: ArrayLike | Mapping[str, float], v: ArrayLike | Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Particles and their velocities, from arrays or from joint positions and rates by name."""
    shape = (mechanism._particles, mechanism.dimensions)
    if isinstance(q, Mapping) != isinstance(v, Mapping):
        raise InputError("give q and v both as arrays in the shape of problem.q0, or both by joint names")
    if not isinstance(q, Mapping):
        arrays = [np.asarray(x, float) for x in (q, v)]
        if any(x.shape != shape for x in arrays):
            raise InputError(f"q and v must have the shape {shape} of problem.q0, not {[x.shape for x in arrays]}")
        return arrays[0], arrays[1]
    with mechanism._unchanged():
        mechanism.configure(q, v)
        return mechanism._consistent(0.0)


def _positions(mechanism: Mechanism) -> list[tuple[str, Coordinate]]:
    """Joints that have one position, and those with several as `name[k]`, in their order."""
    out = []
    for joint in mechanism.joints:
        if joint.place is not None and joint.kind not in ("drive", "distance"):
            several = len(joint.coordinates) > 1
            out += [(f"{joint.name}[{k}]" if several else joint.name, c) for k, c in enumerate(joint.coordinates)]
    return out


def acceleration(
    mechanism: Mechanism, q: ArrayLike | Mapping[str, float], v: ArrayLike | Mapping[str, float], t: float
) -> Any:
    """See `Mechanism.acceleration`."""
    x, u = _state(mechanism, q, v)
    a, _ = solve(mechanism, x, u, float(t), [])
    if not isinstance(q, Mapping):
        return a
    equations = mechanism.equations
    frames, rates, bends = equations.frames(x), frame_rates(equations, x, u), _bends(equations, u)
    along = lambda c: float(np.sum(c.value_and_slopes(x)[1] * a)) + _coordinate_bend(c, frames, rates, bends)
    return {name: along(c) for name, c in _positions(mechanism)}


def inverse_dynamics(
    mechanism: Mechanism,
    q: ArrayLike | Mapping[str, float],
    v: ArrayLike | Mapping[str, float],
    a: Any,
    t: float,
) -> dict[str, float]:
    """See `Mechanism.inverse_dynamics`."""
    if not isinstance(a, Mapping):
        raise InputError('a must give accelerations by joint names, such as {"elbow": 1.0}')
    known = dict(_positions(mechanism))
    driven = []
    for name, value in a.items():
        found = known.get(name, known.get(f"joint {name}"))
        if found is None:
            raise InputError(f"there is no joint position {name!r}; there are {', '.join(known)}")
        driven.append((found, float(number(f"the acceleration of joint {name!r}", value))))
    x, u = _state(mechanism, q, v)
    _, forces = solve(mechanism, x, u, float(t), driven)
    return dict(zip(a, forces.tolist(), strict=True))


def _twist(q: np.ndarray, body: Body, point: np.ndarray) -> np.ndarray:
    """Velocity of a point of a body and angular velocity `1/2 sum_i d_i x d_i'` as sums over the particles."""
    dim = q.shape[-1]
    out = np.zeros((dim + (3 if dim == 3 else 1), *q.shape))
    if body.fixed:
        return out
    at = list(body.particles)
    c = body.point_coefficients(point, f"body {body.name!r}")
    out[:dim, at] = pull(body.kind, q[at], c[:, None] * np.eye(dim)[:, None, :])
    d = expand(body.kind, q[at], np)[1:]
    turned = [np.cross(e, d) for e in np.eye(3)] if dim == 3 else [np.stack([-d[:, 1], d[:, 0]], axis=1)]
    share = 1.0 if body.kind == "rod" else 0.5
    out[dim:, at] = pull(body.kind, q[at], np.stack([share * np.vstack([np.zeros(dim), x]) for x in turned]))
    return out


def _bases(mechanism: Mechanism) -> list[Body]:
    """The first body of each part of the mechanism that no joint leads to the ground from."""
    leader = {body.number: body.number for body in mechanism.bodies} | {-1: -1}

    def root(k: int) -> int:
        while leader[k] != k:
            k = leader[k]
        return k

    for joint in (x for x in mechanism.joints if x.kind != "rotor"):
        first, second = sorted((root(joint.a.number), root(joint.b.number)))
        leader[second] = first
    return [mechanism.bodies[k] for k in leader if k >= 0 and leader[k] == k and not mechanism.bodies[k].rotor]


def jacobian(mechanism: Mechanism, frame: Body | Frame, q: ArrayLike | Mapping[str, float]) -> Any:
    """See `Mechanism.jacobian`."""
    body = frame if isinstance(frame, Body) else frame.body
    point = np.zeros(mechanism.dimensions) if isinstance(frame, Body) else frame.at
    named = isinstance(q, Mapping)
    x = _state(mechanism, q, {})[0] if named else np.asarray(q, float)
    if x.shape != (mechanism._particles, mechanism.dimensions):
        raise InputError(f"q must have the shape {(mechanism._particles, mechanism.dimensions)}, not {x.shape}")
    twist = _twist(x, body, point)
    if not named:
        return twist
    known = _positions(mechanism)
    rates = np.stack([c.value_and_slopes(x)[1].reshape(-1) for _, c in known])
    held = [_twist(x, base, np.zeros(mechanism.dimensions)).reshape(-1, x.size) for base in _bases(mechanism)]
    rows = np.concatenate([mechanism.equations.jacobian(x), *held, rates])
    units = row_sizes(rows, np.ones(x.size))
    target = np.zeros((len(rows), len(known)))
    target[len(rows) - len(known) :] = np.eye(len(known))
    found = np.linalg.lstsq(rows / units[:, None], target / units[:, None], rcond=1e-11)[0]
    missed = np.abs(rows @ found - target).max(axis=0)
    stuck = [name for (name, _), gap in zip(known, missed, strict=True) if gap > 1e-6]
    if stuck:
        raise InputError(
            f"joints {', '.join(stuck[:6])} do not move alone; give q as an array in the shape of problem.q0"
        )
    return dict(zip((name for name, _ in known), (twist.reshape(len(twist), -1) @ found).T, strict=True))


def center_of_mass(mechanism: Mechanism, sol: HasRows) -> np.ndarray:
    """See `Mechanism.center_of_mass`."""
    bodies = [body for body in mechanism.bodies if not body.rotor]
    masses = np.array([body.mass for body in bodies])
    return np.einsum("b,...bd->...d", masses, np.asarray(sol.q)[..., [b.first for b in bodies], :]) / masses.sum()


def momentum(mechanism: Mechanism, sol: HasRows, about: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """See `Mechanism.momentum`."""
    about = np.zeros(mechanism.dimensions) if about is None else np.asarray(about, float)
    linear, angular = 0.0, 0.0
    for body in mechanism.bodies:
        if body.rotor:
            continue
        p = np.asarray(sol.p)[..., body.first, :]
        linear = linear + p
        angular = angular + cross(np.asarray(sol.q)[..., body.first, :] - about, p)
        if len(body.particles) > 1:
            angular = angular + body.angular_momentum(sol)
    return np.asarray(linear), np.asarray(angular)


def add_to_dataset(mechanism: Mechanism, data: Dataset, sol: HasRows) -> Any:
    """Positions and rates of all joints, and positions of all bodies and frames, along a solution, by name."""
    known = _positions(mechanism)
    velocity = np.asarray(sol.p) / mechanism._start()[2][:, None]
    positions, rates = [], []
    for _, c in known:
        value, slope = c.value_and_slopes(sol.q)
        positions.append(np.unwrap(value) if c.kind == "angle" else value)
        rates.append(np.sum(slope * velocity, axis=(-2, -1)))
    places = {body.name: body for body in mechanism.bodies if not body.rotor} | dict(mechanism.frames)
    where = np.stack([place.position(sol) for place in places.values()], axis=1)
    names = [name for name, _ in known]
    if known:
        data = data.assign(joint_position=(("t", "joint"), np.stack(positions, 1)))
        data = data.assign(joint_rate=(("t", "joint"), np.stack(rates, 1))).assign_coords(joint=names)
    data = data.assign(frame_position=(("t", "frame", "xyz"), where))
    return data.assign_coords(frame=list(places), xyz=list("xyz"[: mechanism.dimensions]))
