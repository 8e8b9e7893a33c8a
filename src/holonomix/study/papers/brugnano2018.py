"""Brugnano, Gurioli, Iavernaro & Weinmueller, Line integral solution of Hamiltonian systems with holonomic constraints.

Tables 1 to 4 (`brugnano2018_tables`), figures 1 to 3 and theorem 8 (`brugnano2018_figures`), the other theorems
(`brugnano2018_theory`).
"""

from __future__ import annotations

from .brugnano2018_figures import ITEMS as FIGURES
from .brugnano2018_tables import ITEMS as TABLES
from .brugnano2018_theory import ITEMS as THEORY
from .items import Paper

PAPER = Paper(
    "brugnano2018",
    "Brugnano, Gurioli, Iavernaro & Weinmueller, Line integral solution of Hamiltonian systems with holonomic "
    "constraints (2018)",
    (*THEORY, *TABLES, *FIGURES),
)
