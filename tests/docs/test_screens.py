"""Five pages of the built site at the width of a screen and of a phone: nothing is cut off, and no script fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..browser import Browser, needs_chromium

SITE = Path(__file__).parents[2] / "out" / "docs"
PAGES = ("index", "theory/03_symplecticity", "howto/01_own_pendulum", "methods/index", "reference/runs")
# elements of the text that end right of the window, except inside of boxes that scroll
CUT = """[...document.querySelectorAll('.md-content *')].filter((e) => {
  if (e.getBoundingClientRect().right <= innerWidth + 1 || !e.getBoundingClientRect().width) return false;
  for (let p = e; p; p = p.parentElement) if (['auto', 'scroll'].includes(getComputedStyle(p).overflowX)) return false;
  return true;
}).map((e) => e.tagName + ' ' + (e.textContent || '').slice(0, 60))"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@needs_chromium
@pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built: make docs")
@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_cut_off(browser, width, tmp_path):
    browser.size(width, 900)
    for name in PAGES:
        browser.open(SITE / f"{name}.html")
        assert browser.ask(CUT) == [], name
        assert browser.ask("document.documentElement.scrollWidth") <= width, name
        assert browser.picture(tmp_path / "page.png").stat().st_size > 20_000, name
    assert not browser.messages


@needs_chromium
def test_a_page_that_is_too_wide_is_found(browser, tmp_path):
    page = tmp_path / "wide.html"
    page.write_text("<div class='md-content'><p style='width: 900px'>wide</p></div>")
    browser.size(700, 900)
    browser.open(page)
    assert browser.ask(CUT) == ["P wide"]
