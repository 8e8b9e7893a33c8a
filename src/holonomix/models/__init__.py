"""Physical systems with their starts, ready to run: `hx.models.double_pendulum()` is a `Problem`.

The defaults are those of the papers. Numbers go into the system's `params` (and `mass`), so that other lengths or other
strengths of gravity do not recompile and may be differentiated.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from ..errors import refusing
from ..types import Problem

# name -> the module that holds it; a model is added by one line
MODELS: dict[str, str] = {
    "planar_pendulum": "pendula",
    "spherical_pendulum": "pendula",
    "conical_pendulum": "pendula",
    "modified_pendulum": "pendula",
    "double_pendulum": "pendula",
    "chain": "pendula",
    "tethered_satellites": "orbital",
    "kepler": "orbital",
    "henon_heiles": "oscillators",
    "harmonic_oscillator": "oscillators",
    "bead_on_surface": "surfaces",
    "water_cluster": "water",
    "stiff_spring_double_pendulum": "stiff",
    "penalized_double_pendulum": "stiff",
    "penalized_chain": "stiff",
    "double_pendulum_angles": "stiff",
    "dna_chain": "stiff",
    "rigid_body": "bodies",
    "magnetized_body": "bodies",
    "heavy_top": "bodies",
    "butane": "alkanes",
    "cosserat_rod": "rod",
    "slider_crank": "linkages",
    "four_bar": "linkages",
    "watt": "linkages",
    "planar_ring": "linkages",
    "rigid_molecules": "linkages",
    "mobile": "linkages",
    "jansen_leg": "machines",
    "strandbeest": "machines",
    "stewart_platform": "machines",
    "bennett_linkage": "machines",
    "bricard_linkage": "machines",
    "gyroscope": "machines",
    "seven_axis_arm": "machines",
    "iftomm_a01": "iftomm",
    "iftomm_a02": "iftomm",
    "iftomm_a03": "iftomm",
    "iftomm_a04": "iftomm",
    "iftomm_a05": "iftomm",
}


def registry() -> dict[str, Callable[..., Problem]]:
    """Name -> the function that makes the problem."""
    return {name: _model(name) for name in MODELS}


@functools.cache
def _model(name: str) -> Callable[..., Problem]:
    return refusing(getattr(importlib.import_module(f".{MODELS[name]}", __name__), name))


# older spellings that still work
ALIASES = {"magnetised_body": "magnetized_body"}


def __getattr__(name: str) -> Any:
    name = ALIASES.get(name, name)
    if name in MODELS:
        return _model(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; models are {', '.join(MODELS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *MODELS])
