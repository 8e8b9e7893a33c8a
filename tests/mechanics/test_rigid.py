"""Rows of rigid bodies are eliminated from the Gram matrix: the same solutions as with the full matrix."""

import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.rigid import RigidGram


@pytest.mark.parametrize("name", ["seven_axis_arm", "strandbeest"])
def test_solves_agree_with_the_full_matrix_on_the_manifold_only(name):
    problem = getattr(hx.models, name)()
    q = problem.q0
    system = problem.system.prepare(q)
    jac = system.linearize(q)
    reduced = system.gram_on_manifold(q, jac)
    assert isinstance(reduced, RigidGram)
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
