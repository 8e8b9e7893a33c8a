"""Measure what every method declares on one problem per kind of system, for the tables of docs/methods.

    python tools/measured_traits.py [NAME ...]

Writes docs/assets/measured_traits.json; methods that are not named keep their entries.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import holonomix as hx

TARGET = Path(__file__).parents[1] / "docs" / "assets" / "measured_traits.json"


OWN_LIMIT = ("MollifiedImpulse", "ProjectedImpulse")  # as dt falls they tend to a motion of their own


def problem_of(method: Any, kind: str) -> Any:
    if method.family == "so3":
        return hx.models.magnetized_body()
    if kind == "free":
        return hx.models.henon_heiles()
    if kind == "constrained":
        return hx.models.double_pendulum()
    return dataclasses.replace(hx.models.penalized_double_pendulum(omega=10.0), dt=0.02)


def measured(method: Any, kind: str) -> dict[str, Any] | None:
    """The findings of a certificate as name: [measured, verdict], or None where that was not possible."""
    try:
        problem, reference = problem_of(method, kind), method if method.name in OWN_LIMIT else None
        if problem.system.kind != kind:
            return None
        certificate = hx.certify(problem, method, reference=reference)
    except hx.HolonomixError as error:
        print(f"{method.name} on a {kind} system: {error}")
        return None
    rows = {f.name: [float(f"{f.measured:.2g}"), f.kept] for f in certificate.findings if f.applicable}
    return {"problem": certificate.problem, "dt": certificate.dt, "findings": rows}


def main(wanted: list[str]) -> None:
    table = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    for name, entry in hx.methods.registry().items():
        if wanted and name not in wanted or entry.default.stochastic:
            continue
        found = {kind: measured(entry.default, kind) for kind in entry.traits}
        table[name] = {kind: findings for kind, findings in found.items() if findings is not None}
        print(name, list(table[name]), flush=True)
        TARGET.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
