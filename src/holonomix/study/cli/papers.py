"""`reproduce`: compute figures and tables of the papers; each paper has a module of its name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .exits import CommandError
from .suggest import kebab, unknown

if TYPE_CHECKING:
    from rich.console import Console

PAPERS = {
    "farrell2009": "Farrell, Hamiltonian mechanics and the construction of numerical integrators",
    "tao_owhadi2015": "Tao & Owhadi, Variational and linearly implicit integrators, with applications",
    "barth_leimkuhler_reich1998": "Barth, Leimkuhler & Reich, A time-reversible variable-stepsize integrator",
    "lubich_weiss": "Lubich & Weiss, Numerical integrators for motion under a strong constraining force",
    "brugnano2018": "Brugnano, Gurioli, Iavernaro & Weinmueller, Line integral solution of Hamiltonian systems",
}
ALL = "all"


def _papers(name: str) -> list[Any]:
    known = {kebab(paper): paper for paper in PAPERS}
    if name == ALL:
        names = list(PAPERS)
    elif kebab(name) in known:
        names = [known[kebab(name)]]
    else:
        raise CommandError(unknown("paper", name, [*PAPERS, ALL]))
    return [importlib.import_module(f"holonomix.study.papers.{paper}").PAPER for paper in names]


def list_items(name: str, console: Console) -> None:
    """Print the items of a paper with their CPU times."""
    from rich.table import Table

    for paper in _papers(name):
        view = Table(title=paper.name, title_justify="left")
        for column in ("item", "what", "in the paper"):
            view.add_column(column, overflow="fold")
        for column in ("quick / s", "full / s"):
            view.add_column(column, justify="right", no_wrap=True)
        for item in paper.items:
            view.add_row(item.name, item.title, item.source, *(f"{x:g}" for x in item.seconds))
        console.print(view, markup=False)


def reproduce(name: str, item: str | None, quick: bool, out: Path, report: Path | None, console: Console) -> None:
    """Compute one item of a paper, all of its items, or all items of all papers."""
    papers = _papers(name)
    if item is not None and name == ALL:
        raise CommandError("give the paper of the item, or leave out the item to compute all of them")
    known = [x.name for paper in papers for x in paper.items]
    if item is not None and item not in known:
        raise CommandError(unknown("item", item, known))
    pages = importlib.import_module("holonomix.study.papers.report")
    folder, formats = (out, ("png",)) if report is None else (report, ("png", "pdf", "svg"))
    records = [
        pages.run_item(paper, x, quick, folder, console, formats)
        for paper in papers
        for x in paper.items
        if item is None or x.name == item
    ]
    if len(records) > 1:
        console.print(_summary(records), markup=False)
    if report is not None:
        everything = _papers(ALL)
        pages.write_report(everything, report)
        console.print(f"report: {report / 'index.html'} and {report / 'index.md'}", highlight=False)
    else:
        console.print(f"pictures and data: {folder}", highlight=False)


def _summary(records: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    view = Table(title="verdicts", title_justify="left")
    for column in ("paper", "item", "verdict", "because"):
        view.add_column(column, overflow="fold")
    for record in records:
        view.add_row(record["paper"], record["name"], record["verdict"], record["reason"])
    return view
