"""holonomix: structure-preserving simulation of mechanical systems with holonomic constraints or stiff forces.

Importing the package switches JAX to 64-bit floats; set HOLONOMIX_X64=0 to opt out. It also asks XLA to compile small
loops on the CPU as one piece (five times faster steps on the array path), unless XLA_FLAGS already sets backend options
or HOLONOMIX_XLA_FLAGS=0. Names are loaded when they are first used, so that the command line answers `--help` without
importing JAX.
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from typing import Any

from .core import forks as forks  # notes forks from here on
from .core import pictures
from .core.lazy import load_name, stub_names

__version__ = "0.2.0"

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

pictures.SOURCES.update(
    plotting=f"{__name__}.study.plotting", viewer=f"{__name__}.study.viewer", atoms=f"{__name__}.build.atoms"
)
_HOME = stub_names(__file__)  # name -> module and name there
_PACKAGES = ("build", "compiler", "core", "linalg", "run", "study", "trace")  # not listed by `dir`
_MOVED = {  # module -> names that were in `holonomix` before
    "monitors": "ArcLengthMonitor FastestParticleMonitor ForceMonitor LargestForceMonitor StepBounds WallMonitor",
    "methods": "Tableau",
    "reductions": "FirstPassage Maximum Mean Minimum",
    "mechanisms": "Box Cylinder Plate Rod Sphere",
    "mechanics": "BlockMass Capability Scene TimeDependent fixman projection resonances",
    "certificates": "Certificate Comparison linear_stability penalty_multipliers stability_map",
    "errors": "DifferentBitsWarning FailedTrajectoriesWarning ResonanceWarning",
    "study": "papers",
}
_NEW_HOME = {name: module for module, names in _MOVED.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return load_name(__name__, "", name)
    if name in _NEW_HOME:
        module = _NEW_HOME[name]
        warnings.warn(f"holonomix.{name} is now holonomix.{module}.{name}", DeprecationWarning, stacklevel=2)
        return load_name(__name__, ".".join(_HOME.get(module, ("", module))).lstrip("."), name)
    if name not in _HOME:
        raise AttributeError(f"module 'holonomix' has no attribute {name!r}{_near(name)}")
    value = globals()[name] = load_name(__name__, *_HOME[name])
    return value


def _near(name: str) -> str:
    known = {n.lower(): n for n in __dir__() if not n.startswith("_")}
    close = [] if name.startswith("_") else difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {known[close[0]]}?" if close else ""


def __dir__() -> list[str]:
    return sorted({*_HOME, *(name for name in globals() if name.startswith("__"))})
