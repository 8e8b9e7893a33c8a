"""The rows of a plain constraint function as a few functions of one row each, evaluated for all rows at once.

Each row of the traced program is followed from its result back to the coordinates that it reads. Rows with the same
operations form a group. The program of a group has one lane per row and works element by element, so one sweep of
reverse mode yields the derivatives of all rows, and no operation moves an entry.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.types import Numbers
from .indexing import take
from .jaxprs import Equation, Params
from .moves import product_factors, reduction_groups
from .primitives import Dependence
from .sparsity import Value, dependence_kind, moved

# Beyond these limits the program of the rows is longer than the sweeps of reverse mode that it saves.
MAX_GROUPS, MAX_OPERATIONS, MAX_TERMS, MAX_CONSTANTS = 8, 500, 16, 100
REDUCTIONS = {"reduce_sum": operator.add, "reduce_prod": operator.mul}


class _Unequal(Exception):
    """The rows of a group have different operations; equal labels mark equal ones."""

    def __init__(self, labels: np.ndarray):
        self.labels = labels


class _Unsupported(Exception):
    """The program cannot be followed row by row."""


@dataclasses.dataclass(frozen=True, order=True)
class Read:
    """A coordinate of one of the row's particles."""

    slot: int
    coordinate: int


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """For each row one entry of an array that does not depend on q."""

    value: Value
    places: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """A function of earlier results, which are given by their numbers."""

    function: Callable[..., Any]
    arguments: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class RowGroup:
    """Rows with the same program; the last result is the value of the row."""

    rows: np.ndarray
    program: tuple[Read | Constant | Operation, ...]

    def __call__(self, lanes: dict[Read, Any], constants: Sequence[Any]) -> Any:
        results: list[Any] = []
        rest = iter(constants)
        for step in self.program:
            if isinstance(step, Read):
                results.append(lanes[step])
            elif isinstance(step, Constant):
                results.append(next(rest))
            else:
                results.append(step.function(*(results[k] for k in step.arguments)))
        return results[-1]


