"""One drawn combination: run, compare with the reference, and say right, refused, wrong or unconverged."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

from . import drivers
from .build import Built, Start
from .drivers import Refused, Rows, Run, Stopped
from .features import Features
from .methods import OWN_LIMIT, accepting_redundant, base, declared, methods

EPS = 2.0**-52
SLACK = 0.3  # by which a measured order may fall short
MOST_STEPS = 16384
# rounding errors of one run, in units of eps times the size of the coordinates
ROUNDING = 400.0
DRIVERS = (
    "native", "auto", "array", "ensemble", "jit", "vmap", "grad", "jvp", "save_at", "events", "store", "backwards",
)  # fmt: skip
FIRST_STEPS = {1: 128, 2: 32, 3: 24, 4: 16, 5: 16, 6: 8}


@dataclasses.dataclass
class Verdict:
    """What was found for one combination."""

    features: str
    start: str
    method: str
    driver: str
    seed: int
    verdict: str  # right, refused, wrong, unconverged
    reason: str = ""
    error: float | None = None
    order: float | None = None

    @property
    def case(self) -> str:
        """The text that runs this combination again: `python tools/combinations.py --case TEXT`."""
        return f"{self.features}|{self.start}|{self.method}|{self.driver}|{self.seed}"

    @property
    def failed(self) -> bool:
        return self.verdict in ("wrong", "unconverged")

    def __str__(self) -> str:
        numbers = "".join(f", {k} {v:.3g}" for k, v in (("error", self.error), ("order", self.order)) if v is not None)
        return f"{self.verdict}: {self.case}{numbers}{': ' if self.reason else ''}{self.reason}"


class Wrong(Exception):
    """A result that contradicts the reference or what the method declares."""


@dataclasses.dataclass
class Errors:
    """The largest errors of q and p over the rows of one run, and what rounding may make of them."""

    q: float
    p: float
    steps: int
    floor: float

    def of(self, variable: str) -> float:
        return self.q if variable == "q" else self.p

    def floor_of(self, variable: str) -> float:
        # a position rounded by ulp(q) changes the momentum of a step by ulp(q)/dt
        return self.floor * (1 if variable == "q" else max(self.steps, 4))


class Unit:
    """A method on a system: everything that shares one compiled program."""

    def __init__(self, features: Features, name: str, seed: int = 0, built: Built | None = None):
        self.features, self.name, self.seed = features, name, seed
        self.built = Built(features, seed) if built is None else built
        method = methods()[name]
        self.method = accepting_redundant(method) if features.redundant else method
        self.traits = declared(self.method, features)
        self._primary: dict[Any, Rows] = {}
        self._refused: Refused | None = None  # by the native back end
        self._judged: dict[Any, Any] = {}
        self._shared: dict[str, dict[str, Any]] = {}

    # -- the checks -----------------------------------------------------------------------------------------------

    def check(self, start: str, driver: str) -> Verdict:
        """The verdict on one combination."""
        found = Verdict(str(self.features), start, self.name, driver, self.seed, "right")
        try:
            self._dispatch(found, start, driver)
        except Refused as error:
            found.verdict, found.reason = "refused", short(str(error))
        except Stopped as error:
            found.verdict, found.reason = "unconverged", short(str(error))
        except (Wrong, hx.HolonomixError) as error:
            found.verdict, found.reason = "wrong", short(f"{type(error).__name__}: {error}")
        return found

    def _dispatch(self, found: Verdict, label: str, driver: str) -> None:
        start = self.built.start(label)
        if driver in ("native", "auto"):
            found.order, found.error = self._measured(start, drivers.SPAN)
        if driver == "native":
            if self._refused:
                raise self._refused
        elif driver == "backwards":
            found.order, found.error = self._measured(start, -drivers.SPAN)
        elif driver in ("auto", "array"):
            self._agree(found, start, drivers.trajectory(self._run(start), driver))
        elif driver == "store":
            rows, same = drivers.stored(self._run(start)), drivers.trajectory(self._run(start), "auto")
            if not (np.array_equal(rows.x, same.x) and np.array_equal(rows.p, same.p)):
                raise Wrong(f"a resumed run differs by {np.max(np.abs(rows.x - same.x)):.2g} from one in one go")
            self._agree(found, start, rows)
        elif driver in ("jit", "vmap"):
            self._agree(found, start, self._together(driver, label))
        elif driver == "ensemble":
            self._ensemble(found, start)
        elif driver in ("grad", "jvp"):
            self._gradient(found, start, driver == "grad")
        elif driver == "save_at":
            self._between(found, start)
        elif driver == "events":
            self._event(found, start)
        else:
            raise ValueError(driver)

    def _together(self, driver: str, label: str) -> Any:
        """The result for one start, by a compiled function that runs all starts; raises where that one failed."""
        if driver not in self._shared:
            runs = [self._run(self.built.start(s)) for s in self.features.starts]
            if driver in ("grad", "jvp"):
                few = [dataclasses.replace(r, steps=4, span=r.span * 4 / max(r.steps, 4)) for r in runs]
                found = drivers.gradients(few, driver == "grad")
            else:
                found = (drivers.jitted if driver == "jit" else drivers.vmapped)(runs)
            self._shared[driver] = dict(zip(self.features.starts, found, strict=True))
        result = self._shared[driver][label]
        if isinstance(result, Exception):
            raise result
        return result

    # -- runs -----------------------------------------------------------------------------------------------------

    @property
    def order(self) -> int:
        return self.traits.order_of("q")

    @property
    def first_steps(self) -> int:
        if self.method.tolerance_driven:
            return 4
        found = FIRST_STEPS.get(max(self.order, self.traits.order_of("p")), 4)
        if self.features.stiff:  # the fast oscillation has to be resolved, well where steps follow it or remember it
            return found * (2 if self.method.one_step and not self.method.adaptive else 16)
        return found

    def _run(self, start: Start, steps: int | None = None, span: float = drivers.SPAN) -> Run:
        return Run(self.built, self.method, start, steps or self.first_steps, span)

    def _rows(self, run: Run) -> Rows:
        """The run by `simulate`, natively where that is possible; kept for the comparisons with other drivers."""
        key = (run.start.label, run.steps, run.span)
        if key not in self._primary:
            try:
                self._primary[key] = drivers.trajectory(run)
            except Refused as error:
                if "cannot take this step" not in str(error):
                    raise
                self._refused = error
                self._primary[key] = drivers.trajectory(run, "array")
        return self._primary[key]

    def _errors(self, start: Start, rows: Rows, steps: int, strength: float = 1.0) -> Errors:
        exact = self.built.reference.motion(start.x, start.v, start.t0, rows.t, strength)
        p = np.asarray(jax.vmap(self.built.reference.momentum)(exact[:, 0], exact[:, 1]))
        floor = ROUNDING * EPS * start.size + 3e-12
        return Errors(float(np.max(np.abs(rows.x - exact[:, 0]))), float(np.max(np.abs(rows.p - p))), steps, floor)

    # -- order, constraint, energy ----------------------------------------------------------------------------------

    def _measured(self, start: Start, span: float) -> tuple[float | None, float]:
        """The order in q and the error with the first number of steps; raises where a declaration is contradicted."""
        key = (start.label, span)
        if key not in self._judged:
            self._judged[key] = self._measure(start, span)
        return self._judged[key]

    def _measure(self, start: Start, span: float) -> tuple[float | None, float]:
        run = self._run(start, span=span)
        rows = self._rows(run)
        self._check_structure(start, rows, run.steps)
        errors = [self._errors(start, rows, run.steps)]
        if self.method.tolerance_driven:
            for v in "qp":
                if errors[0].of(v) > 10 * errors[0].floor_of(v):
                    raise Wrong(f"error of {v} {errors[0].of(v):.2g} with a tolerance of round-off")
            return None, errors[0].q
        own_limit = base(self.method).name.startswith(OWN_LIMIT)
        if own_limit:
            return self._own_order(start, run, rows, errors[0])
        orders: dict[str, float] = {}
        n = run.steps
        while not all(self._settled(v, orders, errors[-1]) for v in "qp"):
            n *= 2
            if n > MOST_STEPS:
                break
            finer = self._rows(run.at(n))
            self._check_structure(start, finer, n)
            errors.append(self._errors(start, finer, n))
            for v in "qp":
                a, b = errors[-2].of(v), errors[-1].of(v)
                if b > errors[-1].floor_of(v):
                    orders[v] = float(np.log2(a / b))
        for v in "qp":
            if not self._settled(v, orders, errors[-1]):
                table = ", ".join(f"{e.steps}: {e.of(v):.2e}" for e in errors)
                raise Wrong(f"order {orders.get(v, np.nan):.2f} of {v}, declared {self.traits.order_of(v)} ({table})")
        if errors[0].q > 0.3:
            raise Wrong(f"error {errors[0].q:.2g} with {run.steps} steps")
        return orders.get("q"), errors[0].q

    def _settled(self, v: str, orders: dict[str, float], last: Errors) -> bool:
        return last.of(v) <= last.floor_of(v) or orders.get(v, -1.0) >= self.traits.order_of(v) - SLACK

    def _own_order(self, start: Start, run: Run, rows: Rows, error: Errors) -> tuple[float | None, float]:
        """The order towards the method's own limit, from three step sizes; the limit is near the exact motion."""
        if error.q > 0.15:
            raise Wrong(f"error {error.q:.2g} with {run.steps} steps")
        n, tried = run.steps, []
        while n <= 512:
            a, b, c = (self._rows(run.at(k)) for k in (n, 2 * n, 4 * n))
            first, second = (np.max(np.abs(u.x - w.x)) for u, w in ((a, b), (b, c)))
            if second < error.floor:
                return None, error.q
            tried.append(float(np.log2(first / second)))
            if tried[-1] >= self.order - SLACK:
                return tried[-1], error.q
            n *= 2
        raise Wrong(f"orders {tried} towards its own limit, declared {self.order}")

    def _check_structure(self, start: Start, rows: Rows, steps: int, between: bool = False) -> None:
        """Constraint, hidden constraint and energy to round-off where that is declared; `between` steps, always."""
        traits, reference = self.traits, self.built.reference
        raw = between and self.features.kind == "constrained" and not traits.hidden_exact  # HBVM: another method there
        degree = getattr(base(self.method), "degree", 99)
        unit = EPS * start.size * np.sqrt(max(steps, 16))
        for t, x, p in zip(rows.t, rows.x, rows.p, strict=True):
            v = np.asarray(reference.velocity(x, p))
            if self.features.kind == "constrained":
                g, rate = reference.violation(x, v, float(t))
                if (between or (traits.constraint_exact and degree >= 2)) and g > 30 * unit:
                    raise Wrong(f"constraint off by {g:.2g} with {steps} steps (declared exact)")
                if (between or traits.hidden_exact) and rate > 200 * unit:
                    raise Wrong(f"hidden constraint off by {rate:.2g} with {steps} steps (declared exact)")
            if traits.energy_exact and self._conserves(degree) and not raw:
                h = float(reference.energy(x, v, t))
                h0 = float(reference.energy(start.x, start.v, start.t0))
                if abs(h - h0) > 100 * unit * (10 if self.features.stiff else 1):
                    raise Wrong(f"energy off by {h - h0:.2g} with {steps} steps (declared exact)")

    def _conserves(self, degree: int) -> bool:
        """Whether energy is conserved, by a method that is exact for polynomials of the given degree."""
        f = self.features
        if f.time or f.force or f.moving or f.mass.startswith("M(q)"):
            return False
        return degree >= (4 if f.magnetic or f.stiff else 3)

    # -- other drivers ----------------------------------------------------------------------------------------------

    def _agree(self, found: Verdict, start: Start, rows: Rows) -> None:
        """The same result as by `simulate` on the native back end, and near the reference as that is."""
        run = self._run(start)
        found.error = self._errors(start, rows, run.steps).q
        self._measured(start, drivers.SPAN)
        same = self._rows(run)
        bound = Errors(0.0, 0.0, run.steps, ROUNDING * EPS * start.size)
        if rows.t.shape != same.t.shape or np.max(np.abs(rows.t - same.t)) > 1e-9:
            raise Wrong(f"times {rows.t} in place of {same.t}")
        for v, a, b in (("q", rows.x, same.x), ("p", rows.p, same.p)):
            off = float(np.max(np.abs(a - b)))
            if off > bound.floor_of(v):
                raise Wrong(f"{v} differs by {off:.2g} from the native back end")

    def _ensemble(self, found: Verdict, start: Start) -> None:
        """Three trajectories with their own params: the given one, another strength, another unit where allowed."""
        other = start
        if self.features.form != "distance" and not self.features.stiff and self.features.geometry != "rotation":
            other = dataclasses.replace(start, length=start.length * 0.3)
        runs = [self._run(start), self._run(start), self._run(other)]
        strengths = [1.0, 1.2, 1.0]
        first, stronger, smaller = drivers.ensemble(runs, strengths)
        self._agree(found, start, first)
        found.error = self._errors(start, first, runs[0].steps).q
        for rows, strength in ((stronger, 1.2), (smaller, 1.0)):
            error = self._errors(start, rows, runs[0].steps, strength)
            if error.q > 10 * found.error + 10 * error.floor:
                raise Wrong(f"error {error.q:.2g} with other params, {found.error:.2g} with the first")

    def _gradient(self, found: Verdict, start: Start, reverse: bool) -> None:
        slopes, differences = self._together("grad" if reverse else "jvp", start.label)
        size = max(1.0, float(np.max(np.abs(differences))))
        found.error = float(np.max(np.abs(slopes - differences))) / size
        if not found.error < 2e-6 * start.size:
            raise Wrong(f"derivatives {slopes} by differentiation, {differences} by differences")

    def _between(self, found: Verdict, start: Start) -> None:
        """Rows at times that no step meets, of the method's own order."""
        natural = start.t0 + np.array([0.371, 0.816])
        errors = []
        for k in range(6):
            run = self._run(start, self.first_steps * 2**k)
            rows = drivers.trajectory(run, "auto", save_at=natural * start.time)
            self._check_structure(start, rows, run.steps, between=True)
            errors.append(self._errors(start, rows, run.steps))
            found.error = errors[0].q
            if errors[-1].q <= 10 * errors[-1].floor:
                return
            if k and np.log2(errors[-2].q / errors[-1].q) >= self.order - SLACK:
                found.order = float(np.log2(errors[-2].q / errors[-1].q))
                return
            if base(self.method).name.startswith(OWN_LIMIT) and errors[-1].q < 0.15:
                return
        raise Wrong(f"errors between steps do not fall: {[f'{e.q:.2e}' for e in errors]}, declared {self.order}")

    def _event(self, found: Verdict, start: Start) -> None:
        """The time at which a coordinate passes a level that the exact motion passes."""
        when = start.t0 + 0.63
        x, v = self.built.reference.motion(start.x, start.v, start.t0, [when])[0]
        j = int(np.argmax(np.abs(v)))
        speed, level = abs(float(v.reshape(-1)[j])), float(x.reshape(-1)[j])
        if speed < 0.05:
            raise Refused("nothing moves: no event to find")
        errors = []
        level = start.length * (level + float(np.broadcast_to(start.shift, x.shape).reshape(-1)[j]))
        event = hx.Event(drivers.Level(jnp.asarray(level), jnp.asarray(start.length), j))
        for k in range(5):
            run = self._run(start, self.first_steps * 2**k)
            record = drivers.simulate(run, "auto", events=[event]).events[0]
            if not len(record.t):
                errors.append(np.inf)
                continue
            errors.append(float(np.min(np.abs(np.asarray(record.t) / start.time - when))))
            found.error = errors[0]
            floor = 10 * (ROUNDING * EPS * start.size + 3e-12) / speed
            if errors[-1] <= floor or (k and np.log2(errors[-2] / errors[-1]) >= self.order - SLACK):
                return
            if base(self.method).name.startswith(OWN_LIMIT) and errors[-1] < 0.15:
                return
        raise Wrong(f"times of the event do not converge: {[f'{e:.2e}' for e in errors]}")


def short(text: str) -> str:
    return " ".join(text.split())[:300]


def check_case(case: str) -> Verdict:
    """Run one combination by its text again."""
    features, start, name, driver, seed = case.split("|")
    return Unit(Features.parse(features), name, int(seed)).check(start, driver)


def refusal(features: Features, name: str, built: Built) -> str | None:
    """Why the library refuses the method on this system, from `method.check`; None where it does not."""
    method = methods()[name]
    try:
        (accepting_redundant(method) if features.redundant else method).check(built.system(built.nowhere()))
    except hx.MethodError as error:
        return str(error)
    return None


def timed(unit: Unit, start: str, driver: str) -> tuple[Verdict, float]:
    began = time.perf_counter()
    return unit.check(start, driver), time.perf_counter() - began
