"""Functional mock-up units: fmpy reads them, runs them, and finds the library's bits at every communication point."""

from __future__ import annotations

import contextlib
import shutil
import sys
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

fmpy = pytest.importorskip("fmpy")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


def driven(torque: float = 0.0) -> hx.Problem:
    """A double pendulum with a torque between its rods, as a force on its two particles."""

    def force(q, v, t, params):
        d = q[1] - q[0]
        f = params["torque"] * jnp.stack([-d[1], d[0]]) / (d @ d)
        g = params["torque"] * jnp.stack([-q[0, 1], q[0, 0]]) / (q[0] @ q[0])
        return jnp.stack([-f - g, f])

    params = {"gravity": 9.81, "torque": torque}
    potential = lambda q, params: params["gravity"] * (q[0, 1] + q[1, 1])
    rods = lambda q, params: jnp.stack([q[0] @ q[0] - 1.0, (q[1] - q[0]) @ (q[1] - q[0]) - 1.0])
    system = hx.System(potential, rods, force=force, params=params)
    return hx.Problem(system, np.array([[0.0, -1.0], [1.0, -1.0]]), np.zeros((2, 2)), 0.01, 1.0, name="arm")


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    return hx.export(driven(), hx.RATTLE(), tmp_path_factory.mktemp("fmu") / "arm.fmu", "fmu", inputs=["torque"])


@contextlib.contextmanager
def unit(path: Path, start: float = 0.0, **values):
    """A unit of FMI 3.0 after its initialization, and the value references by name."""
    from fmpy.fmi3 import FMU3Slave

    about = fmpy.read_model_description(str(path))
    place = fmpy.extract(str(path))
    made = FMU3Slave(
        guid=about.instantiationToken,
        unzipDirectory=place,
        modelIdentifier=about.coSimulation.modelIdentifier,
        instanceName="one",
    )
    at = {v.name: v.valueReference for v in about.modelVariables}
    said: list[str] = []
    made.instantiate(logMessage=lambda environment, status, category, message: said.append(message.decode()))
    try:
        for name, value in values.items():
            made.setFloat64([at[name]], np.ravel(value).tolist())
        made.enterInitializationMode(startTime=start)
        made.exitInitializationMode()
        yield made, at, said
        made.terminate()
    finally:
        made.freeInstance()
        shutil.rmtree(place)


@pytest.mark.parametrize("version", [2, 3])
def test_a_unit_is_valid_and_has_the_bits_of_the_library(tmp_path, version):
    from fmpy.validation import validate_fmu

    problem = hx.models.double_pendulum()
    path = tmp_path / "new" / "dp.fmu"
    units = {"q": "m", "energy": "J", "dt": "s", "gravity": "m/s2", "p": "someone's own"}
    observe = {"energy": problem.system.hamiltonian}
    assert hx.export(problem, hx.RATTLE(), path, "fmu", version=version, observe=observe, units=units) == path
    assert validate_fmu(str(path)) == []
    about = fmpy.read_model_description(str(path))
    assert about.fmiVersion == f"{version}.0" and about.defaultExperiment.stepSize == f"{problem.dt}"
    found = fmpy.simulate_fmu(str(path), stop_time=2.0, output_interval=0.1)
    sol = hx.simulate(problem, hx.RATTLE(), t1=2.0, save_every=2, observe=observe)
    shown = lambda name: np.stack([found[f"{name}[{i},{j}]"] for i in (1, 2) for j in (1, 2)], -1).reshape(-1, 2, 2)
    for name in ("q", "p"):
        np.testing.assert_array_equal(shown(name) if version == 2 else found[name], getattr(sol, name))
    np.testing.assert_array_equal(found["energy"], sol.observables["energy"])


@pytest.mark.parametrize("version", [2, 3])
def test_a_torque_is_an_input(tmp_path, version):
    problem, method = driven(), hx.RATTLE()
    path = hx.export(problem, method, tmp_path / "arm.fmu", "fmu", version=version, inputs={"motor": "torque"})
    times, torques = (0.0, 0.5, 1.0), (3.0, -2.0, 0.5)  # another one in every communication step
    signal = np.array([*zip(times, torques)], dtype=[("time", float), ("motor", float)])
    places = ["q"] if version == 3 else [f"q[{i},{j}]" for i in (1, 2) for j in (1, 2)]
    found = fmpy.simulate_fmu(str(path), stop_time=1.0, output_interval=0.1, input=signal, output=["motor", *places])
    q, p = problem.q0, problem.p0
    for k in range(11):
        np.testing.assert_array_equal(np.ravel([found[name][k] for name in places]), np.ravel(q))
        if k == 10:
            break
        now = driven(found["motor"][k + 1])  # recorded after the step in which it acts
        sol = hx.simulate(now.system, method, q, p, dt=0.01, steps=10)
        q, p = sol.q[-1], sol.p[-1]
    assert np.ptp(found["motor"]) > 4.9
    still = hx.simulate(problem, method, steps=100)
    assert np.abs(still.q[-1] - q).max() > 0.1  # the torque acts


