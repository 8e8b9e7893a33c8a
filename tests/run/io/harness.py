"""A stand-in for the driver: a chaotic recursion whose every row depends on all the bits before it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from holonomix.run.io import EnsembleStore, Store, disk

CHUNK_BYTES = 160  # five rows of q: chunks fill up in the middle of an append
SHARD_BYTES = 400  # two chunks of q in a file
TOTAL, STEP = 17, 3


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, nothing tidies up."""


class Killer:
    """Cuts the process off before, or in the middle of, its n-th change to the disk.

    After that nothing is written: each attempt raises `later`.
    """

    def __init__(self, monkeypatch, at: int, later: type[BaseException] = Killed):
        self.left, self.later = at, later
        for name in [name for name in vars(disk) if name.startswith("do_")]:
            monkeypatch.setattr(disk, name, self.wrap(name, getattr(disk, name)))

    def wrap(self, name, original):
        def operation(folder, *args):
            self.left -= 1
            if self.left == 0 and name == "do_fill":
                target, data, _ = args
                original(folder, target, data[: len(data) // 2], False)
            if self.left <= 0:
                raise Killed(name) if self.left == 0 else self.later("the process is dead")
            original(folder, *args)

        return operation


def next_state(x: np.ndarray) -> np.ndarray:
    return 3.9 * x * (1.0 - x) + 1e-3 * np.roll(x, 1) * (1.0 - x)


def drive(store: Store, total: int = TOTAL, step: int = STEP) -> None:
    """Restart or begin, then append and checkpoint until `total` rows are there, as the driver does."""
    found = store.restart()
    if found is None:
        store.begin({"method": "recursion", "dt": 0.1, "total": total})
        x, n = np.linspace(0.2, 0.7, 4).reshape(2, 2), 0
    else:
        arrays, meta = found
        x, n = arrays["x"], meta["n"]
        assert n == store.rows
    while n < total:
        rows = []
        for _ in range(min(step, total - n)):
            rows.append((0.1 * n, x))
            x, n = next_state(x), n + 1
        t = np.array([r[0] for r in rows])
        q = np.stack([r[1] for r in rows])
        store.append(
            {"t": t, "q": q, "p": -q, "multipliers": q.sum(-1), "obs/count": np.rint(1e6 * t).astype(np.int64)}
        )
        store.checkpoint({"x": x}, {"n": n})
    store.close({"status": "finished"})


def fresh(path: Path, **options) -> Store:
    options = {
        "chunk_bytes": CHUNK_BYTES,
        "shard_bytes": SHARD_BYTES,
        "checkpoint_seconds": 0.0,
        "files": {"run.toml": "steps = 17\n"},
    } | options
    return Store(path, "auto", **options)


def contents(path: Path) -> dict[str, bytes]:
    """Every value of every variable, as bytes, read the way users read it."""
    with Store(path, "read").dataset() as data:
        return {str(name): data[name].values.tobytes() for name in data.variables}


def digest(path: Path) -> str:
    """The hash of the array files themselves: chunks and metadata."""
    total = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file() and "holonomix" not in p.relative_to(path).parts):
        total.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return total.hexdigest()


# ---- ensembles, in a module that processes import without pytest or JAX

TRAJECTORIES, ROWS, BLOCK = 23, 7, 5


def values(first: int, last: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    """Rows that depend on the trajectory alone."""
    i = np.arange(first, last)[:, None]
    q = np.stack([np.sin(0.1 * i + np.arange(rows)), np.cos(0.3 * i * np.arange(rows))], -1)
    return {"q": q, "obs/energy": q.sum(-1), "n": np.broadcast_to(np.arange(rows), (last - first, rows)).copy()}


def one(rows: int = ROWS) -> dict[str, np.ndarray]:
    return {key: x[0] for key, x in values(0, 1, rows).items()}


def make(path: Path, **options) -> EnsembleStore:
    options = {"trajectories": TRAJECTORIES, "block": BLOCK, "meta": {"method": "made up"}} | options
    return EnsembleStore.create(
        path, rows=one(), reductions={"max": np.zeros(2)}, t=0.5 * np.arange(ROWS),
        coordinates={"length": np.linspace(0, 1, options["trajectories"])}, **options,
    )  # fmt: skip


def write(store: EnsembleStore, block: int) -> None:
    first, last = store.bounds(block)
    rows = values(first, last)
    store.write_block(block, rows, {"max": rows["q"].max(1)}, np.arange(first, last) % 3)