def row_slopes(groups: Sequence[RowGroup], table: np.ndarray, q: Numbers, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """For each particle of a row `(1, coordinates, rows)`; `inputs` are the arguments of the program after q."""
    coordinates = q.reshape(q.shape[0], -1).T
    held: dict[int, Any] = {}
    pieces: list[list[Any]] = []
    for group in groups:
        near = [take(coordinates, column) for column in table[group.rows].T]
        lanes = {step: near[step.slot][step.coordinate] for step in group.program if isinstance(step, Read)}
        constants = [_lanes_of(step, inputs, held) for step in group.program if isinstance(step, Constant)]
        value, pull = jax.vjp(lambda x, group=group, constants=constants: group(x, constants), lanes)
        slopes, zero = pull(jnp.ones_like(value))[0], jnp.zeros(group.rows.size, q.dtype)
        each = range(coordinates.shape[0])
        pieces.append([jnp.stack([slopes.get(Read(s, c), zero) for c in each]) for s in range(len(near))])
    order = np.argsort(np.concatenate([group.rows for group in groups]))
    return tuple(take(jnp.concatenate(parts, axis=1), order)[None] for parts in zip(*pieces, strict=True))


def row_groups(result: Value, table: np.ndarray, coordinates: int) -> tuple[RowGroup, ...] | None:
    """The groups of rows of a program's result, or None where the program cannot be followed or has too many."""
    groups: list[RowGroup] = []
    waiting = [np.arange(result.size)]
    while waiting:
        rows = waiting.pop()
        follower = _Follower(table[rows], coordinates)
        try:
            follower.follow(result, rows)
        except _Unequal as error:
            waiting += [rows[error.labels == label] for label in np.unique(error.labels)]
        except (_Unsupported, RecursionError):
            return None
        else:
            groups.append(RowGroup(rows, tuple(follower.program)))
        if len(groups) + len(waiting) > MAX_GROUPS:
            return None
    return tuple(sorted(groups, key=lambda group: int(group.rows[0])))


class _Follower:
    """Writes the program of some rows while it follows them back through the traced program."""

    def __init__(self, table: np.ndarray, coordinates: int):
        self.table, self.coordinates = table, coordinates
        self.program: list[Read | Constant | Operation] = []
        self.numbers: dict[Any, int] = {}

    def follow(self, value: Value, places: np.ndarray) -> int:
        """Write the operations for the entry of `value` at each row's place; return the number of the result."""
        key = (id(value), places.tobytes())
        if key not in self.numbers:
            if len(self.numbers) > MAX_OPERATIONS:
                raise _Unsupported
            self.numbers[key] = self._written(value, places)
        return self.numbers[key]

    def _step(self, step: Read | Constant | Operation) -> int:
        self.program.append(step)
        return len(self.program) - 1

    def _written(self, value: Value, places: np.ndarray) -> int:
        if value.rows is None:
            _check_computable(value, set())
            return self._step(Constant(value, places))
        if value.made is None:
            return self._read(places)
        eqn, ins, result = value.made
        p = Params(eqn)
        kind = dependence_kind(p.name)
        if kind is Dependence.ELEMENTWISE and len(p.outs) == 1:
            spread = (np.broadcast_to(x.places, value.shape).reshape(-1) for x in ins)
            arguments = tuple(self.follow(x, at[places]) for x, at in zip(ins, spread, strict=True))
            return self._step(Operation(functools.partial(_bound, eqn), arguments))
        if kind is Dependence.MOVE and (found := moved(p, ins)) is not None:
            values, starts, origins = found
            source = origins[result].reshape(-1)[places]
            if (source < 0).any():
                raise _Unsupported
            which = self._same(np.searchsorted(starts, source, "right") - 1)
            return self.follow(values[which], source - starts[which])
        if p.name in REDUCTIONS:
            table, _ = reduction_groups(ins[0].places, p.axes)
            return self._folded(REDUCTIONS[p.name], [[(ins[0], at)] for at in self._few(table[places])])
        if kind is Dependence.PRODUCT:
            left, right, _ = product_factors(p, ins[0].places, ins[1].places)
            batch, i, j = np.unravel_index(places, (left.shape[0], left.shape[1], right.shape[1]))
            pairs = zip(self._few(left[batch, i]), self._few(right[batch, j]), strict=True)
            return self._folded(operator.add, [[(ins[0], a), (ins[1], b)] for a, b in pairs])
        raise _Unsupported

    def _few(self, table: np.ndarray) -> np.ndarray:
        if not 1 <= table.shape[1] <= MAX_TERMS:
            raise _Unsupported
        return table.T

    def _folded(self, add: Callable[..., Any], terms: list[list[tuple[Value, np.ndarray]]]) -> int:
        """The sum (or product) of terms, each of which is the product of a few entries."""
        total = -1
        for term in terms:
            one = tuple(self.follow(value, np.ascontiguousarray(at)) for value, at in term)
            one = one[0] if len(one) == 1 else self._step(Operation(operator.mul, one))
            total = one if total < 0 else self._step(Operation(add, (total, one)))
        return total

    def _read(self, places: np.ndarray) -> int:
        particle, coordinate = np.divmod(places, self.coordinates)
        match = self.table == particle[:, None]
        if not match.any(axis=1).all():
            raise _Unsupported
        label = self._same(match.argmax(axis=1) * self.coordinates + coordinate)
        return self._step(Read(*divmod(label, self.coordinates)))

    def _same(self, labels: np.ndarray) -> int:
        if (labels != labels[0]).any():
            raise _Unequal(labels)
        return int(labels[0])


def _bound(eqn: Equation, *given: PyTree) -> Any:
    """An equation of the program with other arguments, lanes for example."""
    cast = (x if x.dtype == v.aval.dtype else x.astype(v.aval.dtype) for x, v in zip(given, eqn.invars, strict=True))
    return eqn.primitive.bind(*cast, **eqn.params)


def _check_computable(value: Value, seen: set[int]) -> None:
    """Raise unless the array follows in a few operations from constants and arguments of the program."""
    if value.known is not None or value.argument is not None or id(value) in seen:
        return
    seen.add(id(value))
    if value.made is None or len(seen) > MAX_CONSTANTS:
        raise _Unsupported
    for x in value.made[1]:
        _check_computable(x, seen)


def _lanes_of(step: Constant, inputs: Sequence[Any], held: dict[int, Any]) -> Any:
    known, shape = step.value.known, step.places.shape
    if known is not None:
        entries = known.reshape(-1)[step.places]
        return jnp.full(shape, entries[0]) if (entries == entries[0]).all() else jnp.asarray(entries)
    array = jnp.reshape(_evaluated(step.value, inputs, held), -1)
    return jnp.broadcast_to(array, shape) if array.size == 1 else take(array, step.places)


def _evaluated(value: Value, inputs: Sequence[Any], held: dict[int, Any]) -> Any:
    """An array that does not depend on q, from the other arguments of the program."""
    if id(value) not in held:
        if value.known is not None:
            held[id(value)] = jnp.asarray(value.known)
        elif value.made is None:
            assert value.argument is not None
            held[id(value)] = jnp.asarray(inputs[value.argument - 1])
        else:
            eqn, ins, which = value.made
            out = _bound(eqn, *(_evaluated(x, inputs, held) for x in ins))
            held[id(value)] = out[which] if eqn.primitive.multiple_results else out
    return held[id(value)]
