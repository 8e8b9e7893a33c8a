"""Random programs through the kernel compiler and the driver, against eager evaluation.

Eager evaluation is the reference, op by op without `jit`: XLA on the CPU miscompiles an overlapping
`dynamic_update_slice` inside a jitted `scan`.
"""

import faulthandler
import warnings
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_arrays  # noqa: F401  (these register their statements)
import random_elements  # noqa: F401
import random_flow  # noqa: F401
from eager import evaluate
from evaluate import Functions, bits, program_of
from random_programs import Program, Spec, arguments, draw

import holonomix as hx
from holonomix import compiler as kernels

COUNT = 9  # trajectories: a whole group of eight lanes and one more
LONG = 40
SURE = 1e-3  # a result that round-off moves by more than this is not compared
HANG = 300  # seconds after which a program that does not end stops the tests, with a traceback


def traced(program: Program):
    """The program as a jaxpr, and as a function that need not be traced again."""
    closed = jax.make_jaxpr(program)(*program.inputs)
    return closed, lambda *args: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args)


class IllConditioned(Exception):
    """Round-off decides what a program gives, so nothing can be said about it."""


def bounds(closed, args, expected) -> list[float]:
    """By how much each result moves when every operation is wrong by up to 512 units in the last place."""
    most = [0.0 for _ in expected]
    for seed in range(3):
        noisy = evaluate(closed, *args, noise=np.random.default_rng(seed))
        for k, (x, y) in enumerate(zip(noisy, expected, strict=True)):
            if x.dtype.kind != "f":
                most[k] = np.inf if np.any(x != y) else most[k]
            else:
                apart = np.abs(np.subtract(x, y, dtype=float))
                lost = ~np.isfinite(apart) & ~((x == y) | (np.isnan(x) & np.isnan(y)))
                most[k] = max(most[k], np.inf if lost.any() else float(np.nanmax(apart, initial=0.0)))
    return most


def check(found, closed, args, program: Program, what: str) -> None:
    """Compare with eager evaluation; where the bound does not hold, the measured effect of round-off must."""
    expected = [np.asarray(y) for y in evaluate(closed, *args)]
    first = len(program.inputs)
    bound = 3e-5 if any(y.dtype == np.float32 for y in expected) else 1e-9
    wide = None
    for k, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.shape == y.shape and x.dtype == y.dtype, f"{what}, value {first + k}: {x.dtype}{x.shape}\n{program}"
        real = y.dtype.kind == "f"
        if np.allclose(x, y, bound, bound, equal_nan=True) if real else (x == y).all():
            continue
        wide = wide or bounds(closed, args, expected)
        if wide[k] > SURE:
            raise IllConditioned(f"value {first + k} moves by {wide[k]:g} when operations are wrong by 512 ulp")
        np.testing.assert_allclose(x, y, bound, bound + wide[k], err_msg=f"{what}, v{first + k}\n{program}")


def flat(seed: int) -> None:
    """Native against eager, and one lane against eight, for a program without loops over axes."""
    program = draw(seed)
    args = arguments(program, seed, COUNT)
    closed, fn = traced(program)
    lowered = program_of(fn, *(a[0] for a in args))
    rows = []
    for lanes in (1, 8):
        _, row = kernels.build(lowered, lanes=lanes, threads=1).run(tuple(args), (), rows=1, every=0)
        rows.append([np.asarray(x)[:, 0] for x in row])
    for k in (0, COUNT - 1):
        check([x[k] for x in rows[1]], closed, [a[k] for a in args], program, f"seed {seed}, arguments {k}")
    for k, (x, y) in enumerate(zip(*rows, strict=True)):
        assert bits(x) == bits(y), f"seed {seed}, output {k}: one lane and eight differ\n{program}"


