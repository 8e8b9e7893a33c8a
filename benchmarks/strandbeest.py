"""A Strandbeest of twelve legs for a million steps: how well joints stay closed and energy is kept, beside MuJoCo.

python benchmarks/strandbeest.py [steps] [legs]

The same point masses and bars in both: in MuJoCo a bar is a tendon whose length is an equality constraint (MuJoCo's
constraints are soft; `solref` is set as stiff as its step allows). The first table has the largest relative change of a
bar's length, and the energy error over the whole run and over its first and last tenth. The second has the error of the
crank angle after four seconds for several steps: without gravity the crank turns as `I(angle) rate^2 = 2 E` says, with
I from circles that meet, so the exact angle is known to 1e-11. Times are processor seconds of this process, compiling
excluded. Needs `pip install holonomix[robots]` for MuJoCo.
"""

import sys
import time

import numpy as np
from scipy.integrate import solve_ivp

import holonomix as hx
from holonomix.build.models.machines import JANSEN, jansen_points

ROWS = 500  # at which errors are measured
INTEGRATORS = ("RK4", "implicitfast")


def summary(energy: np.ndarray, bars: float, seconds: float, steps: int) -> str:
    energy = np.abs(energy / energy[0] - 1)
    tenth = max(1, len(energy) // 10)
    return (
        f"bar error {bars:.2g}, energy error {energy.max():.2g} (first tenth {energy[:tenth].max():.2g}, "
        f"last tenth {energy[-tenth:].max():.2g}), {1e6 * seconds / steps:.0f} us per step"
    )


def ours(m: hx.Mechanism, steps: int, method: hx.methods.AbstractMethod, dt: float) -> tuple[hx.Solution, float]:
    """A solution with `ROWS` rows, and its processor seconds; a short run with as many rows compiles first."""
    problem = m.problem()
    rows = min(steps, ROWS)
    run = lambda every: hx.simulate(problem, method, dt=dt, steps=rows * every, save_every=every)
    run(1)
    began = time.process_time()
    sol = run(steps // rows)
    return sol, time.process_time() - began


def bar_error(m: hx.Mechanism, sol: hx.Solution) -> float:
    bars = m.joint_error(sol)
    # a row is the squared distance, less the squared length
    return max(bars[j.name].max() / (2 * JANSEN[j.name[0]] ** 2) for j in m.joints if j.kind == "distance")


def model(m: hx.Mechanism, dt: float, integrator: str) -> str:
    """The same machine as MuJoCo XML."""
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
        f'<mujoco><option gravity="0 0 0" timestep="{dt}" integrator="{integrator}" iterations="100" '
        f'tolerance="1e-15"/>'
        f"<worldbody>{fixed}{crank}{''.join(bodies)}</worldbody><tendon>{''.join(tendons)}</tendon>"
        f"<equality>{''.join(equalities)}</equality></mujoco>"
    )


class MuJoCo:
    """The machine in MuJoCo, started with the same velocities."""

    def __init__(self, m: hx.Mechanism, dt: float, integrator: str):
        import mujoco

        self.lib = mujoco
        self.model = mujoco.MjModel.from_xml_string(model(m, dt, integrator))
        self.data = mujoco.MjData(self.model)
        start = m.problem()
        velocity = np.asarray(start.system.prepare(start.q0).velocity(start.q0, start.p0))
        self.data.qvel[0] = velocity[1, 1]  # the crank starts at angle zero
        self.data.qvel[1:] = velocity[2:].reshape(-1)
        mujoco.mj_forward(self.model, self.data)
        self.mass = np.zeros((self.model.nv, self.model.nv))
        mujoco.mj_fullM(self.model, self.mass, self.data.qM)  # constant: slides, and a hinge to the ground
        self.lengths = self.data.ten_length.copy()

    def run(self, steps: int) -> tuple[np.ndarray, float, float]:
        """Energies at `ROWS` times, the largest bar error at them, and processor seconds."""
        lib, data = self.lib, self.data
        every, worst = max(1, steps // ROWS), 0.0
        energies = [0.5 * data.qvel @ self.mass @ data.qvel]
        began = time.process_time()
        for k in range(1, steps + 1):
            lib.mj_step(self.model, data)
            if k % every == 0:
                lib.mj_fwdPosition(self.model, data)
                worst = max(worst, float(np.abs(data.ten_length / self.lengths - 1).max()))
                energies.append(0.5 * data.qvel @ self.mass @ data.qvel)
        return np.asarray(energies), worst, time.process_time() - began


def exact_angle(legs: int, energy: float, t: float) -> float:
    """The angle of the crank from its reduced inertia, a Fourier series, and the energy."""
    grid = 2 * np.pi * np.arange(512) / 512
    m = hx.models.strandbeest(legs, mechanism=True)
    pins = [m[f"j {k + 1}" if legs > 1 else "j"].place.point_a for k in range(legs)]
    inertia = np.full(512, 4 * JANSEN["m"] ** 2)
    for k, pin in enumerate(pins):
        phase, mirror = np.arctan2(pin[1], pin[0]), 1.0 if k % 2 == 0 else -1.0
        circle = JANSEN["m"] * np.stack([np.cos(grid + phase), np.sin(grid + phase)], 1)
        knots = np.array([list(jansen_points(x, mirror).values()) for x in circle])
        waves = 1j * np.fft.fftfreq(512, 1 / 512)
        slopes = np.fft.ifft(waves[:, None, None] * np.fft.fft(knots, axis=0), axis=0).real
        inertia += (slopes**2).sum((1, 2))
    series = np.fft.rfft(inertia) / 512
    orders = np.arange(len(series))
    value = lambda a: 2 * (series * np.exp(1j * orders * a)).sum().real - series[0].real
    rate = lambda _, y: [np.sqrt(2 * energy / value(y[0]))]
    return solve_ivp(rate, (0, t), [0.0], rtol=1e-13, atol=1e-13, method="DOP853").y[0, -1]


def long_runs(m: hx.Mechanism, steps: int, with_mujoco: bool) -> None:
    print(f"{m.name}, {steps} steps of 1e-3 s")
    for method in (hx.RATTLE(), hx.LineIntegral(order=4)):
        sol, seconds = ours(m, steps, method, 1e-3)
        print(f"{method.name:24s} {summary(sol.energy(), bar_error(m, sol), seconds, steps)}", flush=True)
    for integrator in INTEGRATORS if with_mujoco else ():
        text = summary(*MuJoCo(m, 1e-3, integrator).run(steps), steps)
        print(f"{f'MuJoCo {integrator}':24s} {text}", flush=True)


def equal_accuracy(m: hx.Mechanism, legs: int, with_mujoco: bool, t: float = 4.0) -> None:
    start = m.problem()
    exact = exact_angle(legs, float(start.system.prepare(start.q0).hamiltonian(start.q0, start.p0)), t)
    print(f"angle of the crank after {t:g} s ({exact:.12f}), for several steps")
    for method, sizes in ((hx.RATTLE(), (4e-3, 1e-3, 2.5e-4)), (hx.LineIntegral(order=4), (8e-3, 4e-3, 2e-3))):
        for dt in sizes:
            sol, seconds = ours(m, round(t / dt), method, dt)
            off = abs(m["axle"].angle(sol)[-1] - exact)
            print(
                f"{method.name:24s} dt {dt:.2e}: angle {off:.1e}, bars {bar_error(m, sol):.1e}, {seconds:.2f} s",
                flush=True,
            )
    for integrator in INTEGRATORS if with_mujoco else ():
        for dt in (1e-3, 5e-4, 2.5e-4, 1.25e-4):
            theirs = MuJoCo(m, dt, integrator)
            _, bars, seconds = theirs.run(round(t / dt))
            off, label = abs(theirs.data.qpos[0] - exact), f"MuJoCo {integrator}"
            print(f"{label:24s} dt {dt:.2e}: angle {off:.1e}, bars {bars:.1e}, {seconds:.2f} s", flush=True)


def main(steps: str = "1e6", legs: str = "12") -> None:
    m = hx.models.strandbeest(int(legs), mechanism=True)
    try:
        import mujoco  # noqa: F401
    except ImportError:
        print("MuJoCo is not installed: pip install holonomix[robots]")
        found = False
    else:
        found = True
    equal_accuracy(m, int(legs), found)
    long_runs(m, int(float(steps)), found)


if __name__ == "__main__":
    main(*sys.argv[1:])
