"""Runs a plain function through a back end: its arguments are the carry, its result is the row."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from interpreter import Interpreter

from holonomix import compiler as kernels


class Functions(NamedTuple):
    """A loop that is only its functions."""

    step: Callable[[Any, Any], Any]
    read: Callable[[Any, Any], Any]
    halted: Callable[[Any, Any], Any]


def program_of(fn, *args, limit=None):
    loop = Functions(lambda c, k: c, lambda c, k: fn(*c), lambda c, k: False)
    extra = {} if limit is None else {"limit": limit}
    return kernels.lower(loop, tuple(args), (), **extra)


def build(program, backend="native", **options):
    """A runner; beside the back ends there is the interpreter, "oracle"."""
    return Interpreter(program) if backend == "oracle" else kernels.build(program, backend, **options)


def evaluate(fn, *args, backend="native"):
    """One evaluation as a single trajectory; its row without the leading axis."""
    runner = build(program_of(fn, *args), backend)
    _, rows = runner.run_one(tuple(args), (), rows=1, every=0)
    return jax.tree.map(lambda a: np.asarray(a)[0], rows)


def evaluate_batch(fn, batch, backend="native", lanes=None, threads=1):
    """`batch` holds arrays with a leading axis; one trajectory for each."""
    options = {"lanes": lanes, "threads": threads} if backend == "native" else {}
    runner = build(program_of(fn, *(a[0] for a in batch)), backend, **options)
    _, rows = runner.run(tuple(batch), (), None, rows=1, every=0)
    return jax.tree.map(lambda a: np.asarray(a)[:, 0], rows)


def in_child(code: str, **environment: str) -> None:
    """Run code that might end the process in one of its own; it must print "done" at its end, and nothing else."""
    places = os.pathsep.join(str(Path(p).resolve()) for p in sys.path)
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": places, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.stdout == "done\n" and found.returncode == 0, found.stdout + found.stderr[-2000:]


def bits(tree):
    """The bytes of all arrays; one NaN is like another, their sign and payload mean nothing."""

    def one(a):
        a = np.array(a)
        if a.dtype.kind == "f":
            a[np.isnan(a)] = np.nan
        return a.tobytes()

    return [one(a) for a in jax.tree.leaves(tree)]
