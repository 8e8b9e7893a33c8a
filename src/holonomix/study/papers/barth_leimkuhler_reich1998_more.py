"""Barth, Leimkuhler & Reich (1998): time reversal, the multiplier as a function, and two more statements on the rod."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.build.models.rod import backbone, wall_distances

from .items import Findings, item, legend, order_of

# -- sections 2 and 3: time reversal -----------------------------------------------------------------------------------


@item(
    "reversibility",
    "time reversal of the variable steps",
    "pages 4 to 6, sections 2 and 3",
    "double pendulum and rod, 100 steps out and 100 back",
    quick="U2 only",
    seconds=(0.5, 13),
)
def reversibility(found: Findings, quick: bool) -> None:
    """The scheme (3.9) to (3.14) is invariant under the reversal (q, p, t) to (q, -p, -t)."""
    pendulum = hx.models.double_pendulum((1.0, 1.0), masses=(1e-3, 1.0), angles=(np.pi / 2, 0.0))
    rod = hx.models.cosserat_rod()
    table = found.table(
        "Forward, reversed, and as many steps again", "method", "problem", "distance from the start", keys=2
    )
    for name, problem, method, dt in (
        ("VRATTLE, U1, (3.14)", pendulum, hx.VRATTLE(hx.monitors.ForceMonitor()), 1e-3),
        ("VRATTLE, U1, (3.15)", pendulum, hx.VRATTLE(hx.monitors.ForceMonitor(), update="explicit"), 1e-3),
        ("VRATTLE, U2, (3.14)", pendulum, hx.VRATTLE(hx.MultiplierMonitor(floor=0.5)), 1e-3),
        ("VRATTLE, U3, (3.14)", rod, hx.VRATTLE(hx.monitors.WallMonitor(wall_distances, power=3.0)), 0.01),
    ):
        if quick and "U2" not in name:
            continue
        certificate = hx.certify(problem, method, dt=dt, measure="symmetric")
        away = float(certificate["symmetric"].measured)
        table.add(name, "rod" if problem is rod else "double pendulum", away)
        found.compare(f"{name}: symmetric under (q, p, t) -> (q, -p, -t)", "yes", f"returns to {away:.0e}", away < 1e-9)


# -- section 4: the multiplier as a function of the state --------------------------------------------------------------


@item(
    "multiplier",
    "the multiplier as a function of the state",
    "pages 7 to 9, section 4, Lemmas 4.1 and 4.2, equations (4.3) and (4.4)",
    "double pendulum with masses 1.3 and 0.7",
    seconds=(1.2, 1.6),
)
def multiplier(found: Findings, quick: bool) -> None:
    """Differentiating the constraint twice gives lambda as a function of q and p, and U2 = |Lambda|."""
    problem = hx.models.double_pendulum((1.0, 1.0), masses=(1.3, 0.7), angles=(0.9, 0.2))
    run = lambda n: hx.simulate(problem, hx.Composition(hx.RATTLE(), 8), dt=0.01, steps=n)
    sol = run(60)
    q, p = jnp.asarray(sol.q[50]), jnp.asarray(sol.p[50])
    mass = jnp.asarray([[1.3], [0.7]])
    v, system = p / mass, problem.system
    g = system.constraint
    # Lemma 4.1 along the motion, with the acceleration from differences
    h = 0.01
    acceleration = (sol.q[51] - 2 * sol.q[50] + sol.q[49]) / h**2
    second = (sol.q[52] - 2 * sol.q[50] + sol.q[48]) / (2 * h) ** 2
    acceleration = jnp.asarray((4 * acceleration - second) / 3)
    rows = lambda x: jax.jacfwd(g)(x).reshape(2, -1)
    lemma1 = float(jnp.max(jnp.abs(rows(v) @ v.reshape(-1) + rows(q) @ acceleration.reshape(-1))))
    found.compare("Lemma 4.1: G(q') q' + G(q) q'' along the motion", "0", f"{lemma1:.0e}", lemma1 < 1e-6)
    r = jax.random.normal(jax.random.key(0), q.shape)
    tilde = jnp.asarray([jnp.sum(r[0] ** 2), jnp.sum((r[1] - r[0]) ** 2)])
    lemma2 = float(jnp.max(jnp.abs(rows(r) @ r.reshape(-1) - 2 * tilde)))
    found.compare("Lemma 4.2: G(r) r - 2 g~(r) for any r", "0", f"{lemma2:.0e}", lemma2 < 1e-14)
    # (4.3), with the sign of the equations of motion
    inverse = jnp.repeat(1 / mass[:, 0], 2)
    gram = rows(q) @ (inverse[:, None] * rows(q).T)
    pull = rows(q) @ (inverse * system.gradient(q).reshape(-1))
    bend = rows(v) @ v.reshape(-1)
    minus, plus = (jnp.linalg.solve(gram, bend + s * pull) for s in (-1, 1))
    lam = jnp.asarray(sol.multipliers[50])
    away = [float(jnp.max(jnp.abs(x - lam))) for x in (minus, plus)]
    found.compare(
        "(4.3): the multiplier as a function of q and p",
        "+ G M^-1 grad V",
        f"with minus to {away[0]:.0e}, with plus off by {away[1]:.2g}",
        away[0] < 1e-12 and away[1] > 0.1,
        correction="(4.3): the gradient of V enters with a minus sign",
    )
    slope = jax.grad(lambda p: jnp.linalg.norm(system.multipliers(q, p)))(p)
    printed = 2 * (lam / jnp.linalg.norm(lam)) @ jnp.linalg.solve(gram, rows(v)) * inverse
    size = float(jnp.max(jnp.abs(slope)))
    off = float(jnp.max(jnp.abs(slope.reshape(-1) - printed)))
    found.compare(
        "derivative of U2 = |Lambda| with respect to p",
        "2/|Lambda| Lambda^T (G M^-1 G^T)^-1 G(M^-1 p) M^-1",
        f"equal to {off:.0e} (its size is {size:.2g})",
        off < 1e-12 * max(size, 1.0),
        why="autodiff gives another value",
    )


# -- section 5: the rod ------------------------------------------------------------------------------------------------


def frame(s: np.ndarray) -> tuple[np.ndarray, ...]:
    """A bent and twisted rod: center line z and directors d1, d2, d3 = z' at arc lengths s (a helix with twist)."""
    radius, pitch, twist = 0.35, 0.55, 3.0
    k = 1 / np.hypot(radius, pitch)
    angle, zero = 3.0 * s * k, np.zeros_like(s)
    # z has |z'| = 1 for s scaled by 3
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle), pitch * angle], axis=1) / 3.0
    tangent = k * np.stack([-radius * np.sin(angle), radius * np.cos(angle), pitch + zero], axis=1)
    normal = np.stack([-np.cos(angle), -np.sin(angle), zero], axis=1)
    binormal = np.cross(tangent, normal)
    c, t = np.cos(twist * s)[:, None], np.sin(twist * s)[:, None]
    return z, c * normal + t * binormal, -t * normal + c * binormal, tangent


