"""Brugnano et al. (2018), tables 1 to 4 beside the printed digits.

Beyond the paper: the true errors of tables 3 and 4 (the paper compares two meshes there).

Meaning of the columns (the text does not say; with these all four tables can be reproduced):

- table 1: the largest 1-norm of the (q, p) error over the steps, against the closed form;
- table 2: the inf-norm of the (q, p) error at the end of ten periods;
- tables 3 and 4: the largest difference between the meshes h and h/2 at the times 0.1 j, in the inf-norm;
- e_lambda compares the constant multiplier of a step with lambda at its start, e_hc is the largest `|G M^-1 p|` (the
  1-norm of it in table 4).

The printed errors and rates are in a CSV file: e_s, e_lambda and e_hc with their rates ("-" where the paper prints
none). Errors of energy and constraint, all at round-off in the paper, are left out.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax.tree_util import Partial

import holonomix as hx
from holonomix.core.types import Numbers

from .items import Findings, Item

Rows = dict[tuple[int, int], list[tuple[int, str, str, str]]]
PRINTED: Rows = {}  # (table, s) -> rows of (n, e_s, e_lambda, e_hc)
RATES: Rows = {}  # (table, s) -> rows of (n, rate of e_s, of e_lambda, of e_hc)
with Path(__file__).with_name("brugnano2018_printed.csv").open(newline="") as _file:
    for _table, _s, _n, *_cells in list(csv.reader(_file))[1:]:
        for _rows, (_a, _b, _c) in ((PRINTED, _cells[::2]), (RATES, _cells[1::2])):
            _rows.setdefault((int(_table), int(_s)), []).append((int(_n), _a, _b, _c))


@dataclasses.dataclass(frozen=True)
class Run:
    """One solution by HBVM(k, s), with all data for the tables."""

    t: np.ndarray
    q: np.ndarray
    p: np.ndarray
    multipliers: np.ndarray  # row n: the multiplier of the step that begins at t_n
    energy: float
    constraint: float
    hidden: np.ndarray  # G M^-1 p at every step

    @property
    def z(self) -> np.ndarray:
        return np.concatenate([self.q.reshape(len(self.t), -1), self.p.reshape(len(self.t), -1)], axis=1)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table: the errors by name, in the order of the columns."""

    table: int
    s: int
    n: int
    solution: float
    multiplier: float
    hidden: float
    energy: float
    constraint: float
    true: tuple[float, float] | None = None  # against a reference solution: (q, p) and multiplier

    @property
    def printed(self) -> tuple[str, str, str]:
        return next(row[1:] for row in PRINTED[self.table, self.s] if row[0] == self.n)

    @property
    def compared(self) -> tuple[tuple[float, str], ...]:
        """Each error with what the paper prints for it; round-off is not compared."""
        ours = (self.solution, self.multiplier, self.hidden)
        return tuple(zip(ours, self.printed))[: 1 if self.table == 2 else 3]


def solve(problem: hx.Problem, method: hx.AbstractMethod, dt: float, steps: int) -> Run:
    observe = {"hidden": Partial(hidden_constraint, problem.system)}
    sol = hx.simulate(problem, method, dt=dt, steps=steps, observe=observe)
    hidden = sol.observables["hidden"]
    multipliers = sol.step_multipliers["lambda"][1:]
    energy, constraint = np.max(np.abs(sol.energy_error())), np.max(sol.constraint_error())
    return Run(sol.t, sol.q, sol.p, multipliers, float(energy), float(constraint), hidden)


def hidden_constraint(system: hx.System, q: Numbers, p: Numbers) -> Any:
    """`G M^-1 p`, all components."""
    return system.hidden_constraint(q, p)


def agreement(ours: float, printed: str) -> str:
    """`=` if all printed digits agree, otherwise the deviation in percent."""
    if f"{ours:.4e}" == printed:
        return "="
    return f"{100 * (ours / float(printed) - 1):+.2g}%"


# -- the tables -------------------------------------------------------------------------------------------------------

MESHES = {1: 9, 3: 9, 4: 4}
STAGES = {1: (1, 2, 3), 2: (1, 2, 3, 4), 3: (1, 2, 3), 4: (1, 2, 3)}
NODES: dict[int, Callable[[int], int]] = {1: lambda s: s, 2: lambda s: s, 3: lambda s: 3 * s, 4: lambda s: 6}
PROBLEMS = {
    1: hx.models.planar_pendulum,
    2: hx.models.conical_pendulum,
    3: hx.models.modified_pendulum,
    4: hx.models.tethered_satellites,
}


