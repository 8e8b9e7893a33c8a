"""Draw the first frame of every model in headless Chromium and put all of them on one sheet.

    python tools/contact_sheet.py sheet.png             # the picture of each page, with its name
    python tools/contact_sheet.py sheet.png --phone     # whole pages at the width of a phone
    python tools/contact_sheet.py sheet.png --only four_bar watt
    python tools/contact_sheet.py sheet.png --steps 200 # the first frame of a short run instead of the start alone

`one_by_one` is also what the tests use: one Chromium for all models.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.browser import Browser

import holonomix as hx
from holonomix.study.viewer import write_page

TILE = (420, 340)
PHONE = (390, 780)


def picture_source(name: str, steps: int) -> Any:
    """The problem, or a short run of it by a method that fits."""
    problem = hx.models.registry()[name]()
    if not steps:
        return problem
    method = hx.RATTLE() if problem.system.has_constraints else hx.StormerVerlet()
    if name == "double_pendulum_angles":  # its mass depends on q
        method = hx.ImplicitMidpoint()
    return hx.simulate(problem, method, steps=steps, throw=False)


def one_by_one(
    names: Iterable[str], browser: Browser, folder: Path, *, phone: bool = False, steps: int = 0
) -> Iterator[tuple[str, Path]]:
    """Names with the page opened in the browser and a screenshot: of its picture, or of a phone's screen."""
    for name in names:
        page = write_page(picture_source(name, steps), folder / f"{name}.html")
        browser.size(*(PHONE if phone else (1100, 620)))
        browser.open(page)
        browser.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        shot = browser.picture(folder / f"{name}.png")
        if not phone and browser.ask("document.getElementById('stage') !== null"):  # else: curves only
            place = "document.getElementById('stage').getBoundingClientRect()"
            box = browser.ask(f"(() => {{ const r = {place}; return [r.left, r.top, r.right, r.bottom]; }})()")
            with Image.open(shot) as whole:
                whole.convert("RGB").crop([round(x) for x in box]).save(shot)
        yield name, shot


def sheet(shots: list[tuple[str, Path]], columns: int, tile: tuple[int, int]) -> Image.Image:
    rows, (width, height) = -(-len(shots) // columns), tile
    out = Image.new("RGB", (columns * (width + 8) + 8, rows * (height + 26) + 8), "white")
    draw = ImageDraw.Draw(out)
    for k, (name, shot) in enumerate(shots):
        x, y = 8 + k % columns * (width + 8), 8 + k // columns * (height + 26)
        draw.text((x + 2, y + 2), name, fill="black")
        with Image.open(shot) as one:
            small = one.convert("RGB")
            small.thumbnail(tile, Image.Resampling.LANCZOS)
            out.paste(small, (x, y + 18))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--phone", action="store_true", help="whole pages, 390 pixels wide")
    parser.add_argument("--only", nargs="*", default=None, help="some models")
    parser.add_argument("--steps", type=int, default=0, help="steps of a run before the picture; 0: the start alone")
    parser.add_argument("--columns", type=int, default=0)
    chosen = parser.parse_args()
    names = chosen.only or list(hx.models.registry())
    tile = (260, 520) if chosen.phone else TILE
    with Browser() as browser, tempfile.TemporaryDirectory() as folder:
        shots = list(one_by_one(names, browser, Path(folder), phone=chosen.phone, steps=chosen.steps))
        sheet(shots, chosen.columns or (7 if chosen.phone else 4), tile).save(chosen.target)
    print(f"{len(shots)} models, {chosen.target}")


if __name__ == "__main__":
    main()
