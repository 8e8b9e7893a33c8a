"""Bad calls of the public API, generated from a seed: they raise exceptions of ours, or work, and never hang.

A call starts from arguments that are right and replaces one or two of them by values that mostly are not. A missing or
unknown argument may stay Python's own TypeError, raised by the call itself.
"""

from __future__ import annotations

import inspect
import random
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import holonomix as hx

SEED, LIMIT = 20, 10  # seconds of processor time of this thread for one call; sixty times as many on the clock
Q, P = jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])
POINTS = jnp.array([[0.0, -1.0], [1.0, -1.0]])
STILL = jnp.zeros((2, 2))


def weight(q, *params):
    return q[1]


def rod(q, *params):
    return jnp.array([q @ q - 1.0])


def raises(*args):
    raise RuntimeError("on purpose")


SYSTEM = hx.System(weight, rod)
STIFF = SYSTEM.penalized(50.0)
PROBLEM = hx.models.planar_pendulum()

# Values that are wrong almost everywhere. Those that are right somewhere simply make the call work there.
BAD: list[Callable[[], Any]] = [
    lambda: None,
    lambda: "bogus",
    lambda: b"bytes",
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -1,
    lambda: -0.5,
    lambda: 0,
    lambda: 0.5,
    lambda: 1e300,
    lambda: -(2**70),
    lambda: 2**70,
    lambda: True,
    lambda: 1j,
    list,
    dict,
    lambda: {"a": 1},
    lambda: {1, 2},
    lambda: object(),
    lambda: np.zeros(0),
    lambda: np.zeros((0, 3)),
    lambda: np.array(["a", "b"]),
    lambda: np.array([None, object()]),
    lambda: np.array([1j, 2.0]),
    lambda: np.array([np.nan, 1.0]),
    lambda: np.array([1, 2]),
    lambda: np.zeros((2, 2, 2, 2)),
    lambda: np.array([True, False]),
    lambda: [1.0, "two"],
    lambda: [[1.0], [2.0, 3.0]],
    lambda: raises,
    lambda: lambda *args: None,
    lambda: lambda *args: "nonsense",
    lambda: lambda *args: jnp.nan,
    lambda: lambda *args: jnp.array([1, 2, 3]),
    lambda: lambda *args: jnp.array([0]),
    lambda: lambda *args: jnp.array([jnp.nan]),
    lambda: lambda *args: {"a": 1.0},
    lambda: lambda: 1.0,
    lambda: int,
    lambda: hx.RATTLE,
    lambda: hx.RATTLE(),
    lambda: hx.Newton(),
    lambda: SYSTEM,
    lambda: PROBLEM,
    lambda: jax.random.key(0),
]


class Target(NamedTuple):
    """Something to call: `costly` calls compile a run when their arguments are right, and are tried less often."""

    name: str
    fn: Callable[..., Any]
    right: dict[str, Any]
    costly: bool = False


def run_of(name: str) -> Target:
    right = {"system": SYSTEM, "method": hx.RATTLE(), "q0": Q, "p0": P, "dt": 0.01, "steps": 1}
    fn = getattr(hx, name)
    further: dict[str, dict[str, Any]] = {
        "simulate": {
            "t0": 0.0,
            "t1": None,
            "max_steps": 10,
            "save_every": 1,
            "save_at": None,
            "observe": None,
            "events": (),
            "dense": False,
            "progress": False,
            "store": None,
            "key": None,
            "backend": "array",
            "throw": True,
        },
        "integrate": {"t0": 0.0, "save_every": None, "key": None, "info": False},
        "simulate_ensemble": {
            "q0": Q[None],
            "p0": P[None],
            "in_axes": None,
            "t0": 0.0,
            "reduce": None,
            "observe": None,
            "save_every": None,
            "key": None,
            "backend": "array",
        },
    }
    known = inspect.signature(fn).parameters
    extra = {key: value for key, value in further[name].items() if key in known}
    if "in_axes" in extra:
        extra["in_axes"] = known["in_axes"].default
    return Target(name, fn, right | extra, costly=True)


def run_functions(potential, constraint, mass, force, observe, event):
    """A run of a system made of a user's functions."""
    system = hx.System(potential, constraint, mass=mass, force=force)
    options = {"dt": 0.01, "steps": 1, "observe": observe, "events": event, "backend": "array"}
    return hx.simulate(system, hx.RATTLE(), Q, P, **options)


def project_functions(potential, constraint, mass):
    return hx.project(hx.System(potential, constraint, mass=mass), Q, P)


def integrate_functions(potential, constraint, force):
    return hx.integrate(hx.System(potential, constraint, force=force), hx.RATTLE(), Q, P, dt=0.01, steps=1)


def adaptive_functions(monitor):
    return hx.simulate(SYSTEM, hx.VRATTLE(monitor), Q, P, dt=0.01, steps=1, backend="array")