def table(number: int, quick: bool = False, stages: tuple[int, ...] | None = None) -> list[Row]:
    """The rows of a table; `quick` leaves out the finest meshes."""
    make = {1: _pendulum_rows, 2: _conical_rows, 3: _doubling_rows, 4: _doubling_rows}[number]
    rows: list[Row] = []
    for s in STAGES[number] if stages is None else stages:
        rows += make(number, PROBLEMS[number](), hx.HBVM(NODES[number](s), s), s, quick)
    return rows


def _pendulum_rows(number: int, problem: hx.Problem, method: hx.AbstractMethod, s: int, quick: bool) -> list[Row]:
    rows = []
    for n in range(6 if quick else MESHES[1]):
        run = solve(problem, method, 0.1 / 2**n, 100 * 2**n)
        assert problem.reference is not None
        q, p = problem.reference(run.t)
        error = np.max(np.sum(np.abs(run.z - np.concatenate([q, p], axis=1)), axis=1))
        # lambda = (theta'^2 + cos theta) / 2, equation (62)
        exact = 0.5 * (np.sum(p**2, axis=1) - q[:, 1])
        multiplier = np.max(np.abs(run.multipliers[:, 0] - exact[:-1]))
        hidden = np.max(np.abs(run.hidden))
        rows.append(Row(number, s, n, float(error), float(multiplier), float(hidden), run.energy, run.constraint))
    return rows


def _conical_rows(number: int, problem: hx.Problem, method: hx.AbstractMethod, s: int, quick: bool) -> list[Row]:
    period = 2**0.75 * np.pi
    rows = []
    for n, *_ in PRINTED[2, s]:
        run = solve(problem, method, period / n, 10 * n)
        assert problem.reference is not None
        q, p = problem.reference(np.asarray([0.0]))  # ten whole periods
        error = np.max(np.abs(run.z[-1] - np.concatenate([q, p], axis=1)[0]))
        multiplier = np.max(np.abs(run.multipliers - 2**-0.5))
        hidden = np.max(np.abs(run.hidden))
        rows.append(Row(number, s, n, float(error), float(multiplier), float(hidden), run.energy, run.constraint))
    return rows


def _doubling_rows(number: int, problem: hx.Problem, method: hx.AbstractMethod, s: int, quick: bool) -> list[Row]:
    meshes = {3: 4, 4: 2}[number] if quick else MESHES[number]
    runs = [solve(problem, method, 0.1 / 2**n, 100 * 2**n) for n in range(meshes + 1)]
    exact, exact_multiplier = reference(problem)
    rows = []
    for n, (coarse, fine) in enumerate(zip(runs, runs[1:])):
        a, b = 2**n, 2 ** (n + 1)
        error = np.max(np.abs(coarse.z[::a] - fine.z[::b]))
        multiplier = np.max(np.abs(coarse.multipliers[::a] - fine.multipliers[::b]))
        hidden = np.max(np.sum(np.abs(coarse.hidden), axis=1))
        true = (
            float(np.max(np.abs(coarse.z[::a] - exact))),
            float(np.max(np.abs(coarse.multipliers[::a] - exact_multiplier[:-1]))),
        )
        figures = (float(error), float(multiplier), float(hidden), coarse.energy, coarse.constraint)
        rows.append(Row(number, s, n, *figures, true))
    return rows


def reference(problem: hx.Problem) -> tuple[np.ndarray, np.ndarray]:
    """`(q, p)` and `Lambda(q, p)` at the times 0.1 j, by a composition of RATTLE of order 8 (error about 1e-13)."""
    method = hx.Composition(hx.RATTLE(), order=8)
    sol = hx.simulate(problem, method, dt=0.1 / 16, steps=1600, save_every=16)
    rows = len(sol.t)
    return np.concatenate([sol.q.reshape(rows, -1), sol.p.reshape(rows, -1)], axis=1), sol.multipliers


NAMES = ("e_s", "e_lambda", "e_hc")


def rates(rows: list[Row]) -> dict[tuple[int, int], tuple[float, ...]]:
    """(s, n) -> observed orders of the three errors between a row and the one before, as the paper prints them."""
    found = {}
    for before, row in zip(rows, rows[1:]):
        if before.s != row.s:
            continue
        ratio = np.log(row.n / before.n) if row.table == 2 else np.log(2.0)
        pairs = zip((before.solution, before.multiplier, before.hidden), (row.solution, row.multiplier, row.hidden))
        found[row.s, row.n] = tuple(float(np.log(a / b) / ratio) for a, b in pairs)
    return found


