"""Completion of names, and suggestions for misspelled ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from holonomix.core.lazy import stub_names


def complete_model(incomplete: str) -> list[str]:
    """Shell completion: models that begin with `incomplete`."""
    return _complete("build/models", incomplete)


def complete_method(incomplete: str) -> list[str]:
    """Shell completion: methods that begin with `incomplete`."""
    return _complete("methods", incomplete)


def _complete(package: str, incomplete: str) -> list[str]:
    """Read the names from the stub of the package, because importing JAX is too slow for completion."""
    found = stub_names(str(Path(__file__).parents[2] / package / "__init__.py"))
    others = ("base", "registry", "tableaus")
    names = [kebab(name) for name, (module, _) in found.items() if module not in others]
    return [name for name in names if name.startswith(incomplete)]


def kebab(name: str) -> str:
    """The name on the command line: double-pendulum of `double_pendulum`, zhang-skeel-so3 of `ZhangSkeelSO3`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower().replace("_", "-")


def suggestion(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"`, or an empty string if no name is similar."""
    spellings = {k.lower().replace("_", "-"): k for k in known}
    near = difflib.get_close_matches(word.lower().replace("_", "-"), list(spellings), n=1, cutoff=0.6)
    return f"; did you mean {spellings[near[0]]!r}?" if near else ""


def unknown(what: str, word: str, known: Iterable[str], many: str | None = None) -> str:
    """The message for an unknown name, with the most similar name and a list of all (called `many`)."""
    known, many = list(known), f"{what}s" if many is None else many
    return f"unknown {what} {word!r}{suggestion(word, known) or ';'} the {many} are {', '.join(sorted(known))}"
