"""Live pages, which compute their frames with compiled steps in the page itself."""

from __future__ import annotations

import base64
import dataclasses
import math
import os
import re
import webbrowser
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holonomix.core.checks import file_path, finite_array, number, short_repr, whole_number
from holonomix.core.errors import InputError, ShapeError
from holonomix.core.status import Status
from holonomix.core.types import ArrayLike
from holonomix.mechanics.problem import Problem
from holonomix.methods.base import AbstractMethod
from holonomix.run.arguments import Arguments, MethodLike, Observe, Options
from holonomix.run.loop import Loop, make_loop
from holonomix.run.solution import constraint_of, energy_of, hidden_of
from holonomix.study.export.export import layout, split_observables
from holonomix.study.export.kernels import Kernel, make_kernel
from holonomix.study.export.targets import WASM, Target
from holonomix.study.export.wasm_module import MATH, module_of

from .page import page_of, save_page
from .recording import from_problem

if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]
    # user input, checked with our own errors
    Compare = MethodLike | Sequence[Any]
    Sliders = Mapping[str, Sequence[float]]
    Starts = int | Sequence[ArrayLike]
    Names = Sequence[str]
    Number = float
    GivenProblem = Problem
else:
    PathLike = Compare = Sliders = Starts = Names = Number = GivenProblem = object

STEPS_PER_SECOND = 120  # default playback rate at speed 1
PREVIEW_SECONDS = 15.0  # playback time that sets the size of the picture
MAX_GHOSTS = 500
MAX_BYTES = 1_500_000
ENERGY = "live energy"  # these names are also in live.js
OWN = {ENERGY: energy_of, "live constraint": constraint_of, "live hidden constraint": hidden_of}
NAME = "k"  # prefix of the functions in a module


def live(
    problem: GivenProblem,
    method: MethodLike,
    path: PathLike,
    *,
    sliders: Sliders | None = None,
    compare: Compare | None = None,
    observe: Observe | None = None,
    section: Names | None = None,
    ensemble: Starts = 0,
    spread: Number = 1e-3,
    rate: Number | None = None,
    dt: Number | None = None,
    key: ArrayLike | None = None,
    open: bool = False,
) -> Path:
    """Write a page that runs the compiled step of `method` on `problem`, and return its path.

    The page is one file of at most 1.5 MB that loads nothing else. The simulation runs until it is stopped. Particles
    and bodies can be dragged; the others follow, as the constraints require.

    `sliders` maps parameters of the system, entries such as `"lengths[0]"`, or `"dt"` to their lowest and highest
    values. `compare` is a second method from the same start, or a pair of another problem with coordinates of the same
    shape and a method; it is shown beside the first. `observe` is as in `simulate`; each observable becomes a chart.
    `section` names three of them: when the first rises through zero, the page plots the second and the third.
    `ensemble` is a number of further trajectories (ghosts). Their starts differ from the first by normal random numbers
    of standard deviation `spread` in every entry of q, projected onto the constraints. A pair of arrays gives their q
    and p instead. `rate` is the simulated time per second; the default is that of 120 steps.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"live needs a Problem, which has a start and a step, not {type(problem).__name__}")
    target = file_path("path", path)
    if sliders is not None and not isinstance(sliders, Mapping):
        raise InputError(
            "sliders must be a dictionary from names of parameters to their lowest and highest values, such as "
            f'{{"gravity": (1.0, 20.0)}}, not {short_repr(sliders)}'
        )
    kernels = [_kernel(problem, method, observe, dt, key)]
    if compare is not None:
        second, other = _second(problem, compare)
        kernels.append(_kernel(second, other, None, dt, key))
    options = _options(
        kernels, sliders=sliders or {}, section=section, ensemble=ensemble, spread=spread, rate=rate, t1=problem.t1
    )
    options["coordinates"] = list(problem.coordinates)
    names = " and ".join(k.loop.method.name for k in kernels)
    facts = {"method": names, "dt": float(kernels[0].loop.consts.dt), "coordinates": int(np.size(problem.q0))}
    recording = dataclasses.replace(from_problem(problem), facts=facts, p=None)
    page = page_of(recording, live=options)
    if len(page) > MAX_BYTES:
        sizes = " and ".join(f"{len(k.module):,} bytes ({k.loop.method.name})" for k in kernels)
        raise InputError(f"the page has {len(page):,} bytes, more than {MAX_BYTES:,}; the modules have {sizes}")
    save_page(page, target)
    if open:
        webbrowser.open(target.absolute().as_uri())
    return target


def live_options(solution: Any) -> dict[str, Any]:
    """The kernel of a run, as a second source of frames on the page of its rows."""
    loop = solution.loop
    if loop.watch.bounces:
        raise InputError("a live page cannot bounce: view this run without live=True")
    names = {"dt": float(loop.consts.dt), "t0": float(loop.consts.t0), "key": loop.consts.key}
    given = Arguments.of(loop.system, loop.method, loop.q0[0], loop.p0[0], Options(steps=1, **names))
    options = _options([_compiled(given)], t1=abs(float(solution.t[-1] - solution.t[0])))
    return {**options, "coordinates": list(solution.coordinate_names), "beside": True}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A kernel, its module for WebAssembly, and the loop that it was made of."""

    loop: Loop
    kernel: Kernel
    module: bytes

    def as_dict(self) -> dict[str, Any]:
        """What the page needs."""
        constrained = self.loop.constrained
        return {
            "method": self.loop.method.name,
            "code": base64.b64encode(zlib.compress(self.module, 9)).decode(),
            "layout": layout(self.kernel),
            "adaptive": self.kernel.adaptive,
            "constrained": constrained,
        }


