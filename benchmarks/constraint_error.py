"""How well a pendulum of length one keeps its length until t = 100: the row of the comparison table in the README.

    python benchmarks/constraint_error.py

SciPy and diffrax integrate the equations of motion with the multiplier inserted, at tolerances of 1e-8; Mici and OpenMM
solve for their constraints to a tolerance, which is their default here. Packages that are not installed are left out.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import holonomix as hx

GRAVITY, END = 9.81, 100.0


def right_hand_side(y, xp=np):
    q, v = y[:2], y[2:]
    tension = (v @ v - GRAVITY * q[1]) / (q @ q)
    return xp.concatenate([v, xp.stack([-tension * q[0], -GRAVITY - tension * q[1]])])


def of_scipy() -> float:
    from scipy.integrate import solve_ivp

    y = solve_ivp(lambda t, y: right_hand_side(y), (0, END), [1.0, 0.0, 0.0, 0.0], rtol=1e-8, atol=1e-8).y[:2, -1]
    return abs(y @ y - 1)


def of_diffrax() -> float:
    import diffrax

    term = diffrax.ODETerm(lambda t, y, args: right_hand_side(y, jnp))
    control = diffrax.PIDController(rtol=1e-8, atol=1e-8)
    start = jnp.array([1.0, 0.0, 0.0, 0.0])
    run = diffrax.diffeqsolve(
        term, diffrax.Tsit5(), 0.0, END, 0.01, start, stepsize_controller=control, max_steps=1_000_000
    )
    assert run.ys is not None
    y = run.ys[-1, :2]
    return float(abs(y @ y - 1))


def of_mici() -> float:
    import mici

    system = mici.systems.DenseConstrainedEuclideanMetricSystem(
        neg_log_dens=lambda q: GRAVITY * q[1],
        grad_neg_log_dens=lambda q: np.array([0.0, GRAVITY]),
        constr=lambda q: np.array([q @ q - 1]),
        jacob_constr=lambda q: 2 * q[None],
    )
    integrator = mici.integrators.ConstrainedLeapfrogIntegrator(system, step_size=0.01)
    state = mici.states.ChainState(pos=np.array([1.0, 0.0]), mom=np.zeros(2), dir=1)
    worst = 0.0
    for _ in range(round(END / 0.01)):
        state = integrator.step(state)
        worst = max(worst, abs(state.pos @ state.pos - 1))
    return worst


def of_openmm() -> float:
    import openmm

    return openmm.VerletIntegrator(0.001).getConstraintTolerance()  # relative, of a distance


def of_holonomix() -> float:
    system = hx.System(lambda q: GRAVITY * q[1], constraint=lambda q: jnp.array([q @ q - 1.0]))
    run = hx.simulate(system, hx.RATTLE(), jnp.array([1.0, 0.0]), jnp.zeros(2), dt=0.01, t1=END)
    return float(run.constraint_error().max())


if __name__ == "__main__":
    for measure in (of_holonomix, of_scipy, of_diffrax, of_mici, of_openmm):
        name = measure.__name__.removeprefix("of_")
        try:
            print(f"{name:10} {measure():.1e}")
        except ImportError:
            print(f"{name:10} not installed")
