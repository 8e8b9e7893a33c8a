"""Run one method on one drawn system through every entry point; results come back in natural units."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

from .build import Built, Start
from .methods import INNER

SPAN = 1.0  # natural time of every run


class Refused(Exception):
    """The library refused the combination, and said why."""


class Stopped(Exception):
    """A run ended early, or gave numbers that are not finite."""


class Level(eqx.Module):
    """The function of an event: how far one coordinate is above a level."""

    level: Any
    unit: Any
    index: int = eqx.field(static=True)

    def __call__(self, q: Any, p: Any) -> Any:
        return (q.reshape(-1)[self.index] - self.level) / self.unit


@dataclasses.dataclass(frozen=True)
class Rows:
    """States in natural units, the first axis counts rows; the start is not among them."""

    t: np.ndarray
    x: np.ndarray
    p: np.ndarray


@dataclasses.dataclass(frozen=True)
class Run:
    """What a driver is given: a method on a built system from one start, and the number of steps for the span."""

    built: Built
    method: Any
    start: Start
    steps: int
    span: float = SPAN

    @property
    def dt(self) -> float:
        inner = INNER if isinstance(self.method, hx.ConstrainedHMC) else 1
        return self.span / (self.steps * inner) * self.start.time

    @property
    def key(self) -> Any:
        return jax.random.key(0) if self.method.stochastic else None

    @property
    def every(self) -> int:
        return max(self.steps // 2, 1)

    def at(self, steps: int) -> Run:
        return dataclasses.replace(self, steps=steps)

    def arguments(self) -> dict[str, Any]:
        """What `simulate` and `integrate` take beside system, method and start."""
        given = {"dt": self.dt, "steps": self.steps, "t0": self.start.t0 * self.start.time}
        return given | ({} if self.key is None else {"key": self.key})

    def natural(self, t: Any, q: Any, p: Any) -> Rows:
        s = self.start
        if not (np.all(np.isfinite(q)) and np.all(np.isfinite(p))):
            raise Stopped("not finite")
        t = np.asarray(t) / s.time
        if isinstance(self.method, hx.ConstrainedHMC):
            t = s.t0 + INNER * (t - s.t0)
        return Rows(t, np.asarray(q) / s.length - s.shift, np.asarray(p) * (s.time / (s.mass * s.length)))


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Errors that refuse a combination become `Refused`; a run that fails becomes `Stopped`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (hx.MethodError, hx.ConstraintRankError) as error:
        raise Refused(str(error)) from error
    except hx.InconsistentStateError:
        raise
    except hx.InputError as error:
        if "cannot take this step" in str(error):
            raise Refused(str(error)) from error
        raise


def simulate(run: Run, backend: str = "native", **options: Any) -> Any:
    """`hx.simulate`, which must not fail."""
    with refusals():
        given = run.arguments() | {"save_every": run.every} | options
        if "save_at" in given:
            del given["save_every"], given["steps"]
        args = (run.built.system(run.start), run.method, *run.built.state(run.start))
        sol = hx.simulate(*args, backend=backend, throw=False, **given)
    if sol.status.failed:
        raise Stopped(f"{sol.status.name} after {sol.stats['steps']} of {run.steps} steps")
    return sol


def trajectory(run: Run, backend: str = "native", **options: Any) -> Rows:
    sol = simulate(run, backend, **options)
    keep = slice(None) if "save_at" in options else slice(1, None)
    return run.natural(sol.t[keep], sol.q[keep], sol.p[keep])


def stored(run: Run, backend: str = "auto") -> Rows:
    """A run into a store that is cut off in the middle and resumed."""
    with tempfile.TemporaryDirectory() as folder:
        simulate(run, backend, store=f"{folder}/run", steps=run.every)
        return trajectory(run, backend, store=f"{folder}/run")


def ensemble(runs: list[Run], strengths: list[float]) -> list[Rows]:
    """`simulate_ensemble` with params that differ; the runs share what is not a parameter."""
    first = runs[0]
    given = [r.built.params(r.start, k) for r, k in zip(runs, strengths, strict=True)]
    params = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a, float) for a in x]), *given)
    system = first.built.system(first.start).with_params(params)
    q, p = (np.stack(x) for x in zip(*(r.built.state(r.start) for r in runs), strict=True))
    options = first.arguments() | {"dt": np.array([r.dt for r in runs])}
    with refusals():
        axes = {"params": 0, "q0": 0, "p0": 0, "dt": 0}
        ens = hx.simulate_ensemble(
            system, first.method, q, p, in_axes=axes, save_every=first.every, throw=False, **options
        )
    bad = [hx.Status(int(s)).name for s in np.asarray(ens.status) if s]
    if bad:
        raise Stopped(f"{len(bad)} of {len(runs)} trajectories: {bad[0]}")
    return [r.natural(ens.t[k, 1:], ens.q[k, 1:], ens.p[k, 1:]) for k, r in enumerate(runs)]


# -- integrate under transformations ------------------------------------------------------------------------------


def inputs(run: Run) -> dict[str, Any]:
    """Everything a run depends on, as arrays to trace."""
    q, p = run.built.state(run.start)
    given = {"q": q, "p": p, "dt": run.dt, "t0": run.start.t0 * run.start.time}
    if run.built.features.params:
        given["params"] = run.built.params(run.start)
    if "mass" not in run.built.functions:
        given["mass"] = run.built.mass(run.start)
    if run.built.features.stiff:
        given["omega"] = run.built.omega(run.start)
    return jax.tree.map(lambda x: jnp.asarray(x, float), given)


def integrated(run: Run, given: dict[str, Any], adjoint: str = "checkpoint") -> tuple[Any, ...]:
    """`hx.integrate` of traced inputs: rows of t, q, p and the status."""
    traced = {name: given[name] for name in ("params", "mass", "omega") if name in given}
    system = run.built.system(run.start, **traced)
    options = run.arguments() | {"dt": given["dt"], "t0": given["t0"], "save_every": run.every}
    with refusals():
        q, p, info = hx.integrate(system, run.method, given["q"], given["p"], info=True, adjoint=adjoint, **options)
    return info.t, q, p, info.status


def jitted(runs: list[Run]) -> list[Any]:
    """One compiled function for all starts."""
    go = eqx.filter_jit(lambda given: integrated(runs[0], given))
    return [_unpacked(run, *go(inputs(run))) for run in runs]


def vmapped(runs: list[Run]) -> list[Any]:
    """All starts, units and parameters side by side."""
    given = jax.tree.map(lambda *x: jnp.stack(x), *map(inputs, runs))
    found = jax.jit(jax.vmap(lambda given: integrated(runs[0], given)))(given)
    return [_unpacked(run, *(x[k] for x in found)) for k, run in enumerate(runs)]


def _unpacked(run: Run, t: Any, q: Any, p: Any, status: Any) -> Rows | Stopped:
    """The rows, or why there are none."""
    if int(status):
        return Stopped(f"integrate: {hx.Status(int(status)).name}")
    try:
        return run.natural(t[1:], q[1:], p[1:])
    except Stopped as error:
        return error


def gradients(runs: list[Run], reverse: bool) -> list[Any]:
    """Derivatives of a number made of the last state, by automatic differentiation and by central differences.

    With respect to the strength of the potential and the unit of length; the start follows the unit, and so stays
    consistent. In natural units both are of order one.
    """
    weights = np.cos(np.arange(2 * runs[0].start.x.size)).reshape(2, *runs[0].start.x.shape)

    def value(z: Any, given: dict[str, Any]) -> Any:
        strength, length = z
        params = dict(given["params"], k=strength, L=given["params"]["L"] * length)
        scaled = dict(given, params=params, q=given["q"] * length, p=given["p"] * length)
        adjoint = "checkpoint" if reverse else "forward"
        _, q, p, status = integrated(runs[0], scaled, adjoint)
        x = q[-1] / given["params"]["L"] - length * given["params"]["c"]
        momentum = p[-1] * given["params"]["T"] / (given["params"]["M"] * given["params"]["L"])
        return jnp.sum(weights[0] * x) + jnp.sum(weights[1] * momentum), status

    if reverse:
        both = jax.jit(jax.value_and_grad(value, has_aux=True))
    else:

        def both(z: Any, given: dict[str, Any]) -> Any:
            slope = lambda e: jax.jvp(lambda z: value(z, given), (z,), (e,))
            (values, status), (slopes, _) = jax.vmap(slope)(jnp.eye(2))
            return (values[0], status[0]), slopes

        both = jax.jit(both)
    one, h, found = jnp.ones(2), 2.0**-17, []
    for run in runs:
        given = inputs(run)
        (_, status), slopes = both(one, given)
        if int(status):
            found.append(Stopped(f"integrate: {hx.Status(int(status)).name}"))
            continue
        steps = [(both(one.at[k].add(s * h), given)[0][0]) for k in range(2) for s in (1, -1)]
        differences = np.asarray([(steps[0] - steps[1]) / (2 * h), (steps[2] - steps[3]) / (2 * h)])
        found.append((np.asarray(slopes), differences))
    return found
