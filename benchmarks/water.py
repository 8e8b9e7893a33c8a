"""Rigid TIP3P water at constant temperature against OpenMM's Reference platform, in one run on one thread.

    python benchmarks/water.py [--sizes 7 100] [--seconds 3]

The same clusters, step (0.509 fs), temperature and friction; no cutoff; rigid molecules (RATTLE here, SETTLE there);
double precision. Times are processor time of the whole process, so that a busy machine does not matter. The energies of
the start are compared first. Without OpenMM only our own rows are printed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

if hasattr(os, "sched_setaffinity"):  # one thread for everybody: one core is all this process may use
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import numpy as np

import holonomix as hx
from holonomix.build.models import water

UNIT = water.UNITS["kcal/mol"]
KELVIN, FRICTION = 232.0, 0.98  # friction in 1/ps


def rate(run: Callable[[int], object], seconds: float, repeats: int = 3) -> float:
    """Steps a second: the best of some runs that each take about a third of `seconds`, after one to warm up."""
    steps = 20
    run(steps)
    while True:
        began = time.process_time()
        run(steps)
        took = time.process_time() - began
        if took > 0.1 * seconds:
            break
        steps *= 4
    steps = max(1, int(steps * seconds / repeats / took))
    best = 0.0
    for _ in range(repeats):
        began = time.process_time()
        run(steps)
        best = max(best, steps / (time.process_time() - began))
    return best


def ours(problem: hx.Problem, backend: str) -> tuple[Callable[[int], object], str]:
    method = hx.GLA(
        hx.RATTLE(hx.SymmetricNewton()),
        friction=FRICTION * UNIT.femtoseconds / 1000,
        temperature=KELVIN * UNIT.boltzmann,
    )

    def run(steps: int):
        return hx.simulate(
            problem.system,
            method,
            problem.q0,
            problem.p0,
            dt=problem.dt,
            steps=steps,
            save_every=steps,
            key=jax.random.key(0),
            backend=backend,
        )

    stats = run(1).stats
    return run, f"{stats['backend']}, {stats['operations'] or 'no'} operations"


def theirs(problem: hx.Problem) -> tuple[Callable[[int], object], float]:
    import openmm
    from openmm import unit

    system, force = openmm.System(), openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.NoCutoff)
    a, c = water.LENNARD_JONES
    sigma, epsilon = 0.1 * (a / c) ** (1 / 6), 4.184 * c**2 / (4 * a)
    sides = 0.1 * np.array([water.BOND, water.BOND, 2 * water.BOND * np.sin(np.deg2rad(water.ANGLE) / 2)])
    for k in range(len(problem.q0) // 3):
        for i in range(3):
            system.addParticle(water.MASSES[i])
            force.addParticle(water.CHARGES[i], sigma, epsilon if i == 0 else 0.0)
        for (i, j), length in zip(((0, 1), (0, 2), (1, 2)), sides):
            system.addConstraint(3 * k + i, 3 * k + j, length)
            force.addException(3 * k + i, 3 * k + j, 0.0, 1.0, 0.0)
    system.addForce(force)
    integrator = openmm.LangevinMiddleIntegrator(
        KELVIN * unit.kelvin, FRICTION / unit.picosecond, 0.000509 * unit.picoseconds
    )
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(np.asarray(problem.q0) * 0.1)
    energy = context.getState(getEnergy=True).getPotentialEnergy().value_in_unit(unit.kilocalorie_per_mole)
    context.setVelocitiesToTemperature(KELVIN, 1)

    def run(steps: int, context=context):  # the context must live as long as its integrator is used
        integrator.step(steps)

    return run, energy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[7, 100])
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    for n in args.sizes:
        problem = hx.models.water_cluster(n)
        peer = None
        try:
            step, energy = theirs(problem)
            mine = float(problem.system.potential(problem.q0))
            if abs(energy - mine) > 1e-4 * abs(mine):
                raise SystemExit(f"the models differ: {mine} against {energy} kcal/mol")
            peer = rate(step, args.seconds)
            print(f"{n:4d} waters  OpenMM Reference          {1e6 / peer:9.2f} us per step")
        except ImportError:
            print("OpenMM is not installed: no comparison")
        for backend in ("native", "auto") if n <= 10 else ("auto",):
            run, how = ours(problem, backend)
            mine = rate(run, args.seconds)
            ratio = "" if peer is None else f"  {peer / mine:6.2f} times OpenMM's time"
            print(f"{n:4d} waters  holonomix {backend:8s}       {1e6 / mine:9.2f} us per step{ratio}  ({how})")


if __name__ == "__main__":
    main()
