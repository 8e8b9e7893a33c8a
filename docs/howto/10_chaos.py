# %% [markdown]
# # Phase portrait, section and spectrum
#
# The same pendulum with regular and with chaotic motion.
# %%
import holonomix as hx

calm = hx.simulate(hx.models.double_pendulum(angles=(0.2, 0.1)), hx.RATTLE(), dt=0.02, t1=2000.0)
wild = hx.simulate(hx.models.double_pendulum(angles=(2.0, 2.5)), hx.RATTLE(), dt=0.02, t1=2000.0)
hx.plotting.poincare(calm, section=0, level=0.0, show=2)
# %%
hx.plotting.poincare(wild, section=0, level=0.0, show=2)
# %% [markdown]
# A few sharp lines and a broad band:
# %%
hx.plotting.spectrum(calm, entry=2)
# %%
hx.plotting.spectrum(wild, entry=2)
# %% [markdown]
# The energy error is bounded in both cases.
# %%
hx.plotting.invariants(wild)
