"""The scene of a system, given by its model or derived from its distances, its bonds and the shape of q."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ..core.scene import Bond, Particles, Scene, ground_links
from ..core.types import ArrayLike
from .abstract import AbstractSystem
from .guides import guides_of
from .problem import Problem
from .structured import Distance


def scene_of(
    system: AbstractSystem, shape: tuple[int, ...], problem: Problem | None = None, q: ArrayLike | None = None
) -> Scene | None:
    """The scene of a picture, or None if coordinates are not positions and only curves can be drawn.

    The scene of the problem takes precedence. Coordinates with names are not positions. Otherwise q of shape (n, 2) or
    (n, 3) is n particles, (2,) or (3,) is one, and lines are drawn for the pairs of `Distance` or, without any, for the
    bonds of the problem. If the configuration q is given, the scene also has the curves and surfaces of constraints on
    single particles.
    """
    if problem is not None and problem.scene is not None:
        return problem.scene
    if problem is not None and problem.coordinates:
        return None
    distances = [term for term in system.constraint_terms if isinstance(term, Distance)]
    pairs: list[tuple[int, int]] = []
    anchors: list[tuple[float, ...]] = []
    for term in distances:
        fixed = -min(0, int(term.indices.array.min()))
        places = np.zeros((1, *shape[1:])) if term.anchors is None else np.asarray(term.anchors)
        before = len(anchors)
        anchors += [tuple(float(x) for x in np.reshape(place, -1)) for place in places[:fixed]]
        pairs += [(_offset_anchor(a, before), _offset_anchor(b, before)) for a, b in term.indices.array.tolist()]
    rows: Iterable[int] = ()
    if len(distances) == len(getattr(system, "constraint_terms", ())):  # all rows are distances, in this order
        rows = range(len(pairs))
    if not distances and problem is not None:
        pairs = [(int(a), int(b)) for a, b in problem.bonds]
    kind = "spring" if system.kind == "stiff" else "bar"
    scene = particle_scene(shape, pairs, anchors, rows, kind)
    if scene is None or q is None or not system.has_constraints:
        return scene
    held = {a for pair in pairs if min(pair) < 0 for a in pair}
    return dataclasses.replace(scene, guides=guides_of(system, np.asarray(q), held))


def _offset_anchor(index: int, before: int) -> int:
    return index if index >= 0 else index - before


def particle_scene(
    shape: tuple[int, ...],
    bonds: Iterable[tuple[int, int]],
    anchors: Iterable[tuple[float, ...]] = (),
    rows: Iterable[int] = (),
    kind: str = "bar",
) -> Scene | None:
    """Particles and straight bonds; -1 is the origin if there are no anchors. Pairs outside q are ignored.

    `rows` are the multipliers of the bonds, if known.
    """
    if len(shape) not in (1, 2) or shape[-1] not in (2, 3):
        return None
    count, dimension = 1 if len(shape) == 1 else shape[0], shape[-1]
    pairs, places = list(bonds), list(anchors)
    if not places and any(min(pair) < 0 for pair in pairs):
        places = [(0.0,) * dimension]
    known = list(rows) or [-1] * len(pairs)
    kept = [(a, b, k) for (a, b), k in zip(pairs, known) if -len(places) <= min(a, b) and max(a, b) < count]
    return Scene(
        dimension,
        particles=(Particles(tuple(range(count))),),
        bonds=(*(Bond(a, b, kind, row=k) for a, b, k in kept), *ground_links(tuple(places))),
        anchors=tuple(places),
    )
