# %% [markdown]
# # Which method is best for my problem?
#
# `hx.compare` runs several methods with several step sizes, and measures their errors and costs.
# %%
import holonomix as hx

problem = hx.models.double_pendulum()
result = hx.compare(
    problem,
    {
        "RK4": hx.RK4(),
        "RATTLE": hx.RATTLE(),
        "order 4": hx.Composition(hx.RATTLE(), order=4),
        "order 8": hx.Composition(hx.RATTLE(), order=8),
    },
    t1=5.0,
    levels=4,
)
result.plot()
# %% [markdown]
# The energy drift in a long run, and the cheapest method for each error (times depend on the machine):
# %%
for curve in result.curves:
    print(f"{curve.name:8} energy drift over t = {result.long:g}: {curve.drift:.1e}")
print({f"1e{k}": name for k, name in result.cheapest.items()})
