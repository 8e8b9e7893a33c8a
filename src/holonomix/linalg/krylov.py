"""Newton corrections for many unknowns, by matrix-free GMRES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import gmres
from jaxtyping import Array, Float

from .scales import loose, power_of_two

# Above this many unknowns, products with the Jacobian replace the matrix.
LARGE = 256
# The relative accuracy of a Newton correction: each one reduces the residual at least about this much.
ACCURACY = 1e-4
# Dimension of a Krylov space, and the number of restarts.
SPACE, RESTARTS = 20, 20

Vector = Float[Array, " n"]
Linear = Callable[[Vector], Vector]


class JacobianProduct(NamedTuple):
    """A Jacobian J, given by its products, with an approximate inverse."""

    product: Linear
    inverse: Linear

    def solve(self, b: Vector, units: Vector, accuracy: float = ACCURACY, checked: bool = False) -> Vector:
        """`J^-1 b` by GMRES, to a relative residual of `accuracy` with the rows in the given units.

        The approximate inverse B is a right preconditioner, `x = B y` with `J B y = b`; transposing the system for
        reverse mode transposes B as well. Newton's method measures the residual after each correction. Derivatives do
        not, so `checked` returns NaN if the relative residual is above `sqrt(eps)`.
        """

        def solved(operator: Linear, b: Vector) -> Vector:
            x, _ = gmres(operator, b, tol=accuracy, restart=SPACE, maxiter=RESTARTS, solve_method="incremental")
            if not checked:
                return x
            good = jnp.linalg.norm(operator(x) - b) <= loose(b.dtype) * jnp.linalg.norm(b)
            return jnp.where(good, x, jnp.nan)

        scaled = lambda y: self.product(self.inverse(units * y)) / units
        return self.inverse(units * jax.lax.custom_linear_solve(scaled, b / units, solved, solved))

    def row_sizes(self, x: Vector) -> Vector:
        """An estimate of `sum_j |J_ij| |x_j|`: the largest of three sums with pseudorandom signs."""
        place = np.arange(1, x.size + 1)
        signs = np.stack([np.where(place * root % 1 < 0.5, 1.0, -1.0) for root in (2**0.5, 3**0.5, 5**0.5)])
        return jnp.max(jnp.abs(jax.lax.map(self.product, jnp.asarray(signs, x.dtype) * x)), axis=0)


def block_units(sizes: Vector, blocks: Sequence[int]) -> Vector:
    """One unit per block, the power of two below its largest size: they weigh the blocks in the norm of GMRES."""
    ends = np.cumsum((0, *blocks))
    largest = [jnp.max(sizes[a:b], initial=0.0) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    # jnp.repeat would make XLA fold a sum over all of x at compile time, for seconds
    return jnp.concatenate([jnp.full(n, power_of_two(x)) for n, x in zip(blocks, largest, strict=True)])
