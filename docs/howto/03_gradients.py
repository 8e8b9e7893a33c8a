# %% [markdown]
# # Fit a rod length through a simulation
#
# `hx.integrate` is pure, so JAX can differentiate it. Here the lengths of a double pendulum are fitted to the observed
# position of its lower mass after one second.
# %%
import jax
import jax.numpy as jnp

import holonomix as hx


def final_position(lengths):
    system = hx.System(
        lambda q, lengths: 9.81 * jnp.sum(q[:, 1]),
        hx.Distance([[-1, 0], [0, 1]], lambda lengths: lengths),
        params=lengths,
    )
    q0 = jnp.stack([jnp.array([lengths[0], 0.0]), jnp.array([lengths[0] + lengths[1], 0.0])])
    q, p = hx.integrate(system, hx.RATTLE(), q0, jnp.zeros((2, 2)), dt=0.005, steps=100)
    return q[1]


seen = final_position(jnp.array([1.0, 0.7]))
# %% [markdown]
# Gauss-Newton with the Jacobian of the simulation.
# %%
lengths = jnp.array([0.9, 0.8])
jacobian = jax.jit(jax.jacfwd(final_position))
for k in range(8):
    error = final_position(lengths) - seen
    lengths = lengths - jnp.linalg.solve(jacobian(lengths), error)
    print(k, lengths, float(jnp.abs(error).max()))
