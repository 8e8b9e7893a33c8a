"""The GPU kernel, interpreted on the CPU, against the native back end."""

import jax
import numpy as np
import pytest
from evaluate import evaluate_batch
from test_backends_contract import CARRY, CONSTS, LOOP, starts
from test_backends_control import X, branches, newton_root, updates

from holonomix import kernels


def test_a_batch_agrees_with_native():
    program = kernels.lower(LOOP, CARRY, CONSTS)
    carry = starts(37)
    consts = CONSTS | {"dt": np.linspace(0.005, 0.02, 37)}
    axes = {"dt": 0, "mu": None, "radius": None}
    want = kernels.build(program).run_batch(carry, consts, axes, rows=3, every=30)
    got = kernels.build(program, "pallas").run_batch(carry, consts, axes, rows=3, every=30)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fn", [newton_root, branches, updates], ids=lambda f: f.__name__)
def test_control_flow_agrees_with_native(fn):
    got, want = evaluate_batch(fn, [X], backend="pallas"), evaluate_batch(fn, [X])
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-12)
