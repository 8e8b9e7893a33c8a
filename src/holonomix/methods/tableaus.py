"""Butcher tableaus of Runge-Kutta methods, explicit and implicit, and the collocation tableaus of any number of stages.

With stages `Z_i = z + dt sum_j a_ij f(Z_j)`, `z_{n+1} = z + dt sum_i b_i f(Z_i)` (Farrell 2009, section 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from numpy.polynomial import Polynomial

from ..core.checks import number_list, whole_number
from ..core.errors import InputError


class Tableau(eqx.Module):
    """Butcher's coefficients `a`, weights `b`, and the order they give.

    Row i of `a` has i entries for an explicit method (strictly lower triangular), or as many as there are stages. A
    partitioned method has `a_hat` and `b_hat` for the momenta, while `a` and `b` are for the positions.
    """

    name: str = eqx.field(static=True)
    a: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    order: int = eqx.field(static=True)
    source: str = eqx.field(static=True, default="")
    a_hat: tuple[tuple[float, ...], ...] | None = eqx.field(static=True, default=None)
    b_hat: tuple[float, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        s = len(number_list("b", self.b))
        whole_number("order", self.order)
        self._check("", self.a, self.b, s)
        if self.partitioned:
            self._check("_hat", self.a_hat, number_list("b_hat", self.b_hat), s)

    def _check(self, hat: str, rows: object, weights: Sequence[float], s: int) -> None:
        if not isinstance(rows, (tuple, list)):
            raise InputError(f"tableau {self.name}: `a{hat}` must be a list of rows, not {rows!r}")
        lengths = [len(number_list(f"a{hat}[{k}]", row)) for k, row in enumerate(rows)]
        if lengths not in ([s] * s, list(range(s))) or len(weights) != s:
            raise InputError(
                f"tableau {self.name}: `a{hat}` needs one row for each of the {s} weights, row i with i entries "
                f"(explicit) or every row with {s} (implicit)"
            )
        if abs(sum(weights) - 1) > 1e-12:
            raise InputError(f"tableau {self.name}: the weights b{hat} add up to {sum(weights):g} instead of 1")

    @property
    def partitioned(self) -> bool:
        return self.a_hat is not None or self.b_hat is not None

    @property
    def c(self) -> tuple[float, ...]:
        return tuple(float(np.sum(row)) for row in self.a)

    @property
    def positions(self) -> tuple[np.ndarray, np.ndarray]:
        """`a` with its zeros, `(s, s)`, and `b`."""
        return _with_zeros(self.a), np.asarray(self.b)

    @property
    def momenta(self) -> tuple[np.ndarray, np.ndarray]:
        """The same for the momenta."""
        if self.a_hat is None or self.b_hat is None:
            return self.positions
        return _with_zeros(self.a_hat), np.asarray(self.b_hat)

    @property
    def explicit(self) -> bool:
        return not np.any(np.triu(self.positions[0])) and not self.partitioned

    @property
    def symplectic(self) -> bool:
        """`b_i a^_ij + b^_j a_ji = b_i b^_j` (Sanz-Serna 1988); enough for separable systems.

        Others need `same_weights` too.
        """
        (a, b), (a_hat, b_hat) = self.positions, self.momenta
        return bool(np.allclose(b[:, None] * a_hat + b_hat * a.T, np.outer(b, b_hat), atol=1e-13))

    @property
    def same_weights(self) -> bool:
        return bool(np.allclose(self.b, self.momenta[1], atol=1e-13))

    @property
    def symmetric(self) -> bool:
        """`a_{s+1-i, s+1-j} + a_ij = b_j` and `b` reads the same backward, for positions and momenta."""
        return all(
            np.allclose(a[::-1, ::-1] + a, b, atol=1e-13) and np.allclose(b, b[::-1], atol=1e-13)
            for a, b in (self.positions, self.momenta)
        )


def _with_zeros(rows: Sequence[Sequence[float]]) -> np.ndarray:
    full = np.zeros((len(rows),) * 2)
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


EULER = Tableau("ExplicitEuler", ((),), (1.0,), 1, "Euler 1768")
MIDPOINT = Tableau("ExplicitMidpoint", ((), (0.5,)), (0.0, 1.0), 2, "Runge 1895")
IMPLICIT_MIDPOINT = Tableau("ImplicitMidpoint", ((0.5,),), (1.0,), 2, "Hairer, Lubich & Wanner 2006 (VI.4)")
KUTTA3 = Tableau("Kutta3", ((), (0.5,), (-1.0, 2.0)), (1 / 6, 2 / 3, 1 / 6), 3, "Kutta 1901")
CLASSICAL = Tableau("RK4", ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6), 4, "Kutta 1901")


def collocation(name: str, nodes: np.ndarray, order: int, source: str = "") -> Tableau:
    """The method whose stages collocate at `nodes`: `a_ij` is the integral of Lagrange's polynomial j up to node i."""
    rows, weights = [], []
    for j, c in enumerate(nodes):
        basis = Polynomial([1.0])
        for k, other in enumerate(nodes):
            basis = basis if k == j else basis * Polynomial([-other, 1.0]) / (c - other)
        integral = basis.integ()
        rows.append([float(integral(x)) for x in nodes])
        weights.append(float(integral(1.0)))
    return Tableau(name, tuple(zip(*rows, strict=True)), tuple(weights), order, source)


def gauss_tableau(s: int) -> Tableau:
    """Gauss collocation: order 2s, symmetric and symplectic; one stage is the implicit midpoint rule."""
    s = _stages("Gauss", s)
    nodes = (np.polynomial.legendre.leggauss(s)[0] + 1) / 2
    return collocation(f"Gauss({s})", nodes, 2 * s, "Butcher 1964")


def radau_tableau(s: int) -> Tableau:
    """Radau IIA: order 2s - 1, the last node at the end of the step; damps, so neither symmetric nor symplectic."""
    s = _stages("Radau", s)
    # the nodes are the roots of the (s - 1)-th derivative of x^(s-1) (x - 1)^s
    left = Polynomial([0.0, 1.0]) ** (s - 1) * Polynomial([-1.0, 1.0]) ** s
    nodes = np.sort(np.real(left.deriv(s - 1).roots() if s > 1 else np.ones(1)))
    return collocation(f"RadauIIA({s})", nodes, 2 * s - 1, "Ehle 1969")


def _stages(name: str, s: int) -> int:
    s = whole_number("s", s)
    if not 1 <= s <= 8:
        raise InputError(f"{name} methods are offered with 1 to 8 stages, not {s}")
    return s
