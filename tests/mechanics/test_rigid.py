"""Rows of rigid bodies are eliminated from the Gram matrix: the same solutions as with the full matrix."""

import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.joint_fronts import joint_fronts
from holonomix.mechanics.rigid import RigidGram
from holonomix.trace.indexing import Indices


def tree() -> hx.Problem:
    """A trunk in free motion with three arms of three hinges; gears couple joints that share one and two bodies."""
    m = hx.Mechanism((0.0, 0.0, -9.81))
    box = lambda x, y: m.body(shape=hx.mechanisms.Box(0.2, 0.1, 0.1), mass=1.0, position=(x, y, 0.0))
    trunk = box(0.0, 0.0)
    for k in range(3):
        before, joints = trunk, []
        for n in range(3):
            after = box(n + 1.0, float(k))
            axis = np.eye(3)[(k + n) % 3]
            joints.append(m.revolute(f"arm {k} joint {n}", before, after, at=(n + 0.5, float(k), 0.0), axis=axis))
            before = after
        if k == 0:
            m.gear("teeth", *joints[:2], ratio=2.0)
    return m.problem(dt=1e-3)


@pytest.mark.parametrize("name", ["seven_axis_arm", "strandbeest", "tree"])
def test_solves_agree_with_the_full_matrix_on_the_manifold_only(name):
    problem = tree() if name == "tree" else getattr(hx.models, name)()
    q = problem.q0
    system = problem.system.prepare(q)
    jac = system.linearize(q)
    reduced = system.gram_on_manifold(q, jac)
    assert isinstance(reduced, RigidGram)
    assert reduced.plan.joints is not None
    assert bool(reduced.plan.joints.extra) == (name == "tree")  # a gear meets its hinges at two bodies
    full = np.asarray(system.gram(q, jac, jac).todense())
    b = np.random.default_rng(0).normal(size=full.shape[0])
    x = np.asarray(reduced.factor(symmetric=True).solve(b))
    assert np.abs(full @ x - b).max() < 1e-10 * np.abs(full).max() * np.abs(x).max()
    # control: off the manifold the directors are not orthonormal, and the short form is only close
    off = q + 1e-3 * np.random.default_rng(1).normal(size=q.shape)
    jac = system.linearize(off)
    full = np.asarray(system.gram(off, jac, jac).todense())
    x = np.asarray(system.gram_on_manifold(off, jac).factor(symmetric=True).solve(b))
    assert np.abs(full @ x - b).max() > 1e-8 * np.abs(full).max() * np.abs(x).max()


def test_a_joint_that_touches_a_body_twice_is_left_to_the_general_structure():
    two = Indices(np.array([[0, 0], [1, 2]]))
    assert joint_fronts(((two, 1, 5),)) is None
    assert joint_fronts(((Indices(np.array([[0, 1], [1, 2]])), 1, 5),)) is not None
