"""`reproduce`: figures and tables of the papers, each by the module that bears its name."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from .exits import CommandError
from .suggest import kebab, unknown

__all__ = ["PAPERS", "items", "reproduce"]

PAPERS = {
    "farrell2009": "Farrell, Hamiltonian mechanics and the construction of numerical integrators",
    "tao_owhadi2015": "Tao & Owhadi, Variational and linearly implicit integrators, with applications",
    "barth_leimkuhler_reich1998": "Barth, Leimkuhler & Reich, A time-reversible variable-stepsize integrator",
    "lubich_weiss": "Lubich & Weiss, Numerical integrators for motion under a strong constraining force",
    "brugnano2018": "Brugnano, Gurioli, Iavernaro & Weinmueller, Line integral solution of Hamiltonian systems",
}


def _module(paper: str) -> Any:
    known = {kebab(name): name for name in PAPERS}
    name = known.get(kebab(paper))
    if name is None:
        raise CommandError(unknown("paper", paper, PAPERS))
    full = f"holonomix.papers.{name}"
    if importlib.util.find_spec(full) is None:
        raise CommandError(f"{name} is not part of this version yet")
    return importlib.import_module(full)


def items(paper: str) -> list[str]:
    """What can be reproduced of a paper."""
    return list(_module(paper).ITEMS)


def reproduce(paper: str, item: str | None, quick: bool, out: Path, console: Any) -> None:
    """Compute one figure or table of a paper, or all of them."""
    module = _module(paper)
    if item is not None and item not in module.ITEMS:
        raise CommandError(unknown("item", item, module.ITEMS))
    out.mkdir(parents=True, exist_ok=True)
    for name in module.ITEMS if item is None else (item,):
        module.ITEMS[name](quick, out, console)
