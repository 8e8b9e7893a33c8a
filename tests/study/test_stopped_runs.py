"""Verdicts other than a certificate's: none of them counts a run that stopped early as a success."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import holonomix as hx
from holonomix.core.types import Report
from holonomix.methods.base import AbstractMethod
from holonomix.study.certificates import comparison
from holonomix.study.certificates.comparison import Comparison, Curve, Level
from holonomix.study.certificates.stability import linear_stability
from holonomix.study.cli.app import app
from holonomix.study.cli.exits import Exit

PENDULUM = hx.models.planar_pendulum(angle=1.0)  # its exact motion is known, whatever the step


def test_a_comparison_has_no_error_of_a_run_that_stopped(monkeypatch):
    monkeypatch.setattr(comparison, "_step_cost", lambda *_: 1e-6)
    methods = {"rattle": hx.RATTLE(), "order 4": hx.Composition(hx.RATTLE(), order=4)}
    found = hx.compare(PENDULUM, methods, dt=40.0, t1=400.0, levels=2)
    for curve in found.curves:
        assert curve.failed and math.isnan(curve.drift) and curve.error_at_equal_work is None
        assert all(math.isnan(level.error) and level.status for level in curve.levels)
    assert not found.cheapest


def test_the_command_says_so_with_its_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "_step_cost", lambda *_: 1e-6)
    words = ["compare", "planar-pendulum", "rattle", "--dt", "40", "--t1", "400", "--levels", "1", "-q", "-o"]
    result = CliRunner().invoke(app, [*words, str(tmp_path)])
    assert result.exit_code == Exit.SIMULATION and "failed" in result.output
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import jax.numpy as jnp, holonomix as hx\n"
        "system = hx.System(lambda q: q[1] + jnp.where(q[0] < 0.5, jnp.nan, 0.0) * q[0], "
        "lambda q: jnp.array([q @ q - 1.0]))\n"
        "q0, p0, dt, t1 = [1.0, 0.0], [0.0, 0.0], 0.05, 5.0\n"
    )
    result = CliRunner().invoke(app, ["certify", str(broken), "rattle"])
    assert result.exit_code == Exit.CONTRADICTED and "stopped after" in " ".join(result.output.split())


class FailsFrom(AbstractMethod):
    """A stable method whose steps fail from some h on."""

    reference = "nobody"
    family = "control"
    h: float = eqx.field(static=True)

    @property
    def traits(self):
        return hx.ImplicitMidpoint().traits

    def init(self, system, state, dt):
        return hx.ImplicitMidpoint().init(system, state, dt)

    def step(self, system, state, dt, carry, key=None):
        new, carry, report = hx.ImplicitMidpoint().step(system, state, dt, carry)
        status = jnp.where(dt < self.h, report.status, hx.Status.NOT_CONVERGED).astype(jnp.int32)
        return new, carry, Report(status, report.iterations, report.residual)


def test_steps_that_fail_are_not_stable():
    scan = linear_stability([hx.ImplicitMidpoint(), FailsFrom(1.0)], [0.1, 0.5, 2.0])
    assert list(scan.stable()) == [True, False]
    assert list(scan.limit()) == [np.inf, 2.0]


def test_a_comparison_under_forces_shows_a_change_of_energy_and_names_the_method_that_cannot_treat_them():
    system = hx.System(
        lambda q, t: q[1] - jnp.cos(t) * q[0], lambda q: jnp.array([q @ q - 1.0]), force=lambda q, v, t: -0.1 * v
    )
    problem = hx.Problem(system, jnp.array([1.0, 0.0]), jnp.zeros(2), dt=0.1, t1=1.0)
    with pytest.raises(hx.MethodError, match=r"LobattoIIIAB\(3\) needs forces that derive from a potential"):
        hx.compare(problem, [hx.LobattoIIIAB(3)])
    found = Comparison("", 0.1, 1.0, "closed form", 0.5, 1e-3, _curves(0.3, 2.0), keeps_energy=False)
    text = str(found)
    assert text.startswith("t = 1, dt = 0.1") and "H change" in text and "H error" not in text and "H drift" not in text
    assert "take a smaller t1" in text
    assert "take a smaller t1" not in str(dataclasses.replace(found, uncertainty=1e-9, keeps_energy=True))


def _curves(*errors):
    level = lambda error: Level(0.1, 10, 1e-3, error, 1.0, 1e-16, "")
    return tuple(Curve(f"method {k}", "as it is", (level(error),)) for k, error in enumerate(errors))
