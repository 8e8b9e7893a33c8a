"""When a residual is zero: one measure for every solve, the same in all units.

Rounding the unknowns `x` of `r(x) = 0` changes `r_i` by up to `eps sum_j |J_ij| |x_j|`, with the Jacobian `J`. That
sum, `row_sizes`, is the natural scale of row i: a residual of a few eps of it is zero to within one ulp of the data. It
has the units of the row whatever the units of the unknowns are (angles beside lengths, momenta beside multipliers), so
the same iterations are taken in meters and in angstroms. No absolute constant may enter a tolerance.

The origin of coordinates must not matter either. A coordinate that is zero has no size of its own, so every coordinate
gets a small fraction of the size of the whole system, in the mass metric: `sqrt(M_jj) |x_j|` has the same units for all
coordinates, lengths and angles alike (`coordinate_sizes`).

A function with constants of its own (an anchor far from the particle) is rounded in larger units than this. There the
residual stops falling above `eps`. Below `sqrt(eps)` an iteration that converges quadratically and still stalls has met
round-off, and so has, further below, any other whose residual only fluctuates: `iterate` accepts them (`stall_rule`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..core.types import Numbers, Real

# Up to this many eps a linearly convergent iteration that has become slow is accepted.
LINEAR_STALL = 1e4
# Up to this many eps it is accepted when its residual only fluctuates. Above, `linalg.careful` decides.
LINEAR_LIMIT = 2.0**17


def row_sizes(matrix: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """`sum_j |J_ij| |x_j|`: what an error of the size of x would change in each row."""
    return jnp.sum(jnp.abs(matrix * x), axis=1)


def particle_sizes(q: Numbers, weights: Numbers | None = None) -> Any:
    """The size of each coordinate of q: that of its particle (first axis), and at least `sqrt(eps)` of the largest.

    A vector is rounded in units of its length whichever way it points, so a coordinate that is zero in these axes has
    no size of its own. A particle that joints hold at the origin is rounded in units of the corrections that cancel
    there: the second part stands for these. Coordinates in one row may have units of their own and are compared by
    `weights`, the roots of their masses; without weights each stands for itself.
    """
    size = jnp.abs(q)
    if size.ndim < 2:
        return size if weights is None else coordinate_sizes(size, weights, loose(size.dtype))
    own = jnp.max(size, axis=tuple(range(1, size.ndim)), keepdims=True)
    return jnp.broadcast_to(jnp.maximum(own, loose(own.dtype) * jnp.max(own)), size.shape)


def coordinate_sizes(size: Numbers, weights: Numbers, fraction: float) -> Any:
    """`size`, and at least `fraction` of the largest: that of all `weights * size`, over the coordinate's own weight.

    `weights` are the roots of the masses for positions and velocities, and their inverses for momenta and forces.
    """
    return jnp.maximum(size, fraction * jnp.max(weights * size) / weights)


def inverse_sizes(size: Numbers) -> Any:
    """`1/size`; where nothing has a size only an exact zero is zero."""
    return jnp.where(size > 0, 1.0 / size, jnp.finfo(size.dtype).max)


def relative(residual: Numbers, size: Numbers) -> Any:
    """The largest `|r_i| / size_i`; zero for no rows."""
    return jnp.max(jnp.abs(residual) * inverse_sizes(size), initial=0.0)


def loose(dtype: DTypeLike) -> float:
    """`sqrt(eps)`: the relative residual below which an iteration that no longer contracts has met round-off."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def stall_rule(dtype: DTypeLike, unit: Real = 1.0, *, quadratic: bool) -> dict[str, Any]:
    """The options of `iterate` that accept round-off, for residuals in multiples of `unit`."""
    if quadratic:
        return {"stall": 0.5, "floor": loose(dtype) * unit}
    floor = LINEAR_STALL * float(jnp.finfo(dtype).eps) * unit
    return {"stall": 0.9, "floor": floor, "limit": LINEAR_LIMIT * float(jnp.finfo(dtype).eps) * unit}


def size_with_margin(x: Numbers, other: Numbers) -> Any:
    """The larger of two sizes, entry by entry: what a difference of both is rounded to."""
    return jnp.maximum(jnp.abs(x), jnp.abs(other))


def power_of_two(x: Numbers) -> Any:
    """The power of two next below each positive entry; one where an entry is zero, infinite or NaN."""
    good = (x > 0) & jnp.isfinite(x)
    _, exponent = jnp.frexp(jnp.where(good, x, 1.0))
    return jnp.ldexp(jnp.ones_like(x), exponent - 1)


def balanced(matrix: Numbers, sizes: Numbers, solve: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """A solve with `matrix` whose unknowns have the given sizes, through a matrix without units.

    Row exchanges depend on the units of rows and columns. With columns in units of the unknowns and rows divided by
    their `row_sizes`, all powers of two, they do not, and no rounding is added. `solve(matrix)` returns a function of
    the right-hand side.
    """
    rows = row_sizes(matrix, sizes)
    # an unknown that is zero so far is measured by what it takes to change the rows that have a size
    reach = jnp.max(jnp.abs(matrix) * jnp.where(rows > 0, inverse_sizes(rows), 0.0)[:, None], axis=0)
    reach = jnp.where(reach > 0, reach, jnp.max(jnp.abs(matrix), axis=0))
    columns = power_of_two(jnp.where(sizes > 0, sizes, 1.0 / jnp.where(reach > 0, reach, 1.0)))
    rows = power_of_two(row_sizes(matrix, columns))
    inner = solve(matrix * (columns / rows[:, None]))
    return lambda b: inner(b / rows) * columns
