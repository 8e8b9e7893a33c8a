"""The GPU's text of every step that `tools/fingerprints.py` runs is compiled to PTX, without a GPU."""

import ctypes
import sys
from pathlib import Path

import jax
import pytest

from holonomix.compiler import cuda
from holonomix.core.errors import InputError
from holonomix.run import backends
from holonomix.run.loop import shape_loop

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from fingerprints import METHODS, make_method, problems

PROBLEMS = {}
# For the fast suite: a table, a loop over axes, random numbers, a force that depends on time, no constraint.
FAST = {
    ("water", "Composition4"),
    ("heavy_top", "LineIntegral"),
    ("double_pendulum", "GLA"),
    ("moving", "RATTLE"),
    ("henon_heiles", "Gauss"),
}
REFUSED = {("rod", "RATTLE"): "a thread of a GPU has 262144"}
CASES = [
    pytest.param(s, m, id=f"{s}-{m}", marks=() if (s, m) in FAST else pytest.mark.slow)
    for s, methods in METHODS.items()
    for m in methods
]


class PtxOnly:
    """In the place of a GPU's driver: it keeps the texts and runs nothing. Numbers are those of an H200."""

    capability, spills, shared = 90, True, 227 * 1024

    def __init__(self):
        self.texts = []

    def function(self, text, shared):
        self.texts.append(text)
        return ctypes.c_void_p()


def compile_for_gpu(problem, method, monkeypatch) -> list[bytes]:
    """The texts of an ensemble: with constants that are the same for all trajectories, and with their own."""
    driver, runner_type = PtxOnly(), cuda.CudaRunner
    monkeypatch.setattr(cuda, "driver", lambda ordinal: driver)
    monkeypatch.setattr(cuda, "CudaRunner", lambda program: runner_type(program, jax.devices("cpu")[:1]))
    loop = shape_loop(problem, method)
    carry = jax.eval_shape(loop.stepper.start, loop.consts, loop.q0[0], loop.p0[0])
    monkeypatch.setattr(backends, "_CACHE", type(backends._CACHE)(1))
    runner = backends.choose("cuda", loop.stepper, carry, loop.consts, alone=False).runner
    runner._functions(False)
    return driver.texts


@pytest.mark.parametrize("system, method", CASES)
def test_every_step_compiles_to_ptx(system, method, monkeypatch):
    if not PROBLEMS:
        PROBLEMS.update(problems())
    if (system, method) in REFUSED:
        with pytest.raises(InputError, match=REFUSED[system, method]):
            compile_for_gpu(PROBLEMS[system], make_method(method), monkeypatch)
        return
    texts = compile_for_gpu(PROBLEMS[system], make_method(method), monkeypatch)
    assert texts and all(b".visible .entry" in text for text in texts)
