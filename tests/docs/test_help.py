"""The troubleshooting page has an entry for every error, warning and status."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import holonomix as hx
from holonomix.core.errors import HolonomixError

ROOT = Path(__file__).parents[2]
HELP = (ROOT / "docs" / "troubleshooting.md").read_text()


def kinds(root: type) -> set[type]:
    return {root} | {c for kind in root.__subclasses__() for c in kinds(kind)}


def test_troubleshooting_has_an_entry_for_each_error_warning_and_status():
    homes = "study.cli.exits run.io.errors build.mechanisms.xml_files trace.taylor.series mechanics.resonance run"
    for name in homes.split():
        importlib.import_module(f"holonomix.{name}")
    ours = {c for root in (HolonomixError, Warning, NotImplementedError) for c in kinds(root)}
    names = {c.__name__ for c in ours if c.__module__.startswith("holonomix")}
    assert {"ShapeError", "StoreFullError", "UnsupportedWarning", "SeriesError"} <= names
    missing = {name for name in names if name not in HELP} | {s.name for s in hx.Status if f"`{s.name}`" not in HELP}
    assert not missing


@pytest.mark.parametrize("constraint", [lambda q: q >= 0, lambda q, v: q])
def test_errors_about_what_is_not_done_point_to_the_scope(constraint):
    with pytest.raises(hx.InputError, match="docs/scope.md"):
        hx.simulate(hx.System(lambda q: q[1], constraint), hx.RATTLE(), [0.0, 1.0], [0.0, 0.0], dt=0.1, steps=1)
