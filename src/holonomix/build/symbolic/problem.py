"""`from_sympy`: a Lagrangian in SymPy as a `Problem`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...core.checks import is_traced, short_repr
from ...core.columns import RESERVED
from ...core.errors import InputError
from ...core.types import Array, ArrayLike, known_array
from ...mechanics import Problem, Rheonomic, System
from ...mechanics.mass import ParameterMass
from ...mechanics.projection import project
from ...trace.signatures import Parametrized, TimeDependent
from .expressions import Expressions
from .library import as_expression, sympy_module
from .terms import DIGITS, Lagrangian, Symbols, gradient_of, reduced, split, vanishes


class Equations(NamedTuple):
    """A system in SymPy objects: its Lagrangian, coordinates, constraints and generalized forces."""

    lagrangian: Any
    coordinates: Sequence[Any]
    constraints: Any = ()
    forces: Any = None
    speeds: Sequence[Any] | None = None


def from_sympy(
    lagrangian: Any,
    coordinates: Any = None,
    constraints: Any = (),
    forces: Any = None,
    parameters: Any = None,
    *,
    speeds: Any = None,
    q0: Any = None,
    v0: Any = None,
    dt: float = 0.01,
    t1: float = 10.0,
    name: str = "",
) -> Problem:
    """The problem of a Lagrangian, or of a `System`, `LagrangesMethod` or `KanesMethod` of `sympy.physics.mechanics`.

    `coordinates` are dynamic symbols, whose derivatives are the speeds, or plain symbols with `speeds`, symbols in the
    same order. The Lagrangian must be at most quadratic in the speeds, `L = v^T M(q) v / 2 + A(q, t) . v - V(q, t)`.
    `constraints` are equations, or expressions in coordinates and time that must vanish; a dict names them. `forces`
    are generalized forces in coordinates, speeds and time: a dict from coordinate to expression, or a list.
    `parameters` maps symbols, or their names, to numbers, which become the `params` of the system. It maps a dynamic
    symbol that is not a coordinate to its prescribed motion, an expression in time.

    `q0` and `v0` are dicts from coordinate (or name) to number, or lists; missing entries are zero. With constraints,
    they are projected to the nearest consistent state. The momentum is `p = M v + A`. The Lagrangian is simplified
    without changing the motion: total time derivatives are dropped, and forces that derive from a potential become part
    of it.
    """
    sympy = sympy_module()
    from .bodies import reader_of

    read = reader_of(lagrangian)
    if read is not None:
        given = {"coordinates": coordinates, "constraints": constraints, "forces": forces, "speeds": speeds}
        if extra := [key for key, value in given.items() if value is not None and value != ()]:
            raise InputError(f"a {type(lagrangian).__name__} has {', '.join(extra)} of its own: leave them out here")
        found = read(lagrangian)
    else:
        if not isinstance(coordinates, (Sequence, sympy.MatrixBase)) or isinstance(coordinates, str):
            raise InputError("coordinates must be given: the list of generalized coordinates of the Lagrangian")
        found = Equations(lagrangian, coordinates, constraints, forces, speeds)
    values, motions = _parameters(parameters)
    reader = Reader(found, values, motions)
    system = reader.system()
    q, v = (reader.start(key, x) for key, x in (("q0", q0), ("v0", v0)))
    p = reader.momentum(system, q, v)
    if system.has_constraints:
        q, p = project(system, q, p)
    return Problem(system, q, p, dt, t1, name=name or "from SymPy", coordinates=reader.names)


def _parameters(given: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Values by name, and prescribed motions by dynamic symbol."""
    sympy = sympy_module()
    AppliedUndef = sympy_module("sympy.core.function").AppliedUndef

    values, motions = {}, {}
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"parameters must be a dict from symbols to numbers, not {short_repr(given)}")
    for key, value in (given or {}).items():
        if value is None:
            raise InputError(f"the parameter {key} must be a number, not None")
        if isinstance(key, AppliedUndef):
            motions[key] = as_expression(f"the motion of {key}", value)
            continue
        if not isinstance(key, (str, sympy.Symbol)):
            raise InputError(f"the keys of parameters must be symbols or their names, not {short_repr(key)}")
        if isinstance(value, sympy.Basic) and not (value.is_number and value.is_real):
            raise InputError(f"the parameter {key} must be a number, not {value}; substitute expressions beforehand")
        number = float(value) if isinstance(value, sympy.Basic) else value
        if np.ndim(number) or not (is_traced(number) or np.isrealobj(np.asarray(number))):
            raise InputError(f"the parameter {key} must be one real number, not {short_repr(value)}")
        if str(key) in values:
            raise InputError(f"parameters has two values for {key}: by symbol and by name, or two symbols of that name")
        try:
            values[str(key)] = known_array(number, jnp.result_type(float))
        except (TypeError, ValueError) as error:
            raise InputError(f"the parameter {key} must be a number, not {short_repr(value)}") from error
    return values, motions


