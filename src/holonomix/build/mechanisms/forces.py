"""Potential and applied forces of a mechanism: gravity, springs, dampers, motors, forces and torques on bodies."""

from __future__ import annotations

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.errors import InputError
from ...core.types import Function, Numbers, Real
from ...trace.signatures import required_arguments
from ...trace.sparsity import dependence
from .bodies import Body
from .forms import JointCoordinate, Vector, frames_of


class Pairs(eqx.Module):
    """Differences of two points for springs between the same kinds of bodies: `(springs, dim)`."""

    coefficients: Any  # (springs, frames)
    constants: Any  # (springs, dim)
    stiffness: Any
    length: Any
    damping: Any
    kinds: tuple[str, ...] = eqx.field(static=True)
    particles: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    slack: bool = eqx.field(static=True)  # all lengths are zero: then the energy is smooth everywhere
    damped: bool = eqx.field(static=True)

    def apart(self, q: Numbers) -> Any:
        frames = jax.vmap(lambda x: frames_of(self.kinds, x))(q[np.asarray(self.particles)])
        return jnp.einsum("sk,skd->sd", self.coefficients, frames) + self.constants

    def energy(self, q: Numbers) -> Any:
        square = jnp.sum(self.apart(q) ** 2, axis=-1)
        stretch = square if self.slack else (jnp.sqrt(square) - self.length) ** 2
        return 0.5 * jnp.sum(self.stiffness * stretch)

    def force(self, q: Numbers, v: Numbers) -> Any:
        apart, pull = jax.vjp(self.apart, q)
        rate = jax.jvp(self.apart, (q,), (v,))[1]
        square = jnp.sum(apart**2, axis=-1, keepdims=True)
        along = jnp.sum(apart * rate, axis=-1, keepdims=True) / jnp.where(square > 0, square, 1.0)
        return pull(-self.damping[:, None] * along * apart)[0]

    def slopes(self, q: Numbers) -> Any:
        """Rates `apart . apart'` of the springs, as rows that multiply the velocities."""
        return jnp.einsum("sd,sd...->s...", self.apart(q), jax.jacrev(self.apart)(q))

    def loads(self, q: Numbers, rates: Numbers, t: Real, params: PyTree) -> Any:
        square = jnp.sum(self.apart(q) ** 2, axis=-1)
        return -self.damping * rates / jnp.where(square > 0, square, 1.0)


def make_pairs(several: list[tuple[Vector, tuple[Body, ...], float, float, float]]) -> list[Pairs]:
    """Group springs `(difference, bodies, stiffness, length, damping)` by the kinds of their bodies."""
    groups: dict[Any, list[Any]] = {}
    for spring in several:
        groups.setdefault((tuple(body.kind for body in spring[1]), spring[3] == 0.0), []).append(spring)
    out = []
    for (kinds, slack), group in groups.items():
        numbers = jnp.asarray([[k, length, c] for _, _, k, length, c in group])
        out.append(
            Pairs(
                jnp.asarray(np.stack([apart.coefficients(bodies) for apart, bodies, *_ in group])),
                jnp.asarray(np.stack([apart.constant for apart, *_ in group])),
                numbers[:, 0],
                numbers[:, 1],
                numbers[:, 2],
                kinds,
                tuple(tuple(k for body in bodies for k in body.particles) for _, bodies, *_ in group),
                slack,
                any(c != 0 for *_, c in group),
            )
        )
    return out


class JointSpring(eqx.Module):
    """`k/2 (x - rest)^2` of a joint's position; an angle counts from -pi to pi about `rest`."""

    coordinate: JointCoordinate
    stiffness: Any
    rest: Any

    def energy(self, q: Numbers) -> Any:
        found = self.coordinate.products(self.coordinate.gather(q))
        if len(found) == 1:
            return 0.5 * self.stiffness * (found[0] - self.rest) ** 2
        c, s = jnp.cos(self.rest), jnp.sin(self.rest)
        return 0.5 * self.stiffness * jnp.arctan2(found[1] * c - found[0] * s, found[0] * c + found[1] * s) ** 2


class MechanismPotential(eqx.Module):
    """Weight, springs between points and springs of joints."""

    weight: Any  # the gradient of the weight, in the shape of q
    pairs: tuple[Pairs, ...]
    springs: tuple[Any, ...]  # and stops

    def __call__(self, q: Numbers, *params: PyTree) -> Any:
        total = jnp.sum(self.weight * q)
        for term in (*self.pairs, *self.springs):
            total = total + term.energy(q)
        return total


