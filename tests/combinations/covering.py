"""Which combinations are run: few enough for the time there is, with every pair of values among them.

A unit is a method on a system, with the starts and drivers to run it by; what a unit runs shares compiled programs.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .features import FORMS, MASSES, SHAPES, Features, draw
from .judge import DRIVERS
from .methods import methods, suits

CHEAP = ("auto", "store", "backwards")  # they run the program that is compiled already
COSTLY = ("array", "ensemble", "jit", "vmap", "save_at", "events", "jvp")
NEED_PARAMS = ("ensemble", "grad", "jvp")
# programs that take long to compile: their derivatives take minutes
LARGE = ("Taylor", "Adams", "LinearMultistep", *(f"RungeKutta-{k}" for k in (3, 4, 5)))

LARGE_SYSTEM = 1.2  # in sizes, see `size_of`

Pair = frozenset[tuple[str, str]]


@dataclasses.dataclass
class Planned:
    """A unit of the plan."""

    features: Features
    method: str
    cases: list[tuple[str, str]]  # start, driver

    def __str__(self) -> str:
        return f"{self.features}|{self.method}"


def driver_value(driver: str) -> str:
    """Forward and reverse mode count as one way to run: derivatives."""
    return "derivatives" if driver in ("grad", "jvp") else driver


def values_of(features: Features, start: str, driver: str) -> list[tuple[str, str]]:
    return [*features.values(), ("start", start), ("driver", driver_value(driver))]


def pairs_of(values: list[tuple[str, str]]) -> set[Pair]:
    return {frozenset(p) for p in itertools.combinations(values, 2)}


def first(pairs: Iterable[Pair]) -> Pair:
    """The first in an order that does not depend on the hashes of texts: every process draws the same plan."""
    return min(pairs, key=sorted)


def drivers_of(features: Features) -> tuple[str, ...]:
    """The drivers that a system is drawn with: large systems without those that compile long."""
    costly = (*COSTLY, "grad") if size_of(features) > LARGE_SYSTEM else ()
    return tuple(d for d in DRIVERS if (features.params or d not in NEED_PARAMS) and d not in costly)


@functools.cache
def all_features() -> tuple[Features, ...]:
    switches = itertools.product((False, True), repeat=6)
    found = (
        Features(g, m, form, *flags, params=params)
        for g, m, form, flags, params in itertools.product(SHAPES, MASSES, FORMS, list(switches), (True, False))
    )
    return tuple(f for f in found if f.valid)


@functools.cache
def feasible_pairs(costly: bool = True) -> frozenset[Pair]:
    """Every pair of values that some system, start and driver have together; without those of the costly drivers."""
    kinds = {(tuple(f.values()), f.starts, drivers_of(f)) for f in all_features()}
    found: set[Pair] = set()
    for values, starts, drivers in kinds:
        drivers = {driver_value(d) for d in drivers if costly or d not in (*COSTLY, "grad")}
        found |= pairs_of(list(values))
        found |= {frozenset((v, ("start", s))) for v in values for s in starts}
        found |= {frozenset((v, ("driver", d))) for v in values for d in drivers}
        found |= {frozenset((("start", s), ("driver", d))) for s in starts for d in drivers}
    return frozenset(found)


def draw_systems(rng: np.random.Generator) -> list[Features]:
    """Systems that together have every feasible pair of capabilities, by a greedy choice among random ones."""
    wanted = set().union(*(pairs_of(list(f.values())) for f in all_features()))
    chosen: list[Features] = []
    while wanted:
        candidates = [draw(rng) for _ in range(200)]
        best = max(candidates, key=lambda f: len(pairs_of(list(f.values())) & wanted) / (1 + size_of(f)))
        if wanted and not pairs_of(list(best.values())) & wanted:  # rare ones are looked for
            need = first(wanted)
            able = [f for f in all_features() if need <= set(f.values())]
            best = able[int(rng.integers(len(able)))]
        wanted -= pairs_of(list(best.values()))
        chosen.append(best)
    return chosen


def too_large(name: str, driver: str) -> bool:
    """Whether compiling takes too long to be drawn."""
    if driver == "grad":
        return heavy(name) or not plain(name)
    return heavy(name) and driver in ("jvp", "vmap", "events", "jit")


def heavy(name: str) -> bool:
    """Whether one step is a large program."""
    return name.split("[")[-1].startswith(LARGE)


def affordable(features: Features, name: str) -> bool:
    """Large programs only on systems whose equations are short."""
    rich = features.mass == "M(q)" or features.magnetic
    return not heavy(name) or np.prod(features.shape) <= (3 if rich else 6)


def plain(name: str) -> bool:
    """A method of the registry with its default settings."""
    return "[" not in name and "-" not in name and "/" not in name


GRADIENT = Features("horizontal", "scalar", force=True)  # reverse mode, which takes long to compile, on a small system

# large programs, on small systems
LARGE_ONES = {
    "TaylorAdaptive": Features("parabola", "diagonal", force=True),
    "Taylor": Features("surface", "scalar", time=True, moving=True),
    "AdamsMoulton": Features("horizontal", "full", magnetic=True, params=False),
}
# costly drivers, on small systems
SMALL_ONES = {
    "array": ("HBVM", Features("circle", "diagonal", magnetic=True)),
    "ensemble": ("RATTLE", Features("rods", "particles", "distance", redundant=True)),
    "jit": ("Composition", Features("parabola", "scalar", time=True, moving=True, redundant=True)),
    "vmap": ("SHAKE", Features("horizontal", "full", force=True)),
    "save_at": ("LineIntegral", Features("surface", "scalar", time=True)),
    "events": ("Gauss", Features("free", "M(q)")),
    "jvp": ("StormerVerlet", Features("track", "block", "local", moving=False)),
}

# Seconds of compiling, roughly, for a small system and a simple method.
SECONDS = {
    "native": 1.5, "auto": 0.2, "store": 0.4, "backwards": 0.1, "array": 1.2, "ensemble": 1.2, "jit": 1.5, "vmap": 3.0,
    "save_at": 3.0, "events": 4.0, "jvp": 4.0, "grad": 5.0,
}  # fmt: skip
SLOWNESS = {"TaylorAdaptive": 12.0, "Taylor": 4.0, "Adams": 4.0, "LinearMultistep": 2.0, "HBVM": 1.5, "LineInt": 2.0}


def size_of(features: Features) -> float:
    """How large the programs of a system are, roughly; about one for a pendulum."""
    n = float(np.prod(features.shape))
    coupled = (features.mass == "M(q)") + features.magnetic + 0.5 * features.mass.startswith("M(q)")
    return 0.5 + 0.02 * n**2 + 0.02 * coupled * n**2 + 0.02 * n**2 * (features.mass == "full")


def seconds(features: Features, name: str, drivers: Iterable[str]) -> float:
    """An estimate of what a unit costs beside its reference."""
    slow = next((x for prefix, x in SLOWNESS.items() if name.split("[")[-1].startswith(prefix)), 1.0)
    return size_of(features) * slow * sum(SECONDS[d] for d in drivers)


class Planner:
    """Adds units, and knows which pairs they leave uncovered."""

    def __init__(self, seed: int, every_method: bool = False, costly: bool = True):
        """`every_method`: with every driver by every method, beside all pairs. `costly`: with costly drivers too."""
        self.every_method, self.costly = every_method, costly
        self.rng = np.random.default_rng([seed, 26])
        self.units: list[Planned] = []
        self.uncovered = set(feasible_pairs(costly))
        self.used: dict[str, int] = dict.fromkeys(methods(), 0)
        self.by_method: dict[str, set[str]] = {name: set() for name in methods()}  # drivers that ran

    def covers(self, features: Features, cases: Iterable[tuple[str, str]]) -> set[Pair]:
        """The pairs that these cases would cover."""
        values = list(features.values())
        starts, drivers = {("start", s) for s, _ in cases}, {("driver", driver_value(d)) for _, d in cases}
        found = {frozenset((("start", s), ("driver", driver_value(d)))) for s, d in cases}
        found |= {frozenset(p) for p in itertools.product(values, starts | drivers)}
        return (found | pairs_of(values)) & self.uncovered

    def cases(self, features: Features, name: str, costly: Iterable[str]) -> list[tuple[str, str]]:
        """All starts on the native back end and with the costly drivers; a cheap driver with one start.

        A store takes a moment for its files: it is left out where that covers nothing new.
        """
        found = [(s, driver) for driver in ("native", *costly) for s in features.starts]
        for driver in CHEAP:
            mine = ("driver", driver)
            new = {s: sum(mine in p for p in self.covers(features, [(s, driver)])) for s in features.starts}
            best = max(features.starts, key=lambda s: (new[s], self.rng.uniform()))
            if driver == "backwards" or new[best] or (self.every_method and driver not in self.by_method[name]):
                found.append((best, driver))
        return found

    def able(self, features: Features, name: str) -> list[str]:
        """The costly drivers that the combination has."""
        sampler = methods()[name].stochastic  # no states between steps
        sampler |= name == "Leapfrog"
        found = [d for d in COSTLY if d in drivers_of(features) and not too_large(name, d)]
        return [d for d in found if not (sampler and d in ("save_at", "events"))]

    def add(self, features: Features, name: str, costly: Iterable[str] = ()) -> None:
        unit = Planned(features, name, self.cases(features, name, costly))
        self.uncovered -= self.covers(features, unit.cases)
        self.by_method[name] |= {driver for _, driver in unit.cases}
        self.used[name] += 1
        self.units.append(unit)

    def method_for(self, features: Features, names: list[str]) -> str:
        """The method that was drawn least among those that suit the system."""
        able = [n for n in names if suits(methods()[n], features) and affordable(features, n)]
        return min(able, key=lambda n: (self.used[n], self.rng.uniform()))

    def complete(self, names: list[str]) -> None:
        """Units until no pair is uncovered: those with most pairs per second of compiling."""
        while self.uncovered:
            candidates = [draw(self.rng) for _ in range(30)] + [self.system_for(first(self.uncovered))]
            best: tuple[float, Any] = (0.0, None)
            for features in candidates:
                name = self.method_for(features, names)
                able = self.able(features, name) if self.costly else []
                for costly in itertools.combinations((*able, None, None), 2):
                    used = [d for d in costly if d is not None]
                    gain = len(self.covers(features, self.cases(features, name, used)))
                    value = gain / (0.8 + seconds(features, name, ("native", *CHEAP, *used)))
                    best = max(best, (value, (features, name, used)), key=lambda b: b[0])
            self.add(*best[1])

    def system_for(self, need: Pair) -> Features:
        """A system that has the pair, out of some of those that do the one with most uncovered pairs."""
        wanted = dict(need)
        start, driver = wanted.pop("start", None), wanted.pop("driver", None)

        def able(f: Features) -> bool:
            has = set(f.values())
            return (
                set(wanted.items()) <= has
                and (start is None or start in f.starts)
                and (driver is None or driver in map(driver_value, drivers_of(f)))
            )

        fits = [f for f in all_features() if able(f)]
        some = [fits[int(k)] for k in self.rng.integers(len(fits), size=20)]
        return max(some, key=lambda f: len(pairs_of(list(f.values())) & self.uncovered))


PLANS = {costly: Path(__file__).with_name(f"plan_{'all' if costly else 'quick'}.txt") for costly in (False, True)}


def read_plan(costly: bool) -> list[Planned]:
    """A plan of the tests, which `python tools/combinations.py --plan` drew; drawing takes a while."""
    units = []
    for line in PLANS[costly].read_text().splitlines():
        features, method, *cases = line.split("|")
        units.append(Planned(Features.parse(features), method, [tuple(c.split(":")) for c in cases]))  # type: ignore
    return units


def write_plans(seeds: Iterable[int]) -> None:
    """Draw plans and keep the cheapest."""
    cost = lambda u: 0.8 + seconds(u.features, u.method, {d for _, d in u.cases})
    for costly, path in PLANS.items():
        units = min((pair_plan(seed, costly) for seed in seeds), key=lambda plan: sum(map(cost, plan)))
        lines = ("|".join([str(unit), *(f"{s}:{d}" for s, d in unit.cases)]) for unit in units)
        path.write_text("\n".join(lines) + "\n")


def pair_plan(seed: int, costly: bool) -> list[Planned]:
    """All pairs of values, with small programs; costly drivers in all pairs as well, or on small systems alone."""
    planner = Planner(seed, costly=costly)
    planner.add(GRADIENT, "RATTLE", ["grad"])
    for name, features in LARGE_ONES.items():
        planner.add(features, name)
    if not costly:
        for driver, (name, features) in SMALL_ONES.items():
            planner.add(features, name, [driver])
    planner.complete([name for name in methods() if plain(name) and not heavy(name)])
    return planner.units


def large_plan(seed: int) -> list[Planned]:
    """Every method of the registry and every variant on three systems, every wrapper on one, all starts.

    Together the systems of a method have as many values as fit; drivers that compile something new are spread over
    methods and systems.
    """
    planner = Planner(seed, every_method=True)
    systems = draw_systems(planner.rng)
    drawn: Counter[Any] = Counter()
    for name, method in methods().items():
        able = [f for f in systems if suits(method, f) and affordable(f, name)]
        able = able or [f for f in all_features() if suits(method, f) and affordable(f, name)][:200]
        seen: set[Any] = set()
        for _ in range(1 if "[" in name else 3):

            def value(f: Features) -> float:
                new = sum(1 / (1 + drawn[v]) for v in set(f.values()) - seen)  # noqa: B023
                return new * len(f.starts) ** 0.5 / (3 + size_of(f)) / (1 + drawn[f]) ** 0.5

            features = max(able, key=lambda f: (value(f), planner.rng.uniform()))
            seen |= set(features.values())
            drawn.update([features, *features.values()])
            planner.add(features, name, _drivers(planner, features, name))
    planner.complete([name for name in methods() if plain(name) and not heavy(name)])
    return planner.units


def _drivers(planner: Planner, features: Features, name: str) -> list[str]:
    """The costly drivers of one unit of the large plan: those first that the method has not had."""
    done, able = planner.by_method[name], planner.able(features, name)
    if not plain(name):
        able = [d for d in able if d in ("array", "ensemble", "jit", "save_at")]
    drivers = sorted((d for d in able if d not in done), key=lambda d: (SECONDS[d] > 2, planner.rng.uniform()))
    drivers = drivers[: 1 if size_of(features) > 2 or "[" in name else 2]
    if plain(name) and features.params and size_of(features) < 1 and "grad" not in done and not heavy(name):
        drivers.append("grad")
    return drivers
