# %% [markdown]
# # Ten thousand runs of your own system
#
# This example simulates a system of your own with ten thousand sets of parameters. It computes statistics inside the
# loop, resumes a killed run, and shows the results with xarray and as a map.
#
# The system is a bead on a hoop that rotates about the vertical. Above a critical speed the bottom is unstable. The
# parameters are a dictionary, which functions take as their second argument.
# %%
import jax.numpy as jnp
import numpy as np

import holonomix as hx


def potential(q, params):  # gravity, and the centrifugal force of the turning hoop
    return params["gravity"] * q[1] - 0.5 * params["speed"] ** 2 * q[0] ** 2


hoop = hx.System(
    potential,
    lambda q, params: jnp.array([q @ q - params["radius"] ** 2]),
    params={"gravity": 9.81, "speed": 0.0, "radius": 1.0},
)
angle = 0.02
q0, p0 = np.array([np.sin(angle), -np.cos(angle)]), np.zeros(2)
# %% [markdown]
# Arrays in `params=` have a leading axis over trajectories. The radius is left out, so all trajectories share it. They
# also share the start, because it is a single state.
# %%
speed, gravity = (x.ravel() for x in np.meshgrid(np.linspace(0.0, 8.0, 100), np.linspace(2.0, 20.0, 100)))
options = {
    "params": {"speed": speed, "gravity": gravity},
    "dt": 0.01,
    "steps": 1000,
    "reduce": {
        "swing": hx.reductions.Maximum(lambda q, p: jnp.abs(q[0])),
        "height": hx.reductions.Mean(lambda q, p: q[1]),
    },
    "coordinates": {"speed": speed, "gravity": gravity},
}
ens = hx.simulate_ensemble(hoop, hx.RATTLE(), q0, p0, **options)
print(ens)
print(f"{np.mean(ens.reduced['swing'] > 0.1):.1%} leave the bottom")
# %% [markdown]
# The bottom is unstable for speed^2 > gravity / radius. The data use the names from above:
# %%
data = ens.to_xarray()
leave = data.reduced_swing > 0.1
print(dict(data.sizes), list(data.coords))
print("wrong side of the line:", int((leave != (data.speed**2 > data.gravity)).sum()), "of", len(ens))
print(data.reduced_height.groupby_bins("speed", [0, 2, 4, 6, 8]).mean().values.round(3))
# %% [markdown]
# With `store=`, the same call writes blocks of trajectories to a directory. Here an executor is killed after three of
# ten blocks, like a job at its time limit. The same call then computes the remaining blocks. The result is bitwise
# identical to an uninterrupted run.
# %%
from concurrent.futures import Future


class Killed:  # runs three blocks and dies
    left = 3

    def submit(self, task, *arguments, **named):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        done = Future()
        done.set_result(task(*arguments, **named))
        return done


try:
    hx.simulate_ensemble(hoop, hx.RATTLE(), q0, p0, **options, store="hoops", block=1000, executor=Killed())
except KeyboardInterrupt:
    print("killed")
again = hx.simulate_ensemble(hoop, hx.RATTLE(), q0, p0, **options, store="hoops", block=1000)
print("same bits:", np.array_equal(again.final_q, ens.final_q))
# %% [markdown]
# This is the map. `ens.view()` or `holonomix view hoops` shows it as a page.
# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 4))
shown = axes.pcolormesh(
    speed.reshape(100, 100), gravity.reshape(100, 100), again.reduced["swing"].reshape(100, 100), rasterized=True
)
axes.plot(speed[:100], speed[:100] ** 2, "w--", linewidth=1)
axes.set(xlabel="speed of the hoop", ylabel="gravity", ylim=(2, 20))
figure.colorbar(shown, label="largest |x|")
plt.close(figure)
figure
