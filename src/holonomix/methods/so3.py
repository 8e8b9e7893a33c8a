"""Rigid bodies on SO(3): variational Euler with the Cayley map, and the linearly implicit schemes on a penalty.

A body is a rotation matrix R with the ambient momentum `p = R Omega^ J_d`, `J_d = tr(J)/2 I - J` (`models.rigid_body`).
RATTLE on the nine entries with `R^T R = I` is the third way.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ..core.checks import one_of, runtime_number
from ..core.errors import MethodError
from ..core.types import Key, Numbers, Real, State, StepResult
from ..linalg import Compensation, newton_root, solve
from ..linalg.rotations import hat, vee
from ..mechanics.abstract import AbstractSystem
from ..mechanics.stiff import StiffSystem
from .base import AbstractMethod, Traits
from .equations import iteration_report
from .kick_drift import PhasePoint
from .newmark import as_beta, definite_report
from .zhang_skeel import modified_force, verlet_step


class CayleyEulerSO3(AbstractMethod):
    r"""Variational Euler on SO(3) with the Cayley map, for any inertia J and potential V(R).

        (dcay^-1_{hW})^* J W = Pi_n + h tau(R_n)        R_{n+1} = R_n cay(h W)        Pi_{n+1} = (dcay^-1_{-hW})^* J W
        (dcay^-1_x)^* mu = mu + x x mu/2 + (x . mu) x/4

    with the body momentum `Pi = J Omega` and torque `tau = -(R^T grad V - grad V^T R)v`. For the unit inertia this is
    `(1 + h^2 |W|^2/4) W = Pi_n + h tau`, `Pi_{n+1}` being the left side. Symplectic on T*SO(3), order one; R stays a
    rotation to round-off; momenta of symmetries are kept exactly.
    """

    reference = "Bou-Rabee & Marsden 2009; Tao & Owhadi 2015 (4.12)"
    family = "so3"
    position_carry = True

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"constrained": Traits(1, symplectic=True, constraint_exact=True, hidden_exact=True)}

    def check(self, system: AbstractSystem) -> None:
        super().check(system)
        check_rotations(self, system, system)
        check_inertia(self, system)

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        check_shape(self, state.q.shape)
        return ()

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        rotation, h = state.q, jnp.asarray(dt, state.q.dtype)
        second = system.momentum(rotation, jnp.eye(3, dtype=h.dtype))
        inertia = jnp.trace(second) * jnp.eye(3, dtype=h.dtype) - second
        # R^T p - p^T R = Omega^ J_d + J_d Omega^ = (J Omega)^
        momentum = vee(rotation.T @ state.p - state.p.T @ rotation)
        pull = rotation.T @ system.gradient(rotation)
        torque = -vee(pull - pull.T)
        target = momentum + h * torque
        done = newton_root(_cayley_residual, solve(inertia, target, symmetric=True), (inertia, target, h))
        w = done.x
        rotation = orthonormalize(rotation @ cayley(h * w))
        momentum = _cotangent(-h * w, inertia @ w)
        omega = solve(inertia, momentum, symmetric=True)
        p = rotation @ hat(omega) @ second
        return State(rotation, p, state.t + dt, state.n), (), iteration_report(done)


class ZhangSkeelSO3(AbstractMethod):
    r"""Z&S for a rotation matrix held by the penalty `omega^2/2 tr((R^T R - I)^2)`, all nine entries free.

        (2 c M + beta h^2 V'') a = -grad V      f = 2 c M a - (1/2) beta^2 h^4 a.V'''.a      M = 1/2 for unit inertia
        form="trapezoidal" (order 2):  p' = p + h/2 f(R)    R+ = R + h M^-1 p'    p+ = p' + h/2 f(R+)
        form="first" (order 1):        p+ = p + h f(R)      R+ = R + h M^-1 p+

    `c = 1/2` is consistent with the mass and keeps linear stability for beta >= 1/4 (the first-order form too, as the
    trapezoidal one is conjugate to it); the paper prints `c = 1`, which halves the effective beta. Run it on
    `body.system.penalized(omega)`.
    """

    reference = "Tao & Owhadi 2015 (4.15)"
    family = "so3"
    position_carry = True

    beta: Any = eqx.field(converter=as_beta, default=0.4)
    form: Literal["trapezoidal", "first"] = eqx.field(static=True, default="trapezoidal")
    c: Any = eqx.field(converter=partial(runtime_number, "c", above=0), default=0.5)  # 1/2 is consistent, 1 the paper's
    definite: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        one_of("form", self.form, ("trapezoidal", "first"))

    @property
    def traits(self) -> Mapping[str, Traits]:
        second = self.form == "trapezoidal"
        return {"stiff": Traits(2 if second else 1, symmetric=second, symplectic=True)}

    def check(self, system: AbstractSystem) -> None:
        super().check(system)
        assert isinstance(system, StiffSystem)
        check_rotations(self, system, system.constrained())

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        check_shape(self, state.q.shape)
        if self.form == "first":
            return Compensation.zeros(state.q)
        force, factor = self._force(system, state.q, dt, once=True)
        return Compensation.zeros(state.q), force, factor.smallest

    def resize(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        if self.form == "first":
            return carry
        force, factor = self._force(system, state.q, dt)
        return carry[0], force, factor.smallest

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        if self.form == "trapezoidal":
            return verlet_step(system, state, dt, carry, lambda q: self._force(system, q, dt), self.definite)
        force, factor = self._force(system, state.q, dt)
        point = PhasePoint.of(state, carry).kick(dt * force)
        point = point.move(dt * system.velocity(state.q, point.p))
        report = definite_report(factor.smallest, self.definite)
        return point.state(state.t + dt, state.n), point.low, report

    def _force(self, system: AbstractSystem, q: Numbers, dt: Real, once: bool = False) -> tuple[Any, Any]:
        return modified_force(system, q, dt, self.beta, 2 * self.c, once)


# -- their assumptions ------------------------------------------------------------------------------------------------


def check_shape(method: AbstractMethod, shape: tuple[int, ...]) -> None:
    if shape != (3, 3):
        raise MethodError(f"{method.name} moves a rotation matrix of shape (3, 3); q has shape {shape}")


def check_rotations(method: AbstractMethod, system: AbstractSystem, rigid: AbstractSystem) -> None:
    """The manifold of `rigid` is SO(3): its constraint vanishes at rotations and has rank six there.

    Traced values are not checked.
    """
    if system.shape is not None:
        check_shape(method, system.shape)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(rigid)):
        return
    needs = f"{method.name} moves one rotation matrix R held by R^T R = I, as models.rigid_body makes it"
    for turn in ((0.0, 0.0, 0.0), (1.2, -0.7, 0.4), (-0.3, 2.0, 1.1)):
        rotation = cayley(jnp.asarray(turn, jnp.result_type(float)))
        try:
            g, jac = np.asarray(rigid.constraint(rotation)), np.asarray(rigid.linearize(rotation).todense())
        except Exception as error:
            raise MethodError(f"{needs}; this constraint cannot be evaluated at a 3 x 3 matrix: {error}") from error
        size = np.sum(np.abs(jac), axis=1)
        if np.any(np.abs(g) > 1e-6 * size):
            row = int(np.argmax(np.abs(g) - 1e-6 * size))
            raise MethodError(f"{needs}; this system's constraint {row} is {g[row]:.3g} at a rotation, not zero")
        rank = int(np.linalg.matrix_rank(jac, tol=1e-6 * float(np.max(size))))
        if rank != 6:
            raise MethodError(f"{needs}; this system's {len(g)} constraints have rank {rank} at a rotation, not 6")


def check_inertia(method: AbstractMethod, system: AbstractSystem) -> None:
    """The mass is that of a rigid body: the momentum of V is `V J_d` with one symmetric matrix J_d."""
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(system.mass)):
        return
    eye = jnp.eye(3, dtype=jnp.result_type(float))
    velocity = jnp.asarray([[1.0, 2.0, -1.0], [0.5, -3.0, 2.0], [-2.0, 1.0, 4.0]], eye.dtype)
    second = np.asarray(system.momentum(eye, eye))
    off = np.abs(np.asarray(system.momentum(eye, velocity)) - np.asarray(velocity) @ second)
    if np.max(off) > 1e-6 * np.max(np.abs(second)) or np.max(np.abs(second - second.T)) > 1e-6 * np.max(np.abs(second)):
        raise MethodError(
            f"{method.name} needs the mass of a rigid body, momentum p = V J_d with one 3 x 3 matrix J_d for all rows "
            "of the velocity V (a scalar, or what models.rigid_body makes of moments of inertia)"
        )


def cayley(x: Numbers) -> Any:
    """`(I - x^/2)^-1 (I + x^/2)`, written out: a rotation about x."""
    skew = hat(x / 2)
    return jnp.eye(3, dtype=x.dtype) + 2 / (1 + jnp.sum(x * x) / 4) * (skew + skew @ skew)


def orthonormalize(rotation: Numbers) -> Any:
    """One Newton step of the polar decomposition, so that rounding errors of products do not accumulate."""
    return rotation + rotation @ (jnp.eye(3, dtype=rotation.dtype) - rotation.T @ rotation) / 2


def _cotangent(x: Numbers, mu: Numbers) -> Any:
    """`(dcay^-1_x)^* mu`."""
    return mu + cross(x, mu) / 2 + jnp.sum(x * mu) * x / 4


def cross(a: Numbers, b: Numbers) -> Any:
    return hat(a) @ b


def _cayley_residual(w: Numbers, args: PyTree) -> Any:
    inertia, target, h = args
    return solve(inertia, _cotangent(h * w, inertia @ w) - target, symmetric=True)


VARIANTS = {"ZhangSkeelSO3": (lambda: ZhangSkeelSO3(form="first"), lambda: ZhangSkeelSO3(c=1.0))}
