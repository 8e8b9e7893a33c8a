"""Named constraints: in errors, in columns, and the force of each one."""

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx


def weight(q):
    return 9.81 * jnp.sum(q[:, -1])


def two_bars(**names):
    """A mass held by two bars at 45 degrees to a ceiling."""
    anchors = [[-1.0, 1.0], [1.0, 1.0]]
    return hx.System(weight, hx.Distance([(0, -1), (0, -2)], np.sqrt(2.0), anchors=anchors, **names))


def test_forces_of_a_hanging_truss():
    system = two_bars(name=("left", "right"))
    rows = system.constraint_rows(jnp.zeros((1, 2)))
    assert [str(row) for row in rows] == ["constraint 'left'", "constraint 'right'"]
    forces = system.constraint_forces(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
    np.testing.assert_allclose(forces["left"], [[-9.81 / 2, 9.81 / 2]], rtol=0, atol=1e-13)
    np.testing.assert_allclose(forces["right"], [[9.81 / 2, 9.81 / 2]], rtol=0, atol=1e-13)


def test_forces_along_a_run_add_up_to_the_acceleration():
    problem = hx.models.double_pendulum()
    lower = lambda q: jnp.sum((q[1] - q[0]) ** 2).reshape(1) - 2.0
    system = hx.System(lambda q: jnp.sum(q[..., 1]), {"upper": hx.Distance([(-1, 0)], 1.0), "lower": lower})
    sol = hx.simulate(system, hx.RATTLE(), problem.q0, problem.p0, dt=1e-3, steps=40)
    forces = sol.constraint_forces()
    assert list(forces) == ["upper", "lower"]
    assert forces["upper"].shape == sol.q.shape
    acceleration = (sol.q[2:] - 2 * sol.q[1:-1] + sol.q[:-2]) / 1e-6
    gravity = np.array([0.0, -1.0])
    np.testing.assert_allclose(acceleration, (sum(forces.values()) + gravity)[1:-1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        forces["upper"][:, 1], 0.0, rtol=0, atol=1e-15
    )  # the upper rod does not touch the lower mass
    assert list(sol.to_xarray().constraint.values) == ["constraint 'upper'", "constraint 'lower'"]


def test_rows_without_names_go_by_their_number():
    system = two_bars()
    assert list(system.constraint_forces(jnp.zeros((1, 2)), jnp.zeros((1, 2)))) == ["constraint 0", "constraint 1"]


def test_errors_use_the_names():
    rod = hx.Distance([(0, 1)], 1.0, name="rod")
    system = hx.System(weight, [hx.Local(lambda x: x[0], [[0]], name="pin"), rod])
    q = jnp.asarray([[0.0, 0.0], [0.0, -1.0]])
    with pytest.raises(hx.InconsistentStateError, match="constraint 'rod' is 3 instead of 0"):
        hx.simulate(system, hx.RATTLE(), 2 * q, 0 * q, dt=0.1, steps=1)
    with pytest.raises(hx.InconsistentStateError, match=r"row 0 of G M\^-1 p \(constraint 'pin', row 0\)"):
        hx.simulate(system, hx.RATTLE(), q, jnp.ones((2, 2)), dt=0.1, steps=1)
    twice = hx.System(weight, {"rod": rod, "copy": rod})
    with pytest.raises(hx.ConstraintRankError, match="constraint 'rod'; constraint 'copy' depend on each other"):
        hx.simulate(twice, hx.RATTLE(), q, 0 * q, dt=0.1, steps=1)


@pytest.mark.parametrize("name", [3, "", ("a",), ("a", "b", "c")])
def test_bad_names_are_refused(name):
    with pytest.raises(hx.InputError, match="name"):
        two_bars(name=name)
