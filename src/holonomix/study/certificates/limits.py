"""`limit_study`: errors of penalized systems against the rigid one as omega grows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike
from ...mechanics.problem import Problem
from ...mechanics.projection import penalty_multipliers
from ...methods.composition import Composition
from ...methods.rattle import RATTLE
from ...methods.verlet import StormerVerlet
from ...run.simulate import simulate
from .arguments import check_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class LimitStudy:
    """Errors against the rigid system, one entry per omega.

    `constraint` is the largest Euclidean norm of g; it falls as 1/omega^2 for tangent initial momenta and as 1/omega
    otherwise. `position` is the largest error of q. `multipliers` and `raw` are root mean squares of the error of
    lambda, with and without averaging over the window; `raw` does not fall, as there is no pointwise limit.
    """

    omega: np.ndarray
    constraint: np.ndarray
    position: np.ndarray
    multipliers: np.ndarray
    raw: np.ndarray
    window: float

    def rows(self) -> list[tuple[float, ...]]:
        columns = (
            self.omega,
            self.constraint,
            self.omega**2 * self.constraint,
            self.position,
            self.multipliers,
            self.raw,
        )
        return [tuple(float(x) for x in row) for row in zip(*columns, strict=True)]

    def __str__(self) -> str:
        head = f"{'omega':>8} {'max|g|':>10} {'w^2 max|g|':>11} {'position':>10} {'lambda':>9} {'raw':>9}"
        lines = [f"{w:8.4g} {g:10.3g} {s:11.4g} {x:10.3g} {l:9.3g} {r:9.3g}" for w, g, s, x, l, r in self.rows()]
        return "\n".join([head, *lines])

    def plot(self, axes: Axes | None = None) -> Any:
        """A log-log plot of the errors over omega."""
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(6, 4))[1] if axes is None else axes
        for values, label in (
            (self.constraint, "max |g|"),
            (self.position, "model error of q"),
            (self.multipliers, f"multipliers, window {self.window:g}"),
            (self.raw, r"multipliers, $\omega^2 g$ itself"),
        ):
            axes.loglog(self.omega, values, "o-", label=label)
        axes.loglog(self.omega, self.constraint[0] * (self.omega[0] / self.omega) ** 2, "k:", label=r"$\omega^{-2}$")
        axes.set(xlabel=r"stiffness $\omega$", ylabel="error against the rigid system")
        axes.legend(fontsize=8)
        return axes.figure


def limit_study(
    problem: Problem,
    *start: ArrayLike,
    omegas: Sequence[float | int] = (10.0, 20.0, 40.0, 80.0),
    t1: float | int | None = None,
    window: float = 0.2,
    rows: int = 500,
    resolution: float = 40.0,
) -> LimitStudy:
    """Compare the penalized systems `omega^2/2 |g|^2` with the rigid motion of `problem`.

    Both run up to `t1`, by default the problem's. The penalized systems are integrated by Verlet with about
    `resolution` steps per fast period, the rigid one by an eighth-order composition of RATTLE. They are compared at
    `rows` equally spaced times.
    """
    check_problem("limit_study(problem)", problem, *start)
    t1 = problem.t1 if t1 is None else t1
    system, q0, p0 = problem.system, problem.q0, problem.p0
    if not system.has_constraints:
        raise InputError("a limit study needs a constrained system: give the rigid problem")
    if rows < 2 or not t1 > 0 or not 0 <= window < t1:
        raise InputError(f"a limit study needs two rows, t1 > 0 and a window within it, not {rows}, {t1}, {window}")
    spacing = t1 / rows
    # the fastest frequency is omega sqrt(largest eigenvalue of G M^-1 G^T) for a penalty
    jac = system.prepare(q0).linearize(q0)
    gram = np.asarray(system.prepare(q0).gram(q0, jac, jac).todense())
    fastest = float(np.sqrt(np.linalg.eigvalsh(gram)[-1]))
    exact = simulate(system, Composition(RATTLE(), order=8), q0, p0, dt=spacing, steps=rows)
    lam = exact.multipliers
    found: dict[str, list[float]] = {name: [] for name in ("constraint", "position", "multipliers", "raw")}
    for omega in omegas:
        stiff = system.penalized(omega)
        per_row = max(1, int(np.ceil(spacing * omega * fastest * resolution / (2 * np.pi))))
        sol = simulate(stiff, StormerVerlet(), q0, p0, dt=spacing / per_row, steps=rows * per_row, save_every=1)
        coarse = sol.q[::per_row]
        raw_t, raw = penalty_multipliers(sol, 0.0)
        t, mean = penalty_multipliers(sol, window)
        found["constraint"].append(float(np.max(np.linalg.norm(raw, axis=1))) / float(omega) ** 2)
        found["position"].append(float(np.max(np.abs(coarse - exact.q))))
        for name, (time, values) in {"multipliers": (t, mean), "raw": (raw_t, raw)}.items():
            target = np.stack([np.interp(time, exact.t, lam[:, k]) for k in range(lam.shape[1])], axis=1)
            found[name].append(float(np.sqrt(np.mean((values - target) ** 2))))
    return LimitStudy(np.asarray(omegas, float), **{k: np.asarray(x) for k, x in found.items()}, window=window)
