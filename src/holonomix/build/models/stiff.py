"""Stiff systems: springs and penalties that stand in for constraints, and unconstrained multiscale chains.

Lubich & Weiss (1.1), Tao & Owhadi (4.1, 4.2, 4.4).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.scene import Bond, Particles, Scene
from ...core.types import ArrayLike, Numbers
from ...mechanics import Distance, StiffSystem, System
from ...mechanics.curvature import LocalEnergy
from ...mechanics.problem import Problem
from ...trace.indexing import Indices
from .checks import finite, is_traced, positive, vector
from .pendula import chain, double_pendulum, link_lengths


def stretches(q: Numbers, params: PyTree) -> Any:
    """`|x_1| - l_1` and `|x_2 - x_1| - l_2`."""
    return jnp.stack([jnp.sqrt(jnp.sum(q[0] ** 2)), jnp.sqrt(jnp.sum((q[1] - q[0]) ** 2))]) - params["lengths"]


def springs(q: Numbers, params: PyTree) -> Any:
    return 0.5 * jnp.sum((params["alpha"] * stretches(q, params)) ** 2)


def heights(q: Numbers, params: PyTree) -> Any:
    return params["gravity"] * (q[0, 1] + q[1, 1])


def stiff_spring_double_pendulum(
    epsilon: ArrayLike = 1e-2, alpha: ArrayLike = (1.0, 2.0), lengths: ArrayLike = (1.0, 1.0), gravity: ArrayLike = 1.0
) -> Problem:
    """Two unit masses on springs of strength `(alpha_i/epsilon)^2`, from the start (14) of Lubich & Weiss.

    `x_1 = (sqrt 0.5, -sqrt 0.5)`, `x_2 = (sqrt 2, 5 epsilon)` at rest: the second spring is stretched by O(epsilon), so
    its action does not vanish. `alpha = (1, 2)` keeps the frequencies apart; (1, 1) meets a 2:1 resonance.
    """
    params = {
        "alpha": vector("alpha", alpha, 2),
        "lengths": vector("lengths", lengths, 2),
        "gravity": finite("gravity", gravity),
    }
    epsilon = positive("epsilon", epsilon)
    system = StiffSystem(heights, springs, stretches, 1.0, epsilon, params=params)
    root = np.sqrt(0.5)
    q0 = jnp.stack([jnp.asarray([root, -root]), jnp.stack([jnp.asarray(np.sqrt(2.0)), 5 * epsilon])])
    return Problem(
        system, q0, jnp.zeros((2, 2)), 0.1, 4.0, name="stiff spring double pendulum", bonds=((-1, 0), (0, 1))
    )


def penalized_double_pendulum(omega: ArrayLike = 20.0, **options: Any) -> Problem:
    """The double pendulum with its rods replaced by the penalty `omega^2/2 |g|^2` (Tao & Owhadi (4.1))."""
    rigid = double_pendulum(**options)
    system = rigid.system.penalized(positive("omega", omega))
    return Problem(system, rigid.q0, rigid.p0, 0.1, 50.0, name="penalized double pendulum", bonds=rigid.bonds)


def penalized_chain(links: int = 10, omega: ArrayLike = 20.0, **options: Any) -> Problem:
    """The chain of pendula with its rods replaced by the penalty `omega^2/2 |g|^2` (Tao & Owhadi (4.2)).

    The rods are `Distance` constraints, so the linear solves of the linearly implicit methods take a time that is
    linear in the number of links.
    """
    rigid = chain(links, **options)
    own = rigid.system
    rods = Distance([(i - 1, i) for i in range(links)], link_lengths)
    system = System(own.potential_fn, rods, own.mass, params=own.params).penalized(positive("omega", omega))
    return Problem(system, rigid.q0, rigid.p0, 0.05, 50.0, name=f"penalized chain of {links}", bonds=rigid.bonds)


class AngleMass(eqx.Module):
    """The mass matrix of the double pendulum in its two angles from the vertical (Tao & Owhadi (4.1))."""

    lengths: Any

    def __call__(self, q: Numbers) -> Any:
        l1, l2 = self.lengths[0], self.lengths[1]
        mixed = l1 * l2 * jnp.cos(q[0] - q[1])
        return jnp.stack([jnp.stack([2 * l1**2, mixed]), jnp.stack([mixed, l2**2])])


def angle_potential(q: Numbers, params: PyTree) -> Any:
    l = params["lengths"]
    return -params["gravity"] * (2 * l[0] * jnp.cos(q[0]) + l[1] * jnp.cos(q[1]))


def double_pendulum_angles(lengths: ArrayLike = (1.0, 2.0**0.5), gravity: ArrayLike = 1.0) -> Problem:
    """The double pendulum in generalized coordinates `(theta, phi)`: no constraint, but a mass that depends on them.

    `x_1 = l_1 (sin theta, -cos theta)`, `x_2 = x_1 + l_2 (sin phi, -cos phi)`; the start is that of `double_pendulum`.
    """
    params = {"lengths": vector("lengths", positive("lengths", lengths), 2), "gravity": finite("gravity", gravity)}
    system = System(angle_potential, mass=AngleMass(params["lengths"]), params=params)
    scene = None if is_traced(params["lengths"]) else _angle_scene(np.asarray(params["lengths"]))
    q0 = jnp.asarray([0.0, np.pi / 4])
    return Problem(system, q0, jnp.zeros(2), 0.1, 50.0, name="double pendulum in angles", scene=scene)


def _angle_scene(lengths: np.ndarray) -> Scene:
    """Rods in a row, whose angles from the downward vertical are the entries of q."""
    count = len(lengths)
    bonds = tuple(Bond(k - 1, k) for k in range(count))
    arms = tuple(float(x) for x in lengths)
    particles = (Particles(tuple(range(count))),)
    return Scene(2, particles=particles, bonds=bonds, anchors=((0.0, 0.0),), layout="angles", arms=arms)


def morse(theta: Numbers, a: Numbers, x0: Numbers) -> Any:
    """`(exp(-a (1 - cos theta - x0)) - 1)^2`: the pairing of two bases, open at theta = pi."""
    return (jnp.exp(-a * (1 - jnp.cos(theta) - x0)) - 1) ** 2


class DnaEnergy(eqx.Module):
    """`sum (theta_{k+1} - theta_k)^2/2 + epsilon sum U(theta_k)` on a ring."""

    def __call__(self, q: Numbers, params: PyTree) -> Any:
        return self.pairs(jnp.stack([q, jnp.roll(q, -1)], axis=1), params)

    def pairs(self, x: Numbers, params: PyTree) -> Any:
        """The same from the neighbors `x[k] = (theta_k, theta_{k+1})`."""
        stretch = 0.5 * jnp.sum((x[:, 1] - x[:, 0]) ** 2)
        return stretch + params["epsilon"] * jnp.sum(morse(x[:, 0], params["a"], params["x0"]))

    def local_energies(self, q: Numbers, extra: tuple[Any, ...]) -> list[LocalEnergy]:
        k = np.arange(q.shape[0])
        ring = Indices(np.stack([k, np.roll(k, -1)], axis=1))
        gather = lambda x: jnp.stack([x, jnp.roll(x, -1)], axis=1)
        return [LocalEnergy(ring, gather, lambda x: self.pairs(x, *extra))]


def dna_chain(
    pairs: int = 200, a: ArrayLike = 7.0, x0: ArrayLike = 0.3, epsilon: ArrayLike = 1 / 1400, seed: int = 0
) -> Problem:
    """Mezic's model of DNA base pairs: a periodic chain of pendula in a Morse potential (Tao & Owhadi (4.9)).

    `theta_k'' = theta_{k+1} - 2 theta_k + theta_{k-1} - epsilon U'(theta_k)`; start `theta_k = 0.8 + 0.1 xi_k` with
    normal `xi_k` from `seed`, `theta_k' = cos(4 pi k/N)/sqrt(N)`.
    """
    params = {"a": positive("a", a), "x0": finite("x0", x0), "epsilon": finite("epsilon", epsilon)}
    xi = jax.random.normal(jax.random.key(seed), (pairs,))
    k = jnp.arange(1, pairs + 1)
    q0 = 0.8 + 0.1 * xi
    p0 = jnp.cos(4 * jnp.pi * k / pairs) / jnp.sqrt(pairs)
    return Problem(System(DnaEnergy(), params=params), q0, p0, 0.2, 1000.0, name=f"DNA chain of {pairs}")
