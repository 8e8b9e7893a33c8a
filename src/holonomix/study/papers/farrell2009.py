"""Farrell, Hamiltonian mechanics and the construction of numerical integrators (2009): measurements of its statements.

Local and global order of every classical method, the error bound of Euler's method, iterations of the multiplier
solvers, Andersen's loop, the wedge product under SHAKE and RATTLE; section 7 is in `farrell2009_composition`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import null_space

import holonomix as hx
from holonomix.methods.partitioned import LOBATTO_IIIAB, SYMPLECTIC_EULER

from ...core.types import Numbers
from ...methods.base import AbstractMethod
from .farrell2009_composition import ITEMS as COMPOSITION
from .farrell2009_composition import distance, run
from .farrell2009_constrained import ITEMS as CONSTRAINED
from .farrell2009_general import ITEMS as GENERAL
from .items import Findings, Paper, item, log_ticks, order_of, wedge_form

CLASSICAL: dict[str, Callable[[], Any]] = {
    "Euler (3.1)": hx.ExplicitEuler,
    "Taylor, order 2 (3.3)": lambda: hx.Taylor(2),
    "Taylor, order 3 (3.3)": lambda: hx.Taylor(3),
    "explicit midpoint (3.4)": hx.ExplicitMidpoint,
    "RK4 (3.4)": hx.RK4,
    "Adams-Bashforth, 2 steps (4)": lambda: hx.AdamsBashforth(2),
    "Adams-Bashforth, 4 steps (4)": lambda: hx.AdamsBashforth(4),
    "Adams-Moulton, 2 steps (4)": lambda: hx.AdamsMoulton(2),
    "symplectic Euler (5)": lambda: hx.PartitionedRungeKutta(SYMPLECTIC_EULER),
    "Lobatto IIIA-IIIB, 3 stages (5)": lambda: hx.PartitionedRungeKutta(LOBATTO_IIIAB[3]),
    "Stormer-Verlet (5.2)": hx.StormerVerlet,
    "leapfrog (5.2)": hx.Leapfrog,
}


# -- sections 3 to 5: local and global order ---------------------------------------------------------------------------


def measured_orders(
    method: hx.AbstractMethod, counts: tuple[int, ...], span: float = 2.0
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Exponents of the error of one step and of the error at the end, with the errors, on Henon-Heiles.

    The error of one step is O(dt^{p+1}), that at the end O(dt^p). The step of a multistep method starts from exact
    values, which its starting method provides.
    """
    problem = hx.models.henon_heiles()
    fine = hx.Composition(hx.StormerVerlet(), order=8)
    exact = run(problem, fine, span / 400, 400)
    ends, steps = [], []
    for n in counts:
        dt = span / n
        ends.append(distance(run(problem, method, dt, n), exact))
        first = getattr(method, "steps", 1)
        reference = run(problem, fine, dt * first / 20, 20)
        steps.append(distance(run(problem, method, dt, first), reference))
    slope = lambda e: float(np.polyfit(np.log(counts), -np.log(e), 1)[0])
    return slope(steps), slope(ends), np.asarray(steps), np.asarray(ends)


@item(
    "orders",
    "order of the classical methods",
    "pages 5 to 14, sections 3 to 5",
    "twelve methods on Henon-Heiles to t = 2",
    seconds=(3, 3),
)
def orders(found: Findings, quick: bool) -> None:
    """Euler, Taylor, Runge-Kutta, multistep and partitioned methods have the stated orders."""
    table = found.table("Order of the classical methods", "method", "local", "p + 1", "global", "p")
    axes = found.panels("orders", size=(7.0, 3.2))
    worst = 0.0
    for k, (name, make) in enumerate(CLASSICAL.items()):
        method = make()
        p = method.traits["free"].order_of("q")
        counts = (40, 60, 80) if p >= 3 else (100, 200, 400)
        local, slope, _, ends = measured_orders(method, counts)
        table.add(name, local, p + 1, slope, p)
        worst = max(worst, abs(local - p - 1), abs(slope - p))
        axes.loglog([2.0 / n for n in counts], ends, marker="os^vD<>ph*Xd"[k], label=name)
    axes.set(xlabel=r"$\Delta t$", ylabel="error of $(q, p)$ at $t = 2$")
    log_ticks(axes, (0.005, 0.01, 0.02, 0.05))
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", ncols=1)
    found.compare(
        "exponents of the error of one step and of the whole",
        "p + 1 and p for every method",
        f"within {worst:.2f} of them for {len(table.rows)} methods",
        worst < 0.25,
        correction="sections 3.3, 3.4, 4, 5: the fourth stage of RK4 takes dt, the midpoint rule dt/2, the Taylor "
        "method ends with dt^(p-1)/p!, the multistep formula has a term a_0 z_{n+1-m}, and a local error O(dt^(p+1)) "
        "that is not divided by dt gives order p",
    )


