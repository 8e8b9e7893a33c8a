"""The exact motion of a drawn system: index-reduced equations by automatic differentiation, integrated by SciPy.

Shares no code with holonomix. With the momentum `P(x, v) = M(x) v + A(x)` and the Lagrangian `L`,

    M a = F - G^T lambda,   F = dL/dx + f - (dP/dx) v,   lambda = (G M^-1 G^T)^+ (G M^-1 F + g''[(v, 1), (v, 1)])
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from .natural import Natural


class Reference:
    """Starts on the manifold, and the motion from them, in natural units."""

    def __init__(self, natural: Natural):
        self.natural = natural
        self.shape = natural.features.shape
        self.bound = natural.features.kind == "constrained"
        self._accelerate = jax.jit(self._acceleration)
        self._parts = jax.jit(self._linearized)
        self._known: dict[Any, list[tuple[float, np.ndarray]]] = {}

    # -- the equations --------------------------------------------------------------------------------------------

    def momentum(self, x: Any, v: Any) -> Any:
        p = (self.natural.mass_matrix(x) @ v.reshape(-1)).reshape(x.shape)
        return p + self.natural.vector_potential(x) if self.natural.features.magnetic else p

    def velocity(self, x: Any, p: Any) -> Any:
        bare = p - self.natural.vector_potential(x) if self.natural.features.magnetic else p
        return jnp.linalg.solve(self.natural.mass_matrix(x), bare.reshape(-1)).reshape(x.shape)

    def energy(self, x: Any, v: Any, t: Any, strength: Any = 1.0) -> Any:
        kinetic = 0.5 * v.reshape(-1) @ self.natural.mass_matrix(x) @ v.reshape(-1)
        return kinetic + self.natural.penalized_potential(x, t, strength)

    def _acceleration(self, x: Any, v: Any, t: Any, strength: Any) -> Any:
        n = self.natural

        def lagrangian(x: Any) -> Any:
            free = 0.5 * v.reshape(-1) @ n.mass_matrix(x) @ v.reshape(-1) - n.penalized_potential(x, t, strength)
            return free + jnp.sum(n.vector_potential(x) * v) if n.features.magnetic else free

        force = jax.grad(lagrangian)(x) - jax.jvp(lambda y: self.momentum(y, v), (x,), (v,))[1]
        if n.features.force:
            force = force + n.force(x, v, t)
        mass = n.mass_matrix(x)
        plain = jnp.linalg.solve(mass, force.reshape(-1))
        if not self.bound:
            return plain.reshape(x.shape)
        jac = jax.jacfwd(n.rows)(x, t).reshape(-1, x.size)
        rate = lambda x, t: jax.jvp(n.rows, (x, t), (v, jnp.ones_like(t)))[1]
        bend = jax.jvp(rate, (x, t), (v, jnp.ones_like(t)))[1]
        inverse = jnp.linalg.solve(mass, jac.T)
        multipliers = jnp.linalg.pinv(jac @ inverse, rtol=1e-10) @ (jac @ plain + bend)
        return (plain - inverse @ multipliers).reshape(x.shape)

    def _linearized(self, x: Any, v: Any, t: Any) -> tuple[Any, ...]:
        g, rate = jax.jvp(self.natural.rows, (x, t), (v, jnp.ones_like(t)))
        jac = jax.jacfwd(self.natural.rows)(x, t).reshape(-1, x.size)
        return g, rate, jac, self.natural.mass_matrix(x)

    def violation(self, x: np.ndarray, v: np.ndarray, t: float) -> tuple[float, float]:
        """`max|g|` and `max|g'|`."""
        g, rate, _, _ = self._parts(x, v, t)
        return float(np.max(np.abs(g), initial=0.0)), float(np.max(np.abs(rate), initial=0.0))

    # -- starts and motion ----------------------------------------------------------------------------------------

    def start(self, t0: float, rest: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """A position on the manifold at t0 and a velocity tangent to it, from the drawn ones; or at rest."""
        c = self.natural.c
        x, v = c.x.reshape(self.shape), np.zeros(self.shape) if rest else c.v.reshape(self.shape)
        if not self.natural.features.constrained:
            return x, v
        for _ in range(30):
            g, _, jac, _ = (np.asarray(a) for a in self._parts(x, v, t0))
            if np.max(np.abs(g)) < 1e-16:
                break
            x = x - (np.linalg.pinv(jac, rcond=1e-10) @ g).reshape(self.shape)
        for _ in range(2):
            _, rate, jac, mass = (np.asarray(a) for a in self._parts(x, v, t0))
            gram = jac @ np.linalg.solve(mass, jac.T)
            impulse = np.linalg.pinv(gram, rcond=1e-10) @ rate
            v = v - np.linalg.solve(mass, jac.T @ impulse).reshape(self.shape)
        return x, v

    def motion(self, x: np.ndarray, v: np.ndarray, t0: float, times: Any, strength: float = 1.0) -> np.ndarray:
        """Position and velocity at the given times, (time, 2, ...); times run one way from t0."""
        key = (x.tobytes(), v.tobytes(), t0, strength, bool(np.any(np.asarray(times) < t0)))
        known = self._known.setdefault(key, [(t0, np.stack([x, v]))])
        return np.stack([self._reach(known, float(t), strength) for t in np.atleast_1d(times)])

    def _reach(self, known: list[tuple[float, np.ndarray]], t: float, strength: float) -> np.ndarray:
        """The state at t, integrated from the nearest known time before it."""
        t0 = known[0][0]
        before = max((row for row in known if abs(row[0] - t0) <= abs(t - t0)), key=lambda row: abs(row[0] - t0))
        if before[0] == t:
            return before[1]
        n = before[1][0].size

        def slope(t: float, z: np.ndarray) -> np.ndarray:
            x, v = z[:n].reshape(self.shape), z[n:].reshape(self.shape)
            return np.concatenate([z[n:], np.asarray(self._accelerate(x, v, t, strength)).reshape(-1)])

        done = solve_ivp(slope, (before[0], t), before[1].reshape(-1), method="DOP853", rtol=1e-12, atol=1e-14)
        assert done.success, done.message
        state = done.y[:, -1].reshape(2, *self.shape)
        known.append((t, state))
        return state
