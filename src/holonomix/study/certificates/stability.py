"""Linear stability (spectral radius over `h omega`) and nonlinear stability of penalized motion over (omega, dt)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import InputError
from ...core.status import Status
from ...core.types import ArrayLike, Numbers, Real, State
from ...mechanics import System
from ...mechanics.problem import Problem
from ...mechanics.stiff import StiffSystem
from ...methods.base import AbstractMethod
from ...run.simulate import simulate
from ...run.solution import map_rows
from ...trace.compiled import compiled
from .arguments import check_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Spring(eqx.Module):
    stiffness: Any

    def __call__(self, q: Numbers) -> Any:
        return 0.5 * self.stiffness * jnp.sum(q**2)


@compiled
def _radius(method: AbstractMethod, h_omega: Numbers) -> Any:
    """The spectral radius of one step of size `h omega` of the oscillator `q'' = -q`."""
    system = System(Spring(jnp.asarray(1.0))).prepare(jnp.zeros(1))

    def one(h: Real):
        def step(z: Numbers):
            state = State(z[:1], z[1:], jnp.zeros(()), 0)
            new, _, report = method.step(system, state, h, method.init(system, state, h))
            return _flat(new), report.status

        a, status = jax.jacfwd(step, has_aux=True)(jnp.zeros(2))
        half, det = (a[0, 0] + a[1, 1]) / 2, a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
        root = half**2 - det
        real = jnp.abs(half) + jnp.sqrt(jnp.maximum(root, 0.0))
        radius = jnp.where(root > 0, real, jnp.sqrt(jnp.abs(det)))
        return jnp.where(status == Status.OK, radius, jnp.nan)

    return jax.lax.map(one, h_omega)


def _flat(state: State) -> Any:
    return jnp.concatenate([state.q, state.p])


@dataclasses.dataclass(frozen=True)
class LinearStability:
    """`radius[k, j]` is the spectral radius of method k at `h_omega[j]`; at most 1 is stable, NaN is a failed step."""

    names: tuple[str, ...]
    h_omega: np.ndarray
    radius: np.ndarray

    def stable(self, tolerance: float = 1e-9) -> np.ndarray:
        """Whether each method is stable at every `h omega` of the scan."""
        return np.all(self.radius <= 1 + tolerance, axis=1)

    def limit(self, tolerance: float = 1e-9) -> np.ndarray:
        """For each method, the first `h omega` of the scan at which it is unstable; infinity if there is none."""
        bad = ~(self.radius <= 1 + tolerance)  # failed steps count as unstable
        first = np.argmax(bad, axis=1)
        return np.where(bad.any(axis=1), self.h_omega[first], np.inf)

    def plot(self, axes: Axes | None = None) -> Any:
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(6, 4))[1] if axes is None else axes
        for k, (name, radius) in enumerate(zip(self.names, self.radius, strict=True)):
            # all stable methods lie at one: draw later curves narrower, on top
            axes.loglog(self.h_omega, radius, lw=max(1.0, 4.5 - 0.8 * k), label=name)
        axes.axhline(1.0, color="black", lw=0.5, ls=":")
        axes.set(xlabel=r"$h\,\omega$", ylabel="spectral radius")
        axes.legend(fontsize=8)
        return axes.figure


def linear_stability(
    methods: Mapping[str, Any] | Sequence[Any] | Any, h_omega: ArrayLike | None = None
) -> LinearStability:
    """The spectral radius of one or more methods on the harmonic oscillator, over `h omega`."""
    if not isinstance(methods, Mapping):
        listed = list(methods) if isinstance(methods, Sequence) else [methods]
        methods = {_label(method): method for method in listed}
    for name, method in methods.items():
        if method.stochastic or method.adaptive:
            raise InputError(f"linear stability needs a fixed map, but {name} draws random numbers or changes its step")
    h_omega = np.geomspace(0.01, 1000.0, 501) if h_omega is None else np.asarray(h_omega, float)
    radius = [np.asarray(_radius(method, jnp.asarray(h_omega))) for method in methods.values()]
    return LinearStability(tuple(methods), h_omega, np.stack(radius))


def _label(method: AbstractMethod) -> str:
    beta = getattr(method, "beta", None)
    return method.name if beta is None else f"{method.name}(beta={beta:g})"


@dataclasses.dataclass(frozen=True)
class StabilityMap:
    """For each method, omega and dt: how the run ended, and the largest `|g|` up to then.

    `status` holds `Status` values; a run whose energy grew by a factor of 1e6 counts as NONFINITE. `worst` is `max|g|`,
    `ended` the time at which the run stopped.
    """

    names: tuple[str, ...]
    omegas: np.ndarray
    dts: np.ndarray
    status: np.ndarray
    worst: np.ndarray
    ended: np.ndarray

    def of(self, name: str, omega: float | int, dt: float | int) -> tuple[Status, float]:
        k = self.names.index(name)
        i, j = int(np.argmin(np.abs(self.omegas - omega))), int(np.argmin(np.abs(self.dts - dt)))
        return Status(int(self.status[k, i, j])), float(self.worst[k, i, j])

    def plot(self) -> Any:
        """One panel per method: `log10 max|g|` where the run reached its end, red marks where it failed."""
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(
            1, len(self.names), figsize=(3.2 * len(self.names), 3.6), squeeze=False, sharey=True, layout="constrained"
        )
        x, y = np.meshgrid(self.omegas, self.dts, indexing="ij")
        image, marks = None, {}
        for panel, name, status, worst in zip(panels[0], self.names, self.status, self.worst, strict=True):
            good = status == Status.OK
            level = np.log10(np.clip(worst, 1e-6, 1e2))
            image = panel.scatter(x[good], y[good], c=level[good], s=60, marker="s", vmin=-5, vmax=1, cmap="viridis")
            for kind, mark in ((Status.INDEFINITE, "x"), (Status.NOT_CONVERGED, "+"), (Status.NONFINITE, "d")):
                here = status == kind
                if here.any():
                    label = kind.name.lower().replace("_", " ")
                    marks[label] = panel.scatter(x[here], y[here], c="crimson", s=40, marker=mark)
            # below omega h^2 = 0.3 the matrix of Zhang & Skeel was found to stay definite
            marks[r"$\omega h^2 = 0.3$"] = panel.plot(self.omegas, np.sqrt(0.3 / self.omegas), "k:", lw=1)[0]
            panel.set(xscale="log", yscale="log", xlabel=r"$\omega$", title=name)
            panel.set_ylim(0.8 * self.dts.min(), 1.25 * self.dts.max())
            panel.set_yticks(self.dts, [f"{h:g}" for h in self.dts])
            panel.minorticks_off()
        panels[0][0].set_ylabel("h")
        if marks:
            figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=len(marks), fontsize=8)
        if image is not None:
            figure.colorbar(image, ax=panels[0].tolist(), label=r"$\log_{10}\max|g|$")
        return figure


def stability_map(
    problem: Problem,
    methods: Mapping[str, Any],
    *,
    omegas: Sequence[float | int],
    dts: Sequence[float | int],
    t1: float | int = 50.0,
) -> StabilityMap:
    """Run each method on `problem.system.penalized(omega)` for every omega and every step of `dts`."""
    check_problem("stability_map(problem, methods, omegas=..., dts=...)", problem)
    shape = (len(methods), len(omegas), len(dts))
    status, worst, ended = np.zeros(shape, int), np.zeros(shape), np.zeros(shape)
    for k, method in enumerate(methods.values()):
        for i, omega in enumerate(omegas):
            stiff = problem.system.penalized(omega)
            for j, h in enumerate(dts):
                sol = simulate(stiff, method, problem.q0, problem.p0, dt=h, t1=t1, throw=False)
                g = map_rows(_violation, stiff, sol.q, sol.p, sol.t)
                energy = np.abs(sol.energy_error())
                wild = ~np.isfinite(energy) | (energy > 1e6 * (1 + abs(sol.energy()[0])))
                status[k, i, j] = Status.NONFINITE if wild.any() and sol.status == Status.OK else sol.status
                worst[k, i, j] = float(np.nanmax(g)) if np.isfinite(g).any() else np.inf
                ended[k, i, j] = sol.final_t
    return StabilityMap(tuple(methods), np.asarray(omegas, float), np.asarray(dts, float), status, worst, ended)


def _violation(stiff: StiffSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return jnp.max(jnp.abs(stiff.manifold(q)))
