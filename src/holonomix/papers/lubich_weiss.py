"""Lubich & Weiss, Numerical integrators for motion under a strong constraining force (Multiscale Model. Simul. 2014).

Figures 1 to 4: errors of the four impulse methods against the step size, for several eps, on the stiff spring double
pendulum; the actions, which tell the methods apart; the resolved motion against the effective system; symplecticity and
reversibility. `alpha = (1, 2)` keeps the frequencies apart (the paper gives no values; (1, 1) meets a 2:1 resonance).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

from .comparison import Comparison, save

__all__ = ["ITEMS", "errors"]

END = 4.0
METHODS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "figure1": ("Impulse", lambda n: hx.Impulse(substeps=n)),
    "figure2": ("Mollified", lambda n: hx.MollifiedImpulse(substeps=n)),
    "figure3": ("Projected", lambda n: hx.ProjectedImpulse(substeps=n)),
    "figure4": ("Mollified (nearest point)", lambda n: hx.MollifiedImpulse(substeps=n, mollifier="nearest")),
}
SHEET = {
    ("Impulse", 0.2): ("5.7e-2", "9.7e-2", "0.45"),
    ("Impulse", 0.1): ("6.7e-2", "0.10", "0.54"),
    ("Mollified", 0.2): ("4.1e-3", "7.4e-3", "4e-7"),
    ("Mollified", 0.1): ("1.1e-3", "1.8e-3", "5e-7"),
    ("Projected", 0.2): ("4.1e-3", "7.4e-3", "4e-7"),
    ("Projected", 0.1): ("1.1e-3", "1.8e-3", "5e-7"),
}


@eqx.filter_jit
def _tangents(system: Any, q: Any, p: Any) -> Any:
    return jax.lax.map(lambda x: system.tangent(*x), (q, p))


@eqx.filter_jit
def _actions(system: Any, q: Any, p: Any) -> Any:
    return jax.lax.map(lambda x: system.actions(*x), (q, p))


def effective_reference(problem: Any, spacing: float, t1: float) -> Any:
    """The effective motion, with RATTLE raised to order eight."""
    system = hx.effective(problem.system, problem.q0, problem.p0)
    q, p = problem.system.project(problem.q0, problem.p0)
    parts = max(1, round(spacing / 0.01))
    method = hx.Composition(hx.RATTLE(), order=8)
    return hx.simulate(system, method, q, p, dt=spacing / parts, steps=round(t1 / spacing) * parts, save_every=parts)


def errors(problem: Any, method: Any, h: float, t1: float = END) -> tuple[float, float, np.ndarray, float]:
    """Largest errors of positions and projected momenta, drift of the actions, largest error of the whole momenta."""
    sol = hx.simulate(problem.system, method, problem.q0, problem.p0, dt=h, t1=t1)
    exact = effective_reference(problem, h, t1)
    q, p = jnp.asarray(sol.q), jnp.asarray(sol.p)
    tangent = np.asarray(_tangents(problem.system, q, p))
    actions = np.asarray(_actions(problem.system, q, p))
    drift = np.max(np.abs(actions - actions[0]), axis=0)
    away = [float(np.max(np.abs(x - y))) for x, y in ((sol.q, exact.q), (tangent, exact.p), (sol.p, exact.p))]
    return away[0], away[1], drift, away[2]


def _figure_of(item: str, quick: bool, out: Path, console: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    name, make = METHODS[item]
    steps = (0.4, 0.2, 0.1) if quick else (0.4, 0.2, 0.1, 0.05, 0.025)
    scales = (1e-2, 1e-4) if quick else (1e-2, 1e-3, 1e-4)
    columns = ("eps, h", "position", "sheet", "projected momentum", "sheet", "drift of I_1", "sheet", "I_2", "momentum")
    table = Comparison(
        f"{item.replace('figure', 'Figure ')}: {name}{'' if name == 'Impulse' else ' impulse'} method, T = 4", *columns
    )
    figure, panels = plt.subplots(1, 3, figsize=(13, 3.8))
    for eps in scales:
        problem = hx.models.stiff_spring_double_pendulum(eps)
        found = []
        for h in steps:
            substeps = round(h / eps * 100)
            x, y, drift, whole = errors(problem, make(substeps), h)
            found.append((x, y, drift[0]))
            sheet = SHEET.get((name, h), ("", "", "")) if eps == 1e-4 else ("", "", "")
            table.add(f"{eps:g}, {h:g}", x, sheet[0], y, sheet[1], drift[0], sheet[2], drift[1], whole)
        for panel, values in zip(panels, np.transpose(found), strict=True):
            panel.loglog(steps, values, "o-", label=f"eps = {eps:g}")
    for panel, label in zip(panels, ("positions", "projected momenta", "drift of $I_1$"), strict=True):
        panel.loglog(steps, 0.1 * np.asarray(steps) ** 2, "k:", label="$h^2$")
        panel.set(xlabel="h", title=f"{name}: {label}")
        panel.set_xticks(steps, [f"{h:g}" for h in steps], minor=False)
        panel.xaxis.set_minor_formatter("")
        panel.legend(fontsize=7)
    table.show(console)
    save(figure, out / f"{item}.png", console)


def effective(quick: bool, out: Path, console: Any) -> None:
    """The resolved motion against the effective system, with and without the correction potential."""
    table = Comparison("Resolved motion to T = 2 against the limit", "eps", "with W", "sheet", "without W", "sheet")
    for eps, sheet in ((1e-2, "1.8e-2"), (1e-3, "1.8e-3"), (1e-4, "1.8e-4")):
        problem = hx.models.stiff_spring_double_pendulum(eps)
        per_row = round(0.1 / (eps / 100))
        sol = hx.simulate(
            problem.system, hx.StormerVerlet(), problem.q0, problem.p0, dt=0.1 / per_row, t1=2.0, save_every=per_row
        )
        right = effective_reference(problem, 0.1, 2.0)
        q, p = problem.system.project(problem.q0, problem.p0)
        rigid = hx.simulate(problem.system.constrained(), hx.RATTLE(), q, p, dt=0.001, t1=2.0, save_every=100)
        table.add(f"{eps:g}", np.max(np.abs(sol.q - right.q)), sheet, np.max(np.abs(sol.q - rigid.q)), "0.26-0.29")
    table.show(console)


def structure(quick: bool, out: Path, console: Any) -> None:
    """Symplectic defect and reversibility of the three methods."""
    eps, h = 1e-2, 0.1
    problem = hx.models.stiff_spring_double_pendulum(eps)
    table = Comparison(
        "Structure, eps 1e-2, h 0.1", "method", "symplectic defect", "sheet", "forward and back", "sheet"
    )
    n = problem.q0.size
    w = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    z0 = jnp.concatenate([problem.q0.reshape(-1), problem.p0.reshape(-1)])
    for name, method, sheet in (
        ("Impulse", hx.Impulse(substeps=1000), "noise"),
        ("Mollified", hx.MollifiedImpulse(substeps=1000), "noise"),
        ("Projected", hx.ProjectedImpulse(substeps=1000), "7e-2"),
    ):

        def step(z: Any, method: Any = method) -> Any:
            q, p = (x.reshape(problem.q0.shape) for x in jnp.split(z, 2))
            end = hx.integrate(problem.system, method, q, p, dt=h, steps=1, adjoint="forward")
            return jnp.concatenate([x.reshape(-1) for x in end])

        j = np.asarray(jax.jacfwd(step)(z0))
        run = lambda q, p, m=method: hx.integrate(problem.system, m, q, p, dt=h, steps=20, adjoint="forward")
        q, p = run(problem.q0, problem.p0)
        back = run(q, -p)[0]
        table.add(name, np.max(np.abs(j.T @ w @ j - w)), sheet, jnp.max(jnp.abs(back - problem.q0)), "1e-13")
    table.show(console)


ITEMS: dict[str, Callable[[bool, Path, Any], None]] = {
    **{name: (lambda quick, out, console, k=name: _figure_of(k, quick, out, console)) for name in METHODS},
    "effective": effective,
    "structure": structure,
}
