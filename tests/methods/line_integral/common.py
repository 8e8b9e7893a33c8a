"""Starts and measurements that the tests of this family share."""

import functools

import jax.numpy as jnp
import numpy as np

import holonomix as hx


@functools.cache
def generic():
    """The modified pendulum after t = 0.7: a start with `lambda'(0) != 0`, as (problem, q, p)."""
    problem = hx.models.modified_pendulum()
    method = hx.Composition(hx.RATTLE(), order=8)
    sol = hx.simulate(problem, method, dt=0.7 / 140, steps=140, save_every=140)
    return problem, *hx.project(problem.system, sol.final_q, sol.final_p)


def run(problem, method, dt, steps, q=None, p=None, **options):
    q, p = (problem.q0 if q is None else q), (problem.p0 if p is None else p)
    return hx.simulate(problem.system, method, q, p, dt=dt, steps=steps, **options)


@functools.cache
def reference(t1: float):
    problem, q, p = generic()
    return run(problem, hx.Composition(hx.RATTLE(), order=10), t1 / 320, 320, q, p, save_every=320)


def orders(method, t1=1.0, meshes=(10, 20, 40), variable="z"):
    """Observed orders at t1 on the modified pendulum from the generic start; `variable` is q, p, z or multipliers."""
    problem, q, p = generic()
    exact = reference(t1)
    errors = []
    for n in meshes:
        sol = run(problem, method, t1 / n, n, q, p, save_every=n)
        if variable == "multipliers":
            errors.append(np.max(np.abs(sol.multipliers[-1] - exact.multipliers[-1])))
        else:
            parts = {"q": ("q",), "p": ("p",), "z": ("q", "p")}[variable]
            errors.append(max(np.max(np.abs(getattr(sol, k)[-1] - getattr(exact, k)[-1])) for k in parts))
    errors = np.asarray(errors)
    return np.log(errors[:-1] / errors[1:]) / np.log(np.asarray(meshes[1:]) / np.asarray(meshes[:-1])), errors


def exactness(sol):
    """Largest errors of energy, constraint and hidden constraint."""
    return (
        np.max(np.abs(sol.energy_error())),
        np.max(sol.constraint_error()),
        np.max(sol.hidden_constraint_error()),
    )


def one_step(problem, method, dt):
    """The step as a map of one flat vector (q, p)."""
    system, shape = problem.system.prepare(problem.q0), problem.q0.shape

    def flow(z):
        q, p = (x.reshape(shape) for x in jnp.split(z, 2))
        state = hx.State(q, p, jnp.asarray(0.0), 0)
        new, _, _ = method.step(system, state, jnp.asarray(dt), method.init(system, state, dt))
        return jnp.concatenate([new.q.reshape(-1), new.p.reshape(-1)])

    return flow
