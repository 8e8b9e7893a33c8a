"""Steps per second against the Python libraries that offer RATTLE: Mici and jax_chmc. Ratios, all in one run.

    python benchmarks/peers.py

Spherical pendulum (Mici, jax_chmc) and a chain of 16 pendula (jax_chmc), step 0.01, everything in float64. Our rows
are the array path (plain XLA, no kernel) and the default back end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

DT = 0.01


def best(run: Callable[[], object], repeats: int = 3) -> float:
    run()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def ours(problem: hx.Problem, backend: str, steps: int) -> float:
    def run():
        return hx.simulate(
            problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=DT, steps=steps, save_every=steps, backend=backend
        )

    return steps / best(run)


def mici(problem: hx.Problem, steps: int) -> float | None:
    try:
        from mici.integrators import ConstrainedLeapfrogIntegrator
        from mici.states import ChainState
        from mici.systems import DenseConstrainedEuclideanMetricSystem
    except ImportError:
        return None
    shape = problem.q0.shape
    up = np.asarray(jax.grad(problem.system.potential)(jnp.asarray(problem.q0))).reshape(-1)

    # gradients written by hand in NumPy: as fast as Mici gets without a compiler
    system = DenseConstrainedEuclideanMetricSystem(
        neg_log_dens=lambda q: up @ q,
        grad_neg_log_dens=lambda q: up,
        constr=lambda q: np.array([q @ q - 1.0]),
        jacob_constr=lambda q: 2 * q[None],
        dens_wrt_hausdorff=True,
    )
    integrator = ConstrainedLeapfrogIntegrator(system, step_size=DT)
    start = ChainState(pos=np.asarray(problem.q0).reshape(-1), mom=np.asarray(problem.p0).reshape(-1), dir=1)
    assert np.prod(shape) == start.pos.size

    def run():
        state = start.copy()
        for _ in range(steps):
            state = integrator.step(state)
        return state

    return steps / best(run, 1)


def jax_chmc(problem: hx.Problem, steps: int) -> float | None:
    try:
        import diffrax
        import optimistix
        from jax_chmc.rattle import Rattle
    except ImportError:
        return None
    system = problem.system
    gradient = jax.grad(lambda q: system.potential(q.reshape(problem.q0.shape)))
    terms = (diffrax.ODETerm(lambda t, q, args: -gradient(q)), diffrax.ODETerm(lambda t, p, args: p))
    solver = Rattle(
        root_finder=optimistix.Newton(rtol=1e-6, atol=1e-8),
        constrain=lambda q: system.constraint(q.reshape(problem.q0.shape)),
    )
    start = (jnp.asarray(problem.p0).reshape(-1), jnp.asarray(problem.q0).reshape(-1))

    @jax.jit
    def solve(start):
        return diffrax.diffeqsolve(terms, solver, 0.0, steps * DT, dt0=DT, y0=start, max_steps=None).ys

    return steps / best(lambda: jax.block_until_ready(solve(start)), 1)


def main() -> None:
    sphere = hx.models.spherical_pendulum()
    chain = hx.models.chain(16)
    slow, fast = ours(sphere, "array", 200_000), ours(sphere, "auto", 2_000_000)
    rows = [
        ("spherical pendulum", "Mici", mici(sphere, 500), slow, fast),
        ("spherical pendulum", "jax_chmc", jax_chmc(sphere, 5_000), slow, fast),
        ("chain of 16", "jax_chmc", jax_chmc(chain, 20), ours(chain, "array", 20_000), ours(chain, "auto", 200_000)),
    ]
    print(f"{'steps per second':<22}{'peer':<10}{'peer':>12}{'array path':>14}{'ratio':>9}{'default':>14}{'ratio':>9}")
    for system, peer, theirs, array, default in rows:
        if theirs is None:
            print(f"{system:<22}{peer:<10}  not installed (pip install {peer.lower()})")
            continue
        verdict = "pass" if array >= 100 * theirs else "MISS"
        print(
            f"{system:<22}{peer:<10}{theirs:>12,.0f}{array:>14,.0f}{array / theirs:>8,.0f}x{default:>14,.0f}"
            f"{default / theirs:>8,.0f}x  array path, target 100x: {verdict}"
        )


if __name__ == "__main__":
    main()
