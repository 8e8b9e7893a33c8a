"""The curves and surfaces on which constraints keep single particles, as lines for pictures.

A row that depends on one particle alone is an equation for its position. One row fewer than dimensions defines a curve,
which is traced from the particle. One row in space defines a surface, of which sections are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.scene import Guide
from ..core.types import Numbers
from ..trace.stepwise import evaluate
from .abstract import AbstractSystem
from .constraints import Rheonomic
from .structured import Distance

MAX_COORDINATES = 60  # number of entries of q up to which guides are searched
MAX_POINTS = 120  # of a curve, in each direction
SECTIONS, GRID = 7, 28  # sections of a surface per axis, and grid points per axis of a section

Equation = Callable[[np.ndarray], np.ndarray]


def guides_of(system: AbstractSystem, q: np.ndarray, held: Iterable[int] = ()) -> tuple[Guide, ...]:
    """Guides of all particles but those of `held`, with the other particles where they are in q."""
    if q.size > MAX_COORDINATES or q.ndim not in (1, 2) or q.shape[-1] not in (2, 3):
        return ()
    rows, d = q.reshape(-1, q.shape[-1]), q.shape[-1]
    free = sorted(set(range(len(rows))) - set(held))
    terms = [(term, extra) for term, extra in system._terms(0.0) if not isinstance(term, Distance | Rheonomic)]
    if not terms or not free:
        return ()

    def constraint(x: Numbers) -> Any:
        return jnp.concatenate([jnp.reshape(term(x.reshape(q.shape), *extra), (-1,)) for term, extra in terms])

    moved = rows + 0.1 * np.random.default_rng(0).normal(size=rows.shape) * (np.abs(rows).max() or 1.0)
    slope = _in_numpy(jax.jacobian(constraint))
    slopes = [slope(x) for x in (rows, moved)]
    touched = np.any(np.nan_to_num(slopes[0]) != 0, axis=2) | np.any(np.nan_to_num(slopes[1]) != 0, axis=2)
    found = []
    for k in free:
        own = np.flatnonzero(touched[:, k] & (touched.sum(axis=1) == 1))
        if not 1 <= len(own) < d:
            continue
        place = lambda x, k=k, own=own: constraint(jnp.asarray(rows).at[k].set(x))[own]
        reach, many = _reach(rows, k), _in_numpy(jax.vmap(lambda x, place=place: place(x)[0]))
        if d == 3 and len(own) == 1:
            lines, kind = _surface(many, rows[k], reach), "surface"
        else:
            slope_at = _in_numpy(jax.jacobian(place))
            line = _contour(many, rows[k], reach) if d == 2 else _curve(_in_numpy(place), slope_at, rows[k], reach)
            straight = len(line) > 1 and _straight(line)
            lines, kind = [line[[0, -1]] if straight else line], "rail" if straight else "curve"
        if lines:
            found.append(Guide(tuple(tuple(float(f"{v:.5g}") for v in line.reshape(-1)) for line in lines), kind))
    return tuple(found)


def _in_numpy(f: Callable[[Any], Any]) -> Equation:
    """f evaluated by NumPy, because a picture evaluates it too few times to pay for compilation."""
    programs: dict[tuple[int, ...], Any] = {}

    def call(x: np.ndarray) -> np.ndarray:
        if x.shape not in programs:
            programs[x.shape] = jax.make_jaxpr(f)(x)
        return np.asarray(evaluate(programs[x.shape], [x])[0])

    return call


def _reach(rows: np.ndarray, k: int) -> float:
    """The length of unbounded guides: the size of the mechanism, or the distance of the particle from the origin."""
    size = float(np.max(np.ptp(rows, axis=0)))
    return 0.6 * size if size > 0 else 1.5 * float(np.linalg.norm(rows[k])) or 1.0


def _straight(line: np.ndarray) -> bool:
    off = np.linalg.svd(line - line.mean(axis=0), compute_uv=False)[1:]
    return float(off.max(initial=0.0)) < 1e-6 * float(np.ptp(line))


def _contour(g: Equation, start: np.ndarray, reach: float) -> np.ndarray:
    """The curve in the plane through `start`: all of it if it is bounded, else the part near `start`."""
    low, high = _box(start, reach, lambda low, high: _sections(g, low, high, 1))
    distance = lambda line: np.min(np.linalg.norm(line - start, axis=1))
    return min(_sections(g, low, high, 1), key=distance, default=start[None])


def _curve(g: Equation, slope: Equation, start: np.ndarray, reach: float) -> np.ndarray:
    """Points of the curve through `start`, both ways until it closes or is 3 `reach` away."""
    step, ways = reach / 16, []
    for sign in (1.0, -1.0):
        x, before, points = start, None, [start]
        for _ in range(MAX_POINTS):
            along = np.linalg.svd(slope(x))[2][-1]
            along = along * (sign if before is None else np.sign(along @ before) or 1.0)
            before, x = along, x + step * along
            for _ in range(2):
                x = x - np.linalg.pinv(slope(x)) @ g(x)
            if not np.all(np.isfinite(x)) or np.linalg.norm(x - points[-1]) > 2 * step:
                break
            points.append(x)
            if len(points) > 3 and np.linalg.norm(x - start) < 0.75 * step:
                return np.stack([*points[:-1], start])
            if np.linalg.norm(x - start) > 3 * reach:
                break
        ways.append(points)
    return np.stack([*ways[1][:0:-1], *ways[0]])


def _box(start: np.ndarray, reach: float, sections: Callable[..., list[np.ndarray]]) -> tuple[Any, Any]:
    """The box to draw: that of a bounded curve or surface, found in two steps, or one about `start`."""
    low, high = -2 * reach - np.abs(start), 2 * reach + np.abs(start)
    for rough in range(2):
        found = sections(low, high)
        whole, edge = np.concatenate([start[None], *found]), 0.02 * (high - low)
        if not found or np.any(whole < low + edge) or np.any(whole > high - edge):
            return start - reach, start + reach
        margin = (0.15 if rough == 0 else 0.0) * np.max(np.ptp(whole, axis=0))
        low, high = whole.min(axis=0) - margin, whole.max(axis=0) + margin
    return low, high


def _surface(g: Equation, start: np.ndarray, reach: float) -> list[np.ndarray]:
    """Sections of a surface with planes along the axes: all of it if it is bounded, else the part near `start`."""
    low, high = _box(start, reach, lambda low, high: _sections(g, low, high, 2 * SECTIONS))
    return _sections(g, low, high, SECTIONS)


def _sections(g: Equation, low: np.ndarray, high: np.ndarray, count: int) -> list[np.ndarray]:
    """Lines of g = 0 in planes across each axis, or in the plane."""
    from contourpy import contour_generator  # a dependency of matplotlib

    lines, d = [], len(low)
    pad = 0.04 * (high - low) + 1e-9 * np.max(high - low)
    size = GRID if d == 3 else 4 * GRID
    for axis in range(3) if d == 3 else (-1,):
        others = [k for k in range(d) if k != axis]
        u, v = (np.linspace(low[k] - pad[k], high[k] + pad[k], size) for k in others)
        inset = pad[axis] / 2  # inset, because a plane that only touches the surface gives a point
        levels = np.linspace(low[axis] + inset, high[axis] - inset, count)
        grid = np.empty((count, size, size, d))
        grid[..., others[0]], grid[..., others[1]] = u[None, None, :], v[None, :, None]
        if d == 3:
            grid[..., axis] = levels[:, None, None]
        values = g(grid.reshape(-1, d)).reshape(count, size, size)
        for level, value in zip(levels, values, strict=True):
            if np.all(np.isfinite(value)):
                for flat in contour_generator(u, v, value).lines(0.0):
                    line = np.full((len(flat), d), level)
                    line[:, others] = flat
                    lines.append(line)
    return lines
