# %% [markdown]
# # Sections, spectra and Lyapunov exponents
#
# The same pendulum with regular and with chaotic motion.
# %%
import holonomix as hx

calm = hx.simulate(hx.models.double_pendulum(angles=(0.2, 0.1)), hx.RATTLE(), dt=0.02, t1=2000.0)
wild = hx.simulate(hx.models.double_pendulum(angles=(2.0, 2.5)), hx.RATTLE(), dt=0.02, t1=2000.0)
hx.plotting.poincare(calm, "angle 1", 0.0, "angle 2")
# %%
hx.plotting.poincare(wild, "angle 1", 0.0, "angle 2")
# %% [markdown]
# A few sharp lines and a broad band:
# %%
hx.plotting.spectrum(calm, "angle 2")
# %%
hx.plotting.spectrum(wild, "angle 2")
# %% [markdown]
# The largest Lyapunov exponent is the mean rate at which neighboring trajectories diverge. For the regular motion, its
# error bar contains zero.
# %%
for angles in ((0.2, 0.1), (2.0, 2.5)):
    print(hx.lyapunov(hx.models.double_pendulum(angles=angles), hx.RATTLE(), dt=0.02, t1=500.0))
# %% [markdown]
# The energy error is bounded in both cases.
# %%
hx.plotting.invariants(wild)
