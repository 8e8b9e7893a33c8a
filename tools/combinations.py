"""Run the table of combinations of docs/methods/combinations.md, or one combination of it.

    python tools/combinations.py                     # the large plan of seed 0, into out/combinations; then the page
    python tools/combinations.py --seeds 0..3        # more plans; what was run before is kept
    python tools/combinations.py --page              # only write the page from what was run
    python tools/combinations.py --case TEXT         # one combination again, by its text
    python tools/combinations.py --again             # run what was wrong again, then write the page
    python tools/combinations.py --plan              # draw the plans of the tests again
    python tools/combinations.py --fresh --match RATTLE   # run units again whose text has RATTLE in it

The generator is in tests/combinations. Results are lines of JSON, one per combination, written unit by unit: a run that
was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import itertools
import json
import os
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if importlib.metadata.version("jaxlib") == "0.10.1":  # short compilations, as in tests/conftest.py
    flags = "--xla_cpu_use_fusion_emitters=false --xla_llvm_disable_expensive_passes=true"
    os.environ.setdefault("XLA_FLAGS", flags)
RESULTS = ROOT / "out" / "combinations"
PAGE = ROOT / "docs" / "methods" / "combinations.md"


def run(seeds: Iterable[int], fresh: bool, match: str, part: tuple[int, int]) -> None:
    """Run the units of the large plans that have no results yet; `part` (k, n) takes every n-th of them."""
    import jax
    from tests.combinations.build import Built
    from tests.combinations.covering import large_plan
    from tests.combinations.judge import Unit

    RESULTS.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        target = RESULTS / f"seed-{seed}-{part[0]}.jsonl"
        done = set() if fresh else {row["unit"] for row in results() if row["seed"] == seed}
        units = sorted(large_plan(seed)[part[0] :: part[1]], key=lambda u: str(u.features))
        last, built, cleared = None, None, 0
        for k, planned in enumerate(units):
            if str(planned) in done or match not in str(planned):
                continue
            if built is None or planned.features != last:
                if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 2_000_000 * 1.2**cleared:  # compiled programs
                    jax.clear_caches()
                    cleared += 1
                last, built = planned.features, Built(planned.features, seed)
            began = time.process_time()
            unit = Unit(planned.features, planned.method, seed, built)
            verdicts = [unit.check(start, driver) for start, driver in planned.cases]
            seconds = time.process_time() - began
            with target.open("a") as file:
                for v in verdicts:
                    file.write(json.dumps({"unit": str(planned), **dataclasses.asdict(v)}) + "\n")
            bad = [v for v in verdicts if v.failed]
            print(
                f"{k + 1}/{len(units)} {planned} {len(verdicts)} cases, {len(bad)} failed, {seconds:.1f} s", flush=True
            )
            for v in bad:
                print(f"   {v}", flush=True)


def run_again() -> None:
    """Run the combinations that were wrong or did not converge once more."""
    from tests.combinations.judge import check_case

    for row in results():
        if row["verdict"] in ("wrong", "unconverged"):
            verdict = check_case("|".join(str(row[k]) for k in ("features", "start", "method", "driver", "seed")))
            print(verdict, flush=True)
            with (RESULTS / f"seed-{row['seed']}-again.jsonl").open("a") as file:
                file.write(json.dumps({"unit": row["unit"], **dataclasses.asdict(verdict)}) + "\n")


def results() -> list[dict[str, Any]]:
    """Every combination that was run; of one that was run twice, the last result."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("seed-*.jsonl"), key=lambda p: p.stat().st_mtime):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found["|".join(str(row[k]) for k in ("features", "start", "method", "driver", "seed"))] = row
    return list(found.values())


# -- the page ---------------------------------------------------------------------------------------------------------

SYSTEM_COLUMNS = {
    "free": ("constraint", "none"),
    "g(q)": ("constraint", "plain"),
    "structured": ("constraint", "structured"),
    "penalty": ("constraint", "stiff"),
    "g(q, t)": ("moving", "yes"),
    "redundant": ("redundant", "yes"),
    "diagonal M": ("mass", "diagonal"),
    "block M": ("mass", "block"),
    "full M": ("mass", "full"),
    "M(q)": ("mass", "M(q)"),
    "V(q, t)": ("time", "yes"),
    "A(q)": ("magnetic", "yes"),
    "f(q, v, t)": ("force", "yes"),
}


HEAD = """# Combinations

This page reports tests of every method on randomly drawn systems. The systems combine all features that a system may
have, the runs begin at every kind of start, and every driver executes them. The reference solution is computed from
index-reduced equations, which come from automatic differentiation of the plain functions and are integrated by SciPy's
DOP853 at 1e-12; it shares no code with the methods. A combination is right if the run reaches its end, the error falls
with the declared order as dt is halved, and constraint, hidden constraint and energy are exact to round-off if that is
declared. All drivers must agree with the native back end to round-off, and derivatives with central differences.

`python tools/combinations.py` writes this page; `--case TEXT` runs one combination again. The tests in
`tests/combinations` use other draws: all pairs of values in `make test`, more combinations in `make test-all`.
"""

