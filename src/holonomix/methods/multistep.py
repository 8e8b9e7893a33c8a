"""Linear multistep methods on Hamilton's equations: Adams-Bashforth, Adams-Moulton, and any stable pair (a, b)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import number_list
from ..core.errors import InputError
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, add, newton_root
from ..mechanics.abstract import AbstractSystem
from .base import AbstractMethod, Path, Traits
from .equations import iteration_report, reduced_traits, unknown_sizes, vector_field


class LinearMultistep(AbstractMethod):
    r"""`sum_j a_j z_{n+j} = dt sum_j b_j f_{n+j}`, j = 0..k, for `z_{n+k}`; `a_k = 1`. `LinearMultistep(a, b)`.

    The order is the number of order conditions that (a, b) satisfies; the roots of `sum a_j x^j` must lie in the unit
    disc, those on its rim simple. `b_k != 0` makes it implicit, solved by Newton's method. The first k - 1 steps are
    taken by a Runge-Kutta extrapolation (Gragg) of at least that order. Constrained systems are index-reduced.
    """

    reference = "Hairer, Norsett & Wanner 1993 (III.1-2); Farrell 2009 (4)"
    family = "classical"
    one_step = False

    a: tuple[float, ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    label: str = eqx.field(static=True)

    def __init__(
        self,
        a: Sequence[float | int] | np.ndarray = (0.0, -1.0, 1.0),
        b: Sequence[float | int] | np.ndarray = (-0.5, 1.5, 0.0),
        label: str = "LinearMultistep",
    ):
        a, b = number_list("a", a), number_list("b", b)
        if len(a) != len(b) or len(a) < 2:
            raise InputError(f"a and b must have one more entry than there are steps; they have {len(a)} and {len(b)}")
        if a[-1] == 0:
            raise InputError("the last entry of a multiplies the new value and must not be zero")
        self.a = tuple(float(Fraction(x) / Fraction(a[-1])) for x in a)
        self.b = tuple(float(Fraction(x) / Fraction(a[-1])) for x in b)
        self.label = label
        if multistep_order(self.a, self.b) < 1:
            raise InputError("the coefficients are not consistent: sum a = 0 and sum j a_j = sum b_j are needed")
        roots = np.roots(self.a[::-1])
        rim = roots[np.abs(roots) > 1 - 1e-6]
        gaps = np.abs(rim[:, None] - rim[None, :]) + 2 * np.eye(rim.size)
        if np.any(np.abs(roots) > 1 + 1e-6) or np.any(gaps < 1e-4):
            raise InputError(f"the method is unstable: the roots of its first polynomial are {np.round(roots, 6)}")

    @property
    def name(self) -> str:
        return self.label

    @property
    def steps(self) -> int:
        return len(self.a) - 1

    @property
    def implicit(self) -> bool:
        return self.b[-1] != 0

    @property
    def traits(self) -> Mapping[str, Traits]:
        # starting values break the symmetry of formulas of more than one step
        trapezoidal = self.steps == 1 and self.b[0] == self.b[1]
        return reduced_traits(multistep_order(self.a, self.b), symmetric=trapezoidal)

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        """Values and slopes of the last k steps, the latest last, with how many of them are there."""
        q, p = state.q, state.p
        slope = vector_field(system, (q, p), state.t)
        stack = lambda x: jnp.zeros((self.steps, *q.shape), q.dtype).at[-1].set(x)
        values, slopes = (stack(q), stack(p)), tuple(stack(x) for x in slope)
        return Compensation.zeros(q), values, slopes, jnp.asarray(1, jnp.int32)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        low, values, slopes, known = carry
        dt = jnp.asarray(dt, state.q.dtype)
        t, t1 = jnp.asarray(state.t, state.q.dtype), state.t + dt
        q, p, low, report = jax.lax.cond(
            known < self.steps,
            lambda: self._starting(system, state, dt, t, low),
            lambda: self._formula(system, values, slopes, dt, t1, low),
        )
        new = vector_field(system, (q, p), t1)
        values = tuple(jnp.concatenate([v[1:], x[None]]) for v, x in zip(values, (q, p), strict=True))
        slopes = tuple(jnp.concatenate([v[1:], x[None]]) for v, x in zip(slopes, new, strict=True))
        return State(q, p, t1, state.n), (low, values, slopes, jnp.minimum(known + 1, self.steps)), report

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Path:
        def at(time: Real) -> tuple[Any, Any, Any]:
            q, p, _, report = self._starting(system, state, time, jnp.asarray(state.t, state.q.dtype), carry[0])
            return q, p, report.status

        return at

    def _starting(
        self, system: AbstractSystem, state: State, dt: Real, t: Real, low: PyTree
    ) -> tuple[Any, Any, Any, Report]:
        order = multistep_order(self.a, self.b)
        q, p = extrapolate(lambda z, t: vector_field(system, z, t), (state.q, state.p), t, dt, order + 1)
        ok = Report.ok()
        return q, p, low, Report(ok.status, ok.iterations, ok.residual.astype(q.dtype), {})

    def _formula(
        self, system: AbstractSystem, values: PyTree, slopes: PyTree, dt: Real, t1: Real, low: PyTree
    ) -> tuple[Any, Any, Any, Report]:
        # written as an increment of the latest value, so that it can be added with compensation:
        # sum_{j<k} a_j = -1, hence -sum_j a_j z_j - z_{k-1} is a sum of differences
        def increment(value: PyTree, slope: PyTree):
            total = jnp.zeros_like(value[-1])
            for j in range(self.steps):
                if self.b[j]:
                    total = total + dt * self.b[j] * slope[j]
                if self.a[j] and j < self.steps - 1:
                    total = total - self.a[j] * (value[j] - value[-1])
            return total

        last = tuple(v[-1] for v in values)
        known = tuple(increment(v, s) for v, s in zip(values, slopes, strict=True))
        report = Report.ok()
        report = Report(report.status, report.iterations, report.residual.astype(last[0].dtype), {})
        if self.implicit:
            guess = jnp.concatenate([(z + dt * s[-1]).reshape(-1) for z, s in zip(last, slopes, strict=True)])
            weight = jnp.asarray(self.b[-1], last[0].dtype)
            base = tuple(z + d for z, d in zip(last, known, strict=True))
            sizes = unknown_sizes("qp", lambda args: (args[0], args[1][0]))
            args = (system, base, weight * dt, t1)
            done = newton_root(_implicit, guess, args, blocks=(base[0].size,) * 2, sizes=sizes)
            q, p = (x.reshape(last[0].shape) for x in jnp.split(done.x, 2))
            known = tuple(d + weight * dt * s for d, s in zip(known, vector_field(system, (q, p), t1), strict=True))
            report = iteration_report(done)
        q, low_q = add(last[0], low.q, known[0])
        p, low_p = add(last[1], low.p, known[1])
        return q, p, Compensation(low_q, low_p), report


def _implicit(x: Numbers, args: PyTree) -> Any:
    system, base, weight, t = args
    z = tuple(y.reshape(base[0].shape) for y in jnp.split(x, 2))
    slope = vector_field(system, (z[0], z[1]), t)
    return jnp.concatenate([(a - b - weight * s).reshape(-1) for a, b, s in zip(z, base, slope, strict=True)])


def extrapolate(field: Callable[..., Any], z: PyTree, t: Real, dt: Real, order: int) -> Any:
    """One step of Gragg's method: midpoint rules with 2, 4, 6, ... substeps, extrapolated in dt^2."""
    table: list[list[Any]] = []
    for k in range((order + 1) // 2):
        count = 2 * (k + 1)
        h = dt / count
        move = lambda a, b, c: jax.tree.map(lambda x, s: x + c * s, a, b)
        old, new = z, move(z, field(z, t), h)
        for i in range(1, count):
            old, new = new, move(old, field(new, t + i * h), 2 * h)
        row = [jax.tree.map(lambda a, b, s, h=h: (a + b + h * s) / 2, new, old, field(new, t + dt))]
        for j in range(1, k + 1):
            ratio = ((k + 1) / (k + 1 - j)) ** 2
            row.append(jax.tree.map(lambda a, b, r=ratio: a + (a - b) / (r - 1), row[j - 1], table[k - 1][j - 1]))
        table.append(row)
    return table[-1][-1]


def multistep_order(a: Sequence[float], b: Sequence[float]) -> int:
    """The largest p with `sum_j (a_j j^i - i b_j j^{i-1}) = 0` for i = 0..p."""
    order = -1
    for i in range(2 * len(a) + 1):
        terms = [
            (a_j * float(j) ** i, i * b_j * float(j) ** (i - 1) if i else 0.0) for j, (a_j, b_j) in enumerate(zip(a, b))
        ]
        if abs(sum(x - y for x, y in terms)) > 1e-9 * max(1.0, max(abs(x) + abs(y) for x, y in terms)):
            break
        order = i
    return order


def adams_coefficients(k: int, implicit: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(a, b) of the k-step Adams formula: integrals over the last step of Lagrange's polynomials through the slopes."""
    nodes = [Fraction(j) for j in range(k + 1 if implicit else k)]
    weights = []
    for i, x in enumerate(nodes):
        polynomial = [Fraction(1)]  # coefficients from the constant up
        for j, y in enumerate(nodes):
            if j != i:
                shifted = [Fraction(0), *polynomial]
                for n, c in enumerate(polynomial):
                    shifted[n] -= y * c
                polynomial = [c / (x - y) for c in shifted]
        ends = (sum(c * Fraction(e) ** (n + 1) / (n + 1) for n, c in enumerate(polynomial)) for e in (k, k - 1))
        high, low = ends
        weights.append(float(high - low))
    b = tuple(weights) + (() if implicit else (0.0,))
    return (0.0,) * (k - 1) + (-1.0, 1.0), b


def AdamsBashforth(k: int = 4) -> LinearMultistep:
    """The explicit Adams method of k steps, order k."""
    _check_steps(k)
    return LinearMultistep(*adams_coefficients(k, False), label=f"AdamsBashforth({k})")


def AdamsMoulton(k: int = 3) -> LinearMultistep:
    """The implicit Adams method of k steps, order k + 1."""
    _check_steps(k)
    return LinearMultistep(*adams_coefficients(k, True), label=f"AdamsMoulton({k})")


def _check_steps(k: int) -> None:
    if not isinstance(k, int) or not 1 <= k <= 12:
        raise InputError(f"the number of steps must be a whole number from 1 to 12, not {k!r}")


VARIANTS = {
    "AdamsBashforth": tuple(lambda k=k: AdamsBashforth(k) for k in (1, 2, 3, 5)),
    "AdamsMoulton": tuple(lambda k=k: AdamsMoulton(k) for k in (1, 2, 4)),
}
