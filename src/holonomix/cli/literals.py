"""TOML values on the command line, and TOML written back."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from .exits import CommandError

__all__ = ["assignment", "dumps", "literal", "merged"]


def literal(text: str) -> Any:
    """A TOML value. A bare word that is no TOML is taken as a text, so that `--set surface=torus` works."""
    try:
        table = tomllib.loads(f"x = {text.strip()}")
        if table.keys() == {"x"}:
            return table["x"]
    except (tomllib.TOMLDecodeError, RecursionError):
        pass
    word = text.strip()
    if word and all(c.isalnum() or c in "-_./" for c in word) and not word[0].isdigit():
        return word
    raise CommandError(f'{text!r} is not a TOML value: write a number, true, "text" (with its quotes), or [1, 2]')


def assignment(text: str) -> tuple[list[str], Any]:
    """`key=value` or `table.key=value` from `--set`."""
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise CommandError(f"--set {text!r}: write key=value, with a TOML value, as in --set gravity=9.81")
    try:
        return path, literal(value)
    except CommandError as error:
        raise CommandError(f"--set {key.strip()}: {error}") from None


def merged(table: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """`table` with the entry at `path` replaced."""
    head, *rest = path
    if not rest:
        return {**table, head: value}
    inner = table.get(head, {})
    if not isinstance(inner, Mapping):
        raise CommandError(f"--set {'.'.join(path)}: {head!r} is a value, not a table")
    return {**table, head: merged(inner, rest, value)}


def dumps(table: Mapping[str, Any]) -> str:
    """TOML text of a table of plain values and tables of plain values; every float as the shortest that reads back."""
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    lines = [f"{_key(k)} = {_value(v)}" for k, v in plain.items() if v is not None]
    for name, inner in table.items():
        if isinstance(inner, Mapping):
            lines += ["", f"[{_key(name)}]", *(f"{_key(k)} = {_value(v)}" for k, v in inner.items() if v is not None)]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if bare else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return _text(str(value))


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
