"""Structure-preserving simulation of constrained and stiff mechanical systems, on JAX.

Importing the package enables JAX's 64-bit mode; ``HOLONOMIX_X64=0`` opts out. Names are loaded on first use, so that
``holonomix --help`` answers without importing JAX.
"""

import importlib
import os
import sys
from typing import Any

__version__ = "0.1.0"

if os.environ.get("HOLONOMIX_X64", "1") != "0":
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)
    else:
        os.environ["JAX_ENABLE_X64"] = "1"

# public name -> module that defines it; a name equal to its module is the module itself
_HOME: dict[str, str] = {
    "HolonomixError": "holonomix.errors",
    "io": "holonomix.io",
    "methods": "holonomix.methods",
    "models": "holonomix.models",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'holonomix' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    value = module if _HOME[name] == f"holonomix.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