def _kernel(
    problem: Problem, method: MethodLike, observe: Observe | None, dt: Number | None, key: ArrayLike | None
) -> Compiled:
    observe, measure = split_observables(observe, problem)
    if taken := sorted({*measure, *(observe if isinstance(observe, Mapping) else ())} & {*OWN}):
        raise InputError(f"observe: the page has an observable of its own called {taken[0]!r}; choose another name")
    options = Options(dt=dt, steps=1, observe=observe, key=key)
    return _compiled(Arguments.of(problem, method, None, None, options), measure)


def _compiled(arguments: Arguments, more: Mapping[str, Callable[..., Any]] | None = None) -> Compiled:
    loop = make_loop(arguments.alone(stored=False))
    if not float(loop.consts.dt) > 0:
        raise InputError(f"dt must be positive on a live page, which runs only forward, not {float(loop.consts.dt):g}")
    measure: dict[str, Callable[..., Any]] = dict(more or {})
    measure |= {name: fn for name, fn in OWN.items() if loop.constrained or name == ENERGY}
    kernel = make_kernel(loop, NAME, fma=False, width=1, measure=measure)
    parts = ("init", "start", "step", *(("project",) if kernel.projects else ()))
    code = Target(WASM).compile(kernel.texts)
    return Compiled(loop, kernel, module_of(code, [f"{NAME}_{part}" for part in parts], MATH))


def _second(problem: Problem, compare: Any) -> tuple[Problem, MethodLike]:
    if isinstance(compare, AbstractMethod):
        return problem, compare
    if not (isinstance(compare, Sequence) and len(compare) == 2 and isinstance(compare[0], Problem)):
        raise InputError(f"compare must be a method, or a problem and a method, not {short_repr(compare)}")
    other, method = compare
    if np.shape(other.q0) != np.shape(problem.q0):
        raise ShapeError(
            f"compare: q of {other.name or 'the other problem'} has shape {np.shape(other.q0)}, and of "
            f"{problem.name or 'the first'} {np.shape(problem.q0)}; both are drawn as one scene"
        )
    return other, method


def _options(
    kernels: list[Compiled],
    *,
    sliders: Sliders | None = None,
    section: Names | None = None,
    ensemble: Starts = 0,
    spread: Number = 1e-3,
    rate: Number | None = None,
    t1: float,
) -> dict[str, Any]:
    loop, dt = kernels[0].loop, float(kernels[0].loop.consts.dt)
    shown = [name for name in kernels[0].kernel.observables() if name not in OWN]
    used = _section(section, kernels[0], shown)
    speed = STEPS_PER_SECOND * dt if rate is None else number("rate", rate, above=0)
    kept = loop.system.keeps_energy and not loop.method.stochastic
    return {
        "beside": False,
        "kernels": [k.as_dict() for k in kernels],
        "shape": list(loop.q0.shape[1:]),
        "rate": speed,
        "steps": math.ceil(max(t1, PREVIEW_SECONDS * speed) / dt),
        "sliders": [_slider(name, ends, kernels) for name, ends in (sliders or {}).items()],
        "observables": [name for name in shown if name not in used],
        "section": list(used) or None,
        "ensemble": _ensemble(ensemble, spread, loop),
        "energy": "energy error" if kept else "energy change",
        "words": {str(int(s)): f"{s.message}; {s.advice}".rstrip("; ") for s in Status if s != Status.OK},
    }


