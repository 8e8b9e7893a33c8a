"""Natural scales of residuals: one convergence measure for all solves, independent of units.

Rounding the unknowns `x` of `r(x) = 0` changes `r_i` by up to `eps sum_j |J_ij| |x_j|`, with the Jacobian `J`. That
sum, `row_sizes`, is the natural scale of row i: a residual of a few eps of it is zero to within one ulp of the data. It
has the units of the row for any units of the unknowns (angles beside lengths, momenta beside multipliers), so the
iterations are the same in meters and in angstroms. No absolute constant may enter a tolerance.

The measure must not depend on the origin of coordinates either. A coordinate that is zero has no size of its own, so
every coordinate gets at least a small fraction of the size of the whole system in the mass metric: `sqrt(M_jj) |x_j|`
has the same units for lengths and angles (`coordinate_sizes`).

The rounding errors of a function with large constants (an anchor far from the particle) exceed this scale, and the
residual stalls above `eps`. Below `sqrt(eps)` a quadratically convergent iteration whose residual stays level has
reached round-off. Further below, so has any other iteration whose residual only fluctuates. `iterate` accepts both
(`stall_rule`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..core.types import Numbers, Real

# An iteration that has become slow is accepted up to this many eps.
LINEAR_STALL = 1e4
# It is accepted up to this many eps if its residual only fluctuates. Above, `linalg.careful` takes over.
LINEAR_LIMIT = 2.0**17


def row_sizes(matrix: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """`sum_j |J_ij| |x_j|`: the change of each row for an error of the size of x."""
    return jnp.sum(jnp.abs(matrix * x), axis=1)


def particle_sizes(q: Numbers, weights: Numbers | None = None) -> Any:
    """The size of each coordinate of q: that of its particle (first axis), and at least `sqrt(eps)` of the largest.

    A vector is rounded in units of its length in every direction, so all coordinates of a particle have one size. A
    particle that joints hold at the origin is rounded in units of the corrections that cancel there; the fraction of
    the largest size accounts for these. Entries of a 1-D q may have different units and are compared through `weights`,
    the roots of their masses; without weights each entry keeps its own size.
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
    """`1/size`; for a zero size, so large that only an exact zero counts as zero."""
    return jnp.where(size > 0, 1.0 / size, jnp.finfo(size.dtype).max)


def relative(residual: Numbers, size: Numbers) -> Any:
    """The largest `|r_i| / size_i`; zero for no rows."""
    return jnp.max(jnp.abs(residual) * inverse_sizes(size), initial=0.0)


def loose(dtype: DTypeLike) -> float:
    """`sqrt(eps)`: the relative residual below which an iteration that stalls has reached round-off."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def stall_rule(dtype: DTypeLike, unit: Real = 1.0, *, quadratic: bool) -> dict[str, Any]:
    """The options of `iterate` that accept round-off, for residuals in multiples of `unit`."""
    floor = LINEAR_STALL * float(jnp.finfo(dtype).eps) * unit
    if quadratic:
        return {"stall": 0.5, "floor": floor, "level": loose(dtype) * unit}
    return {"stall": 0.9, "floor": floor, "limit": LINEAR_LIMIT * float(jnp.finfo(dtype).eps) * unit}


def size_with_margin(x: Numbers, other: Numbers) -> Any:
    """The larger of two sizes, entry by entry: the scale of rounding errors of a difference."""
    return jnp.maximum(jnp.abs(x), jnp.abs(other))


def power_of_two(x: Numbers) -> Any:
    """The power of two next below each positive entry; one where an entry is zero, infinite or NaN."""
    good = (x > 0) & jnp.isfinite(x)
    _, exponent = jnp.frexp(jnp.where(good, x, 1.0))
    return jnp.ldexp(jnp.ones_like(x), exponent - 1)


def balance(matrix: Numbers, sizes: Numbers, solve: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """A solve with `matrix` by way of a dimensionless matrix; `sizes` are those of the unknowns.

    Row exchanges depend on the units of rows and columns. Scaling columns by the sizes of the unknowns and rows by
    their `row_sizes` removes the units; all scales are powers of two, which adds no rounding. `solve(matrix)` returns a
    function of the right-hand side.
    """
    rows = row_sizes(matrix, sizes)
    # the size of an unknown that is still zero is the change of it that matters in the rows that have a size
    reach = jnp.max(jnp.abs(matrix) * jnp.where(rows > 0, inverse_sizes(rows), 0.0)[:, None], axis=0)
    reach = jnp.where(reach > 0, reach, jnp.max(jnp.abs(matrix), axis=0))
    columns = power_of_two(jnp.where(sizes > 0, sizes, 1.0 / jnp.where(reach > 0, reach, 1.0)))
    rows = power_of_two(row_sizes(matrix, columns))
    inner = solve(matrix * (columns / rows[:, None]))
    return lambda b: inner(b / rows) * columns
