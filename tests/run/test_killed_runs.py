"""Runs with events, observables, wanted times and adaptive steps that are killed anywhere and resumed.

Rows, events, status and end must be identical, to the last bit, to those of a run that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import sys

import jax
import numpy as np
import pytest

import holonomix as hx
from holonomix.run.io import Store, disk
from holonomix.run.solution import map_rows, multipliers_of
from tests.run.io.harness import Killed, Killer

PENDULUM = hx.models.planar_pendulum()
CROSSING, TURN = hx.Event(lambda q, p: q[0]), hx.Event(lambda q, p: p[0], direction=1)
OBSERVED = {"height": lambda q, p: q[1], "clock": lambda q, p, t: t}


def late(q, p, t):
    """A terminal event far from the start."""
    return t - 7.1234


KINDS = {
    "events": (hx.RATTLE(), {"t1": 8.0, "events": [CROSSING, TURN], "save_every": 3}),
    "terminal": (hx.RATTLE(), {"t1": 8.0, "events": [CROSSING, hx.Event(late, terminal=True)], "save_every": 7}),
    "adaptive": (hx.VRATTLE(), {"t1": 8.0, "events": [CROSSING, TURN], "save_every": 4}),
    "adaptive terminal": (hx.VRATTLE(), {"t1": 8.0, "events": [CROSSING, hx.Event(late, terminal=True)]}),
    "wanted times": (
        hx.RATTLE(),
        {"save_at": np.linspace(0.0, 7.9, 23), "events": [CROSSING, hx.Event(late, terminal=True)]},
    ),
    "random": (hx.GLA(hx.RATTLE(), 1.0, 0.3), {"t1": 8.0, "key": jax.random.key(5)}),
    "native": (hx.RATTLE(), {"t1": 8.0, "events": [CROSSING, TURN], "save_every": 3, "backend": "native"}),
    "energy": (hx.HBVM(3, 1), {"t1": 8.0, "events": [CROSSING, TURN], "save_every": 3}),
}
KILLS = 40


def run(kind, store):
    method, options = KINDS[kind]
    return hx.simulate(PENDULUM, method, dt=0.2, observe=OBSERVED, store=store, **{"backend": "array"} | options)


def bits(sol):
    """Everything that a run gives, as bytes."""
    columns = {name: np.asarray(x).tobytes() for name, x in sorted(sol.rows.items())}
    events = [tuple(np.asarray(x).tobytes() for x in record) for record in sol.events]
    return columns, events, sol.status, float(sol.final_t), np.asarray(sol.final_q).tobytes(), sol.stats["steps"]


def killed(kind, path, at):
    """Run until the `at`-th change to the disk; whether the run was cut off."""
    with pytest.MonkeyPatch.context() as patch:
        Killer(patch, at)
        store = None
        try:
            store = Store(path, checkpoint_seconds=0.0, chunk_bytes=160)
            run(kind, store)
        except Killed:
            if store is not None and store._lock is not None:
                os.close(store._lock)  # what the system does for the dead
                store._lock = None
            return True
    return False


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """A checkpoint after almost every step, at the same places in every run; no waiting for the device."""
    module = sys.modules["holonomix.run.run"]
    monkeypatch.setattr(module, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(module, "FIRST_CHUNK", {False: 2, True: 2})
    monkeypatch.setattr(disk.os, "fsync", lambda handle: None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_gives_the_same_rows_events_and_end(tmp_path, kind):
    whole = bits(run(kind, Store(tmp_path / "whole", checkpoint_seconds=0.0, chunk_bytes=160)))
    assert kind == "random" or len(np.frombuffer(whole[1][0][0])) >= 2, "the run passes events"
    dice, done, case = random.Random(kind), 0, 0
    while done < KILLS:
        path = tmp_path / str(case)
        case += 1
        while done < KILLS and killed(kind, path, dice.choice([20, 100, 500]) + dice.randrange(300)):
            done += 1
        assert bits(run(kind, Store(path))) == whole
        assert bits(run(kind, Store(path))) == whole, "a run that is over does not change when it is opened again"


@pytest.mark.parametrize("kind", ["terminal", "adaptive terminal", "wanted times"])
def test_kills_around_the_end_of_a_run(tmp_path, kind):
    """The checkpoint that knows of the terminal event also knows of its row."""
    counter = Killer(patch := pytest.MonkeyPatch(), 10**9)
    whole = bits(run(kind, Store(tmp_path / "whole", checkpoint_seconds=0.0, chunk_bytes=160)))
    patch.undo()
    total = 10**9 - counter.left
    for back in (1, 4, 12, 25, 40, 60):
        path = tmp_path / str(back)
        assert killed(kind, path, total - back)
        assert bits(run(kind, Store(path))) == whole, f"killed {back} operations before the end"


def test_rows_have_the_same_bits_wherever_a_chunk_ends():
    """Multipliers are found for the rows of a chunk together, and the clock says where chunks end."""
    problem = hx.models.chain()
    sol = hx.simulate(problem, hx.RATTLE(), steps=600, save_every=1)
    rows = sol.q, sol.p, sol.t
    whole = map_rows(multipliers_of, sol.system, *rows)
    for first in (2, 16, 300):
        rest = map_rows(multipliers_of, sol.system, *(x[first:] for x in rows))
        np.testing.assert_array_equal(rest, whole[first:])
