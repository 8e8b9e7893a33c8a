"""`verify` notices every byte that changed and every file that is lost, also after a store is complete."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from holonomix.run.io import EnsembleStore, Store, StoreDamagedError, disk, verify
from holonomix.run.io.text import read_signed, sign

from .harness import TOTAL, Killed, Killer, drive, fresh, make, write


def content(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "lock"}


# ---- the text of JSON


REWRITTEN = {
    "blank after": lambda text: text + b" ",
    "line after": lambda text: text + b"\n",
    "blank before": lambda text: b" " + text,
    "blank inside": lambda text: text.replace(b",", b" ,", 1),
    "line to blank": lambda text: text.replace(b"\n", b" ", 1),
    "escape": lambda text: text.replace(b'"s', b'"\\u0073', 1),
    "key twice": lambda text: text.replace(b"{", b'{"sha256":"x",', 1),
    "other encoding": lambda text: text.decode().encode("utf-16"),
}


@pytest.mark.parametrize("how", REWRITTEN)
def test_json_that_means_the_same_is_not_as_it_was_written(how):
    text = sign({"rows": 3, "nothing": float("nan"), "nested": {"a": [1.5, "é", True, None]}})
    assert read_signed(text)["rows"] == 3
    with pytest.raises(ValueError, match="not as it was written"):
        read_signed(REWRITTEN[how](text))


@pytest.mark.parametrize("kind", ["run", "ensemble"])
@pytest.mark.parametrize("how", ["line after", "escape", "key twice"])
def test_every_json_of_a_store(kind, how, request):
    path = request.getfixturevalue(kind)
    for name, data in content(path).items():
        if not name.endswith(".json") or REWRITTEN[how](data) == data:
            continue
        (path / name).write_bytes(REWRITTEN[how](data))
        try:
            found = verify(path)
        except StoreDamagedError as error:
            found = [str(error)]
        assert any(name.removesuffix(".json") in line for line in found)
        (path / name).write_bytes(data)
    assert verify(path) == []


# ---- lost checkpoints


def test_a_lost_checkpoint(run):
    before = content(run)
    for file in sorted((run / "holonomix" / "checkpoints").glob("*.json")):
        data = file.read_bytes()
        file.unlink()
        assert verify(run) == [f"holonomix/checkpoints/{file.name}"]
        file.write_bytes(data)
    assert verify(run) == []
    next((run / "holonomix" / "checkpoints").glob("*.json")).unlink()
    drive(fresh(run))
    assert verify(run) == []  # the status names those that are left
    assert {k: v for k, v in content(run).items() if k.startswith("q/")} == {
        k: v for k, v in before.items() if k.startswith("q/")
    }


def test_a_checkpoint_that_a_run_in_progress_removes_is_not_lost(run):
    opened = Store(run, "read")
    drive(fresh(run), total=TOTAL + 30)
    assert opened.named_checkpoints - {int(f.stem) for f in (run / "holonomix/checkpoints").glob("*.json")}
    assert not opened._damaged_records()


def test_runs_whose_status_names_no_checkpoints_are_still_verified_and_continued(run):
    file = run / "holonomix" / "status.json"
    body = read_signed(file.read_bytes())
    assert body.pop("checkpoints") and "checkpoints" not in Store(run, "read").status
    file.write_bytes(sign(body))
    assert verify(run) == []
    drive(fresh(run))
    assert read_signed(file.read_bytes())["checkpoints"] and verify(run) == []


def test_a_killed_run_names_no_checkpoint_that_is_gone(tmp_path):
    at, cut = 0, True
    while cut:
        at += 11
        path = tmp_path / str(at)
        with pytest.MonkeyPatch.context() as patch:
            store = fresh(path)
            Killer(patch, at)
            try:
                drive(store, total=9)
                cut = False
            except Killed:
                store.release()
        assert not [name for name in verify(path) if "checkpoints" in name]
        shutil.rmtree(path)


# ---- complete ensembles


def test_what_a_complete_ensemble_loses(ensemble):
    whole = content(ensemble)
    inside = ensemble / "holonomix"
    assert verify(ensemble) == []
    (inside / "blocks.json").unlink()
    assert verify(ensemble) == ["holonomix/blocks.json"]
    (inside / "blocks" / "00000001.json").unlink()
    for file in ensemble.glob("*/c.1*"):
        file.unlink()
    assert verify(ensemble) == ["holonomix/blocks.json", "holonomix/blocks/00000001.json"]
    (inside / "status.json").unlink()
    assert verify(ensemble) == ["holonomix/status.json"]
    store = EnsembleStore(ensemble)
    for block in store.missing_blocks():
        write(store, block)
    assert content(ensemble) == whole and verify(ensemble) == []


def as_of_an_older_version(ensemble: Path, *, listed: bool) -> None:
    """A complete ensemble whose status says "new", with or without a list."""
    (ensemble / "holonomix" / "status.json").write_bytes(
        sign({"state": "new", "rows": 0, "columns": [], "attributes": {}})
    )
    if not listed:
        (ensemble / "holonomix" / "blocks.json").unlink()


@pytest.mark.parametrize("listed", [False, True])
def test_complete_ensembles_of_older_versions(ensemble, listed):
    whole = content(ensemble)
    as_of_an_older_version(ensemble, listed=listed)
    store = EnsembleStore(ensemble)
    assert verify(ensemble) == [] and store.missing_blocks() == []
    assert store.tidy() and content(ensemble) == whole


def test_a_kill_before_the_last_operations_of_the_last_block(ensemble, tmp_path):
    whole, at, cut = content(ensemble), 16, True  # the files of the arrays come first
    while cut:
        at += 1
        store = make(tmp_path / str(at))
        for block in range(1, store.blocks):
            write(store, block)
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, at)
            try:
                write(store, 0)
                cut = False
            except Killed:
                pass
        again = EnsembleStore(store.path)
        assert again.verify() == [] and again.tidy()
        for block in again.missing_blocks():
            write(again, block)
        assert content(store.path) == whole
        shutil.rmtree(store.path)


def test_a_block_that_is_written_again_with_other_values_is_listed_anew(ensemble):
    store = EnsembleStore(ensemble)
    first, last = store.bounds(2)
    rows = {c.key: np.zeros((last - first, store.rows, *c.shape), c.dtype) for c in store.columns if c.rows}
    store.write_block(2, rows, {"max": np.zeros((last - first, 2))}, np.ones(last - first))
    assert verify(ensemble) == []


# ---- numbers of a description


def declared(path: Path, rows: int, *, columns: bool) -> None:
    file = path / "holonomix" / "ensemble.json"
    body = json.loads(file.read_bytes())
    body.pop("sha256")
    body["rows"] = rows
    for column in body["columns"] if columns else ():
        column["rows"] = None if column["rows"] is None else rows
    file.write_bytes(sign(body))


@pytest.mark.parametrize("rows", [0, 6, 2**30, 2**40, 2**53])
def test_rows_on_which_the_columns_do_not_agree(ensemble, rows):
    declared(ensemble, rows, columns=False)
    with pytest.raises(StoreDamagedError, match=r"ensemble\.json is damaged.*do not agree on the number of rows"):
        EnsembleStore(ensemble)


@pytest.mark.parametrize("rows", [2**30, 2**40, 2**53])
@pytest.mark.parametrize("finished", [True, False])
def test_more_rows_than_the_files_hold(tmp_path, rows, finished):
    store = make(tmp_path / "run")
    if finished:
        write(store, 0)
    declared(store.path, rows, columns=True)
    with pytest.raises(StoreDamagedError, match=rf"declares {rows} rows, and the files hold \d+ bytes"):
        EnsembleStore(store.path)


def test_rows_that_nothing_on_disk_confirms_and_no_memory_holds(tmp_path):
    store = EnsembleStore.create(tmp_path / "run", trajectories=2, rows={"q": np.zeros((3, 2))}, block=1)
    declared(store.path, 2**50, columns=True)
    data = EnsembleStore(store.path).to_xarray()
    with pytest.raises(disk.StoreError, match="does not fit in memory: read a part"):
        data.q.load()
    assert np.isnan(data.q[0, 5].values).all()
