"""Stores that are damaged at random, and stores that are forged: their checksums agree with what they declare."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.run.io import EnsembleStore, Store, verify
from holonomix.run.io.text import SEAL, seal, sign

MOST_SECONDS, MOST_MEMORY = 1.0, 200 << 20
PENDULUM = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q @ q - 1.0]))


def run(path: Path) -> Any:
    """One trajectory with an observable, in a store of several checkpoints."""
    return hx.simulate(
        PENDULUM, hx.RATTLE(), [1.0, 0.0], [0.0, 0.0], dt=0.01, steps=400, save_every=2, store=path,
        observe={"height": lambda q, p: q[1]},
    )  # fmt: skip


def ensemble(path: Path) -> Any:
    """Six trajectories in three blocks, with events."""
    q = np.stack([[np.cos(a), np.sin(a)] for a in np.linspace(0.0, 1.0, 6)])
    return hx.simulate_ensemble(
        PENDULUM, hx.RATTLE(), q, 0 * q, dt=0.01, steps=100, save_every=10, store=path, block=2,
        events=lambda q, p: q[0], reduce={"low": hx.reductions.Minimum(lambda q, p: q[1])},
    )  # fmt: skip


MAKERS = {"run": run, "ensemble": ensemble}


def values(kind: str, path: Path) -> dict[str, np.ndarray]:
    """All numbers of a store, read as users do."""
    if kind == "run":
        store = Store(path, "read")
        store.status  # noqa: B018
        return {**store.load(), **{f"x/{k}": v.values for k, v in store.dataset().data_vars.items()}}
    store = EnsembleStore(path)
    store.progress()
    data = store.to_xarray()
    return {str(k): v.values for k, v in data.variables.items()}


def again(kind: str, path: Path) -> dict[str, np.ndarray]:
    """The same call once more, which goes on where the store ends."""
    found = MAKERS[kind](path)
    return {"q": np.asarray(found.q), "p": np.asarray(found.p)}


ACTIONS: dict[str, Callable[[str, Path], Any]] = {
    "read": values,
    "verify": lambda kind, path: verify(path),
    "again": again,
}


class Broken(AssertionError):
    """A promise was broken."""


def attempt(kind: str, path: Path, action: str) -> Any:
    """The result of an action, or None where it was refused; raises where it was refused badly."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        found = ACTIONS[action](kind, path)
        refused = False
    except hx.HolonomixError as error:
        found, refused = str(error), True
        if not found or len(found) > 3000:
            raise Broken(f"an error of {len(found)} characters") from error
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    seconds = time.process_time() - began  # of this process: other load does not count
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if refused and seconds > MOST_SECONDS:
        raise Broken(f"refused after {seconds:.1f} s")
    if grown > MOST_MEMORY:
        raise Broken(f"took {grown >> 20} MB")
    return None if refused else found


# -- damage ------------------------------------------------------------------------------------------------------------


def files_of(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file() and not p.is_symlink() and p.name != "lock")


def damaged(path: Path, dice: random.Random) -> str:
    """Damage one file; what was done."""
    file = dice.choice(files_of(path))
    data = bytearray(file.read_bytes())
    how = dice.choice(["flip", "cut", "grow", "zero", "delete", "swap", "twice", "blank"])
    at = dice.randrange(max(1, len(data)))
    if how == "flip" and data:
        data[at] ^= 1 << dice.randrange(8)
    elif how == "cut":
        data = data[:at]
    elif how == "grow":
        data += dice.randbytes(dice.randrange(1, 100))
    elif how == "zero" and data:
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    elif how == "delete":
        file.unlink()
        return f"{how} {file.relative_to(path)}"
    elif how == "swap":
        # whole files that change places are no accident, and their checksums agree: JSON alone says what it belongs to
        other = dice.choice([p for p in files_of(path) if p.suffix == ".json"])
        data = bytearray(other.read_bytes())
    elif how == "twice":
        data = data + data
    elif how == "blank":  # JSON that means the same
        file = dice.choice([p for p in files_of(path) if p.suffix == ".json"])
        data = bytearray(file.read_bytes().replace(b",", dice.choice([b" ,", b",\n", b",\t"]), dice.choice([1, -1])))
    file.write_bytes(data)
    return f"{how} {file.relative_to(path)} at {at}"


# -- forgery -----------------------------------------------------------------------------------------------------------

NUMBERS = [0, -1, 1, 2, 3, 7, 2**31, 2**40, 2**53, 2**53 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.5, 1e308]
OTHERS = ["", "x", "../../etc", "q", "a" * 5000, None, True, [], {}, [[]], [0] * 5000, {"a": {"b": []}}, float("nan")]


def forged(path: Path, dice: random.Random) -> str:
    """Change what a store declares, with checksums that agree; or put something odd in the place of a file."""
    if dice.random() < 0.35:
        return _odd_file(path, dice)
    file = dice.choice([p for p in files_of(path) if p.suffix == ".json"])
    try:
        body = json.loads(file.read_bytes())
    except ValueError:
        return "nothing"
    body.pop("sha256", None)
    where = _mutated(body, dice)
    if "attributes" in body and isinstance(body.get("attributes"), dict) and SEAL in body["attributes"]:
        body["attributes"].pop(SEAL)
        file.write_bytes(seal(body))
    else:
        file.write_bytes(sign(body) if isinstance(body, dict) else json.dumps(body).encode())
    if dice.random() < 0.3:
        shutil.rmtree(path / "holonomix" / "checkpoints", ignore_errors=True)
    return f"{file.relative_to(path)}: {where}"


