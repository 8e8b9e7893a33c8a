"""The certificate: its figures for RATTLE, and the broken methods that it must not pass."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.core.types import Report, State
from holonomix.mechanics.projection import Newton
from holonomix.methods.base import AbstractMethod, Traits, solver_report
from holonomix.study.certificates.measure import symplectic_defect
from holonomix.study.certificates.orders import _slope
from holonomix.study.certificates.runs import follow

PROBLEM = hx.models.double_pendulum()


@pytest.fixture(scope="module")
def rattle():
    return hx.certify(PROBLEM, hx.RATTLE())


def test_rattle_on_the_double_pendulum(rattle):
    assert rattle.passed
    assert rattle["order of q"].measured == pytest.approx(2.0, abs=0.05)
    assert rattle["order of p"].measured == pytest.approx(2.0, abs=0.05)
    assert rattle["symplectic"].measured < 1e-12
    assert rattle["symmetric"].measured < 1e-11
    assert rattle["constraint"].measured < 1e-13 and rattle["hidden constraint"].measured < 1e-13
    assert rattle["energy drift"].measured < 1e-6
    assert 2 <= rattle["iterations"].measured <= 4


def test_composition_of_order_eight():
    certificate = hx.certify(PROBLEM, hx.Composition(hx.RATTLE(), order=8), measure=("order", "symplectic"))
    for variable in ("q", "p"):
        assert certificate[f"order of {variable}"].measured == pytest.approx(8.0, abs=0.2)
    assert certificate["symplectic"].measured < 1e-12


def test_a_certificate_is_a_table_and_plain_data(rattle):
    text = str(rattle)
    assert "RATTLE on double pendulum" in text and "all declared properties confirmed" in text and "FAILED" not in text
    data = json.loads(json.dumps(rattle.to_dict()))
    assert data["passed"] is True and len(data["findings"]) == len(rattle.findings)
    assert len(rattle.step_sizes) >= 3 and set(rattle.errors) == {"q", "p"}
    assert "symplectic" in rattle and "temperature" not in rattle
    with pytest.raises(KeyError, match="temperature"):
        rattle["temperature"]


class AbstractControl(AbstractMethod):
    """A method that claims to be RATTLE."""

    reference = "nobody"
    family = "control"

    @property
    def traits(self):
        return hx.RATTLE().traits


class WithoutMomentumProjection(AbstractControl):
    """RATTLE with its last line left out."""

    def init(self, system: Any, state: State, dt: Any) -> Any:
        return ()

    def step(self, system: Any, state: State, dt: Any, carry: Any, key: Any = None) -> Any:
        q, t, t1 = state.q, state.t, state.t + dt
        kicked = state.p - dt / 2 * system.gradient(q)
        solve = Newton().positions(system, q, q + dt * system.velocity(q, kicked), t, t1)
        half = kicked - system.linearize(q, t).transpose(solve.multipliers / dt)
        p = half - dt / 2 * system.gradient(solve.q)
        return State(solve.q, p, t1, state.n), (), solver_report(solve)


def test_rattle_without_its_momentum_projection_is_found_out():
    certificate = hx.certify(PROBLEM, WithoutMomentumProjection(), steps=400)
    assert not certificate.passed
    broken = {f.name for f in certificate.findings if f.kept is False}
    assert {"symplectic", "symmetric", "hidden constraint", "order of p"} <= broken
    assert certificate["constraint"].kept is True
    assert "FAILED" in str(certificate)


class Claims(AbstractMethod):
    """Another method's step under claims of its own."""

    reference = "nobody"
    family = "control"

    method: AbstractMethod
    claim: Traits = eqx.field(static=True)

    @property
    def traits(self):
        return dict.fromkeys(self.method.traits, self.claim)

    def init(self, system: Any, state: State, dt: Any) -> Any:
        return self.method.init(system, state, dt)

    def step(self, system: Any, state: State, dt: Any, carry: Any, key: Any = None) -> Any:
        return self.method.step(system, state, dt, carry, key)


def test_every_false_claim_about_rk4_is_found_out():
    everything = Traits(5, symmetric=True, symplectic=True, energy_exact=True, constraint_exact=True, hidden_exact=True)
    certificate = hx.certify(PROBLEM, Claims(hx.RK4(), everything), steps=2000)
    assert not any(f.kept for f in certificate.findings)
    assert {f.name for f in certificate.findings if f.kept is False} == {
        "order of q",
        "order of p",
        "symplectic",
        "symmetric",
        "constraint",
        "hidden constraint",
        "energy",
        "energy drift",
    }


