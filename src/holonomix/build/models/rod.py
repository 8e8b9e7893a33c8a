"""The inextensible, unshearable elastic rod of Cosserat, in a box: Barth, Leimkuhler & Reich 1998, section 5.

A node carries its center z and two directors d1, d2 of the cross section: q has shape (nodes, 9), a row is (z, d1, d2).
With `d3 = d1 x d2`, primes for differences over a cell and directors averaged at its midpoint,

    g = (d1.d2, |d1|^2 - 1, |d2|^2 - 1)_i,  (z_i - z_{i-1})/ds - (d3_{i-1} + d3_i)/2          six rows per node
    V = 1/2 sum ds (K1 u1^2 + K2 u2^2 + K3 u3^2),  u1 = d3.d2',  u2 = -d3.d1',  u3 = d2.d1'   bending and twist

The lumped mass of a node is a matrix; rows of neighboring nodes meet in `G M^-1 G^T`, which is block tridiagonal.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.checks import whole_number
from ...core.errors import InputError, ShapeError
from ...core.scene import Plane, Polyline, Scene
from ...core.types import ArrayLike, Numbers, Real
from ...mechanics import BlockMass, Local, System
from ...mechanics.problem import Problem
from ...mechanics.structured import AbstractLocal
from ...trace.indexing import Indices
from .checks import finite, is_traced, positive, vector

# inward distance of the point z from a wall (n, c): c - n.z
BOX = ((1.0, 0.0, 0.0, 0.5), (-1.0, 0.0, 0.0, 1.0), (0.0, 1.0, 0.0, 1.0), (0.0, -1.0, 0.0, 1.0), (0.0, 0.0, 1.0, 2.0))


def cosserat_rod(
    nodes: int = 10,
    length: ArrayLike = 1.0,
    density: ArrayLike = 1.0,
    section: ArrayLike = 0.1,
    stiffness: ArrayLike = 0.01,
    end: str = "clamped",
    walls: ArrayLike = BOX,
    attraction: ArrayLike = 0.1,
    reach: ArrayLike = 0.25,
    speed: Real = 1.7,
    gravity: ArrayLike = 0.0,
) -> Problem:
    """A rod of `nodes` cells that stands upright and is thrown against a wall: `z' = speed s^2 e_x`.

    `end="clamped"` holds node 0 at the origin, so that q has `nodes` rows; `end="free"` lets all `nodes + 1` move.
    `section` are the half widths of the cross section along d1 and d2 (one number or two), `stiffness` bending about
    d1, bending about d2 and twist (one number or three). A wall is `(nx, ny, nz, c)`, the rod where `n.z < c`; each
    node feels `attraction ((reach/d)^12 - 2 (reach/d)^6)` at distance d; `walls=()` is empty space.
    """
    nodes = whole_number("nodes", nodes)
    if end not in ("clamped", "free"):
        raise InputError(
            f"end must be 'clamped' or 'free', not {end!r} (clamping both ends of a straight rod loses a rank)"
        )
    planes = jnp.zeros((0, 4)) if np.shape(walls)[:1] == (0,) else finite("walls", walls)
    if planes.ndim != 2 or planes.shape[1] != 4:
        raise ShapeError(f"walls must have shape (k, 4), a normal and a distance each; they have shape {planes.shape}")
    ds = positive("length", length) / nodes
    root = jnp.asarray([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    params = {
        "ds": ds,
        "stiffness": vector("stiffness", finite("stiffness", stiffness), 3),
        "walls": planes,
        "attraction": finite("attraction", attraction),
        "reach": positive("reach", reach),
        "weight": finite("gravity", gravity) * positive("density", density) * ds,
        "root": root,
    }
    a1, a2 = vector("section", positive("section", section), 2)
    zero = jnp.zeros(())
    inertia = jnp.stack(
        [
            jnp.stack([zero + 1, zero, zero]),
            jnp.stack([zero, 2 * a1**2 / 3, a1 * a2 / 3]),
            jnp.stack([zero, a1 * a2 / 3, 2 * a2**2 / 3]),
        ]
    )
    mass = BlockMass(jnp.kron(jnp.asarray(density) * ds * inertia, jnp.eye(3)))

    first = 1 if end == "clamped" else 0
    s = ds * jnp.arange(first, nodes + 1)
    if end == "clamped":
        # one block of six rows per node: its own frame, and the cell that joins it to the node before
        i = np.arange(nodes)
        constraint: Any = [Cells(Indices(np.stack([i - 1, i], axis=1)), root[None], framed=True)]
        potential = _clamped_energy
    else:
        i = np.arange(1, nodes + 1)
        constraint = [Local(_frame, np.arange(nodes + 1)), Cells(Indices(np.stack([i - 1, i], axis=1)))]
        potential = _free_energy
    system = System(potential, constraint, mass=mass, params=params)
    q = jnp.tile(root, (len(s), 1)).at[:, 2].set(s)
    v = jnp.zeros_like(q).at[:, 0].set(speed * s**2).at[:, 5].set(-2 * speed * s)
    invariants = {}
    if end == "free" and planes.shape[0] == 0 and not np.any(np.asarray(gravity)):
        invariants = {"momentum": _momentum, "angular momentum": _angular_momentum}
    name = f"Cosserat rod of {nodes} cells, {end}"
    scene = None if is_traced(planes) else _scene(len(s), end == "clamped", np.asarray(planes))
    return Problem(system, q, mass.momentum(q, v), 0.0025, 0.25, None, name, invariants, scene=scene)


def _scene(rows: int, clamped: bool, planes: np.ndarray) -> Scene:
    """The backbone as a line; the walls."""
    walls = tuple(Plane(tuple(float(x) for x in w[3] * w[:3]), tuple(float(x) for x in -w[:3])) for w in planes)
    line = Polyline((*((-1,) if clamped else ()), *range(rows)))
    return Scene(3, polylines=(line,), planes=walls, anchors=((0.0, 0.0, 0.0),) if clamped else ())


def backbone(q: ArrayLike, root: bool = True) -> np.ndarray:
    """The centers of the cross sections, `(..., nodes, 3)`; with `root` the clamped point at the origin comes first."""
    centers = np.asarray(q)[..., :3]
    return np.concatenate([np.zeros_like(centers[..., :1, :]), centers], axis=-2) if root else centers


def wall_distances(q: Numbers, params: PyTree) -> Any:
    """The distance of every node from every wall, `(nodes, walls)`, for `WallMonitor`."""
    return params["walls"][:, 3] - q[:, :3] @ params["walls"][:, :3].T


def _clamped_energy(q: Numbers, params: PyTree) -> Any:
    return _elastic(jnp.concatenate([params["root"][None], q]), params) + _external(q, params)


def _free_energy(q: Numbers, params: PyTree) -> Any:
    return _elastic(q, params) + _external(q, params)


def _elastic(q: Numbers, params: PyTree) -> Any:
    d1, d2 = q[:, 3:6], q[:, 6:9]
    m1, m2 = (d1[1:] + d1[:-1]) / 2, (d2[1:] + d2[:-1]) / 2
    b1, b2 = (d1[1:] - d1[:-1]) / params["ds"], (d2[1:] - d2[:-1]) / params["ds"]
    m3 = _cross(m1, m2)
    u1, u2, u3 = jnp.sum(m3 * b2, axis=1), -jnp.sum(m3 * b1, axis=1), jnp.sum(m2 * b1, axis=1)
    k1, k2, k3 = params["stiffness"]
    return params["ds"] / 2 * jnp.sum(k1 * u1**2 + k2 * u2**2 + k3 * u3**2)


def _external(q: Numbers, params: PyTree) -> Any:
    """Walls of Lennard-Jones kind, and gravity along -z."""
    inverse = (params["reach"] / wall_distances(q, params)) ** 6
    return params["attraction"] * jnp.sum(inverse**2 - 2 * inverse) + params["weight"] * jnp.sum(q[:, 2])


def _frame(x: Numbers, params: PyTree) -> Any:
    """The directors of one node are orthonormal."""
    d1, d2 = x[0, 3:6], x[0, 6:9]
    return jnp.stack([d1 @ d2, d1 @ d1 - 1.0, d2 @ d2 - 1.0])


class Cells(AbstractLocal):
    """The backbone of a cell runs along the mean of its nodes' normals; `framed` adds its second node's frame before.

    Slopes are written out, with the cells along the last axis: `Local` would differentiate automatically.
    """

    indices: Indices = eqx.field(static=True)
    anchors: Any = None
    framed: bool = eqx.field(static=True, default=False)

    def lane_data(self, part: slice, extra: tuple[Any, ...]) -> Any:
        return extra[0]["ds"]

    def lane_values(self, x: list[Any], data: Numbers, extra: tuple[Any, ...]) -> Any:
        (z0, z1), (a, b) = (x[0][:3], x[1][:3]), (x[0][3:], x[1][3:])
        rows = (z1 - z0) / data - (_cross(a[:3], a[3:], 0) + _cross(b[:3], b[3:], 0)) / 2
        if not self.framed:
            return rows
        dot = lambda u, v: jnp.sum(u * v, axis=0, keepdims=True)
        frame = [dot(b[:3], b[3:]), dot(b[:3], b[:3]) - 1.0, dot(b[3:], b[3:]) - 1.0]
        return jnp.concatenate([*frame, rows])

    def lane_slopes(self, x: list[Any], data: Numbers, extra: tuple[Any, ...]) -> list[Any]:
        out = []
        for node, sign in zip(x, (-1.0, 1.0), strict=True):
            d1, d2, zero = node[3:6], node[6:9], jnp.zeros_like(node[:3])
            unit = jnp.broadcast_to(sign / data * jnp.eye(3)[:, :, None], (3, 3, node.shape[-1]))
            slopes = jnp.concatenate([unit, _turn(d2) / 2, _turn(d1) / -2], axis=1)
            if self.framed:
                frame = [[zero, d2, d1], [zero, 2 * d1, zero], [zero, zero, 2 * d2]]
                own = jnp.stack([jnp.concatenate(row) for row in frame])
                slopes = jnp.concatenate([own if sign > 0 else jnp.zeros_like(own), slopes])
            out.append(slopes)
        return out


def _turn(d: Numbers) -> Any:
    """The matrices of `v -> d x v`, (3, 3, cells)."""
    o = jnp.zeros_like(d[0])
    return jnp.stack([jnp.stack([o, -d[2], d[1]]), jnp.stack([d[2], o, -d[0]]), jnp.stack([-d[1], d[0], o])])


def _cross(a: Numbers, b: Numbers, axis: int = -1) -> Any:
    (a0, a1, a2), (b0, b1, b2) = jnp.moveaxis(a, axis, 0), jnp.moveaxis(b, axis, 0)
    return jnp.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=axis)


def _momentum(q: Numbers, p: Numbers) -> Any:
    return jnp.sum(p[:, :3], axis=0)


def _angular_momentum(q: Numbers, p: Numbers) -> Any:
    return jnp.sum(_cross(q.reshape(-1, 3), p.reshape(-1, 3)), axis=0)
