"""A file where a directory of a store should be, and names that no file system takes: a named error."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from holonomix.run.io import EnsembleStore, Store, StoreDamagedError, StoreError, disk, verify

from . import harness
from .harness import drive, fresh


def replaced_by_file(directory: Path) -> str:
    """Put a file in the place of a directory; what an error about it should say."""
    shutil.rmtree(directory)
    directory.write_text("no directory")
    return f"{directory.name} is not a directory"


@pytest.mark.parametrize("name", ["t", "q", "multipliers", "count"])
def test_an_array_of_a_run(run, name):
    said = replaced_by_file(run / name)
    with pytest.raises(StoreDamagedError, match=said):
        Store(run, "read").load()
    with pytest.raises(StoreDamagedError, match=said):
        Store(run, "read").dataset()[name].load()
    assert f"{name}/zarr.json" in verify(run)
    with pytest.raises(StoreError, match=name):
        drive(fresh(run))


def test_the_checkpoints_of_a_run(run):
    said = replaced_by_file(run / "holonomix" / "checkpoints")
    assert verify(run) == ["holonomix/checkpoints"]
    assert len(Store(run, "read").load()["q"]) == harness.TOTAL
    with pytest.raises(StoreDamagedError, match=said):
        drive(fresh(run))


@pytest.mark.parametrize("name", ["q", "status", "reduced_max"])
def test_an_array_of_an_ensemble(ensemble, name):
    said = replaced_by_file(ensemble / name)
    store, bad = EnsembleStore(ensemble), verify(ensemble)
    assert f"{name}/zarr.json" in bad
    assert all(any(line.startswith(f"{name}/c.{block}") for line in bad) for block in range(store.blocks))
    with pytest.raises(StoreDamagedError, match=said):
        store.to_xarray()[name].load()
    with pytest.raises(StoreDamagedError, match=said):
        store.tidy()  # the first step of continuing
    with pytest.raises(StoreDamagedError, match=said):
        harness.write(store, 0)
    assert store.missing_blocks(verify=True) == list(range(store.blocks))


@pytest.mark.parametrize("name", ["t", "length"])
def test_a_coordinate_of_an_ensemble(ensemble, name):
    said = replaced_by_file(ensemble / name)
    with pytest.raises(StoreDamagedError, match=said):
        EnsembleStore(ensemble).to_xarray()
    assert f"{name}/c.0" in verify(ensemble)


def test_the_blocks_of_an_ensemble(ensemble):
    said = replaced_by_file(ensemble / "holonomix" / "blocks")
    for action in (EnsembleStore.to_xarray, EnsembleStore.verify, EnsembleStore.missing_blocks, EnsembleStore.tidy):
        with pytest.raises(StoreDamagedError, match=said):
            action(EnsembleStore(ensemble))


def test_a_directory_that_cannot_be_listed(run, monkeypatch):
    listed = os.listdir

    def refused(handle: int) -> list[str]:
        if os.readlink(f"/proc/self/fd/{handle}").endswith("/q"):
            raise PermissionError(13, "Permission denied")
        return listed(handle)

    monkeypatch.setattr(disk.os, "listdir", refused)
    with pytest.raises(StoreDamagedError, match="q cannot be listed: Permission denied"):
        Store(run, "read").load()


@pytest.mark.parametrize("name", ["a" * 5000, "x/" * 3000, "a" * 300, "a\ud800"])
@pytest.mark.parametrize(
    "action",
    [
        lambda name: Store(name, "read"),
        lambda name: Store(name, "create"),
        lambda name: Store(name),
        EnsembleStore,
        lambda name: EnsembleStore.create(name, trajectories=1, rows={"q": np.zeros((1, 2))}),
        verify,
    ],
)
def test_names_that_no_file_system_takes(action, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="no store can be at '[ax]") as caught:
        action(name)
    assert len(str(caught.value)) < 200 and not list(tmp_path.iterdir())
