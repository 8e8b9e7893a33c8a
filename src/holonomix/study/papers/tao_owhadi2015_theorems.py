"""Tao & Owhadi (2015): theorems of section 2 for arbitrary coefficients, leakage (4.1), and the appendix.

Theorems 2.7 and 2.9 and Lemma 2.13 are about integrators with arbitrary functions f and g, which are random here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.core.types import Numbers
from holonomix.mechanics.abstract import AbstractSystem
from holonomix.methods.partitioned import SYMPLECTIC_EULER

from .items import Findings, form_defect, item, legend, order_of, rigid_reference, symplectic_defect

BETA, OMEGA = 0.4, 20.0
Vector = Callable[[np.ndarray], np.ndarray]


# -- section 2.3, for any f and g --------------------------------------------------------------------------------------

MASS = np.diag([1.0, 2.0])
STIFF = np.array([[2.0, 0.5], [0.5, 1.5]])
PULL: Vector = lambda x: STIFF @ x + 0.3 * x**3  # the gradient of V
TURN: Vector = lambda x: np.array([np.sin(x[1]), 0.4 * x[0] ** 2])  # no gradient


def verlet_step(x: np.ndarray, v: np.ndarray, h: float, force: Vector) -> tuple[np.ndarray, np.ndarray]:
    """One step of (2.10) with a force that is a function of x."""
    now = force(x)
    new = x + h * v + h**2 / 2 * now
    return new, v + h / 2 * (now + force(new))


def regularized(h: float) -> tuple[Vector, Vector]:
    """a_k and the force on the velocities of (2.9), with f and g unrelated to V."""
    matrix = lambda x: np.array([[1.0 + x[0] ** 2, 0.3], [-0.2, np.cos(x[1])]])
    inverse = np.linalg.inv(MASS)
    a: Vector = lambda x: -np.linalg.solve(np.eye(2) + h**2 * inverse @ matrix(x), inverse @ PULL(x))
    return a, lambda x: a(x) + h**4 * TURN(x)


@item(
    "theorems",
    "consistency, symmetry and symplecticity for arbitrary f",
    "Theorems 2.4 (1), 2.7 and 2.9, Lemma 2.13, Remarks 2.14 and 2.15, Integrator 2.6",
    "functions f and g that have nothing to do with V, in two degrees of freedom",
    seconds=(5, 8),
)
def theorems(found: Findings, quick: bool) -> None:
    """Whole classes of integrators are of third order locally, symmetric, and symplectic if f' is symmetric."""
    x0, v0 = np.array([0.7, -0.4]), np.array([0.3, 0.5])
    exact_force: Vector = lambda x: -np.linalg.solve(MASS, PULL(x))

    def local(h: float) -> float:
        a, b = regularized(h)
        x = x0 + h * v0 + h**2 / 2 * a(x0)
        v = v0 + h / 2 * (b(x0) + b(x))
        ex, ev = x0, v0
        for _ in range(200):
            ex, ev = verlet_step(ex, ev, h / 200, exact_force)
        return float(max(np.max(np.abs(x - ex)), np.max(np.abs(v - ev))))

    steps = (0.08, 0.04, 0.02)
    order = order_of(steps, [local(h) for h in steps])
    found.compare(
        "Theorem 2.7: error of one step of (2.9) with arbitrary f and g", "O(h^3)", f"O(h^{order:.2f})", order > 2.8
    )
    x, v = x0, v0
    for _ in range(100):
        x, v = verlet_step(x, v, 0.1, TURN)
    x, v = x, -v
    for _ in range(100):
        x, v = verlet_step(x, v, 0.1, TURN)
    back = float(max(np.max(np.abs(x - x0)), np.max(np.abs(v + v0))))
    found.compare(
        "Theorem 2.9: (2.10) with an arbitrary f, 100 steps and back", "symmetric", f"{back:.0e}", back < 1e-11
    )

    def defect(force: Callable[..., Any], mass: float = 1.0, h: float = 0.3) -> float:
        """The symplectic defect of (2.10) in (x, p) with p = mass v."""

        def step(z: Numbers) -> Any:
            x, v = z[:2], z[2:] / mass
            new = x + h * v + h**2 / 2 * force(x)
            return jnp.concatenate([new, mass * (v + h / 2 * (force(x) + force(new)))])

        return form_defect(jax.jacfwd(step)(jnp.asarray([*x0, *v0])))

    gradient = lambda x: -(jnp.asarray(STIFF) @ x + 0.3 * x**3)
    turning = lambda x: jnp.stack([jnp.sin(x[1]), 0.4 * x[0] ** 2])
    kept, lost = defect(gradient), defect(turning)
    found.compare(
        "Lemma 2.13: symplectic if f' is symmetric",
        "yes",
        f"defect {kept:.0e}; {lost:.2f} for an f' that is not",
        kept < 1e-14 and lost > 1e-3,
        correction="Lemma 2.13 and Theorem 2.4 (2) hold for M a multiple of the identity",
    )
    # Remark 2.14: Hess V diagonal in a basis that does not depend on x
    turn = jnp.asarray([[0.8, -0.6], [0.6, 0.8]])
    fixed = hx.System(lambda q: jnp.sum(jnp.cosh(turn @ q) + 0.2 * (turn @ q) ** 4))
    moving = hx.System(lambda q: jnp.cosh(q[0]) + q[0] ** 2 * q[1] ** 2 + q[1] ** 2)
    point = jnp.asarray([0.7, -0.4]), jnp.asarray([0.3, 0.5])
    zss = hx.ZhangSkeelSimplified(BETA)
    one, other = (symplectic_defect(system, zss, *point, 0.5) for system in (fixed, moving))
    found.compare(
        "Remark 2.14: Z&Ss where Hess V has a constant eigenbasis",
        "symplectic",
        f"defect {one:.0e}; {other:.0e} where it has not",
        one < 1e-14 and other > 1e-6,
    )
    # Remark 2.15: the error of a nonlinear solve shows as a symplectic defect
    loose, tight, direct = _solve_defects()
    found.compare(
        "Remark 2.15: symplectic defect of Newmark by two Newton iterations, solved to round-off, and of Z&S",
        "larger for nonlinear solves than for linear ones",
        f"{loose:.0e}, {tight:.0e}, {direct:.0e}",
        loose > 10 * direct,
    )
    found.note("Remark 2.15 holds for solves with a tolerance; solved to round-off, Newmark is as symplectic as Z&S.")
    # Theorem 2.4 (1) and the stiff form: spectral radius one for every h if beta >= 1/4
    scan = hx.certificates.linear_stability(
        {"Z&Ss": hx.ZhangSkeelSimplified(0.25), "Z&Ss, 0.24": hx.ZhangSkeelSimplified(0.24)}
    )
    limits = [float(x) for x in scan.limit()]
    found.compare(
        "Theorem 2.4 (1): Z&Ss unconditionally linearly stable",
        "beta >= 1/4",
        f"first unstable h omega: {limits[0]:g} at beta 1/4, {limits[1]:.3g} at 0.24",
        np.isinf(limits[0]) and np.isfinite(limits[1]),
    )
    bounded = _stiff_bounded()
    found.compare(
        "Integrator 2.6 with V_1 quadratic, eps = 1e-3 and h = 0.1, 1, 10",
        "bounded for beta > 1/4 + O(eps)",
        f"largest |x| over 2000 steps {bounded:.2f} from |x| = 1",
        bounded < 10,
    )


