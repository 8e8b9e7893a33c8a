"""Read TOML values from the command line, and write TOML."""

from __future__ import annotations

import math
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from .exits import CommandError

MAX_PARTS = 16  # in a dotted key
MAX_CHARACTERS = 100_000  # in a value on the command line
_TOKENS = re.compile(r"""\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[A-Za-z0-9_-]+|\.|\s+|.""")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML text; raises `ValueError`, also for keys and values that are nested too deeply."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") >= MAX_PARTS and _longest_key(line) > MAX_PARTS:
            raise ValueError(f"line {number} has a key of more than {MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def _longest_key(line: str) -> int:
    """The number of parts of the longest dotted key in a line; the TOML parser takes quadratic time in it."""
    parts = longest = 0
    after_dot = True
    for token in _TOKENS.findall(line):
        if token == ".":
            after_dot = True
        elif token[0] in "\"'" or token[0].isalnum() or token[0] in "-_":
            parts = parts + 1 if after_dot else 1
            longest, after_dot = max(longest, parts), False
        elif not token.isspace():
            parts, after_dot = 0, True
    return longest


def is_huge(value: object) -> bool:
    """Whether a whole number is larger than any float."""
    return isinstance(value, int) and abs(value) > sys.float_info.max


def literal(text: str) -> Any:
    """Read a TOML value; a bare word that is not TOML is a string, so that `--set surface=torus` works."""
    if len(text) > MAX_CHARACTERS:
        raise CommandError(f"a value of {len(text)} characters is too long: put it into a run file")
    try:
        table = parse_toml(f"x = {text.strip()}")
        if table.keys() == {"x"}:
            return table["x"]
    except ValueError:
        pass
    word = text.strip()
    if word and all(c.isalnum() or c in "-_./" for c in word) and not word[0].isdigit():
        return word
    raise CommandError(f'{text!r} is not a TOML value: write a number, true, "text" (with its quotes), or [1, 2]')


def assignment(text: str) -> tuple[list[str], Any]:
    """Split `key=value` or `table.key=value` of `--set` into the path of the key and the value."""
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".", MAX_PARTS)]
    if len(path) > MAX_PARTS:
        raise CommandError(f"--set {key[:40]}...: a key of more than {MAX_PARTS} parts")
    if not equals or not all(path):
        raise CommandError(f"--set {text!r}: write key=value, with a TOML value, as in --set gravity=9.81")
    try:
        return path, literal(value)
    except CommandError as error:
        raise CommandError(f"--set {key.strip()}: {error}") from None


def with_entry(table: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A copy of `table` with the entry at `path` replaced."""
    head, *rest = path
    if not rest:
        return {**table, head: value}
    inner = table.get(head, {})
    if not isinstance(inner, Mapping):
        raise CommandError(f"--set {'.'.join(path)}: {head!r} is a value, not a table")
    return {**table, head: with_entry(inner, rest, value)}


def dumps(table: Mapping[str, Any]) -> str:
    """TOML text of a table of values and tables; floats have the shortest form that reads back exactly."""
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    lines = [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in plain.items() if v is not None]
    for name, inner in table.items():
        if isinstance(inner, Mapping):
            lines += [
                "",
                f"[{_toml_key(name)}]",
                *(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in inner.items() if v is not None),
            ]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if bare else _toml_string(name)


def _toml_value(value: Any) -> str:
    """A value as TOML text; types that TOML lacks become strings."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return _toml_string(str(value))


def _toml_string(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
