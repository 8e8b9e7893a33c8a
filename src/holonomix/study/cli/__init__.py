"""The command line. Importing it loads no JAX; each command imports what it needs."""

from . import runs as runs
from . import studies as studies
from .app import main

__all__ = ["main"]