def _solve_defects() -> tuple[float, float, float]:
    """Defects of one step of pushforward Newmark by two Newton iterations and fully, and of Z&S."""
    system, h = hx.System(lambda q: jnp.cosh(q[0]) + q[0] ** 2 * q[1] ** 2 + q[1] ** 2), 0.5
    point = jnp.asarray([0.7, -0.4]), jnp.asarray([0.3, 0.5])

    def loose(z: Numbers) -> Any:
        x, p = z[:2], z[2:]

        def acceleration(x: Numbers) -> Any:  # two Newton iterations for a = -grad V(x + beta h^2 a)
            a = jnp.zeros(2)
            for _ in range(2):
                r = a + system.gradient(x + BETA * h**2 * a)
                a = a - jnp.linalg.solve(jnp.eye(2) + BETA * h**2 * jax.hessian(system.potential)(x), r)
            return a

        new = x + h * p + h**2 / 2 * acceleration(x)
        return jnp.concatenate([new, p + h / 2 * (acceleration(x) + acceleration(new))])

    rough = form_defect(jax.jacfwd(loose)(jnp.concatenate(point)))
    fully = symplectic_defect(system, hx.PushforwardNewmark(BETA), *point, h)
    return rough, fully, symplectic_defect(system, hx.ZhangSkeel(BETA), *point, h)


