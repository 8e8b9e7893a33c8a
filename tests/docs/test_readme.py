"""The first example of the README runs with every method of its table "Which method?"."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.variational import TrapezoidalLagrangian

README = (Path(__file__).parents[2] / "README.md").read_text()
TABLE = README.partition("## Which method?")[2].partition("\n## ")[0]
STIFF = ("AdaptiveVerlet", "ZhangSkeel", "Newmark", "ProjectedImpulse", "MollifiedImpulse", "VariationalIntegrator")
METHODS = {
    "RATTLE": hx.RATTLE(),
    "Composition": hx.Composition(hx.RATTLE(), order=8),
    "LobattoIIIAB": hx.LobattoIIIAB(3),
    "LineIntegral": hx.LineIntegral(order=6),
    "HBVM": hx.HBVM(3, 2),
    "VRATTLE": hx.VRATTLE(hx.MultiplierMonitor()),
    "AdaptiveVerlet": hx.AdaptiveVerlet(hx.monitors.ForceMonitor()),
    "ZhangSkeel": hx.ZhangSkeel(0.4),
    "Newmark": hx.Newmark(0.4),
    "ProjectedImpulse": hx.ProjectedImpulse(),
    "MollifiedImpulse": hx.MollifiedImpulse(),
    "GLA": hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0),
    "GeodesicBAOAB": hx.GeodesicBAOAB(),
    "ConstrainedHMC": hx.ConstrainedHMC(),
    "VariationalIntegrator": hx.VariationalIntegrator(TrapezoidalLagrangian()),
}


@pytest.fixture(scope="module")
def problem():
    """The problem of the example: the block up to the line that runs it."""
    code, _, _ = re.search(r"```python\n(.*?)```", README, re.S)[1].partition("sol = ")
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    return names["problem"]


def test_the_table_is_the_one_that_is_tested():
    assert set(re.findall(r"\b([A-Z]\w+)", "".join(re.findall(r"`[^`]*`", TABLE)))) & set(dir(hx)) == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_the_first_example_runs_with(name, problem):
    method = METHODS[name]
    if name in STIFF:  # springs in place of the rods
        problem = dataclasses.replace(problem, system=problem.system.penalized(50.0))
    key = jax.random.key(0) if method.stochastic else None
    sol = hx.simulate(problem, method, steps=20, key=key)
    assert sol.status is hx.Status.OK and np.isfinite(sol.q).all()
    assert float(np.max(sol.constraint_error())) < 1e-14
    if not method.stochastic:
        assert float(np.max(np.abs(sol.energy_error()))) < 1e-7
