"""Runs of every kind in a process of their own, killed at random moments, and continued: the bits must be the same."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from .stores import Broken

SCRIPT = """
import sys, hashlib
import numpy as np, jax, jax.numpy as jnp
import holonomix as hx

kind, path = sys.argv[1:3]
rod = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q @ q - 1.0]))
well = hx.System(lambda q: jnp.sum(q**4 / 4 + q**2 / 2))
q, p = np.array([1.0, 0.0]), np.array([0.0, 0.3])
many = np.stack([[np.cos(a), np.sin(a)] for a in np.linspace(0.0, 1.0, 64)])
end = {"dt": 0.01, "steps": 300_000, "save_every": 20}


def digest(*arrays):
    text = hashlib.sha256()
    for x in arrays:
        text.update(np.ascontiguousarray(x).tobytes())
    return text.hexdigest()


def single(system, method, q, p, **options):
    sol = hx.simulate(system, method, q, p, store=path, **options)
    found = [x for e in sol.events for x in (e.t, e.q)]
    return digest(sol.t, sol.q, sol.p, sol.final_q, sol.final_p, *found)


def several(**options):
    ens = hx.simulate_ensemble(rod, hx.RATTLE(), many, 0 * many, store=path, block=4, **options)
    return digest(ens.q, ens.p, ens.status)


if __name__ == "__main__":
    arc_length = hx.monitors.ArcLengthMonitor()
    kinds = {
        "native": lambda: single(rod, hx.RATTLE(), q, p, backend="native", **end),
        "array": lambda: single(rod, hx.RATTLE(), q, p, backend="array", **{**end, "steps": 60_000}),
        "events": lambda: single(rod, hx.RATTLE(), q, p, events=lambda q, p: q[0], **{**end, "steps": 100_000}),
        "adaptive": lambda: single(rod, hx.VRATTLE(arc_length), q, p, dt=0.01, t1=1500.0, save_every=20),
        "save_at": lambda: single(rod, hx.RATTLE(), q, p, dt=0.01, save_at=np.linspace(0.5, 900.0, 20_000)),
        "stochastic": lambda: single(well, hx.GLA(), q, p, key=jax.random.key(1), **end),
        "hbvm": lambda: single(rod, hx.HBVM(4, 2), q, p, **end),
        "ensemble": lambda: several(dt=0.01, steps=20_000, save_every=100),
    }
    print(kinds[kind]())
"""
KINDS = ("native", "array", "events", "adaptive", "save_at", "stochastic", "hbvm", "ensemble")


class Kills:
    """The right digest of each kind, found once, and how long a run takes."""

    def __init__(self, folder: Path):
        self.folder, self.script = folder, folder / "killed.py"
        self.script.write_text(SCRIPT)
        self.right: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.count = 0

    def command(self, kind: str, path: Path) -> list[str]:
        return [sys.executable, str(self.script), kind, str(path)]

    def attack(self, dice: random.Random) -> int:
        """Kill one run a few times and let it end; how many kills met it."""
        kind = KINDS[self.count % len(KINDS)]
        self.count += 1
        if kind not in self.right:
            began = time.monotonic()
            self.right[kind] = self.finished(kind, self.folder / f"not-killed-{kind}")
            self.seconds[kind] = time.monotonic() - began
        path = self.folder / f"killed-{self.count}"
        kills = 0
        for _ in range(dice.randrange(1, 6)):
            run = subprocess.Popen(self.command(kind, path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                run.wait(dice.uniform(0.4, 0.95) * self.seconds[kind])
                break  # it came to its end
            except subprocess.TimeoutExpired:
                os.kill(run.pid, signal.SIGKILL)
                run.wait()
                kills += 1
        found = self.finished(kind, path)
        if found != self.right[kind]:
            raise Broken(f"{kind}: other bits after {kills} kills")
        return kills

    def finished(self, kind: str, path: Path) -> str:
        done = subprocess.run(self.command(kind, path), capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise Broken(f"{kind}: {done.stderr[-2000:]}")
        return hashlib.sha256(done.stdout.split()[-1].encode()).hexdigest()