def _stiff_bounded() -> float:
    """Largest |x| of (2.8) with V_0 = cos x_1 + x_2^2/2 (bounded second derivative) and V_1 quadratic."""
    eps, worst = 1e-3, 0.0
    hess = np.array([[2.0, 1.0], [1.0, 2.0]]) / eps
    for h in (0.1, 1.0, 10.0):
        matrix = np.eye(2) + 0.3 * h**2 * hess
        force: Vector = lambda x, m=matrix: -np.linalg.solve(m, np.array([-np.sin(x[0]), x[1]]) + hess @ x)
        x, v = np.array([1.0, 0.0]), np.zeros(2)
        for _ in range(2000):
            x, v = verlet_step(x, v, h, force)
            worst = max(worst, float(np.max(np.abs(x))))
    return worst


# -- section 4.1: regular and chaotic regions --------------------------------------------------------------------------


def separation(problem: hx.Problem, system: AbstractSystem, method: hx.AbstractMethod, h: float, t1: float) -> float:
    """The largest growth factor up to t1 of the distance between two initial states 1e-9 apart."""
    shift = 1e-9 * np.array([[0.0, 0.0], [0.6, 0.8]])
    q1, p1 = hx.project(problem.system, problem.q0 + shift, problem.p0)
    runs = [
        hx.simulate(system, method, q, p, dt=h, t1=t1, save_every=round(1 / h), throw=False)
        for q, p in ((problem.q0, problem.p0), (q1, p1))
    ]
    if any(sol.status.failed for sol in runs):
        return float("nan")  # a run that stopped early does not classify its region
    apart = np.sqrt(np.sum((runs[0].q - runs[1].q) ** 2, axis=(1, 2)))
    return float(np.max(apart) / apart[0])


@item(
    "leakage",
    "regular and chaotic regions",
    "section 4.1, Results",
    "two starts 1e-9 apart, five methods, t to 500; sections to t = 1000",
    quick="t to 200 and 400",
    seconds=(1.6, 2),
)
def leakage(found: Findings, quick: bool) -> None:
    """None of the symplectic simulations leaks between regular and chaotic regions."""
    t1 = 200.0 if quick else 500.0
    starts = {
        "regular (the paper's)": hx.models.double_pendulum(),
        "chaotic": hx.models.double_pendulum(angles=(2.2, 2.4)),
    }
    table = found.table(f"Growth of a distance of 1e-9 up to t = {t1:g}", "method", *starts)
    rows: dict[str, list[float]] = {}
    for name, stiff, method, parts in (
        ("reference, order 8", False, hx.Composition(hx.RATTLE(), 8), 2),
        ("SHAKE (row 2)", False, hx.SHAKE(), 1),
        ("variational Euler, h/20 (row 3)", True, hx.PartitionedRungeKutta(SYMPLECTIC_EULER), 20),
        ("Newmark (row 4)", True, hx.Newmark(BETA), 1),
        ("Z&S (row 6)", True, hx.ZhangSkeel(BETA), 1),
    ):
        system = lambda x, stiff=stiff: x.system.penalized(OMEGA) if stiff else x.system
        rows[name] = [
            separation(x, system(x), method, h / parts, t1) for x, h in zip(starts.values(), (0.1, 0.02), strict=True)
        ]
        table.add(name, *rows[name])
    # linear growth reaches about t1 times the initial distance, exponential growth the size of the arms
    regular, chaotic = (np.array([row[k] for row in rows.values()]) for k in (0, 1))
    found.compare(
        "a regular trajectory stays regular",
        "no leakage with rows 1 to 4 and 6",
        f"growth at most {regular.max():.0f}, of the size of t1 = {t1:g}",
        regular.max() < 20 * t1,
        why="nearby trajectories of the regular start part exponentially with at least one of the methods",
    )
    found.compare(
        "a chaotic trajectory stays chaotic",
        "no leakage",
        f"growth at least {chaotic.min():.0e}",
        chaotic.min() > 1e5,
        why="with at least one method the chaotic start does not part exponentially",
    )
    found.note(
        "The chaotic start, from angles 2.2 and 2.4, is ours, with h = 0.02: there Z&S with h = 0.1 ends with a matrix "
        "that is not positive definite."
    )
    axes = found.panels("leakage", 1, 3, (7.0, 2.7), sharey=True, sharex=True)
    problem = starts["regular (the paper's)"]
    for panel, (name, system, method, h) in zip(
        axes,
        (
            ("reference", problem.system, hx.Composition(hx.RATTLE(), 8), 0.05),
            ("SHAKE, $h = 0.1$", problem.system, hx.SHAKE(), 0.1),
            ("Z&S, $h = 0.1$", problem.system.penalized(OMEGA), hx.ZhangSkeel(BETA), 0.1),
        ),
    ):
        sol = hx.simulate(system, method, problem.q0, problem.p0, dt=h, t1=2 * t1)
        phi, rate = section(sol)
        panel.plot(phi, rate, ".", ms=1.5)
        panel.set(title=name, xlabel=r"$\phi$", xticks=(-0.5, 0, 0.5))
    axes[0].set_ylabel(r"$d\phi/dt$")


