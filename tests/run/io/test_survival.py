"""Kills at every instant, damage anywhere: resume to the same bits, or a plain error with nothing lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holonomix.run.io import Store, StoreDamagedError, StoreError, disk

from .harness import Killed, Killer, contents, digest, drive, fresh

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def no_power_failures():
    """Kills of the process, not of the machine, are tested here: waiting for the device would only cost time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk.os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory in memory where there is one: these tests make hundreds of thousands of files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def place(memory) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def whole(memory) -> Path:
    drive(fresh(memory / "whole"))
    return memory / "whole"


def killed_drive(path: Path, at: int) -> bool:
    """Drive until the `at`-th operation; whether the run was cut off."""
    with pytest.MonkeyPatch.context() as patch:
        Killer(patch, at, AssertionError)
        store = None
        try:
            store = fresh(path)
            drive(store)
        except Killed:
            if store is not None and store._lock is not None:
                os.close(store._lock)  # what the system does for the dead
            return True
    return False


def check_readable(path: Path, whole: Path) -> None:
    """What a reader sees is a prefix of the run, to the last bit."""
    if not path.exists():
        return
    data, full = xr.open_zarr(path), xr.open_zarr(whole)
    rows = data.sizes.get("t", 0)
    for name in data.variables:
        assert data[name].values.tobytes() == full[name].values[:rows].tobytes()


@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_before_every_single_operation(place, whole, stride):
    at, cut = 1 - stride, True
    while cut:
        at += stride
        path = place / str(at)
        cut = killed_drive(path, at)
        check_readable(path, whole)
        drive(fresh(path))
        assert digest(path) == digest(whole), f"after a kill before operation {at}"
        shutil.rmtree(path)
    assert at > 120


@pytest.mark.parametrize("cases", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_kills_while_recovering_from_kills(place, whole, cases):
    dice = random.Random(1)
    for case in range(cases):
        path = place / str(case)
        while killed_drive(path, dice.randrange(1, 80)):
            check_readable(path, whole)
        assert digest(path) == digest(whole)


def test_sigkill_at_random_moments(place):
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from tests.run.io.harness import *\n"
        "print('writing', flush=True)\n"
        "drive(Store(sys.argv[1], chunk_bytes=4096, checkpoint_seconds=0.0), 1500, 7)\n"
    )
    command = [sys.executable, "-c", code, str(place / "run"), str(ROOT)]
    drive(Store(place / "whole", chunk_bytes=4096, checkpoint_seconds=10.0), 1500, 7)
    dice, kills = random.Random(2), 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # imports are over: from here on it writes, however busy the machine is
        time.sleep(0.3 * dice.random() if kills >= 2 else 0.02)  # the first kills come before it can be done
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL
        kills += 1
        check_readable(place / "run", place / "whole")
        assert kills < 200
    assert kills >= 2
    assert digest(place / "run") == digest(place / "whole")


# ---- damage

damages = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.sampled_from(["truncate", "flip", "delete", "empty", "garbage", "append"]),
        st.integers(0, 10**6),
    ),
    min_size=1,
    max_size=3,
)


def damage(path: Path, which: int, how: str, where: int) -> Path | None:
    candidates = sorted(p for p in path.rglob("*") if p.is_file() and p.name not in {"lock", "run.toml"})
    if not candidates:
        return None
    victim = candidates[which % len(candidates)]
    data = bytearray(victim.read_bytes())
    if how == "delete":
        victim.unlink()
        return victim
    if how == "truncate":
        data = data[: where % (len(data) + 1)]
    elif how == "flip" and data:
        data[where % len(data)] ^= 1 << (where % 8)
    elif how == "empty":
        data = bytearray()
    elif how == "garbage":
        data = bytearray(random.Random(where).randbytes(len(data)))
    elif how == "append":
        data += b"\0more"
    victim.write_bytes(data)
    return victim


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(damages, st.integers(1, 130))
def test_some_damaged_stores(memory, whole, what, at):
    check_damaged(memory, whole, what, at)


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(damages, st.integers(1, 130))
def test_damaged_stores(memory, whole, what, at):
    check_damaged(memory, whole, what, at)


