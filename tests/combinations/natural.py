"""The plain functions of a drawn system, in natural units: all sizes are of order one.

Nothing of holonomix is used here. `x` has the shape of q; `coefficients` make one seed differ from another; `strength`
multiplies the potential.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from .features import Features

PENALTY = 8.0  # frequency scale of a stiff system: resolved by the steps taken here
ROD = 1.2


@dataclasses.dataclass(frozen=True)
class Coefficients:
    """Numbers of order one that a seed draws."""

    stiffness: np.ndarray  # (n,), of the quadratic part of V
    linear: np.ndarray  # (n,)
    masses: np.ndarray  # (n,)
    coupling: np.ndarray  # (n,), of full masses
    field: np.ndarray  # (n, n), of A
    x: np.ndarray  # (n,), the start before it is made consistent
    v: np.ndarray

    @staticmethod
    def draw(features: Features, seed: int) -> Coefficients:
        n = int(np.prod(features.shape))
        rng = np.random.default_rng([seed, sum(map(ord, features.geometry))])
        turn = rng.standard_normal((n, n))
        linear = 0.4 * rng.uniform(-1, 1, n)
        linear[1] = 0.8
        if features.geometry in ("parabola", "plane", "circle") and seed % 2 == 0:
            linear[0] = 0.0  # an equilibrium at the origin
        return Coefficients(
            0.5 + rng.uniform(0, 1, n),
            linear,
            1 + rng.uniform(0, 1, n),
            rng.uniform(-0.6, 0.6, n),
            0.5 * (turn - turn.T) / np.sqrt(n),
            *_start(features, rng, n),
        )


def _start(features: Features, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A position near the manifold, on it for the geometries at zero or along an axis, and any velocity."""
    v = rng.uniform(-0.7, 0.7, n)
    x = {
        "surface": [0.5, -0.4, 0.7],
        "parabola": [0.0, 0.0],
        "plane": [0.0, 0.0],
        "circle": [0.0, 0.0],
        "horizontal": [1.0, 0.0],
        "rods": [0.6, -0.8, 1.5, -1.6],
        "chain": [1.0, 0.0, 1.0 + ROD, 0.0],
        "track": [0.0, 0.0, ROD, 0.0],
        "rods-3d": [0.5, -0.4, 0.6, 1.1, 0.3, 1.2],
        "triangle": [0.1, 0.2, 0.0, 1.2, -0.1, 0.3, 0.4, 1.0, -0.4],
    }.get(features.geometry)
    if features.geometry == "rotation":
        skew = lambda a: np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])
        half = skew(rng.uniform(-0.4, 0.4, 3))
        turn = np.linalg.solve(np.eye(3) - half, np.eye(3) + half)
        return turn.reshape(-1), (turn @ skew(rng.uniform(-0.8, 0.8, 3))).reshape(-1)
    return (rng.uniform(-0.6, 0.6, n) if x is None else np.asarray(x)), v


