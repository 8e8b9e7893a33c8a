# %% [markdown]
# # Which method is best for my problem?
#
# `hx.compare` runs several methods over a ladder of steps against a fine reference and times their steps.
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
# The energy after a long run, and the cheapest method for each error (the times are those of the machine it ran on):
# %%
for curve in result.curves:
    print(f"{curve.name:8} energy drift over t = {result.long:g}: {curve.drift:.1e}")
print({f"1e{k}": name for k, name in result.cheapest.items()})
