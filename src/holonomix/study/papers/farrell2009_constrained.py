"""Farrell (2009), section 6: Andersen's loop for RATTLE, and SHAKE beside RATTLE."""

from __future__ import annotations

from typing import Any

import numpy as np

import holonomix as hx

from .items import Findings, item, order_of


def andersen(dt: float = 0.05, links: int = 4, reset: bool = False, tol: float = 1e-12) -> tuple[Any, Any, int]:
    """One step of RATTLE by Andersen's loop on a hanging chain of unit masses: positions, velocities and cycles.

    `reset=True` is the loop as printed: each correction starts from the velocity without constraint forces, and so
    discards the corrections for the other constraints.
    """
    start = hx.models.chain(links)
    moved = hx.integrate(start, hx.RATTLE(), dt=dt, steps=20)
    q, v = np.asarray(moved[0]), np.asarray(moved[1])
    force = np.array([0.0, -1.0])
    anchored = lambda x: np.concatenate([np.zeros((1, 2)), x])
    inverse = np.array([0.0, *np.ones(links)])  # the anchor does not move
    q, v = anchored(q), anchored(v)
    free = v + dt / 2 * force * (inverse > 0)[:, None]
    half, cycles, limit, worst = free.copy(), 0, 500, np.inf
    while worst >= tol and cycles < limit:
        cycles, worst = cycles + 1, 0.0
        for i in range(1, links + 1):
            j, arm = i - 1, q[i] - q[i - 1]
            s = arm + dt * (half[i] - half[j])
            miss = s @ s - 5.0
            worst = max(worst, abs(miss))
            if abs(miss) < tol:
                continue
            h = miss / (2 * dt * (s @ arm) * (inverse[i] + inverse[j]))
            before = free if reset else half
            half[i] = before[i] - h * inverse[i] * arm
            half[j] = before[j] + h * inverse[j] * arm
    new = q + dt * half
    end = half + dt / 2 * force * (inverse > 0)[:, None]
    for _ in range(limit):
        worst = 0.0
        for i in range(1, links + 1):
            j, arm = i - 1, new[i] - new[i - 1]
            k = arm @ (end[i] - end[j]) / (5.0 * (inverse[i] + inverse[j]))
            worst = max(worst, abs(k))
            end[i] -= k * inverse[i] * arm
            end[j] += k * inverse[j] * arm
        if worst < tol:
            break
    return new[1:], end[1:], cycles


@item(
    "andersen",
    "Andersen's loop for RATTLE",
    "pages 18 to 20, section 6.3.2",
    "one step on a chain of four links, tolerance 1e-12, at most 500 cycles",
    seconds=(0.7, 2),
)
def andersens_loop(found: Findings, quick: bool) -> None:
    """Correcting one distance at a time, in any order, ends with all position and velocity constraints satisfied."""
    start = hx.models.chain(4)
    exact = hx.integrate(start, hx.RATTLE(), dt=0.05, steps=21)
    table = found.table("One step of 0.05 on a chain of four", "loop", "cycles", "error of q", "error of v")
    cycles, errors = {}, {}
    for name, reset in (("corrections add up", False), ("as printed", True)):
        q, v, cycles[name] = andersen(reset=reset)
        away = [float(np.max(np.abs(a - np.asarray(b)))) for a, b in zip((q, v), exact)]
        errors[name] = max(away)
        table.add(name, cycles[name], *away)
    found.compare(
        "the loop ends with all constraints satisfied, at RATTLE's positions and velocities",
        "yes",
        f"to {errors['corrections add up']:.1e} after {cycles['corrections add up']} cycles; as printed it does not "
        f"end within {cycles['as printed']}",
        errors["corrections add up"] < 1e-9 and cycles["as printed"] == 500 and errors["as printed"] > 1e-6,
        correction="section 6.3.2: the corrections of v_{n+1/2} add up; the printed update starts from v_n every time",
    )


@item(
    "shake_rattle",
    "SHAKE and RATTLE have the same positions",
    "pages 15 to 17, sections 6.1 and 6.2, equations (14) to (22); page 29, conclusion",
    "chain of ten, dt 0.05, 500 steps",
    quick="200 steps",
    seconds=(2, 4),
)
def same_positions(found: Findings, quick: bool) -> None:
    """RATTLE has the positions of SHAKE and velocities that satisfy the hidden constraint; both have order two."""
    problem = hx.models.chain(10)
    steps = 200 if quick else 500
    run_of = lambda method: hx.simulate(problem, method, dt=0.05, steps=steps)
    rattle = run_of(hx.RATTLE())
    table = found.table(f"Largest difference from RATTLE's positions over {steps} steps", "method", "difference")
    for name, method in (
        ("SHAKE, leapfrog form", hx.SHAKE("leapfrog")),
        ("SHAKE, velocity form", hx.SHAKE("velocity")),
    ):
        away = float(np.max(np.abs(run_of(method).q - rattle.q)))
        table.add(name, away)
        found.compare(f"positions of {name}", "those of RATTLE", f"equal to {away:.1e}", away < 1e-9)
    small = hx.models.double_pendulum(masses=(1.0, 2.0), angles=(0.7, 0.2))
    exact = hx.integrate(small, hx.Composition(hx.RATTLE(), order=8), dt=0.01, steps=100)
    table = found.table("Error of (q, p) of the double pendulum at t = 1", "steps", "SHAKE", "RATTLE")
    counts, errors = (50, 100, 200), []
    for n in counts:
        ends = (hx.simulate(small, m, dt=1 / n, steps=n) for m in (hx.SHAKE(), hx.RATTLE()))
        errors.append([max(float(np.max(np.abs(a - b))) for a, b in zip((e.q[-1], e.p[-1]), exact)) for e in ends])
        table.add(n, *errors[-1])
    orders = [order_of([1 / n for n in counts], x) for x in np.transpose(errors)]
    found.compare(
        "global error of SHAKE and RATTLE",
        "O(dt^2)",
        f"orders {orders[0]:.2f} and {orders[1]:.2f}",
        all(abs(x - 2) < 0.1 for x in orders),
    )
    hidden = float(np.max(rattle.hidden_constraint_error()))
    found.compare("RATTLE's velocities satisfy G v = 0", "yes", f"to {hidden:.1e}", hidden < 1e-10)


ITEMS = (andersens_loop, same_positions)
