"""The gallery of live pages (docs/live.md): ten pages, which take some seconds each.

usage: python tools/live_gallery.py [--out DIR] [NAME ...]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import holonomix as hx


def double_pendulum(path: Path) -> Path:
    """RATTLE beside a Runge-Kutta method that drifts off the rods, from the same start, with ghosts."""
    problem = hx.models.double_pendulum((1.0, 1.0), gravity=9.81, angles=(2.0, 2.5))
    sliders = {"gravity": (0, 20), "lengths[0]": (0.4, 2), "lengths[1]": (0.4, 2), "masses[1]": (0.2, 5)}
    sliders |= {"dt": (0.002, 0.06)}
    return hx.live(problem, hx.RATTLE(), path, compare=hx.RK4(), dt=0.02, rate=1.0, ensemble=150, sliders=sliders)


def four_bar(path: Path) -> Path:
    """The lengths of the bars can be changed while the crank turns."""
    bars = {f"lengths[{k}]": ends for k, ends in enumerate([(0.4, 1.2), (1.8, 3), (1.2, 2.4)])}
    return hx.live(hx.models.four_bar(rate=3.0), hx.RATTLE(), path, rate=2.0, sliders=bars | {"gravity": (0, 10)})


def strandbeest(path: Path) -> Path:
    """Theo Jansen's legs on one crankshaft: 44 distances of a mechanism in which everything hangs together."""
    problem = hx.models.strandbeest(2, gravity=1.0)
    assert isinstance(problem, hx.Problem)
    return hx.live(problem, hx.RATTLE(), path, dt=0.005, rate=1.5)


def heavy_top(path: Path) -> Path:
    """A rotation matrix as coordinates; fifty ghosts start in slightly different positions."""
    sliders = {"weight": (0, 10), "center[2]": (0.2, 1.5), "dt": (0.002, 0.05)}
    return hx.live(
        hx.models.heavy_top(), hx.RATTLE(), path, dt=0.01, rate=1.0, ensemble=50, spread=0.1, sliders=sliders
    )


def tethered_satellites(path: Path) -> Path:
    """Three satellites on cables, in orbit."""
    sliders = {"mu": (0.5, 2), "lengths[0]": (0.5, 2), "masses[2]": (0.2, 5)}
    return hx.live(hx.models.tethered_satellites(height=3.0), hx.RATTLE(), path, dt=0.02, rate=3.0, sliders=sliders)


def elastic_rod(path: Path) -> Path:
    """A rod in a box, thrown against its wall: every node keeps its frame orthonormal."""
    return hx.live(
        hx.models.cosserat_rod(6, stiffness=0.05),
        hx.RATTLE(),
        path,
        rate=0.15,
        sliders={"stiffness[0]": (0.002, 0.1), "stiffness[1]": (0.002, 0.1), "weight": (0, 2)},
    )


def henon_heiles(path: Path) -> Path:
    """A Poincare section of thirty orbits of one energy that fills up."""
    energy, orbits = 0.125, []
    for y in np.linspace(-0.35, 0.65, 30):
        room = 2 * energy - y**2 + 2 * y**3 / 3
        if room > 0.02:
            part = 0.6 * np.sin(9 * y)
            orbits.append(((0.0, y), (np.sqrt(room * (1 - part**2)), np.sqrt(room) * part)))
    q, p = (np.array([orbit[k] for orbit in orbits]) for k in (0, 1))
    observe = {"x": lambda q, p: q[0], "y": lambda q, p: q[1], "py": lambda q, p: p[1]}
    problem = hx.models.henon_heiles(energy, 0.1, 0.1)
    method = hx.Composition(hx.StormerVerlet(), order=4)
    sliders = {"coupling": (0, 1), "dt": (0.01, 0.2)}
    return hx.live(
        problem, method, path, rate=30.0, observe=observe, section=("x", "y", "py"), ensemble=(q, p), sliders=sliders
    )


def stiff_or_rigid(path: Path) -> Path:
    """The same pendulum with rods, and with stiff springs in their place."""
    rigid = hx.models.double_pendulum(gravity=1.0, angles=(1.2, 2.0))
    stiff = hx.Problem(rigid.system.penalized(8.0), rigid.q0, rigid.p0, rigid.dt, rigid.t1, name="stiff")
    return hx.live(
        rigid, hx.RATTLE(), path, dt=0.01, rate=2.0, compare=(stiff, hx.StormerVerlet()), sliders={"gravity": (0, 5)}
    )


def chain(path: Path) -> Path:
    """A chain of ten links."""
    return hx.live(
        hx.models.chain(10, length=1.0),
        hx.RATTLE(),
        path,
        rate=4.0,
        sliders={"gravity": (0, 5), "masses[9]": (0.2, 20)},
    )


def slider_crank(path: Path) -> Path:
    """A crank, a rod and a slider on a line."""
    sliders = {"lengths[0]": (0.3, 1.6), "lengths[1]": (2, 4), "gravity": (0, 5)}
    return hx.live(hx.models.slider_crank(rate=3.0), hx.RATTLE(), path, rate=2.0, compare=hx.RK4(), sliders=sliders)


PAGES = {
    make.__name__: make
    for make in (
        double_pendulum, four_bar, strandbeest, heavy_top, tethered_satellites, elastic_rod, henon_heiles,
        stiff_or_rigid, chain, slider_crank,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the gallery of live pages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PAGES))
    parser.add_argument("--out", type=Path, default=Path("out/live"))
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in PAGES]:
        parser.error(f"no page {unknown[0]}; there are: {', '.join(PAGES)}")
    for name in given.names or PAGES:
        began = time.perf_counter()
        page = PAGES[name](given.out / f"{name}.html")
        print(
            f"{name:20} {page.stat().st_size / 1e6:.2f} MB, made in {time.perf_counter() - began:.0f} s: {page}",
            flush=True,
        )


if __name__ == "__main__":
    main()
