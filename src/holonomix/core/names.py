"""Names that users write, for modules that must not import JAX to know them (`holonomix --help`)."""

from __future__ import annotations

BACKENDS = ("auto", "array", "native", "cuda")
