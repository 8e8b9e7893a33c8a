"""Brugnano et al. (2018): Theorems 1, 3, 4, 6 and 7, Lemmas 1 to 3, (27), and HBVM(s, s) as a Gauss method."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import Legendre, Polynomial

import holonomix as hx

from .brugnano2018_tables import PROBLEMS, solve
from .items import Findings, item, order_of


def legendre(j: int) -> Polynomial:
    """`P_j`, orthonormal on [0, 1]."""
    shifted = Legendre.basis(j).convert(kind=Polynomial)(Polynomial([-1.0, 2.0]))
    return np.sqrt(2 * j + 1) * shifted


def integral(f: Polynomial, low: float, high: float) -> float:
    whole = f.integ()
    return float(whole(high) - whole(low))


@item(
    "theory",
    "the multiplier, Legendre coefficients, and the limits of many stages",
    "sections 1 to 4, Theorems 1, 3, 4, 6 and 7, Lemmas 1 to 3, equation (27)",
    "modified, planar and conical pendulum; Henon-Heiles",
    seconds=(4, 4),
)
def theory(found: Findings, quick: bool) -> None:
    """lambda is a function of (q, p); coefficients fall as h^j; with exact integrals the method has order two, and is
    exact where lambda is constant; HBVM(s, s) is the Gauss method.
    """
    problem = PROBLEMS[3]()
    system = problem.system
    sol = hx.simulate(system, hx.Composition(hx.RATTLE(), 8), problem.q0, problem.p0, dt=0.01, steps=104)
    # Theorem 1: q'' from differences of a fine solution gives lambda by least squares
    x = sol.q[100:105]
    h = 0.01
    second = (-x[0] + 16 * x[1] - 30 * x[2] + 16 * x[3] - x[4]) / (12 * h**2)
    q, p = jnp.asarray(sol.q[102]), jnp.asarray(sol.p[102])
    rows = jax.jacfwd(system.constraint)(q).reshape(-1)
    force = -np.asarray(system.gradient(q)).reshape(-1) - second.reshape(-1)
    lam = float(rows @ force / (rows @ rows))
    away = abs(lam - float(system.multipliers(q, p)[0]))
    found.compare("Theorem 1, (14): lambda(q, p) and the lambda of q''", "equal", f"to {away:.0e}", away < 1e-6)
    # Lemma 1: Legendre coefficients of a smooth function of c h are O(h^j)
    steps = (0.4, 0.2, 0.1)
    taylor = lambda h: Polynomial(
        [(1.3 * h) ** k / float(np.prod(np.arange(1, k + 1))) for k in range(15)]
    )  # e^{1.3 c h}
    orders = [order_of(steps, [abs(integral(legendre(j) * taylor(h), 0, 1)) for h in steps]) for j in range(5)]
    found.compare(
        "Lemma 1: coefficient j of a function of c h",
        "O(h^j)",
        "orders " + ", ".join(f"{x:.2f}" for x in orders),
        all(abs(x - j) < 0.3 for j, x in enumerate(orders)),
    )
    # Lemma 2: the matrix of double integrals is tridiagonal with +-xi_j
    s = 4
    exact = np.array([[integral(legendre(j) * legendre(i).integ(lbnd=0), 0, 1) for i in range(s)] for j in range(s)])
    xi = [1 / (2 * np.sqrt(4 * j**2 - 1)) for j in range(1, s)]
    right = np.diag([0.5] + [0.0] * (s - 1)) + np.diag(xi, -1) - np.diag(xi, 1)
    wrong = right.copy()
    wrong[-2, -2:] = (xi[-1], -xi[-1])  # as the last rows of (27) are printed
    off = float(np.max(np.abs(exact - right))), float(np.max(np.abs(exact - wrong)))
    found.compare(
        "Lemma 2, (26) and (27)",
        "X_s",
        f"diagonal (1/2, 0, ..., 0) with xi_j below and -xi_j above: to {off[0]:.0e} (as printed off by {off[1]:.2f})",
        off[0] < 1e-13 and off[1] > 0.05,
        correction="(27): the diagonal entries after the first are zero",
    )
    _local_statements(found, dataclasses.replace(problem, q0=q, p0=p))
    # Theorems 6 and 7: the order stays 2 for many stages and nodes, because the multiplier is constant
    table = found.table("HBVM(12, 6): largest errors to t = 2", "problem", "h", "(q, p)", "hidden constraint", keys=2)
    pendulum, errors = PROBLEMS[1](), []
    meshes = (0.1, 0.05, 0.025)
    for step in meshes:
        run = solve(pendulum, hx.HBVM(12, 6), step, round(2 / step))
        e = float(np.max(np.abs(run.z - np.concatenate(pendulum.reference(run.t), axis=1))))
        errors.append((e, float(np.max(np.abs(run.hidden)))))
        table.add(pendulum.name, f"{step:g}", *errors[-1])
    slopes = [order_of(meshes, e) for e in np.transpose(errors)]
    found.compare(
        "Theorem 6: (q, p) and hidden constraint as s and k grow",
        "O(h^2)",
        f"orders {slopes[0]:.2f} and {slopes[1]:.2f}",
        all(abs(x - 2) < 0.2 for x in slopes),
    )
    conical = PROBLEMS[2]()
    run = solve(conical, hx.HBVM(12, 6), 0.1, 20)
    e = float(np.max(np.abs(run.z - np.concatenate(conical.reference(run.t), axis=1))))
    table.add(conical.name, "0.1", e, float(np.max(np.abs(run.hidden))))
    found.compare("Theorem 6 with a constant multiplier", "exact", f"to {e:.0e}", e < 1e-12)
    # section 4: HBVM(s, s) is the Gauss method, which is symplectic; HBVM(k, s) with k > s conserves energy instead
    free = hx.models.henon_heiles()
    ends = [hx.simulate(free, m, dt=0.1, steps=20) for m in (hx.HBVM(2, 2), hx.Gauss(2), hx.HBVM(4, 2))]
    same = float(np.max(np.abs(ends[0].q - ends[1].q)))
    keeps = [float(np.max(np.abs(x.energy_error()))) for x in ends]
    found.compare(
        "section 4: HBVM(s, s) without constraints",
        "the s-stage Gauss method, symplectic",
        f"equal to {same:.0e}; energy errors {keeps[0]:.0e}, and {keeps[2]:.0e} with k = 2s",
        same < 1e-12 and keeps[2] < 1e-14,
    )


def _local_statements(found: Findings, problem: hx.Problem) -> None:
    """Theorem 3, Lemma 3 and Theorem 4 from a generic state of the modified pendulum."""
    system, q, p = problem.system, problem.q0, problem.p0
    free = hx.System(lambda x: system.potential(x) + 0.7 * system.constraint(x)[0])
    drift = float(np.max(np.abs(hx.simulate(free, hx.HBVM(12, 6), q, p, dt=0.1, steps=20).energy_error())))
    found.compare(
        "Theorem 3: H + lambda_0 g for lambda_0 = 0.7", "conserved for every lambda_0", f"to {drift:.0e}", drift < 1e-13
    )
    steps, rows = (0.1, 0.05, 0.025), []
    gradient = jax.jacfwd(lambda x: system.constraint(x)[0])
    bend = jax.jvp(gradient, (q,), (p,))[1]  # unit mass
    for h in steps:
        sol = hx.simulate(problem, hx.Composition(hx.RATTLE(), 8), dt=h / 2, steps=2)
        mean = sum(w * gradient(jnp.asarray(x)) for w, x in zip((1 / 6, 2 / 3, 1 / 6), sol.q))  # Simpson's rule
        run = solve(problem, hx.HBVM(12, 6), h, 1)
        gaps = (
            mean - gradient(q) - h / 2 * bend,
            run.multipliers[0] - system.multipliers(q, p),
            run.q[1] - sol.q[2],
            run.p[1] - sol.p[2],
            run.hidden[1],
        )
        rows.append([float(np.max(np.abs(x))) for x in gaps])
    orders = [order_of(steps, x) for x in np.transpose(rows)]
    found.compare("Lemma 3: remainder of rho_0(u)", "O(h^2)", f"O(h^{orders[0]:.2f})", orders[0] > 1.8)
    found.compare(
        "Theorem 4, one step: multiplier, q, p and hidden constraint",
        "O(h), O(h^2), O(h^2), O(h^2)",
        ", ".join(f"O(h^{x:.2f})" for x in orders[1:]),
        orders[1] > 0.8 and min(orders[2:]) > 1.8,
    )


ITEMS = (theory,)
