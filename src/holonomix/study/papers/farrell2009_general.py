"""Farrell (2009): Runge-Kutta and partitioned tableaus in general, multistep coefficients, and the lemmas."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Polynomial

import holonomix as hx
from holonomix.methods.multistep import adams_coefficients
from holonomix.methods.partitioned import LOBATTO_IIIAB, SYMPLECTIC_EULER
from holonomix.methods.tableaus import CLASSICAL, KUTTA3, Tableau, gauss_tableau, radau_tableau

from .farrell2009_composition import distance, run
from .items import Findings, form_defect, item, order_of

# six stages, order five: Butcher 1964
BUTCHER = Tableau(
    "Butcher, 6 stages",
    (
        (),
        (1 / 4,),
        (1 / 8, 1 / 8),
        (0.0, -1 / 2, 1.0),
        (3 / 16, 0.0, 0.0, 9 / 16),
        (-3 / 7, 2 / 7, 12 / 7, -12 / 7, 8 / 7),
    ),
    (7 / 90, 0.0, 32 / 90, 12 / 90, 32 / 90, 7 / 90),
    5,
)


def slope_on(problem: hx.Problem, method: hx.AbstractMethod, counts: tuple[int, ...], span: float) -> float:
    """Order of a method, against RK4 with a step so small that its error is below 1e-13."""
    exact = run(problem, hx.RK4(), span / 4000, 4000)
    return order_of([span / n for n in counts], [distance(run(problem, method, span / n, n), exact) for n in counts])


def difference_defect(problem: hx.Problem, method: hx.AbstractMethod, dt: float, momentum: float = 0.0) -> float:
    """The largest entry of `J^T W J - W` of one step, J by differences of order four (good to about 1e-11)."""
    n, gap = problem.q0.size, 1e-3
    start = np.concatenate([np.ravel(problem.q0), np.ravel(problem.p0) + momentum])

    def step(z: np.ndarray) -> np.ndarray:
        q, p = (x.reshape(problem.q0.shape) for x in np.split(z, 2))
        sol = hx.simulate(problem.system, method, q, p, dt=dt, steps=1)
        return np.concatenate([np.ravel(sol.q[-1]), np.ravel(sol.p[-1])])

    columns = []
    for e in gap * np.eye(2 * n):
        far, near = step(start + 2 * e) - step(start - 2 * e), step(start + e) - step(start - e)
        columns.append((8 * near - far) / (12 * gap))
    return form_defect(np.transpose(columns))


@item(
    "runge_kutta",
    "s-stage Runge-Kutta methods, explicit and implicit",
    "pages 9 to 12, section 3.4",
    "seven tableaus of one to six stages",
    quick="four of the tableaus",
    seconds=(0.8, 1.3),
)
def runge_kutta(found: Findings, quick: bool) -> None:
    """The class of s-stage methods is given by b_j and a_jk, chosen to match a Taylor method."""
    problem = hx.models.henon_heiles()
    tableaus = (KUTTA3, CLASSICAL, BUTCHER, gauss_tableau(1), gauss_tableau(2), gauss_tableau(3), radau_tableau(2))
    columns = ("tableau", "stages", "implicit", "order", "expected", "symplectic defect of one step")
    table = found.table("Runge-Kutta methods on Henon-Heiles to t = 2", *columns)
    off, right = 0.0, True
    for tableau in tableaus if not quick else (KUTTA3, BUTCHER, gauss_tableau(2), radau_tableau(2)):
        method, p = hx.RungeKutta(tableau), tableau.order
        counts = (100, 200, 400) if p <= 2 else (20, 30, 40) if p <= 4 else (24, 32, 48) if p == 5 else (8, 12, 16)
        slope = slope_on(problem, method, counts, 2.0)
        defect = difference_defect(problem, method, 0.5)
        table.add(tableau.name, len(tableau.b), "no" if tableau.explicit else "yes", slope, p, defect)
        off = max(off, abs(slope - p))
        right &= (defect < 1e-9) == tableau.symplectic
    found.compare(
        "order of s-stage methods with given b_j, a_jk",
        "that of the Taylor method which the coefficients match",
        f"within {off:.2f} of it for {len(table.rows)} tableaus",
        off < 0.25,
    )
    found.compare(
        "symplectic where b_i a_ij + b_j a_ji = b_i b_j (not in the paper)",
        "(no statement)",
        "the defect is at round-off for those tableaus and no others" if right else "not so",
        right,
    )


@item(
    "partitioned",
    "partitioned methods where H is not separable",
    "pages 13 and 14, section 5",
    "symplectic Euler and Lobatto IIIA-IIIB with 2, 3 and 4 stages",
    quick="without 4 stages",
    seconds=(3, 5),
)
def partitioned(found: Findings, quick: bool) -> None:
    """Systems u' = g(u, v), v' = h(u, v) can be treated with one set of coefficients for u and another for v."""
    problem = hx.models.double_pendulum_angles()
    columns = ("pair", "stages", "order", "expected", "symplectic defect of one step")
    table = found.table("Double pendulum in angles, u' = g(u, v), v' = h(u, v), to t = 1", *columns)
    off, worst = 0.0, 0.0
    for tableau in (SYMPLECTIC_EULER, *(LOBATTO_IIIAB[s] for s in ((2, 3) if quick else (2, 3, 4)))):
        method, p = hx.PartitionedRungeKutta(tableau), tableau.order
        counts = (200, 400, 800) if p == 1 else (20, 40, 80) if p == 2 else (8, 12, 16)
        slope = slope_on(problem, method, counts, 1.0)
        defect = difference_defect(problem, method, 0.1, 0.3)
        table.add(tableau.name, len(tableau.b), slope, p, defect)
        off, worst = max(off, abs(slope - p)), max(worst, defect)
    found.compare(
        "order of pairs of coefficients for positions and momenta",
        "different quadratures for u and v may be used",
        f"within {off:.2f} of the expected order for {len(table.rows)} pairs",
        off < 0.25,
    )
    found.compare("these pairs are symplectic (not in the paper)", "(no statement)", f"to {worst:.0e}", worst < 1e-9)


@item(
    "multistep",
    "multistep methods from interpolating polynomials",
    "pages 12 and 13, section 4, Definitions 4 and 5",
    "Adams-Bashforth with 2, 3 and 4 steps; two formulas with a_0 not zero",
    seconds=(0.4, 0.4),
)
def multistep(found: Findings, quick: bool) -> None:
    """Integrating the interpolating polynomial of known slopes gives an m-step method, explicit if b_m = 0."""
    table = found.table("Coefficients b_j of Adams-Bashforth", "steps m", "from the polynomial", "off the library by")
    worst = 0.0
    for m in (2, 3, 4):
        weights = []
        for j in range(m):
            basis = Polynomial([1.0])
            for k in range(m):
                basis = basis if k == j else basis * Polynomial([-k, 1.0]) / (j - k)
            weights.append(basis.integ()(m) - basis.integ()(m - 1))
        away = float(np.max(np.abs(np.asarray(weights) - adams_coefficients(m, False)[1][:-1])))
        table.add(m, ", ".join(f"{w:.6g}" for w in weights), away)
        worst = max(worst, away)
    found.compare(
        "b_j from the interpolating polynomial", "define a multistep method", f"to {worst:.0e}", worst < 1e-14
    )
    problem = hx.models.henon_heiles()
    midpoint = hx.LinearMultistep((-1.0, 0.0, 1.0), (0.0, 2.0, 0.0), label="two-step midpoint rule")
    milne = hx.LinearMultistep((-1.0, 0.0, 1.0), (1 / 3, 4 / 3, 1 / 3), label="Milne-Simpson (implicit)")
    table = found.table("Formulas with a_0 not zero, on Henon-Heiles to t = 2", "method", "order", "expected")
    for method, p in ((midpoint, 2), (milne, 4)):
        slope = slope_on(problem, method, (40, 60, 80), 2.0)
        table.add(method.name, slope, p)
        found.compare(
            f"{method.name}: order",
            p,
            f"{slope:.2f}",
            abs(slope - p) < 0.2,
            correction="Definition 4: the formula has all terms down to a_0 z_{n+1-m}",
        )


@item(
    "lemmas",
    "Taylor's theorem, the bound of Lemma 1, and the wedge product",
    "pages 5 to 10, Theorems 1 and 4, Lemma 1; pages 20 to 23, Theorem 5, Lemmas 2 and 3",
    "numbers drawn at random",
    seconds=(0.1, 0.1),
)
def lemmas(found: Findings, quick: bool) -> None:
    """Remainders of Taylor polynomials, (1 + x)^m <= e^(m x), and rules of the wedge product."""
    rng = np.random.default_rng(0)
    # Theorem 1 and 4: the remainder of a Taylor polynomial of degree p is O(h^{p+1})
    steps = np.array([0.2, 0.1, 0.05])
    one = [abs(np.exp(h) - (1 + h + h**2 / 2)) for h in steps]
    f = lambda t, y: np.sin(t + 2 * y)
    two = [abs(f(0.3 + h, 0.1 - h) - (f(0.3, 0.1) - h * np.cos(0.5) - h**2 / 2 * np.sin(0.5))) for h in steps]
    orders = order_of(steps, one), order_of(steps, two)
    found.compare(
        "Theorems 1 and 4: remainder of a Taylor polynomial of degree 2 in one and two variables",
        "O(h^3)",
        f"orders {orders[0]:.2f} and {orders[1]:.2f}",
        all(abs(x - 3) < 0.2 for x in orders),
    )
    x = np.linspace(-1, 3, 401)
    inside = all(np.all((0 <= (1 + x) ** m) & ((1 + x) ** m <= np.exp(m * x) * (1 + 1e-14))) for m in (1, 2, 5, 9))
    found.compare(
        "Lemma 1: 0 <= (1 + x)^m <= e^(m x)",
        "for x <= -1",
        f"for x >= -1; at x = -3, m = 3 the power is {(1 - 3.0) ** 3:g}",
        inside and (1 - 3.0) ** 3 < 0,
        correction="Lemma 1: x >= -1",
    )
    # Lemma 2: du ^ (A du) = 0 for symmetric A; a ^ b of two vectors xi, eta is a(xi).b(eta) - a(eta).b(xi)
    xi, eta = rng.normal(size=(2, 4))
    a = rng.normal(size=(4, 4))
    wedge = lambda m: abs(xi @ m @ eta - eta @ m @ xi)
    found.compare(
        "Lemma 2: du ^ (A du)",
        "0 for symmetric A",
        f"{wedge(a + a.T):.0e}; {wedge(a):.2f} for a general A",
        wedge(a + a.T) < 1e-14 and wedge(a) > 0.1,
    )
    # Lemma 3: dq ^ d(G^T lambda) = 0 where G dq = 0, on the sphere g = |q|^2 - 1 with any differential of lambda
    q = rng.normal(size=3)
    q /= np.linalg.norm(q)
    tangent = lambda v: v - q * (q @ v)
    first, second = tangent(rng.normal(size=3)), tangent(rng.normal(size=3))
    change = lambda v, d: 2 * v * 0.7 + 2 * q * d  # d(G^T lambda) with lambda = 0.7 and d lambda = d
    lemma3 = abs(first @ change(second, 0.3) - second @ change(first, -0.9))
    found.compare("Lemma 3: dq ^ d(G^T lambda) with G dq = 0", "0", f"{lemma3:.0e}", lemma3 < 1e-14)
    # Theorem 5: dq ^ dp is preserved if and only if J^T W J = W
    zero, eye = np.zeros((2, 2)), np.eye(2)
    form = np.block([[zero, eye], [-eye, zero]])
    b = rng.normal(size=(2, 2))
    kick = np.block([[eye, zero], [b + b.T, eye]])
    kept, lost = (np.max(np.abs(m.T @ form @ m - form)) for m in (kick, kick + 0.1 * np.eye(4)))
    found.compare(
        "Theorem 5: a map that keeps dq ^ dp is symplectic",
        "yes",
        f"defect {kept:.0e} for a kick with a symmetric matrix, {lost:.2f} for another map",
        kept < 1e-13 and lost > 0.01,
    )


ITEMS = (runge_kutta, multistep, partitioned, lemmas)