@item(
    "figure5.1",
    "sketch of a Cosserat rod, and its strains",
    "pages 11 and 12, section 5, Figure 5.1, equation (5.1)",
    "a twisted helix, 40 to 160 cells",
    seconds=(0.1, 0.1),
)
def figure5_1(found: Findings, quick: bool) -> None:
    """Directors turn along the rod as d_i' = u x d_i, with the strains u from d1, d2 and their derivatives."""
    axes = found.panels("figure5.1", size=(3.4, 3.6), subplot_kw={"projection": "3d"})
    s = np.linspace(0, 1, 161)
    z, d1, d2, d3 = frame(s)
    loop = np.linspace(0, 2 * np.pi, 41)
    for k in range(0, 161, 16):
        ring = z[k] + 0.06 * (np.cos(loop)[:, None] * d1[k] + np.sin(loop)[:, None] * d2[k])
        axes.plot(*ring.T, color="0.6", lw=0.7, ls="-")
    axes.plot(*z.T, "k-", lw=1.4, label="center line $z(s)$")
    for turn, style in ((0.0, "--"), (np.pi, ":")):
        line = z + 0.06 * (np.cos(turn) * d1 + np.sin(turn) * d2)
        axes.plot(*line.T, ls=style, lw=1.0, label="along $d_1$" if turn == 0 else "along $-d_1$")
    axes.set(xlabel="$x$", ylabel="$y$", zlabel="$z$")
    axes.locator_params(nbins=3)
    axes.set_box_aspect((1, 1, 1.6), zoom=0.85)
    legend(axes)
    ortho = max(float(np.max(np.abs(np.sum(a * b, axis=1) - c))) for a, b, c in ((d1, d2, 0), (d1, d1, 1), (d2, d2, 1)))
    cross = float(np.max(np.abs(np.cross(d1, d2) - d3)))
    found.compare(
        "directors: d1 . d2 = 0, |d1| = |d2| = 1, d3 = d1 x d2",
        "yes",
        f"to {max(ortho, cross):.0e}",
        max(ortho, cross) < 1e-14,
    )
    errors: list[list[float]] = []
    for n in (40, 80, 160):
        grid = np.linspace(0, 1, n + 1)
        z, d1, d2, d3 = frame(grid)
        slope = lambda x, g=grid: (x[2:] - x[:-2]) / (2 * (g[1] - g[0]))
        b1, b2, b3 = slope(d1), slope(d2), slope(d3)
        m1, m2, m3 = d1[1:-1], d2[1:-1], d3[1:-1]
        u1, u2 = np.sum(m3 * b2, axis=1), -np.sum(m3 * b1, axis=1)
        row = []
        for u3 in (np.sum(m2 * b1, axis=1), np.sum(m1 * b2, axis=1)):  # corrected, and as printed
            u = u1[:, None] * m1 + u2[:, None] * m2 + u3[:, None] * m3
            row.append(max(float(np.max(np.abs(b - np.cross(u, m)))) for b, m in ((b1, m1), (b2, m2), (b3, m3))))
        row.append(float(np.max(np.abs(slope(z) - m3))))
        errors.append(row)
    right, wrong, stretch = np.transpose(errors)
    table = found.table(
        "What central differences leave of (5.1) and of d3 = dz/ds", "cells", "(5.1)", "(5.1), printed u3", "d3 - dz/ds"
    )
    for n, row in zip((40, 80, 160), errors):
        table.add(n, *row)
    order = order_of((1 / 40, 1 / 80, 1 / 160), right)
    found.compare(
        "(5.1): d_i' = u x d_i with u1 = d3 . d2', u2 = -d3 . d1' and u3",
        "u3 = d1 . d2'",
        f"holds with u3 = d2 . d1' (differences leave O(ds^{order:.2f})), as printed it is off by {wrong[-1]:.2g}",
        order > 1.8 and wrong[-1] > 0.1,
        correction="section 5: the strain is u3 = d2 . d1'",
    )
    found.note("The paper's figure is a drawing; this one is drawn from frames that satisfy its constraints.")


