"""Names of constraints, given by the user, for errors, columns and `constraint_forces`.

A term is named by `name=` (`Distance`, `Local`, `Rheonomic`; one string, or one per block of a structured term) or
by its key if the constraints are a dict. Rows of terms without a name are identified by their number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import check_name
from ..core.errors import InputError
from ..core.types import Function, Numbers
from ..trace.functions import as_callable

Name = str | tuple[str, ...] | None


class Named(eqx.Module):
    """A plain constraint function with a name."""

    fn: Any
    name: Name = eqx.field(static=True)

    def __init__(self, fn: Function, name: str):
        self.fn, self.name = as_callable(fn), check_name("constraint", name)

    def __call__(self, *args: PyTree) -> Any:
        return self.fn(*args)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the constraint: its number, the name of its term or block, and its place among the rows of that name."""

    number: int
    name: str | None
    place: int
    alone: bool

    @property
    def key(self) -> str:
        """The key of its force."""
        return f"constraint {self.number}" if self.name is None else self.name

    @property
    def label(self) -> str:
        """Its name in legends: `rod`, `hinge, row 1`, or `constraint 3`."""
        return str(self) if self.name is None else self.name + ("" if self.alone else f", row {self.place}")

    def __str__(self) -> str:
        if self.name is None:
            return f"constraint {self.number}"
        return f"constraint {self.name!r}" + ("" if self.alone else f", row {self.place}")


def as_terms(constraint: object) -> tuple[Any, ...]:
    """The terms of `System(constraint=...)`: None, one constraint, a list, or a dict whose keys are names."""
    if constraint is None:
        return ()
    if isinstance(constraint, Mapping):
        return tuple(_with_name(term, name) for name, term in constraint.items())
    return tuple(constraint) if isinstance(constraint, (list, tuple)) else (constraint,)


def _with_name(term: object, name: Any) -> Any:
    check_name("constraint", name)
    if not callable(term):
        raise InputError(f"constraint {name!r} must be a function or a structured constraint, not {term!r:.60}")
    if not hasattr(term, "name") or not isinstance(term, eqx.Module):
        return Named(term, name)
    new = object.__new__(type(term))
    for field in dataclasses.fields(term):
        object.__setattr__(new, field.name, name if field.name == "name" else getattr(term, field.name))
    return new


def list_rows(terms: tuple[tuple[Any, Any], ...], q: Numbers) -> list[Row]:
    """Every row of a list of (term, further arguments)."""
    names: list[str | None] = []
    for term, extra in terms:
        count = row_count(term, q, extra)
        given: Name = getattr(term, "name", None)
        if isinstance(given, tuple):
            names += list(np.repeat(np.asarray(given, object), count // len(given)))
        else:
            names += [given] * count
    place: dict[str | None, int] = {}
    rows = []
    for number, name in enumerate(names):
        at = place.setdefault(name, 0)
        rows.append((number, name, at))
        place[name] = at + 1
    return [Row(number, name, at, place[name] == 1) for number, name, at in rows]


def row_count(term: Function, q: Numbers, extra: PyTree) -> int:
    """The number of rows of a term, from shapes."""
    return jax.eval_shape(lambda x: jnp.asarray(term(x, *extra)), q).shape[0]