def long(seed: int) -> None:
    """The same with loops over long axes; there the trajectories of a batch are one after the other."""
    program = draw(seed, LONG, 7)
    args = arguments(program, seed, 2)
    closed, fn = traced(program)
    loop = Functions(lambda c, k: c, lambda c, k: fn(*c), lambda c, k: False)
    lowered = kernels.lower(loop, tuple(a[0] for a in args), (), wide=True)
    _, row = kernels.build(lowered, threads=1).run(tuple(args), (), rows=1, every=0)
    for k in range(2):
        found = [np.asarray(x)[k, 0] for x in row]
        check(found, closed, [a[k] for a in args], program, f"seed {seed}, arguments {k}")


def driver(seed: int) -> str:
    """A potential and an observable through `simulate_ensemble`; the back end that it chooses."""
    shape, dt, steps = (5,), 0.03, 3
    smooth = draw(seed, 5, 5, smooth=True, inputs=[Spec(shape, np.float64)])
    watched = draw(seed + 1, 5, 5, inputs=[Spec(shape, np.float64)] * 2)

    def potential(q):
        return 0.5 * jnp.sum(q * q) + sum(jnp.sum(jnp.tanh(v)) for v in smooth(q) if v.dtype == float)

    def observe(q, p):
        return jnp.concatenate([jnp.ravel(v).astype(float) for v in watched(q, p)])

    q, p = np.random.default_rng(seed).uniform(-1, 1, (2, COUNT, *shape))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a defect of the kernel compiler is one
        found = hx.simulate_ensemble(
            hx.System(potential), hx.StormerVerlet(), q, p, dt=dt, steps=steps, save_every=1, observe=observe
        )
    slope = jax.make_jaxpr(jax.grad(potential))(q[0])
    seen = jax.make_jaxpr(observe)(q[0], p[0])
    for k in (0, COUNT - 1):
        x, y = q[k], p[k]
        for _ in range(steps):
            y = y - dt / 2 * np.asarray(evaluate(slope, x)[0])
            x = x + dt * y
            y = y - dt / 2 * np.asarray(evaluate(slope, x)[0])
        np.testing.assert_allclose(found.q[k, -1], x, 1e-9, 1e-9, err_msg=f"potential, seed {seed}\n{smooth}")
        (expected,) = evaluate(seen, np.asarray(found.q[k, -1]), np.asarray(found.p[k, -1]))
        value = np.asarray(found.observables["observe"] if isinstance(found.observables, dict) else found.observables)
        bound = 3e-5 if any(s.dtype == np.float32 for s in jax.eval_shape(watched, *watched.inputs)) else 1e-9
        np.testing.assert_allclose(value[k, -1], expected, bound, bound, err_msg=f"seed {seed}\n{watched}")
    return found.stats["backend"]


def explore(kind, seeds) -> Counter[str]:
    """Run many programs; those that the compiler cannot take are counted by reason."""
    refused: Counter[str] = Counter()
    for seed in seeds:
        faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            if kind(seed) == "array":
                refused["array"] += 1
        except kernels.Unsupported as reason:
            refused[reason.operation] += 1
        except IllConditioned:
            refused["ill-conditioned"] += 1
        finally:
            faulthandler.cancel_dump_traceback_later()
    return refused


KINDS = {"flat": (flat, 0.2), "long": (long, 0.4), "driver": (driver, 0.3)}  # and the part that may be refused


@pytest.mark.parametrize(("kind", "count"), [("flat", 6), ("long", 4), ("driver", 1)])
def test_random_programs(kind, count):
    run, most = KINDS[kind]
    refused = explore(run, range(count))
    assert count == 1 or sum(refused.values()) <= most * count, refused  # which one is taken depends on JAX's version


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize(("kind", "count"), [("flat", 60), ("long", 24), ("driver", 4)])
def test_many_random_programs(kind, count, part):
    run, most = KINDS[kind]
    refused = explore(run, range(1000 + count * part, 1000 + count * (part + 1)))
    assert sum(refused.values()) <= most * count, refused
    assert refused["ill-conditioned"] <= 0.03 * count