def ensemble_functions(fn, observe):
    options = {"dt": 0.01, "steps": 1, "reduce": {"a": hx.reductions.Mean(fn)}, "observe": observe, "backend": "array"}
    return hx.simulate_ensemble(SYSTEM, hx.RATTLE(), Q[None], P[None], **options)


def distance_run(pairs, lengths, anchors):
    system = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance(pairs, lengths, anchors))
    return hx.simulate(system, hx.RATTLE(), POINTS, STILL, dt=0.01, steps=1, backend="array")


def user_functions() -> list[Target]:
    functions = {"potential": weight, "constraint": rod, "mass": 1.0, "force": None}
    number = lambda q, p: q[0]
    return [
        Target("run_functions", run_functions, functions | {"observe": number, "event": number}, costly=True),
        Target(
            "project_functions", project_functions, {k: functions[k] for k in ("potential", "constraint", "mass")}, True
        ),
        Target(
            "integrate_functions",
            integrate_functions,
            {k: functions[k] for k in ("potential", "constraint", "force")},
            True,
        ),
        Target("adaptive_functions", adaptive_functions, {"monitor": lambda q, p: 1.0 + q @ q}, costly=True),
        Target("ensemble_functions", ensemble_functions, {"fn": number, "observe": number}, costly=True),
        Target(
            "distance_run", distance_run, {"pairs": [[-1, 0], [0, 1]], "lengths": 1.0, "anchors": None}, costly=True
        ),
    ]


def constructors() -> list[Target]:
    """Every method of the registry, with its declared arguments at their defaults."""
    found = []
    for name in hx.methods.registry():
        fn = getattr(hx, name)
        parameters = inspect.signature(fn).parameters.values()
        right = {x.name: x.default for x in parameters if x.default is not x.empty and x.kind != x.VAR_KEYWORD}
        if right:
            found.append(Target(name, fn, right))
    return found


def models() -> list[Target]:
    found = []
    for name in sorted(hx.models.__all__ if hasattr(hx.models, "__all__") else dir(hx.models)):
        fn = getattr(hx.models, name)
        if name.startswith("_") or not inspect.isfunction(fn):
            continue
        parameters = inspect.signature(fn).parameters.values()
        right = {x.name: x.default for x in parameters if x.default is not x.empty}
        if right and all(x.default is not x.empty or x.kind in (x.VAR_KEYWORD, x.VAR_POSITIONAL) for x in parameters):
            found.append(Target(f"models.{name}", fn, right))
    return found


def targets() -> list[Target]:
    pairs = jnp.array([[0, 1]])
    plain = [
        Target(
            "System", hx.System, {"potential": weight, "constraint": rod, "mass": 1.0, "force": None, "params": None}
        ),
        Target(
            "StiffSystem",
            hx.StiffSystem,
            {"slow": weight, "stiff": lambda q: (q @ q - 1.0) ** 2, "manifold": rod, "mass": 1.0, "epsilon": 0.1},
        ),
        Target("effective", hx.effective, {"stiff": STIFF, "q0": Q, "p0": P}),
        Target("Problem", hx.Problem, {"system": SYSTEM, "q0": Q, "p0": P, "dt": 0.1, "t1": 1.0}),
        Target("penalized", SYSTEM.penalized, {"omega": 10.0}),
        Target("Rheonomic", hx.Rheonomic, {"fn": lambda q, t: jnp.array([q @ q - 1.0])}),
        Target("Distance", hx.Distance, {"pairs": pairs, "lengths": 1.0}),
        Target("Local", hx.Local, {"fn": lambda x: jnp.array([x[0] @ x[1]]), "indices": pairs}),
        Target("LocalPotential", hx.LocalPotential, {"fn": lambda x: x[0] @ x[1], "indices": pairs}),
        Target("Pairs", hx.Pairs, {"fn": lambda a, b: jnp.sum((a - b) ** 2), "groups": [[0], [1]]}),
        Target("Newton", hx.Newton, {"tol": None, "max_iterations": 50, "redundant": None}),
        Target("SymmetricNewton", hx.SymmetricNewton, {"tol": None, "max_iterations": 9, "frozen": False, "slow": 7}),
        Target("SOR", hx.SOR, {"omega": 1.5, "tol": None, "max_iterations": 100}),
        Target("GaussSeidel", hx.GaussSeidel, {"tol": None, "max_iterations": 100, "redundant": None}),
        Target("Event", hx.Event, {"fn": lambda q, p: q[0], "terminal": False, "direction": 0}),
        *(
            Target(kind.__name__, kind, {"fn": lambda q, p: q[0]})
            for kind in (hx.reductions.Mean, hx.reductions.Minimum, hx.reductions.Maximum, hx.reductions.FirstPassage)
        ),
        Target(
            "StepBounds", hx.monitors.StepBounds, {"monitor": hx.monitors.ForceMonitor(), "dt_min": 0.1, "dt_max": 1.0}
        ),
        Target(
            "project", hx.project, {"system": SYSTEM, "q": Q, "p": P, "t": 0.0, "max_iterations": 9, "redundant": None}
        ),
        Target("explain", hx.explain, {"system": SYSTEM, "method": hx.RATTLE(), "q0": Q}, costly=True),
        Target("Tableau", hx.methods.Tableau, {"name": "x", "a": ((), (1.0,)), "b": (0.5, 0.5), "order": 2}),
        Target("certify", hx.certify, {"method": hx.RATTLE(), "problem": PROBLEM, "steps": 20}, costly=True),
        *(run_of(name) for name in ("simulate", "integrate", "simulate_ensemble")),
    ]
    for name in ("ForceMonitor", "MultiplierMonitor", "WallMonitor", "ArcLengthMonitor", "LargestForceMonitor"):
        fn = getattr(hx.monitors, name)
        parameters = inspect.signature(fn).parameters.values()
        plain.append(Target(name, fn, {x.name: 1.0 if x.default is x.empty else x.default for x in parameters}))
    return [x for x in plain + user_functions() + constructors() + models() if x.right]


