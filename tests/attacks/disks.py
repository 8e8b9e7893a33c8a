"""Disks that are full or read-only, and clocks that are set back: nothing is lost, and the bits are the same after."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.core.errors import HolonomixError

from .stores import Broken, values

ROD = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q @ q - 1.0]))
OPTIONS = {"dt": 0.01, "steps": 60_000, "save_every": 4}


def can_mount() -> bool:
    """Whether this process may mount a file system in memory."""
    with contextlib.suppress(OSError, Broken):
        import tempfile

        with tempfile.TemporaryDirectory() as folder, mounted(Path(folder) / "small", "1m"):
            return True
    return False


@contextlib.contextmanager
def mounted(place: Path, size: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", place)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def _mount(*words: object) -> None:
    done = subprocess.run(["mount", *map(str, words)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Broken(f"mount: {done.stderr}")


def run(path: Path | None) -> hx.Solution:
    return hx.simulate(ROD, hx.RATTLE(), [1.0, 0.0], [0.0, 0.3], store=path, **OPTIONS)


def bits(sol: hx.Solution) -> bytes:
    return b"".join(np.ascontiguousarray(x).tobytes() for x in (sol.t, sol.q, sol.p, sol.final_q, sol.final_p))


def refused(path: Path, what: str, words: tuple[str, ...]) -> None:
    """The run ends with an error of ours that names the cause by one of the words."""
    try:
        run(path)
    except HolonomixError as error:
        if not any(word in str(error).lower() for word in words):
            raise Broken(f"{what}: {error}") from error
    except Exception as error:
        raise Broken(f"{what}: raw {type(error).__name__}: {error}") from error
    else:
        raise Broken(f"{what}: the run said nothing")


class Disks:
    """The right bits, found once."""

    def __init__(self, folder: Path):
        self.folder, self.right, self.mounts, self.count = folder, bits(run(None)), can_mount(), 0

    def attack(self, dice: random.Random) -> None:
        kinds = [self.clock, *([self.full, self.read_only] if self.mounts else [])]
        dice.choice(kinds)(dice)

    def place(self) -> Path:
        self.count += 1
        return self.folder / f"disk-{self.count}"

    def full(self, dice: random.Random) -> None:
        """A disk that is full before the end of a run; with more room the run goes on."""
        place = self.place()
        with mounted(place, f"{dice.randrange(40, 1200)}k"):
            refused(place / "run", "a full disk", ("disk is full", "no space"))
            _mount("-o", "remount,size=64m", place)
            if bits(run(place / "run")) != self.right:
                raise Broken("other bits after a full disk")

    def read_only(self, dice: random.Random) -> None:
        """A store that cannot be written to is read as it is, and a run that would go on says so."""
        place = self.place()
        with mounted(place, "64m"):
            short = {**OPTIONS, "steps": dice.randrange(1, 15_000) * 4}
            sol = hx.simulate(ROD, hx.RATTLE(), [1.0, 0.0], [0.0, 0.3], store=place / "run", **short)
            rows = np.array(sol.q)
            _mount("-o", "remount,ro", place)
            if not np.array_equal(values("run", place / "run")["x/q"], rows):
                raise Broken("a read-only store shows other values")
            refused(place / "run", "a read-only store", ("read-only",))
            _mount("-o", "remount,rw", place)
            if bits(run(place / "run")) != self.right:
                raise Broken("other bits after a read-only disk")

    def clock(self, dice: random.Random) -> None:
        """Files of another time, and a clock that stands a day before them."""
        place = self.place()
        place.mkdir()
        short = {**OPTIONS, "steps": dice.randrange(1, 15_000) * 4}
        hx.simulate(ROD, hx.RATTLE(), [1.0, 0.0], [0.0, 0.3], store=place / "run", **short)
        for file in (place / "run").rglob("*"):
            moment = time.time() + dice.choice([-1, 1]) * dice.uniform(0.0, 1e9)
            os.utime(file, (moment, moment))
        real = time.time
        with mock.patch("time.time", lambda: real() - 86_400):
            if bits(run(place / "run")) != self.right:
                raise Broken("other bits after the clock was set back")
        if bits(run(place / "run")) != self.right:
            raise Broken("other bits once the clock is right again")
