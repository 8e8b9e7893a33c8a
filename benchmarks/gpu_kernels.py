"""The GPU kernel: agreement with the other back ends, and time of a trajectory-step for large batches.

    python benchmarks/gpu_kernels.py [--largest 1000000] [--steps 200]

Needs jax with a CUDA device; nothing else of the package's dependencies. The step is a RATTLE of its own, so that the
file runs where only jax is installed.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
try:
    from holonomix import compiler as kernels
except ImportError:  # the kernels need only jax and numpy
    package = types.ModuleType("holonomix")
    package.__path__ = [str(Path(__file__).parents[1] / "src" / "holonomix")]
    sys.modules["holonomix"] = package
    from holonomix import compiler as kernels

DT = 0.05


def solve(a, b):
    """Gaussian elimination written out; structural zeros vanish in the kernel compiler."""
    n = a.shape[0]
    rows, x = [[a[i, j] for j in range(n)] for i in range(n)], [b[i] for i in range(n)]
    for k in range(n):
        inverse = 1 / rows[k][k]
        for i in range(k + 1, n):
            f = rows[i][k] * inverse
            rows[i] = [rows[i][j] - f * rows[k][j] if j > k else rows[i][j] for j in range(n)]
            x[i] = x[i] - f * x[k]
    for i in reversed(range(n)):
        x[i] = (x[i] - sum(rows[i][j] * x[j] for j in range(i + 1, n))) / rows[i][i]
    return jnp.stack(x)


def rattle(links: int, lengths2, tol: float = 1e-12, fixed: int | None = None) -> types.SimpleNamespace:
    """RATTLE for a chain of rods; `fixed` takes so many Newton sweeps instead of testing."""

    def g(q):
        rods = jnp.diff(q.reshape(links, 2), axis=0, prepend=jnp.zeros((1, 2)))
        return jnp.sum(rods * rods, 1) - lengths2

    gradient = jax.grad(lambda q: jnp.sum(q.reshape(links, 2)[:, 1]))
    jacobian = jax.jacrev(g)

    def step(carry, consts):
        q, p, dt = carry["q"], carry["p"], consts["dt"]
        directions = jacobian(q).T
        half = p - dt / 2 * gradient(q)
        trial = q + dt * half

        def sweep(s):
            x, multipliers, r, _, k = s
            change = solve(jacobian(x) @ directions, r)
            x = x - directions @ change
            r = g(x)
            return x, multipliers + change, r, jnp.max(jnp.abs(r)), k + 1

        r = g(trial)
        start = (trial, jnp.zeros(links), r, jnp.max(jnp.abs(r)), jnp.int32(0))
        if fixed is None:
            x, multipliers, _, left, k = lax.while_loop(lambda s: (s[3] > tol) & (s[4] < 20), sweep, start)
        else:
            s = start
            for _ in range(fixed):
                s = sweep(s)
            x, multipliers, _, left, k = s
        half = half - directions @ multipliers / dt - dt / 2 * gradient(x)
        rows = jacobian(x)
        p = half - rows.T @ solve(rows @ rows.T, rows @ half)
        ok = left <= tol if fixed is None else jnp.isfinite(left)
        good = {"q": x, "p": p, "n": carry["n"] + 1, "sweeps": carry["sweeps"] + k, "failed": ~ok}
        return {name: v if name == "failed" else jnp.where(ok, v, carry[name]) for name, v in good.items()}

    return types.SimpleNamespace(step=step, read=lambda c, k: c["q"], halted=lambda c, k: c["failed"])


def starts(links: int, count: int):
    rng = np.random.default_rng(0)
    lengths = np.array([1.0, np.sqrt(2.0)]) if links == 2 else np.full(links, np.sqrt(5.0))
    angles = rng.uniform(-1, 1, (count, links))
    rods = lengths[None, :, None] * np.stack([np.sin(angles), -np.cos(angles)], -1)
    q = np.cumsum(rods, 1).reshape(count, 2 * links)
    carry = {"q": q, "p": np.zeros_like(q), "n": np.zeros(count, np.int64), "sweeps": np.zeros(count, np.int32),
             "failed": np.zeros(count, bool)}  # fmt: skip
    return lengths**2, carry


def timed(runner, carry, consts, steps: int, repeats: int = 3) -> float:
    """Seconds of one call on data that is on the device already."""
    if hasattr(runner, "_compiled"):
        device = [jnp.asarray(a) for a in jax.tree.leaves(carry)]
        given = [jnp.asarray(a) for a in jax.tree.leaves(consts)]
        axes = (None,) * len(given)
        call = lambda: runner._compiled(device, given, np.int64(1), np.int64(steps), capacity=1, axes=axes)
    else:
        placed, shared = jax.tree.map(jnp.asarray, (carry, consts))
        call = lambda: runner.run(placed, shared, rows=1, every=steps)
    jax.block_until_ready(call())
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="agreement only")
    options = parser.parse_args()
    print(jax.__version__, jax.devices())
    consts = {"dt": np.float64(DT)}
    for links in (2, 10):
        lengths2, few = starts(links, 1000)
        one = jax.tree.map(lambda a: a[0], few)
        programs = {
            "until converged": kernels.lower(rattle(links, lengths2), one, consts),
            "two sweeps": kernels.lower(rattle(links, lengths2, fixed=2), one, consts),
        }
        program = programs["until converged"]
        print(f"chain of {links}: {program.operations} operations")
        results = {}
        for backend in ("cuda", "native"):
            try:
                start = time.perf_counter()
                results[backend] = kernels.build(program, backend).run(few, consts, rows=2, every=50)[0]
                print(f"  {backend}: compiled and run in {time.perf_counter() - start:.1f} s")
            except (ImportError, kernels.Unavailable) as error:
                print(f"  {backend}: not here ({error})")
        for name, result in results.items():
            result = jax.tree.map(np.asarray, result)
            difference = np.abs(result["q"] - np.asarray(results["cuda"]["q"])).max()
            sweeps, failed = result["sweeps"].mean() / 100, int(result["failed"].sum())
            print(f"  {name} and cuda differ by {difference:.1e}; {failed} failed, {sweeps:.2f} sweeps a step")
        if options.quick:
            continue
        for count in [n for n in (100_000, 1_000_000) if n <= options.largest]:
            _, carry = starts(links, count)
            for what, program in programs.items():
                seconds = timed(kernels.build(program, "cuda"), carry, consts, options.steps)
                cost = seconds / options.steps / count * 1e9
                print(f"  batch {count:>8}, {what:16} {cost:8.4f} ns per step of one trajectory")


if __name__ == "__main__":
    main()