@pytest.mark.slow
def test_a_motor_of_a_mechanism_is_an_input(tmp_path):
    m = hx.Mechanism(gravity=(0, -9.81), dimensions=2)
    crank = m.body("crank", mass=1.0, inertia=0.09, position=(0.5, 0))
    m.motor(m.revolute("shoulder", m.ground, crank, at=(0, 0)), "torque")
    problem = m.problem(dt=1e-3)
    more = {"observe": m.observables(problem), "units": {"torque": "N.m", "shoulder.angle": "rad"}}
    path = hx.export(problem, hx.RATTLE(), tmp_path / "m.fmu", "fmu", inputs=["torque"], **more)
    with unit(path, torque=2.0) as (made, at, _):
        made.doStep(0.0, 0.1)
        q = made.getFloat64([at["q"]], nValues=problem.q0.size)
        shown = {
            name: made.getFloat64([at[f"shoulder.{name}"]], nValues=n)
            for name, n in (("angle", 1), ("rate", 1), ("force", 2))
        }
    system = problem.system.with_params({"torque": 2.0})
    sol = hx.simulate(system, hx.RATTLE(), problem.q0, problem.p0, dt=1e-3, steps=100)
    np.testing.assert_array_equal(q, np.ravel(sol.q[-1]))
    assert np.abs(sol.q[-1] - hx.simulate(problem, hx.RATTLE(), steps=100).q[-1]).max() > 1e-4
    for name, value in shown.items():  # the force is that with the torque
        np.testing.assert_allclose(value, np.ravel(getattr(m["shoulder"], name)(sol)[-1]), rtol=0, atol=1e-9)


def test_an_input_that_stays_changes_no_bit(arm):
    assert zipfile.ZipFile(arm).namelist()[1:] == ["binaries/x86_64-linux/arm.so"] or sys.platform != "linux"
    with unit(arm, torque=1.5) as (made, at, _):
        for k in range(10):
            made.setFloat64([at["torque"]], [1.5])
            made.doStep(0.1 * k, 0.1)
        q = made.getFloat64([at["q"]], nValues=4)
    np.testing.assert_array_equal(q, np.ravel(hx.simulate(driven(1.5), hx.RATTLE(), steps=100).q[-1]))


def test_states_are_kept_written_and_set(arm):
    with unit(arm, torque=1.0) as (made, at, said):
        made.doStep(0.0, 0.3)
        kept = made.getFMUState()
        text = made.serializeFMUState(kept)
        ends = []
        for state in (kept, made.deserializeFMUState(text)):
            made.setFMUState(state)
            made.doStep(0.3, 0.2)
            ends.append(made.getFloat64([at["q"]], nValues=4))
            made.freeFMUState(state)
        assert ends[0] == ends[1] and ends[0] != made.getFloat64([at["p"]], nValues=4)
        with pytest.raises(Exception, match="Deserialize"):
            made.deserializeFMUState(text[:-1])
        assert "bytes" in said[-1]
    with unit(arm, torque=1.0) as (other, at, _):  # in another instance
        other.setFMUState(other.deserializeFMUState(text))
        other.doStep(0.3, 0.2)
        assert other.getFloat64([at["q"]], nValues=4) == ends[0]


def test_parameters_start_and_time_are_those_that_were_set(arm):
    with unit(arm, start=2.0, gravity=2.0, q=[0.1, -1.0, 1.0, -1.3], dt=0.02) as (made, at, said):
        q = made.getFloat64([at["q"]], nValues=4)
        made.doStep(2.0, 0.2)
        end, t = made.getFloat64([at["q"]], nValues=4), made.getFloat64([at["time"]])
        with pytest.raises(Exception, match="SetFloat64"):
            made.setFloat64([at["gravity"]], [1.0])
        assert "gravity can be set only before the first step" in said[-1]
    system = driven().system.with_params({"gravity": 2.0, "torque": 0.0})
    start = hx.project(system, [[0.1, -1.0], [1.0, -1.3]], np.zeros((2, 2)))
    np.testing.assert_allclose(q, np.ravel(start[0]), rtol=0, atol=1e-14)
    sol = hx.simulate(system, hx.RATTLE(), *start, dt=0.02, t0=2.0, steps=10)
    np.testing.assert_allclose(end, np.ravel(sol.q[-1]), rtol=0, atol=1e-12)
    assert t == [sol.t[-1]]


def test_a_symplectic_method_refuses_other_communication_steps(arm):
    with unit(arm) as (made, at, said):
        made.doStep(0.0, 0.02)
        before = made.getFloat64([at["q"]], nValues=4)
        with pytest.raises(Exception, match="DoStep"):
            made.doStep(0.02, 0.015)
        assert "step 0.015 is" in said[-1] and "dt = 0.01," in said[-1] and "to 0.0075" in said[-1]
        assert made.getFloat64([at["q"]], nValues=4) == before
        with pytest.raises(Exception, match="DoStep"):
            made.doStep(0.05, 0.01)
        assert "begins at t = 0.05" in said[-1]
        with pytest.raises(Exception, match="DoStep"):
            made.doStep(0.02, 1e30)  # more steps than an integer counts
        assert "more than 1e+15 steps" in said[-1]
        made.doStep(0.02, 0.01)  # the unit goes on


