"""Time per step of the Cosserat rod against its number of nodes: the cost must grow linearly.

    python benchmarks/rod.py [nodes ...]

VRATTLE with the wall monitor; rods of equal cells, so that only their number differs. The time is that of the best of
several repeats; the exponent is the slope of log(time) over log(nodes).
"""

from __future__ import annotations

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.build.models.rod import wall_distances
from holonomix.core.types import State

SIZES = (100, 1000, 10_000)


@eqx.filter_jit
def advance(system, method, state, carry, steps):
    def body(_, loop):
        state, carry, iterations, status = loop
        new, carry, report = method.step(system, state, jnp.nan, carry)
        return State(new.q, new.p, new.t, state.n), carry, iterations + report.iterations, status | report.status

    zero = jnp.asarray(0, jnp.int32)
    return jax.lax.fori_loop(0, steps, body, (state, carry, zero, zero))


def turning_rod(nodes: int):
    """System, method, state and the method's memory at the start."""
    length = 0.1 * nodes
    wall = ((1.0, 0.0, 0.0, 1.0),)
    rod = hx.models.cosserat_rod(nodes, length=length, walls=wall, speed=0.0)
    system = rod.system.prepare(rod.q0)
    method = hx.VRATTLE(hx.monitors.WallMonitor(wall_distances, power=3.0))
    # every section turns about the axis alike, so that a step needs as many sweeps whatever the number of nodes
    turning = jnp.zeros_like(rod.q0).at[:, 4].set(2.0).at[:, 6].set(-2.0)
    p = system.momentum(rod.q0, turning)
    state = State(rod.q0, p, jnp.asarray(0.0), jnp.asarray(0))
    return system, method, state, eqx.filter_jit(method.init)(system, state, jnp.asarray(2e-3))


def seconds_per_step(nodes: int, repeats: int = 5) -> float:
    """Processor seconds a step, the best of `repeats`."""
    rod = turning_rod(nodes)
    steps = max(20, 4000 // nodes)
    best = np.inf
    for k in range(repeats + 1):
        began = time.process_time()
        new, _, iterations, status = jax.block_until_ready(advance(*rod, jnp.asarray(steps)))
        elapsed = (time.process_time() - began) / steps
        if int(status):
            raise RuntimeError(hx.Status(int(status)).message)
        if k:  # the first call compiles
            best = min(best, elapsed)
    print(f"{nodes:7d} nodes   {best * 1e6:12.1f} us per step   {best / nodes * 1e6:8.3f} us per node   "
          f"{int(iterations) / steps:.2f} sweeps a step", flush=True)  # fmt: skip
    return best


def exponent(sizes, times) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def main() -> None:
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    times = [seconds_per_step(n) for n in sizes]
    print(f"time grows with exponent {exponent(sizes, times):.3f}")


if __name__ == "__main__":
    main()
