"""All attacks in turn, from one seed, until the time is up."""

from __future__ import annotations

import logging
import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from . import runfiles, stale
from .disks import Disks
from .kills import Kills
from .stores import Broken, Campaign


class Attacks:
    """`one(k)` carries out attack number k of each kind; `counts` says how many there were."""

    def __init__(self, folder: Path, seed: str):
        self.folder, self.seed, self.counts = folder, seed, Counter[str]()
        self.stores = {kind: Campaign(folder, kind) for kind in ("run", "ensemble")}
        self.kills, self.disks = Kills(folder), Disks(folder)
        self.strength = stale.Strength(folder)
        self.channels = list(stale.channels(folder).items())

    def dice(self, what: str, k: int) -> random.Random:
        return random.Random(f"{self.seed} {what} {k}")

    def damage(self, k: int) -> None:
        for kind, campaign in self.stores.items():
            campaign.attack(self.dice(f"damage {kind}", k), "damage")

    def forge(self, k: int) -> None:
        for kind, campaign in self.stores.items():
            campaign.attack(self.dice(f"forge {kind}", k), "forge")

    def stale(self, k: int) -> None:
        name, fn = self.channels[k % len(self.channels)]
        try:
            found = stale.check(name, fn, self.strength, self.dice("stale", k), full=k % 16 == 15)
        finally:
            self.strength.restore()
        if found:
            raise Broken(found)

    def run_file(self, k: int) -> None:
        runfiles.attack(self.folder, self.dice("run file", k))

    def disk(self, k: int) -> None:
        self.disks.attack(self.dice("disk", k))

    def kill(self, k: int) -> None:
        self.counts["kills"] += self.kills.attack(self.dice("kill", k))

    def calls(self, k: int) -> None:
        """Twenty calls with bad arguments."""
        from tests.run.test_fuzz_api import failures

        if found := failures(20, self.dice("calls", k).randrange(1 << 30)):
            raise Broken("\n".join(found))

    @property
    def kinds(self) -> dict[str, Callable[[int], None]]:
        named = {"damage": self.damage, "forge": self.forge, "stale": self.stale}
        return named | {"run file": self.run_file, "disk": self.disk}

    def all(self, k: int, kills: bool) -> list[str]:
        """One attack of each kind; what was broken."""
        broken = []
        rare = {"kill": self.kill, "calls": self.calls} if kills else {}
        for name, attack in {**self.kinds, **rare}.items():
            for at in range(8 * k, 8 * k + 8) if name in ("run file", "stale") else (k,):
                self.counts[name] += 1
                try:
                    attack(at)
                except Broken as error:
                    broken.append(f"seed {self.seed}, {name} {at}: {error}")
        return broken


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description="Attack stores, run files, functions and runs with random damage.")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--minutes", type=float, default=3.0)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        attacks, end, k = Attacks(Path(folder), given.seed), time.monotonic() + 60 * given.minutes, 0
        while time.monotonic() < end:
            for line in attacks.all(k, kills=k % 8 == 0):
                found.append(line)
                print(line, flush=True)
            k += 1
    print(", ".join(f"{n} {name}" for name, n in attacks.counts.items()), f"attacks; {len(found)} promises broken")
    raise SystemExit(bool(found))