class Hang(BaseException):
    """A call that took longer than the limit."""


def watch() -> None:
    """Raise `Hang` in a call that takes too long. Other threads do not count: XLA's spin, one on each processor."""
    began = time.thread_time()

    def check(*_):
        left = LIMIT - (time.thread_time() - began)
        if left <= 0:
            raise Hang
        signal.setitimer(signal.ITIMER_PROF, max(left, 0.1))

    def alarm(*_):
        raise Hang

    signal.signal(signal.SIGPROF, check)
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    signal.alarm(60 * LIMIT)


def outcome(target: Target, changed: dict[str, Any]) -> str | None:
    """What is wrong with how a bad call ended, or None."""
    previous = [(kind, signal.getsignal(kind)) for kind in (signal.SIGPROF, signal.SIGALRM)]
    watch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.fn(**(target.right | changed))
    except hx.HolonomixError:
        return None
    except Hang:
        return f"no answer after {LIMIT} s"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, TypeError) and len(frames) == 1:
            return None  # Python's own: the call does not fit the signature
        own = [f for f in frames if "holonomix" in f.filename and "tests" not in f.filename] or frames
        return f"{type(error).__name__}: {str(error)[:120]!r} at {own[-1].filename.rpartition('/')[2]}:{own[-1].lineno}"
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for kind, handler in previous:
            signal.signal(kind, handler)
    return None


def calls(count: int, seed: int = SEED) -> list[tuple[Target, dict[str, Any]]]:
    dice = random.Random(seed)
    cheap, costly = ([x for x in targets() if x.costly is kind] for kind in (False, True))
    found = []
    for _ in range(count):
        target = dice.choice(costly if dice.random() < 0.3 else cheap)
        names = dice.sample(sorted(target.right), min(len(target.right), dice.choice((1, 1, 1, 2))))
        found.append((target, {name: dice.choice(BAD)() for name in names}))
    return found


def failures(count: int, seed: int = SEED) -> list[str]:
    wrong = []
    for target, changed in calls(count, seed):
        reason = outcome(target, changed)
        if reason is not None:
            shown = ", ".join(f"{k}={str(v)[:40]!r}" for k, v in changed.items())
            wrong.append(f"{target.name}({shown}): {reason}")
    return wrong


@pytest.fixture(autouse=True)
def untyped(tmp_path, monkeypatch):
    """As users run it: the type checks of the suite, which would speak first, are off; stores go to a new place."""
    monkeypatch.chdir(tmp_path)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_bad_calls_raise_only_errors_of_ours(count):
    wrong = failures(count)
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong)


def test_the_fuzzer_notices_a_foreign_error_and_a_hang(monkeypatch):
    def forever(x):
        while True:
            pass

    def foreign(x):
        return [][x]

    monkeypatch.setattr("tests.run.test_fuzz_api.LIMIT", 1)
    assert "IndexError" in (outcome(Target("foreign", foreign, {"x": 1}), {}) or "")
    assert "no answer" in (outcome(Target("forever", forever, {"x": 1}), {}) or "")
    assert outcome(Target("signature", foreign, {}), {"y": 1}) is None


if __name__ == "__main__":
    import collections
    import os
    import sys
    import tempfile

    os.chdir(tempfile.mkdtemp())

    jaxtyping.config.update("jaxtyping_disable", True)
    found = failures(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else SEED)
    for line in sorted(found):
        print(line)
    print(len(found), collections.Counter(x.rpartition(" at ")[2] for x in found).most_common(40))