def check_damaged(memory, whole, what, at):
    path = memory / "damaged"
    shutil.rmtree(path, ignore_errors=True)
    killed_drive(path, at)
    if not path.exists():
        return
    hit = {v for v in (damage(path, *d) for d in what) if v is not None}
    try:
        store = fresh(path)
    except StoreError:
        assert any(p.name == "format.json" for p in hit)
        return
    try:
        drive(store)
    except StoreError as error:
        store.close()
        # only damage to every checkpoint stops a run, and then a fresh start in place is offered and works
        assert "--from-start" in str(error)
        drive(fresh(path, from_start=True))
    assert contents(path) == contents(whole)
    assert Store(path, "read").verify() == []


@pytest.mark.parametrize("how", ["truncate", "flip", "delete", "empty", "garbage"])
@pytest.mark.parametrize("variable", ["t", "q", "p", "multipliers", "count"])
def test_a_damaged_chunk_anywhere_is_cut_back_and_recomputed(place, whole, variable, how):
    chunks = sorted((whole / variable).glob("c.*"))
    assert len(chunks) == (2 if variable in "qp" else 1)
    for chunk in chunks:
        path = place / chunk.name
        shutil.copytree(whole, path)
        victim = path / variable / chunk.name
        names = sorted(p for p in path.rglob("*") if p.is_file() and p.name not in {"lock", "run.toml"})
        damage(path, names.index(victim), how, 11)
        drive(fresh(path))
        assert digest(path) == digest(whole)


def test_a_reader_is_told_of_damage(place, whole):
    path = place / "run"
    shutil.copytree(whole, path)
    chunk = path / "q" / "c.1.0.0"
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(data)
    assert Store(path, "read").verify() == ["q/c.1.0.0"]
    with pytest.raises(ValueError, match="checksum"):
        xr.open_zarr(path).q.load()
    assert np.isfinite(xr.open_zarr(path).p.values).all()
    for read in (lambda s: s.load(), lambda s: s.dataset().q[12].values, lambda s: s.dataset().q.values):
        with pytest.raises(StoreDamagedError, match=r"q/c\.1\.0\.0 is damaged in chunk 0"):
            read(Store(path, "read"))
    assert np.isfinite(Store(path, "read").dataset().q[:10].values).all()
    chunk.unlink()
    assert Store(path, "read").verify() == ["q/c.1.0.0"]
    for read in (lambda s: s.load(), lambda s: s.dataset().q[12].values):
        with pytest.raises(StoreDamagedError, match=r"q/c\.1\.0\.0 is missing"):
            read(Store(path, "read"))


def test_every_flipped_bit_is_found(place, whole):
    path = place / "run"
    shutil.copytree(whole, path)
    before = contents(path)
    files = [p for p in sorted(path.rglob("*")) if p.is_file() and p.name not in {"lock", "run.toml", "format.json"}]
    files.remove(path / "holonomix" / "zarr.json")
    dice = random.Random(3)
    for file in files:
        data = file.read_bytes()
        for _ in range(3):
            bad, at = bytearray(data), dice.randrange(8 * len(data))
            bad[at // 8] ^= 1 << at % 8
            file.write_bytes(bad)
            assert Store(path, "read").verify() != [], f"bit {at} of {file}"
            if "zarr.json" in file.name or "status" in file.name:  # what we read does not depend on them
                assert contents(path) == before
        file.write_bytes(data)
    assert Store(path, "read").verify() == []


def test_rows_are_read_in_any_order(whole):
    data, q = Store(whole, "read").dataset(), np.stack(list(Store(whole, "read").load()["q"]))
    for key in (slice(None), slice(3, 15, 4), slice(14, 2, -3), slice(5, 5), 7, -1, [16, 0, 9, 9], np.arange(0, 17, 6)):
        assert np.array_equal(data.q.isel(t=key).values, q[key])
    assert np.array_equal(data.q.isel(t=[1, 12], q_1=0).values, q[[1, 12]][:, :, 0])
    assert np.array_equal(data.q[2:4, 1].values, q[2:4, 1]) and data.q.dims == ("t", "q_0", "q_1")
