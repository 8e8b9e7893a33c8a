"""One item of a paper: the claim of the paper, our results, and a verdict computed from both.

An `Item` is a figure, a table or a theorem. Its function computes and returns `Findings`: tables, pictures and
comparisons. Numbers decide whether a comparison holds, and the comparisons decide the verdict of the item:

- `agrees`: every comparison holds as printed in the paper;
- `agrees after correction`: every comparison holds, and at least one needs a misprint corrected, which it names;
- `differs`: at least one comparison does not hold.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

import holonomix as hx
from holonomix.core.types import Numbers
from holonomix.mechanics.abstract import AbstractSystem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell = str | float | int | np.floating | np.integer | None
ItemFunction = Callable[["Findings", bool], None]
STYLE = Path(__file__).with_name("journal.mplstyle")


class Verdict(enum.Enum):
    AGREES = "agrees"
    CORRECTED = "agrees after correction"
    DIFFERS = "differs"


def text(value: Cell) -> str:
    """The text of a table cell: three digits for a float, empty for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value) if isinstance(value, int | np.integer) else f"{value:.3g}"


@dataclasses.dataclass
class Table:
    """Rows under named columns, the first `keys` of which name the row; cells are stored as text."""

    title: str
    columns: tuple[str, ...]
    keys: int = 1
    rows: list[tuple[str, ...]] = dataclasses.field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"table {self.title!r} has {len(self.columns)} columns, the row has {len(cells)} cells")
        self.rows.append(tuple(map(text, cells)))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A statement of the paper beside our result; `correction` names the misprint that has to be corrected."""

    what: str
    paper: str
    found: str
    holds: bool
    correction: str = ""
    why: str = ""  # printed if the comparison does not hold


@dataclasses.dataclass
class Findings:
    """The results of an item."""

    tables: list[Table] = dataclasses.field(default_factory=list)
    figures: dict[str, Figure] = dataclasses.field(default_factory=dict)
    comparisons: list[Comparison] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def table(self, title: str, *columns: str, keys: int = 1) -> Table:
        self.tables.append(Table(title, columns, keys))
        return self.tables[-1]

    def panels(
        self, name: str, rows: int = 1, columns: int = 1, size: tuple[float, float] | None = None, **options: Any
    ) -> Any:
        """The axes of a new figure; `size` in inches, where 3.4 is one column and 7 are two."""
        from matplotlib.figure import Figure

        self.figures[name] = Figure(figsize=size)
        return self.figures[name].subplots(rows, columns, **options)

    def compare(
        self, what: str, paper: Cell, found: Cell, holds: bool | np.bool_, *, correction: str = "", why: str = ""
    ) -> None:
        """Record whether a statement holds; `holds` must come from numbers."""
        self.comparisons.append(Comparison(what, text(paper), text(found), bool(holds), correction, why))

    def note(self, words: str) -> None:
        """Add a remark that the reader needs to judge the comparison."""
        self.notes.append(words)

    @property
    def verdict(self) -> Verdict:
        if not self.comparisons:
            raise ValueError("an item without a comparison has no verdict")
        if not all(c.holds for c in self.comparisons):
            return Verdict.DIFFERS
        return Verdict.CORRECTED if any(c.correction for c in self.comparisons) else Verdict.AGREES

    @property
    def reason(self) -> str:
        """The corrected misprints, or the comparisons that do not hold with their explanations."""
        if self.verdict is Verdict.DIFFERS:
            failed = [c for c in self.comparisons if not c.holds]
            return "; ".join(f"{c.what}: {c.why or 'no explanation known'}" for c in failed)
        return "; ".join(dict.fromkeys(c.correction for c in self.comparisons if c.correction))


@dataclasses.dataclass(frozen=True)
class Item:
    """A figure, table or statement of a paper, and the function that computes it (its argument: whether quick)."""

    name: str
    title: str
    source: str  # page, section, figure or equation
    claim: str  # the paper's statement in our words
    run: Callable[[bool], Findings]
    full: str  # settings of the full form
    quick: str = "as the full form"
    seconds: tuple[float | int, float | int] = (5, 5)  # CPU time of the quick and of the full form, about


def item(name: str, title: str, source: str, full: str, **options: Any) -> Callable[[ItemFunction], Item]:
    """Make an item from a function that fills `Findings`; its docstring states the claim of the paper."""

    def declare(fill: ItemFunction) -> Item:
        def run(quick: bool) -> Findings:
            found = Findings()
            try:
                fill(found, quick)
            except hx.SimulationError as error:
                # comparisons made before the error do not cover the rest
                found.compare("every run reaches its end", "yes", "no", False, why=str(error))
            return found

        return Item(name, title, source, " ".join((fill.__doc__ or "").split()), run, full, **options)

    return declare


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper and its items."""

    name: str
    citation: str
    items: tuple[Item, ...]

    def item(self, name: str) -> Item:
        return next(item for item in self.items if item.name == name)


