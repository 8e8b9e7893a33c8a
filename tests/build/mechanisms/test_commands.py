"""Commands: motors, forces and torques that are named parameters of the system."""

from __future__ import annotations

import numpy as np
import pytest

import holonomix as hx


def arm(motor, push, twist, dimensions: int = 3):
    m = hx.Mechanism(gravity=(0, 0, -9.81)[3 - dimensions :], dimensions=dimensions)
    axis = {"axis": (0, 1, 0)} if dimensions == 3 else {}
    place = lambda x: (x, 0, 0)[:dimensions]
    inertia = [0.01, 0.09, 0.09] if dimensions == 3 else 0.09
    crank = m.body("crank", mass=1.0, inertia=inertia, position=place(0.5))
    rod = m.body("rod", mass=0.5, inertia=inertia, position=place(1.3))
    shoulder = m.revolute("shoulder", m.ground, crank, at=place(0), **axis)
    m.revolute("elbow", crank, rod, at=place(1), **axis)
    m.motor(shoulder, motor)
    m.force(rod, push)
    m.torque(rod, twist)
    return m


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 3])
def test_commands_act_as_constants_do(dimensions):
    values = {"motor": 2.0, "push": np.array([0.0, 0.3, 1.5])[:dimensions], "twist": 0.2}
    if dimensions == 3:
        values["twist"] = np.array([0.0, 0.2, 0.0])
    m = arm("motor", "push", "twist", dimensions)
    problem = m.problem(dt=1e-3)
    assert {name: np.shape(x) for name, x in m.commands().items()} == {name: np.shape(x) for name, x in values.items()}
    system = problem.system.with_params(values)
    found = hx.simulate(system, hx.RATTLE(), problem.q0, problem.p0, dt=1e-3, steps=50)
    fixed = hx.simulate(arm(*values.values(), dimensions).problem(dt=1e-3), hx.RATTLE(), steps=50)
    np.testing.assert_allclose(found.q[-1], fixed.q[-1], rtol=0, atol=1e-14)
    at_rest = hx.simulate(problem, hx.RATTLE(), steps=50)
    assert np.abs(at_rest.q[-1] - found.q[-1]).max() > 1e-4


@pytest.mark.slow
def test_a_drive_beside_a_command():
    m = arm("motor", [0.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    m.drive(m["elbow"], lambda t: 0.1 * t)
    problem = m.problem(dt=1e-3)
    sol = hx.simulate(
        problem.system.with_params({"motor": 1.0}), hx.RATTLE(), problem.q0, problem.p0, dt=1e-3, steps=50
    )
    assert abs(m["elbow"].angle(sol)[-1] - 0.005) < 1e-12


@pytest.mark.slow
def test_a_problem_with_commands_keeps_its_joints():
    m = hx.Mechanism(gravity=(0, 0), dimensions=2)
    rod = m.body("rod", mass=2.0, inertia=0.5)
    m.motor(m.revolute("shaft", m.ground, rod, at=(0, 0)), "torque")
    sol = hx.simulate(m.problem(dt=1e-2).with_params({"torque": 0.3}), hx.RATTLE(), steps=20)
    assert sol.joint("shaft").angle[-1] == pytest.approx(0.5 * 0.6 * 0.2**2, rel=1e-3)


def test_names_of_commands_are_checked():
    m = arm("motor", "push", [0.0, 0.0, 0.0])
    with pytest.raises(hx.InputError, match="must not be empty"):
        m.motor(m["elbow"], "")
    with pytest.raises(hx.InputError, match="'push'"):
        m.motor(m["elbow"], "push")
    m.motor(m["elbow"], "motor")  # both motors receive the same values
    assert list(m.commands()) == ["motor", "push"]


@pytest.mark.slow
def test_observables_of_joints_are_those_of_the_solution():
    m = arm(1.0, [0.0, 0.0, 1.0], [0.0, 0.1, 0.0])
    problem = m.problem(dt=1e-3)
    sol = hx.simulate(problem, hx.RATTLE(), steps=20, observe=m.observables(problem))
    assert set(sol.observables) == {f"{j}.{x}" for j in ("shoulder", "elbow") for x in ("angle", "rate", "force")}
    for name, found in sol.observables.items():
        joint, kind = name.split(".")
        np.testing.assert_allclose(found, getattr(m[joint], kind)(sol), rtol=0, atol=1e-8)
