"""Load the problem of a run: a model of the package, or the user's own Python file."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holonomix.core.errors import HolonomixError

from .exits import CommandError
from .runfile import UNITS, RunSpec
from .suggest import kebab, unknown

if TYPE_CHECKING:
    from holonomix.mechanics.problem import Problem

USER_MODULE = "holonomix_user_system"
ROBOTS = (".urdf", ".xml")


def load_problem(spec: RunSpec) -> Problem:
    """Make the problem of a run: a model by its name, or what the user's Python file returns, which is executed.

    The start and the penalty (`omega`) of the run file replace those of the problem.
    """
    import holonomix as hx

    if spec.model is not None:
        problem = make_model(spec.model, spec.arguments)
    else:
        problem = _from_file(Path(str(spec.system)), spec.arguments, spec.start, spec.system_sha256)
    if spec.start:
        problem = _with_start(problem, spec.start)
    if spec.omega is not None:
        if not problem.system.has_constraints:
            raise CommandError("omega: the system has no constraint to replace by a stiff spring")
        problem = dataclasses.replace(problem, system=problem.system.penalized(spec.omega), reference=None)
    if not isinstance(problem, hx.Problem):
        raise CommandError(f"{spec.subject} is a {type(problem).__name__}, not a Problem")
    return problem


def make_model(name: str, arguments: dict[str, Any]) -> Any:
    """Make a model by its name, `double-pendulum` or `double_pendulum`."""
    from holonomix.build.models import MODELS, registry

    key = name.replace("-", "_")
    if key not in MODELS:
        raise CommandError(unknown("model", name, [kebab(m) for m in MODELS]))
    return _call_maker(registry()[key], name, arguments)


def _call_maker(make: Callable[..., Any], name: str, arguments: dict[str, Any]) -> Any:
    parameters = inspect.signature(make).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for argument in arguments:
        if argument not in parameters and not free:
            raise CommandError(
                unknown("argument", argument, parameters, f"arguments of {name}")
                if parameters
                else f"{name} takes no arguments, but {argument!r} was given"
            )
    try:
        return make(**arguments)
    except HolonomixError as error:
        raise CommandError(f"{name}: {error}") from error
    except Exception as error:
        given = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
        raise CommandError(f"{name}({given}): {type(error).__name__}: {error}") from error


def _with_start(problem: Problem, start: dict[str, Any]) -> Any:
    import jax.numpy as jnp

    import holonomix as hx

    values = {}
    for name in ("q", "p"):
        value = getattr(problem, f"{name}0")
        if name in start:
            try:
                given = jnp.asarray(start[name], float)
            except (TypeError, ValueError) as error:
                raise CommandError(f"start.{name}: not an array of numbers: {error}") from None
            if given.size != jnp.size(value):
                raise CommandError(f"start.{name}: {given.size} numbers, but {problem.name} has {jnp.size(value)}")
            value = given.reshape(jnp.shape(value))
        values[name] = value
    if start.get("project"):
        values["q"], values["p"] = hx.project(problem.system, values["q"], values["p"])
    return dataclasses.replace(problem, q0=values["q"], p0=values["p"], reference=None)


# ---- the user's own file


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(_bytes(path)).hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"system: {path} cannot be read: {error.strerror}") from None


def _from_file(path: Path, arguments: dict[str, Any], start: dict[str, Any], digest: str | None) -> Any:
    source = _bytes(path)
    if digest is not None and hashlib.sha256(source).hexdigest() != digest:
        raise CommandError(
            f"system: {path} is not the file that the run began with (its SHA-256 differs), so it is not executed. Put "
            f"the original back (the run's directory has a copy, system{path.suffix}), or start a new run"
        )
    if path.suffix in ROBOTS:
        return _from_robot(path, arguments)
    module = types.ModuleType(USER_MODULE)
    module.__file__ = str(path)
    sys.modules[USER_MODULE] = module
    if str(path.parent.absolute()) not in sys.path:
        sys.path.insert(0, str(path.parent.absolute()))
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
        return _problem_in(module, path, arguments, start)
    except CommandError:
        raise
    except HolonomixError as error:
        raise CommandError(f"{_place(error, path)}: {error}") from error
    except (Exception, SystemExit) as error:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise CommandError(f"{_place(error, path)}: {type(error).__name__}: {text}") from error


def _from_robot(path: Path, arguments: dict[str, Any]) -> Any:
    """A mechanism from a URDF or MJCF file, with the arguments of its reader."""
    from holonomix.build.mechanisms import mjcf, urdf

    make = urdf.from_urdf if path.suffix == ".urdf" else mjcf.from_mjcf
    known = [name for name in inspect.signature(make).parameters if name != "path"]
    for argument in arguments:
        if argument not in known:
            raise CommandError(unknown("argument", argument, known, f"arguments of {path.suffix} files"))
    try:
        return make(path, **arguments).problem()
    except HolonomixError as error:
        text = str(error)
        raise CommandError(text if str(path) in text else f"{path}: {text}") from error


def _problem_in(module: types.ModuleType, path: Path, arguments: dict[str, Any], start: dict[str, Any]) -> Any:
    import holonomix as hx

    found = getattr(module, "problem", None)
    if isinstance(found, hx.Problem):
        return found
    if callable(found):
        problem = _call_maker(found, f"problem() in {path.name}", arguments)
        if not isinstance(problem, hx.Problem):
            raise CommandError(f"{path}: problem() returned a {type(problem).__name__}, not an hx.Problem")
        return problem
    system = getattr(module, "system", None)
    if not isinstance(system, (hx.System, hx.StiffSystem)):
        raise CommandError(f"{path}: define `system = hx.System(...)` with q0 and p0, or a function `problem()`")
    import jax.numpy as jnp

    q0, p0 = getattr(module, "q0", start.get("q")), getattr(module, "p0", start.get("p"))
    if q0 is None:
        raise CommandError(f"{path}: define q0 beside `system`, or give q in the run file's [start] table")
    q0 = jnp.asarray(q0, float)
    p0 = jnp.zeros_like(q0) if p0 is None else jnp.asarray(p0, float)
    dt, t1 = float(getattr(module, "dt", 0.01)), float(getattr(module, "t1", 10.0))
    return hx.Problem(system, q0, p0, dt, t1, getattr(module, "reference", None), path.stem)


def _place(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"{path}, line {error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def time_value(value: float | str, spec: RunSpec, key: str) -> float:
    """A time in the unit of the model; a string such as "0.5 fs" needs a model with physical units."""
    if not isinstance(value, str):
        return float(value)
    import holonomix as hx
    from holonomix.build.models.water import UNITS as MODEL_UNITS

    make = getattr(hx.models, spec.model.replace("-", "_")) if spec.model else None
    parameter = inspect.signature(make).parameters.get("units") if make else None
    if parameter is None:
        raise CommandError(f"{key} = {value!r}: {spec.subject} has no physical units; give a plain number")
    number, unit = value.split()
    chosen = spec.arguments.get("units", parameter.default)
    return float(number) * UNITS[unit] / MODEL_UNITS[chosen].femtoseconds