class Natural:
    """V, g, A, f and M of one system as plain functions of natural variables."""

    def __init__(self, features: Features, seed: int = 0):
        self.features, self.seed = features, seed
        self.c = Coefficients.draw(features, seed)

    def potential(self, x: Any, t: Any, strength: Any = 1.0) -> Any:
        y, c = x.reshape(-1), self.c
        v = 0.5 * jnp.sum(c.stiffness * y**2) + jnp.sum(c.linear * y) + 0.25 * y[0] * y[1] ** 2 + 0.15 * y[-1] ** 3
        if self.features.time:
            v = v + 0.5 * jnp.sin(2 * t) * y[0] + 0.2 * jnp.cos(t) * y[1] ** 2
        return strength * v

    def penalized_potential(self, x: Any, t: Any, strength: Any = 1.0) -> Any:
        v = self.potential(x, t, strength)
        return v + 0.5 * PENALTY**2 * jnp.sum(self.rows(x, t) ** 2) if self.features.stiff else v

    def vector_potential(self, x: Any) -> Any:
        y = x.reshape(-1)
        return (self.c.field @ y + 0.2 * self.c.linear * y[0] ** 2).reshape(x.shape)

    def force(self, x: Any, v: Any, t: Any) -> Any:
        return -0.3 * v - 0.1 * v * jnp.sum(v**2) + 0.4 * jnp.cos(3 * t)

    # -- mass -----------------------------------------------------------------------------------------------------

    def mass_values(self) -> Any:
        """What a constant mass is given as: a number, an array, one matrix for each particle, or a matrix."""
        c, shape = self.c, self.features.shape
        if self.features.mass == "scalar":
            return np.asarray(1.3)
        if self.features.mass == "diagonal":
            return c.masses.reshape(shape)
        if self.features.mass == "particles":
            return c.masses[: shape[0]]
        if self.features.mass == "block":
            d = int(np.prod(shape[1:]))
            u = c.coupling.reshape(shape[0], d)
            return np.stack([np.diag(m) + np.outer(w, w) for m, w in zip(c.masses.reshape(shape[0], d), u)])
        return np.diag(c.masses) + np.outer(c.coupling, c.coupling)

    def mass_at(self, x: Any) -> Any:
        """M(q) as a user's function gives it: a matrix, or its diagonal in the shape of q."""
        y, c = x.reshape(-1), self.c
        if self.features.mass == "M(q)-diagonal":
            return (c.masses * (1 + 0.2 * y**2)).reshape(x.shape)
        return jnp.diag(c.masses + 0.1 * jnp.sin(y)) + 0.15 * jnp.outer(y, y)

    def mass_matrix(self, x: Any) -> Any:
        """The matrix over the flattened coordinates, whatever the form."""
        n, form = x.size, self.features.mass
        if form.startswith("M(q)"):
            m = self.mass_at(x)
            return m if form == "M(q)" else jnp.diag(m.reshape(-1))
        m = jnp.asarray(self.mass_values())
        if form == "scalar":
            return m * jnp.eye(n)
        if form == "diagonal":
            return jnp.diag(m.reshape(-1))
        if form == "particles":
            return jnp.diag(jnp.repeat(m, n // len(m)))
        if form == "block":
            d = m.shape[1]
            full = jnp.zeros((n, n))
            for k in range(len(m)):
                full = full.at[k * d : (k + 1) * d, k * d : (k + 1) * d].set(m[k])
            return full
        return m

    # -- constraint -----------------------------------------------------------------------------------------------

    def rows(self, x: Any, t: Any) -> Any:
        """g(x, t), redundant rows included."""
        rows = self._fixed_rows(x)
        if self.features.moving:  # with zero speed at t = 0, so that a start at rest exists
            rows = rows - 0.15 * (1 - jnp.cos(2 * t)) * (1 + 0.5 * jnp.arange(len(rows)))
        if self.features.redundant:
            rows = jnp.concatenate([rows, (2 * rows[0] - 0.5 * rows[-1])[None]])
        return rows

    def _fixed_rows(self, x: Any) -> Any:
        g = self.features.geometry
        if g in ("surface", "rods-3d"):
            rows = [surface(x if g == "surface" else x[0])]
            return jnp.stack(rows if g == "surface" else [*rows, jnp.sum((x[1] - x[0]) ** 2) - ROD**2])
        if g == "parabola":
            return jnp.stack([x[1] - x[0] ** 2])
        if g == "plane":
            return jnp.stack([x[1]])
        if g == "circle":
            return jnp.stack([x[0] ** 2 + (x[1] - 1) ** 2 - 1])
        if g == "horizontal":
            return jnp.stack([x[0] ** 2 + x[1] ** 2 - 1])
        if g in ("rods", "chain"):
            return jnp.stack([jnp.sum(x[0] ** 2) - 1, jnp.sum((x[1] - x[0]) ** 2) - ROD**2])
        if g == "track":
            return jnp.stack([x[0, 1], jnp.sum((x[1] - x[0]) ** 2) - ROD**2])
        if g == "rotation":
            return (x.T @ x - jnp.eye(3))[np.triu_indices(3)]
        if g == "triangle":
            return jnp.stack([jnp.sum((x[i] - x[j]) ** 2) - ROD**2 for i, j in TRIANGLE])
        return jnp.zeros((0,))


TRIANGLE = ((0, 1), (1, 2), (0, 2))


def surface(r: Any) -> Any:
    """A tilted ellipsoid."""
    return r[0] ** 2 + r[1] ** 2 + 1.5 * r[2] ** 2 + 0.3 * r[0] * r[1] - 1
