"""Which combinations are run: few enough for the time there is, with every pair of values among them.

A unit is a method on a system, with the starts and drivers to run it by; what a unit runs shares compiled programs.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from .features import FORMS, MASSES, SHAPES, Features, draw
from .judge import DRIVERS
from .methods import methods, suits

CHEAP = ("auto", "store", "backwards")  # they run the program that is compiled already
COSTLY = ("array", "ensemble", "jit", "vmap", "save_at", "events", "jvp")
NEED_PARAMS = ("ensemble", "grad", "jvp")
# programs that take long to compile: their derivatives take minutes
LARGE = ("Taylor", "AdamsBashforth", "AdamsMoulton", "RungeKutta-5")

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
    return tuple(d for d in DRIVERS if features.params or d not in NEED_PARAMS)


@functools.cache
def all_features() -> tuple[Features, ...]:
    switches = itertools.product((False, True), repeat=6)
    found = (
        Features(g, m, form, *flags, params=params)
        for g, m, form, flags, params in itertools.product(SHAPES, MASSES, FORMS, list(switches), (True, False))
    )
    return tuple(f for f in found if f.valid)


@functools.cache
def feasible_pairs() -> frozenset[Pair]:
    """Every pair of values that some system, start and driver have together."""
    kinds = {(tuple(f.values()), f.starts, drivers_of(f)) for f in all_features()}
    found: set[Pair] = set()
    for values, starts, drivers in kinds:
        drivers = {driver_value(d) for d in drivers}
        found |= pairs_of(list(values))
        found |= {frozenset((v, ("start", s))) for v in values for s in starts}
        found |= {frozenset((v, ("driver", d))) for v in values for d in drivers}
        found |= {frozenset((("start", s), ("driver", d))) for s in starts for d in drivers}
    return frozenset(found)


def draw_systems(rng: np.random.Generator, least: int = 0) -> list[Features]:
    """Systems that together have every feasible pair of capabilities, by a greedy choice among random ones."""
    wanted = set().union(*(pairs_of(list(f.values())) for f in all_features()))
    chosen: list[Features] = []
    while wanted or len(chosen) < least:
        candidates = [draw(rng) for _ in range(60)]
        best = max(candidates, key=lambda f: len(pairs_of(list(f.values())) & wanted))
        if wanted and not pairs_of(list(best.values())) & wanted:  # rare ones are looked for
            need = first(wanted)
            able = [f for f in all_features() if need <= set(f.values())]
            best = able[int(rng.integers(len(able)))]
        wanted -= pairs_of(list(best.values()))
        chosen.append(best)
    return chosen


def too_large(name: str, driver: str) -> bool:
    """Whether compiling takes too long to be drawn."""
    inner = name.split("[")[-1].rstrip("]")
    heavy = inner.startswith(LARGE)
    if driver == "grad":
        return heavy or not plain(name)
    return heavy and driver in ("jvp", "vmap", "events") or (inner == "TaylorAdaptive" and driver == "jit")


def plain(name: str) -> bool:
    """A method of the registry with its default settings."""
    return "[" not in name and "-" not in name and "/" not in name


GRADIENT = Features("horizontal", "scalar", force=True)  # reverse mode, which takes long to compile, on a small system


# Seconds of compiling, roughly, for a small system and a simple method.
SECONDS = {
    "native": 1.0, "auto": 0.1, "store": 0.3, "backwards": 0.1, "array": 0.4, "ensemble": 0.6, "jit": 0.7, "vmap": 1.4,
    "save_at": 1.2, "events": 1.5, "jvp": 2.2, "grad": 3.0,
}  # fmt: skip
SLOWNESS = {"TaylorAdaptive": 12.0, "Taylor": 4.0, "Adams": 4.0, "LinearMultistep": 2.0, "HBVM": 1.5, "LineInt": 2.0}


def seconds(features: Features, name: str, drivers: Iterable[str]) -> float:
    """An estimate of what a unit costs beside its reference."""
    size = 0.8 + 0.1 * float(np.prod(features.shape)) + 0.7 * (features.mass == "M(q)") + 0.3 * features.magnetic
    slow = next((x for prefix, x in SLOWNESS.items() if name.split("[")[-1].startswith(prefix)), 1.0)
    return size * slow * sum(SECONDS[d] for d in drivers)


class Planner:
    """Adds units, and knows which pairs they leave uncovered."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng([seed, 26])
        self.units: list[Planned] = []
        self.uncovered = set(feasible_pairs())
        self.used: dict[str, int] = dict.fromkeys(methods(), 0)
        self.by_method: dict[str, set[str]] = {name: set() for name in methods()}  # drivers that ran

    def covers(self, features: Features, cases: Iterable[tuple[str, str]]) -> set[Pair]:
        """The pairs that these cases would cover."""
        values = list(features.values())
        starts, drivers = {("start", s) for s, _ in cases}, {("driver", driver_value(d)) for _, d in cases}
        found = {frozenset((("start", s), ("driver", driver_value(d)))) for s, d in cases}
        found |= {frozenset(p) for p in itertools.product(values, starts | drivers)}
        return (found | pairs_of(values)) & self.uncovered

    def cases(self, features: Features, costly: Iterable[str]) -> list[tuple[str, str]]:
        """All starts on the native back end and with the costly drivers; a cheap driver with one start."""
        found = [(s, driver) for driver in ("native", *costly) for s in features.starts]
        for driver in CHEAP:
            gain = {s: frozenset((("start", s), ("driver", driver))) in self.uncovered for s in features.starts}
            found.append((max(features.starts, key=lambda s: (gain[s], self.rng.uniform())), driver))
        return found

    def able(self, features: Features, name: str) -> list[str]:
        """The costly drivers that the combination has."""
        sampler = methods()[name].stochastic  # which has no states between steps
        found = [d for d in COSTLY if d in drivers_of(features) and not too_large(name, d)]
        return [d for d in found if not (sampler and d in ("save_at", "events"))]

    def add(self, features: Features, name: str, costly: Iterable[str] = ()) -> None:
        unit = Planned(features, name, self.cases(features, costly))
        self.uncovered -= self.covers(features, unit.cases)
        self.by_method[name] |= {driver for _, driver in unit.cases}
        self.used[name] += 1
        self.units.append(unit)

    def method_for(self, features: Features, names: list[str]) -> str:
        """The method that was drawn least among those that suit the system."""
        able = [n for n in names if suits(methods()[n], features)]
        return min(able, key=lambda n: (self.used[n], self.rng.uniform()))

    def complete(self, names: list[str]) -> None:
        """Units until no pair is uncovered: those with most pairs per second of compiling."""
        while self.uncovered:
            candidates = [draw(self.rng) for _ in range(30)] + [self.system_for(first(self.uncovered))]
            best: tuple[float, Any] = (0.0, None)
            for features in candidates:
                name = self.method_for(features, names)
                for costly in itertools.combinations((*self.able(features, name), None, None), 2):
                    used = [d for d in costly if d is not None]
                    gain = len(self.covers(features, self.cases(features, used)))
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


