"""How a user's functions become parts of a System.

A plain function is static: the same function object never causes a second trace. A callable PyTree (an
`equinox.Module`, a `jax.tree_util.Partial`) keeps its arrays as runtime values. Either may take `params`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

__all__ = ["Fixed", "as_callable"]


class Fixed(eqx.Module):
    """A plain function as a PyTree without leaves."""

    fn: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)


def as_callable(fn: Any) -> Any:
    """`fn` in a form that may travel through `jax.jit` as an argument."""
    return Fixed(fn) if jax.tree_util.all_leaves([fn]) else fn
