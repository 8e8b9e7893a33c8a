"""holonomix: structure-preserving simulation of mechanical systems with holonomic constraints or stiff forces.

Importing the package switches JAX to 64-bit floats; set HOLONOMIX_X64=0 to opt out. It also asks XLA to compile small
loops on the CPU as one piece (five times faster steps on the array path), unless XLA_FLAGS already sets backend options
or HOLONOMIX_XLA_FLAGS=0. Names are loaded when they are first used, so that the command line answers `--help` without
importing JAX.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if os.environ.get("HOLONOMIX_X64", "1") != "0":
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)
    else:
        os.environ["JAX_ENABLE_X64"] = "1"

# A loop whose buffers stay below this many bytes becomes one compiled function; XLA's own limit is 1024.
# On a GPU sums over scattered places come in any order unless asked otherwise: the same inputs must give the same bits.
if os.environ.get("HOLONOMIX_XLA_FLAGS", "1") != "0":
    _flags = os.environ.get("XLA_FLAGS", "")
    for _option in (
        "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=65536",
        "--xla_gpu_deterministic_ops=true",
    ):
        if _option.partition("=")[0] not in _flags:
            _flags = f"{_flags} {_option}".strip()
    os.environ["XLA_FLAGS"] = _flags

_PUBLIC = {
    ".systems": (
        "System",
        "StiffSystem",
        "effective",
        "resonances",
        "ResonanceWarning",
        "Rheonomic",
        "TimeDependent",
        "Capability",
        "fixman",
        "Distance",
        "Local",
        "LocalPotential",
        "Pairs",
        "BlockMass",
    ),
    ".projection": ("project", "penalty_multipliers", "Newton", "SymmetricNewton", "GaussSeidel", "SOR"),
    ".mechanisms": ("Mechanism", "Box", "Cylinder", "Sphere", "Rod", "Plate"),
    ".driver": (
        "integrate",
        "Reversible",
        "Checkpointed",
        "simulate",
        "simulate_ensemble",
        "explain",
        "Event",
        "Solution",
        "Ensemble",
        "FailedTrajectoriesWarning",
        "DifferentBitsWarning",
        "Mean",
        "Minimum",
        "Maximum",
        "FirstPassage",
    ),
    ".methods.monitors": (
        "ForceMonitor",
        "MultiplierMonitor",
        "WallMonitor",
        "ArcLengthMonitor",
        "LargestForceMonitor",
        "FastestParticleMonitor",
        "StepBounds",
    ),
    ".methods.runge_kutta": ("Tableau",),
    ".methods.partitioned": ("PartitionedTableau",),
    ".certificates": ("certify", "Certificate", "compare", "Comparison"),
    ".certificates.stability": ("linear_stability", "stability_map"),
    ".certificates.limits": ("limit_study",),
    ".types": ("State", "Report", "Problem", "Info"),
    ".scene": ("Scene",),
    ".status": ("Status",),
    ".errors": (
        "HolonomixError",
        "InputError",
        "ShapeError",
        "NonFiniteError",
        "InconsistentStateError",
        "ConstraintRankError",
        "MethodError",
        "SimulationError",
        "ConvergenceError",
    ),
}
_MODULES = (
    "methods",
    "models",
    "invariants",
    "io",
    "plotting",
    "papers",
    "kernels",
    "linalg",
    "systems",
    "projection",
    "mechanisms",
    "taylor",
)
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

if TYPE_CHECKING:
    from . import methods as methods
    from . import models as models


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        methods = importlib.import_module(".methods", __name__)
        if name.startswith("_") or not hasattr(methods, name):
            raise AttributeError(f"module 'holonomix' has no attribute {name!r}{_near(name)}")
        value = getattr(methods, name)
    globals()[name] = value
    return value


def _near(name: str) -> str:
    known = {n.lower(): n for n in __dir__() if not n.startswith("_")}
    close = [] if name.startswith("_") else difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {known[close[0]]}?" if close else ""


def __dir__() -> list[str]:
    methods = importlib.import_module(".methods", __name__)
    public = {*_HOME, *_MODULES, *(n for names in methods.FAMILIES.values() for n in names)}
    return sorted(public | {name for name in globals() if name.startswith("__")})
