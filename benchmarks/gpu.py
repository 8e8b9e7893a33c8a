"""Ensembles and gradients on a GPU through the public API: time per trajectory-step, with pass or miss.

    python benchmarks/gpu.py [name ...]        # pendula, chains10, chains100, line_integral, water, gradient

Every row times `hx.simulate_ensemble` (or `jax.grad` through `hx.integrate`) as a user calls it, after one call that
compiles; the time is the one that the ensemble reports for its chunk loop, transfers included. The first 64
trajectories are compared with the CPU's, bit by bit.

The fraction of peak FP64 is that of the operations in the compiled program: one for a sum, product, quotient or root,
two for a fused product and sum, 20 for an elementary function, for every element of a long axis, with the body of the
solver's loop as often as the run reports iterations; over the time and the H200's 33.5 TFLOP/s. Comparisons, selects
and the Newton sums of a division are not counted. The fraction of memory bandwidth is that of the least traffic: the
state of every trajectory in and out once per call of the kernel, over 4.8 TB/s.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.compiler.cuda import CudaRunner, Driver
from holonomix.compiler.graph import FLOATS, Branches, Loop, dtype_of
from holonomix.compiler.program import Program

COMPARED = 64
PEAK, BANDWIDTH = 33.5e12, 4.8e12  # of an H200: FP64 operations and bytes per second
COST = {
    **dict.fromkeys(("add", "sub", "mul", "div", "sqrt", "rsum", "rprod"), 1),
    **dict.fromkeys(("fma", "fms", "fnma"), 2),
    **dict.fromkeys(("sin", "cos", "tan", "exp", "log", "pow", "tanh", "atan2", "asin", "acos", "atan"), 20),
}


def operations(program: Program, iterations: float) -> float:
    """FP64 operations of one step, with so many iterations of each loop that runs until it has converged.

    A loop around such a loop, which repeats it where it has failed, counts once.
    """
    g = program.graph

    def trips(loop: Loop) -> float:
        inner = (g.attr[n] for n in program.blocks[loop.scope].nodes)
        holds = any(isinstance(attr, Loop) and attr.trips is None for attr in inner)
        return loop.trips if loop.trips is not None else 1.0 if holds else iterations

    def of(scope) -> float:
        total = 0.0
        for n in program.blocks[scope].nodes:
            attr, elements = g.attr[n], max([g.length[n], *(g.length[a] for a in g.args[n])])
            if isinstance(attr, Loop):
                total += trips(attr) * of(attr.scope)
            elif isinstance(attr, Branches):
                total += max(map(of, attr.scopes))
            elif g.op[n] == "gsum":
                total += attr.array.size
            elif g.kind[n] in FLOATS:
                total += COST.get(g.op[n], 0) * max(elements, 1)
        return total

    return of(program.scope)


def state_bytes(program: Program) -> int:
    return sum(leaf.count * dtype_of(leaf.kind).itemsize for leaf in program.carry)


class Launches:
    """Counts the calls of kernels and their seconds while it is entered; their programs are in `programs`."""

    def __enter__(self) -> Launches:
        self.count, self.seconds, self.plain = 0, 0.0, (Driver.launch, CudaRunner.run, CudaRunner._target)
        self.programs: list[Program] = []

        def launch(driver, *args, **options) -> None:
            began = time.perf_counter()
            self.plain[0](driver, *args, **options)
            self.count, self.seconds = self.count + 1, self.seconds + time.perf_counter() - began

        def noted(run: Callable) -> Callable:
            def noting(runner: CudaRunner, *args, **options):
                if runner.program not in self.programs:
                    self.programs.append(runner.program)
                return run(runner, *args, **options)

            return noting

        Driver.launch = launch  # pyright: ignore[reportAttributeAccessIssue]
        CudaRunner.run, CudaRunner._target = map(noted, self.plain[1:])
        return self

    def __exit__(self, *_: object) -> None:
        Driver.launch, CudaRunner.run, CudaRunner._target = self.plain


def fractions(launches: Launches, iterations: float, ns: float, steps: int, count: int) -> str:
    """What share of the peak and of the bandwidth is used."""
    programs = launches.programs
    flops = sum(operations(p, iterations) for p in programs)
    moved = sum(2 * state_bytes(p) for p in programs) * launches.count / len(programs) / steps
    share = f"{flops:.0f} operations: {flops / (ns * 1e-9) / PEAK:.0%} of peak FP64"
    return f"{share}, {moved / (ns * 1e-9) / BANDWIDTH:.2%} of bandwidth"


def report(name: str, ns: float, goal: float, note: str = "") -> None:
    print(f"{name:<44}{ns:10.4f} ns  goal {goal:g}: {'pass' if ns <= goal else 'MISS'}  {note}", flush=True)


def ensemble(problem: hx.Problem, method, count: int, steps: int, key=None) -> tuple[float, str]:
    """Nanoseconds per trajectory-step, and how the bits compare with the CPU's."""
    rng = np.random.default_rng(0)
    # starts on the manifold: the model's own, with momenta scaled
    scale = 1.0 + 0.01 * rng.standard_normal(count)
    q0 = np.broadcast_to(np.asarray(problem.q0), (count, *np.shape(problem.q0))).copy()
    momentum = np.asarray(problem.p0)
    if not np.any(momentum):
        _, momentum = hx.project(problem.system, problem.q0, 0.1 * rng.standard_normal(np.shape(problem.q0)))
    p0 = np.asarray(momentum) * scale.reshape((-1,) + (1,) * np.ndim(momentum))

    def run(steps: int, n: int = count, backend: str = "auto") -> hx.Ensemble:
        return hx.simulate_ensemble(
            problem.system, method, q0[:n], p0[:n], dt=problem.dt, steps=steps, key=key, backend=backend, throw=True
        )

    run(4)
    with Launches() as launches:
        done = run(steps)
    ns = done.stats["wall_time"] / (count * steps) * 1e9
    note = done.stats["backend"]
    if done.stats["backend"] == "cuda":
        note += ", " + fractions(launches, float(np.mean(done.stats["iterations"])) / steps, ns, steps, count)
        note += f"; kernels alone {launches.seconds / (count * steps) * 1e9:.4g} ns"
        cpu = run(16, COMPARED, "native")
        gpu = run(16, COMPARED)
        same = np.array_equal(np.asarray(cpu.q), np.asarray(gpu.q))
        note += ", bits equal the CPU's" if same else f", differs from the CPU by {np.abs(cpu.q - gpu.q).max():.1e}"
    return ns, note