def show_table(number: int, quick: bool) -> Findings:
    """A table of the paper beside ours, with the rate columns."""
    rows = table(number, quick)
    nodes = {3: "3s", 4: "6"}.get(number, "s")
    found = Findings()
    columns = ["s", "n"]
    for name in NAMES:
        columns += [name, f"{name} printed", "same", "rate", "rate printed"]
    columns += ["e_H", "e_g"] + (["true e_s", "true e_lambda"] if rows[0].true else [])
    view = found.table(f"Table {number}: {PROBLEMS[number]().name}, HBVM({nodes}, s)", *columns, keys=2)
    slopes, off = rates(rows), 0.0
    for row in rows:
        printed_rates = next(r[1:] for r in RATES[number, row.s] if r[0] == row.n)
        cells: list[str] = [str(row.s), str(row.n)]
        for k, (ours, printed) in enumerate(zip((row.solution, row.multiplier, row.hidden), row.printed)):
            compared = (ours, printed) in row.compared
            rate, theirs = slopes.get((row.s, row.n), (np.nan,) * 3)[k], printed_rates[k]
            # below 1e-12 the round-off of the paper determines the rate
            known = compared and theirs != "-" and np.isfinite(rate) and float(printed) > 1e-12
            off = max(off, abs(rate - float(theirs))) if known else off
            same = agreement(ours, printed) if compared else "round-off"
            cells += [f"{ours:.4e}", printed, same, f"{rate:.2f}" if known else "", theirs if known else ""]
        cells += [f"{row.energy:.1e}", f"{row.constraint:.1e}"] + [f"{x:.4e}" for x in row.true or ()]
        view.add(*cells)
    pairs = [pair for row in rows for pair in row.compared]
    equal = sum(agreement(*pair) == "=" for pair in pairs if float(pair[1]) > 1e-12)
    above = [pair for pair in pairs if float(pair[1]) > 1e-12]
    worst = max(abs(a / float(b) - 1) for a, b in above)
    exact = max(max(row.energy, row.constraint) for row in rows)
    others = "" if equal == len(above) else f", the others within {100 * worst:.2g} %"
    found.compare(
        f"{len(above)} errors",
        "five digits each",
        f"{equal} equal in all printed digits{others}",
        worst < 0.01,
        why="the quantity or the norm that the column shows is another one",
    )
    below = [pair for pair in pairs if float(pair[1]) <= 1e-12]
    if below:  # of the size of the round-off of ten periods
        factor = max(max(a / float(b), float(b) / a) for a, b in below)
        words = f"{len(below)} errors printed below 1e-12, where round-off shows"
        found.compare(words, "five digits each", f"within a factor of {factor:.2f}", factor < 2)
    if number == 2:
        ours, theirs = (
            max(x) for x in zip(*[(max(r.multiplier, r.hidden), max(map(float, r.printed[1:]))) for r in rows])
        )
        found.compare(
            "errors of multiplier and hidden constraint",
            f"round-off, at most {theirs:.1e}",
            f"at most {ours:.1e}",
            ours < 1e-11,
        )
    found.compare("rate columns", "two decimals each", f"equal within {off:.3f}", off < 0.03)
    found.compare("energy and constraint errors", "at round-off", f"at most {exact:.1e}", exact < 1e-13)
    if rows[0].true:
        ratio = max(row.true[0] / row.solution for row in rows if row.true and row.s > 1)
        found.note(
            "The text does not say that e_s and e_lambda of tables 3 and 4 compare the meshes h and h/2; the columns "
            f"'true' give the errors against a reference (up to {ratio:.2f} times e_s for s > 1)."
        )
    return found


CLAIMS = {
    1: "All methods are of second order in (q, p) and of first order in lambda; energy and constraint are conserved "
    "exactly and the hidden constraint to second order.",
    2: "With a constant multiplier HBVM(s, s) has order 2s; multiplier, energy, constraint and hidden constraint are "
    "exact.",
    3: "Order two in (q, p), one in lambda; HBVM(3s, s) conserves energy and constraint, polynomials of degree six.",
    4: "Order two in (q, p) and one in lambda for s = 1, 2, 3; energy and constraints are conserved to round-off.",
}
LENGTHS = {1: "n = 0 to 8", 2: "as printed", 3: "n = 0 to 8", 4: "n = 0 to 3"}
QUICK = {1: "n = 0 to 5", 2: "as the full form", 3: "n = 0 to 3", 4: "n = 0, 1"}
SECONDS = {1: (1, 1), 2: (1, 1), 3: (1, 2), 4: (2, 3)}

ITEMS = tuple(
    Item(
        f"table{k}",
        f"errors on the {PROBLEMS[k]().name}",
        f"section 5, Table {k}",
        CLAIMS[k],
        functools.partial(show_table, k),
        LENGTHS[k],
        QUICK[k],
        SECONDS[k],
    )
    for k in PROBLEMS
)
