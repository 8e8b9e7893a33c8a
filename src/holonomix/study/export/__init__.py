"""Exported steps: WebAssembly, C and FMU."""

from .export import export as export
