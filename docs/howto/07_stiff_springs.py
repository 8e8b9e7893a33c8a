# %% [markdown]
# # Stiff springs: resolved, as constraints, or with long steps
#
# A double pendulum whose rods are springs. With an explicit method the springs limit the step; a constrained
# method follows the limit; linearly implicit methods take steps beyond the period of the springs.
# %%
import numpy as np

import holonomix as hx

rigid = hx.models.double_pendulum()
stiff = rigid.system.penalized(omega=200.0)
fine = hx.simulate(stiff, hx.StormerVerlet(), rigid.q0, rigid.p0, dt=5e-4, t1=4.0)
runs = {
    "Verlet, dt = 0.0005": fine,
    "RATTLE on rigid rods, dt = 0.02": hx.simulate(rigid, hx.RATTLE(), dt=0.02, t1=4.0),
    "ZhangSkeel, dt = 0.02": hx.simulate(stiff, hx.ZhangSkeel(beta=0.4), rigid.q0, rigid.p0, dt=0.02, t1=4.0),
}
for name, sol in runs.items():
    print(f"{name:34} {sol.stats['steps']:6} steps, end {np.round(np.ravel(sol.final_q), 3)}")
# %% [markdown]
# Here the springs start at rest, so rigid rods are the correct limit. Oscillating springs have another limit: see the
# page on stiff limits.
# %%
hx.plotting.spectrum(fine, entry=0)