def clamped_twice(cells: int, bend: float) -> tuple[Any, Any]:
    """A rod with both ends held upright, and a consistent shape: normals tilted by `bend sin(2 pi s)`."""
    rod = hx.models.cosserat_rod(cells, walls=())
    tilt = bend * np.sin(2 * np.pi * np.arange(cells + 1) / cells)
    normal = np.stack([np.sin(tilt), 0 * tilt, np.cos(tilt)], axis=1)
    q = np.zeros((cells, 9))
    q[:, :3] = np.cumsum((normal[1:] + normal[:-1]) / 2, axis=0) / cells
    q[:, 3], q[:, 5], q[:, 7] = np.cos(tilt[1:]), -np.sin(tilt[1:]), 1.0
    end, own = jnp.asarray(q[-1, :3]), rod.system.constraint

    def rows(q: jax.Array) -> Any:
        d1, d2 = q[-1, 3:6], q[-1, 6:9]
        return jnp.concatenate([own(q), q[-1, :3] - end, jnp.stack([d1[1], d1[2], d2[2]])])

    push = lambda v: rod.system.momentum(rod.q0, v.reshape(rod.q0.shape)).reshape(-1)
    mass = jax.jacfwd(push)(jnp.zeros(rod.q0.size))
    return hx.System(lambda q: rod.system.potential(q), rows, mass=mass), jnp.asarray(q)


@item(
    "both_ends",
    "a rod clamped at both ends",
    "pages 12 to 14, section 5 (the paper fixes one end)",
    "six cells, straight and buckled (ends 0.9 apart), 500 steps of 0.002",
    quick="four cells, 100 steps",
    seconds=(6, 6),
)
def both_ends(found: Findings, quick: bool) -> None:
    """After discretization the rod is a constrained system to which RATTLE applies."""
    cells = 4 if quick else 6
    table = found.table(f"Rod of {cells} cells, both ends clamped", "shape", "rows", "rank", "smallest singular value")
    ranks = {}
    for name, bend in (("straight", 0.0), ("buckled", 0.63)):
        system, q = clamped_twice(cells, bend)
        values = np.linalg.svd(np.asarray(jax.jacfwd(system.constraint)(q)).reshape(-1, q.size), compute_uv=False)
        ranks[name] = len(values) - int(np.sum(values > 1e-10 * values[0]))
        table.add(name, len(values), len(values) - ranks[name], values[-1])
    found.compare(
        "both ends may be clamped",
        "(only one end is fixed in its test)",
        f"the straight rod's constraints lose {ranks['straight']} rank, the buckled one's {ranks['buckled']}",
        ranks["straight"] == 1 and ranks["buckled"] == 0,
    )
    rows = np.asarray(jax.jacfwd(system.constraint)(q)).reshape(-1, q.size)
    sideways = np.zeros(q.shape)
    sideways[:, 1] = 1.0
    v = sideways.reshape(-1) - rows.T @ np.linalg.lstsq(rows.T, sideways.reshape(-1))[0]  # tangent
    p = system.momentum(q, jnp.asarray(v.reshape(q.shape)))
    sol = hx.simulate(system, hx.RATTLE(), q, p, dt=0.002, steps=100 if quick else 500, backend="array")
    energy = float(np.max(np.abs(sol.energy_error())) / np.max(np.abs(sol.energy())))
    held = float(np.max(sol.constraint_error()))
    axes = found.panels("both_ends", size=(3.4, 2.8))
    for k, style in zip(np.linspace(0, len(sol.t) - 1, 4).astype(int), ("-", "--", "-.", ":")):
        line = backbone(sol.q[k])
        axes.plot(line[:, 1], line[:, 2], ls=style, marker="o", ms=2, label=f"$t = {sol.t[k]:.2f}$")
    axes.set(xlabel="$y$", ylabel="$z$")
    legend(axes, 2)
    found.compare(
        "RATTLE on the buckled rod",
        "applies",
        f"constraints to {held:.0e}, energy to {energy:.1e}",
        held < 1e-11 and energy < 0.01,
    )


ITEMS = (reversibility, multiplier, figure5_1, both_ends)
