"""Velocities at the start: given ones are kept, the others are solved for; dense, once per mechanism."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...core.errors import InputError
from .assembly import RANK, Equations, row_sizes
from .bodies import Body, expand, pull
from .joints import Joint

AGREE = 1e-6  # relative error above which given velocities contradict the joints or each other


@dataclasses.dataclass(frozen=True)
class Given:
    """A prescribed velocity: `slopes[i]` is the gradient of its i-th number over the velocities."""

    what: str
    of: str
    slopes: np.ndarray  # (numbers, coordinates)
    values: np.ndarray  # (numbers,)

    def __str__(self) -> str:
        shown = ", ".join(f"{x:.6g}" for x in self.values)
        return f"the {self.what} {f'({shown})' if len(self.values) > 1 else shown} of {self.of}"


def given_by_body(q: np.ndarray, body: Body) -> list[Given]:
    """The given velocity of the body's origin and its given angular velocity `1/2 sum_i d_i x d_i'`, if any."""
    dim, of, found = body.dimension, f"body {body.name!r}", []
    if not body.given:
        return []
    x = q[list(body.particles)]

    def add(what: str, weights: np.ndarray, values: np.ndarray) -> None:
        """Numbers that are sums of velocities of the frame with these weights, `(numbers, dim + 1, dim)`."""
        rows = np.zeros((len(weights), *q.shape))
        rows[:, list(body.particles)] = pull(body.kind, x, weights)
        found.append(Given(what, of, rows.reshape(len(rows), -1), values))

    if "velocity" in body.given:
        c = body.point_coefficients(np.zeros(dim), f"the velocity of {of}")
        add("velocity", c[:, None] * np.eye(dim)[:, None, :], body.velocity0)
    if "angular velocity" in body.given:
        d, share, spin = expand(body.kind, x, np)[1:], 0.5, np.atleast_1d(body.spin0)
        if body.kind == "rod":  # it does not turn about its axis
            share, spin = 1.0, spin - (spin @ d[0]) * d[0]
        turned = [np.cross(e, d) for e in np.eye(3)] if dim == 3 else [np.stack([-d[:, 1], d[:, 0]], axis=1)]
        add("angular velocity", np.stack([share * np.vstack([np.zeros(dim), x]) for x in turned]), spin)
    return found


def given_by_joint(q: np.ndarray, joint: Joint, which: int, rate: float) -> Given:
    """The rate of one position of a joint."""
    slopes = joint.coordinates[which].value_and_slopes(q)[1]
    return Given("rate", f"joint {joint.name!r}", slopes.reshape(1, -1), np.array([rate]))


def start_velocities(
    equations: Equations, q: np.ndarray, v: np.ndarray, drives: np.ndarray, t: float, given: list[Given], what: str
) -> np.ndarray:
    """The velocities with `G v + g_t = 0` and all given numbers that are nearest to v in the mass metric.

    First v is projected onto the velocities that the rows allow, then changed within them until the given numbers hold.
    So rows may be redundant, and they hold to round-off in any case. `drives` is `g_t`. An `InputError` names
    contradictions.
    """
    a, root = equations.scaled(q, t)
    sizes = equations.sizes(q)
    units = row_sizes(a * root, sizes)
    a, drives = a / units[:, None], drives / units
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    kept = s > RANK * s.max(initial=0.0)
    u, s, vt = u[:, kept], s[kept, None], vt[kept]

    def allowed(x: np.ndarray) -> np.ndarray:
        for _ in range(2):
            x = x - vt.T @ (u.T @ (a @ x + drives) / s[:, 0])
        return x

    x = allowed(v.reshape(-1) * root)
    fast = max(float(np.abs(y).max(initial=0.0)) for y in (drives, x / root / sizes))
    if np.abs(a @ x + drives).max(initial=0.0) > AGREE * fast:
        raise InputError(f"{what}: its drives contradict each other or the joints at t = {t:g}. Leave one out")
    if given:
        w, values = np.concatenate([g.slopes for g in given]), np.concatenate([g.values for g in given])
        scales, length = row_sizes(w, sizes), row_sizes(w, 1 / root)
        fast = max(fast, float(np.abs(values / scales).max()))
        w, values = w / root / length[:, None], values / length
        held = u @ (vt @ w.T / s)  # the part of each given number that the rows determine
        left, share, way = np.linalg.svd(w - held.T @ a, full_matrices=False)
        free = share > AGREE
        for _ in range(2):
            x = allowed(x + way[free].T @ (left[:, free].T @ (values - w @ x) / share[free]))
        gaps = (w @ x - values) * length
        if np.abs(gaps / scales).max() > AGREE * fast:
            raise InputError(_contradiction(equations, given, gaps, scales, held * (gaps / length), what))
    return (x / root).reshape(q.shape)


def _contradiction(
    equations: Equations, given: list[Given], gaps: np.ndarray, scales: np.ndarray, held: np.ndarray, what: str
) -> str:
    """The error for contradicting velocities: how far each is off in the nearest motion, and the joints in the way."""
    ends = np.cumsum([len(g.values) for g in given])[:-1]
    worst = np.abs(gaps / scales).max()
    missed = [
        f"{g} by {np.linalg.norm(gap):.3g}"
        for g, gap, scale in zip(given, np.split(gaps, ends), np.split(scales, ends), strict=True)
        if np.abs(gap / scale).max() > 1e-3 * worst
    ]
    weights: dict[str, float] = {}
    for (kind, owner, _), weight in zip(equations.owners, np.abs(held.sum(axis=1)), strict=True):
        if kind == "joint":
            weights[owner.name] = max(weights.get(owner.name, 0.0), float(weight))
    least = 1e-3 * max([float(np.abs(held).max()), *weights.values()])
    joints = [f"joint {name!r}" for name, weight in sorted(weights.items(), key=lambda x: -x[1]) if weight > least]
    more = f" and {len(joints) - 6} more" if len(joints) > 6 else ""
    between = f" (in the way: {', '.join(joints[:6])}{more})" if joints else ""
    return (
        f"{what}: the given velocities contradict the joints, the drives or each other; the nearest motion misses "
        f"{', '.join(missed[:6])}{between}. Leave out what follows from the rest, give values that agree to six "
        "digits, or start away from a dead point"
    )
