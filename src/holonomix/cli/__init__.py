"""The command line. Importing it loads no JAX; each command imports what it needs."""

from .app import main

__all__ = ["main"]
