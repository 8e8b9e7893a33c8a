# %% [markdown]
# # Events, dense output and rows at given times
#
# When does the pendulum pass its lowest point, and how fast?
# %%
import jax.numpy as jnp
import numpy as np

import holonomix as hx

problem = hx.models.planar_pendulum()
lowest = hx.Event(lambda q, p: jnp.ravel(q)[0], direction=1)
sol = hx.simulate(problem, hx.Composition(hx.RATTLE(), order=8), dt=0.1, t1=30.0, events=[lowest], dense=True)
times = sol.events[0].t
print(sol.events[0])
print("periods", np.diff(times))
# %% [markdown]
# Between the steps, `sol.at` is as accurate as the method.
# %%
q, p = sol.at(np.linspace(0.0, 30.0, 7))
print(np.abs(np.sum(q.reshape(7, -1) ** 2, axis=1) - 1).max())
# %% [markdown]
# A terminal event ends the run, for instance at an impact.
# %%
wall = hx.Event(lambda q, p: jnp.ravel(q)[0] - 0.3, terminal=True, direction=1)
sol = hx.simulate(problem, hx.RATTLE(), dt=0.01, t1=30.0, events=[wall])
print(sol.status.name, sol.final_t, sol.final_q)
