"""Tao & Owhadi, Variational and linearly implicit integrators, with applications (IMA J. Numer. Anal. 2015).

Figures 1 to 3 (pendula), 8 (DNA), 9 and 10 (a body on SO(3)), the closed-form example of section 3, symplecticity,
linear and nonlinear stability; figures 4 to 7 (water) where their module is present. The potential of sections 4.1 and
4.2 is taken as `V = +sum y` (the printed sign starts the pendula inverted).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

from .comparison import Comparison, cost, panels, rigid_reference, save, timed
from .tao_owhadi2015_so3 import ITEMS as SO3

__all__ = ["ITEMS"]

BETA, OMEGA = 0.4, 20.0


# -- section 4.1: the double pendulum ------------------------------------------------------------------------------


def figure1(quick: bool, out: Path, console: Any) -> None:
    """Errors of the second pendulum, and the cost of each method."""
    problem, t1, h = hx.models.double_pendulum(), 50.0, 0.1
    stiff = problem.system.penalized(OMEGA)
    exact = rigid_reference(problem, h, t1)
    fine = round(OMEGA)
    rows: dict[str, tuple[Any, Any, int, str, str]] = {
        "RATTLE": (problem.system, hx.RATTLE(), 1, "0.022", "3.8 (SHAKE)"),
        "penalized Verlet, h/20": (stiff, hx.StormerVerlet(), fine, "0.023", "1.0"),
        "Newmark": (stiff, hx.Newmark(BETA), 1, "0.103", "5.3"),
        "pushforward Newmark": (stiff, hx.PushforwardNewmark(BETA), 1, "0.096", ""),
        "one-iteration Newmark": (stiff, hx.LinearlyImplicitNewmark(BETA), 1, "", "0.2-2.6"),
        "Z&S": (stiff, hx.ZhangSkeel(BETA), 1, "0.095", "0.4"),
        "Z&Ss": (stiff, hx.ZhangSkeelSimplified(BETA), 1, "0.148", ""),
    }
    columns = ("method", "max error x2, y2", "formula sheet", "us a step, compiled", "paper's seconds")
    table = Comparison("Figure 1: double pendulum to T = 50, omega 20, beta 0.4, h 0.1", *columns)
    figure, axes = panels(len(rows), 1, figsize=(7, 1.5 * len(rows)), sharex=True)
    for panel, (name, (system, method, parts, sheet, paper)) in zip(axes, rows.items(), strict=True):
        run = lambda s=system, m=method, k=parts: hx.simulate(
            s, m, problem.q0, problem.p0, dt=h / k, steps=round(t1 / h) * k, save_every=k
        )
        sol = run()
        error = sol.q[:, 1] - exact.q[:, 1]
        table.add(name, np.max(np.abs(error)), sheet, cost(system, method, problem, h / parts), paper)
        lines = panel.plot(sol.t, error)
        panel.set_ylabel(name, fontsize=7)
    axes[0].legend(lines, ("$x_2$", "$y_2$"), loc="upper left", ncols=2, fontsize=8)
    angles = hx.models.double_pendulum_angles()
    parts = 100 if quick else 1000
    euler = hx.methods.VariationalIntegrator(hx.methods.variational.EulerLagrangian())
    sol, seconds = timed(
        lambda: hx.simulate(
            angles.system, euler, angles.q0, angles.p0, dt=h / parts, steps=round(t1 / h) * parts, save_every=parts
        ),
        1,
    )
    error = np.max(np.abs(_from_angles(sol.q, problem)[:, 1] - exact.q[:, 1]))
    table.add(f"angles, variational Euler, h/{parts}", error, "", 1e6 * seconds / sol.stats["steps"], "91.3")
    table.show(console)
    axes[-1].set_xlabel("t")
    save(figure, out / "figure1.png", console)


def _from_angles(q: np.ndarray, problem: Any) -> np.ndarray:
    lengths = np.asarray(problem.system.params["lengths"])
    arms = lengths[:, None] * np.stack([np.sin(q), -np.cos(q)], axis=-1)
    return np.cumsum(arms, axis=1)


def _defect(system: Any, method: Any, q: Any, p: Any, h: float) -> float:
    n = q.size

    def step(z: Any) -> Any:
        end = hx.integrate(
            system, method, z[:n].reshape(q.shape), z[n:].reshape(q.shape), dt=h, steps=1, adjoint="forward"
        )
        return jnp.concatenate([x.reshape(-1) for x in end])

    j = np.asarray(jax.jit(jax.jacfwd(step))(jnp.concatenate([q.reshape(-1), p.reshape(-1)])))
    w = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    return float(np.max(np.abs(j.T @ w @ j - w)))


def symplecticity(quick: bool, out: Path, console: Any) -> None:
    """`|J^T W J - W|` of one step, and the momenta of three free bodies."""
    problem = hx.models.penalized_double_pendulum(OMEGA)
    q = problem.q0 + 0.01 * jax.random.normal(jax.random.key(0), problem.q0.shape)
    p = problem.p0 + jax.random.normal(jax.random.key(1), problem.q0.shape)
    table = Comparison("Theorems 1.2 and 2.4: symplectic defect, omega 20, h 0.1")
    for name, method, sheet in (
        ("Z&S", hx.ZhangSkeel(BETA), "3e-14"),
        ("pushforward Newmark", hx.PushforwardNewmark(BETA), "6e-16"),
        ("Z&Ss", hx.ZhangSkeelSimplified(BETA), "2.8"),
        ("one-iteration Newmark", hx.LinearlyImplicitNewmark(BETA), "> 1"),
    ):
        table.add(name, _defect(problem.system, method, q, p, 0.1), sheet)
    table.show(console)

    def bodies(x: Any) -> Any:
        return 50 * sum((jnp.sqrt(jnp.sum((x[i] - x[j]) ** 2)) - 1.0) ** 2 for i, j in ((0, 1), (1, 2), (0, 2)))

    system = hx.System(bodies, mass=jnp.asarray([[1.0], [2.0], [3.0]]))
    q0 = jnp.asarray([[0.0, 0.0], [1.1, 0.0], [0.4, 0.95]])
    p0 = jnp.asarray([[0.2, -0.5], [0.1, 0.9], [-0.6, 0.3]])
    table = Comparison(
        "Three free bodies, 1000 steps of 0.1: drift of the momenta", "method", "angular", "linear", "sheet"
    )
    for name, method, sheet in (
        ("Z&S", hx.ZhangSkeel(BETA), "4e-15"),
        ("Z&Ss", hx.ZhangSkeelSimplified(BETA), "3.5e-3"),
    ):
        sol = hx.simulate(system, method, q0, p0, dt=0.1, steps=1000)
        spin = np.sum(sol.q[..., 0] * sol.p[..., 1] - sol.q[..., 1] * sol.p[..., 0], axis=1)
        table.add(name, np.ptp(spin), np.max(np.ptp(np.sum(sol.p, axis=1), axis=0)), sheet)
    table.show(console)


def figure2(quick: bool, out: Path, console: Any) -> None:
    """The constraint as omega grows, and multipliers from windowed means."""
    problem = hx.models.double_pendulum()
    t1 = 20.0 if quick else 50.0
    omegas = (10, 20, 40, 80) if quick else (10, 20, 40, 80, 160)
    study = hx.limit_study(problem.system, problem.q0, problem.p0, omegas=omegas, t1=t1, rows=round(50 * t1))
    console.print(str(study), highlight=False)
    coarse = []
    for omega in omegas:
        system = problem.system.penalized(omega)
        sol = hx.simulate(system, hx.ZhangSkeel(BETA), problem.q0, problem.p0, dt=0.01, t1=t1, throw=False)
        force = np.max(np.linalg.norm(hx.penalty_multipliers(sol, 0.0)[1], axis=1))
        coarse.append(np.nan if sol.status.failed else float(force))

    sol = hx.simulate(problem.system.penalized(OMEGA), hx.ZhangSkeel(BETA), problem.q0, problem.p0, dt=0.01, t1=t1)
    exact = rigid_reference(problem, 0.01, t1)
    table = Comparison("Figure 2: penalty and multipliers")
    table.add("omega^2 max|g|, resolved, largest omega", study.rows()[-1][2], "2.42")
    figure, (left, right) = panels(1, 2, figsize=(11, 4))
    for window, label, sheet in ((0.0, r"$\omega^2 g$", "0.32"), (0.2, "mean over 0.2", "0.04")):
        t, lam = hx.penalty_multipliers(sol, window)
        target = np.stack([np.interp(t, exact.t, exact.multipliers[:, k]) for k in range(2)], axis=1)
        table.add(f"rms error of lambda, window {window:g}", np.sqrt(np.mean((lam - target) ** 2)), sheet)
        right.plot(t, lam[:, 0], lw=0.6 if window == 0 else 1.5, label=label)
    table.add("rms lambda", np.sqrt(np.mean(exact.multipliers**2)), "0.82")
    table.show(console)
    right.plot(exact.t, exact.multipliers[:, 0], "k--", lw=1, label="RATTLE")
    right.set(xlabel="t", ylabel=r"$\lambda_1$", xlim=(0, 10))
    right.legend(fontsize=8)
    left.semilogx(study.omega, study.omega**2 * study.constraint, "o-", label="Verlet, resolved")
    left.semilogx(study.omega, coarse, "s--", label="Z&S, h = 0.01")
    left.set(xlabel=r"$\omega$", ylabel=r"$\omega^2 \max|g|$", ylim=(0, None))
    left.legend(fontsize=8)
    save(figure, out / "figure2.png", console)


def closed_form(quick: bool, out: Path, console: Any) -> None:
    """Section 3: `V = (q2 - q1)^2/2`, `g = q1`: `omega^2 q1` has no limit, its mean over a window tends to cos t."""
    system = hx.System(lambda q: 0.5 * (q[1] - q[0]) ** 2, lambda q: q[:1])
    figure, axes = panels(1, 2, figsize=(11, 3.5), sharey=True)
    table = Comparison("Section 3: closed form", "omega", "max error of q1", "rms raw - cos t", "rms mean - cos t")
    for panel, omega in zip(axes, (20.0, 200.0), strict=True):
        h = 0.02 / omega
        sol = hx.simulate(
            system.penalized(omega), hx.Composition(hx.StormerVerlet(), 4), [0.0, 1.0], [0.0, 0.0], dt=h, t1=6.0
        )
        root = np.sqrt(4 + omega**4)
        w1, w2 = (np.sqrt((2 + omega**2 + s * root) / 2) for s in (-1, 1))
        exact = (np.cos(w1 * sol.t) - np.cos(w2 * sol.t)) / root
        t, mean = hx.penalty_multipliers(sol, 0.3)
        raw = hx.penalty_multipliers(sol, 0.0)[1]
        rms = lambda x, time: np.sqrt(np.mean((x[:, 0] - np.cos(time)) ** 2))
        table.add(f"{omega:g}", np.max(np.abs(sol.q[:, 0] - exact)), rms(raw, sol.t), rms(mean, t))
        panel.plot(sol.t, raw[:, 0], lw=0.5, label=r"$\omega^2 q_1$")
        panel.plot(t, mean[:, 0], lw=2, label="mean over 0.3")
        panel.plot(sol.t, np.cos(sol.t), "k--", lw=1, label=r"$\cos t$")
        panel.set(title=rf"$\omega = {omega:g}$", xlabel="t")
        panel.legend(fontsize=7)
    table.show(console)
    save(figure, out / "closed_form.png", console)


# -- section 4.2: a chain ------------------------------------------------------------------------------------------


def figure3(quick: bool, out: Path, console: Any) -> None:
    """A chain of ten pendula: RATTLE at two steps and Z&S on the penalty."""
    problem, t1 = hx.models.chain(10), 50.0
    stiff = hx.models.penalized_chain(10, OMEGA)
    exact = rigid_reference(problem, 0.05, t1)
    columns = ("method", "max error", "formula sheet", "us a step, compiled", "paper's seconds")
    table = Comparison("Figure 3: chain of ten to T = 50", *columns)
    figure, (path, errors) = panels(2, 1, figsize=(7, 6), sharex=True)
    for name, system, method, h, sheet, paper in (
        ("RATTLE, h 0.05", problem.system, hx.RATTLE(), 0.05, "3.2e-3", "8.1 (SHAKE)"),
        ("RATTLE, h 0.025", problem.system, hx.RATTLE(), 0.025, "8.1e-4", "16.5 (SHAKE)"),
        ("Z&S, h 0.05", stiff.system, hx.ZhangSkeel(BETA), 0.05, "0.034", "1.1"),
    ):
        every = round(0.05 / h)
        run = lambda s=system, m=method, h=h, k=every: hx.simulate(
            s, m, problem.q0, problem.p0, dt=h, t1=t1, save_every=k
        )
        sol = run()
        error = np.max(np.abs(sol.q - exact.q), axis=(1, 2))
        table.add(name, np.max(error), sheet, cost(system, method, problem, h), paper)
        style = "--" if "Z&S" in name else "-"
        path.plot(sol.t, sol.q[:, 9, 0], style)
        errors.semilogy(sol.t[1:], error[1:], style, label=name)
    table.show(console)
    path.set(ylabel="$x_{10}$")
    errors.set(xlabel="t", ylabel="largest error of a coordinate", ylim=(1e-6, 0.1))
    errors.legend(fontsize=8)
    save(figure, out / "figure3.png", console)


# -- section 4.4: DNA ----------------------------------------------------------------------------------------------


def _mean_angle(q: Any, p: Any) -> Any:
    return jnp.stack([jnp.mean(q), jnp.mean(p)])


def first_opening(sol: Any) -> float:
    """The first time at which the mean angle passes 3 pi/2: the strands have opened and close on the other side."""
    mean = sol.observables["mean"][:, 0]
    over = np.flatnonzero(mean > 1.5 * np.pi)
    return float(sol.t[over[0]]) if over.size else np.nan


def figure8(quick: bool, out: Path, console: Any) -> None:
    """Transitions of the DNA chain, and the time they cost."""
    seeds = 1 if quick else 5
    figure, (left, right) = panels(1, 2, figsize=(11, 4))
    table = Comparison("Figure 8: first opening of a chain of 200 base pairs", "method", "measured", "formula sheet")
    for name, method, h, sheet, panel in (
        ("Verlet, h 0.2", hx.StormerVerlet(), 0.2, "138-156", left),
        ("Z&S, h 2, beta 0.3", hx.ZhangSkeel(0.3), 2.0, "156-172", right),
    ):
        opened = []
        for seed in range(seeds):
            problem = hx.models.dna_chain(seed=seed)
            sol = hx.simulate(
                problem.system,
                method,
                problem.q0,
                problem.p0,
                dt=h,
                t1=400.0,
                observe={"mean": _mean_angle},
                backend="native",
                throw=False,
            )
            opened.append(first_opening(sol))
        mean = sol.observables["mean"]
        panel.plot(mean[:, 0], mean[:, 1], lw=0.5)
        panel.set(title=name, xlabel=r"mean $\theta$", ylabel=r"mean $\theta'$")
        table.add(name, f"{np.nanmin(opened):.0f}-{np.nanmax(opened):.0f}", sheet)
    problem = hx.models.dna_chain()
    if not quick:
        for h, sheet in ((2.0, "4300-7500"), (1.2, "> 50000")):
            sol = hx.simulate(
                problem.system,
                hx.ZhangSkeel(0.3),
                problem.q0,
                problem.p0,
                dt=h,
                t1=50000.0,
                save_every=100,
                backend="native",
                throw=False,
            )
            energy = np.abs(sol.energy_error())
            wild = np.flatnonzero(~(energy < 1e3))
            ended = sol.t[wild[0]] if wild.size else sol.final_t
            table.add(f"Z&S h {h:g} ends at", f"{ended:.0f} ({sol.status.name})", sheet)
    runs = (hx.StormerVerlet(), 0.2), (hx.ZhangSkeel(0.3), 1.2)
    small, large = (cost(problem.system, method, problem, h) / h for method, h in runs)
    table.add("time of Verlet h 0.2 over Z&S h 1.2", small / large, ">= 3 (paper: 7.2 at h 2)")
    table.show(console)
    save(figure, out / "figure8.png", console)


# -- stability -----------------------------------------------------------------------------------------------------


def stability(quick: bool, out: Path, console: Any) -> None:
    """Theorem 2.5, and where the nonlinear methods fail."""
    methods = {f"beta {b:g}": hx.ZhangSkeel(b) for b in (0.0, 0.2, 0.2499, 0.25, 0.4)}
    scan = hx.linear_stability(methods)
    table = Comparison("Linear stability of Z&S: first unstable h omega", "beta", "measured", "2/sqrt(1 - 4 beta)")
    for name, limit, method in zip(scan.names, scan.limit(), methods.values(), strict=True):
        expected = 2 / np.sqrt(1 - 4 * method.beta) if method.beta < 0.25 else np.inf
        table.add(name, limit, expected)
    table.show(console)
    save(scan.plot(), out / "linear_stability.png", console)
    problem = hx.models.double_pendulum()
    kinds = {
        "Z&S": hx.ZhangSkeel(BETA),
        "Z&Ss": hx.ZhangSkeelSimplified(BETA, definite=False),
        "Newmark": hx.Newmark(BETA),
        "implicit midpoint": hx.ImplicitMidpoint(),
    }
    omegas = (20, 30, 36, 100, 2000) if quick else (10, 20, 30, 36, 50, 100, 300, 1000, 2000)
    steps = (0.05, 0.1) if quick else (0.02, 0.04, 0.07, 0.1, 0.15)
    found = hx.stability_map(problem, kinds, omegas=omegas, steps=steps, t1=50.0)
    table = Comparison(
        "Nonlinear stability at h = 0.1, T = 50: how it ended (max|g|)", "method", *(f"omega {w}" for w in omegas)
    )
    for name in kinds:
        cells = [found.of(name, w, 0.1) for w in omegas]
        table.add(name, *(f"{status.name.lower()} ({worst:.1g})" for status, worst in cells))
    table.show(console)
    save(found.plot(), out / "stability_map.png", console)
    _spread(problem, console)


def _spread(problem: Any, console: Any) -> None:
    """Z&Ss at omega 2000, h 0.1, from starts that differ in the tenth digit: bounded, but no number means anything."""
    stiff, count, h = problem.system.penalized(2000.0), 32, 0.1
    q = problem.q0 + 1e-10 * jax.random.normal(jax.random.key(0), (count, *problem.q0.shape))
    p = jnp.broadcast_to(problem.p0, q.shape)
    method = hx.ZhangSkeelSimplified(BETA, definite=False)
    rows = hx.simulate_ensemble(stiff, method, q, p, dt=h, steps=2000, save_every=1).q
    g = np.maximum.accumulate(np.max(np.abs(jax.vmap(jax.vmap(stiff.manifold))(rows)), axis=-1), axis=1)
    table = Comparison(
        "Z&Ss at omega 2000, h 0.1: max|g| over 32 nearly equal starts", "up to", "least", "median", "most"
    )
    for t1 in (50, 200):
        seen = g[:, round(t1 / h)]
        table.add(f"t = {t1}", np.min(seen), np.median(seen), np.max(seen))
    table.show(console)


ITEMS: dict[str, Callable[[bool, Path, Any], None]] = {
    "figure1": figure1,
    "symplecticity": symplecticity,
    "figure2": figure2,
    "closed_form": closed_form,
    "figure3": figure3,
    "figure8": figure8,
    **SO3,
    "stability": stability,
}
if importlib.util.find_spec("holonomix.papers.tao_owhadi2015_water") is not None:
    from .tao_owhadi2015_water import ITEMS as WATER

    ITEMS |= WATER
