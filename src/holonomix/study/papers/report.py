"""Run items of the papers, print their verdicts, and write reports.

Every item writes `data/PAPER/ITEM.json`. Pages are made from all of these files, so items may be run one at a time; an
index lists those that were not run.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .items import Findings, Item, Paper, journal_style, timed

if TYPE_CHECKING:
    from rich.console import Console

MARKS = {
    "agrees": "agrees",
    "agrees after correction": "agrees after correcting a misprint",
    "differs": "differs",
}


# -- running and showing ----------------------------------------------------------------------------------------------


def run_item(
    paper: Paper, item: Item, quick: bool, out: Path, console: Console, formats: Sequence[str]
) -> dict[str, Any]:
    """Compute one item, print it, write its data and pictures under `out`, and return its record."""
    with journal_style():
        found, seconds = timed(lambda: item.run(quick))
        pictures = _write_figures(found, out / "img", f"{paper.name}-", formats)
    record = _record(paper, item, quick, found, seconds, pictures)
    _write_data(record, out / "data" / paper.name, item.name)
    _show(record, console)
    return record


def _record(
    paper: Paper, item: Item, quick: bool, found: Findings, seconds: float, pictures: list[str]
) -> dict[str, Any]:
    return {
        "paper": paper.name,
        "name": item.name,
        "title": item.title,
        "source": item.source,
        "claim": item.claim,
        "form": "quick" if quick else "full",
        "settings": item.quick if quick else item.full,
        "seconds": round(seconds, 1),
        "verdict": found.verdict.value,
        "reason": found.reason,
        "comparisons": [dataclasses.asdict(c) for c in found.comparisons],
        "notes": found.notes,
        "tables": [dataclasses.asdict(t) for t in found.tables],
        "pictures": pictures,
    }


def _write_figures(found: Findings, folder: Path, prefix: str, formats: Sequence[str]) -> list[str]:
    if found.figures:
        folder.mkdir(parents=True, exist_ok=True)
    for name, figure in found.figures.items():
        for form in formats:
            dates = {"CreationDate": None} if form == "pdf" else {"Date": None} if form == "svg" else None
            figure.savefig(folder / f"{prefix}{name}.{form}", metadata=dates, dpi=200)
    return [f"{prefix}{name}" for name in found.figures]


def _write_data(record: dict[str, Any], folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    for k, table in enumerate(record["tables"]):
        with (folder / f"{name}{f'-{k + 1}' if k else ''}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([table["columns"], *table["rows"]])


def _show(record: dict[str, Any], console: Console) -> None:
    from rich.table import Table as RichTable

    say = lambda words, **style: console.print(words, highlight=False, markup=False, **style)
    say(f"\n{record['name']}: {record['title']} ({record['source']})", style="bold")
    say(f"The paper: {record['claim']}")
    say(f"Here ({record['form']} form, {record['seconds']:g} s of CPU time): {record['settings']}")
    for table in record["tables"]:
        for view in _views(table, console):
            console.print(view, markup=False)
    view = RichTable(title="compared with the paper", title_justify="left")
    for column in ("statement", "paper", "found", "holds"):
        view.add_column(column, overflow="fold")
    for c in record["comparisons"]:
        view.add_row(c["what"], c["paper"], c["found"], "yes" if c["holds"] else "no")
    console.print(view, markup=False)
    for words in record["notes"]:
        say(f"Note: {words}")
    say(f"Verdict: {_verdict(record)}", style="bold")


def _views(table: dict[str, Any], console: Console) -> list[Any]:
    """Split a table so that every digit fits the console; each part repeats the key columns."""
    from rich.table import Table as RichTable

    columns, rows, keys = table["columns"], table["rows"], table["keys"]
    widths = [3 + max(len(row[k]) for row in (columns, *rows)) for k in range(len(columns))]
    room = console.width - 1 - sum(widths[:keys])
    pieces: list[list[int]] = [[]]
    for k in range(keys, len(columns)):
        if pieces[-1] and sum(widths[j] for j in pieces[-1]) + widths[k] > room:
            pieces.append([])
        pieces[-1].append(k)
    views = []
    for piece in pieces:
        view = RichTable(title=table["title"], title_justify="left")
        shown = [*range(keys), *piece]
        for k in shown:
            view.add_column(columns[k], justify="left" if k == 0 else "right", no_wrap=k >= keys)
        for row in rows:
            view.add_row(*(row[k] for k in shown))
        views.append(view)
    return views


def _verdict(record: dict[str, Any]) -> str:
    mark, reason = MARKS[record["verdict"]], record["reason"]
    return f"{mark} ({reason})" if reason else mark


# -- pages ------------------------------------------------------------------------------------------------------------


def write_report(papers: Sequence[Paper], folder: Path, pages: Sequence[str] = ("md", "html")) -> None:
    """One page per paper and an index, from the records under `folder/data`."""
    index = ["# The five papers, item by item", INDEX_WORDS]
    if (folder / "errata.md").exists():
        index.append("Every misprint, with the test that shows it: [errata](errata.md).")
    everything = {paper.name: _records(paper, folder) for paper in papers}
    index.append(_counts(papers, everything))
    for paper in papers:
        records = everything[paper.name]
        index += _index_of(paper, records)
        if records:
            _write_page(folder, paper.name, _page_of(paper, records), pages)
    _write_page(folder, "index", index, pages)


INDEX_WORDS = (
    "Made by `holonomix reproduce all --report DIR`. Each item states what the paper says, what we find, and a verdict "
    "that is computed from the numbers: *agrees*, *agrees after correcting a misprint*, or *differs*, with the reason. "
    "The form says whether the run had the length of the paper (full) or was shortened (quick)."
)


def _records(paper: Paper, folder: Path) -> dict[str, dict[str, Any]]:
    files = {item.name: folder / "data" / paper.name / f"{item.name}.json" for item in paper.items}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(tuple(heads)), *lines[1:]])


def _tally(records: Iterable[dict[str, Any]]) -> list[int]:
    """The number of items with each verdict."""
    verdicts = [r["verdict"] for r in records]
    return [verdicts.count(v) for v in MARKS]


def _counts(papers: Sequence[Paper], everything: dict[str, dict[str, dict[str, Any]]]) -> str:
    """One row per paper: the numbers of items that agree, agree after a correction, differ, or were not run."""
    heads = ("paper", "items", "agree", "after correction", "differ", "not run", "full form")
    rows = []
    for paper in papers:
        records = everything[paper.name].values()
        full = sum(r["form"] == "full" for r in records)
        rows.append((paper.name, len(paper.items), *_tally(records), len(paper.items) - len(records), full))
    total = ("all", *(sum(column) for column in list(zip(*rows))[1:]))
    return _table(heads, [tuple(map(str, row)) for row in (*rows, total)])


def _index_of(paper: Paper, records: dict[str, dict[str, Any]]) -> list[str]:
    agree, corrected, differ = _tally(records.values())
    unrun = len(paper.items) - len(records)
    rows = []
    for item in paper.items:
        record = records.get(item.name)
        link = f"[{item.name}]({paper.name}.md#{_anchor(item)})" if record else item.name
        verdict = (MARKS[record["verdict"]], record["reason"], record["form"]) if record else ("not run", "", "")
        rows.append((link, item.title, *verdict))
    words = f"{agree} agree, {corrected} agree after correcting a misprint, {differ} differ"
    return [
        f"## {paper.citation}",
        f"{words}{f', {unrun} not run' if unrun else ''}.",
        _table(("item", "what", "verdict", "because", "form"), rows),
    ]


def _anchor(item: Item) -> str:
    return "".join(c if c.isalnum() else "-" for c in item.name.lower()).strip("-")


def _page_of(paper: Paper, records: dict[str, dict[str, Any]]) -> list[str]:
    blocks = [f"# {paper.citation}"]
    for item in paper.items:
        if item.name not in records:
            continue
        r = records[item.name]
        remark = lambda c: f"corrected: {c['correction']}" if c["correction"] else "" if c["holds"] else c["why"]
        checks = [
            (c["what"], c["paper"], c["found"], "yes" if c["holds"] else "no", remark(c)) for c in r["comparisons"]
        ]
        blocks += [
            f'## <a id="{_anchor(item)}"></a>{r["name"]}: {r["title"]}',
            f"**The paper** ({r['source']}): {r['claim']}",
            f"**Settings** ({r['form']} form): {r['settings']}",
            f"**Verdict: {_verdict(r)}.**",
            _table(("statement", "paper", "found", "holds", "remark"), checks),
        ]
        blocks += [f"Note: {words}" for words in r["notes"]]
        for table in r["tables"]:
            blocks += [f"*{table['title']}*", _table(table["columns"], table["rows"])]
        for picture in r["pictures"]:
            finds = "; ".join(f"{c['what']}: {c['found']}" for c in r["comparisons"])
            title = r["title"][0].upper() + r["title"][1:]
            caption = f"{title}. The paper ({r['source']}): {r['claim']} We find: {finds}. Verdict: {_verdict(r)}."
            blocks += [f"![{picture}](img/{picture}.png)", f"*{caption.replace('*', '')}*"]
    return blocks


def _write_page(folder: Path, name: str, blocks: list[str], pages: Sequence[str]) -> None:
    from markdown_it import MarkdownIt

    folder.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(blocks) + "\n"
    if "md" in pages:
        (folder / f"{name}.md").write_text(text)
    if "html" in pages:
        body = MarkdownIt().enable("table").render(text).replace(".md#", ".html#").replace('.png"', '.svg"')
        (folder / f"{name}.html").write_text(PAGE.format(title=name, body=body))


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }}
table {{ border-collapse: collapse; font-size: 0.85rem; }}
td, th {{ border-bottom: 1px solid #ccc; padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }}
img {{ max-width: 100%; }}
</style></head><body>
{body}
</body></html>
"""