class JointForce(eqx.Module):
    """A motor `torque(t, x, rate)` on a joint's position x, minus `damping * rate`; its work is `torque * dx`.

    A string instead of the function names a parameter.
    """

    coordinate: JointCoordinate
    damping: Any
    torque: Any = eqx.field(static=True)  # None: a damper alone
    rated: bool = eqx.field(static=True)  # whether it depends on the rate

    def force(self, q: Numbers, v: Numbers, t: Real, params: PyTree) -> Any:
        x, slope = jax.value_and_grad(self.coordinate)(q)
        rate = jnp.sum(slope * v)
        torque = -self.damping * rate
        if isinstance(self.torque, str):
            torque = torque + params[self.torque]
        elif self.torque is not None:
            torque = torque + returned("the torque of a motor", bound(self.torque, params), (), t, x, rate)
        return torque * slope

    def slopes(self, q: Numbers) -> Any:
        return jax.grad(self.coordinate)(q)[None]

    def loads(self, q: Numbers, rates: Numbers, t: Real, params: PyTree) -> Any:
        torque = -self.damping * rates
        if self.torque is None:
            return torque
        return torque + returned(
            "the torque of a motor", bound(self.torque, params), (), t, self.coordinate(q), rates[0]
        )


class AppliedForce(eqx.Module):
    """A force at a point of a body: `f(t, position, velocity)`, a constant, or the name of a parameter."""

    coefficients: Any
    value: Any  # the constant force, or None
    kind: str = eqx.field(static=True)
    particles: tuple[int, ...] = eqx.field(static=True)
    fn: Any = eqx.field(static=True)
    rated: bool = eqx.field(static=True)  # whether it depends on the velocity

    def point(self, q: Numbers) -> Any:
        return self.coefficients @ frames_of((self.kind,), q[np.asarray(self.particles)])

    def force(self, q: Numbers, v: Numbers, t: Real, params: PyTree) -> Any:
        x, pull = jax.vjp(self.point, q)
        if isinstance(self.fn, str):
            return pull(params[self.fn])[0]
        if self.fn is None:
            return pull(self.value)[0]
        rate = jax.jvp(self.point, (q,), (v,))[1]
        return pull(self.law(x, rate, t, params))[0]

    def slopes(self, q: Numbers) -> Any:
        return jax.jacrev(self.point)(q)

    def loads(self, q: Numbers, rates: Numbers, t: Real, params: PyTree) -> Any:
        return self.law(self.point(q), rates, t, params)

    def law(self, x: Numbers, rate: Numbers, t: Real, params: PyTree) -> Any:
        return returned("a force", bound(self.fn, params), x.shape, t, x, rate)


class AppliedTorque(eqx.Module):
    """A torque on a body in world coordinates: `f(t, rotation, angular velocity)`, a constant, or a parameter name.

    On a frame it is the director force `f_i = tau x d_i / 2`, whose virtual work is `tau . theta`.
    """

    axes: Any
    value: Any
    kind: str = eqx.field(static=True)
    particles: tuple[int, ...] = eqx.field(static=True)
    fn: Any = eqx.field(static=True)
    rated: bool = eqx.field(static=True)

    def directors(self, q: Numbers) -> Any:
        return frames_of((self.kind,), q[np.asarray(self.particles)])[1:]

    @property
    def share(self) -> float:
        return 1.0 if self.kind == "rod" else 0.5

    def spin(self, q: Numbers, v: Numbers) -> Any:
        d = self.directors(q)
        rate = jax.jvp(self.directors, (q,), (v,))[1]
        if d.shape[-1] == 3:
            return self.share * jnp.sum(jnp.cross(d, rate), axis=0)
        return self.share * jnp.sum(d[:, 0] * rate[:, 1] - d[:, 1] * rate[:, 0])

    def torque(self, d: Numbers, spin: Numbers, t: Real, params: PyTree) -> Any:
        return returned("a torque", bound(self.fn, params), jnp.shape(spin), t, d.T @ self.axes.T, spin)

    def force(self, q: Numbers, v: Numbers, t: Real, params: PyTree) -> Any:
        d, pull = jax.vjp(self.directors, q)
        value = self.value
        if isinstance(self.fn, str):
            value = params[self.fn]
        elif self.fn is not None:
            value = self.torque(d, self.spin(q, v), t, params)
        if d.shape[-1] == 3:
            turned = jnp.cross(jnp.broadcast_to(value, d.shape), d)
        else:
            turned = value * jnp.stack([-d[:, 1], d[:, 0]], axis=1)
        return pull(self.share * turned)[0]

    def slopes(self, q: Numbers) -> Any:
        rows = jax.jacrev(lambda v: self.spin(q, v))(jnp.zeros_like(q))
        return rows.reshape(-1, *q.shape)

    def loads(self, q: Numbers, rates: Numbers, t: Real, params: PyTree) -> Any:
        d = self.directors(q)
        return jnp.atleast_1d(self.torque(d, rates if d.shape[-1] == 3 else rates[0], t, params))