def _slider(label: Any, ends: Any, kernels: list[Compiled]) -> dict[str, Any]:
    if not isinstance(label, str):
        raise InputError(f"sliders: {label!r} is not the name of a parameter")
    name, index = label, 0
    found = re.fullmatch(r"(.+)\[(\d+)\]", label)
    fields = [k.kernel.parameters() | {"dt": k.kernel.fields["dt"]} for k in kernels]
    if found and not any(label in known for known in fields):
        name, index = found[1], int(found[2])
    where = [i for i, known in enumerate(fields) if name in known]
    if not where:
        every = ", ".join(dict.fromkeys(key for known in fields for key in known))
        raise InputError(
            f"sliders: {label!r} is not a parameter of {kernels[0].loop.name or 'the system'}; there are: {every}"
        )
    field = fields[where[0]][name]
    if found is None and field.count > 1 or index >= field.count:
        entries = ", ".join(f"{name}[{i}]" for i in range(min(field.count, 4)))
        raise InputError(f"sliders: {label!r}: {name} has {field.count} entries; name one of them: {entries}")
    if field.dtype != np.float64:
        raise InputError(f"sliders: {label!r} holds numbers of type {field.dtype}; a slider needs float64")
    low, high = _ends(label, ends)
    value = float(np.ravel(kernels[where[0]].kernel.value(field))[index])
    if not low <= value <= high:
        raise InputError(
            f"sliders: {label!r} goes from {low:g} to {high:g}, and the current value {value:g} is outside"
        )
    if name == "dt" and low <= 0:
        raise InputError(f"sliders: 'dt' begins at {low:g}; a step must be positive")
    return {"label": label, "name": name, "index": index, "low": low, "high": high, "value": value, "kernels": where}


def _ends(label: str, ends: Any) -> tuple[float, float]:
    if not (isinstance(ends, Sequence | np.ndarray) and not isinstance(ends, str) and len(ends) == 2):
        raise InputError(f"sliders: {label!r} needs its lowest and highest value, (low, high), not {short_repr(ends)}")
    low, high = (number(f"sliders[{label!r}]", x) for x in ends)
    if low >= high:
        raise InputError(f"sliders: {label!r} goes from {low:g} to {high:g}; the first must be the lower")
    return low, high


def _section(section: Names | None, kernel: Compiled, shown: list[str]) -> tuple[str, ...]:
    if section is None:
        return ()
    if isinstance(section, str) or len(section) != 3:
        raise InputError(
            "section needs three names: the observable that rises through zero, and two that are plotted; "
            f"not {short_repr(section)}"
        )
    for name in section:
        if name not in shown:
            raise InputError(f"section: {name!r} is not in observe, which has: {', '.join(shown) or 'nothing'}")
        if kernel.kernel.observables()[name].count != 1:
            raise InputError(
                f"section: {name!r} has {kernel.kernel.observables()[name].count} entries; it needs one number"
            )
    return tuple(section)


def _ensemble(ensemble: Any, spread: Number, loop: Loop) -> dict[str, Any]:
    if not (isinstance(ensemble, Sequence) or np.ndim(ensemble)):
        count = whole_number("ensemble", ensemble, 0, MAX_GHOSTS)
        return {"count": count, "spread": number("spread", spread, above=0), "q": None, "p": None}
    if len(ensemble) != 2:
        raise InputError(f"ensemble must be a number of ghosts, or their q and p, not {short_repr(ensemble)}")
    q, p = (np.asarray(finite_array(f"ensemble[{k}]", x), np.float64) for k, x in enumerate(ensemble))
    shape = loop.q0.shape[1:]
    if q.shape != p.shape or q.shape[1:] != shape:
        raise ShapeError(
            f"ensemble: q and p need the shape (count, {', '.join(map(str, shape))}), not {q.shape} and {p.shape}"
        )
    if len(q) > MAX_GHOSTS:
        raise InputError(f"ensemble has {len(q)} starts; a page steps and draws at most {MAX_GHOSTS}")
    code = lambda x: base64.b64encode(np.ascontiguousarray(x, "<f8").tobytes()).decode()
    return {"count": len(q), "spread": 0.0, "q": code(q), "p": code(p)}
