"""The store of an ensemble: blocks written by any process, read in part, verified, resumed to the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from holonomix.run.io import EnsembleStore, Store, StoreDamagedError, StoreError, StoreExistsError, verify
from holonomix.run.io.layout import Column

from .harness import BLOCK, TRAJECTORIES, Killed, Killer, make, one, values, write

ROOT = Path(__file__).parents[3]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    store = make(tmp_path / "whole")
    for block in random.Random(1).sample(range(store.blocks), store.blocks):
        write(store, block)
    return tmp_path / "whole"


def content(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "lock"}


@pytest.mark.filterwarnings("error")
def test_dimensions_and_values_here_and_in_zarr(whole):
    want = values(0, TRAJECTORIES)
    for data in (EnsembleStore(whole).to_xarray(), xr.open_zarr(whole)):
        assert data.q.dims == ("trajectory", "t", "q_0") and data.energy.dims == ("trajectory", "t")
        assert data.reduced_max.dims == ("trajectory", "reduced_max_0") and data.status.dims == ("trajectory",)
        assert data.t.dims == ("t",) and data.length.dims == ("trajectory",) and data.t.values[2] == 1.0
        assert data.q.values.tobytes() == want["q"].tobytes()
        assert data.energy.values.tobytes() == want["obs/energy"].tobytes()
        assert np.array_equal(data.reduced_max.values, want["q"].max(1))
        assert np.array_equal(data.status.values, np.arange(TRAJECTORIES) % 3)
        assert data.attrs["method"] == "made up"
    assert EnsembleStore(whole).progress() == {0: 8, 1: 8, 2: 7, -1: 0} and verify(whole) == []
    with pytest.raises(StoreError, match="ensemble"):
        Store(whole, "read")


def test_any_part_can_be_read(whole):
    data, q = EnsembleStore(whole).to_xarray(), values(0, TRAJECTORIES)["q"]
    for a in (3, -1, slice(2, 20, 3), slice(None), [22, 0, 7, 7]):
        for b in (0, slice(None, None, -2), [6, 1], slice(0, 0)):
            got = data.q.isel(trajectory=a, t=b).values
            assert np.array_equal(got, q[a][b] if isinstance(a, int) else q[a][:, b])
    assert np.array_equal(data.q.isel(trajectory=4, q_0=1).values, q[4, :, 1])


@settings(max_examples=15)
@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 300), st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from(["float64", "float32", "int32", "bool", "complex128", "uint8"]), st.integers(0, 2**30),
)  # fmt: skip
def test_every_layout_reads_back(tmp_path_factory, trajectories, block, rows, shape, dtype, seed):
    path = tmp_path_factory.mktemp("e") / "run"
    dice = np.random.default_rng(seed)
    x = (dice.normal(size=(trajectories, rows, *shape)) * 3).astype(dtype)
    store = EnsembleStore.create(
        path, trajectories=trajectories, rows={"x": x[0]}, reductions={"last": x[0, -1]}, block=block
    )
    for k in store.missing_blocks():
        first, last = store.bounds(k)
        cut = sorted({0, rows, *dice.integers(0, rows + 1, 3).tolist()})
        parts = ({"x": x[first:last, a:b]} for a, b in zip(cut, cut[1:]))
        store.write_block(k, parts, {"last": x[first:last, -1]}, np.zeros(last - first))
    for data in (store.to_xarray(), xr.open_zarr(path)):
        assert data.x.values.tobytes() == x.tobytes() and np.array_equal(data.reduced_last.values, x[:, -1])
    assert store.verify() == [] and store.missing_blocks(verify=True) == []
    shutil.rmtree(path.parent)


def test_one_trajectory_is_read_without_the_others(tmp_path, monkeypatch):
    store = EnsembleStore.create(tmp_path / "run", trajectories=2000, rows={"q": np.zeros((400, 10))}, block=1000)
    for k in range(store.blocks):
        store.write_block(k, {"q": np.full((1000, 400, 10), float(k))}, None, np.zeros(1000))
    read, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda handle, n, at: read.append(n) or pread(handle, n, at))
    assert store.to_xarray().q[1500].values[7, 3] == 1.0
    assert sum(read) < 100_000  # of 64 MB: 32 kB of values, and the index
    assert sum(p.is_file() for p in (tmp_path / "run" / "q").iterdir()) <= 5


def test_unfinished_blocks_are_shown_as_such(tmp_path):
    store = make(tmp_path / "run")
    write(store, 1)
    assert store.missing_blocks() == [0, 2, 3, 4] and store.progress()[-1] == TRAJECTORIES - BLOCK
    data = store.to_xarray()
    assert list(np.flatnonzero(data.finished)) == [5, 6, 7, 8, 9]
    assert set(data.status.values[:5]) == {-1} and np.isnan(data.q.values[:5]).all()
    assert np.isfinite(data.q.values[5:10]).all()


def test_blocks_in_any_order_twice_and_from_the_middle_give_the_same_bytes(whole, tmp_path):
    store = make(tmp_path / "run")
    for block in (3, 0, 3):
        write(store, block)
    again = EnsembleStore(tmp_path / "run")
    for block in again.missing_blocks():
        write(again, block)
    assert content(tmp_path / "run") == content(whole)


def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path):
    store = make(tmp_path / "run")
    rows = values(0, BLOCK)
    largest, statuses = rows["q"].max(1), np.zeros(BLOCK)
    short = {key: x[:, :3] for key, x in rows.items()}
    for bad in (values(0, 4), {"q": rows["q"]}, short, [rows, short], rows | {"q": rows["q"].astype("f4")}):
        with pytest.raises(StoreError, match="rows of its ensemble|does not fit"):
            store.write_block(0, bad, {"max": largest}, statuses)
    for reductions, codes in (({}, statuses), ({"max": largest}, np.zeros(3))):
        with pytest.raises(StoreError, match="does not fit"):
            store.write_block(0, rows, reductions, codes)
    with pytest.raises(StoreError, match="blocks 0 to 4"):
        store.write_block(5, rows, {"max": largest}, statuses)
    assert len(store.missing_blocks()) == store.blocks
    with pytest.raises(StoreExistsError):
        make(tmp_path / "run")
    for wrong in ({"trajectories": 0}, {"coordinates": {"a": np.zeros(3)}}, {"t": np.zeros(3)}, {"block": 0}):
        with pytest.raises(StoreError):
            EnsembleStore.create(tmp_path / "other", **({"trajectories": 9, "rows": one()} | wrong))
    assert not (tmp_path / "other").exists()


# ---- kills and damage


def test_a_kill_before_every_operation_of_a_block(whole, tmp_path):
    at, cut = 0, True
    while cut:
        at += 1
        path = tmp_path / str(at)
        store = make(path)
        write(store, 1)
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, at)
            try:
                write(store, 0)
                cut = False
            except Killed:
                pass
        again = EnsembleStore(path)
        assert 1 not in again.missing_blocks() and again.verify() == []
        assert again.tidy()
        for block in again.missing_blocks():
            write(again, block)
        assert content(path) == content(whole)
        shutil.rmtree(path)
    assert at > 10


def test_damage_is_found_by_name_and_recomputed(whole):
    before = content(whole)
    store = EnsembleStore(whole)
    dice = random.Random(2)
    for name, data in before.items():
        if name in ("holonomix/format.json", "holonomix/zarr.json", "holonomix/status.json"):
            continue
        bad, at = bytearray(data), dice.randrange(8 * len(data))
        bad[at // 8] ^= 1 << at % 8
        (whole / name).write_bytes(bad)
        if name == "holonomix/ensemble.json":
            with pytest.raises(StoreDamagedError, match="ensemble.json"):
                EnsembleStore(whole)
        else:
            assert verify(whole) == [name]
        (whole / name).write_bytes(data)
    for name in ("q/c.2.0.0", "status/c.4"):
        (whole / name).unlink()
    assert store.missing_blocks() == [] and store.missing_blocks(verify=True) == [2, 4]
    with pytest.raises(StoreDamagedError, match=r"q/c\.2\.0\.0 is missing"):
        store.to_xarray().q.load()
    assert np.isfinite(store.to_xarray().q[:10].values).all()
    for block in store.missing_blocks(verify=True):
        write(store, block)
    assert content(whole) == before


def test_links_are_not_followed(whole, tmp_path):
    shutil.move(whole / "q", tmp_path / "q")
    os.symlink(tmp_path / "q", whole / "q")
    before = content(tmp_path / "q")
    with pytest.raises(StoreError, match="symbolic link"):
        EnsembleStore(whole).to_xarray().q.load()
    with pytest.raises(StoreError, match="symbolic link"):
        write(EnsembleStore(whole), 0)
    assert content(tmp_path / "q") == before


@pytest.mark.parametrize(
    "change", [{"block": 10**400}, {"rows_per_file": 10**12}, {"shape": [10**9] * 3}, {"chunk": 0}]
)
def test_enormous_declarations(change):
    column = Column.for_ensemble("q", np.dtype(float), (2,), 10, 5, 5).as_dict()
    assert Column.from_dict(column, ensemble=True).block == 5
    with pytest.raises(ValueError):
        Column.from_dict(column | change, ensemble=True)


WORKER = """
import sys; sys.path.insert(0, sys.argv[2]); import time; from tests.run.io.harness import *
store = EnsembleStore(sys.argv[1]); print("writing", flush=True)
mine = [b for b in store.missing_blocks() if b % 2 == int(sys.argv[3])]
for block in mine: time.sleep(0.02); write(store, block)
"""


def test_two_processes_one_killed(tmp_path):
    store, want = make(tmp_path / "run", trajectories=300), make(tmp_path / "whole", trajectories=300)
    for block in range(want.blocks):
        write(want, block)
    command = [sys.executable, "-c", WORKER, str(store.path), str(ROOT)]
    workers = [subprocess.Popen([*command, str(k)], stdout=subprocess.PIPE) for k in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    time.sleep(0.1)
    workers[0].send_signal(signal.SIGKILL)
    assert workers[1].wait(60) == 0 and workers[0].wait(60) == -signal.SIGKILL
    missing = store.missing_blocks()
    assert missing and all(block % 2 == 0 for block in missing) and store.verify() == []
    assert store.tidy()
    for block in missing:
        write(store, block)
    assert content(store.path) == content(want.path)


@pytest.mark.slow
def test_a_million_trajectories_with_little_memory(tmp_path):
    code = """
import sys; sys.path.insert(0, sys.argv[2]); from holonomix.run.io import EnsembleStore; import numpy as np
one = {"rows": {"q": np.zeros((100, 2))}, "reductions": {"e": np.zeros(())}, "t": np.arange(100.0)}
s = EnsembleStore.create(sys.argv[1], trajectories=10**6, **one)
for k in range(s.blocks):
    a, b = s.bounds(k)
    s.write_block(k, {"q": np.broadcast_to(np.arange(a, b)[:, None, None], (b - a, 100, 2)).astype(float)},
                  {"e": np.zeros(b - a)}, np.zeros(b - a))
data = EnsembleStore(sys.argv[1]).to_xarray()
assert data.q[765432].values[50, 1] == 765432.0
# ru_maxrss would also count the process that started this one
print(next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith("VmHWM")) / 2**20)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run"), str(ROOT / "src")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.8  # gigabytes, half of what the rows take
