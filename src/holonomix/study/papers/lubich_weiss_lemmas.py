"""Lubich & Weiss: Lemmas 2.1 and 5.1, the transformed variables of (18) and (22), and the error of Verlet in I_2."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.core.types import Numbers
from holonomix.methods.impulse import foot, nearest

from .items import Findings, item, legend, order_of

END, FINEST = 4.0, 0.025
ROWS = round(END / FINEST) + 1


@eqx.filter_jit
def _readings(system: hx.StiffSystem, q: Numbers | np.ndarray, p: Numbers | np.ndarray) -> tuple[Any, Any]:
    return jax.lax.map(lambda x: (system.tangent(*x), system.actions(*x)), (q, p))


def readings(system: hx.StiffSystem, sol: hx.Solution) -> tuple[np.ndarray, np.ndarray]:
    """Projected momenta and actions at every row; all runs have the same number of rows, so this compiles once."""
    fill = lambda x: np.concatenate([x, np.repeat(x[-1:], ROWS - len(x), axis=0)])
    tangent, actions = _readings(system, fill(sol.q), fill(sol.p))
    return np.asarray(tangent)[: len(sol.q)], np.asarray(actions)[: len(sol.q)]


def chart(angles: Numbers) -> Any:
    """The point of the manifold with the angles of the two rods."""
    arms = jnp.stack([jnp.sin(angles), -jnp.cos(angles)], axis=1)
    return jnp.cumsum(arms, axis=0)


def transformed(angles: Numbers, fast: Numbers) -> Any:
    """`x = chi(q_0, q_1)`: normal coordinates, `X(q_0) + G(X)^T q_1` (unit masses)."""
    point = chart(angles)
    rows = jax.jacfwd(hx.models.stiff_spring_double_pendulum(1e-2).system.manifold)(point)
    return point + jnp.tensordot(fast, rows, axes=1)


@item(
    "lemmas",
    "the mollifiers, and the transformed variables",
    "Lemmas 2.1 and 5.1, equations (18) and (22)",
    "double pendulum, eps = 0.1 to 0.003",
    seconds=(2, 6),
)
def lemmas(found: Findings, quick: bool) -> None:
    """alpha(x) and pi(x) are x + O(eps), their transposed derivatives are P(x) + O(eps)."""
    system = hx.models.stiff_spring_double_pendulum(1e-2).system
    angles, fast = jnp.asarray([0.6, 1.3]), jnp.asarray([0.7, -0.4])
    columns = ("eps", "|alpha - x|", "|alpha'^T - P|", "|pi - x|", "|pi'^T - P|", "|alpha - pi|")
    table = found.table("Mollifiers at x = chi(q_0, eps q_1)", *columns)
    scales, rows = (1e-1, 3e-2, 1e-2, 3e-3), []
    slopes = {name: jax.jit(jax.jacfwd(lambda x, f=f: f(system, x)[0])) for name, f in (("a", foot), ("p", nearest))}
    values = {name: jax.jit(lambda x, f=f: f(system, x)[0]) for name, f in (("a", foot), ("p", nearest))}
    size = lambda x: float(jnp.max(jnp.abs(x)))
    for eps in scales:
        x = transformed(angles, eps * fast)
        g = jax.jacfwd(system.manifold)(x).reshape(2, 4)
        projection = jnp.eye(4) - g.T @ jnp.linalg.solve(g @ g.T, g)
        alpha, pi = values["a"](x), values["p"](x)
        off = [size(slopes[name](x).reshape(4, 4).T - projection) for name in "ap"]
        rows.append((size(alpha - x), off[0], size(pi - x), off[1], size(alpha - pi)))
        table.add(eps, *rows[-1])
    orders = [order_of(scales, x) for x in np.transpose(rows)]
    for name, first, where in (("alpha", 0, "Lemma 2.1"), ("pi", 2, "Lemma 5.1")):
        found.compare(
            f"{where}: {name}(x) - x and {name}'(x)^T - P(x)",
            "O(eps)",
            f"orders {orders[first]:.2f} and {orders[first + 1]:.2f}",
            all(abs(orders[k] - 1) < 0.15 for k in (first, first + 1)),
        )
    found.compare(
        "section 5: the methods are perturbations of the one with (22)",
        "by O(eps)",
        f"alpha - pi is of order {orders[4]:.2f}",
        orders[4] > 0.9,
    )
    # the coordinates of pi satisfy (18)
    slope = [jax.jacfwd(transformed, argnums=k)(angles, jnp.zeros(2)).reshape(4, 2) for k in (0, 1)]
    mixed = size(slope[0].T @ slope[1])
    found.compare(
        "(18): the mass matrix in normal coordinates is block diagonal on the manifold",
        "R(q_0, 0) = 0",
        f"mixed block {mixed:.0e}",
        mixed < 1e-14,
    )
    x = transformed(angles, 0.05 * fast)
    same = size(values["p"](x) - chart(angles))
    found.compare(
        "(22): pi(x) = chi(q_0, 0) for x = chi(q_0, q_1)",
        "definition",
        f"the nearest point is chi(q_0, 0) to {same:.0e}",
        same < 1e-14,
    )
    found.note(
        "(18) fixes q_0 only up to the choice of the lines q_0 = const, which must leave the manifold at a right angle "
        "in the mass metric. Normal coordinates are such a choice (a change of q_1 along each line makes V quadratic "
        "and leaves pi alone), and in them (22) is the slow potential at the nearest point: figure4 uses (22) itself."
    )


@item(
    "floor",
    "the drift of the second action",
    "section 2.1, text below (14)",
    "micro-steps eps/10 to eps/320",
    quick="micro-steps eps/10, eps/20 and eps/80",
    seconds=(0.5, 1.4),
)
def floor(found: Findings, quick: bool) -> None:
    """Micro-steps of eps/100 are small enough to have no significant influence."""
    eps, h = 1e-3, 0.1
    problem = hx.models.stiff_spring_double_pendulum(eps)
    system = problem.system
    action, frequency = float(system.actions(problem.q0, problem.p0)[1]), float(system.frequencies(problem.q0)[1])
    table = found.table(
        "Mollified Impulse, eps 1e-3, h 0.1, T = 4", "micro-step", "drift of I_1", "drift of I_2", "floor of I_2"
    )
    parts = (10, 20, 80) if quick else (10, 20, 40, 80, 160, 320)
    rows = []
    for n in parts:
        method = hx.MollifiedImpulse(substeps=round(h / eps) * n)
        sol = hx.simulate(system, method, problem.q0, problem.p0, dt=h, t1=4.0)
        _, seen = readings(system, sol)
        drift = np.max(np.abs(seen - seen[0]), axis=0)
        rows.append((float(drift[0]), float(drift[1]), action * (frequency / n) ** 2 / 4))
        table.add(f"eps/{n}", *rows[-1])
    first, second, level = np.transpose(rows)
    order = order_of([1 / n for n in parts[:2]], second[:2])
    ratio = second[:2] / level[:2]
    found.compare(
        "drift of I_2 while the micro-step is large",
        "the micro-integration should not show",
        f"falls as its power {order:.2f}; {ratio.min():.2f} to {ratio.max():.2f} times I_2 (omega_2 dt/eps)^2/4",
        abs(order - 2) < 0.3 and 0.3 < ratio.min() and ratio.max() < 3,
    )
    found.compare(
        "drift of I_2 with the smallest micro-step",
        "O(eps)",
        f"{second[-1] / eps:.2g} eps",
        second[-1] < 5 * eps,
    )
    axes = found.panels("floor")
    axes.loglog([1 / n for n in parts], second, marker="o", label="$I_2$")
    axes.loglog([1 / n for n in parts], level, ls="--", label=r"$I_2 (\omega_2 \delta/\varepsilon)^2/4$")
    axes.loglog([1 / n for n in parts], first, marker="s", label="$I_1$")
    axes.set(xlabel=r"micro-step $\delta/\varepsilon$", ylabel="drift of the actions")
    legend(axes)


ITEMS = (lemmas, floor)
