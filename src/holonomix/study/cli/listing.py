"""`models` and `methods`: lists of both, as tables and as data."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .exits import CommandError
from .suggest import kebab, unknown

if TYPE_CHECKING:
    from rich.console import Console


def model_rows() -> list[dict[str, Any]]:
    """Every model with its arguments and the first line of its description."""
    from holonomix.build.models import registry

    return [_row(name, make) for name, make in registry().items()]


def _row(name: str, make: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters.values()
    arguments = {p.name: _default(p) for p in parameters if p.kind is not p.VAR_KEYWORD}
    summary = (inspect.getdoc(make) or "").split("\n")[0]
    return {"name": kebab(name), "summary": summary, "arguments": arguments}


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
    from holonomix.mechanics import Capability
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
                "treats": [c.value for c in Capability if c in t.treats],
            }
        method = entry.default
        flags = {"one_step": method.one_step, "adaptive": method.adaptive, "stochastic": method.stochastic}
        row = {"name": kebab(name), "class": name, "family": entry.family, "summary": entry.summary}
        rows.append({**row, **flags, "traits": traits, "reference": entry.reference})
    return rows


def print_models(console: Console) -> None:
    from rich.table import Table

    table = Table(title="models", title_justify="left", caption="arguments are set with --set name=value")
    for column in ("name", "what it is", "arguments and their defaults"):
        table.add_column(column, no_wrap=column == "name")
    for row in model_rows():
        arguments = ", ".join(f"{k}={_short(v)}" for k, v in row["arguments"].items())
        table.add_row(row["name"], row["summary"], arguments)
    console.print(table)


def draw_model(name: str | None, picture: Path) -> None:
    """Save a picture of the initial configuration of a model."""
    from holonomix.build.models import registry
    from holonomix.study.plotting import plot_problem

    if name is None:
        raise CommandError("--picture draws one model: give its NAME")
    describe_model(name)  # raises if the model is unknown
    make = {kebab(known): fn for known, fn in registry().items()}[kebab(name)]
    figure = plot_problem(make())
    if figure is None:
        raise CommandError(f"{name} has no picture: its coordinates are not positions")
    figure.savefig(picture, dpi=120)


SUMMARY = """Which method? Take the first line that applies:
  a heat bath, sampling        gla-rattle, geodesic-baoab, constrained-hmc
  stiff springs, long steps    zhang-skeel, newmark; projected-impulse
  constraints                  rattle; composition-8 for more digits;
                               line-integral conserves energy to round-off;
                               vrattle varies the step reversibly
  no constraints               stormer-verlet, gauss, adaptive-verlet
`holonomix methods NAME` describes a method;
`holonomix certify MODEL NAME` measures its declared properties.
"""


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_short(v) for v in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


PROMISES = {
    "symplectic": "symplectic",
    "symmetric": "symmetric",
    "energy_exact": "energy",
    "constraint_exact": "constraint",
    "hidden_exact": "hidden",
}
_SHORT = {"f(q, v, t)": "f", "redundant rows": "redundant"}
REFERENCE_WIDTH = 110  # consoles with this many columns also show the references


def print_methods(console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    caption = (
        "Energy, constraint and hidden constraint are kept to round-off. `holonomix certify MODEL METHOD` measures "
        "every declared property, as the tests do. symplectic?: unknown. Numbers may follow a name: composition-8, "
        "hbvm-6-2, zhang-skeel-0.4. Also treats: a mass M(q), an applied force f, a potential V(q, t), a vector "
        "potential A(q), moving constraints g(q, t), redundant rows."
    )
    table = Table(title="methods and what they conserve", title_justify="left", caption=caption, box=SIMPLE_HEAD)
    wide = console.width >= REFERENCE_WIDTH
    for column in ("name", "on systems", "order", "conserves", "also treats", *(("reference",) if wide else ())):
        table.add_column(column, no_wrap=column in ("name", "on systems"))
    for row in method_rows():
        for i, (kind, t) in enumerate(row["traits"].items()):
            order = t["order"] if isinstance(t["order"], int) else " ".join(f"{k}:{v}" for k, v in t["order"].items())
            kept = [word + ("" if t[name] else "?") for name, word in PROMISES.items() if t[name] is not False]
            first = (row["name"], row["reference"]) if i == 0 else ("", "")
            treats = ", ".join(str(_SHORT.get(c, c)) for c in t["treats"])
            table.add_row(first[0], kind, str(order), ", ".join(kept), treats, *(first[1:] if wide else ()))
    console.print(SUMMARY, highlight=False)
    console.print(table)


def describe_model(name: str) -> str:
    """The full description of a model."""
    from holonomix.build.models import MODELS, registry

    key = name.replace("-", "_")
    if key not in MODELS:
        raise CommandError(unknown("model", name, [kebab(m) for m in MODELS]))
    make = registry()[key]
    arguments = "".join(f"\n  {k} = {_short(v)}" for k, v in _row(key, make)["arguments"].items())
    text = f"{kebab(key)}\n\n{_reflow(inspect.getdoc(make) or '')}"
    return f"{text}\n\nArguments, set with --set name=value:{arguments}" if arguments else text


def sketch_model(name: str) -> str:
    """The initial configuration of a model, drawn with characters."""
    from holonomix.build.models import registry

    from .sketch import sketch

    return sketch({kebab(known): fn for known, fn in registry().items()}[kebab(name)]())


def _reflow(text: str, width: int = 78) -> str:
    """Wrap paragraphs at `width`; indented formulas, lists and tables stay unchanged."""
    parts = []
    for part in text.split("\n\n"):
        plain = not any(line.startswith((" ", "-", "|")) for line in part.split("\n"))
        parts.append(textwrap.fill(part, width, break_on_hyphens=False) if plain else part)
    return "\n\n".join(parts)


def describe_method(name: str) -> str:
    """The full description of a method."""
    from .methodspec import parse_method

    method = parse_method(name)
    kind = type(method)
    bare = [p.replace(annotation=p.empty) for p in inspect.signature(kind).parameters.values()]
    form = inspect.Signature(bare)
    text = _reflow(inspect.getdoc(kind) or "")
    return f"{kind.__name__}{form}\n\n{text}\n\nReference: {method.reference}"
