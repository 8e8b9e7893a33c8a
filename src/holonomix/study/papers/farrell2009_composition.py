"""Farrell (2009), section 7: order conditions, the Baker-Campbell-Hausdorff formula, compositions of even order."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import expm, logm

import holonomix as hx
from holonomix.methods.composition import splitting_defect

from .items import Findings, item, legend, log_ticks, order_of


def run(problem: hx.Problem, method: hx.AbstractMethod, dt: float, steps: int) -> tuple[Any, Any]:
    """The final state of a run; `simulate` compiles once for all numbers of steps, `integrate` once for each."""
    sol = hx.simulate(problem, method, dt=dt, steps=steps, save_every=steps)
    return sol.q[-1], sol.p[-1]


def distance(a: tuple[Any, Any], b: tuple[Any, Any]) -> float:
    """The largest difference of positions and momenta."""
    return float(max(np.max(np.abs(x - y)) for x, y in zip(a, b, strict=True)))


# -- section 7.2: the coefficients -------------------------------------------------------------------------------------


@item(
    "order_conditions",
    "order conditions of splittings",
    "pages 25 to 28, section 7.2, equations (27) and (29)",
    "Henon-Heiles to t = 2, 50 to 200 steps",
    seconds=(0.4, 0.5),
)
def order_conditions(found: Findings, quick: bool) -> None:
    """A product of flows with coefficients c, d has order two if sum c = sum d = 1 and the AB terms add up to 1/2; the
    simplest solution is c = (1/2, 1/2), d = (1, 0); a symmetric composition reaches order four.
    """
    w1 = 1 / (2 - 2 ** (1 / 3))
    w0 = 1 - 2 * w1
    lists = {
        "c = (1/2, 1/2), d = (1, 0)": ((0.5, 0.5), (1.0, 0.0), 2),
        "c = (1), d = (1)": ((1.0,), (1.0,), 1),
        "fourth order, from (29)": ((w1 / 2, (w0 + w1) / 2, (w0 + w1) / 2, w1 / 2), (w1, w0, w1, 0.0), 4),
    }
    columns = ("coefficients", "sum c - 1", "sum d - 1", "AB - 1/2", "measured order", "expected")
    table = found.table("Conditions of section 7.2, and the order on Henon-Heiles", *columns)
    problem, span, counts = hx.models.henon_heiles(), 2.0, (50, 100, 200)
    exact = run(problem, hx.Composition(hx.StormerVerlet(), order=8), span / 400, 400)
    for name, (c, d, expected) in lists.items():
        method = hx.Splitting(c, d)
        errors = [distance(run(problem, method, span / n, n), exact) for n in counts]
        order = order_of([span / n for n in counts], errors)
        mixed = sum(c[i] * sum(d[i:]) for i in range(len(c))) - 0.5
        table.add(name, sum(c) - 1, sum(d) - 1, mixed, order, expected)
        satisfied = max(abs(sum(c) - 1), abs(sum(d) - 1), abs(mixed)) < 1e-14
        found.compare(
            f"order of {name}",
            f"{expected}; the three conditions {'hold' if expected > 1 else 'fail'}",
            f"{order:.2f}; they {'hold' if satisfied else 'fail'}",
            abs(order - expected) < 0.1 and satisfied == (expected > 1),
        )
    c, d, _ = lists["fourth order, from (29)"]
    defect = splitting_defect(c, d, 4)
    found.compare("conditions of order four for (29)", "0", defect, defect < 1e-12)
    wrong = hx.Splitting((0.5, 0.5), (-1.0, 2.0))
    printed = [distance(run(problem, wrong, span / n, n), exact) for n in counts]
    found.note(
        f"Control: coefficients that break the third condition leave an error of {printed[-1]:.2g} at {counts[-1]} "
        f"steps."
    )
    # p_i = p_{i-1} + dt d_i V_q, as printed, is the motion in the potential -V
    inverted = hx.System(lambda q: -problem.system.potential(q))
    end = hx.integrate(inverted, hx.Splitting(), problem.q0, problem.p0, dt=span / 200, steps=200)
    away = distance(end, exact)
    found.compare(
        "the map converges to the motion",
        "with p_i = p_{i-1} + dt d_i V_q",
        f"the printed sign leaves an error of {away:.2g}, minus leaves "
        f"{distance(run(problem, hx.Splitting(), span / 200, 200), exact):.1e}",
        away > 0.01 and distance(run(problem, hx.Splitting(), span / 200, 200), exact) < 1e-3,
        correction="section 7.1: the momentum's update has a minus sign",
    )


# -- Definition 12 -----------------------------------------------------------------------------------------------------


def _bracket(*x: np.ndarray) -> np.ndarray:
    """`[a, b, c] = [a, [b, c]]`."""
    inner = x[-1]
    for a in reversed(x[:-1]):
        inner = a @ inner - inner @ a
    return inner


def bch_terms(x: np.ndarray, y: np.ndarray, product: str = "XY", misprint: bool = False) -> np.ndarray:
    """The formulas of Definition 12 to fifth order: `log(e^X e^Y)`, or `log(e^X e^Y e^X)` for `product="XYX"`.

    The text prints a bracket of six for `[Y, X, X, X, Y]/45`; `misprint=True` leaves that fifth-order term out, as a
    bracket of six would.
    """
    b = _bracket
    if product == "XY":
        return (
            x + y + b(x, y) / 2 + (b(x, x, y) + b(y, y, x)) / 12 + b(x, y, y, x) / 24
            - (b(y, y, y, y, x) + b(x, x, x, x, y)) / 720 + (b(y, x, x, x, y) + b(x, y, y, y, x)) / 360
            + (b(x, x, y, y, x) + b(y, y, x, x, y)) / 120
        )  # fmt: skip
    fifth = 0.0 if misprint else b(y, x, x, x, y) / 45
    return (
        2 * x + y + b(y, y, x) / 6 - b(x, x, y) / 6 + 7 * b(x, x, x, x, y) / 360 - b(y, y, y, y, x) / 360
        + b(x, y, y, y, x) / 90 + fifth - b(x, x, y, y, x) / 60 + b(y, y, x, x, y) / 30
    )  # fmt: skip


def bch_remainders(product: str, misprint: bool = False, size: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scales s and `|log(...) - formula|` for random matrices sX, sY."""
    rng = np.random.default_rng(seed)
    x, y = (a / np.linalg.norm(a, 2) for a in rng.normal(size=(2, size, size)))
    scales = np.array([0.16, 0.12, 0.09, 0.0675])
    left = []
    for s in scales:
        factors = [expm(s * x), expm(s * y)] + ([expm(s * x)] if product == "XYX" else [])
        left.append(np.abs(logm(np.linalg.multi_dot(factors)) - bch_terms(s * x, s * y, product, misprint)).max())
    return scales, np.asarray(left)