def section(sol: hx.Solution) -> tuple[np.ndarray, np.ndarray]:
    """Angle of the second rod and its rate where the first one passes the vertical to the right."""
    theta = np.arctan2(sol.q[:, 0, 0], -sol.q[:, 0, 1])
    arm = sol.q[:, 1] - sol.q[:, 0]
    phi = np.unwrap(np.arctan2(arm[:, 0], -arm[:, 1]))
    rate = np.gradient(phi, sol.t)
    k = np.flatnonzero((theta[:-1] < 0) & (theta[1:] >= 0) & (np.abs(np.diff(theta)) < 1))
    share = theta[k] / (theta[k] - theta[k + 1])
    blend = lambda x: x[k] + share * (x[k + 1] - x[k])
    return blend(phi), blend(rate)


# -- appendix ----------------------------------------------------------------------------------------------------------


@item(
    "appendix",
    "size of g and of the error over omega; Figure A1",
    "appendix, Lemmas A.1 and A.2, Remark A.3, Figure A1",
    "Verlet with omega h = 0.05 to t = 5, omega 10 to 80",
    seconds=(2, 2),
)
def appendix(found: Findings, quick: bool) -> None:
    """|g| is O(1/omega) from any start, O(1/omega^2) from a tangent one, and so is the error."""
    problem = hx.models.double_pendulum()
    omegas = (10.0, 20.0, 40.0, 80.0)
    table = found.table(
        "Penalized double pendulum to t = 5", "omega", "|g|, tangent start", "|g|, other start", "error of q"
    )
    exact = rigid_reference(problem, 0.05, 5.0)
    pushed = problem.p0 + jnp.asarray([[0.0, 0.5], [0.0, 0.0]])  # along the first rod: not tangent
    rows = []
    for omega in omegas:
        system, h = problem.system.penalized(omega), 0.05 / round(omega)
        sizes, error = [], np.nan
        for p0 in (problem.p0, pushed):
            sol = hx.simulate(system, hx.StormerVerlet(), problem.q0, p0, dt=h, t1=5.0, save_every=round(omega))
            dense = hx.simulate(system, hx.StormerVerlet(), problem.q0, p0, dt=h, t1=5.0, save_every=1)
            sizes.append(float(np.max(np.abs(hx.certificates.penalty_multipliers(dense, 0.0)[1]))) / omega**2)
            if p0 is problem.p0:
                error = float(np.max(np.abs(sol.q - exact.q)))
        rows.append((*sizes, error))
        table.add(f"{omega:g}", *rows[-1])
    orders = [-order_of(omegas, x) for x in np.transpose(rows)]
    found.compare(
        "Remark A.3: |g| from a tangent start", "O(omega^-2)", f"O(omega^-{orders[0]:.2f})", abs(orders[0] - 2) < 0.2
    )
    found.compare(
        "Lemma A.1: |g| from any start",
        "O(omega^-1)",
        f"O(omega^-{orders[1]:.2f})",
        abs(orders[1] - 1) < 0.2,
        correction="Lemma A.1: the energy has omega^2 |g|^2/2",
    )
    found.compare(
        "Remark A.3 and section 4.1: error of the positions",
        "O(omega^-2)",
        f"O(omega^-{orders[2]:.2f})",
        orders[2] > 1.8,
    )
    axes = found.panels("figureA1", size=(3.4, 1.9))
    system = hx.models.planar_pendulum().system.penalized(OMEGA)
    sol = hx.simulate(system, hx.StormerVerlet(), [0.6, -0.8], [0.0, 0.0], dt=0.002, t1=3.0)
    radius = np.linalg.norm(sol.q, axis=1)
    drawn = sol.q / radius[:, None] * (1 + 60 * (radius - 1))[:, None]
    angle = np.linspace(-2.4, -0.75, 100)
    axes.plot(np.cos(angle), np.sin(angle), "k--", lw=0.9, label="manifold $g = 0$ (slow, $x$)")
    axes.plot(*drawn.T, lw=0.8, ls="-", label="motion, distance $y$ times 60 (fast)")
    axes.set(aspect="equal", xlabel="$q_1$", ylabel="$q_2$")
    legend(axes, 1)
    found.note("Figure A1 is a sketch in the paper; here it is drawn from a computed motion of a penalized pendulum.")


ITEMS = (theorems, leakage, appendix)
