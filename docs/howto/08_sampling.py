# %% [markdown]
# # Sample a density on a manifold
#
# A von Mises-Fisher density on the sphere, with constrained Langevin dynamics and with Metropolis-corrected HMC.
# %%
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

kappa = 3.0
system = hx.System(lambda q: -kappa * q[2], constraint=lambda q: jnp.array([q @ q - 1.0]))
exact = 1 / np.tanh(kappa) - 1 / kappa  # the mean of z
q0, p0 = jnp.array([0.0, 0.0, 1.0]), jnp.zeros(3)
# %%
langevin = hx.GLA(hx.RATTLE(), friction=2.0, temperature=1.0)
sol = hx.simulate(system, langevin, q0, p0, dt=0.1, steps=40_000, save_every=4, key=jax.random.key(0))
print("Langevin", sol.q[:, 2].mean(), "exact", exact)
# %%
hmc = hx.ConstrainedHMC(inner_steps=10, temperature=1.0)
sol = hx.simulate(system, hmc, q0, p0, dt=0.2, steps=8000, key=jax.random.key(1))
print("HMC", sol.q[:, 2].mean(), "exact", exact, "distance to the sphere", sol.constraint_error().max())
