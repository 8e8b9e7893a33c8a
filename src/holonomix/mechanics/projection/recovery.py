"""Multipliers recovered from a stiff motion: window averages of the stiff force along the constraint directions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import InputError
from ...core.types import Numbers
from ...trace.compiled import compiled
from ..stiff import Penalty, StiffSystem


def stiff_multipliers(stiff: StiffSystem, q: Numbers) -> Any:
    """The multipliers that correspond to the stiff force at q: `grad V/eps^2 = G^T lambda` on the span of G.

    For a penalty this is `omega^2 g(q)`; for a general V it is `(G M^-1 G^T)^-1 G M^-1 grad V/eps^2`.
    """
    rigid = stiff.constrained()
    if isinstance(stiff.stiff_fn, Penalty):
        return rigid.constraint(q) / stiff.epsilon**2
    jac = rigid.linearize(q)
    pull = jac(rigid.inverse_mass(q, stiff.fast.gradient(q)))
    return rigid.gram(q, jac, jac).factor(symmetric=True).solve(pull)


@compiled
def _rows(stiff: StiffSystem, rows: Numbers) -> Any:
    return jax.lax.map(lambda q: stiff_multipliers(stiff, q), rows, batch_size=256)


def penalty_multipliers(sol: Any, window: float) -> tuple[np.ndarray, np.ndarray]:
    """`(t, lambda)`: the mean of the stiff multipliers over windows of the given width, centered at t.

    As omega grows the raw values `omega^2 g` keep oscillating and have no limit; their mean over a window tends to the
    Lagrange multiplier of the rigid system (Tao & Owhadi, Theorem 1.3, with our sign: a hanging pendulum pulls with a
    positive lambda). `sol` is a solution of a stiff system with equidistant rows; `window` should span many fast
    periods and little of the slow motion. `window=0` gives the raw values.
    """
    stiff = sol.system
    if not isinstance(stiff, StiffSystem):
        raise InputError("penalty_multipliers needs the solution of a stiff system (system.penalized(omega))")
    if not 0 <= window < np.inf:
        raise InputError(f"window must be a length of time, zero or more, not {window}")
    t, q = np.asarray(sol.t), jnp.asarray(sol.q)
    raw = np.asarray(_rows(stiff.prepare(q[0]), q))
    if window == 0:
        return t, raw
    spacing = np.diff(t)
    if len(t) < 2 or np.ptp(spacing) > 1e-6 * abs(spacing[0]):
        raise InputError("windowed means need equally spaced rows; save every step of a fixed-step method")
    width = round(window / abs(spacing[0]))
    if not 1 <= width < len(t):
        raise InputError(
            f"a window of {window:g} holds {width} row spacings of {abs(spacing[0]):g}, and the run has {len(t)} rows: "
            "take a window that holds at least one and fits into the run"
        )
    # trapezoidal rule over `width` intervals, by differences of the running integral
    steps = 0.5 * (raw[1:] + raw[:-1])
    total = np.concatenate([np.zeros((1, raw.shape[1])), np.cumsum(steps, axis=0)])
    mean = (total[width:] - total[:-width]) / width
    return 0.5 * (t[width:] + t[:-width]), mean
