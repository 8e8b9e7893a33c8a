"""Random programs through the kernel compiler and the driver, against eager evaluation.

Eager evaluation is the reference, op by op without `jit`: XLA on the CPU miscompiles an overlapping
`dynamic_update_slice` inside a jitted `scan`.
"""

import faulthandler
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from eager import evaluate
from evaluate import bits, program_of
from random_programs import Program, Spec, arguments, draw

import holonomix as hx
from holonomix import kernels

COUNT = 9  # trajectories: a whole group of eight lanes and one more
LONG = 40
HANG = 300  # seconds after which a program that does not end stops the tests, with a traceback


def traced(program: Program):
    """The program as a jaxpr, and as a function that need not be traced again."""
    closed = jax.make_jaxpr(program)(*program.inputs)
    return closed, lambda *args: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args)


def check(found, expected, program: Program, what: str) -> None:
    first = len(program.inputs)
    for k, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.shape == y.shape and x.dtype == y.dtype, f"{what}, value {first + k}: {x.dtype}{x.shape}\n{program}"
        bound = 3e-5 if any(s.dtype == np.float32 for s in expected) else 1e-9
        if x.dtype.kind == "f":
            np.testing.assert_allclose(x, y, bound, bound, err_msg=f"{what}, v{first + k}\n{program}")
        else:
            np.testing.assert_array_equal(x, y, err_msg=f"{what}, v{first + k}\n{program}")


def flat(seed: int) -> None:
    """Native against eager, and one lane against eight, for a program without loops over axes."""
    program = draw(seed)
    args = arguments(program, seed, COUNT)
    closed, fn = traced(program)
    lowered = program_of(fn, *(a[0] for a in args))
    rows = []
    for lanes in (1, 8):
        _, row = kernels.build(lowered, lanes=lanes, threads=1).run_batch(tuple(args), (), rows=1, every=0)
        rows.append([np.asarray(x)[:, 0] for x in row])
    for k in (0, COUNT - 1):
        check([x[k] for x in rows[1]], evaluate(closed, *(a[k] for a in args)), program, f"seed {seed}, arguments {k}")
    for k, (x, y) in enumerate(zip(*rows, strict=True)):
        assert bits(x) == bits(y), f"seed {seed}, output {k}: one lane and eight differ\n{program}"


def long(seed: int) -> None:
    """The same with loops over long axes; there the trajectories of a batch are one after the other."""
    program = draw(seed, LONG, 7)
    args = arguments(program, seed, 2)
    closed, fn = traced(program)
    loop = kernels.LoopFunctions(lambda c, k: c, lambda c, k: fn(*c), lambda c, k: False)
    lowered = kernels.lower(loop, tuple(a[0] for a in args), (), wide=True)
    _, row = kernels.build(lowered, threads=1).run_batch(tuple(args), (), rows=1, every=0)
    for k in range(2):
        found = [np.asarray(x)[k, 0] for x in row]
        check(found, evaluate(closed, *(a[k] for a in args)), program, f"seed {seed}, arguments {k}")


def driver(seed: int) -> None:
    """A potential and an observable through `simulate_ensemble`, with the back end that it chooses."""
    shape, dt, steps = (5,), 0.03, 3
    smooth = draw(seed, 5, 6, smooth=True, inputs=[Spec(shape, np.float64)])
    watched = draw(seed + 1, 5, 6, inputs=[Spec(shape, np.float64)] * 2)

    def potential(q):
        return 0.5 * jnp.sum(q * q) + sum(jnp.sum(jnp.tanh(v.astype(float))) for v in smooth(q) if v.dtype != bool)

    def observe(q, p):
        return {f"v{k}": v for k, v in enumerate(watched(q, p))}

    rng = np.random.default_rng(seed)
    q, p = rng.uniform(-1, 1, (2, COUNT, *shape))
    found = hx.simulate_ensemble(hx.System(potential), hx.StormerVerlet(), q, p, dt=dt, steps=steps, save_every=1,
                                 observe=lambda q, p: jnp.concatenate([jnp.ravel(v).astype(float) for v in
                                                                       watched(q, p)]))  # fmt: skip
    del observe
    for k in (0, COUNT - 1):
        x, y = jnp.asarray(q[k]), jnp.asarray(p[k])
        with jax.disable_jit():
            for _ in range(steps):
                y = y - dt / 2 * jax.grad(potential)(x)
                x = x + dt * y
                y = y - dt / 2 * jax.grad(potential)(x)
        np.testing.assert_allclose(found.q[k, -1], x, 1e-9, 1e-9, err_msg=f"seed {seed}\n{smooth}")
    return found


def explore(kind, seeds):
    """Run many; what the compiler cannot take is counted by reason."""
    refused: Counter[str] = Counter()
    for seed in seeds:
        faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            kind(seed)
        except kernels.Unsupported as reason:
            refused[reason.operation] += 1
        finally:
            faulthandler.cancel_dump_traceback_later()
    return refused