def _mutated(body: Any, dice: random.Random) -> str:
    """Replace a random entry of nested JSON; the path to it and the new value."""
    trail, here = "", body
    while True:
        keys = list(here) if isinstance(here, dict) else range(len(here))
        if not keys:
            return f"{trail} is empty"
        key = dice.choice(list(keys))
        trail += f"[{key!r}]"
        if isinstance(here[key], dict | list) and here[key] and dice.random() < 0.8:
            here = here[key]
            continue
        value = dice.choice(NUMBERS if dice.random() < 0.7 else OTHERS)
        if dice.random() < 0.1:
            del here[key]
            return f"{trail} deleted"
        here[key] = value
        return f"{trail} = {str(value)[:40]}"


def _odd_file(path: Path, dice: random.Random) -> str:
    """Something that is no ordinary file, or a huge one with nothing in it."""
    file = dice.choice(files_of(path))
    how = dice.choice(["sparse", "pipe", "folder", "link", "loop", "device", "zip", "file"])
    if how == "file":
        folder = dice.choice(sorted(p for p in path.rglob("*") if p.is_dir()))
        shutil.rmtree(folder)
        folder.write_bytes(dice.randbytes(dice.randrange(100)))
        return f"file {folder.relative_to(path)}"
    if how == "zip":
        file = dice.choice([p for p in files_of(path) if p.suffix in (".npz", ".bin")] or [file])
        file.write_bytes(odd_zip(dice))
        _resign(file)
        return f"zip {file.relative_to(path)}"
    file.unlink()
    if how == "sparse":
        with file.open("wb") as sparse:
            sparse.truncate(dice.choice([1 << 32, 1 << 34, 1 << 40]))
    elif how == "pipe":
        os.mkfifo(file)
    elif how == "folder":
        file.mkdir()
    else:
        os.symlink({"link": "/etc/passwd", "loop": file.name, "device": "/dev/zero"}[how], file)
    return f"{how} {file.relative_to(path)}"


def _resign(file: Path) -> None:
    """Let the JSON beside a file of arrays vouch for what is there now."""
    record = file.with_suffix(".json")
    if record.is_file():
        body = json.loads(record.read_bytes())
        body.pop("sha256", None)
        name = "arrays_sha256" if file.suffix == ".npz" else "attachment"
        record.write_bytes(sign({**body, name: hashlib.sha256(file.read_bytes()).hexdigest()}))


def odd_zip(dice: random.Random) -> bytes:
    """A zip file with flags, methods, headers or sizes that ours do not have."""
    import io

    buffer = io.BytesIO()
    method = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    header = dice.choice(
        [
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
            "{'descr': [('a', '<f8')], 'fortran_order': True, 'shape': (), }",
            "__import__('os')",
            "{" * 3000,
            "{'descr': '<f8', 'shape': (1,)}",
        ]
    )
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(8)
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name in dice.choice([["state/q.npy"], ["../x.npy"], ["state/q.npy", "state/q.npy"], []]):
            archive.writestr(name, body)
    data = bytearray(buffer.getvalue())
    for _ in range(dice.randrange(3)):
        at = dice.randrange(len(data))
        data[at] ^= 1 << dice.randrange(8)
    if dice.random() < 0.4 and len(data) > 8:  # encrypted, in the local header and in the directory
        data[6] |= 1
        place = data.find(b"PK\x01\x02")
        if place >= 0:
            data[place + 8] |= 1
    return bytes(data)


# -- campaigns ---------------------------------------------------------------------------------------------------------


class Campaign:
    """Fresh copies of one store, each attacked and then used."""

    def __init__(self, folder: Path, kind: str):
        self.kind, self.whole, self.place = kind, folder / f"whole-{kind}", folder / f"attacked-{kind}"
        MAKERS[kind](self.whole)
        self.right = values(kind, self.whole)
        self.rows = again(kind, self.whole)
        assert verify(self.whole) == []

    def attack(self, dice: random.Random, how: str) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.whole, self.place)
        what = (damaged if how == "damage" else forged)(self.place, dice)
        changed = how == "damage" and not what.startswith("swap") and self.is_changed()
        for action in ACTIONS:
            try:
                found = attempt(self.kind, self.place, action)
                if how == "damage" and found is not None:
                    self.check(action, found)
                if changed and action == "verify" and found == []:
                    raise Broken("not noticed")
            except Broken as error:
                raise Broken(f"{self.kind}, {how}, {what}, {action}: {error}") from error

    def is_changed(self) -> bool:
        """Whether any byte of the copy differs from the whole store."""
        whole, place = (
            {p.relative_to(folder): p.read_bytes() for p in files_of(folder)} for folder in (self.whole, self.place)
        )
        return whole != place

    def check(self, action: str, found: Any) -> None:
        """What a damaged store shows is right, or NaN where rows are missing."""
        right = self.right if action == "read" else self.rows if action == "again" else {}
        for name, x in (found if action != "verify" else {}).items():
            if name not in right or name == "finished":
                continue
            want = np.asarray(right[name])
            shown = np.asarray(x)
            if action == "read" and self.kind == "run" and len(shown) < len(want):
                want = want[: len(shown)]  # rows that no checkpoint accounts for are not shown
            missing = np.isnan(shown) if shown.dtype.kind == "f" else shown < 0
            same = shown.shape == want.shape and bool(
                np.all((shown == want) | missing | (shown != shown) & (want != want))
            )
            if self.kind == "run" or action == "again":
                same = same and np.array_equal(shown, want, equal_nan=shown.dtype.kind == "f")
            if not same:
                raise Broken(f"{name} has other values")