class Reader:
    """Expressions with plain symbols for coordinates, speeds and time, and the system made of them."""

    def __init__(self, equations: Equations, values: dict[str, Any], motions: dict[Any, Any]):
        sympy = sympy_module()
        AppliedUndef = sympy_module("sympy.core.function").AppliedUndef
        dynamicsymbols = sympy_module("sympy.physics.mechanics").dynamicsymbols

        self.coordinates = tuple(as_expression("a coordinate", x) for x in equations.coordinates)
        for x in self.coordinates:
            if not isinstance(x, (sympy.Symbol, AppliedUndef)) or len(x.args) > 1:
                raise InputError(f"a coordinate must be a dynamic symbol or a symbol, not {x}")
        dynamic = [isinstance(x, AppliedUndef) for x in self.coordinates]
        times = {x.args[0] for x in self.coordinates if x.args} or {dynamicsymbols._t}
        if len(times) > 1 or (self.coordinates and 0 < sum(dynamic) < len(dynamic)) or not self.coordinates:
            several = f"; their times are {', '.join(sorted(map(sympy.srepr, times)))}" if len(times) > 1 else ""
            raise InputError(
                f"coordinates must be functions of one time, or plain symbols: {self.coordinates}{several}"
            )
        (self.time,) = times
        if all(dynamic) and equations.speeds is None:
            speeds = tuple(sympy.Derivative(x, self.time) for x in self.coordinates)
        elif equations.speeds is None:
            raise InputError("coordinates that are plain symbols need speeds=[...], symbols in the same order")
        else:
            speeds = tuple(as_expression("a speed", x) for x in equations.speeds)
        if len(speeds) != len(self.coordinates):
            raise InputError(f"{len(self.coordinates)} coordinates need as many speeds, not {len(speeds)}")
        self.names = tuple(x.func.__name__ if x.args else x.name for x in self.coordinates)
        for label in self.names:
            if self.names.count(label) > 1 or label in RESERVED:
                why = "stands for two coordinates" if self.names.count(label) > 1 else "names a column of every run"
                raise InputError(f"the name {label!r} of a coordinate {why}: choose another one")
        dummy = lambda label: sympy.Dummy(label, real=True)
        self.q, self.v = (tuple(dummy(label + end) for label in self.names) for end in ("", "'"))
        self.t = dummy("t")
        self.plain_symbols = dict(zip(speeds, self.v)) | dict(zip(self.coordinates, self.q)) | {self.time: self.t}
        self.motions, self.values = motions, values
        self.lagrangian = self.plain("the Lagrangian", equations.lagrangian)
        self.constraints = self._constraints(equations.constraints)
        self.forces = self._forces(equations.forces)
        self.symbols = self._symbols()

    def plain(self, what: str, expression: Any) -> Any:
        """The expression with plain symbols; raises if it contains anything unknown."""
        sympy = sympy_module()
        AppliedUndef = sympy_module("sympy.core.function").AppliedUndef

        x = as_expression(what, expression)
        x = x[0] if isinstance(x, sympy.MatrixBase) and x.shape == (1, 1) else x
        if isinstance(x, sympy.Equality):
            x = x.lhs - x.rhs
        if not isinstance(x, sympy.Expr):
            raise InputError(f"{what} must be an expression of SymPy, not {short_repr(expression)}")
        if left := x.atoms(sympy.Integral, sympy.Sum, sympy.Product):
            raise InputError(f"{what} contains {min(left, key=str)}, which is not evaluated: call .doit() beforehand")
        known = self.plain_symbols
        if self.motions or any(y not in known for y in x.atoms(sympy.Derivative)):
            x = x.xreplace(self.motions).doit()
        unknown = sorted((y for y in x.atoms(AppliedUndef) if y not in known), key=str)
        for y in unknown:
            self.check_time(what, y)
        if lost := [str(y) for y in unknown]:
            raise InputError(
                f"{what} contains {', '.join(lost)}, which is not a coordinate: add it to coordinates, or prescribe "
                f"its motion, parameters={{{lost[0]}: expression of t}}"
            )
        for y in x.atoms(sympy.Derivative):
            if y not in known:
                raise InputError(f"{what} contains {y}, which is not the speed of a coordinate")
        x = x.xreplace(known)
        twins = {y: self.t for y in x.free_symbols if y.name == "t" and y not in (self.t, *self.q, *self.v)}
        return x.xreplace(twins) if twins and "t" not in self.values else x

    def check_time(self, what: str, function: Any) -> None:
        """Raise if a function and the coordinates use different time symbols, which may print the same."""
        srepr, time = sympy_module().srepr, function.args[0]
        similar = function.func.__name__ in self.names or str(time) == str(self.time)
        if similar and len(function.args) == 1 and time.is_Symbol and time != self.time:
            raise InputError(
                f"{what} contains {function} of the time {srepr(time)}, but the time of the coordinates is "
                f"{srepr(self.time)}: use one symbol, such as t = dynamicsymbols._t, for both"
            )

    def show(self, expression: Any) -> str:
        """The text of an expression, for errors."""
        sympy = sympy_module()

        back = {x: sympy.Symbol(x.name) for x in (*self.q, *self.v, self.t)}
        text = str(expression.xreplace(back))
        return text if len(text) <= 120 else text[:117] + "..."

    def _constraints(self, given: Any) -> dict[str | None, list[Any]]:
        """Name -> expressions; None is the key of those without a name."""
        sympy = sympy_module()

        single = isinstance(given, (sympy.Basic, str))
        groups = given.items() if isinstance(given, Mapping) else [(None, [given] if single else list(given or ()))]
        found: dict[str | None, list[Any]] = {}
        for label, group in groups:
            several = list(group) if isinstance(group, (list, tuple, sympy.MatrixBase)) else [group]
            for k, expression in enumerate(several):
                what = f"constraint {k}" if label is None else f"constraint {label!r}"
                x = self.plain(what, expression)
                if x.free_symbols & set(self.v):
                    raise InputError(
                        f"{what} contains speeds: {self.show(x)}. Only constraints between positions (and time) are "
                        "supported; if it is the derivative of one, give that one; see docs/scope.md"
                    )
                if not x.free_symbols & set(self.q):
                    raise InputError(f"{what} contains no coordinate: {self.show(x)}")
                found.setdefault(label, []).append(x)
        return found

    def _forces(self, given: Any) -> list[Any]:
        sympy = sympy_module()

        n, zero = len(self.q), sympy.Integer(0)
        if given is None:
            return [zero] * n
        if isinstance(given, Mapping):
            forces = [zero] * n
            for key, expression in given.items():
                forces[self.place("forces", key)] = self.plain(f"the force on {key}", expression)
            return forces
        if not isinstance(given, (Sequence, np.ndarray, sympy.MatrixBase)) or isinstance(given, str):
            raise InputError(
                f"forces must be a dict from coordinate to force, or a list for {', '.join(self.names)}, not "
                f"{short_repr(given)}"
            )
        given = list(given)
        if len(given) != n:
            raise InputError(f"forces has {len(given)} entries; there are {n} coordinates")
        return [self.plain(f"force {k}", x) for k, x in enumerate(given)]

    def place(self, what: str, key: Any) -> int:
        """The number of a coordinate."""
        label = key if isinstance(key, str) else None
        for k, (x, known) in enumerate(zip(self.coordinates, self.names, strict=True)):
            if key == x or label == known:
                return k
        if isinstance(key, sympy_module("sympy.core.function").AppliedUndef):
            self.check_time(what, key)
        raise InputError(f"{what} names {key}, which is not a coordinate; there are {', '.join(self.names)}")

    def _symbols(self) -> Symbols:
        every = [self.lagrangian, *self.forces, *(x for group in self.constraints.values() for x in group)]
        own = {*self.q, *self.v, self.t}
        free = {x for expression in every for x in expression.free_symbols} - own
        if missing := sorted({x.name for x in free} - set(self.values)):
            advice = ", ".join(f"{label!r}: ..." for label in missing)
            raise InputError(f"no value for {', '.join(missing)}: give parameters={{{advice}}}")
        return Symbols(self.q, self.v, self.t, {x: x.name for x in free})

    # -- the system

    def system(self) -> System:
        parts = split(self.lagrangian, self.symbols, self.show)
        mass, vector, potential = self._simplified(parts)
        vector, change, forces = self._split_vector_potential(vector)
        momenta = [sum((x * y for x, y in zip(row, self.v)), a) for row, a in zip(mass, vector, strict=True)]
        self._momenta = self.symbols.code(momenta)
        potential += change
        forces = [a + b for a, b in zip(forces, self.forces, strict=True)]
        steady, moving = zip(*(x.as_independent(*self.v, as_Add=True) for x in forces), strict=True)
        if any(x != 0 for x in steady):
            work = gradient_of(steady, self.symbols)
            potential, forces = (potential, forces) if work is None else (potential - work, list(moving))
        n = len(self.q)
        V = self._function([potential], (), "q", *self._if_used("t", [potential]))
        constraint = self._constraint_terms()
        F = None
        if any(x != 0 for x in forces):
            F = self._function(forces, (n,), "q", "v", "t")
        return System(
            TimeDependent(V) if "t" in V.takes else V,
            constraint,
            self._mass(mass),
            F if F is None or not self.values else Parametrized(F),
            self.values or None,
            None if not any(x != 0 for x in vector) else self._function(vector, (n,), "q"),
        )

    def _simplified(self, parts: Lagrangian) -> tuple[list[list[Any]], list[Any], Any]:
        n = len(self.q)
        upper = [(i, j) for i in range(n) for j in range(i, n)]
        found = reduced([*(parts.mass[i][j] for i, j in upper), *parts.vector], self.symbols)
        mass: list[list[Any]] = [[None] * n for _ in range(n)]
        for (i, j), x in zip(upper, found[: len(upper)], strict=True):
            mass[i][j] = mass[j][i] = x
        for i, label in enumerate(self.names):
            if all(x == 0 for x in mass[i]):
                raise InputError(
                    f"the Lagrangian has no kinetic energy of {label}: no term is quadratic in its speed. Eliminate "
                    f"{label}, or give it a mass"
                )
            for x in mass[i]:
                if self.t in x.free_symbols:
                    raise InputError(
                        f"the mass M(q) depends on time: {self.show(x)}. Make the prescribed motion a coordinate with "
                        "a kinetic energy, and add a constraint that contains t (coordinate - motion)"
                    )
        return mass, found[len(upper) :], parts.potential

    def _split_vector_potential(self, vector: list[Any]) -> tuple[list[Any], Any, list[Any]]:
        """A vector potential A(q), a potential V(q, t) and a force that act together as A(q, t) does.

        A gradient grad chi(q, t) is the total derivative of chi, less its derivative with respect to time.
        """
        sympy = sympy_module()

        zero, n = sympy.Integer(0), len(self.q)
        none = [zero] * n
        if all(x == 0 for x in vector):
            return none, zero, none
        curl = self._curl(vector)
        flat = all(vanishes(x, self.symbols) for row in curl for x in row)
        if not any(self.t in x.free_symbols for x in vector):
            return (none if flat else vector), zero, none
        fixed = none if flat else [x.subs(self.t, 0) for x in vector]
        rest = [x - y for x, y in zip(vector, fixed, strict=True)]
        if any(x.has(sympy.oo, sympy.zoo, sympy.nan) for x in fixed) or not (
            flat or all(vanishes(x, self.symbols) for row in self._curl(rest) for x in row)
        ):
            turning = [sum((curl[i][j] * self.v[j] for j in range(n)), zero) for i in range(n)]
            return none, zero, [x - sympy.diff(y, self.t) for x, y in zip(turning, vector, strict=True)]
        chi = gradient_of(rest, self.symbols)
        if chi is None:
            return fixed, zero, [-sympy.diff(x, self.t) for x in rest]
        return fixed, sympy.diff(chi, self.t), none

    def _curl(self, field: Sequence[Any]) -> list[list[Any]]:
        """`d_i A_j - d_j A_i`."""
        sympy = sympy_module()

        slope = [[sympy.diff(x, y) for x in field] for y in self.q]
        n = range(len(field))
        return [[slope[i][j] - slope[j][i] for j in n] for i in n]

    def _if_used(self, kind: str, expressions: Sequence[Any]) -> tuple[str, ...]:
        return (kind,) if any(self.t in x.free_symbols for x in expressions) else ()

    def _function(self, expressions: Sequence[Any], shape: tuple[int, ...], *takes: str) -> Expressions:
        takes = (*takes, "params") if self.values else takes
        return Expressions(self.symbols.code(expressions), takes, shape)

    def _mass(self, mass: list[list[Any]]) -> Any:
        n = len(self.q)
        diagonal = all(mass[i][j] == 0 for i in range(n) for j in range(n) if i != j)
        entries = [mass[i][i] for i in range(n)] if diagonal else [x for row in mass for x in row]
        shape = (n,) if diagonal else (n, n)
        if any(x.free_symbols & set(self.q) for x in entries):
            fn = self._function(entries, shape, "q")
            return Parametrized(fn) if self.values else fn
        if any(x.free_symbols for x in entries):
            return ParameterMass(Expressions(self.symbols.code(entries), ("params",), shape))
        return np.array([float(x) for x in entries]).reshape(shape)

    def _constraint_terms(self) -> Any:
        terms: dict[str | None, Callable[..., Any]] = {}
        for label, group in self.constraints.items():
            timed = self._if_used("t", group)
            fn = self._function(group, (len(group),), "q", *timed)
            terms[label] = Rheonomic(fn) if timed else fn
        return terms.get(None) if None in terms else terms or None

    def momentum(self, system: System, q: Array, v: Array) -> Any:
        """`M v + A`; correctly rounded if all numbers are known, because then no program has to be compiled."""
        if is_traced(q, v, self.values):
            return system.momentum(q, v)
        import mpmath

        number = lambda x: mpmath.mpf(float(x))
        given: dict[str, Any] = {"q": [number(x) for x in q], "v": [number(x) for x in v]}
        given["params"] = {name: number(x) for name, x in self.values.items()}
        with mpmath.workdps(DIGITS):
            try:
                found = [float(x) for x in self._momenta.precise(given)]
            except (ZeroDivisionError, ValueError, TypeError, OverflowError) as error:
                raise InputError("the mass or the vector potential has no value at q0: start elsewhere") from error
        return known_array(np.array(found), jnp.result_type(float))

    def start(self, what: str, given: Any) -> Any:
        """A start from a dict or a list."""
        n = len(self.q)
        if isinstance(given, Mapping):
            found: list[ArrayLike] = [0.0] * n
            for key, x in given.items():
                found[self.place(what, key)] = x
            given = found
        if given is None:
            given = [0.0] * n
        if np.shape(given) != (n,) if not is_traced(given) else len(given) != n:
            raise InputError(f"{what} has shape {np.shape(given)}; there are {n} coordinates: {', '.join(self.names)}")
        if is_traced(given):
            return jnp.stack([jnp.asarray(x, float) for x in given])
        try:
            return known_array(np.array([float(x) for x in given]), jnp.result_type(float))
        except TypeError as error:
            raise InputError(f"{what} must hold numbers, not {short_repr(given)}") from error