LEGEND = """A cell has the number of right combinations and, in parentheses, the lowest order measured in q. A dash
means that the method refuses the feature, an empty cell that no such combination was drawn. `-1`, `-2` are variants of
the registry; `Composition[...]` and `GLA[...]` (with friction 0) wrap the method in brackets."""


def page(rows: list[dict[str, Any]]) -> str:
    from tests.combinations.covering import driver_value, values_of
    from tests.combinations.features import STARTS, Features
    from tests.combinations.judge import DRIVERS
    from tests.combinations.methods import methods

    cells: dict[tuple[str, Any], list[dict[str, Any]]] = defaultdict(list)
    pairs, triples = set(), set()
    for row in rows:
        values = values_of(Features.parse(row["features"]), row["start"], row["driver"])
        for value in [*values, ("driver", row["driver"])]:
            if cells[row["method"], value][-1:] != [row]:
                cells[row["method"], value].append(row)
        if row["verdict"] == "right":
            pairs |= {frozenset(p) for p in itertools.combinations(values, 2)}
            triples |= {frozenset(p) for p in itertools.combinations(values, 3)}
    counts = Counter(row["verdict"] for row in rows)
    drivers = {d: ("driver", d) for d in DRIVERS if d == driver_value(d)} | {d: ("driver", d) for d in ("grad", "jvp")}
    starts = {s: ("start", s) for s in STARTS}
    summary = {
        "combinations": len(rows),
        **{name: counts[name] for name in ("right", "refused", "wrong", "unconverged")},
        "methods, with variants and wrappers": len(methods()),
        "systems": len({row["features"] for row in rows}),
        "pairs of values among the right ones": len(pairs),
        "triples of values among the right ones": len(triples),
    }
    lines = [HEAD, "| what | number |", "|---|---|", *(f"| {k} | {n} |" for k, n in summary.items()), "", LEGEND]
    tables = {"By system": SYSTEM_COLUMNS, "By start": starts, "By driver": drivers}
    for title, columns in tables.items():
        lines += ["", f"## {title}", "", f"| method | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for name in methods():
            shown = [_cell(cells.get((name, value), []), _refuses(name, value)) for value in columns.values()]
            lines.append(f"| `{name}` | {' | '.join(shown)} |")
    lines += ["", "## Refused while running", "", *_reasons(rows)]
    failed = [row for row in rows if row["verdict"] in ("wrong", "unconverged")]
    if failed:
        text = "- **{features}** {start} {method} {driver}: {reason}"
        lines += ["", "## Wrong", "", *(text.format(**row) for row in failed)]
    return "\n".join(lines) + "\n"


def _cell(rows: list[dict[str, Any]], refused: bool) -> str:
    right = [row for row in rows if row["verdict"] == "right"]
    failed = [row for row in rows if row["verdict"] in ("wrong", "unconverged")]
    if failed:
        return f"**{len(failed)} wrong**"
    orders = [row["order"] for row in right if row["order"] is not None]
    if right:
        return f"{len(right)} ({min(orders):.1f})" if orders else f"{len(right)}"
    return "—" if refused or rows else ""


def _refuses(name: str, value: tuple[str, str]) -> bool:
    """Whether the method refuses every system with this value, by what it declares."""
    from tests.combinations.covering import all_features
    from tests.combinations.methods import methods, suits

    if value[0] in ("start", "driver"):
        return False
    method = methods()[name]
    return not any(suits(method, f) for f in _examples(value, all_features()))


_known: dict[Any, list[Any]] = {}


def _examples(value: tuple[str, str], features: Iterable[Any]) -> list[Any]:
    if value not in _known:
        _known[value] = [f for f in features if value in set(f.values())]
    return _known[value]


def _reasons(rows: list[dict[str, Any]]) -> list[str]:
    """Refusals by driver, with one example of the reason each."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["verdict"] == "refused":
            found[row["driver"]].append(row)
    lines = ["| driver | number | an example |", "|---|---|---|"]
    for driver, refused in sorted(found.items()):
        example = refused[0]["reason"].replace("|", "/")
        lines.append(f"| {driver} | {len(refused)} | `{refused[0]['method']}`: {example} |")
    return lines if found else ["None."]


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("..")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0", help="0, or 0..3")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th unit from k on, for several processes")
    parser.add_argument("--match", default="", help="only units whose text contains this")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--case", help="run one combination by its text")
    parser.add_argument("--again", action="store_true", help="run what was wrong again")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--plan", action="store_true", help="draw the plans of the tests")
    given = parser.parse_args()
    if given.plan:
        from tests.combinations.covering import write_plans

        return write_plans(_seeds(given.seeds))
    if given.case:
        from tests.combinations.judge import check_case

        found = check_case(given.case)
        print(found)
        sys.exit(found.failed)
    if given.again:
        run_again()
    elif not given.page:
        k, n = (int(x) for x in given.part.split("/"))
        run(_seeds(given.seeds), given.fresh, given.match, (k, n))
    given.out.write_text(page(results()))
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
