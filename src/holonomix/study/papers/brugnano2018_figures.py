"""Brugnano et al. (2018), figures 1 to 3 and theorem 8."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import holonomix as hx
from holonomix.core.types import Numbers

from .brugnano2018_tables import PROBLEMS, Run, hidden_constraint, solve
from .items import Findings, draw_rounding, item, legend


def conical_run(periods: int) -> tuple[Run, np.ndarray]:
    """HBVM(2, 2) with h = T/100, and the solution error at every step."""
    problem = PROBLEMS[2]()
    run = solve(problem, hx.HBVM(2, 2), 2**0.75 * np.pi / 100, 100 * periods)
    q, p = problem.reference(run.t)
    return run, np.max(np.abs(run.z - np.concatenate([q, p], axis=1)), axis=1)


@item(
    "figure1",
    "error of HBVM(2, 2) over 100 periods",
    "section 5.2, Figure 1",
    "h = T/100, 100 periods",
    quick="20 periods",
    seconds=(0.1, 0.1),
)
def figure1(found: Findings, quick: bool) -> None:
    """The solution error on the conical pendulum grows linearly in time."""
    run, error = conical_run(20 if quick else 100)
    slope = float(np.polyfit(np.log(run.t[100:]), np.log(np.maximum.accumulate(error)[100:]), 1)[0])
    table = found.table("Solution error", "t", "error")
    for k in np.linspace(0, len(error) - 1, 6).astype(int)[1:]:
        table.add(f"{run.t[k]:.1f}", float(error[k]))
    found.compare("the error grows as t^a", "a = 1 (linear)", f"a = {slope:.3f}", abs(slope - 1) < 0.05)
    axes = found.panels("figure1")
    periods = error[1:].reshape(-1, 100)
    for name, values in (("largest", periods.max(axis=1)), ("smallest", periods.min(axis=1))):
        axes.plot(run.t[100::100], values, label=f"{name} of each period")
    legend(axes)
    axes.set(xlabel="$t$", ylabel=r"$\|(q, p)_n - (q, p)(t_n)\|_\infty$")


@item(
    "figure2",
    "multiplier, energy and constraints over 100 periods",
    "section 5.2, Figure 2",
    "h = T/100, 100 periods",
    quick="20 periods",
    seconds=(0.1, 0.1),
)
def figure2(found: Findings, quick: bool) -> None:
    """The errors of the multiplier, the Hamiltonian, the constraint and the hidden constraint are negligible."""
    run, _ = conical_run(20 if quick else 100)
    energy = 0.5 * np.sum(run.p**2, axis=1) + run.q[:, 2]
    curves = {
        r"$|\lambda_n - \lambda|$": np.abs(run.multipliers[:, 0] - 2**-0.5),
        "$|G p|$": np.abs(run.hidden[1:, 0]),
        "$|H - H_0|$": np.abs(energy - energy[0])[1:],
        "$|g|$": np.abs(np.sum(run.q**2, axis=1) - 1)[1:],
    }
    table = found.table(f"Largest errors over {len(run.t) - 1} steps", "quantity", "error")
    # one panel per quantity, because curves at round-off overlap
    axes = found.panels("figure2", 4, 1, (3.4, 5.6), sharex=True)
    for panel, (name, curve) in zip(axes, curves.items(), strict=True):
        table.add(name, np.max(curve))
        draw_rounding(panel, run.t[1:], curve)
        panel.set(ylabel=name)
    axes[-1].set(xlabel="$t$")
    largest = max(float(np.max(curve)) for curve in curves.values())
    found.compare("all four errors", "negligible", f"at most {largest:.1e}", largest < 1e-11)


def _constraint(system: hx.System, q: Numbers, p: Numbers) -> Any:
    return system.constraint(q)


@item(
    "figure3",
    "tethered satellites over 10 000 steps",
    "section 5.4, Figure 3",
    "10 000 steps, every one of them kept",
    quick="1 000 steps",
    seconds=(0.5, 0.5),
)
def figure3(found: Findings, quick: bool) -> None:
    """With HBVM(6, 2) and h = 0.1 the motion is qualitatively right over 10^4 steps, and energy and constraints are
    conserved.
    """
    problem = PROBLEMS[4]()
    observe = {"hidden": Partial(hidden_constraint, problem.system), "g": Partial(_constraint, problem.system)}
    sol = hx.simulate(
        problem,
        hx.HBVM(6, 2),
        dt=0.1,
        steps=1000 if quick else 10_000,
        observe=observe,
    )
    g = np.abs(sol.observables["g"])
    hidden = np.sum(np.abs(sol.observables["hidden"]), axis=1)
    energy = np.abs(sol.energy_error())
    curves = {"$|G p|_1$": hidden, "$|H - H_0|$": energy} | {f"$|g_{k + 1}|$": g[:, k] for k in range(3)}
    axes = found.panels("figure3", len(curves), 1, (3.4, 6.0), sharex=True)
    for panel, (name, curve) in zip(axes, curves.items(), strict=True):
        draw_rounding(panel, sol.t[1:], curve[1:])
        panel.set(ylabel=name)
    axes[-1].set(xlabel="$t$")
    planes = float(np.max(np.abs(sol.q[:, :, 1] - np.asarray([0.5, -0.5, 0.0]))))
    table = found.table(f"Largest errors over every one of {sol.stats['steps']} steps", "quantity", "error")
    for name, curve in (("energy", energy), ("constraints", g), ("hidden constraints, 1-norm", hidden)):
        table.add(name, np.max(curve))
    found.compare("the satellites stay in the planes y = 1/2, -1/2, 0", "yes", f"to {planes:.1e}", planes < 1e-9)
    exact = max(float(np.max(energy)), float(np.max(g)))
    found.compare("energy and constraint errors", "at round-off", f"at most {exact:.1e}", exact < 1e-12)
    late, early = np.max(hidden[len(hidden) // 2 :]), np.max(hidden[: len(hidden) // 2])
    found.compare(
        "the hidden constraints stay small",
        "bounded, small",
        f"{early:.1e} in the first half, {late:.1e} after",
        late < 2 * early,
    )


def theorem8_errors(
    problem: hx.Problem, method: hx.AbstractMethod, meshes: tuple[float, ...]
) -> list[tuple[float, float]]:
    """Largest energy and constraint errors up to t = 2, for each step size."""
    return [(run.energy, run.constraint) for run in (solve(problem, method, h, round(2 / h)) for h in meshes)]


# problem, k, s, step sizes, and whether 2k/s reaches the degree of H and of g (None: not a polynomial)
THEOREM8 = (
    (3, 2, 1, (0.1, 0.05, 0.025), True, False),
    (3, 3, 1, (0.1, 0.05, 0.025), True, True),
    (4, 1, 1, (0.4, 0.2, 0.1), False, True),
    (4, 3, 1, (0.4, 0.2, 0.1), None, True),
)


@item(
    "theorem8",
    "conservation, its order, and symmetry",
    "section 4, Theorem 8, equation (55)",
    "modified pendulum and satellites up to t = 2; symmetry over 50 steps from a generic start",
    quick="symmetry over 20 steps",
    seconds=(2, 5),
)
def theorem8(found: Findings, quick: bool) -> None:
    """Energy and constraint are exact if their degree is at most 2k/s and err by O(h^2k) otherwise; the method is
    symmetric.
    """
    view = found.table("Energy and constraint errors up to t = 2", "problem", "method", "h", "e_H", "e_g", keys=2)
    for number, k, s, meshes, *exact in THEOREM8:
        problem = PROBLEMS[number]()
        errors = np.asarray(theorem8_errors(problem, hx.HBVM(k, s), meshes))
        for h, (energy, constraint) in zip(meshes, errors):
            view.add(problem.name, f"HBVM({k}, {s})", f"{h:g}", f"{energy:.2e}", f"{constraint:.2e}")
        for name, promised, column in zip(("energy", "constraint"), exact, errors.T):
            what = f"{name}, {problem.name}, HBVM({k}, {s})"
            if promised:
                found.compare(what, "exact", f"{np.max(column):.1e}", np.max(column) < 1e-13)
            else:
                slopes = np.log2(column[:-1] / column[1:])
                tiny = column[1:] < 1e-13
                at = ", ".join("round-off" if t else f"{x:.2f}" for x, t in zip(slopes, tiny))
                found.compare(what, f"O(h^{2 * k})", f"orders {at}", np.all(tiny | (np.abs(slopes - 2 * k) < 0.35)))
    away = symmetry_defect(PROBLEMS[3](), hx.HBVM(6, 2), 0.1, 20 if quick else 50)
    found.compare("symmetric: forward, and back with -p", "returns to the start", f"to {away:.1e}", away < 1e-11)
    control = symmetry_defect(PROBLEMS[3](), hx.RK4(), 0.1, 20, project=True)
    found.note(f"Control: RK4 on the equations of index one comes back to within {control:.1e} only.")


def symmetry_defect(
    problem: hx.Problem, method: hx.AbstractMethod, dt: float, steps: int, project: bool = False
) -> float:
    """Distance from a generic state on the manifold after a run forward and one back with reversed momentum."""
    q, p = hx.integrate(problem, hx.RATTLE(), dt=0.01, steps=70)
    go = lambda q, p: hx.integrate(problem.system, method, q, p, dt=dt, steps=steps, adjoint="forward")
    if project:
        go = lambda q, p: hx.integrate(problem.system, method, q, p, dt=dt, steps=steps)
    end = go(q, p)
    back = go(end[0], -end[1])
    return float(jnp.maximum(jnp.max(jnp.abs(back[0] - q)), jnp.max(jnp.abs(back[1] + p))))


ITEMS = (figure1, figure2, figure3, theorem8)
