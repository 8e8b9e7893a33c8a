"""Farrell, Hamiltonian mechanics and the construction of numerical integrators (2009): its statements, measured.

Local and global order of every classical method, the error bound of Euler's method, sweeps of the multiplier solvers,
the wedge product under SHAKE and RATTLE, the Baker-Campbell-Hausdorff formula to fifth order, and compositions of even
order with their cost. The misprints of the text are corrected as in the formula sheet.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.methods.partitioned import LOBATTO_IIIAB, SYMPLECTIC_EULER

from .comparison import Comparison, save

__all__ = ["ITEMS", "bch_terms", "euler_bound", "measured_orders", "sweeps", "wedge_defects"]

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


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[Any, ...]], console: Any) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    console.print(f"wrote {path}")


# -- sections 3 to 5: local and global order ---------------------------------------------------------------------------


def measured_orders(
    method: Any, counts: tuple[int, ...], span: float = 2.0
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Exponents of the error of one step and of the error at the end, with the errors, on Henon-Heiles.

    One step of dt is wrong by O(dt^{p+1}), the end by O(dt^p). A multistep method's step is taken from exact values
    before it, which its start provides.
    """
    problem = hx.models.henon_heiles()
    fine = hx.Composition(hx.StormerVerlet(), order=8)
    exact = _run(problem, fine, span / 400, 400)
    ends, steps = [], []
    for n in counts:
        dt = span / n
        ends.append(_distance(_run(problem, method, dt, n), exact))
        first = getattr(method, "steps", 1)
        reference = _run(problem, fine, dt * first / 20, 20)
        steps.append(_distance(_run(problem, method, dt, first), reference))
    slope = lambda e: float(np.polyfit(np.log(counts), -np.log(e), 1)[0])
    return slope(steps), slope(ends), np.asarray(steps), np.asarray(ends)


def _run(problem: Any, method: Any, dt: float, steps: int) -> tuple[Any, Any]:
    return hx.integrate(problem.system, method, problem.q0, problem.p0, dt=dt, steps=steps)


def _distance(a: tuple[Any, Any], b: tuple[Any, Any]) -> float:
    return float(max(jnp.max(jnp.abs(x - y)) for x, y in zip(a, b, strict=True)))


def orders(quick: bool, out: Path, console: Any) -> None:
    """Local and global order of every classical method."""
    import matplotlib.pyplot as plt

    table = Comparison("Sections 3 to 5: order of the classical methods", "method", "local", "p + 1", "global", "p")
    figure, panel = plt.subplots(figsize=(6, 4.5))
    rows = []
    for name, make in list(CLASSICAL.items())[:: 3 if quick else 1]:
        method = make()
        p = method.traits["free"].order_of("q")
        counts = (40, 60, 80) if p >= 3 else (100, 200, 400)
        local, found, steps, ends = measured_orders(method, counts)
        table.add(name, local, str(p + 1), found, str(p))
        rows += [(name, n, s, e) for n, s, e in zip(counts, steps, ends, strict=True)]
        panel.loglog([2.0 / n for n in counts], ends, "o-", label=f"{name}: {found:.2f}")
    panel.set(xlabel="dt", ylabel="error at t = 2", title="Henon-Heiles, global error")
    panel.legend(fontsize=6)
    table.show(console)
    _write(out / "orders.csv", ("method", "steps", "error of one step", "error at the end"), rows, console)
    save(figure, out / "orders.png", console)


# -- section 3.1: the bound of Euler's method --------------------------------------------------------------------------


def euler_bound(counts: tuple[int, ...] = (100, 200, 400, 800), span: float = 3.0) -> list[tuple[int, float, float]]:
    """Steps, largest error and Theorem 2's bound `dt M/(2 L) (e^{L t} - 1)` for the pendulum `z' = (v, -sin x)`.

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
        if np.any(error > bound + 1e-12):
            raise AssertionError(f"Theorem 2 is violated with {n} steps")
        rows.append((n, float(error.max()), float(bound[-1])))
    return rows


def euler(quick: bool, out: Path, console: Any) -> None:
    """The error of Euler's method under its bound."""
    table = Comparison(
        "Theorem 2: Euler's method on the pendulum, t to 3", "steps", "largest error", "bound", "times n"
    )
    rows = euler_bound()
    for n, error, bound in rows:
        table.add(str(n), error, bound, error * n)
    table.show(console)
    _write(out / "euler.csv", ("steps", "largest error", "bound"), rows, console)


# -- section 6.3: the multipliers --------------------------------------------------------------------------------------

