"""Small files that would take much memory or time: a named error at once."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holonomix.run.io import Store, StoreDamagedError, StoreError, disk
from holonomix.run.io.checkpoints import Checkpoints
from holonomix.run.io.text import read_signed, sign
from holonomix.study.cli.exits import CommandError
from holonomix.study.cli.literals import assignment, literal, parse_toml
from holonomix.study.cli.methodspec import parse_method
from holonomix.study.cli.request import number
from holonomix.study.cli.runfile import parse_run_file, validate

from .harness import drive, fresh, make

HUGE = 10**400


def forged_status(run: Path, **changes: Any) -> None:
    """Alter what the status declares, with a checksum that agrees."""
    file = run / "holonomix" / "status.json"
    file.write_bytes(sign({**read_signed(file.read_bytes()), **changes}))


def without_checkpoints(run: Path) -> None:
    for file in (run / "holonomix" / "checkpoints").iterdir():
        file.unlink()


@pytest.mark.parametrize("name", ["status.json", "format.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "\x00", '{"rows": 1e999}'])
def test_json(run, name, text):
    without_checkpoints(run)
    (run / "holonomix" / name).write_text(text)
    with pytest.raises(StoreError, match=name):
        Store(run, "read")


@pytest.mark.parametrize("rows", [HUGE, 2**62, -1, 1.5, True, "17", None, 10**12])
def test_declared_rows(run, rows):
    without_checkpoints(run)
    forged_status(run, rows=rows)
    with pytest.raises(StoreDamagedError):
        Store(run, "read").load()


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [10**9, 10**9]},
        {"shape": [HUGE]},
        {"shape": [1] * 60},
        {"rows_per_chunk": HUGE},
        {"rows_per_chunk": 10**15},
        {"chunks_per_file": HUGE},
        {"rows_per_chunk": 0},
        {"dtype": "object"},
        {"dtype": "V1000000000000"},
        {"name": "../../etc"},
        {"key": "../../etc", "name": "../../etc"},
        {"dims": ["t"]},
    ],
)
def test_declared_columns(run, change):
    without_checkpoints(run)
    status = read_signed((run / "holonomix" / "status.json").read_bytes())
    columns = status["columns"]
    columns[1] |= change
    forged_status(run, columns=columns)
    with pytest.raises(StoreDamagedError):
        Store(run, "read").load()


def test_too_many_columns(run):
    without_checkpoints(run)
    forged_status(run, columns=read_signed((run / "holonomix" / "status.json").read_bytes())["columns"] * 1000)
    with pytest.raises(StoreDamagedError, match="list columns"):
        Store(run, "read")


def forged_checkpoint(run: Path, packed: bytes) -> disk.Folder:
    folder = run / "holonomix" / "checkpoints"
    newest = max(int(f.stem) for f in folder.glob("*.json"))
    body = read_signed((folder / f"{newest:08d}.json").read_bytes())
    body["arrays_sha256"] = hashlib.sha256(packed).hexdigest()
    (folder / f"{newest:08d}.npz").write_bytes(packed)
    (folder / f"{newest:08d}.json").write_bytes(sign(body))
    assert Checkpoints(disk.Folder(run)).load(newest) is None
    return disk.Folder(run) / "holonomix" / "checkpoints"


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as packed:
        for name, data in members.items():
            packed.writestr(name, data)
    return buffer.getvalue()


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_compressed_and_oversized_arrays_in_a_checkpoint(run):
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(1 << 20))
    forged_checkpoint(run, archive({"state/x.npy": zeros.getvalue()}, zipfile.ZIP_DEFLATED))
    forged_checkpoint(run, archive({"state/x.npy": header("(1000000000000,)")}))
    forged_checkpoint(run, archive({"state/x.npy": header(f"({HUGE},)")}))
    forged_checkpoint(run, archive({"state/x.npy": header("(1,)", "|O") + b"cos\nsystem\n"}))
    forged_checkpoint(run, b"PK\x05\x06" + b"\0" * 18)
    drive(fresh(run))
    assert Store(run, "read").verify() == []


def test_sparse_checkpoints_are_refused_when_the_store_is_opened(run):
    files = sorted((run / "holonomix" / "checkpoints").glob("*.npz"))
    for file in files:
        file.unlink()
        with file.open("wb") as sparse:
            sparse.truncate(4 << 30)
    for mode in ("auto", "resume"):
        with pytest.raises(StoreDamagedError, match=r"no checkpoint of .* is intact.*--from-start"):
            Store(run, mode)
    assert len(Store(run, "read").load()["q"]) == 17
    drive(fresh(run, from_start=True))
    assert Store(run, "read").verify() == []


def test_a_sparse_file_of_an_ensemble_is_refused_before_another_is_read(tmp_path):
    store = make(tmp_path / "run", files={"run.toml": "steps = 1\n", "given.npz": b"arrays"})
    assert store.file("run.toml") == b"steps = 1\n"
    with (tmp_path / "run" / "given.npz").open("wb") as sparse:
        sparse.truncate(4 << 30)
    with pytest.raises(StoreDamagedError, match=r"given\.npz has 4294967296 bytes, of which nearly none"):
        store.file("run.toml")  # what `holonomix resume` reads first
    assert store.to_xarray().sizes["t"] == 7 and store.verify() == ["given.npz"]


def test_metadata_that_declares_compression_is_not_believed(run):
    before = Store(run, "read").load()
    for name in ("zarr.json", "q/zarr.json"):
        node = json.loads((run / name).read_bytes())
        node["codecs"] = [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 22}}]
        node["shape"] = [10**15, 10**9]
        (run / name).write_text(json.dumps(node))
    after = Store(run, "read").load()
    assert all(np.array_equal(before[k], after[k]) for k in before)
    assert Store(run, "read").verify() == ["zarr.json", "q/zarr.json"]


# ---- run files and the command line

DEEP = [
    "a" + ".a" * 50_000 + " = 1",
    "[" + "a." * 50_000 + "a]",
    "x = {" + "a." * 50_000 + "a = 1}",
    "x = {" + '"é".' * 25_000 + "a = 1}",
    "x = {" + "'=' . " * 20_000 + "a = 1}",
    "x = " + "[" * 50_000,
    "x = " + "{a=" * 30_000,
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_nested_toml(text):
    with pytest.raises(CommandError, match="is not TOML"):
        parse_run_file(text.encode(), "run.toml")


def test_ordinary_toml_is_not_refused():
    numbers = ", ".join(["0.25"] * 1000)
    text = f'q = [{numbers}]\nnote = "{"a sentence. " * 100}"\n[a.b.c]\nd.e = "{"x" * 10_000}"\n'
    assert parse_toml(text)["a"]["b"]["c"]["d"]["e"] == "x" * 10_000


def test_long_run_files_and_settings():
    with pytest.raises(CommandError, match="MB"):
        parse_run_file(b"#" * (5 << 20), "run.toml")
    with pytest.raises(CommandError, match="parts"):
        assignment("a" + ".a" * 50_000 + "=1")
    with pytest.raises(CommandError, match="too long"):
        literal("[" + "1," * 200_000 + "]")


@pytest.mark.parametrize("key", ["steps", "save_every", "seed", "dt", "t1", "omega"])
@pytest.mark.parametrize("value", [HUGE, -HUGE, float("inf"), float("nan")])
def test_enormous_numbers(key, value):
    with pytest.raises(CommandError, match=key):
        validate({"model": "chain", key: value}, "run.toml")


def test_enormous_numbers_elsewhere():
    with pytest.raises(CommandError, match=r"start.*finite number"):
        validate({"model": "chain", "start": {"q": [1.0, HUGE]}}, "run.toml")
    with pytest.raises(CommandError, match="finite number"):
        number("dt", "1" * 400)


@pytest.mark.parametrize(
    "text", ["composition-" + "9" * 400, f"HBVM(k={HUGE}, s=2)", "lobatto-iiiab-2000000", f"Composition(order={2**70})"]
)
def test_enormous_numbers_in_methods(text):
    with pytest.raises(CommandError, match="at most 1000000|unknown method"):
        parse_method(text)
