"""Merge the arguments of a command into a validated run: the run file, then `--set`, then the options."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

from .exits import CommandError
from .literals import assignment, is_huge, literal, with_entry
from .runfile import KEYS, RunSpec, parse_run_file, read_run_file, validate
from .suggest import complete_model, kebab, suggestion
from .trust import check_run_file

_TEXTS = {"method", "backend", "model", "system", "out"}


def spec_from(target: str, flags: dict[str, Any], sets: list[str], out: Path | None, *, trust: bool = False) -> RunSpec:
    """The run that a command line describes; with `trust` it may execute the Python file that a run file names."""
    table, source = _target(target, trust)
    for text in sets:
        path, value = assignment(text)
        path[0] = path[0].replace("-", "_")
        if len(path) == 1 and path[0] not in KEYS:
            _check_argument(table, path[0])
            path = ["arguments", *path]
        table = with_entry(table, path, value)
    for name, value in flags.items():
        if value is not None:
            table[name] = value if name in _TEXTS or not isinstance(value, str) else _literal_or_text(value)
            # an option replaces the length of the run in the file
            other = {"steps": "t1", "t1": "steps"}.get(name)
            if other is not None and flags.get(other) is None:
                table.pop(other, None)
    if out is not None:
        table["out"] = str(out)
    return validate(table, source)


def check_model_first(command: str, model: str, method: str | None) -> None:
    """Raise a `CommandError` that shows the right order if `model` is the name of a method."""
    if model.endswith((".toml", ".py", ".urdf", ".xml")) or kebab(model) in complete_model(""):
        return
    from .methodspec import parse_method

    try:
        parse_method(model)
    except CommandError:
        return  # the unknown model is reported instead
    raise CommandError(
        f"holonomix {command} MODEL METHOD: {model} is a method; write `holonomix {command} "
        f"{method or 'double-pendulum'} {model}`"
    )


def _target(target: str, trust: bool) -> tuple[dict[str, Any], str]:
    if target.endswith(".toml"):
        path = Path(target)
        data = read_run_file(path)
        table = {key.replace("-", "_"): value for key, value in parse_run_file(data, target).items()}
        if isinstance(table.get("system"), str) and "model" not in table:
            table["system"] = str(path.parent / table["system"])
            spec = RunSpec(system=table["system"], system_sha256=table.get("system_sha256"))
            check_run_file(path, data, spec, trust)
        return table, target
    if target.endswith((".py", ".urdf", ".xml")):
        return {"system": target}, target
    if Path(target).is_dir() and (Path(target) / "run.toml").exists():
        raise CommandError(
            f"{target} is the directory of a run: `holonomix resume {target}` continues it; "
            f"its run file, {target}/run.toml, repeats it with `holonomix run` and is a target of the other commands"
        )
    return {"model": target}, "command line"


def _check_argument(table: dict[str, Any], name: str) -> None:
    """Raise unless `name` of `--set name=` is an argument of the model; Python files check their own arguments."""
    model = table.get("model")
    if not isinstance(model, str):
        return
    from holonomix.build.models import MODELS, registry

    if model.replace("-", "_") not in MODELS:
        return  # the unknown model is reported instead
    parameters = inspect.signature(registry()[model.replace("-", "_")]).parameters
    if name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    raise CommandError(
        f"--set {name}: unknown key{suggestion(name, [*KEYS, *parameters]) or ';'} the keys of a run are "
        f"{', '.join(KEYS)}; the arguments of {model} are {', '.join(parameters)}"
    )


def _literal_or_text(text: str) -> Any:
    try:
        return literal(text)
    except CommandError:
        return text  # the check of the key reports the error


def number(name: str, text: str) -> float:
    """The value of an option that takes a finite number."""
    value = _literal_or_text(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or is_huge(value) or not math.isfinite(value):
        raise CommandError(f"--{name} {text[:60]}: must be a finite number")
    return float(value)


def slider(text: str) -> tuple[str, tuple[float, float]]:
    """The name and the ends of `--slider NAME=LOW:HIGH`."""
    name, equals, ends = text.partition("=")
    low, colon, high = ends.partition(":")
    if not (name and equals and colon):
        raise CommandError(f"--slider {text[:60]}: write NAME=LOW:HIGH, such as --slider gravity=0:20")
    return name.strip(), (number(f"slider {name}", low), number(f"slider {name}", high))


def whole_number(name: str, text: str) -> int:
    """The value of an option that takes a whole number, such as 1000 or 1e8."""
    value = number(name, text)
    if value != int(value) or value < 0:
        raise CommandError(f"--{name} {text}: must be a whole number that is not negative")
    return int(value)
