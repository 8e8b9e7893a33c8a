"""Many replicas of seven rigid waters on a GPU against one replica on one CPU core, in one run.

    python benchmarks/water_gpu.py [--replicas 16384] [--steps 1000] [--cpu-us 5.9]

RATTLE + GLA, step 0.509 fs, 232 K, 64-bit floats. The unit is one step of one replica. The CPU row is the fastest
back end that is installed (the native one needs llvmlite); `--cpu-us` gives a time measured elsewhere
(benchmarks/water.py) to compare with as well.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.build.models.water import UNITS

UNIT = UNITS["eV"]
BATH = {"friction": 0.01, "temperature": 232.0 * UNIT.boltzmann}


def one_replica(problem: hx.Problem, method: hx.GLA, seconds: float = 2.0) -> tuple[float, str]:
    """Microseconds of processor time for one step of one replica on the CPU, and the back end."""
    best, name = np.inf, ""
    with jax.default_device(jax.devices("cpu")[0]):
        for backend in ("native", "array"):
            try:
                options = {"dt": problem.dt, "key": jax.random.key(0), "backend": backend}
                start = problem.system, method, problem.q0, problem.p0
                hx.simulate(*start, steps=100, save_every=100, **options)
                steps = 1000
                while True:
                    began = time.process_time()
                    hx.simulate(*start, steps=steps, save_every=steps, **options)
                    took = time.process_time() - began
                    if took > seconds:
                        break
                    steps *= 4
                if took / steps < best:
                    best, name = took / steps, backend
            except hx.InputError as error:
                print(f"one replica, {backend}: not available ({str(error)[:80]})")
    return 1e6 * best, name


def many_replicas(problem: hx.Problem, method: hx.GLA, replicas: int, steps: int, backend: str) -> float:
    """Nanoseconds for one step of one replica in an ensemble: the best of three runs after one to compile."""
    q, p = (jnp.broadcast_to(x, (replicas, *x.shape)) for x in (problem.q0, problem.p0))
    times = []
    for k in range(4):
        ensemble = hx.simulate_ensemble(
            problem.system, method, q, p, dt=problem.dt, steps=steps, key=jax.random.key(k), backend=backend, throw=True
        )
        times.append(ensemble.stats["wall_time"])
    kinetic = jax.vmap(problem.system.kinetic)(jnp.asarray(ensemble.q), jnp.asarray(ensemble.p))
    heat = 2 * float(jnp.mean(kinetic)) / (42 * BATH["temperature"])
    print(f"  {backend}: {times[0]:.1f} s with compiling; 2K/(dof kT) after {steps} steps from a cold start {heat:.3f}")
    return 1e9 * min(times[1:]) / (replicas * steps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--cpu-us", type=float, default=None)
    parser.add_argument("--backends", nargs="+", default=["cuda", "array"])
    args = parser.parse_args()
    problem = hx.models.water_cluster(7, units="eV")
    method = hx.GLA(hx.RATTLE(hx.SymmetricNewton()), **BATH)
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
    cpu, name = one_replica(problem, method)
    print(f"one replica on one CPU core ({name}): {cpu:.2f} us per step")
    for backend in args.backends:
        try:
            gpu = many_replicas(problem, method, args.replicas, args.steps, backend)
        except (ValueError, NotImplementedError, ImportError) as error:
            print(f"{args.replicas} replicas, {backend}: not available ({str(error)[:120]})")
            continue
        against = f"; {1000 * args.cpu_us / gpu:.0f} times one at {args.cpu_us} us" if args.cpu_us else ""
        ratio = 1000 * cpu / gpu
        print(f"{args.replicas} replicas, {backend}: {gpu:.3f} ns a replica-step, {ratio:.0f} times one{against}")


if __name__ == "__main__":
    main()
