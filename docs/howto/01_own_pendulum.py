# %% [markdown]
# # Your own pendulum
#
# Two masses on two rods: run it, plot it, write a page, and certify the method.
# %%
import jax.numpy as jnp

import holonomix as hx

masses = jnp.array([0.3, 1.2])
system = hx.System(
    potential=lambda q: 9.81 * jnp.sum(masses * q[:, 1]),
    constraint=hx.Distance([[-1, 0], [0, 1]], [0.5, 0.8], name=["upper rod", "lower rod"]),
    mass=masses[:, None],  # one mass per particle
)
# %% [markdown]
# Start with a rough guess; `project` finds the nearest consistent state.
# %%
q0, p0 = hx.project(system, [[0.5, 0.0], [1.2, 0.3]], [[0.0, 0.0], [0.0, 0.1]])
problem = hx.Problem(system, q0, p0, dt=0.002, t1=10.0, name="my pendulum")
sol = hx.simulate(problem, hx.RATTLE())
print(sol)
sol.plot()
# %% [markdown]
# The tension of a rod is the magnitude of its constraint force.
# %%
forces = sol.constraint_forces()
print({name: float(jnp.linalg.norm(f[:, -1], axis=-1).max().round(2)) for name, f in forces.items()})
hx.plotting.multipliers(sol)
# %% [markdown]
# Measure the declared properties of RATTLE on this problem.
# %%
certificate = hx.certify(problem, hx.RATTLE())
print(certificate)
sol.view("pendulum.html", certificate=certificate)  # a page that you can open, or send
