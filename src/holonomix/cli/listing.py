"""`models` and `methods`: what there is, as tables and as data."""

from __future__ import annotations

import inspect
from typing import Any

from .exits import CommandError
from .suggest import kebab, unknown

__all__ = ["describe_method", "describe_model", "method_rows", "model_rows", "print_methods", "print_models"]


def model_rows() -> list[dict[str, Any]]:
    """Every model with its arguments and the first line of its description."""
    from holonomix.models import registry

    rows = []
    for name, make in registry().items():
        parameters = inspect.signature(make).parameters.values()
        arguments = {p.name: _default(p) for p in parameters if p.kind is not p.VAR_KEYWORD}
        summary = (inspect.getdoc(make) or "").split("\n")[0]
        rows.append({"name": kebab(name), "summary": summary, "arguments": arguments})
    return rows


def _default(parameter: inspect.Parameter) -> Any:
    value = parameter.default
    if value is parameter.empty:
        return None
    return value if isinstance(value, str | int | float | bool | None) else _plain(value)


def _plain(value: Any) -> Any:
    try:
        return [float(v) for v in value]
    except (TypeError, ValueError):
        return str(value)


def method_rows() -> list[dict[str, Any]]:
    """Every method with its declared traits on each kind of system."""
    from holonomix.methods import registry

    rows = []
    for name, entry in registry().items():
        traits = {}
        for kind, t in entry.traits.items():
            order = t.order if isinstance(t.order, int) else dict(t.order)
            traits[kind] = {
                "order": order,
                "symmetric": t.symmetric,
                "symplectic": t.symplectic,
                "energy_exact": t.energy_exact,
                "constraint_exact": t.constraint_exact,
                "hidden_exact": t.hidden_exact,
            }
        method = entry.default
        flags = {"one_step": method.one_step, "adaptive": method.adaptive, "stochastic": method.stochastic}
        row = {"name": kebab(name), "class": name, "family": entry.family, "summary": entry.summary}
        rows.append({**row, **flags, "traits": traits, "reference": entry.reference})
    return rows


def print_models(console: Any) -> None:
    from rich.table import Table

    table = Table(title="models", title_justify="left", caption="arguments are set with --set name=value")
    for column in ("name", "what it is", "arguments and their defaults"):
        table.add_column(column, no_wrap=column == "name")
    for row in model_rows():
        arguments = ", ".join(f"{k}={_short(v)}" for k, v in row["arguments"].items())
        table.add_row(row["name"], row["summary"], arguments)
    console.print(table)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_short(v) for v in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def print_methods(console: Any) -> None:
    from rich.table import Table

    caption = "yes: promised, and measured by the tests; ?: not proved either way; `holonomix certify METHOD` measures"
    table = Table(title="methods and what they promise", title_justify="left", caption=caption)
    headers = ("name", "on systems", "order", "symmetric", "symplectic", "energy", "constraint", "hidden", "reference")
    for column in headers:
        table.add_column(column, no_wrap=column == "name")
    for row in method_rows():
        for i, (kind, t) in enumerate(row["traits"].items()):
            order = t["order"] if isinstance(t["order"], int) else " ".join(f"{k}:{v}" for k, v in t["order"].items())
            promises = ("symmetric", "symplectic", "energy_exact", "constraint_exact", "hidden_exact")
            marks = [{True: "yes", False: "-", None: "?"}[t[name]] for name in promises]
            last = i == len(row["traits"]) - 1
            first = (row["name"], row["reference"]) if i == 0 else ("", "")
            table.add_row(first[0], kind, str(order), *marks, first[1], end_section=last)
    console.print(table)


def describe_model(name: str) -> str:
    """The whole description of a model."""
    from holonomix.models import MODELS, registry

    key = name.replace("-", "_")
    if key not in MODELS:
        raise CommandError(unknown("model", name, [kebab(m) for m in MODELS]))
    make = registry()[key]
    return f"{kebab(key)}{inspect.signature(make)}\n\n{inspect.getdoc(make) or ''}"


def describe_method(name: str) -> str:
    """The whole description of a method's class."""
    from .methodspec import parse_method

    method = parse_method(name)
    kind = type(method)
    return f"{kind.__name__}{inspect.signature(kind)}\n\n{inspect.getdoc(kind) or ''}\n\nReference: {method.reference}"
