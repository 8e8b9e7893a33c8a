"""Names that users write, for modules that must not import JAX to know them (`holonomix --help`)."""

from __future__ import annotations

__all__ = ["BACKENDS"]

BACKENDS = ("auto", "array", "native", "cuda")
