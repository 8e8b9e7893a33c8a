"""Brugnano, Gurioli, Iavernaro & Weinmueller, Line integral solution of Hamiltonian systems with holonomic constraints.

Tables 1 to 4 beside the printed digits, figures 1 to 3, theorem 8 measured, and what the tables do not show: the true
errors of tables 3 and 4 (the paper compares two meshes there).

What the columns are (the text does not say; all four tables come out with these):

- table 1: the largest 1-norm of the (q, p) error over the steps, against the closed form;
- table 2: the inf-norm of the (q, p) error at the end of ten periods;
- tables 3 and 4: the largest difference between the meshes h and h/2 at the times 0.1 j, in the inf-norm;
- e_lambda compares the constant multiplier of a step with lambda at its start, e_hc is the largest `|G M^-1 p|` (the
  1-norm of it in table 4).
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax.tree_util import Partial

import holonomix as hx

from .brugnano2018_printed import PRINTED

__all__ = ["ITEMS", "Row", "Run", "table"]


@dataclasses.dataclass(frozen=True)
class Run:
    """One solution by HBVM(k, s), with everything the tables are made of."""

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


def solve(problem: Any, method: Any, dt: float, steps: int) -> Run:
    observe = {"hidden": Partial(_hidden, problem.system)}
    sol = hx.simulate(problem.system, method, problem.q0, problem.p0, dt=dt, steps=steps, observe=observe)
    hidden = sol.observables["hidden"]
    multipliers = sol.step_multipliers["lambda"][1:]
    energy, constraint = np.max(np.abs(sol.energy_error())), np.max(sol.constraint_error())
    return Run(sol.t, sol.q, sol.p, multipliers, float(energy), float(constraint), hidden)


def _hidden(system: Any, q: Any, p: Any) -> Any:
    """`G M^-1 p`, all components."""
    return system.hidden_constraint(q, p)


def _constraint(system: Any, q: Any, p: Any) -> Any:
    return system.constraint(q)


def agreement(ours: float, printed: str) -> str:
    """`=` where all printed digits come out, the deviation in percent otherwise."""
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


def _pendulum_rows(number: int, problem: Any, method: Any, s: int, quick: bool) -> list[Row]:
    rows = []
    for n in range(6 if quick else MESHES[1]):
        run = solve(problem, method, 0.1 / 2**n, 100 * 2**n)
        q, p = problem.reference(run.t)
        error = np.max(np.sum(np.abs(run.z - np.concatenate([q, p], axis=1)), axis=1))
        # lambda = (theta'^2 + cos theta) / 2, equation (62)
        exact = 0.5 * (np.sum(p**2, axis=1) - q[:, 1])
        multiplier = np.max(np.abs(run.multipliers[:, 0] - exact[:-1]))
        hidden = np.max(np.abs(run.hidden))
        rows.append(Row(number, s, n, float(error), float(multiplier), float(hidden), run.energy, run.constraint))
    return rows


def _conical_rows(number: int, problem: Any, method: Any, s: int, quick: bool) -> list[Row]:
    period = 2**0.75 * np.pi
    rows = []
    for n, *_ in PRINTED[2, s]:
        run = solve(problem, method, period / n, 10 * n)
        q, p = problem.reference(np.asarray([0.0]))  # ten whole periods
        error = np.max(np.abs(run.z[-1] - np.concatenate([q, p], axis=1)[0]))
        multiplier = np.max(np.abs(run.multipliers - 2**-0.5))
        hidden = np.max(np.abs(run.hidden))
        rows.append(Row(number, s, n, float(error), float(multiplier), float(hidden), run.energy, run.constraint))
    return rows


def _doubling_rows(number: int, problem: Any, method: Any, s: int, quick: bool) -> list[Row]:
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


def reference(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    """`(q, p)` and `Lambda(q, p)` at the times 0.1 j, by a composition of RATTLE of order 8 (error about 1e-13)."""
    method = hx.Composition(hx.RATTLE(), order=8)
    sol = hx.simulate(problem.system, method, problem.q0, problem.p0, dt=0.1 / 16, steps=1600, save_every=16)
    rows = len(sol.t)
    return np.concatenate([sol.q.reshape(rows, -1), sol.p.reshape(rows, -1)], axis=1), sol.multipliers


def _print_columns(console: Any, title: str, heads: list[str], lines: list[list[str]], groups: list[list[int]]) -> None:
    """One table where the console is wide enough for every digit, else one for each group of columns."""
    from rich.table import Table

    def view(columns):
        table = Table(title=title, caption="= all printed digits; otherwise the deviation from them")
        for k in columns:
            table.add_column(heads[k], justify="right", no_wrap=True)
        for line, after in zip(lines, [*lines[1:], None]):
            table.add_row(*(line[k] for k in columns), end_section=after is None or after[0] != line[0])
        return table

    whole = view(range(len(heads)))
    wide = console.measure(whole, options=console.options.update(max_width=1000)).maximum
    for table in [whole] if wide <= console.width else [view([0, 1, *group]) for group in groups]:
        console.print(table)


def show_table(number: int, quick: bool, out: Path, console: Any) -> None:
    rows = table(number, quick)
    title = (
        f"Table {number}: {PROBLEMS[number]().name}, HBVM({'6' if number == 4 else '3s' if number == 3 else 's'}, s)"
    )
    names = ("e_s", "e_lambda", "e_hc")
    heads = ["s", "n"]
    for name in names:
        heads += [name, "printed", ""]
    heads += ["e_H", "e_g"] + (["true e_s", "true e_lambda"] if rows[0].true else [])
    lines = []
    for row in rows:
        cells = [str(row.s), str(row.n)]
        for ours, printed in zip((row.solution, row.multiplier, row.hidden), row.printed):
            same = agreement(ours, printed) if (ours, printed) in row.compared else ""
            cells += [f"{ours:.4e}", printed, same]
        cells += [f"{row.energy:.1e}", f"{row.constraint:.1e}"] + [f"{x:.4e}" for x in row.true or ()]
        lines.append(cells)
    groups = [[2, 3, 4], [5, 6, 7], [8, 9, 10, 11, 12]] + ([[13, 14]] if rows[0].true else [])
    _print_columns(console, title, heads, lines, groups)
    compared = [(ours, printed) for row in rows for ours, printed in row.compared]
    equal = sum(agreement(*pair) == "=" for pair in compared)
    worst = max(abs(ours / float(printed) - 1) for ours, printed in compared)
    exact = max(max(row.energy, row.constraint) for row in rows)
    others = "" if equal == len(compared) else f", the others within {100 * worst:.2g} %"
    console.print(
        f"{equal} of {len(compared)} figures agree in all printed digits{others}; "
        f"energy and constraint errors at most {exact:.1e}"
    )
    with (out / f"table{number}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["s", "n", *(f"{x}{y}" for x in names for y in ("", " printed")), "e_H", "e_g", *heads[13:]])
        for row in rows:
            pairs = zip((row.solution, row.multiplier, row.hidden), row.printed)
            cells = [x for pair in pairs for x in pair]
            writer.writerow([row.s, row.n, *cells, row.energy, row.constraint, *(row.true or ())])


# -- the figures ------------------------------------------------------------------------------------------------------


def _save(figure: Any, path: Path, console: Any) -> None:
    figure.savefig(path, dpi=150)
    console.print(f"wrote {path}")


def conical_run(periods: int) -> tuple[Run, np.ndarray]:
    """HBVM(2, 2) with h = T/100, and the solution error at every step."""
    problem = PROBLEMS[2]()
    run = solve(problem, hx.HBVM(2, 2), 2**0.75 * np.pi / 100, 100 * periods)
    q, p = problem.reference(run.t)
    return run, np.max(np.abs(run.z - np.concatenate([q, p], axis=1)), axis=1)


def figure1(quick: bool, out: Path, console: Any) -> None:
    """The solution error of HBVM(2, 2) on the conical pendulum grows linearly."""
    from matplotlib.figure import Figure

    run, error = conical_run(20 if quick else 100)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(run.t, error)
    axes.set(xlabel="t", ylabel="solution error", title="Conical pendulum, HBVM(2, 2), h = T/100")
    slope = np.polyfit(np.log(run.t[100:]), np.log(np.maximum.accumulate(error)[100:]), 1)[0]
    console.print(f"Figure 1: the error grows as t^{slope:.2f}, to {error[-1]:.2e} at t = {run.t[-1]:.0f}")
    _save(figure, out / "figure1.png", console)


def figure2(quick: bool, out: Path, console: Any) -> None:
    """Errors of multiplier, energy, constraint and hidden constraint in the run of figure 1."""
    from matplotlib.figure import Figure

    run, _ = conical_run(20 if quick else 100)
    problem = PROBLEMS[2]()
    energy = 0.5 * np.sum(run.p**2, axis=1) + run.q[:, 2]
    curves = {
        "multiplier": np.abs(run.multipliers[:, 0] - 2**-0.5),
        "hidden constraint": np.abs(run.hidden[1:, 0]),
        "Hamiltonian": np.abs(energy - energy[0])[1:],
        "constraint": np.abs(np.sum(run.q**2, axis=1) - 1)[1:],
    }
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for (name, curve), style in zip(curves.items(), ("--", "-.", "-", ":")):
        axes.semilogy(run.t[1:], np.maximum(curve, 1e-17), style, label=name, linewidth=0.8)
    axes.set(xlabel="t", ylabel="error", title=f"{problem.name}, HBVM(2, 2), h = T/100")
    axes.legend()
    largest = ", ".join(f"{name} {np.max(curve):.1e}" for name, curve in curves.items())
    console.print(f"Figure 2: largest errors over {len(run.t) - 1} steps: {largest}")
    _save(figure, out / "figure2.png", console)


def figure3(quick: bool, out: Path, console: Any) -> None:
    """The satellites over 10^4 steps: hidden constraint, Hamiltonian and the three constraints."""
    from matplotlib.figure import Figure

    problem = PROBLEMS[4]()
    observe = {"hidden": Partial(_hidden, problem.system), "g": Partial(_constraint, problem.system)}
    sol = hx.simulate(
        problem.system,
        hx.HBVM(6, 2),
        problem.q0,
        problem.p0,
        dt=0.1,
        steps=1000 if quick else 10_000,
        save_every=5,
        observe=observe,
    )
    g = np.abs(sol.observables["g"])
    hidden = np.sum(np.abs(sol.observables["hidden"]), axis=1)
    energy = np.abs(sol.energy_error())
    figure = Figure(figsize=(7, 9), layout="constrained")
    panels = {"hidden constraints": hidden, "Hamiltonian": energy} | {f"constraint {k + 1}": g[:, k] for k in range(3)}
    for axes, (name, curve) in zip(figure.subplots(len(panels), sharex=True), panels.items()):
        axes.semilogy(sol.t, np.maximum(curve, 1e-18), linewidth=0.6)
        axes.set(ylabel=name)
    axes.set(xlabel="t")
    planes = np.max(np.abs(sol.q[:, :, 1] - np.asarray([0.5, -0.5, 0.0])))
    console.print(
        f"Figure 3: over {sol.stats['steps']} steps energy {np.max(energy):.1e}, constraints {np.max(g):.1e}, hidden "
        f"constraints {np.max(hidden):.1e}; the planes y = 1/2, -1/2, 0 are kept to {planes:.1e}"
    )
    _save(figure, out / "figure3.png", console)


# -- theorem 8 --------------------------------------------------------------------------------------------------------


def theorem8_errors(problem: Any, method: Any, meshes: tuple[float, ...]) -> list[tuple[float, float]]:
    """Largest energy and constraint errors up to t = 2, for each step size."""
    return [(run.energy, run.constraint) for run in (solve(problem, method, h, round(2 / h)) for h in meshes)]


THEOREM8 = (
    ("modified pendulum", 3, 2, 1, (0.1, 0.05, 0.025)),
    ("modified pendulum", 3, 3, 1, (0.1, 0.05, 0.025)),
    ("tethered satellites", 4, 1, 1, (0.4, 0.2, 0.1)),
    ("tethered satellites", 4, 3, 1, (0.4, 0.2, 0.1)),
)


def theorem8(quick: bool, out: Path, console: Any) -> None:
    """With too few nodes energy and constraint err by O(h^2k), with enough they are at round-off."""
    from rich.table import Table

    view = Table(title="Theorem 8: energy and constraint errors against the number of quadrature nodes")
    for head in ("problem", "method", "h", "e_H", "order", "e_g", "order", "2k"):
        view.add_column(head, justify="right")
    for name, number, k, s, meshes in THEOREM8:
        errors = theorem8_errors(PROBLEMS[number](), hx.HBVM(k, s), meshes)
        before: tuple[float, float] | None = None
        for h, pair in zip(meshes, errors):
            orders = ["", ""] if before is None else [f"{np.log2(b / a):.2f}" for a, b in zip(pair, before)]
            orders = [o if a > 1e-14 else "round-off" for o, a in zip(orders, pair)]
            cells = (f"{pair[0]:.2e}", orders[0], f"{pair[1]:.2e}", orders[1])
            view.add_row(name, f"HBVM({k}, {s})", f"{h:g}", *cells, str(2 * k), end_section=h == meshes[-1])
            before = pair
    console.print(view)


ITEMS: dict[str, Callable[[bool, Path, Any], None]] = {
    **{f"table{k}": (lambda quick, out, console, k=k: show_table(k, quick, out, console)) for k in PROBLEMS},
    "figure1": figure1,
    "figure2": figure2,
    "figure3": figure3,
    "theorem8": theorem8,
}
