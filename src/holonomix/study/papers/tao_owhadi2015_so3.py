"""Tao & Owhadi (2015), section 4.5: figures 9 and 10, a magnetized body on SO(3)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import holonomix as hx

from .items import Findings, item, legend, order_of, rigid_reference, snapshots

BETA = 0.4
START = "R(0) = I, Omega(0) = (1, 0.2, 0.1), omega 10, beta 0.4, h 0.1, t to 5"
FORCE = (
    "section 4.5: the penalty enters the action with a minus sign, and f_k is a_k - 2 omega^2 beta^2 h^4 (a R^T a + "
    "a a^T R + R a^T a)"
)


@item("figure9", "snapshots of a magnetized body", "section 4.5, Figure 9", START, seconds=(3, 3))
def figure9(found: Findings, quick: bool) -> None:
    """Z&S with h = 0.1 shows the motion of the dipole that the benchmark shows."""
    problem = hx.models.magnetized_body()
    exact = rigid_reference(problem, 0.01, 5.0)
    stiff = problem.system.penalized(10.0)
    sol = hx.simulate(stiff, hx.ZhangSkeelSO3(BETA, "first", 1.0), problem.q0, problem.p0, dt=0.1, t1=5.0)
    rows, ends = np.linspace(0, 50, 6).astype(int), (-1, 0, 1)
    axes = snapshots(found, "figure9", [float(sol.t[k]) for k in rows], x=ends, y=ends, z=ends)
    for panel, k in zip(axes, rows):
        for axis, color, style, label in (
            (np.array([0.0, 0.0, 1.0]), "0.7", "-", "field"),
            (exact.q[10 * k, :, 2], "black", "-", "dipole, reference"),
            (sol.q[k, :, 2], "#D55E00", "--", "dipole, Z&S with $h = 0.1$"),
        ):
            panel.quiver(0, 0, 0, *axis, color=color, linestyle=style, lw=1.5, arrow_length_ratio=0.15, label=label)
    legend(axes[0])
    table = found.table("Angle between the two dipoles", "t", "degrees")
    angles = []
    for k in range(51):
        a, b = exact.q[10 * k, :, 2], sol.q[k, :, 2]
        angles.append(float(np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))))
        if k % 10 == 0:
            table.add(f"{sol.t[k]:.0f}", angles[-1])
    found.compare(
        "dipoles of benchmark and Z&S",
        "look alike",
        f"within {max(angles):.1f} degrees",
        max(angles) < 10,
        correction=FORCE,
    )


@item("figure10", "energy, group structure and error on SO(3)", "section 4.5, Figure 10", START, seconds=(1.9, 2))
def figure10(found: Findings, quick: bool) -> None:
    """Both methods preserve the energy and follow the benchmark; variational Euler keeps R^T R = I to round-off, Z&S
    only approximately; the trapezoidal form is of second order.
    """
    problem, h, t1 = hx.models.magnetized_body(), 0.1, 5.0
    stiff = problem.system.penalized(10.0)
    exact = rigid_reference(problem, 0.01, t1)
    # the printed recursion starts with W_0 = Omega(0), that is with the momentum (1 + h^2 |Omega|^2/4) Omega
    printed = 1 + h**2 * 1.05 / 4
    columns = ("method", "largest error of R", "largest |R^T R - I|", "range of the energy")
    table = found.table("h 0.1, omega 10, beta 0.4, t to 5 (Frobenius norms)", *columns)
    axes = found.panels("figure10", 3, 2, (7.0, 5.0), sharex=True)
    seen = {}
    for name, system, method, factor, column in (
        ("Z&S, c = 1 (printed)", stiff, hx.ZhangSkeelSO3(BETA, "first", 1.0), 1.0, 0),
        ("variational Euler, W_0 = Omega(0) (printed)", problem.system, hx.CayleyEulerSO3(), printed, 1),
        ("Z&S, c = 1/2", stiff, hx.ZhangSkeelSO3(BETA, "first"), 1.0, None),
        ("Z&S, c = 1/2, trapezoidal", stiff, hx.ZhangSkeelSO3(BETA), 1.0, None),
        ("variational Euler, Pi_0 = J Omega(0)", problem.system, hx.CayleyEulerSO3(), 1.0, None),
        ("RATTLE on nine entries", problem.system, hx.RATTLE(), 1.0, None),
    ):
        sol = hx.simulate(system, method, problem.q0, problem.p0 * factor, dt=h, t1=t1)
        error = np.sqrt(np.sum((sol.q - exact.q[::10]) ** 2, axis=(1, 2)))
        gram = np.sqrt(np.sum((np.swapaxes(sol.q, 1, 2) @ sol.q - np.eye(3)) ** 2, axis=(1, 2)))
        energy = sol.energy()
        seen[name] = float(error.max()), float(gram.max()), float(np.ptp(energy))
        table.add(name, *seen[name])
        if column is not None:
            for row, values in enumerate((energy, gram, error)):
                axes[row, column].plot(sol.t, values)
            axes[0, column].set_title(("(a) Z&S, $c = 1$", r"(b) variational Euler, $W_0 = \Omega(0)$")[column])
    for row, label in enumerate(("energy $H$", r"$\|R^T R - I\|_F$", r"$\|R - R'\|_F$")):
        axes[row, 0].set_ylabel(label)
    for panel in axes[-1]:
        panel.set_xlabel("$t$")
    (e1, g1, _), (e2, g2, _) = list(seen.values())[:2]
    found.compare("structure: variational Euler", "R^T R = I up to round-off", f"to {g2:.0e}", g2 < 1e-12)
    found.compare("structure: Z&S", "only approximately", f"to {g1:.3f}", 1e-6 < g1 < 0.2, correction=FORCE)
    found.compare(
        "deviation from the benchmark",
        "moderate with both",
        f"{e1:.3f} (Z&S), {e2:.3f} (variational Euler)",
        max(e1, e2) < 0.2,
    )
    for name, system, method in (
        ("Z&S", stiff, hx.ZhangSkeelSO3(BETA, "first", 1.0)),
        ("variational Euler", problem.system, hx.CayleyEulerSO3()),
    ):
        long = hx.simulate(system, method, problem.q0, problem.p0, dt=h, t1=100.0)
        energy = long.energy()
        quarters = [float(np.mean(x)) for x in np.array_split(energy, 4)]
        drift, size = max(quarters) - min(quarters), float(np.ptp(energy))
        found.compare(
            f"energy of {name}",
            "preserved: oscillates without drift",
            f"up to t = 100 it oscillates by {size:.2f}; means of the four quarters differ by {drift:.3f}",
            drift < 0.1 * size,
            why="the energy drifts by more than a tenth of its oscillation",
        )
    _orders(found)


def _orders(found: Findings) -> None:
    """Orders for a generic initial state; R(0) = I has no torque, which hides first-order errors."""
    c, s = np.cos(0.7), np.sin(0.7)
    rotated = jnp.asarray([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
    problem = hx.models.magnetized_body(rotation=rotated)
    stiff = problem.system.penalized(2.0)
    table = found.table("Orders from a generic start", "method", "order", "in the paper")
    steps = (0.01, 0.005, 0.0025)
    reference: dict[int, Any] = {}
    for name, system, method, order in (
        ("variational Euler", problem.system, hx.CayleyEulerSO3(), 1),
        ("Z&S, first order", stiff, hx.ZhangSkeelSO3(BETA, "first"), 1),
        ("Z&S, trapezoidal", stiff, hx.ZhangSkeelSO3(BETA), 2),
    ):
        if id(system) not in reference:
            best = hx.RATTLE() if system is problem.system else hx.StormerVerlet()
            run = hx.simulate(system, hx.Composition(best, 8), problem.q0, problem.p0, dt=0.01, t1=1.0)
            reference[id(system)] = run.final_q
        ends = [hx.simulate(system, method, problem.q0, problem.p0, dt=h, t1=1.0).final_q for h in steps]
        slope = order_of(steps, [float(np.max(np.abs(end - reference[id(system)]))) for end in ends])
        table.add(name, slope, order)
        correction = "section 4.5: the trapezoidal rule takes p_{k+1/2}, not p_{k+1}, in R and starts p_{k+1} from it"
        found.compare(
            f"{name}: order",
            order,
            f"{slope:.2f}",
            abs(slope - order) < 0.2,
            correction=correction if order == 2 else "",
        )


ITEMS = (figure9, figure10)