def quick_plan(seed: int) -> list[Planned]:
    """All pairs of values, with small programs."""
    planner = Planner(seed)
    planner.add(GRADIENT, "RATTLE", ["grad"])
    planner.complete([name for name in methods() if plain(name)])
    return planner.units


def large_plan(seed: int, per_method: int = 4, per_wrapper: int = 2) -> list[Planned]:
    """Every method with every capability that it declares, every start and every driver."""
    planner = Planner(seed)
    systems = draw_systems(planner.rng, 40)
    for name, method in methods().items():
        able = [f for f in systems if suits(method, f)] or [f for f in all_features() if suits(method, f)][:200]
        seen: set[Any] = set()
        for _ in range(per_wrapper if "[" in name else per_method):
            fresh = lambda f: len(set(f.values()) - seen)  # noqa: B023
            features = max(able, key=lambda f: (fresh(f), planner.rng.uniform()))
            seen |= set(features.values())
            done = planner.by_method[name]
            drivers = sorted(planner.able(features, name), key=lambda d: (d in done, planner.rng.uniform()))[:2]
            small = features.params and np.prod(features.shape) <= 4
            if small and "grad" not in done and not too_large(name, "grad"):
                drivers.append("grad")
            planner.add(features, name, drivers)
    planner.complete(list(methods()))
    return planner.units