def test_properties_without_meaning_are_not_applicable():
    """Under friction no method is symplectic, reversible or keeps the energy; nothing is held against RATTLE."""
    system = hx.System(lambda q: q[1], lambda q: jnp.array([q @ q - 1.0]), force=lambda q, v, t: -0.1 * v)
    problem = hx.Problem(system, jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6]), dt=0.05, t1=5.0)
    found = hx.certify(problem, hx.RATTLE(), measure=("symplectic", "symmetric", "energy", "constraint"), steps=50)
    applicable = {f.name: f.applicable for f in found.findings}
    assert applicable == {
        "symplectic": False,
        "symmetric": False,
        "energy": False,
        "energy balance": True,
        "constraint": True,
        "hidden constraint": True,
    }
    assert found.passed and str(found).count("not applicable") == 3


def test_certify_is_a_function_whatever_was_imported():
    code = (
        "import holonomix.study.certificates, holonomix as hx, types; assert isinstance(hx.certify, types.FunctionType)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_understated_order_is_a_contradiction_too():
    certificate = hx.certify(hx.models.henon_heiles(), Claims(hx.RK4(), Traits(3)), measure="order")
    assert not certificate.passed


def test_in_the_ambient_space_a_correct_rattle_shows_a_defect():
    # the measurement lives on the cotangent bundle: without its tangent basis RATTLE would look broken
    system = PROBLEM.system.prepare(PROBLEM.q0)
    here = follow(system, hx.RATTLE(), PROBLEM.q0, PROBLEM.p0, 0.0, 0.05, 13).state
    on_bundle = symplectic_defect(system, hx.RATTLE(), here.q, here.p, 0.0, 0.05)

    # the same system with its constraints hidden from the measurement, but not from the method
    blind = eqx.tree_at(lambda s: s.constraint_terms, system, ())

    class Seeing(AbstractControl):
        inner: Any

        def init(self, system, state, dt):
            return hx.RATTLE().init(self.inner, state, dt)

        def step(self, system, *args):
            return hx.RATTLE().step(self.inner, *args)

        def read(self, system, state, carry):
            return state

    ambient = symplectic_defect(blind, Seeing(system), here.q, here.p, 0.0, 0.05)
    assert on_bundle < 1e-13 and ambient > 0.1


def test_projected_rk4_drifts_where_rattle_does_not():
    """Projecting onto the manifold after every step keeps the constraint and nothing else."""

    class ProjectedRK4(AbstractMethod):
        reference = "nobody"
        family = "control"

        @property
        def traits(self):
            return {"constrained": Traits(4, constraint_exact=True, hidden_exact=True)}

        def init(self, system, state, dt):
            return hx.RK4().init(system, state, dt)

        def step(self, system, state, dt, carry, key=None):
            new, carry, report = hx.RK4().step(system, state, dt, carry)
            q, p = hx.project(system, new.q, new.p)
            return State(q, p, new.t, new.n), hx.RK4().init(system, new, dt), report

    kept = hx.certify(PROBLEM, hx.RATTLE(), measure="energy", steps=1500, dt=0.1)["energy drift"]
    drifting = hx.certify(PROBLEM, ProjectedRK4(), measure=("energy", "constraint"), steps=1500, dt=0.1)
    assert drifting["constraint"].kept and drifting["hidden constraint"].kept
    assert "GROWS" in drifting["energy drift"].note and "GROWS" not in kept.note


def nan_after(time, dt=0.02, t1=2.0):
    """A pendulum released from the horizontal whose potential is NaN from some time on."""
    potential = lambda q, t: 9.81 * q[1] + jnp.where(t > time, jnp.nan, 0.0) * q[0]
    system = hx.System(potential, lambda q: jnp.array([q @ q - 1.0]))
    return hx.Problem(system, np.array([1.0, 0.0]), np.zeros(2), dt=dt, t1=t1)


@pytest.mark.parametrize("method", [hx.RATTLE(), hx.HBVM(2, 2)], ids=lambda m: m.name)
@pytest.mark.parametrize("time", [1e-6, 0.5])
def test_what_is_measured_in_a_run_that_stops_has_failed(method, time):
    found = hx.certify(nan_after(time), method, measure=("constraint", "iterations"), steps=50)
    assert not found.passed and found["constraint"].declared and found["constraint"].measured < 1e-14
    for finding in found.findings:
        assert finding.kept is False and finding.stopped
        assert f"stopped after {0 if time < 0.02 else 25} steps" in finding.note and "no longer finite" in finding.note
    assert "a run stopped early" in str(found) and "confirmed" not in str(found)


def test_a_certificate_runs_the_whole_problem():
    """Also where its own runs are shorter, or begin elsewhere."""
    order = hx.certify(nan_after(3.0, t1=4.0), hx.RATTLE(), measure="order")
    assert order["order of q"].kept is True and order["run"].kept is False and not order.passed
    assert hx.certify(nan_after(5.0, t1=4.0), hx.RATTLE(), measure="order").passed
    long = hx.certify(nan_after(9.0, dt=0.002, t1=10.0), hx.RATTLE(), measure="constraint")
    assert "stopped after 4500 steps" in long["constraint"].note and not long.passed


def test_steps_that_fail_are_not_symplectic():
    """The state before a failed step is kept: a map that does nothing is symplectic and reversible."""
    problem = hx.models.planar_pendulum(angle=1.0)
    found = hx.certify(problem, hx.RATTLE(), dt=40.0, steps=10, measure=("order", "symplectic", "symmetric"))
    for finding in found.findings:
        assert finding.kept is False, finding
        assert "stopped after 0 steps" in finding.note or "the step failed" in finding.note


class Stopping(AbstractControl):
    """A method none of whose steps succeeds."""

    def init(self, system: Any, state: State, dt: Any) -> Any:
        return ()

    def step(self, system: Any, state: State, dt: Any, carry: Any, key: Any = None) -> Any:
        return state, carry, Report(jnp.asarray(hx.Status.SINGULAR, jnp.int32), jnp.asarray(0), jnp.asarray(0.0))


def test_a_reference_that_stops():
    """The problem stops as well: a finding like others. Otherwise it is an error that asks for another reference."""
    found = hx.certify(nan_after(0.05), hx.RATTLE(), measure=("order", "symplectic"))
    assert not found.passed and all(f.kept is False for f in found.findings)
    assert "the reference" in found["order of q"].note
    with pytest.raises(hx.SimulationError, match="give a smaller dt or another `reference`"):
        hx.certify(PROBLEM, hx.RATTLE(), measure="order", reference=Stopping())


def test_an_energy_that_is_nan_is_not_confirmed():
    potential = lambda q: q[1] + jnp.where(q[0] < 0.5, jnp.nan, 0.0)  # its gradient stays finite
    system = hx.System(potential, lambda q: jnp.array([q @ q - 1.0]))
    problem = hx.Problem(system, np.array([1.0, 0.0]), np.zeros(2), dt=0.05, t1=5.0)
    found = hx.certify(problem, hx.RATTLE(), measure=("energy",), steps=100)
    assert found["energy drift"].kept is False and "kept here" not in found["energy"].note


def test_an_order_that_cannot_be_measured_is_not_called_confirmed():
    down = np.array([[0.0, -1.0], [0.0, -1.0 - np.sqrt(2.0)]])
    hanging = hx.Problem(PROBLEM.system, down, np.zeros((2, 2)), dt=0.05, t1=1.0)
    found = hx.certify(hanging, hx.RATTLE(), measure="order")
    assert found.passed and found["order of q"].kept is None
    assert "not measured: order of q, order of p" in str(found) and "all declared" not in str(found)
    with pytest.raises(hx.InputError, match="nothing to measure"):
        hx.certify(hanging, hx.RATTLE(), measure=())


def swinging(amplitude):
    system = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q @ q - 1.0]))
    sine, cosine = np.sin(amplitude), np.cos(amplitude)
    return hx.Problem(system, np.array([sine, -cosine]), 3 * amplitude * np.array([cosine, sine]), dt=0.05, t1=5.0)


