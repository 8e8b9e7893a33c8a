"""The Poincare-transformed symplectic Euler method: variable steps that are symplectic, at first order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.status import Status
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, add, newton_root
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import direct_momenta
from .base import AbstractMethod, Path, Traits, first_failure, fresh_path, map_low_parts
from .equations import unknown_sizes
from .monitors import AbstractMonitor, ForceMonitor, as_monitor
from .rattle import RATTLE


class Poincare(eqx.Module):
    """Constants of the transformed Hamiltonian, and low parts of q, p and t."""

    energy: Any  # H_0
    h: Any
    monitor: Any
    low: Compensation
    low_t: Any


class PoincareEuler(AbstractMethod):
    r"""Symplectic Euler for `K = (H - H_0)/U` with fixed steps h in fictive time (Reich 1996, Hairer 1997).

        P   = p_n - h (K_q(q_n, P) + G(q_n)^T l)       q_{n+1} = q_n + h K_p(q_n, P)        g(q_{n+1}) = 0
        p_{n+1} = P - G(q_{n+1})^T m                   G(q_{n+1}) M^-1 p_{n+1} = 0          t_{n+1} = t_n + h/U(q_n, P)

    On the energy surface `H = H_0` the motion of K is that of H with `dt = dtau/U`. For fixed H_0 and h the step is
    symplectic for any positive U, even in p or not; of order one, and implicit in P.
    """

    reference = "Reich 1996; Hairer 1997; Barth, Leimkuhler & Reich 1998 (section 2)"
    family = "adaptive"
    reasons = dict.fromkeys(
        (Capability.FORCE, Capability.TIME, Capability.MOVING), "it needs an energy that is conserved"
    )
    adaptive = True

    monitor: AbstractMonitor = eqx.field(converter=as_monitor, default=ForceMonitor())
    max_iterations: int = eqx.field(static=True, default=50)

    @property
    def traits(self) -> Mapping[str, Traits]:
        constrained = Traits(1, symplectic=True, constraint_exact=True, hidden_exact=True)
        return {"free": Traits(1, symplectic=True), "constrained": constrained}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Poincare:
        q, p = state.q, state.p
        memory = self.monitor.start(system, q, p, dt)
        h = dt * self.monitor.value(system, q, p, memory)
        return Poincare(system.hamiltonian(q, p), h, memory, Compensation.zeros(q), jnp.zeros((), q.dtype))

    def step(
        self, system: AbstractSystem, state: State, dt: Real, carry: Poincare, key: Key | None = None
    ) -> StepResult:
        q, t = state.q, jnp.asarray(state.t, state.q.dtype)
        m = system.constraint_count(q) if system.has_constraints else 0
        start = jnp.concatenate([state.p.reshape(-1), jnp.zeros((m,), q.dtype)])
        args = (system, self.monitor, state.q, state.p, carry)
        sizes = unknown_sizes("p", lambda args: (args[0], args[2]))
        options = {"max_iterations": self.max_iterations, "known": _known_sizes, "sizes": sizes}
        done = newton_root(_euler, start, args, **options, blocks=(q.size, m), inverse=_near_inverse)
        moved, mu = done.x[: q.size].reshape(q.shape), done.x[q.size :]

        u = self.monitor.value(system, q, moved, carry.monitor)
        k_q, k_p = _transformed(system, self.monitor, q, moved, carry)
        pull = -carry.h * k_q
        if system.has_constraints:
            pull = pull - system.linearize(q, t).transpose(mu)
        q1, low_q = add(q, carry.low.q, carry.h * k_p)
        status = [
            jnp.where(jnp.isfinite(u) & (u > 0), Status.OK, Status.MONITOR),
            jnp.where(done.converged, Status.OK, Status.NOT_CONVERGED),
            jnp.where(t + carry.h / u != t, Status.OK, Status.STEP_UNDERFLOW),
        ]
        multipliers = {}
        if system.has_constraints:
            tangent = direct_momenta(system, q1, state.p + (carry.low.p + pull), t)
            pull, multipliers = pull - tangent.correction, {"l": mu / carry.h}
            status.append(tangent.status)
        p1, low_p = add(state.p, carry.low.p, pull)
        t1, low_t = add(t, carry.low_t, carry.h / u)

        failed = first_failure(*status)
        low = Compensation(low_q, low_p)
        new = (State(q1, p1, t1, state.n), Poincare(carry.energy, carry.h, carry.monitor, low, low_t))
        old = (State(q, state.p, t, state.n), carry)
        new_state, new_carry = jax.tree.map(lambda a, b: jnp.where(failed == Status.OK, a, b), new, old)
        return new_state, new_carry, Report(failed, done.iterations, done.residual, multipliers)

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Path:
        return fresh_path(RATTLE(), system, state)

    def reverse(self, system: AbstractSystem, state: State, carry: Poincare) -> tuple[State, Poincare]:
        return State(state.q, -state.p, state.t, state.n), map_low_parts(Compensation.reversed, carry)


def _transformed(
    system: AbstractSystem, monitor: AbstractMonitor, q: Numbers, p: Numbers, carry: Poincare
) -> tuple[Any, Any]:
    """`K_q` and `K_p` of `K = (H - H_0)/U`."""

    def k(q: Numbers, p: Numbers):
        return (system.hamiltonian(q, p) - carry.energy) / monitor.value(system, q, p, carry.monitor)

    return jax.grad(k, (0, 1))(q, p)


def _known_sizes(args: PyTree) -> Any:
    """The scales that p and q have in the rows of `_euler`."""
    system, _, q, p, _ = args
    rows = system.row_sizes(q, system.linearize(q), q) if system.has_constraints else jnp.zeros((0,), q.dtype)
    return jnp.concatenate([jnp.abs(p).reshape(-1), rows])


def _near_inverse(x: Numbers, args: PyTree) -> Any:
    """The inverse of the Jacobian of `_euler` for h -> 0, where `K_pp = M^-1/U` and `K_qp = 0`: a solve for mu."""
    system, monitor, q, _, carry = args
    if not system.has_constraints:
        return lambda r: r
    n, moved = q.size, x[: q.size].reshape(q.shape)
    u = monitor.value(system, q, moved, carry.monitor)
    _, k_p = _transformed(system, monitor, q, moved, carry)
    here, there = system.linearize(q), system.linearize(q + (carry.h * k_p + carry.low.q))
    factor = system.gram(q, there, here).factor()

    def inverse(r: Numbers):
        free = r[:n].reshape(q.shape)
        mu = factor.solve(there(system.velocity(q, free)) - u / carry.h * r[n:])
        return jnp.concatenate([(free - here.transpose(mu)).reshape(-1), mu])

    return inverse


def _euler(x: Numbers, args: PyTree) -> Any:
    system, monitor, q, p, carry = args
    moved = x[: q.size].reshape(q.shape)
    k_q, k_p = _transformed(system, monitor, q, moved, carry)
    r = (moved - p) - carry.low.p + carry.h * k_q
    if not system.has_constraints:
        return r.reshape(-1)
    r = r + system.linearize(q).transpose(x[q.size :])
    return jnp.concatenate([r.reshape(-1), system.constraint(q + (carry.h * k_p + carry.low.q))])
