# %% [markdown]
# # A mechanism from bodies and joints
#
# An arm of two links with a motor in its shoulder: joint angles, reaction forces, and a picture of the mechanism.
# %%
import numpy as np

import holonomix as hx

m = hx.Mechanism(gravity=(0, 0, -9.81))
crank = m.body("crank", mass=1.0, inertia=[0.01, 0.03, 0.03], position=(0.25, 0, 0))
rod = m.body("rod", mass=0.6, inertia=[0.01, 0.05, 0.05], position=(1.0, 0, 0))
shoulder = m.revolute("shoulder", m.ground, crank, at=(0, 0, 0), axis=(0, 1, 0))
elbow = m.revolute("elbow", crank, rod, at=(0.5, 0, 0), axis=(0, 1, 0))
m.motor(shoulder, lambda t, angle, rate: 2.0 - 0.3 * rate)
m
# %%
sol = hx.simulate(m.problem(dt=1e-3, t1=1.0), hx.RATTLE())
print("angles at the end", shoulder.angle(sol)[-1], elbow.angle(sol)[-1])
print("largest force in the elbow", np.linalg.norm(elbow.force(sol), axis=1).max())
print("constraints", sol.constraint_error().max())
# %%
sol.plot()
