"""Lubich & Weiss, Numerical integrators for motion under a strong constraining force (Multiscale Model. Simul. 2014).

Figures 1 to 4: errors of the four impulse methods against the step size, for several eps, on the stiff spring double
pendulum; the actions, in which the methods differ; the resolved motion against the effective system; symplecticity and
reversibility. `alpha = (1, 2)` keeps the frequencies apart (the paper gives no values; (1, 1) has a 2:1 resonance).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import holonomix as hx

from .items import Findings, Item, Paper, item, legend, log_ticks, order_of, symplectic_defect
from .lubich_weiss_lemmas import END, FINEST, readings
from .lubich_weiss_lemmas import ITEMS as LEMMAS

METHODS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "figure1": ("Impulse", lambda n: hx.Impulse(substeps=n)),
    "figure2": ("Mollified", lambda n: hx.MollifiedImpulse(substeps=n)),
    "figure3": ("Projected", lambda n: hx.ProjectedImpulse(substeps=n)),
    "figure4": ("Mollified, (22)", lambda n: hx.MollifiedImpulse(substeps=n, mollifier="nearest")),
}


def effective_reference(problem: hx.Problem, spacing: float, t1: float) -> hx.Solution:
    """The effective motion, by a composition of RATTLE of order eight."""
    system = hx.effective(problem.system, problem.q0, problem.p0)
    q, p = problem.system.project(problem.q0, problem.p0)
    parts = max(1, round(spacing / 0.01))
    method = hx.Composition(hx.RATTLE(), order=8)
    return hx.simulate(system, method, q, p, dt=spacing / parts, steps=round(t1 / spacing) * parts, save_every=parts)


@functools.cache
def pendulum(eps: float) -> tuple[Any, Any]:
    """The stiff double pendulum and its effective motion on the finest mesh, which all four figures compare with."""
    problem = hx.models.stiff_spring_double_pendulum(eps)
    return problem, effective_reference(problem, FINEST, END)


def errors(
    problem: hx.Problem, method: hx.AbstractMethod, h: float, t1: float = END, fine: hx.Solution | None = None
) -> tuple[float, float, np.ndarray, float]:
    """Largest errors of positions and projected momenta, drift of the actions, largest error of the whole momenta.

    `fine` is the effective motion with rows at a distance of FINEST, if it is known.
    """
    sol = hx.simulate(problem, method, dt=h, t1=t1)
    every = 1 if fine is None else round(h / FINEST)
    exact = effective_reference(problem, h, t1) if fine is None else fine
    exact_q, exact_p = exact.q[::every], exact.p[::every]
    tangent, actions = readings(problem.system, sol)
    drift = np.max(np.abs(actions - actions[0]), axis=0)
    away = [float(np.max(np.abs(x - y))) for x, y in ((sol.q, exact_q), (tangent, exact_p), (sol.p, exact_p))]
    return away[0], away[1], drift, away[2]


def figure_of(item: str, quick: bool) -> Findings:
    """Errors of one method against the step size, for several eps."""
    name, make = METHODS[item]
    bad = item == "figure1"
    steps = (0.4, 0.2, 0.1) if quick else (0.4, 0.2, 0.1, 0.05, 0.025)
    scales = (1e-2, 1e-4) if quick else (1e-2, 1e-3, 1e-4)
    per_eps = 1000 if bad and not quick else 100
    found = Findings()
    columns = ("eps", "h", "position", "projected momentum", "momentum", "drift of I_1", "drift of I_2", "floor of I_2")
    table = found.table(f"{name}, T = 4, micro-step eps/{per_eps}: largest errors", *columns, keys=2)
    axes = found.panels(item, 1, 3, (7.0, 2.6))
    best, drifts, floors, wholes = {}, [], [], []
    for eps, marker in zip(scales, "os^"):
        problem, fine = pendulum(eps)
        floor = verlet_floor(problem, eps / per_eps)
        rows = []
        for h in steps:
            x, y, drift, whole = errors(problem, make(round(h / eps * per_eps)), h, fine=fine)
            rows.append((x, y, drift[0]))
            table.add(eps, h, x, y, whole, drift[0], drift[1], floor)
            floors.append(drift[1] / floor)
            drifts.append(drift[0])
            wholes.append(whole)
        best[eps] = np.asarray(rows)
        for panel, values in zip(axes, np.transpose(rows), strict=True):
            panel.loglog(steps, values, marker=marker, label=rf"$\varepsilon = {eps:g}$")
    for panel, label in zip(axes, ("largest error of $x$", "largest error of $P y$", "drift of $I_1$"), strict=True):
        if panel is not axes[2]:
            panel.loglog(steps, 0.1 * np.asarray(steps) ** 2, color="0.5", ls="-", lw=0.7, label="$0.1 h^2$")
        panel.set(xlabel="$h$", ylabel=label)
        log_ticks(panel, steps[::2] if len(steps) > 3 else steps)
    legend(axes[0], 4)
    smallest = best[scales[-1]]
    order = order_of(steps, smallest[:, 0])
    if bad:
        found.compare(
            f"convergence of the positions, eps = {scales[-1]:g}",
            "unsatisfactory: the error does not fall with h",
            f"order {order:.2f}",
            order < 1.0,
        )
        found.compare("the actions are preserved", "no", f"I_1 drifts by up to {max(drifts):.2g}", max(drifts) > 0.05)
    else:
        both = order, order_of(steps, smallest[:, 1])
        found.compare(
            f"orders of position and projected momentum, eps = {scales[-1]:g}",
            "2: errors O(h^2) + O(eps)",
            f"{both[0]:.2f} and {both[1]:.2f}",
            all(1.5 < x < 2.6 for x in both),
        )
        bound = max(float(drift) / eps for eps, rows in best.items() for drift in rows[:, 2])
        found.compare("the actions are preserved", "up to O(eps)", f"I_1 to {bound:.2g} eps", bound < 1.0)
        found.compare(
            "error of the whole momentum, y_n - Y(t_n), for every h and eps",
            "O(1)",
            f"{min(wholes):.2g} to {max(wholes):.2g}",
            min(wholes) > 0.1,
        )
    if item == "figure4":
        found.note(
            "The mollifier (22) in normal coordinates: the slow potential at the nearest point of the manifold in the "
            "mass metric. The paper does not say which coordinates it took; item lemmas shows that these satisfy (18)."
        )
    found.note(
        f"The drift of I_2 has a floor that Verlet's micro-steps leave, I_2 (omega_2 dt/eps)^2/4; measured drifts are "
        f"{min(floors):.2g} to {max(floors):.2g} times it."
    )
    return found


def verlet_floor(problem: hx.Problem, micro: float) -> float:
    """The error of the second action due to Verlet with the micro-step, whose oscillator has another frequency."""
    system, q, p = problem.system, problem.q0, problem.p0
    action = float(system.actions(q, p)[1])
    frequency = float(system.frequencies(q)[1])
    return abs(action) * (frequency * micro / float(system.epsilon)) ** 2 / 4


@item(
    "effective",
    "the effective system",
    "sections 1.2 and 3, equations (8), (13) and (21)",
    "Verlet with steps eps/100 to T = 2, eps = 1e-2, 1e-3, 1e-4",
    quick="eps = 1e-2, 1e-3",
    seconds=(0.7, 0.8),
)
def effective(found: Findings, quick: bool) -> None:
    """The motion is that of the constrained system with the correction potential W = sum I_k omega_k, up to O(eps), and
    its actions are constant up to O(eps).
    """
    columns = ("eps", "with W", "without W", "projected momentum", "drift of I_1")
    table = found.table("Resolved motion to T = 2 against the limit", *columns)
    scales = (1e-2, 1e-3) if quick else (1e-2, 1e-3, 1e-4)
    right, wrong, momenta, drifts = [], [], [], []
    for eps in scales:
        problem = hx.models.stiff_spring_double_pendulum(eps)
        per_row = round(0.1 / (eps / 100))
        sol = hx.simulate(problem, hx.StormerVerlet(), dt=0.1 / per_row, t1=2.0, save_every=per_row)
        limit = effective_reference(problem, 0.1, 2.0)
        q, p = problem.system.project(problem.q0, problem.p0)
        rigid = hx.simulate(problem.system.constrained(), hx.RATTLE(), q, p, dt=0.001, t1=2.0, save_every=100)
        right.append(float(np.max(np.abs(sol.q - limit.q))))
        wrong.append(float(np.max(np.abs(sol.q - rigid.q))))
        tangent, actions = readings(problem.system, sol)
        momenta.append(float(np.max(np.abs(tangent - limit.p))))
        drifts.append(float(np.ptp(actions[:, 0])))
        table.add(eps, right[-1], wrong[-1], momenta[-1], drifts[-1])
    for what, values in (
        ("(13): X(t) - x(t)", right),
        ("(13): Y(t) - P(x(t)) y(t)", momenta),
        ("(21): the first action along the motion, I_1(t) - I_1(0)", drifts),
    ):
        order = order_of(scales, values)
        found.compare(what, "O(eps)", f"O(eps^{order:.2f})", order > 0.9)
    found.compare(
        "without the correction potential", "another motion", f"{min(wrong):.2g} away for every eps", min(wrong) > 0.1
    )


@item(
    "structure",
    "symplecticity and symmetry",
    "section 2.3, last paragraph",
    "one step of 0.1 and 20 steps forward and back, eps = 1e-2, micro-step eps/100",
    quick="micro-step eps/20",
    seconds=(11, 11),
)
def structure(found: Findings, quick: bool) -> None:
    """Impulse and Mollified Impulse methods are symplectic and symmetric; the Projected one is symmetric only."""
    eps, h, substeps = 1e-2, 0.1, 200 if quick else 1000
    problem = hx.models.stiff_spring_double_pendulum(eps)
    table = found.table(
        f"eps 1e-2, h 0.1, micro-step {h / substeps:g}", "method", "symplectic defect", "forward and back, 20 steps"
    )
    for name, method, symplectic in (
        ("Impulse", hx.Impulse(substeps=substeps), True),
        ("Mollified", hx.MollifiedImpulse(substeps=substeps), True),
        ("Projected", hx.ProjectedImpulse(substeps=substeps), False),
    ):
        defect = symplectic_defect(problem.system, method, problem.q0, problem.p0, h)
        run = lambda q, p, m=method: hx.integrate(problem.system, m, q, p, dt=h, steps=20, adjoint="forward")
        q, p = run(problem.q0, problem.p0)
        back = float(jnp.max(jnp.abs(run(q, -p)[0] - problem.q0)))
        table.add(name, defect, back)
        found.compare(
            f"{name}: symplectic",
            "yes" if symplectic else "no (the kick is no gradient)",
            f"defect {defect:.1e}",
            (defect < 1e-8) == symplectic,
        )
        found.compare(f"{name}: symmetric", "yes", f"comes back to {back:.1e}", back < 1e-10)


ALPHA = "stiff spring double pendulum, l1 = l2 = 1, alpha = (1, 2) (the paper gives none), start (14), T = 4"
FULL = f"{ALPHA}; h = 0.4 to 0.025, eps = 1e-2, 1e-3, 1e-4"
SHORT = "h = 0.4 to 0.1, eps = 1e-2 and 1e-4, micro-step eps/100"
PAPER = Paper(
    "lubich_weiss",
    "Lubich & Weiss, Numerical integrators for motion under a strong constraining force (2014)",
    (
        Item(
            "figure1",
            "Impulse method",
            "section 2.1, Figure 1",
            "The impulse method converges badly: the errors of positions and projected momenta do not fall as h^2.",
            functools.partial(figure_of, "figure1"),
            f"{FULL}, micro-step eps/1000",
            SHORT,
            (4, 17),
        ),
        Item(
            "figure2",
            "Mollified Impulse method",
            "section 2.2, Figure 2; Theorems 2.2 and 5.2",
            "Errors of positions and projected momenta are O(h^2) + O(eps), uniformly in eps; the actions are "
            "preserved.",
            functools.partial(figure_of, "figure2"),
            f"{FULL}, micro-step eps/100",
            SHORT,
            (2, 7),
        ),
        Item(
            "figure3",
            "Projected Impulse method",
            "section 2.3, Figure 3; Theorems 2.2 and 5.2",
            "The simpler projected method converges as the mollified one.",
            functools.partial(figure_of, "figure3"),
            f"{FULL}, micro-step eps/100",
            SHORT,
            (1.4, 4),
        ),
        Item(
            "figure4",
            "Mollified Impulse method in transformed variables",
            "section 3, Figure 4; Theorems 4.1 and 4.2",
            "The mollifier of (22) gives results similar to figures 2 and 3 and preserves the actions up to O(eps).",
            functools.partial(figure_of, "figure4"),
            f"{FULL}, micro-step eps/100",
            SHORT,
            (3, 10),
        ),
        effective,
        structure,
        *LEMMAS,
    ),
)
