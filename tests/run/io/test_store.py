"""The store as its users see it: what they read, what they are told."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from holonomix.run.io import (
    Store,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreExistsError,
    StoreFullError,
    StoreNotFoundError,
    StoreVersionError,
    current_environment,
    disk,
    environment_changes,
)
from holonomix.run.io.checkpoints import Checkpoints, numbers_to_keep

from .harness import TOTAL, contents, digest, drive, fresh, next_state


@pytest.mark.filterwarnings("error")
def test_xarray_and_zarr_read_it_without_a_warning(run):
    data = xr.open_zarr(run)
    assert data.q.dims == ("t", "q_0", "q_1") and data.p.dims == data.q.dims
    assert data.multipliers.dims == ("t", "constraint") and data["count"].dims == ("t",)
    assert data["count"].dtype == np.int64
    x = np.linspace(0.2, 0.7, 4).reshape(2, 2)
    for n in range(TOTAL):
        assert data.q[n].values.tobytes() == x.tobytes()
        x = next_state(x)
    assert list(data.t.values) == [0.1 * n for n in range(TOTAL)]
    assert data.attrs["method"] == "recursion" and data.attrs["end_status"] == "finished"
    assert zarr.open_array(run / "q", mode="r").shape == (TOTAL, 2, 2)
    json.dumps(data.attrs)


def test_attributes_go_into_netcdf(tmp_path):
    store = fresh(tmp_path / "run")
    store.begin({"nested": {"a": [1, 2]}, "flag": True, "nothing": None, "dt": 0.1, "bad": float("nan")})
    store.close({"status": "finished"})
    attributes = xr.open_zarr(tmp_path / "run").attrs
    assert all(isinstance(v, str | int | float) for v in attributes.values())
    assert json.loads(attributes["nested"]) == {"a": [1, 2]}


def test_rows_are_visible_after_each_checkpoint(tmp_path):
    store = fresh(tmp_path / "run")
    assert store.restart() is None
    assert xr.open_zarr(tmp_path / "run").sizes.get("t", 0) == 0
    store.begin({})
    for n in range(1, 8):
        store.append({"t": np.full(3, float(n)), "q": np.full((3, 2), float(n))})
        store.checkpoint({}, {})
        assert np.array_equal(xr.open_zarr(tmp_path / "run").q.values[:, 0], np.repeat(np.arange(1.0, n + 1), 3))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (4,), (3, 3), (2, 2, 2)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int32", "uint8", "bool"])
def test_any_row_shape_and_type(tmp_path, shape, dtype):
    values = (np.arange(7 * int(np.prod(shape))).reshape(7, *shape) % 3).astype(dtype)
    store = fresh(tmp_path / "run", chunk_bytes=64)
    store.begin({})
    store.append({"t": np.arange(7.0), "obs/value": values})
    store.close()
    got = xr.open_zarr(tmp_path / "run")["value"].values
    assert got.dtype == values.dtype and got.tobytes() == values.tobytes()


def test_observables_cannot_shadow_the_state(tmp_path):
    store = fresh(tmp_path / "run")
    store.begin({})
    store.append({"t": np.zeros(1), "q": np.zeros((1, 2)), "obs/q": np.ones(1)})
    store.close()
    data = xr.open_zarr(tmp_path / "run")
    assert data.q.values.tolist() == [[0.0, 0.0]] and data.obs_q.values.tolist() == [1.0]


def test_load_gives_back_the_keys_of_the_writer(tmp_path):
    store = fresh(tmp_path / "run")
    store.begin({})
    rows = {"t": np.arange(2.0), "q": np.ones((2, 3)), "obs/energy": np.zeros(2), "step/lambda": np.ones((2, 1))}
    store.append(rows)
    store.checkpoint({}, {})
    store.close()
    for reader in (store, Store(tmp_path / "run", "read")):
        got = reader.load()
        assert got.keys() == rows.keys() and all(np.array_equal(got[k], rows[k]) for k in rows)
    assert set(xr.open_zarr(tmp_path / "run").variables) == {"t", "q", "energy", "step_lambda"}


def test_short_runs_have_small_files_and_may_still_grow_long(tmp_path):
    sizes = {}
    for name, meta in {"short": {"steps": 100, "save_every": 10}, "open": {}}.items():
        store = Store(tmp_path / name)
        store.begin(meta)
        store.append({"t": np.zeros(11), "q": np.zeros((11, 2))})
        store.close()
        sizes[name] = (tmp_path / name / "q" / "c.0.0").stat().st_size
    assert sizes["short"] <= 16392 and sizes["open"] > 1 << 18
    (t, q) = Store(tmp_path / "short", "read").columns
    assert t.files(10**6) <= 3 and q.files(10**6) <= 5  # if it is resumed to a million rows


def test_files_are_few_and_chunks_are_sized_in_bytes(tmp_path):
    """A chain of 500 links: 20 kB per row, a million rows."""
    store = Store(tmp_path / "run")
    store.begin({"rows": 10**6})
    rows = {"t": (2,), "q": (2, 500, 2), "p": (2, 500, 2), "multipliers": (2, 500), "energy": (2,), "error": (2,)}
    store.append({name: np.zeros(shape) for name, shape in rows.items()})
    store.close()
    files = {c.name: c.files(10**6) for c in store.columns}
    assert sum(files.values()) < 1300 and files["energy"] == 1
    assert all(c.rows_per_chunk * c.row_bytes <= 1 << 18 for c in store.columns)
    assert np.array_equal(xr.open_zarr(tmp_path / "run").q.values, np.zeros(rows["q"]))


def test_axes_can_be_named(tmp_path):
    store = fresh(tmp_path / "run")
    store.begin({"dims": {"q": ["member", "atom", "axis"]}})
    store.append({"t": np.zeros(2), "q": np.zeros((2, 5, 4, 3))})
    store.close()
    assert xr.open_zarr(tmp_path / "run").q.dims == ("t", "member", "atom", "axis")


def test_restart_gives_back_exactly_what_was_saved(tmp_path):
    arrays = {
        "state/q": np.random.default_rng(0).normal(size=(3, 2)),
        "key": np.array([1, 2**32 - 1], np.uint32),
        "n": np.array(2**60, np.int64),
        "done": np.array(False),
        "file": np.array([np.nan, -0.0, np.inf, 5e-324]),
    }
    meta = {"t": 0.1 + 0.2, "backend": "array", "list": [1, None, "é"], "inf": float("inf")}
    store = fresh(tmp_path / "run")
    store.begin({})
    store.append({"t": np.zeros(1)})
    store.checkpoint(arrays, meta)
    store.close()
    found = Store(tmp_path / "run", "resume").restart()
    assert found is not None
    got, got_meta = found
    assert got.keys() == arrays.keys() and got_meta == meta
    for name, value in arrays.items():
        assert got[name].dtype == value.dtype and got[name].shape == value.shape
        assert got[name].tobytes() == value.tobytes()


def test_nothing_is_pickled(tmp_path):
    store = fresh(tmp_path / "run")
    store.begin({})
    with pytest.raises(StoreError, match="object"):
        store.checkpoint({"x": np.array([object()])}, {})


def test_checkpoints_close_together_are_skipped_but_not_the_last(tmp_path):
    drive(fresh(tmp_path / "run", checkpoint_seconds=1e9))
    assert Checkpoints(disk.Folder(tmp_path / "run")).numbers() == [1, 0]
    drive(fresh(tmp_path / "every"))
    assert contents(tmp_path / "run") == contents(tmp_path / "every")


def test_a_handful_of_checkpoints_is_kept():
    for newest in range(3000):
        keep = numbers_to_keep(newest)
        assert {0, newest, max(newest - 1, 0)} <= keep and len(keep) <= 7
        # pruned one at a time, the ones wanted now were still there
        assert keep - {newest} <= numbers_to_keep(newest - 1) | {newest - 1}


def test_a_resumed_finished_run_changes_nothing(run):
    before = digest(run)
    drive(fresh(run))
    assert digest(run) == before


# ---- what is refused


def test_existing_directories_are_refused(run, tmp_path):
    with pytest.raises(StoreExistsError, match="holonomix resume"):
        Store(run, "create")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(StoreExistsError, match="not an empty directory"):
        Store(tmp_path / "other", "create")
    with pytest.raises(StoreNotFoundError, match="not a holonomix store"):
        Store(tmp_path / "other", "resume")
    with pytest.raises(StoreNotFoundError, match="does not exist"):
        Store(tmp_path / "missing", "read")
    (tmp_path / "empty").mkdir()
    Store(tmp_path / "empty", "create").close()


def test_newer_formats_are_refused_by_name(run):
    (run / "holonomix" / "format.json").write_text('{"format": 7, "holonomix": "3.1.4"}')
    for mode in ("read", "resume", "auto"):
        with pytest.raises(StoreVersionError, match=r"format 7, written by holonomix 3\.1\.4"):
            Store(run, mode)


def test_one_writer_at_a_time(tmp_path):
    first = Store(tmp_path / "run")
    with pytest.raises(StoreBusyError, match="another process"):
        Store(tmp_path / "run", "resume")
    first.close()
    Store(tmp_path / "run", "resume").close()


def test_rows_that_do_not_fit_are_refused(tmp_path):
    store = fresh(tmp_path / "run")
    store.begin({})
    store.append({"t": np.zeros(2), "q": np.zeros((2, 3))})
    for rows, words in [
        ({"t": np.zeros(2), "q": np.zeros((2, 4))}, r"q: \(\(4,\), 'float64'\) instead of \(\(3,\), 'float64'\)"),
        ({"t": np.zeros(2)}, "q: missing"),
        ({"t": np.zeros(2), "q": np.zeros((2, 3)), "e": np.zeros(2)}, "instead of nothing"),
        ({"t": np.zeros(2), "q": np.zeros((3, 3))}, "common leading axis"),
        ({"t": np.zeros(2), "q": np.zeros((2, 3)), "holonomix": np.zeros(2)}, "plain name"),
    ]:
        with pytest.raises(StoreError, match=words):
            store.append(rows)
    store.close()
    assert xr.open_zarr(tmp_path / "run").sizes["t"] == 2


def test_lost_checkpoints_do_not_erase_rows(run):
    before = contents(run)
    for file in (run / "holonomix" / "checkpoints").iterdir():
        file.unlink()
    store = Store(run, "resume")
    with pytest.raises(StoreDamagedError, match="--from-start"):
        store.restart()
    store.close({"status": "finished"})
    assert contents(run) == before
    drive(fresh(run, from_start=True))
    assert contents(run) == before


def test_opening_and_closing_alone_changes_nothing(run):
    before = digest(run)
    store = Store(run, "resume")
    with pytest.raises(StoreError, match=r"restart\(\)"):
        store.append({"t": np.zeros(1)})
    with pytest.raises(StoreError, match=r"restart\(\)"):
        store.begin({})
    store.close({"status": "never started"})
    Store(run, "read").close()
    assert digest(run) == before


def test_discarding_leaves_what_is_not_ours(run):
    (run / "figures").mkdir()
    (run / "figures" / "energy.png").write_bytes(b"picture")
    for file in (run / "holonomix" / "checkpoints").iterdir():
        file.unlink()
    drive(fresh(run, from_start=True))
    assert (run / "figures" / "energy.png").exists() and (run / "run.toml").exists()


# ---- a full disk


def test_a_full_disk_is_named_and_leaves_a_valid_store(tmp_path, monkeypatch):
    drive(fresh(tmp_path / "whole"))
    fill = disk.do_fill
    for allowed in range(0, 200, 17):
        path, left = tmp_path / f"run{allowed}", allowed

        def limited(folder: disk.Folder, name: str, data: bytes, durable: bool) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                fill(folder, name, data[: len(data) // 2], durable)
                raise OSError(errno.ENOSPC, "No space left on device", name)
            fill(folder, name, data, durable)

        monkeypatch.setattr(disk, "do_fill", limited)
        try:
            drive(fresh(path))
        except StoreFullError as error:
            assert "No space left" in str(error) and "holonomix resume" in str(error)
        else:
            assert left >= 0
        monkeypatch.setattr(disk, "do_fill", fill)
        drive(fresh(path))
        assert contents(path) == contents(tmp_path / "whole")


def test_the_system_own_refusal(tmp_path):
    """A real limit of the operating system on the size of files, in a process of its own."""
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[2]); from tests.run.io.harness import *\n"
        "from holonomix.run.io import StoreFullError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))\n"
        "try: drive(Store(sys.argv[1], chunk_bytes=1 << 14, checkpoint_seconds=0.0), 1000, 10)\n"
        "except StoreFullError as e: print(e)\n"
    )
    root = str(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run"), root], capture_output=True, text=True)
    assert "File too large" in done.stdout and done.returncode == 0, done.stderr
    data = xr.open_zarr(tmp_path / "run")
    assert 0 < data.sizes["t"] < 1000 and np.isfinite(data.q.values).all()
    drive(Store(tmp_path / "run", chunk_bytes=1 << 14), 1000, 10)
    drive(Store(tmp_path / "whole", chunk_bytes=1 << 14), 1000, 10)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


# ---- what the bits depend on


def test_the_environment_is_recorded_and_compared(tmp_path, monkeypatch):
    drive(fresh(tmp_path / "run"))
    then = Store(tmp_path / "run", "read").environment
    assert then == current_environment() and {"jax", "llvmlite", "cpu", "cpu_features", "xla_flags"} <= then.keys()
    assert environment_changes(then) == [] == environment_changes({})
    store = Store(tmp_path / "run", "resume")
    store.restart()
    assert store.environment == then
    store.release()
    features = then["cpu_features"].split(",")
    other = then | {"jax": "0.1", "cpu_features": ",".join(["zz", *features[1:]])}
    assert environment_changes(other) == [f"jax 0.1 -> {then['jax']}", f"cpu features +{features[0]} -zz"]


# ---- older formats


def test_format_1_is_read_and_verified_but_not_continued(tmp_path):
    """`data/format_1` was written by the first version of the store."""
    data = Path(__file__).parent / "data"
    run = tmp_path / "run"
    shutil.copytree(data / "format_1", run)
    want = np.load(data / "format_1.npz")
    store = Store(run, "read")
    got = store.load()
    assert store.format == 1 and store.rows == TOTAL and store.verify() == []
    assert got.keys() == {"t", "q", "p", "multipliers", "obs/count"}
    assert all(got[key].tobytes() == want[key.replace("/", "_")].tobytes() for key in got)
    assert store.dataset().q.dims == ("t", "q_0", "q_1")
    for mode in ("resume", "auto"):
        with pytest.raises(StoreVersionError, match="format 1, which can be read"):
            Store(run, mode)
    (run / "p" / "c.1.0.0").unlink()
    assert store.verify() == ["p/c.1.0.0"]
    with pytest.raises(StoreDamagedError, match=r"p/c\.1\.0\.0 is missing"):
        Store(run, "read").load()
