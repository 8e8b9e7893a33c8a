"""The names of columns of results, and of their axes.

The driver calls a column by a *key*; a store and a `Dataset` call it by a *name*:

    t, n, q, p, multipliers   the same
    obs/energy                energy (or obs_q, where a name of ours is taken)
    step/lr                   step_lr, a multiplier that the steps solved for
    memory/3                  a part of the memory of a dense run; never shown
    status                    the same; one value per trajectory of an ensemble, as the next two
    end/q                     end_q, of the final state
    reduced/largest           reduced_largest, a reduction

One run has rows over `t`. An ensemble has rows over `trajectory` and `t`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

OBSERVABLE, STEP, MEMORY = "obs/", "step/", "memory/"
STATUS, END, REDUCED = "status", "end/", "reduced/"
TRAJECTORY, TIME = "trajectory", "t"
RESERVED = ("t", "n", "q", "p", "multipliers", "times", "status", "time", "trajectory", "holonomix")


def name_of(key: str) -> str:
    """The variable that a column is shown and stored as."""
    name = key.removeprefix(OBSERVABLE).replace("/", "_")
    return f"obs_{name}" if name != key and name in RESERVED else name


def entry_name(key: str, k: int, names: Sequence[str], shape: tuple[int, ...] | None = None) -> str:
    """The name of entry k of q or p: `theta` and `p_theta` if coordinates have names, else `q[0]`."""
    if names:
        return names[k] if key == "q" else f"{key}_{names[k]}"
    place = np.unravel_index(k, shape) if shape else ()
    return f"{key}[{', '.join(str(int(i)) for i in place)}]" if place else key


def dims_of(key: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The names of the axes of one row: momenta share those of positions."""
    name = name_of(key)
    if name == "multipliers" and len(shape) == 1:
        return ("constraint",)
    stem = {"p": "q", "multipliers": "constraint"}.get(name, name)
    return tuple(f"{stem}_{k}" for k in range(len(shape)))


def row_dims(key: str, shape: tuple[int, ...], *lead: str) -> tuple[str, ...]:
    """All axes of a column with the leading axes `lead`, such as `t`."""
    return (*lead, *dims_of(key, shape[len(lead) :]))


def select(rows: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The columns with this prefix, by the names their owner gave them."""
    return {key.removeprefix(prefix): value for key, value in rows.items() if key.startswith(prefix)}


def visible(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns that are shown: everything but the memory of a dense run."""
    return {key: value for key, value in rows.items() if not key.startswith(MEMORY)}
