"""A drawing of a model in the terminal, with the dots of Braille characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from holonomix.mechanics.problem import Problem

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of a Braille character by row and column


def sketch(problem: Problem, width: int = 44, height: int = 14) -> str:
    """The initial configuration as lines of Braille characters; empty if there is no scene.

    3D is drawn in oblique projection.
    """
    from holonomix.mechanics.scenes import scene_of
    from holonomix.study.plotting.outlines import outlines

    q = np.asarray(problem.q0)[None]
    scene = scene_of(problem.system, q.shape[1:], problem)
    if scene is None:
        return ""
    points = scene.points(q)[0]
    at = lambda k: scene.place(points, k)
    lines = [np.stack([at(b.a), at(b.b)]) for b in scene.bonds]
    lines += [np.stack([at(k) for k in (*p.indices, *(p.indices[:1] if p.closed else ()))]) for p in scene.polylines]
    lines += [np.asarray(x) for frame in scene.frames for x in outlines(scene, points, frame)]
    marks = [at(k)[None] for group in scene.particles for k in group.indices]
    marks += [np.asarray(anchor, float)[None] for anchor in scene.anchors]
    if scene.dimension == 3:
        view = np.array([[1.0, 0.0], [0.35, 0.3], [0.0, 1.0]])
        lines, marks = ([x @ view for x in parts] for parts in (lines, marks))
    if not lines and not marks:
        return ""
    everything = np.concatenate([*lines, *marks])
    low, size = everything.min(axis=0), float(np.ptp(everything, axis=0).max()) or 1.0
    middle = low + np.ptp(everything, axis=0) / 2
    scale = (min(2 * width, 4 * height) - 3) / size
    dots = np.zeros((4 * height, 2 * width), bool)

    def place(x: np.ndarray) -> np.ndarray:
        return np.stack([width + scale * (x[:, 0] - middle[0]), 2 * height - scale * (x[:, 1] - middle[1])], axis=1)

    for line in map(place, lines):
        for a, b in zip(line[:-1], line[1:]):
            steps = np.linspace(0, 1, int(2 * np.abs(b - a).max()) + 2)[:, None]
            _fill(dots, a + steps * (b - a))
    for mark in map(place, marks):
        _fill(dots, mark + np.array([[i, j] for i in (-0.5, 0.5) for j in (-0.5, 0.5)]))
    text = []
    for row in range(height):
        cells = dots[4 * row : 4 * row + 4].reshape(4, width, 2)
        bits = np.sum([cells[i, :, j] * DOTS[i][j] for i in range(4) for j in range(2)], axis=0)
        text.append("".join(chr(0x2800 + int(b)) if b else " " for b in bits).rstrip())
    return "\n".join(text).strip("\n")


def _fill(dots: np.ndarray, places: np.ndarray) -> None:
    x, y = np.clip(np.round(places).astype(int).T, 0, np.array(dots.shape)[::-1, None] - 1)
    dots[y, x] = True
