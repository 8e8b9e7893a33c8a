"""Frames per second of live pages in headless Chromium, which draws in software.

usage: python tools/live_fps.py PAGE.html ...

Beside the frames per second, which depend on what else the computer does, it prints the CPU time of a frame: that of
the page's script, and that of all processes of the browser, with the software rendering. Below 16.7 ms each a computer
with two free cores shows 60 frames per second.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.browser import Browser

FRAMES = "Number(document.documentElement.dataset.frames || 0)"
MEASURE = """(() => {
  for (const name of ['advance', 'show']) {
    const f = source[name].bind(source);
    source[name] = (x) => { const a = performance.now(); f(x); window.spent += performance.now() - a; };
  }
})()"""


def cpu_seconds(root: int) -> float:
    """CPU time of a process and all its descendants."""
    parents, times = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry)] = int(fields[1])
            times[int(entry)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family, grown = {root}, True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in family} - family
        family, grown = family | new, bool(new)
    return sum(times.get(pid, 0.0) for pid in family)


def main() -> None:
    parser = argparse.ArgumentParser(description="Frames per second of live pages.")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--width", type=int, default=1200)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"{'page':22} {'MB':>5} {'frames/s':>9} {'script ms':>10} {'all CPU ms':>11} {'pixels':>7}")
    with Browser() as browser:
        browser.size(given.width, 800)
        for page in given.pages:
            browser.open(page)
            time.sleep(2.5)
            browser.ask(f"window.spent = 0; {MEASURE}")
            frames, began, used = browser.ask(FRAMES), time.perf_counter(), cpu_seconds(browser.process.pid)
            browser.ask("window.spent = 0")
            time.sleep(given.seconds)
            spent, counted = browser.ask("window.spent"), browser.ask(FRAMES) - frames
            used, passed = cpu_seconds(browser.process.pid) - used, time.perf_counter() - began
            pixels = browser.ask("drawing ? drawing.ratio : 1")
            print(
                f"{page.stem:22} {page.stat().st_size / 1e6:5.2f} {counted / passed:9.1f} {spent / counted:10.2f} "
                f"{1000 * used / counted:11.1f} {pixels:7.2f}"
            )


if __name__ == "__main__":
    main()
