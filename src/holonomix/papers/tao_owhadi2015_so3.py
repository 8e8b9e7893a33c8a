"""Tao & Owhadi (2015), section 4.5: figures 9 and 10, a magnetized body on SO(3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import holonomix as hx

from .comparison import Comparison, panels, rigid_reference, save

__all__ = ["ITEMS"]

BETA = 0.4


def figure9(quick: bool, out: Path, console: Any) -> None:
    """Snapshots of the dipole: benchmark and Z&S."""
    problem = hx.models.magnetized_body()
    exact = rigid_reference(problem, 0.01, 5.0)
    stiff = problem.system.penalized(10.0)
    sol = hx.simulate(stiff, hx.ZhangSkeelSO3(BETA), problem.q0, problem.p0, dt=0.1, t1=5.0)
    figure, axes = panels(1, 5, figsize=(14, 3.2), subplot_kw={"projection": "3d"})
    for panel, k in zip(axes, np.linspace(0, 50, 5).astype(int), strict=True):
        for axis, color, style, label in (
            (np.array([0.0, 0.0, 1.0]), "0.7", "-", "field"),
            (exact.q[10 * k, :, 2], "black", "-", "RATTLE, order 8"),
            (sol.q[k, :, 2], "tab:orange", "--", "Z&S, h 0.1"),
        ):
            panel.quiver(0, 0, 0, *axis, color=color, linestyle=style, lw=2, arrow_length_ratio=0.15, label=label)
        panel.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1), xticks=(-1, 0, 1), yticks=(-1, 0, 1), zticks=(-1, 0, 1))
        panel.set_title(f"t = {sol.t[k]:.1f}")
        panel.tick_params(labelsize=6, pad=-2)
        panel.set_box_aspect((1, 1, 1), zoom=1.15)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=9)
    save(figure, out / "figure9.png", console)


def figure10(quick: bool, out: Path, console: Any) -> None:
    """Energy, orthogonality and error of the schemes on SO(3); orders from a generic start."""
    problem, h, t1 = hx.models.magnetized_body(), 0.1, 5.0
    stiff = problem.system.penalized(10.0)
    exact = rigid_reference(problem, 0.01, t1)
    # the printed recursion starts with W_0 = Omega(0), that is with the momentum (1 + h^2 |Omega|^2/4) Omega
    printed = 1 + h**2 * 1.05 / 4
    table = Comparison("Figure 10: largest error of R, h 0.1, omega 10, beta 0.4")
    figure, axes = panels(3, 1, figsize=(7, 8), sharex=True)
    for name, system, method, factor, sheet in (
        ("Z&S, c = 1 (printed)", stiff, hx.ZhangSkeelSO3(BETA, "first", 1.0), 1.0, "0.092"),
        ("Z&S, c = 1/2", stiff, hx.ZhangSkeelSO3(BETA, "first"), 1.0, "0.16"),
        ("Z&S, c = 1/2, trapezoidal", stiff, hx.ZhangSkeelSO3(BETA), 1.0, None),
        ("Cayley, W_0 = Omega(0) (printed)", problem.system, hx.CayleyEulerSO3(), printed, "0.060"),
        ("Cayley, Pi_0 = J Omega(0)", problem.system, hx.CayleyEulerSO3(), 1.0, None),
        ("RATTLE on nine entries", problem.system, hx.RATTLE(), 1.0, None),
    ):
        sol = hx.simulate(system, method, problem.q0, problem.p0 * factor, dt=h, t1=t1)
        error = np.sqrt(np.sum((sol.q - exact.q[::10]) ** 2, axis=(1, 2)))
        table.add(name, np.max(error), sheet)
        gram = np.swapaxes(sol.q, 1, 2) @ sol.q - np.eye(3)
        axes[0].plot(sol.t, sol.energy_error(), label=name)
        axes[1].semilogy(sol.t, np.sqrt(np.sum(gram**2, axis=(1, 2))) + 1e-17)
        axes[2].plot(sol.t, error)
    for omega in (20.0, 80.0):
        sol = hx.simulate(
            problem.system.penalized(omega), hx.StormerVerlet(), problem.q0, problem.p0, dt=0.05 / omega, t1=t1
        )
        gram = np.swapaxes(sol.q, 1, 2) @ sol.q - np.eye(3)
        table.add(f"omega^2 max|R^T R - I|, omega {omega:g}", omega**2 * np.max(np.abs(gram)), "2.0")
    table.show(console)
    for panel, label in zip(axes, ("energy error", "$|R^T R - I|$", "error of $R$"), strict=True):
        panel.set_ylabel(label)
    axes[0].legend(fontsize=7)
    axes[2].set_xlabel("t")
    save(figure, out / "figure10.png", console)
    _orders(console)


def _orders(console: Any) -> None:
    c, s = np.cos(0.7), np.sin(0.7)
    turned = jnp.asarray([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
    problem = hx.models.magnetized_body(rotation=turned)
    stiff = problem.system.penalized(2.0)
    table = Comparison("Orders from a generic start", "method", "order", "formula sheet")
    steps = (0.01, 0.005, 0.0025)
    for name, system, method, sheet in (
        ("Cayley", problem.system, hx.CayleyEulerSO3(), "0.98-1.04"),
        ("Z&S, first order", stiff, hx.ZhangSkeelSO3(BETA, "first"), "0.98-1.04"),
        ("Z&S, trapezoidal", stiff, hx.ZhangSkeelSO3(BETA), "1.94-1.98"),
    ):
        best = hx.RATTLE() if system is problem.system else hx.StormerVerlet()
        exact = hx.simulate(system, hx.Composition(best, 8), problem.q0, problem.p0, dt=0.01, t1=1.0).final_q
        errors = [
            np.max(np.abs(hx.simulate(system, method, problem.q0, problem.p0, dt=h, t1=1.0).final_q - exact))
            for h in steps
        ]
        table.add(name, np.polyfit(np.log(steps), np.log(errors), 1)[0], sheet)
    table.show(console)


ITEMS: dict[str, Callable[[bool, Path, Any], None]] = {"figure9": figure9, "figure10": figure10}
