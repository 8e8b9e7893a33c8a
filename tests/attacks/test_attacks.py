"""Some of every kind of attack with a fixed seed; `make attack SEED=... MINUTES=...` draws others."""

from __future__ import annotations

import pytest

from .campaign import Attacks
from .stores import Broken


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    return Attacks(tmp_path_factory.mktemp("attacks"), "fixed")


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 5))])
@pytest.mark.parametrize("kind", ["damage", "forge", "stale", "run file", "disk"])
def test_promises_hold(attacks, kind, part):
    count = {"damage": 4, "forge": 8, "stale": 12, "run file": 60, "disk": 3}[kind] * (6 if part else 1)
    for k in range(part * count, (part + 1) * count):
        attacks.kinds[kind](k)


@pytest.mark.slow
@pytest.mark.parametrize("k", range(8))
def test_killed_runs_give_the_same_bits(attacks, k):
    attacks.kill(k)


def test_the_attacks_notice_a_store_that_shows_other_values(attacks):
    campaign = attacks.stores["run"]
    wrong = {name: x + 1 for name, x in campaign.right.items() if x.dtype.kind == "f"}
    with pytest.raises(Broken, match="other values"):
        campaign.check("read", wrong)