def test_other_one_step_methods_shorten_the_last_step(tmp_path):
    problem = hx.models.henon_heiles()
    path = hx.export(problem, hx.RK4(), tmp_path / "hh.fmu", "fmu", name="hh", dt=0.1)
    with unit(path) as (made, at, _):
        made.doStep(0.0, 0.25)
        made.doStep(0.25, 0.1)
        q, t = made.getFloat64([at["q"]], nValues=2), made.getFloat64([at["time"]])
    place, now = (problem.q0, problem.p0), 0.0
    for dt, steps in ((0.1, 2), (0.25 - 0.2, 1), (0.1, 1)):
        sol = hx.simulate(problem.system, hx.RK4(), *place, dt=dt, t0=now, steps=steps)
        place, now = (sol.q[-1], sol.p[-1]), sol.t[-1]
    np.testing.assert_array_equal(q, place[0])
    assert t == [0.35]


def test_a_step_that_fails_says_why(arm):
    with unit(arm, dt=5.0) as (made, at, said):
        with pytest.raises(Exception, match="DoStep"):
            made.doStep(0.0, 50.0)
        assert "did not converge" in said[-1]
        assert np.all(np.isfinite(made.getFloat64([at["q"]], nValues=4)))


def test_units_for_any_machine_of_a_kind(tmp_path):
    path = hx.export(driven(), hx.RATTLE(), tmp_path / "arm.fmu", "fmu", version=2, target="x86_64-linux-gnu")
    assert zipfile.ZipFile(path).namelist() == ["modelDescription.xml", "binaries/linux64/arm.so"]


def test_titles_and_names_are_valid_xml(tmp_path):
    system = hx.System(lambda q, params: params['"<&\\'] * q @ q, params={'"<&\\': 1.0})
    problem = hx.Problem(system, np.ones(2), np.zeros(2), 0.01, 1.0, name="bell\a & <b>")
    path = hx.export(problem, hx.RATTLE(), tmp_path / "odd.fmu", "fmu", name="odd")
    from fmpy.validation import validate_fmu

    assert validate_fmu(str(path)) == []
    with unit(path, **{'"<&\\': 3.0}) as (made, at, _):
        assert made.getFloat64([at['"<&\\']]) == [3.0]
    system = hx.System(lambda q, params: params["\a"] * q @ q, params={"\a": 1.0})
    with pytest.raises(hx.InputError, match=r"variable '\\x07' has a character that FMI does not allow"):
        hx.export(hx.Problem(system, np.ones(2), np.zeros(2), 0.01, 1.0), hx.RATTLE(), path, "fmu")


def test_refusals_say_why(untyped, tmp_path, monkeypatch):
    export = lambda **more: hx.export(driven(), hx.RATTLE(), tmp_path / "arm.fmu", "fmu", **more)
    with pytest.raises(hx.InputError, match="no parameter 'force'.*gravity, torque"):
        export(inputs=["force"])
    with pytest.raises(hx.InputError, match="changes the constraint"):
        hx.export(hx.models.double_pendulum(), hx.RATTLE(), tmp_path / "x.fmu", "fmu", inputs=["lengths"])
    with pytest.raises(hx.InputError, match="dt must be positive"):
        export(dt=-0.01)
    with pytest.raises(hx.InputError, match="version must be 2 or 3"):
        export(version=1)
    with pytest.raises(hx.InputError, match="two inputs are for the parameter 'torque'"):
        export(inputs={"a": "torque", "b": "torque"})
    with pytest.raises(hx.InputError, match="units must be a dict"):
        export(units="m")
    with pytest.raises(hx.InputError, match="no variable 'length'"):
        export(units={"length": "m"})
    with pytest.raises(hx.InputError, match="fixed dt"):
        hx.export(hx.models.double_pendulum(), hx.VRATTLE(), tmp_path / "x.fmu", "fmu")
    with pytest.raises(hx.InputError, match="one-step method"):
        free = hx.System(lambda q, params: params["k"] * q @ q, params={"k": 1.0})
        problem = hx.Problem(free, np.ones(2), np.zeros(2), 0.01, 1.0)
        hx.export(problem, hx.AdamsBashforth(2), tmp_path / "x.fmu", "fmu", inputs=["k"])
    with pytest.raises(hx.InputError, match="inputs=.*form='fmu'"):
        hx.export(driven(), hx.RATTLE(), tmp_path, "c", inputs=["torque"])
    with pytest.raises(hx.InputError, match="ends in .fmu, not .*thesis.tex"):
        hx.export(driven(), hx.RATTLE(), tmp_path / "thesis.tex", "fmu")
    with pytest.raises(hx.InputError, match="cannot write"):
        (tmp_path / "file").touch()
        hx.export(driven(), hx.RATTLE(), tmp_path / "file" / "arm.fmu", "fmu")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", " ")
    with pytest.raises(hx.InputError, match="needs a C compiler"):
        export()
