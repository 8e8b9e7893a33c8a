# %% [markdown]
# # Long runs: store, stop and resume
#
# Rows go to a Zarr directory; the same call continues after a kill.
# %%
import xarray

import holonomix as hx

problem = hx.models.double_pendulum()
options = {"dt": 0.05, "save_every": 100, "store": "run1"}
sol = hx.simulate(problem, hx.RATTLE(), steps=20_000, **options)
print(sol)
# %% [markdown]
# A call with more steps continues from the last checkpoint; no step is computed twice.
# %%
sol = hx.simulate(problem, hx.RATTLE(), steps=40_000, **options)
print(sol, float(abs(sol.energy_error()).max()))
# %%
data = xarray.open_zarr("run1")
print(dict(data.sizes), float(data.q[-1, 1, 1]))
# %% [markdown]
# Rows for other programs: `.csv`, `.npz`, or `.xyz` for ASE and OVITO. `holonomix view run1` shows the run.
# %%
sol.save("run1.csv", every=10)