SOLVERS: dict[str, tuple[Callable[[], Any], str]] = {
    "Gauss-Seidel": (lambda: hx.GaussSeidel(tol=1e-10), "about 650"),
    "SOR, 1.7": (lambda: hx.SOR(1.7, tol=1e-10), "about 90"),
    "Newton": (lambda: hx.Newton(tol=1e-10), "2.0"),
    "symmetric Newton": (lambda: hx.SymmetricNewton(tol=1e-10), "3.5-3.6"),
    "symmetric Newton, frozen": (lambda: hx.SymmetricNewton(tol=1e-10, frozen=True), "6.0"),
}


def sweeps(name: str, steps: int = 200) -> float:
    """Mean sweeps a step on the chain of ten, dt 0.05, tolerance 1e-10."""
    problem = hx.models.chain(10)
    method = hx.RATTLE(SOLVERS[name][0]())
    sol = hx.simulate(problem.system, method, problem.q0, problem.p0, dt=0.05, steps=steps, save_every=steps)
    return float(sol.stats["mean_iterations"])


def multipliers(quick: bool, out: Path, console: Any) -> None:
    """Sweeps of the multiplier solvers on the chain of ten."""
    table = Comparison("Section 6.3: mean sweeps a step, chain of ten, dt 0.05", "solver", "measured", "formula sheet")
    rows = []
    for name, (_, sheet) in SOLVERS.items():
        if quick and name == "Gauss-Seidel":
            continue
        found = sweeps(name)
        table.add(name, found, sheet)
        rows.append((name, found, sheet))
    table.show(console)
    _write(out / "multipliers.csv", ("solver", "sweeps a step", "formula sheet"), rows, console)


# -- section 6.4: symplecticity ----------------------------------------------------------------------------------------


def wedge_defects() -> dict[str, float]:
    """How far one step is from keeping `dq ^ dp`, and what velocity-level SHAKE leaves of the hidden constraint.

    Velocity-level SHAKE is measured on the vectors with `G dq = 0`, RATTLE on the tangent space of the cotangent
    bundle; `ambient` is RATTLE on all vectors, the control: there nothing is promised.
    """
    problem = hx.models.double_pendulum(masses=(1.0, 1.5))
    # a generic state, from a short run
    moved = hx.integrate(problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=0.02, steps=60)
    system = problem.system.prepare(problem.q0)
    q, p = moved
    z0 = jnp.concatenate([q.reshape(-1), p.reshape(-1)])
    n = q.size
    form = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])

    def one(method):
        def step(z):
            state = hx.State(*(x.reshape(q.shape) for x in jnp.split(z, 2)), jnp.asarray(0.0), 0)
            end = method.step(system, state, 0.05, method.init(system, state, 0.05))[0]
            return jnp.concatenate([end.q.reshape(-1), end.p.reshape(-1)])

        slope = np.asarray(jax.jit(jax.jacfwd(step))(z0))
        return slope.T @ form @ slope - form, step(z0)

    rows = np.asarray(system.linearize(q).todense())
    positions = np.block([[_null(rows), np.zeros((n, n))], [np.zeros((n, _null(rows).shape[1])), np.eye(n)]])
    both = jax.jacfwd(lambda z: jnp.concatenate([
        system.constraint(z[:n].reshape(q.shape)),
        system.hidden_constraint(z[:n].reshape(q.shape), z[n:].reshape(q.shape)),
    ]))(z0)  # fmt: skip
    tangent = _null(np.asarray(both))
    shake, after = one(hx.SHAKE("velocity"))
    rattle, _ = one(hx.RATTLE())
    end_q, end_p = (x.reshape(q.shape) for x in jnp.split(after, 2))
    return {
        "SHAKE, velocity form, on G dq = 0": float(np.abs(positions.T @ shake @ positions).max()),
        "its hidden constraint |G v|": float(jnp.max(jnp.abs(system.hidden_constraint(end_q, end_p)))),
        "RATTLE, on the cotangent bundle": float(np.abs(tangent.T @ rattle @ tangent).max()),
        "RATTLE, in the ambient space (control)": float(np.abs(rattle).max()),
    }