class MechanismForce(eqx.Module):
    """Dampers, motors and applied forces, as `force(q, v, t)`.

    Forces that depend on velocities act through `rate_count` rates, as `S(q)^T c(S v)`. Methods solve for c implicitly:
    `force(q, q, t, "slopes")` returns S and the rest of the force, `force(q, S v, t, "loads")` returns c and its
    derivative.
    """

    pairs: tuple[Pairs, ...]
    others: tuple[Any, ...]
    counts: tuple[int, ...] = eqx.field(static=True)  # number of rates, for each term that has rates

    def __init__(self, pairs: tuple[Pairs, ...], others: tuple[Any, ...], shape: tuple[int, ...]):
        self.pairs, self.others = pairs, others
        like = jax.ShapeDtypeStruct(shape, float)
        self.counts = tuple(jax.eval_shape(term.slopes, like).shape[0] for term in self.rated)

    @property
    def rated(self) -> tuple[Any, ...]:
        return (*self.pairs, *(term for term in self.others if term.rated))

    @property
    def rate_count(self) -> int:
        return sum(self.counts)

    def __call__(self, q: Numbers, v: Numbers, t: Real, params: PyTree = None, part: str = "") -> Any:
        if part == "loads":
            return self._loads(q, v, t, params)
        total = jnp.zeros_like(q)
        if part == "slopes":
            for term in self.others:
                total = total if term.rated else total + term.force(q, v, t, params)
            return jnp.concatenate([term.slopes(q) for term in self.rated]), total
        for pairs in self.pairs:
            total = total + pairs.force(q, v)
        for term in self.others:
            total = total + term.force(q, v, t, params)
        return total

    def _loads(self, q: Numbers, rates: Numbers, t: Real, params: PyTree) -> Any:
        loads, slopes, first = [], [], 0
        for term, count in zip(self.rated, self.counts, strict=True):
            own = rates[first : first + count]
            law = lambda r, term=term: term.loads(q, r, t, params)
            if isinstance(term, Pairs) or count == 1:  # each load depends on its own rate
                load, slope = jax.jvp(law, (own,), (jnp.ones_like(own),))
                slope = jnp.diag(slope)
            else:
                load, slope = law(own), jax.jacfwd(law)(own)
            loads.append(load)
            slopes.append(jnp.pad(slope, ((0, 0), (first, len(rates) - first - count))))
            first += count
        return jnp.concatenate(loads), jnp.concatenate(slopes)


def bound(fn: Function, params: PyTree) -> Any:
    """A user's function of three arguments; one that requires a fourth gets the params in it."""
    return (lambda *x: fn(*x, params)) if required_arguments(fn) == 4 else fn


def returned(what: str, fn: Function, shape: tuple[int, ...], *args: Real) -> Any:
    """The result of a user's function, checked; `what` it belongs to."""
    try:
        inspect.signature(fn).bind(*args)
    except TypeError:
        call = f"with {len(args)} arguments, and the parameters last if it requires {len(args) + 1}"
        raise InputError(f"{what}: the function is called {call}, but takes {inspect.signature(fn)}") from None
    except ValueError:  # no signature
        pass
    found = fn(*args)
    try:
        found = jnp.asarray(found, float)
    except (TypeError, ValueError):
        raise InputError(f"{what}: the function must return {_count(shape)}, not {found!r}") from None
    if found.shape != shape and (shape or found.size != 1):
        raise InputError(f"{what}: the function must return {_count(shape)}, not an array of shape {found.shape}")
    return found.reshape(shape)


def _count(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} numbers" if shape else "one number"


def depends_on_rate(fn: Function, *like: tuple[int, ...]) -> bool:
    """Whether a user's function of arguments of these shapes depends on the last one; True if tracing it fails."""
    try:
        flat = lambda *x: jnp.ravel(jnp.asarray(fn(*x), float))
        closed = jax.make_jaxpr(flat)(*(jax.ShapeDtypeStruct(shape, float) for shape in like))
        return bool(dependence(closed, len(like) - 1).nnz)
    except Exception:
        return True
