"""Parse the name of a method: `rattle`, `composition-8`, `gla-rattle`, or `HBVM(k=6, s=2)`.

The long form is Python's call syntax, parsed with `ast` and never evaluated. It may contain methods, solvers and
monitors of this package, numbers, strings, lists and tuples.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from holonomix.core.errors import HolonomixError

from .exits import CommandError
from .suggest import kebab, suggestion

# parameters that take an object: numbers in a short form skip them; another name fills the first `method` or `inner`
_OBJECTS = {"method", "inner", "solver", "scheme", "tableau", "monitor", "c", "d"}
_PREFIXES = {"", *(f"{p}{m}" for p in ("hx", "holonomix") for m in ("", ".methods", ".monitors"))}
_MAX_CHARACTERS = 500
_MAX_INTEGER = 1_000_000


def parse_method(text: str) -> Any:
    """The method that `text` describes."""
    if not isinstance(text, str) or not text.strip():
        raise CommandError("method: write a name such as 'rattle' or a call such as 'HBVM(k=6, s=2)'")
    text = text.strip()
    if len(text) > _MAX_CHARACTERS:
        raise CommandError(f"method: {len(text)} characters are too many; {_MAX_CHARACTERS} are allowed")
    from holonomix.methods.base import AbstractMethod

    method = _call(text) if "(" in text else _short(text)
    if not isinstance(method, AbstractMethod):
        raise CommandError(f"method {text!r} is a {type(method).__name__}, not a method; see `holonomix methods`")
    return method


# ---- rattle, composition-8, zhang-skeel-0.4, gla-rattle


def _short(text: str) -> Any:
    classes = {kebab(name): make for name, make in _methods().items()}
    squeezed = {name.replace("-", ""): name for name in classes}
    words = text.replace("_", "-").lower().split("-")
    for count in range(len(words), 0, -1):
        name = squeezed.get("".join(words[:count]))
        if name is not None:
            return _fill(text, classes[name], words[count:])
    raise CommandError(
        f"unknown method {text!r}{suggestion(text, classes) or ';'} the methods are {', '.join(classes)}; numbers may "
        "follow, as in composition-8, or write a call, as in 'HBVM(k=6, s=2)'"
    )


def _fill(text: str, make: Callable[..., Any], words: list[str]) -> Any:
    places = _places(make)
    numbers = _numbers(make)
    values: list[int | float] = []
    while words and (value := _number(words[-1])) is not None:
        words, values = words[:-1], [value, *values]
    arguments: dict[str, Any] = {}
    if words:
        place = next((name for name in places if name in ("method", "inner")), None)
        if place is None:
            raise CommandError(f"method {text!r}: {'-'.join(words)!r} is not a number; {_usage(make)}")
        arguments[place] = _short("-".join(words))
        if values and _numbers(type(arguments[place])):
            raise CommandError(
                f"method {text!r}: the number {values[0]} is ambiguous; write a call instead; {_usage(make)}"
            )
    if len(values) > len(numbers):
        raise CommandError(f"method {text!r} has {len(values)} numbers, but takes {len(numbers)}; {_usage(make)}")
    return _make(text, make, [], arguments | dict(zip(numbers, values)))


def _places(make: Callable[..., Any]) -> list[str]:
    return [p.name for p in inspect.signature(make).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]


def _numbers(make: Callable[..., Any]) -> list[str]:
    """The parameters that numbers in a short form set, in this order."""
    parameters = inspect.signature(make).parameters
    places = [name for name in _places(make) if name not in _OBJECTS]
    return [name for name in places if not isinstance(parameters[name].default, bool | str)]


def _number(word: str) -> int | float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    if word.isdecimal() and word.isascii():
        return _check_size(word, int(word))
    return value if word[:1].isdigit() or word[:1] == "." else None


def _check_size(text: str, value: Any) -> Any:
    """Return `value` unless it is a huge integer: orders, stages and iterations are small; tables grow with them."""
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise CommandError(f"method {shown!r}: its integers must be at most {_MAX_INTEGER}")
    return value


# ---- HBVM(k=6, s=2)


def _call(text: str) -> Any:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CommandError(f"method {text!r} is not a call such as 'Composition(RATTLE(), order=8)'") from None
    return _build(text, tree.body)


def _build(text: str, node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return _check_size(text, node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _build(text, node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_build(text, item) for item in node.elts)
    if isinstance(node, ast.Name | ast.Attribute):
        return _make(text, _named(text, node), [], {})
    if isinstance(node, ast.Call) and not any(k.arg is None for k in node.keywords):
        make = _named(text, node.func)
        positional = [_build(text, item) for item in node.args]
        return _make(text, make, positional, {str(k.arg): _build(text, k.value) for k in node.keywords})
    raise CommandError(
        f"method {text!r}: {ast.unparse(node)!r} is not allowed here; write numbers, strings, lists and calls of "
        "methods, solvers and monitors"
    )


def _named(text: str, node: ast.expr) -> Callable[..., Any]:
    package, _, name = ast.unparse(node).rpartition(".")
    if package not in _PREFIXES or not name.isidentifier():
        raise CommandError(f"method {text!r}: {ast.unparse(node)!r} is not a name of this package")
    known = _methods() | _parts()
    if name not in known:
        raise CommandError(
            f"method {text!r}: unknown name {name!r}{suggestion(name, known) or ';'} it may be one of "
            f"{', '.join(known)}"
        )
    return known[name]


def _make(text: str, make: Callable[..., Any], positional: list[Any], keywords: dict[str, Any]) -> Any:
    try:
        inspect.signature(make).bind(*positional, **keywords)
    except TypeError as error:
        raise CommandError(f"method {text!r}: {error}; {_usage(make)}") from None
    try:
        return make(*positional, **keywords)
    except HolonomixError as error:
        raise CommandError(f"method {text!r}: {error}") from error
    except Exception as error:  # an argument of a wrong type, found only when the method computes with it
        raise CommandError(f"method {text!r}: {type(error).__name__}: {error}; {_usage(make)}") from error


def _usage(make: Callable[..., Any]) -> str:
    names = [p.name for p in inspect.signature(make).parameters.values()]
    return f"the form is {make.__name__}({', '.join(names)})"


def _methods() -> dict[str, Callable[..., Any]]:
    from holonomix.methods import registry

    return {name: entry.make for name, entry in registry().items()}


def _parts() -> dict[str, Callable[..., Any]]:
    """Solvers and monitors: the classes that methods take as arguments."""
    from holonomix.mechanics.projection import solvers
    from holonomix.methods import monitors

    found = {name: getattr(module, name) for module in (solvers, monitors) for name in module.__all__}
    return {n: c for n, c in found.items() if inspect.isclass(c) and not n.startswith("Abstract")}
