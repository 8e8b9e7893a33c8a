"""Animations of a run, drawn from the scene of its problem."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from .notebook import Picture
from .solution import draw_bodies, limits, plot_scene

if TYPE_CHECKING:
    from ...run.solution import Solution


def animate(
    solution: Solution,
    path: str | os.PathLike[str],
    *,
    frames: int = 150,
    fps: int = 25,
    trail: int = 40,
    size: tuple[float, float] = (4.5, 4.5),
    dpi: int = 80,
) -> Path:
    """Write `.gif`, `.mp4` or `.webm` (these two need ffmpeg) with frames equally spaced in time."""
    from matplotlib import animation

    target, scene = Path(path), solution.scene
    if scene is None:
        raise InputError(
            "this run has no scene: its coordinates are not positions. Give the Problem a "
            "scene=hx.mechanics.Scene(...), or draw curves with sol.plot() or sol.phase()"
        )
    if target.suffix == ".gif":
        writer: Any = animation.PillowWriter(fps=fps)
    elif target.suffix in (".mp4", ".webm") and animation.FFMpegWriter.isAvailable():
        writer = animation.FFMpegWriter(fps=fps)
    else:
        raise InputError(f"cannot write {target.name}: use .gif, or .mp4 and .webm with ffmpeg installed")
    t = np.asarray(solution.t)
    wanted = np.linspace(t[0], t[-1], max(2, min(int(frames), len(t))))
    order = 1 if t[-1] >= t[0] else -1
    rows = np.clip(np.searchsorted(order * t, order * wanted), 0, len(t) - 1)
    points = scene.points(solution.q)
    figure = Picture(figsize=size, layout="constrained")
    axes: Any = figure.add_subplot(projection="3d" if scene.dimension == 3 else None)
    low, high = limits(scene, points)

    def draw(k: int) -> list[Any]:
        axes.clear()
        now = rows[k]
        start = rows[max(0, k - trail)]
        plot_scene(scene, points[start : now + 1], axes, legend=False)
        draw_bodies(scene, points[now], axes)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        if scene.dimension == 3:
            axes.set_zlim(low[2], high[2])
            axes.set_box_aspect(high - low)
        else:
            axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(f"t = {t[now]:.3g}", fontsize="small", loc="left")
        return []

    movie = animation.FuncAnimation(figure, draw, frames=len(rows), blit=False)
    movie.save(target, writer=writer, dpi=dpi)
    return target