# -- helpers of the items ----------------------------------------------------------------------------------------------


@contextmanager
def journal_style() -> Iterator[None]:
    """Set the style of all figures of the papers, without a display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.style.context(STYLE):
        yield


def legend(axes: Axes, columns: int = 3) -> None:
    """One legend above the panels, where it hides no data."""
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=columns)


def log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Set the ticks of the logarithmic x axis to these values."""
    axes.set_xticks(values, [f"{x:g}" for x in values])
    axes.xaxis.set_minor_formatter("")


def snapshots(found: Findings, name: str, times: Sequence[float], **ticks: Sequence[float]) -> list[Any]:
    """Six panels in space, one per time; `x`, `y` and `z` are the ticks, the ends of which are the limits."""
    axes = list(found.panels(name, 2, 3, (7.0, 5.2), subplot_kw={"projection": "3d"}).flat)
    for panel, t in zip(axes, times, strict=True):
        for x, values in ticks.items():
            panel.set(**{f"{x}lim": (values[0], values[-1]), f"{x}ticks": values, f"{x}label": f"${x}$"})
            panel.tick_params(axis=x, pad=-2)
            getattr(panel, f"{x}axis").labelpad = -4
        panel.set_title(f"$t = {t:.2f}$", y=0.97)
        panel.set_box_aspect(None, zoom=0.85)
    return axes


def draw_rounding(panel: Axes, t: np.ndarray, error: np.ndarray, block: int = 100) -> None:
    """Draw the error of every step as a gray dot, and the maximum of every block as a line."""
    panel.plot(t, error, ".", ms=1, mew=0, color="0.65", ls="", rasterized=True)
    rows = len(error) // block * block
    panel.plot(t[:rows:block], error[:rows].reshape(-1, block).max(axis=1), lw=0.8, ls="-", color="black")


def order_of(steps: ArrayLike, errors: ArrayLike) -> float:
    """The slope of log error against log step."""
    return float(np.polyfit(np.log(np.asarray(steps)), np.log(np.asarray(errors)), 1)[0])


def worst(sol: hx.Solution) -> float:
    """The largest energy error."""
    return float(np.max(np.abs(sol.energy_error())))


def rigid_reference(problem: hx.Problem, spacing: float, t1: float) -> Any:
    """The rigid motion by a composition of RATTLE of order eight, one row per `spacing`."""
    return hx.simulate(problem, hx.Composition(hx.RATTLE(), order=8), dt=spacing, t1=t1)


def wedge_form(slope: ArrayLike) -> np.ndarray:
    """`J^T W J - W` of a Jacobian J, with the canonical form W."""
    slope = np.asarray(slope)
    zero, one = np.zeros((len(slope) // 2,) * 2), np.eye(len(slope) // 2)
    form = np.block([[zero, one], [-one, zero]])
    return slope.T @ form @ slope - form


def form_defect(slope: ArrayLike) -> float:
    """The largest entry of `J^T W J - W`."""
    return float(np.max(np.abs(wedge_form(slope))))


def symplectic_defect(system: AbstractSystem, method: hx.AbstractMethod, q: Numbers, p: Numbers, h: float) -> float:
    """The largest entry of `J^T W J - W` for one step."""
    import jax
    import jax.numpy as jnp

    def step(z: Numbers) -> Any:
        start = (x.reshape(q.shape) for x in jnp.split(z, 2))
        end = hx.integrate(system, method, *start, dt=h, steps=1, adjoint="forward")
        return jnp.concatenate([x.reshape(-1) for x in end])

    return form_defect(jax.jit(jax.jacfwd(step))(jnp.concatenate([q.reshape(-1), p.reshape(-1)])))


def timed(run: Callable[[], Findings]) -> tuple[Findings, float]:
    """The result of `run` and its CPU time in seconds."""
    began = time.process_time()
    found = run()
    return found, time.process_time() - began