@pytest.mark.parametrize("method", [hx.RATTLE(), hx.LineIntegral(order=4)], ids=lambda m: m.name)
def test_a_system_that_hangs_at_rest_is_not_held_against_a_method(method):
    """Its momentum is round-off, and no scale for errors: neither a failure nor a confirmation."""
    found = hx.certify(swinging(0.0), method, measure="symmetric", steps=10)
    assert found.passed and found["symmetric"].kept is None and np.isnan(found["symmetric"].measured)
    assert found.verdict == "no declared property failed; not measured: symmetric"
    assert "nothing moves" in found["symmetric"].note


@pytest.mark.slow
def test_two_links_at_rest_are_not_held_against_a_method():
    down = np.array([[0.0, -1.0], [0.0, -2.0]])
    system = hx.System(lambda q: 9.81 * jnp.sum(q[:, 1]), hx.Distance([[-1, 0], [0, 1]], [1.0, 1.0]))
    found = hx.certify(hx.Problem(system, down, np.zeros((2, 2)), dt=0.01, t1=1.0), hx.RATTLE())
    # what does not move shows no error of the constraint either
    assert found.unmeasured == ("order of q", "order of p", "symmetric", "constraint", "hidden constraint")
    assert found.passed and found["energy drift"].kept is None


@pytest.mark.parametrize("speed", [0.0, 1e-3])
def test_a_run_at_rest_confirms_nothing(speed):
    down, along = np.array([0.0, -1.0]), np.array([speed, 0.0])
    hanging = hx.Problem(swinging(0.0).system, down, along, dt=0.05, t1=1.0)
    found = hx.certify(hanging, hx.RATTLE(), measure=("constraint", "energy"), steps=50)
    names = ("constraint", "hidden constraint")
    assert found.unmeasured == (() if speed else names)
    assert all(found[name].kept is (True if speed else None) for name in names)


