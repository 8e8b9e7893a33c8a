"""Names of options, for modules that must not import JAX (`holonomix --help`)."""

from __future__ import annotations

BACKENDS = ("auto", "array", "native", "cuda")
