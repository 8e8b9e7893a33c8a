"""The errors and rates printed in Brugnano, Gurioli, Iavernaro & Weinmueller 2018, tables 1 to 4, from the CSV file.

Each row has e_s, e_lambda and e_hc with their rates ("-" where the paper prints none); the errors of energy and
constraint, all at round-off there, are left out.
"""

from __future__ import annotations

import csv
from pathlib import Path

Rows = dict[tuple[int, int], list[tuple[int, str, str, str]]]
PRINTED: Rows = {}  # (table, s) -> rows of (n, e_s, e_lambda, e_hc)
RATES: Rows = {}  # (table, s) -> rows of (n, rate of e_s, of e_lambda, of e_hc)
with Path(__file__).with_suffix(".csv").open(newline="") as _file:
    for _table, _s, _n, *_cells in list(csv.reader(_file))[1:]:
        for _rows, (_a, _b, _c) in ((PRINTED, _cells[::2]), (RATES, _cells[1::2])):
            _rows.setdefault((int(_table), int(_s)), []).append((int(_n), _a, _b, _c))
