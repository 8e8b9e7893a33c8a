"""Names that a user may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from holonomix.core.lazy import stub_names


def complete_model(incomplete: str) -> list[str]:
    """For the shell: models that begin like this."""
    return _complete("build/models", incomplete)


def complete_method(incomplete: str) -> list[str]:
    """For the shell: methods that begin like this."""
    return _complete("methods", incomplete)


def _complete(package: str, incomplete: str) -> list[str]:
    """From the stub of the package: importing it would import JAX, which is too slow for completion."""
    found = stub_names(str(Path(__file__).parents[2] / package / "__init__.py"))
    others = ("base", "registry", "tableaus")
    names = [
        kebab(name) for name, (module, _) in found.items() if module not in others and name != "PartitionedTableau"
    ]
    return [name for name in names if name.startswith(incomplete)]


def kebab(name: str) -> str:
    """`double_pendulum` and `ZhangSkeelSO3` as they are typed on the command line: double-pendulum, zhang-skeel-so3."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower().replace("_", "-")


def suggestion(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"`, or nothing when no name is near."""
    spellings = {k.lower().replace("_", "-"): k for k in known}
    near = difflib.get_close_matches(word.lower().replace("_", "-"), list(spellings), n=1, cutoff=0.6)
    return f"; did you mean {spellings[near[0]]!r}?" if near else ""


def unknown(what: str, word: str, known: Iterable[str], many: str | None = None) -> str:
    """A message for a name that does not exist, with the nearest one and all of them (called `many`)."""
    known, many = list(known), f"{what}s" if many is None else many
    return f"unknown {what} {word!r}{suggestion(word, known) or ';'} the {many} are {', '.join(sorted(known))}"