@pytest.mark.parametrize("amplitude", [1e-8, 1e-4, 0.5])
def test_small_swings_tell_methods_apart(amplitude):
    found = hx.certify(swinging(amplitude), hx.RATTLE(), measure="symmetric", steps=10)
    assert found.passed and (found["symmetric"].kept or amplitude < 1e-5)
    claims = Claims(hx.RK4(), dataclasses.replace(hx.RK4().traits_on(PROBLEM.system), symmetric=True))
    assert hx.certify(swinging(amplitude), claims, measure="symmetric", steps=10)["symmetric"].kept is False


@pytest.mark.slow
def test_a_spring_at_rest_has_no_order():
    """Its forces cancel, so that the errors of p are those of round-off."""
    system = hx.System(lambda q: 50 * (jnp.sqrt(q @ q) - 1) ** 2 + 9.81 * q[1])
    hanging = hx.Problem(system, np.array([0.0, -1.0981]), np.zeros(2), dt=0.01, t1=1.0)
    found = hx.certify(hanging, hx.StormerVerlet(), measure="order", steps=10)
    assert found.passed and found.unmeasured == ("order of q", "order of p")


@pytest.mark.parametrize(
    ("options", "number"),
    [({"dt": 0.0}, "0.0"), ({"dt": -1.0}, "-1.0"), ({"steps": 3}, "3"), ({"measure": ("order", "color")}, "color")],
)
def test_bad_options_are_named(options, number):
    with pytest.raises(hx.InputError, match=number):
        hx.certify(PROBLEM, hx.RATTLE(), **options)


def test_certify_refuses_what_the_method_cannot_treat():
    with pytest.raises(hx.MethodError, match="SHAKE"):
        hx.certify(hx.models.kepler(), hx.SHAKE())
    off = dataclasses.replace(PROBLEM, q0=1.01 * PROBLEM.q0)
    with pytest.raises(hx.InconsistentStateError, match=r"0\.0402"):
        hx.certify(off, hx.RATTLE())


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: hx.certify(hx.HBVM(2, 2), PROBLEM),
            r"first argument is a method; write certify\(problem, HBVM\(...\)\)",
        ),
        (lambda: hx.certify(hx.RATTLE, PROBLEM), r"write certify\(problem, RATTLE\(...\)\)"),
        (lambda: hx.compare(hx.RATTLE(), PROBLEM), r"write compare\(problem, \[RATTLE\(...\)\]\)"),
        (lambda: hx.compare([hx.RATTLE()], PROBLEM), "first argument must be a Problem"),
        (
            lambda: hx.certify(PROBLEM.system, hx.RATTLE()),
            r"write certify\(hx.Problem\(system, q0, p0, dt, t1\), method\)",
        ),
        (lambda: hx.limit_study(PROBLEM.system, PROBLEM.q0, PROBLEM.p0), r"write limit_study\(hx.Problem\(system, q0"),
        (lambda: hx.limit_study(PROBLEM, PROBLEM.q0, PROBLEM.p0), "takes the start from the problem"),
        (
            lambda: hx.certificates.stability_map({}, PROBLEM, omegas=(), dts=()),
            "first argument must be a Problem, not {}",
        ),
    ],
)
def test_the_problem_comes_first(call, words):
    with pytest.raises(hx.InputError, match=words):
        call()