def _null(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the null space."""
    return np.linalg.svd(rows)[2][rows.shape[0] :].T


def wedge(quick: bool, out: Path, console: Any) -> None:
    """The wedge product under velocity-level SHAKE and RATTLE."""
    sheet = ("3e-16", "0.013 in the sheet's test", "3e-16", "of order one")
    table = Comparison("Section 6.4: one step of 0.05 on the double pendulum", "what", "measured", "formula sheet")
    found = wedge_defects()
    for (name, value), expected in zip(found.items(), sheet, strict=True):
        table.add(name, value, expected)
    table.show(console)
    _write(out / "wedge.csv", ("what", "measured"), list(found.items()), console)


# -- section 7: Baker-Campbell-Hausdorff and compositions --------------------------------------------------------------


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
        factors = [_exp(s * x), _exp(s * y)] + ([_exp(s * x)] if product == "XYX" else [])
        left.append(np.abs(_log(np.linalg.multi_dot(factors)) - bch_terms(s * x, s * y, product, misprint)).max())
    return scales, np.asarray(left)


def _exp(a: np.ndarray) -> np.ndarray:
    total = term = np.eye(len(a))
    for k in range(1, 30):
        term = term @ a / k
        total = total + term
    return total


def _log(a: np.ndarray) -> np.ndarray:
    """By the series of `2 artanh((a - 1)/(a + 1))`, for matrices near the identity."""
    one = np.eye(len(a))
    z = np.linalg.solve(a + one, a - one)
    total, power = np.zeros_like(a), z
    for k in range(60):
        total, power = total + 2 * power / (2 * k + 1), power @ z @ z
    return total


def bch(quick: bool, out: Path, console: Any) -> None:
    """The Baker-Campbell-Hausdorff formulas on random matrices: the remainder's order."""
    title = "Definition 12: order of what the formulas leave out, on random 5 x 5 matrices"
    table = Comparison(title, "formula", "remainder at 0.0675", "order", "expected")
    rows = []
    for name, product, misprint, expected in (
        ("e^X e^Y, to fifth order", "XY", False, "6"),
        ("e^X e^Y e^X, corrected", "XYX", False, "7"),
        ("e^X e^Y e^X, as printed", "XYX", True, "5"),
    ):
        scales, left = bch_remainders(product, misprint)
        slope = float(np.polyfit(np.log(scales), np.log(left), 1)[0])
        table.add(name, left[-1], slope, expected)
        rows.append((name, left[-1], slope, expected))
    table.show(console)
    _write(out / "bch.csv", ("formula", "remainder at 0.0675", "order", "expected"), rows, console)


COMPOSITIONS: dict[str, tuple[int, str]] = {
    "triple-jump-4": (4, "4.00"),
    "triple-jump-6": (6, "6.02"),
    "triple-jump-8": (8, "7.99"),
    "yoshida-6": (6, "5.99"),
    "suzuki-umeno-8": (8, "7.93"),
}


def composition_order(scheme: str, counts: tuple[int, ...], span: float = 2.0) -> tuple[float, np.ndarray, int]:
    """Order of a composition of RATTLE with unequal masses, the errors, and base steps a step."""
    problem = hx.models.double_pendulum(masses=(1.0, 2.0), angles=(0.7, 0.2))
    exact = _run(problem, hx.Composition(hx.RATTLE(), order=10), span / 200, 200)
    method = hx.Composition(hx.RATTLE(), scheme)
    errors = np.array([_distance(_run(problem, method, span / n, n), exact) for n in counts])
    slope = float(np.polyfit(np.log(counts), -np.log(errors), 1)[0])
    return slope, errors, len(method.scheme.coefficients)


def compositions(quick: bool, out: Path, console: Any) -> None:
    """Triple-jump compositions: order against cost, beside shorter lists of the same order."""
    import matplotlib.pyplot as plt

    table = Comparison(
        "Section 7.3: compositions of RATTLE, unequal masses", "scheme", "order", "sheet", "substeps", "3^(p/2-1)"
    )
    figure, panel = plt.subplots(figsize=(6, 4.5))
    rows = []
    counts = {"triple-jump-8": (40, 50, 64), "suzuki-umeno-8": (12, 16, 20)}
    usual = {4: (40, 60, 80), 6: (40, 60, 80)}
    for scheme, (p, sheet) in list(COMPOSITIONS.items())[: 2 if quick else None]:
        steps = counts.get(scheme) or usual[p]
        found, errors, cost = composition_order(scheme, steps)
        table.add(scheme, found, sheet, str(cost), str(3 ** (p // 2 - 1)))
        rows += [(scheme, n, cost * n, e) for n, e in zip(steps, errors, strict=True)]
        panel.loglog([cost * n for n in steps], errors, "o-", label=f"{scheme}: {found:.2f}")
    panel.set(xlabel="base steps to t = 2", ylabel="error", title="Double pendulum: error against cost")
    panel.legend(fontsize=7)
    table.show(console)
    _write(out / "compositions.csv", ("scheme", "steps", "base steps", "error"), rows, console)
    save(figure, out / "compositions.png", console)


ITEMS: dict[str, Callable[[bool, Path, Any], None]] = {
    "orders": orders,
    "euler": euler,
    "multipliers": multipliers,
    "wedge": wedge,
    "bch": bch,
    "compositions": compositions,
}