@item(
    "bch",
    "Baker-Campbell-Hausdorff formulas",
    "page 27, section 7.3, Definition 12",
    "random 5 x 5 matrices at four scales",
    seconds=(0.1, 0.1),
)
def bch(found: Findings, quick: bool) -> None:
    """log(e^X e^Y) and log(e^X e^Y e^X) are given up to the terms of fifth order."""
    table = found.table("Order of what the formulas leave out, random 5 x 5 matrices", "formula", "remainder", "order")
    orders = {}
    for name, product, misprint in (
        ("e^X e^Y, to fifth order", "XY", False),
        ("e^X e^Y e^X, corrected", "XYX", False),
        ("e^X e^Y e^X, as printed", "XYX", True),
    ):
        scales, left = bch_remainders(product, misprint)
        orders[name] = order_of(scales, left)
        table.add(name, left[-1], orders[name])
    first, corrected, printed = orders.values()
    found.compare("e^X e^Y: order of the remainder", "6", f"{first:.2f}", abs(first - 6) < 0.2)
    found.compare(
        "e^X e^Y e^X: order of the remainder",
        "7",
        f"{corrected:.2f} (as printed {printed:.2f})",
        abs(corrected - 7) < 0.2 and abs(printed - 5) < 0.2,
        correction="Definition 12: the fifth-order term of e^X e^Y e^X is [Y,X,X,X,Y]/45, a bracket of five",
    )


# -- section 7.3 -------------------------------------------------------------------------------------------------------

COMPOSITIONS = {"triple-jump-4": 4, "triple-jump-6": 6, "triple-jump-8": 8, "yoshida-6": 6, "suzuki-umeno-8": 8}


def composition_order(scheme: str, counts: tuple[int, ...], span: float = 2.0) -> tuple[float, np.ndarray, int]:
    """Order of a composition of RATTLE with unequal masses, the errors, and base steps per step."""
    problem = hx.models.double_pendulum(masses=(1.0, 2.0), angles=(0.7, 0.2))
    exact = run(problem, hx.Composition(hx.RATTLE(), order=10), span / 200, 200)
    method = hx.Composition(hx.RATTLE(), scheme)
    errors = np.array([distance(run(problem, method, span / n, n), exact) for n in counts])
    slope = float(np.polyfit(np.log(counts), -np.log(errors), 1)[0])
    return slope, errors, len(method.scheme.coefficients)


@item(
    "compositions",
    "compositions of even order",
    "pages 27 to 29, section 7.3",
    "double pendulum with masses 1 and 2, RATTLE as the base method, to t = 2; also two shorter lists",
    quick="the three triple jumps",
    seconds=(0.7, 1.3),
)
def compositions(found: Findings, quick: bool) -> None:
    """Composing a symmetric method of order 2p three times gives order 2p + 2; order p takes 3^(p/2 - 1) base steps."""
    table = found.table("Compositions of RATTLE, unequal masses", "scheme", "order", "base steps", "3^(p/2 - 1)")
    axes = found.panels("compositions", size=(3.4, 3.0))
    counts = {"triple-jump-8": (40, 50, 64), "suzuki-umeno-8": (12, 16, 20)}
    names = list(COMPOSITIONS)[:3] if quick else list(COMPOSITIONS)
    for scheme, marker in zip(names, "os^vD"):
        p = COMPOSITIONS[scheme]
        steps = counts.get(scheme, (40, 60, 80))
        order, errors, cost = composition_order(scheme, steps)
        table.add(scheme, order, cost, 3 ** (p // 2 - 1))
        axes.loglog([cost * n for n in steps], errors, marker=marker, label=scheme)
        if scheme.startswith("triple"):
            found.compare(
                f"{scheme}: order and base steps",
                f"{p} with 3^{p // 2 - 1} = {3 ** (p // 2 - 1)} base steps",
                f"{order:.2f} with {cost}",
                abs(order - p) < 0.2 and cost == 3 ** (p // 2 - 1),
            )
        else:
            found.compare(f"{scheme} (not in the paper): order", p, f"{order:.2f}", abs(order - p) < 0.2)
    axes.set(xlabel="base steps to $t = 2$", ylabel="largest error of $(q, p)$")
    log_ticks(axes, (200, 500, 1000, 2000))
    legend(axes, 2)


ITEMS = (order_conditions, bch, compositions)
