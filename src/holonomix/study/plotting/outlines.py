"""Outlines of the shapes of rigid bodies, as lines in space."""

from __future__ import annotations

import numpy as np

from ...core.scene import Bond, Frame, Scene, ShapeMark

CIRCLE = np.stack([np.cos(np.linspace(0, 2 * np.pi, 33)), np.sin(np.linspace(0, 2 * np.pi, 33))], axis=1)
CORNERS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]) / 2


def _axes(scene: Scene, points: np.ndarray, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Center and directors (as rows) of a body."""
    d = scene.dimension
    if frame.center < 0 and not frame.directors:
        return np.zeros(d), np.eye(d)
    return scene.place(points, frame.center), _complete_directors([scene.place(points, k) for k in frame.directors], d)


def bond_ends(scene: Scene, points: np.ndarray, bond: Bond) -> np.ndarray:
    """Both ends of a bond in the configuration `points`, (2, dimension); an end may be fixed in a body."""
    found = []
    for index, at in ((bond.a, bond.at_a), (bond.b, bond.at_b)):
        frame = next((f for f in scene.frames if f.center == index), None) if at else None
        if frame is None:
            found.append(scene.place(points, index))
        else:
            center, axes = _axes(scene, points, frame)
            found.append(center + np.asarray(at) @ axes)
    return np.stack(found)


def outlines(scene: Scene, points: np.ndarray, frame: Frame) -> list[np.ndarray]:
    """Lines (points, dimension) of a body in the configuration `points`."""
    d = scene.dimension
    center, axes = _axes(scene, points, frame)
    found = []
    for shape in frame.shapes:
        if shape.kind == "line":
            own = [np.reshape(shape.size, (-1, d))]
        else:
            turn = np.reshape(shape.rotation, (3, 3) if len(shape.rotation) == 9 else (2, 2))[:d, :d]
            own = [x[:, :d] @ turn.T + np.asarray(shape.position)[:d] for x in _lines(shape, d)]
        found += [center + x @ axes for x in own]
    return found


def guide_lines(scene: Scene, points: np.ndarray) -> list[np.ndarray]:
    """The lines (points, dimension) of rails, curves and surfaces in the configuration `points`."""
    frames, found = {frame.name: frame for frame in scene.frames}, []
    for guide in scene.guides:
        center, axes = _axes(scene, points, frames[guide.frame]) if guide.frame in frames else (0.0, None)
        for line in guide.lines:
            own = np.reshape(line, (-1, scene.dimension))
            found.append(own if axes is None else center + own @ axes)
    return found


def zigzag(ends: np.ndarray, coils: int = 6) -> np.ndarray:
    """A spring between two points as a zigzag line, in the plane of the first two axes or across the line in space."""
    along = ends[1] - ends[0]
    side = np.zeros_like(along)
    side[:2] = -along[1], along[0]
    if not np.any(side):
        side[0] = np.linalg.norm(along)
    place = np.concatenate([[0.0, 0.1], 0.1 + 0.8 * (np.arange(2 * coils) + 0.5) / (2 * coils), [0.9, 1.0]])
    swing = np.concatenate([[0.0, 0.0], 0.06 * (-1.0) ** np.arange(2 * coils), [0.0, 0.0]])
    return ends[0] + place[:, None] * along + swing[:, None] * side


def _complete_directors(directors: list[np.ndarray], d: int) -> np.ndarray:
    """All directors as rows; missing directors are computed from the others."""
    if d == 2:
        first = directors[0]
        return np.stack([first, directors[1] if len(directors) > 1 else np.array([-first[1], first[0]])])
    if len(directors) == 1:
        other = np.eye(3)[int(np.argmin(np.abs(directors[0])))]
        directors = [directors[0], np.cross(directors[0], other)]
    third = np.cross(directors[0], directors[1]) if len(directors) == 2 else directors[2]
    return np.stack([directors[0], directors[1], third])


def _lines(shape: ShapeMark, d: int) -> list[np.ndarray]:
    size = list(shape.size)
    if shape.kind in ("box", "plate", "rod"):
        full = [size[0], size[1] if len(size) > 1 else 0.0, size[2] if len(size) > 2 else 0.0]
        if d == 2:
            return [CORNERS * full[:2]]
        ends = [np.c_[CORNERS * full[:2], np.full(5, z * full[2] / 2)] for z in (-1, 1)]
        return [*ends, *(np.stack([ends[0][k], ends[1][k]]) for k in range(4))]
    if shape.kind == "sphere" or d == 2:
        flat = np.c_[size[0] * CIRCLE, np.zeros(len(CIRCLE))]
        return [flat] if d == 2 else [flat, flat[:, [0, 2, 1]], flat[:, [2, 0, 1]]]
    if shape.kind == "ring":
        return [np.c_[size[0] * CIRCLE, np.zeros(len(CIRCLE))]]
    height = size[1] if len(size) > 1 else 0.0
    ends = [np.c_[size[0] * CIRCLE, np.full(len(CIRCLE), z * height / 2)] for z in (-1, 1)]
    return [*ends, *(np.stack([ends[0][k], ends[1][k]]) for k in (0, 8, 16, 24))]
