# %% [markdown]
# # Ensembles and maps
#
# 1 600 double pendula are released at rest from every pair of angles. The highest point of the lower mass is computed
# inside the loop, so no rows have to be stored.
# %%
import matplotlib.pyplot as plt
import numpy as np

import holonomix as hx

angles = np.linspace(-3.0, 3.0, 40)
a, b = map(np.ravel, np.meshgrid(angles, angles))
first = np.stack([np.sin(a), -np.cos(a)], axis=1)
q0 = np.stack([first, first + np.stack([np.sin(b), -np.cos(b)], axis=1)], axis=1)

problem = hx.models.double_pendulum(lengths=(1.0, 1.0))
ens = hx.simulate_ensemble(
    problem,
    hx.RATTLE(),
    q0,
    np.zeros_like(q0),
    dt=0.02,
    steps=1000,
    reduce={"top": hx.reductions.Maximum(lambda q, p: q[1, 1])},
    coordinates={"angle 1": a, "angle 2": b},
)
print(ens)
# %%
figure, axes = plt.subplots(figsize=(5, 4))
shown = axes.pcolormesh(angles, angles, ens.reduced["top"].reshape(40, 40))
axes.set(xlabel="angle 1", ylabel="angle 2")
figure.colorbar(shown, label="highest point of the lower mass")
plt.close(figure)
figure
# %% [markdown]
# `ens.view()` shows the map as a page; with `save_every` it also animates the trajectories.
# %%
ens.view("map.html")
