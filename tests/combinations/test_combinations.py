"""Every capability with every other, by every method and every driver, against a reference that shares no code.

A unit is one method on one drawn system with several starts and drivers (`covering.py`). A case that fails is named by
its text; `python tools/combinations.py --case TEXT` runs it alone.
"""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import holonomix as hx

from .build import Built
from .covering import feasible_pairs, pairs_of, read_plan, values_of
from .features import Features, draw
from .judge import DRIVERS, Unit, check_case, refusal
from .methods import methods, suits

QUICK_SEED, SLOW_SEED = 0, 1
PAGE = Path(__file__).parents[2] / "docs" / "methods" / "combinations.md"
QUICK, SLOW = read_plan(costly=False), read_plan(costly=True)


@functools.cache
def built(features: Features, seed: int) -> Built:
    return Built(features, seed)


def check(planned, seed: int) -> None:
    unit = Unit(planned.features, planned.method, seed, built(planned.features, seed))
    verdicts = [unit.check(start, driver) for start, driver in planned.cases]
    failed = [str(v) for v in verdicts if v.failed]
    assert not failed, f"{len(failed)} of {len(verdicts)} cases:\n" + "\n".join(failed)
    refused = {v.driver: v.reason for v in verdicts if v.verdict == "refused"}
    assert "native" not in refused or "cannot take this step" in refused["native"], refused


@pytest.mark.parametrize("planned", QUICK, ids=str)
def test_drawn_combinations(planned):
    check(planned, QUICK_SEED)


@pytest.mark.slow
@pytest.mark.parametrize("planned", SLOW, ids=str)
def test_more_combinations(planned):
    check(planned, SLOW_SEED)


@pytest.mark.parametrize("costly", [False, True])
def test_a_plan_has_all_pairs(costly):
    covered = set()
    for unit in read_plan(costly):
        for start, driver in unit.cases:
            covered |= pairs_of(values_of(unit.features, start, driver))
    assert feasible_pairs(costly) <= covered
    assert {driver for unit in QUICK for _, driver in unit.cases} == set(DRIVERS)


def test_methods_refuse_what_they_do_not_declare():
    """`method.check` agrees with the declared traits for every method, on twenty drawn systems."""
    rng = np.random.default_rng(5)
    drawn = (draw(rng) for _ in range(1000))
    # rows that depend on each other are seen at the start of a run only
    for features in itertools.islice((f for f in drawn if not f.redundant), 20):
        given = built(features, 0)
        system = given.system(given.nowhere())
        for name, method in methods().items():
            try:
                method.check(system)
                refused = False
            except hx.MethodError:
                refused = True
            assert refused != suits(method, features), (name, str(features))


def test_redundant_rows_are_refused_by_methods_that_do_not_declare_them():
    features = Features("horizontal", "scalar", redundant=True)
    given = built(features, 0)
    start = given.start("generic")
    for name in ("RK4", "HBVM", "LineIntegral", "LobattoIIIAB", "ImplicitMidpoint"):
        with pytest.raises((hx.ConstraintRankError, hx.MethodError)):
            hx.simulate(given.system(start), methods()[name], *given.state(start), dt=0.01, steps=2)


# -- the checks themselves can fail -----------------------------------------------------------------------------------


def test_a_wrong_order_is_noticed():
    unit = Unit(Features("horizontal", "scalar"), "RK4")
    unit.traits = hx.methods.registry()["RK4"].traits["constrained"]
    assert unit.check("generic", "native").verdict == "right"
    other = Unit(Features("horizontal", "scalar"), "RK4")
    other.traits = hx.LineIntegral(order=6).traits["constrained"]
    found = other.check("generic", "native")
    assert found.verdict == "wrong" and "declared exact" in found.reason


def test_another_system_is_noticed():
    """The reference of one seed does not fit the system of another."""
    unit = Unit(Features("surface", "scalar"), "RATTLE", 0)
    unit.built.reference = Built(Features("surface", "scalar"), 3).reference
    found = unit.check("generic", "native")
    assert found.verdict == "wrong", str(found)


def test_a_case_can_be_run_again_by_its_text():
    found = check_case("horizontal+scalar+plain+force|rest|RATTLE|native|0")
    assert found.case == "horizontal+scalar+plain+force|rest|RATTLE|native|0"
    assert found.verdict in ("right", "wrong", "unconverged")


# -- the page of the documentation ------------------------------------------------------------------------------------


def test_the_page_was_made_by_the_tool_and_nothing_in_it_is_wrong():
    text = PAGE.read_text()
    assert text.startswith("# Combinations") and "tools/combinations.py" in text
    total, right, refused, wrong, stopped = (
        int(re.search(rf"\| {name} \| (\d+) \|", text)[1])  # type: ignore[index]
        for name in ("combinations", "right", "refused", "wrong", "unconverged")
    )
    assert total == right + refused + wrong + stopped
    assert right >= 1500 and wrong == 0 and stopped == 0
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, re.M))
    assert set(methods()) <= rows
    assert not re.search(r"\*\*", "".join(itertools.takewhile(lambda _: True, re.findall(r"^\| `.*$", text, re.M))))


def test_refusals_say_why():
    given = built(Features("rods", "M(q)"), 0)
    assert "constant mass" in str(refusal(given.features, "LineIntegral", given))
