"""A finished run and a finished ensemble on disk."""

from pathlib import Path

import pytest

from . import harness


@pytest.fixture
def run(tmp_path: Path) -> Path:
    harness.drive(harness.fresh(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def ensemble(tmp_path: Path) -> Path:
    store = harness.make(tmp_path / "run")
    for block in range(store.blocks):
        harness.write(store, block)
    return store.path