def test_a_certificate_can_be_drawn(rattle, tmp_path):
    hx.plotting.plot_certificate(rattle).savefig(tmp_path / "certificate.png")
    assert (tmp_path / "certificate.png").stat().st_size > 5000
    assert np.isfinite(rattle.errors["q"]).all() and jnp.all(jnp.asarray(rattle.step_sizes) > 0)


@pytest.mark.parametrize(("order", "power"), [(10, 2), (9, 1)])
def test_orders_are_extrapolated_where_the_next_term_of_the_error_shows(order, power):
    """The steps of a method of order ten between errors of 1e-9 and round-off: a straight line has the slope 10.2."""
    steps = np.array([54, 64, 76, 90, 106])
    dt = 30 / steps
    errors = 2.5e-7 * dt**order * np.exp(1.3 * dt**power)
    points = list(zip(np.log(dt), np.log(errors), 4e-15 / errors, strict=True))
    assert abs(_slope(points, None) - order) > 0.2
    assert abs(_slope(points, power) - order) < 1e-6


def test_a_certificate_of_nothing_confirms_nothing():
    noisy = hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0)
    found = hx.certify(hx.models.planar_pendulum(), noisy, measure=["order"], key=jax.random.key(0))
    assert not found.passed and found.verdict == "nothing was measured"


def test_the_energy_balance_of_a_damped_pendulum_is_an_error_of_the_order_of_the_method():
    system = hx.System(lambda q: q[1], lambda q: jnp.array([q @ q - 1.0]), force=lambda q, v, t: -0.1 * v)
    problem = hx.Problem(system, jnp.array([1.0, 0.0]), jnp.array([0.0, 0.3]), 0.05, 10.0)
    found = [
        {f.name: f for f in hx.certify(problem, hx.RATTLE(), dt=dt, measure=["energy"], steps=int(8 / dt)).findings}
        for dt in (0.04, 0.02)
    ]
    values = [x["energy balance"].measured for x in found]
    assert not found[0]["energy"].applicable and found[0]["energy balance"].kept is None
    assert 3.5 < values[0] / values[1] < 4.5 and values[1] < 1e-3


def test_moving_constraints_are_not_reversed():
    """The momentum of a bead on a turning hoop, reversed, points off the hoop: no broken symmetry of the method."""
    plane = hx.Rheonomic(lambda q, t: jnp.array([jnp.cos(2 * t) * q[1] - jnp.sin(2 * t) * q[0]]))
    hoop = hx.System(lambda q: 0 * q[0], {"ring": lambda q: jnp.array([q @ q - 1.0]), "plane": plane})
    problem = hx.Problem(hoop, np.array([0.8, 0.0, 0.6]), np.array([0.0, 1.6, 0.0]), dt=0.05, t1=5.0)
    found = hx.certify(problem, hx.RATTLE(), measure=("symplectic", "symmetric"))
    assert found.passed and found["symplectic"].kept and not found["symmetric"].applicable
    assert found["symmetric"].note == "moving constraints do not reverse with the momentum"


def test_a_prescribed_motion_has_no_symplectic_form():
    circle = hx.Rheonomic(lambda q, t: q - jnp.array([jnp.cos(t), jnp.sin(t)]))
    problem = hx.Problem(hx.System(lambda q: q[1], circle), np.array([1.0, 0.0]), np.array([0.0, 1.0]), dt=0.05, t1=5.0)
    found = hx.certify(problem, hx.RATTLE(), measure=("symplectic", "symmetric", "constraint"))
    assert found.passed and found["constraint"].kept and not found["symplectic"].applicable
    assert found["symplectic"].note == "the constraints leave no degree of freedom"


def test_a_run_shorter_than_the_swings_has_no_verdict_on_the_drift():
    rods = hx.System(lambda q: 9.81 * jnp.sum(q[:, 1]), hx.Distance([(-1, 0), (0, 1)], [0.9, 0.6]))
    problem = hx.Problem(rods, jnp.array([[0.9, 0.0], [1.5, 0.0]]), jnp.zeros((2, 2)), dt=1e-4, t1=0.2)
    short = hx.certify(problem, hx.RATTLE(), measure=["energy"])
    assert short.passed and short["energy drift"].kept is None and "too short a run" in short["energy drift"].note
    longer = hx.certify(problem, hx.RATTLE(), measure=["energy"], steps=50_000)
    assert longer["energy drift"].kept is True
