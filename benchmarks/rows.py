"""Rows of a table of figures with their goals, printed as they are measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """A figure and what it should be: at most the goal, or with `least` at least."""

    what: str
    value: float
    goal: float
    note: str = ""
    least: bool = False

    @property
    def passes(self) -> bool:
        return self.value >= self.goal if self.least else self.value <= self.goal

    def __str__(self) -> str:
        sign, verdict = ">=" if self.least else "<=", "pass" if self.passes else "MISS"
        return f"{self.what:<52} {self.value:9.2f}   goal {sign} {self.goal:<5g} {verdict}   {self.note}".rstrip()


def print_rows(groups: Iterable[Iterable[Row]]) -> int:
    """Print all rows; 0 where all pass, else 1."""
    missed = 0
    for group in groups:
        for row in group:
            print(row, flush=True)
            missed += not row.passes
    return 1 if missed else 0
