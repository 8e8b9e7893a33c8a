"""URDF texts for tests: a seven-axis arm, and random trees of the size of a humanoid."""

from __future__ import annotations

import numpy as np


def link(name: str, mass: float, center, inertia, rpy=(0, 0, 0)) -> str:
    xx, yy, zz, xy, xz, yz = inertia
    return (
        f'<link name="{name}"><inertial><origin xyz="{_text(center)}" rpy="{_text(rpy)}"/><mass value="{mass!r}"/>'
        f'<inertia ixx="{xx!r}" iyy="{yy!r}" izz="{zz!r}" ixy="{xy!r}" ixz="{xz!r}" iyz="{yz!r}"/></inertial></link>'
    )


def joint(name: str, kind: str, parent: str, child: str, xyz, rpy, axis, extra: str = "") -> str:
    return (
        f'<joint name="{name}" type="{kind}"><origin xyz="{_text(xyz)}" rpy="{_text(rpy)}"/><parent link="{parent}"/>'
        f'<child link="{child}"/><axis xyz="{_text(axis)}"/>{extra}</joint>'
    )


def _text(values) -> str:
    return " ".join(repr(float(x)) for x in values)


def random_inertia(rng) -> tuple[float, ...]:
    """An inertia matrix of a real body: that of a random cloud of points."""
    points = rng.normal(size=(6, 3)) * 0.1
    points -= points.mean(axis=0)
    matrix = sum((x @ x) * np.eye(3) - np.outer(x, x) for x in points)
    return tuple(float(matrix[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))


def random_tree(joints: int, seed: int, chain: bool = False) -> str:
    """A tree of revolute and prismatic joints with random places, axes and inertias."""
    rng = np.random.default_rng(seed)
    parts = ['<link name="base"/>']
    for k in range(joints):
        parts.append(link(f"link{k}", float(rng.uniform(0.5, 3)), 0.1 * rng.normal(size=3), random_inertia(rng)))
        above = k - 1 if chain else int(rng.integers(max(-1, k - 4), k)) if k else -1
        parent = "base" if above < 0 else f"link{above}"
        kind = "prismatic" if k % 5 == 4 else "continuous"
        axis = rng.normal(size=3)
        axis /= np.linalg.norm(axis)
        limit = '<limit lower="-9" upper="9" effort="9" velocity="9"/>' if kind == "prismatic" else ""
        place = 0.3 * rng.normal(size=3), rng.normal(size=3)
        parts.append(joint(f"joint{k}", kind, parent, f"link{k}", *place, axis, limit))
    return f'<robot name="tree">{"".join(parts)}</robot>'