# -- section 3.1: the bound of Euler's method --------------------------------------------------------------------------


def euler_bound(
    counts: tuple[int, ...] = (100, 200, 400, 800), span: float = 3.0
) -> list[tuple[int, float, float, float]]:
    """Steps, largest error, bound at the end, and the largest ratio of error and bound over all steps.

    Theorem 2 bounds the error by `dt M/(2 L) (e^{L t} - 1)`; here for the pendulum `z' = (v, -sin x)`.
    In the 2-norm the field is Lipschitz with L = 1 (its Jacobian has the singular values 1 and |cos x|); M is the
    largest `|z''|` on the solution, and the bound must hold at every step.
    """
    system = hx.System(lambda q: -jnp.cos(q[0]))
    q0, p0 = jnp.asarray([1.2]), jnp.asarray([0.0])
    fine = hx.simulate(system, hx.RK4(), q0, p0, dt=span / 8000, steps=8000)
    x, v = fine.q[:, 0], fine.p[:, 0]
    largest = float(np.max(np.hypot(np.sin(x), v * np.cos(x))))
    rows = []
    for n in counts:
        sol = hx.simulate(system, hx.ExplicitEuler(), q0, p0, dt=span / n, steps=n)
        error = np.hypot(sol.q[:, 0] - x[:: 8000 // n], sol.p[:, 0] - v[:: 8000 // n])
        bound = span / n * largest / 2 * (np.exp(sol.t) - 1)
        late = bound > 0
        worst = np.max(error[late] / bound[late])
        rows.append((n, float(error.max()), float(bound[-1]), float(worst)))
    return rows


@item(
    "euler",
    "error bound of Euler's method",
    "pages 6 to 8, section 3.1, Theorems 2 and 3",
    "pendulum to t = 3, 100 to 800 steps, bound checked at every step",
    seconds=(0.2, 0.2),
)
def euler(found: Findings, quick: bool) -> None:
    """The error of Euler's method is at most dt M/(2 L) (e^(L t) - 1)."""
    table = found.table("Euler's method on the pendulum, t to 3", "steps", "largest error", "bound", "error times n")
    rows = euler_bound()
    for n, error, bound, _ in rows:
        table.add(n, error, bound, error * n)
    ratio = max(worst for *_, worst in rows)
    order = order_of([1 / n for n, *_ in rows], [error for _, error, *_ in rows])
    found.compare("error over bound, largest over all steps", "at most 1", ratio, ratio <= 1)
    found.compare("the error is proportional to dt", "order 1", f"order {order:.2f}", abs(order - 1) < 0.1)


# -- section 6.3: the multipliers --------------------------------------------------------------------------------------

SOLVERS: dict[str, Callable[[], Any]] = {
    "Gauss-Seidel (SHAKE's own)": lambda: hx.GaussSeidel(tol=1e-10),
    "SOR, 1.7": lambda: hx.SOR(1.7, tol=1e-10),
    "Newton": lambda: hx.Newton(tol=1e-10),
    "symmetric Newton": lambda: hx.SymmetricNewton(tol=1e-10),
    "symmetric Newton, frozen": lambda: hx.SymmetricNewton(tol=1e-10, frozen=True),
}


def sweeps(name: str, steps: int = 200) -> float:
    """Mean iterations per step on the chain of ten, dt 0.05, tolerance 1e-10."""
    problem = hx.models.chain(10)
    method = hx.RATTLE(SOLVERS[name]())
    sol = hx.simulate(problem, method, dt=0.05, steps=steps, save_every=steps)
    return float(sol.stats["mean_iterations"])


@item(
    "multipliers",
    "iterations for the multipliers",
    "pages 17 and 18, section 6.3.1",
    "chain of ten, dt 0.05, tolerance 1e-10, 200 steps",
    quick="50 steps",
    seconds=(2, 2),
)
def multipliers(found: Findings, quick: bool) -> None:
    """Coordinate resetting, Newton and quasi-Newton iterations all find the multipliers."""
    steps = 50 if quick else 200
    table = found.table(f"Mean iterations per step, chain of ten, dt 0.05, {steps} steps", "solver", "iterations")
    counts = {name: sweeps(name, steps) for name in SOLVERS}
    for name, count in counts.items():
        table.add(name, count)
    shake, newton, quasi = (counts[k] for k in ("Gauss-Seidel (SHAKE's own)", "Newton", "symmetric Newton"))
    found.compare(
        "every iteration converges",
        "given a good enough guess or a small enough step",
        "all five do",
        all(counts.values()),
    )
    found.compare(
        "iterations: coordinate resetting, Newton, quasi-Newton",
        "no numbers; Newton and quasi-Newton use the whole matrix",
        f"{shake:.0f}, {newton:.1f}, {quasi:.1f}",
        newton <= quasi < shake,
        correction="section 6.3.1: the tolerance bounds |g_i(Q)|, not g_i(Q)",
    )


# -- section 6.4: symplecticity ----------------------------------------------------------------------------------------


def wedge_defects() -> dict[str, float]:
    """Defects of `dq ^ dp` over one step, and the violation of the hidden constraint by velocity-level SHAKE.

    Velocity-level SHAKE is measured on the vectors with `G dq = 0`, RATTLE on the tangent space of the cotangent
    bundle. `ambient` is RATTLE on all vectors, where a defect is expected.
    """
    problem = hx.models.double_pendulum(masses=(1.0, 1.5))
    # a generic state, from a short run
    moved = hx.integrate(problem, hx.RATTLE(), dt=0.02, steps=60)
    system = problem.system.prepare(problem.q0)
    q, p = moved
    z0 = jnp.concatenate([q.reshape(-1), p.reshape(-1)])
    n = q.size

    def one(method: AbstractMethod):
        def step(z: Numbers):
            here, momentum = (x.reshape(q.shape) for x in jnp.split(z, 2))
            state = hx.State(here, momentum, jnp.asarray(0.0), 0)
            end = method.step(system, state, 0.05, method.init(system, state, 0.05))[0]
            return jnp.concatenate([end.q.reshape(-1), end.p.reshape(-1)])

        return wedge_form(jax.jit(jax.jacfwd(step))(z0)), step(z0)

    rows = np.asarray(system.linearize(q).todense())
    positions = np.block([[null_space(rows), np.zeros((n, n))], [np.zeros((n, null_space(rows).shape[1])), np.eye(n)]])
    both = jax.jacfwd(lambda z: jnp.concatenate([
        system.constraint(z[:n].reshape(q.shape)),
        system.hidden_constraint(z[:n].reshape(q.shape), z[n:].reshape(q.shape)),
    ]))(z0)  # fmt: skip
    tangent = null_space(np.asarray(both))
    shake, after = one(hx.SHAKE("velocity"))
    rattle, _ = one(hx.RATTLE())
    end_q, end_p = (x.reshape(q.shape) for x in jnp.split(after, 2))
    return {
        "SHAKE, velocity form, on G dq = 0": float(np.abs(positions.T @ shake @ positions).max()),
        "its hidden constraint |G v|": float(jnp.max(jnp.abs(system.hidden_constraint(end_q, end_p)))),
        "RATTLE, on the cotangent bundle": float(np.abs(tangent.T @ rattle @ tangent).max()),
        "RATTLE, in the ambient space (control)": float(np.abs(rattle).max()),
    }


@item(
    "wedge",
    "SHAKE and RATTLE are symplectic",
    "pages 20 to 24, section 6.4",
    "Jacobian of one step of 0.05 on the double pendulum",
    seconds=(3, 6),
)
def wedge(found: Findings, quick: bool) -> None:
    """Both methods keep the wedge product dq ^ dp."""
    table = found.table("One step of 0.05 on the double pendulum", "what", "largest entry")
    defects = wedge_defects()
    for name, value in defects.items():
        table.add(name, value)
    shake, hidden, rattle, ambient = defects.values()
    found.compare("SHAKE keeps dq ^ dp", "exactly", f"to {shake:.0e}", shake < 1e-14)
    found.compare("RATTLE keeps dq ^ dp", "exactly", f"to {rattle:.0e} on the cotangent bundle", rattle < 1e-14)
    found.note(
        f"Controls: in the ambient space RATTLE's defect is {ambient:.2g}, where nothing is promised, and SHAKE's "
        f"velocities have |G v| = {hidden:.1e}."
    )


PAPER = Paper(
    "farrell2009",
    "Farrell, Hamiltonian mechanics and the construction of numerical integrators (2009)",
    (orders, euler, multipliers, *GENERAL, *CONSTRAINED, wedge, *COMPOSITION),
)