def pendula() -> None:
    report(
        "2^20 double pendula, RATTLE",
        *with_goal(ensemble(hx.models.double_pendulum(), hx.RATTLE(), 2**20, 10_000), 0.04),
    )


def chains10() -> None:
    report("2^17 chains of 10, RATTLE", *with_goal(ensemble(hx.models.chain(10), hx.RATTLE(), 2**17, 4_000), 0.25))


def chains100() -> None:
    report("2^14 chains of 100, RATTLE", *with_goal(ensemble(hx.models.chain(100), hx.RATTLE(), 2**14, 1_000), 20))


def line_integral() -> None:
    found = ensemble(hx.models.double_pendulum(), hx.LineIntegral(order=6), 2**18, 1_000)
    report("2^18 double pendula, LineIntegral(6)", *with_goal(found, 2))


def water() -> None:
    problem = hx.models.water_cluster()
    report("16 384 replicas of the water cluster, RATTLE", *with_goal(ensemble(problem, hx.RATTLE(), 2**14, 2_000), 8))


def gradient() -> None:
    problem, count, steps = hx.models.double_pendulum(), 4096, 1000
    _, p0 = hx.project(problem.system, problem.q0, 0.1 * np.random.default_rng(1).standard_normal((2, 2)))

    def gradients(adjoint: hx.Reversible, steps: int) -> Callable[[jax.Array], jax.Array]:
        def final_height(scale: jax.Array) -> jax.Array:
            start = problem.q0, scale * p0
            q, _ = hx.integrate(problem.system, hx.RATTLE(), *start, dt=problem.dt, steps=steps, adjoint=adjoint)
            return jnp.sum(q[:, 1])

        return jax.jit(jax.vmap(jax.grad(final_height)))

    scales = jnp.linspace(0.9, 1.1, count)
    batch = gradients(hx.Reversible(backend="auto"), steps)
    with Launches() as launches:
        batch(scales).block_until_ready()
        launches.count = 0
        began = time.perf_counter()
        batch(scales).block_until_ready()
        seconds = time.perf_counter() - began
    few = scales[:COMPARED]
    quick, plain = (gradients(hx.Reversible(backend=b), 100)(few) for b in ("auto", "array"))
    note = f"differs from the array path by {float(jnp.max(jnp.abs(quick / plain - 1))):.0e} after 100 steps"
    ns = seconds / (count * steps) * 1e9
    if failed := int(jnp.sum(~jnp.isfinite(batch(scales)))):
        ns, note = np.nan, f"{failed} gradients are not finite: their runs failed"
    elif launches.count:
        start = (jnp.stack([x] * 2) for x in (problem.q0, p0))
        run = hx.simulate_ensemble(problem.system, hx.RATTLE(), *start, dt=problem.dt, steps=100, throw=True)
        note += ", " + fractions(launches, float(np.mean(run.stats["iterations"])) / 100, ns, steps, count)
    report("gradient, 4 096 x 1 000 steps", ns, 2, note)


def with_goal(found: tuple[float, str], goal: float) -> tuple[float, float, str]:
    return found[0], goal, found[1]


JOBS: dict[str, Callable[[], None]] = {
    "pendula": pendula,
    "chains10": chains10,
    "line_integral": line_integral,
    "water": water,
    "gradient": gradient,
    "chains100": chains100,
}


def main() -> None:
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
    for name in sys.argv[1:] or JOBS:
        try:
            JOBS[name]()
        except Exception as error:  # the other rows are still worth their time
            print(f"{name}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
