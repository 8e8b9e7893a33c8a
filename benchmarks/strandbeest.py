"""A Strandbeest of twelve legs for a million steps: how well joints stay closed and energy is kept, beside MuJoCo.

python benchmarks/strandbeest.py [steps] [legs]

The same point masses and bars in both: in MuJoCo a bar is a tendon whose length is an equality constraint (MuJoCo's
constraints are soft; `solref` is set as stiff as its step allows). Errors are the largest relative change of a bar's
length and the drift of the energy, both over the whole run. Needs `pip install holonomix[robots]` for MuJoCo.
"""

import sys
import time

import numpy as np

import holonomix as hx
from holonomix.models.machines import JANSEN

KNOTS = ("knee", "hip", "back", "heel", "foot")


def ours(legs: int, steps: int, method, dt: float = 1e-3) -> dict[str, float]:
    m = hx.models.strandbeest(legs, mechanism=True)
    problem = m.problem()
    every = max(1, steps // 1000)
    sol = hx.simulate(problem, method, dt=dt, steps=steps, save_every=every)
    bars = m.joint_error(sol)
    relative = [bars[j.name].max() / (2 * JANSEN[j.name[0]] ** 2) for j in m.joints if j.kind == "distance"]
    energy = sol.energy_error() / sol.energy()[0]
    return {
        "bar error": max(relative),
        "energy error": float(np.abs(energy).max()),
        "energy drift": float(np.polyfit(sol.t, energy, 1)[0] * sol.t[-1]),
        "us per step": 1e6 * sol.stats["wall_time"] / steps,
        "turns": float(m["axle"].angle(sol)[-1] / (2 * np.pi)) if every * dt < 1 else float("nan"),
    }


def model(legs: int, dt: float) -> str:
    """The same machine as MuJoCo XML."""
    m = hx.models.strandbeest(legs, mechanism=True)
    sites = {"crank": [], "ground": []}
    tendons, equalities, bodies = [], [], []

    def site(body, point):
        name = "ground" if body.fixed else body.name
        if not body.fixed and body.name != "crank":
            return body.name
        sites[name].append([float(x) for x in point])
        return f"{name} {len(sites[name])}"

    for joint in m.joints:
        if joint.kind == "distance":
            ends = site(joint.a, joint.place.point_a), site(joint.b, joint.place.point_b)
            tendons.append(f'<spatial name="{joint.name}"><site site="{ends[0]}"/><site site="{ends[1]}"/></spatial>')
            equalities.append(f'<tendon tendon1="{joint.name}" solref="{2 * dt} 1" solimp="0.9999 0.9999 0.001"/>')
    for body in m.bodies[1:]:
        x, z = map(float, body.origin)
        bodies.append(
            f'<body name="{body.name}" pos="{x!r} 0 {z!r}"><joint type="slide" axis="1 0 0"/>'
            f'<joint type="slide" axis="0 0 1"/><geom size="0.01" mass="{body.mass!r}" contype="0" conaffinity="0"/>'
            f'<site name="{body.name}"/></body>'
        )
    pins = "".join(f'<site name="crank {k + 1}" pos="{x!r} 0 {z!r}"/>' for k, (x, z) in enumerate(sites["crank"]))
    fixed = "".join(f'<site name="ground {k + 1}" pos="{x!r} 0 {z!r}"/>' for k, (x, z) in enumerate(sites["ground"]))
    inertia = " ".join([repr(float(m["crank"].inertia.directors[0]))] * 3)
    crank = (
        f'<body name="crank"><joint name="axle" type="hinge" axis="0 -1 0"/>'
        f'<inertial pos="0 0 0" mass="{m["crank"].mass!r}" diaginertia="{inertia}"/>{pins}</body>'
    )
    return (
        f'<mujoco><option gravity="0 0 0" timestep="{dt}" integrator="RK4" iterations="100" tolerance="1e-15"/>'
        f"<worldbody>{fixed}{crank}{''.join(bodies)}</worldbody><tendon>{''.join(tendons)}</tendon>"
        f"<equality>{''.join(equalities)}</equality></mujoco>"
    )


def mujocos(legs: int, steps: int, dt: float = 1e-3) -> dict[str, float] | None:
    try:
        import mujoco
    except ImportError:
        print("MuJoCo is not installed: pip install holonomix[robots]")
        return None
    machine = mujoco.MjModel.from_xml_string(model(legs, dt))
    data = mujoco.MjData(machine)
    problem = hx.models.strandbeest(legs, mechanism=True)
    start = problem.problem()
    velocity = np.asarray(start.system.prepare(start.q0).velocity(start.q0, start.p0))
    data.qvel[0] = velocity[1, 1]  # the crank starts at angle zero
    data.qvel[1:] = velocity[2:].reshape(-1)
    mujoco.mj_forward(machine, data)
    lengths, mass = data.ten_length.copy(), np.zeros((machine.nv, machine.nv))
    energies, worst = [], 0.0
    began = time.perf_counter()
    for k in range(steps):
        mujoco.mj_step(machine, data)
        if k % max(1, steps // 1000) == 0:
            worst = max(worst, float(np.abs(data.ten_length / lengths - 1).max()))
            mujoco.mj_fullM(machine, mass, data.qM)
            energies.append(0.5 * data.qvel @ mass @ data.qvel)
    taken = time.perf_counter() - began
    energy = np.asarray(energies) / energies[0] - 1
    return {
        "bar error": worst,
        "energy error": float(np.abs(energy).max()),
        "energy drift": float(np.polyfit(np.arange(len(energy)), energy, 1)[0] * len(energy)),
        "us per step": 1e6 * taken / steps,
        "turns": float(data.qpos[0] / (2 * np.pi)),
    }


def main(steps: float = 1e6, legs: int = 12) -> None:
    steps, legs = int(float(steps)), int(legs)
    runs = {
        "holonomix RATTLE": lambda: ours(legs, steps, hx.RATTLE()),
        "MuJoCo RK4": lambda: mujocos(legs, steps),
        "holonomix LineIntegral(order=4)": lambda: ours(legs, max(1, steps // 100), hx.LineIntegral(order=4)),
    }
    for name, make in runs.items():
        found = make()
        if found is not None:
            print(f"{name:34s} " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
