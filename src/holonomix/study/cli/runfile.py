"""Run files: a flat TOML table that describes a run. Errors name the key and the allowed values."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holonomix.core.names import BACKENDS
from holonomix.run.io.disk import read_regular

from .exits import CommandError
from .literals import dumps, is_huge, parse_toml
from .suggest import suggestion, unknown

OBSERVABLES = (
    "energy",
    "constraint_error",
    "hidden_constraint_error",
    "linear_momentum",
    "angular_momentum",
    "invariants",
)
MAX_INTEGER = 1 << 62
MAX_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """A validated run, which can be executed and written back as TOML."""

    model: str | None = None
    system: str | None = None
    system_sha256: str | None = None
    method: str | None = None
    dt: float | str | None = None
    steps: int | None = None
    t1: float | str | None = None
    t0: float | str = 0.0
    save_every: int = 1
    observe: tuple[str, ...] = ("energy", "constraint_error")
    seed: int = 0
    backend: str = "auto"
    omega: float | None = None
    out: str | None = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    start: dict[str, Any] = dataclasses.field(default_factory=dict)
    sweep: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def subject(self) -> str:
        """The name of the model or file."""
        return self.model or Path(self.system or "system").stem

    def to_toml(self) -> str:
        """The run as the text of a run file."""
        table = {k: v for k, v in dataclasses.asdict(self).items() if v not in (None, {}) and k != "out"}
        return dumps(table)


class _Wrong(Exception):
    """An entry has a wrong value; the message describes the allowed ones."""


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong("a number")
    try:
        return float(value)
    except OverflowError:
        raise _Wrong("a finite number") from None


def _finite(value: Any) -> float:
    number = _number(value)
    if not math.isfinite(number):
        raise _Wrong("a finite number")
    return number


def _step(value: Any) -> float | str:
    number = _time(value)
    if number == 0:
        raise _Wrong("a number that is not zero (negative runs backwards)")
    return number


def _time(value: Any) -> float | str:
    """A number in the unit of the model, or a string with a unit, such as "0.5 fs"."""
    if isinstance(value, str):
        words = value.split()
        try:
            if len(words) == 2 and math.isfinite(float(words[0])) and words[1] in UNITS:
                return value
        except ValueError:
            pass
        raise _Wrong(f'a number, or a string with a unit such as "0.5 fs" (units: {", ".join(UNITS)})')
    return _finite(value)


UNITS = {"fs": 1.0, "ps": 1e3, "ns": 1e6}  # in femtoseconds


def _whole(least: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not (least <= number <= MAX_INTEGER) or number != int(
            number
        ):  # compared first, because the number may have 400 digits
            raise _Wrong(f"a whole number of at least {least}")
        return int(value)

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _Wrong("a text")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise _Wrong("the 64 hexadecimal digits of a SHA-256")
    return value


def _backend(value: Any) -> str:
    if value not in BACKENDS:
        raise _Wrong(f"one of {', '.join(map(repr, BACKENDS))}{suggestion(str(value), BACKENDS)}")
    return value


def _observe(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise _Wrong(f"a list of names from {', '.join(OBSERVABLES)}")
    for name in names:
        if name.replace("-", "_") not in OBSERVABLES:
            raise _Wrong(f"a list of names from {', '.join(OBSERVABLES)}{suggestion(name, OBSERVABLES)}")
    return tuple(dict.fromkeys(n.replace("-", "_") for n in names))


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong("a table of the model's arguments, such as [arguments] with gravity = 9.81 below it")
    return {str(k).replace("-", "_"): v for k, v in value.items()}


def _sweep(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong("a table of swept values, such as [sweep] with gravity = [1.0, 9.81] below it")
    return dict(value)


def _start(value: Any) -> dict[str, Any]:
    allowed = "a table with q and p (lists of numbers) and project (true or false)"
    if not isinstance(value, Mapping) or not value.keys() <= {"q", "p", "project"}:
        raise _Wrong(allowed)
    for name in ("q", "p"):
        if name in value and not _numbers_only(value[name]):
            raise _Wrong(f"{allowed}; {name} contains something other than finite numbers")
    if not isinstance(value.get("project", False), bool):
        raise _Wrong(allowed)
    return dict(value)


def _numbers_only(value: Any, depth: int = 0) -> bool:
    if isinstance(value, list):
        return depth < 8 and all(_numbers_only(v, depth + 1) for v in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


KEYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "model": (_text, "a model by name, see `holonomix models`"),
    "system": (_text, "your own Python file, with `system = hx.System(...)` or a function `problem()`"),
    "system_sha256": (_digest, "SHA-256 of that file; written by the program"),
    "method": (_text, "such as 'rattle', 'composition-8', 'HBVM(k=6, s=2)', see `holonomix methods`"),
    "dt": (_step, "step size; by default the model's"),
    "steps": (_whole(0), "number of steps; alternative to t1"),
    "t1": (_time, "end time; by default the model's"),
    "t0": (_time, "start time"),
    "save_every": (_whole(1), "number of steps between saved rows"),
    "observe": (_observe, f"observables to save with the state: {', '.join(OBSERVABLES)}"),
    "seed": (_whole(0), "random seed, for methods that draw random numbers"),
    "backend": (_backend, f"{', '.join(BACKENDS)}"),
    "omega": (_finite, "run the penalized model with this stiffness, for stiff methods"),
    "out": (_text, "output directory"),
    "arguments": (_table, "a table of the model's arguments"),
    "start": (_start, "a table with q, p and project: initial state in place of the model's"),
    "sweep": (_sweep, "a table of swept values: many runs as one ensemble"),
}


def validate(table: Mapping[str, Any], source: str) -> RunSpec:
    """A `RunSpec` from a table; raises one error that lists all wrong entries."""
    problems, values = [], {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in KEYS:
            problems.append(unknown("key", key, KEYS))
            continue
        try:
            values[name] = KEYS[name][0](value)
        except _Wrong as wrong:
            problems.append(f"{key} = {_format_value(value)}: must be {wrong}")
    if "model" in table and "system" in table:
        problems.append("model and system: give one of them")
    if not {"model", "system"} & {key.replace("-", "_") for key in table}:
        problems.append("model is missing: give its name (see `holonomix models`), or your own Python file as system")
    if "steps" in values and "t1" in values:
        problems.append("steps and t1: give one of them")
    if problems:
        listed = "\n".join([f"{len(problems)} entries are wrong", *(f"  - {problem}" for problem in problems)])
        raise CommandError(f"{source}: {problems[0] if len(problems) == 1 else listed}")
    return RunSpec(**values)


def _format_value(value: Any) -> str:
    text = f"a number of about {value.bit_length() * 3 // 10} digits" if is_huge(value) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_run_file(path: Path) -> bytes:
    """The contents of a run file; a pipe, a device or a very large file is refused without reading it."""
    try:
        return read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        raise CommandError(f"{path} does not exist") from None
    except OSError as error:
        raise CommandError(f"{path} cannot be read as text: {error}") from None


def parse_run_file(data: bytes, source: str) -> dict[str, Any]:
    """Parse the TOML text of a run file; text that would take long to parse is refused."""
    if len(data) > MAX_BYTES:
        raise CommandError(f"{source} has more than {MAX_BYTES >> 20} MB and cannot be a run file")
    try:
        text = data.decode("utf-8")
        return parse_toml(text)
    except UnicodeDecodeError as error:
        raise CommandError(f"{source} cannot be read as text: {error}") from None
    except ValueError as error:
        raise CommandError(f"{source} is not TOML: {error}") from None
