"""Systems of `sympy.physics.mechanics` as a Lagrangian with generalized forces.

`LagrangesMethod` has a Lagrangian. `KanesMethod` and `System` describe the same motion by bodies, loads and generalized
speeds. Substituting the kinematic differential equations into their kinetic energy T(q, u) gives that of the
Lagrangian. Loads become generalized forces `sum F . dv/dq'`. Constant forces on points derive from a potential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...core.errors import InputError
from .library import sympy_module
from .problem import Equations


def reader_of(given: Any) -> Callable[[Any], Equations] | None:
    """The function that converts an object of `sympy.physics.mechanics`, or None for other objects."""
    mechanics = sympy_module("sympy.physics.mechanics")
    kinds = {mechanics.LagrangesMethod: _of_lagrange, mechanics.KanesMethod: _of_kane}
    kinds[sympy_module("sympy.physics.mechanics.system").System] = _of_system
    return next((read for kind, read in kinds.items() if isinstance(given, kind)), None)


def _of_kane(given: Any) -> Equations:
    known = given.q, given.u, [rate - value for rate, value in given.kindiffdict().items()], given.bodies, given.loads
    velocity = list(given._k_nh * given.u + given._f_nh) if given._k_nh else []
    return _of_bodies(given._inertial, known, list(given._f_h), velocity, list(given._uaux), "KanesMethod")


def _of_system(given: Any) -> Equations:
    loads = [*given.loads, *(load for actuator in given.actuators for load in actuator.to_loads())]
    known = given.q, given.u, list(given.kdes), given.bodies, loads
    holonomic, velocity = list(given.holonomic_constraints), list(given.velocity_constraints)
    return _of_bodies(given.frame, known, holonomic, velocity, list(given.u_aux), "System")


def _of_lagrange(given: Any) -> Equations:
    sympy = sympy_module()
    dynamicsymbols = sympy_module("sympy.physics.mechanics").dynamicsymbols

    t = dynamicsymbols._t
    holonomic = list(given._hol_coneqs)
    rates = list(given.coneqs)[len(holonomic) :]
    if rates:
        raise InputError(
            f"LagrangesMethod has a constraint on speeds, {_short(rates[0])}; only constraints between positions are "
            "supported: give its integral as hol_coneqs, if there is one, and see docs/scope.md"
        )
    q = list(given.q)
    speeds = [sympy.Derivative(x, t) for x in q]
    potential, forces = _forces(given.forcelist or (), given.inertial, q, speeds, {})
    return Equations(given._L[0] - potential, q, holonomic, forces)


def _of_bodies(
    frame: Any, known: tuple[Any, ...], holonomic: list[Any], velocity: list[Any], auxiliary: list[Any], kind: str
) -> Equations:
    sympy = sympy_module()
    dynamicsymbols = sympy_module("sympy.physics.mechanics").dynamicsymbols
    kinetic_energy = sympy_module("sympy.physics.mechanics").kinetic_energy

    t = dynamicsymbols._t
    q, u, kinematics, bodies, loads = known
    q, u = list(q), [x for x in u if x not in auxiliary]
    if auxiliary:
        raise InputError(f"{kind} has auxiliary speeds ({', '.join(map(str, auxiliary))}): leave them out")
    if not bodies:
        raise InputError(f"{kind} has no bodies: their kinetic energy is needed, so give bodies=[...]")
    if len(u) != len(q):
        raise InputError(f"{kind} has {len(u)} speeds for {len(q)} coordinates; every coordinate needs one")
    speeds = [sympy.Derivative(x, t) for x in q]
    replaced = _solve(kinematics, u, speeds, kind)
    rates = [sympy.diff(x, t) for x in holonomic]
    for row in velocity:
        if row not in rates and not _follows(row.xreplace(replaced), rates, q, speeds):
            raise InputError(
                f"{kind} has a constraint on speeds that is not the derivative of its configuration constraints: "
                f"{_short(row)}; rolling and other nonholonomic constraints are not supported, see docs/scope.md"
            )
    energy = sympy.sympify(kinetic_energy(frame, *bodies)).xreplace(replaced)
    potential, forces = _forces(loads or (), frame, q, speeds, replaced)
    return Equations(energy - potential, q, [x.xreplace(replaced) for x in holonomic], forces)


def _solve(kinematics: Sequence[Any], u: Sequence[Any], speeds: Sequence[Any], kind: str) -> dict[Any, Any]:
    """The generalized speeds in terms of the derivatives of the coordinates."""
    sympy = sympy_module()

    equations = sympy.Matrix(list(kinematics))
    slope = equations.jacobian(list(u)) if len(equations) else sympy.Matrix()
    if slope.shape != (len(u), len(u)) or any(slope.has(x) for x in (*u, *speeds)):
        raise InputError(f"{kind} needs one kinematic differential equation, linear in the speeds, for every speed")
    rest = equations.xreplace(dict.fromkeys(u, sympy.Integer(0)))
    try:
        found = -slope.LUsolve(rest) if not slope.is_diagonal() else -slope.inv() * rest
    except (ValueError, sympy.matrices.exceptions.NonInvertibleMatrixError) as error:
        raise InputError(f"the kinematic differential equations of {kind} do not determine the speeds") from error
    return dict(zip(u, (sympy.expand(x) if sympy.count_ops(x) < 200 else x for x in found), strict=True))


def _follows(row: Any, rates: Sequence[Any], q: Sequence[Any], speeds: Sequence[Any]) -> bool:
    """Whether a constraint on speeds is a combination of derivatives of position constraints, at random states."""
    import numpy as np

    sympy = sympy_module()

    rows = sympy.Matrix([*rates, row])
    slope = rows.jacobian(list(speeds)).row_join(rows.xreplace(dict.fromkeys(speeds, sympy.Integer(0))))
    names = {x: sympy.Dummy() for x in q}
    slope = slope.xreplace(names)
    symbols, draws = sorted(slope.free_symbols, key=str), np.random.default_rng(1)
    evaluate = sympy.lambdify(symbols, slope, "numpy", cse=True)
    for _ in range(2):
        values = np.asarray(evaluate(*draws.uniform(0.5, 1.5, len(symbols))), float)
        values = values / np.linalg.norm(values, axis=1, keepdims=True)
        if np.linalg.matrix_rank(values, tol=1e-9) > np.linalg.matrix_rank(values[:-1], tol=1e-9):
            return False
    return True


def _forces(
    loads: Iterable[Any], frame: Any, q: Sequence[Any], speeds: Sequence[Any], replaced: Mapping[Any, Any]
) -> tuple[Any, list[Any]]:
    """The potential of the constant forces, and the generalized forces of the other loads."""
    sympy = sympy_module()
    Point = sympy_module("sympy.physics.mechanics").Point
    dynamicsymbols = sympy_module("sympy.physics.mechanics").dynamicsymbols
    find_dynamicsymbols = sympy_module("sympy.physics.mechanics.functions").find_dynamicsymbols

    t = dynamicsymbols._t
    potential, forces = sympy.Integer(0), [sympy.Integer(0)] * len(q)
    for where, vector in loads:
        if vector == 0:
            continue
        if frame is None:
            raise InputError("loads need the inertial frame: LagrangesMethod(..., frame=N)")
        constant = [sympy.trigsimp(x) for x in vector.to_matrix(frame)]
        place = _place(where, frame) if isinstance(where, Point) else None
        if place is not None and not any(find_dynamicsymbols(x) or x.has(t) for x in constant):
            potential -= sum((a * b for a, b in zip(constant, place.to_matrix(frame), strict=True)), sympy.Integer(0))
            continue
        motion = where.vel(frame) if isinstance(where, Point) else where.ang_vel_in(frame)
        components = [sympy.sympify(x).xreplace(dict(replaced)).doit() for x in motion.to_matrix(frame)]
        load = [sympy.sympify(x).xreplace(dict(replaced)) for x in vector.to_matrix(frame)]
        for k, rate in enumerate(speeds):
            forces[k] += sum((a * sympy.diff(b, rate) for a, b in zip(load, components, strict=True)), sympy.Integer(0))
    return potential, forces


def _place(point: Any, frame: Any) -> Any | None:
    """The position of a point relative to a fixed one, or None if none is known."""
    seen, queue = {point}, [point]
    while queue:
        here = queue.pop(0)
        if frame in here._vel_dict and here._vel_dict[frame] == 0:
            return point.pos_from(here)
        new = [x for x in here._pos_dict if x not in seen]
        seen.update(new)
        queue += new
    return None


def _short(x: Any) -> str:
    text = str(x)
    return text if len(text) <= 100 else text[:97] + "..."
