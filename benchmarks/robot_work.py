"""Robots: the work for an error of 1e-6 in the end state of a free fall, beside MuJoCo.

python benchmarks/robot_work.py [--files FOLDER ...] [--only NAME ...] [--time 2] [--error 1e-6]

The robots of `robots.py` fall from the pose of their file, all joints at 0.3 rad/s, without limits, contacts and dry
friction. Steps are halved until the error is small enough. The error is the largest difference of a joint position from
that of `Composition(RATTLE(), order=8)`; MuJoCo's `RK4` with its shortest step confirms it. Work is the number of steps
times the processor time of one, interpolated between two steps on logarithmic scales.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path

from robots import REPEAT, ROBOTS, find, folders_of, least_difference, mujoco_model, problem_of

import holonomix as hx

METHODS = {
    "RATTLE()": hx.RATTLE(),
    "Composition(RATTLE(), order=4)": hx.Composition(hx.RATTLE(), order=4),
    "LineIntegral(order=4)": hx.LineIntegral(order=4),
    "LobattoIIIAB(3)": hx.LobattoIIIAB(3),
}
FIRST, MOST = 2.0**-7, 2**17  # the longest step, at which all methods converge, and the largest number of steps
REFERENCE = 2.0**-11

# the joint positions after a number of steps of a size, and seconds per step
End = Callable[[float, int], dict[str, float]]


def apart(a: dict[str, float], b: dict[str, float]) -> float:
    """The largest difference of joint positions, without whole turns."""
    return max(abs(math.remainder(a[name] - b[name], 2 * math.pi)) for name in a)


def work(end: End, cost: Callable[[float], float], exact: dict[str, float], time: float, goal: float) -> str:
    """The step, the number of steps and the seconds for the goal, as cells of a table."""
    before, dt = None, FIRST
    while True:
        steps = round(time / dt)
        try:
            error = apart(end(dt, steps), exact)
        except hx.errors.HolonomixError:
            error = math.inf
        if error <= goal or 2 * steps > MOST:
            break
        before, dt = (dt, error) if error < math.inf else None, dt / 2
    if before is not None and 0 < error < before[1]:  # the step at which a power law through both has the goal
        dt *= (goal / error) ** (math.log(before[0] / dt) / math.log(before[1] / error))
    elif error > goal:
        return f"error {error:.0e} with {steps} steps"
    each, steps = cost(dt), time / dt
    far = " (extrapolated)" if error > goal else ""
    return f"{dt:.1e}{far} | {steps:.0f} | {1e6 * each:.1f} us | {1e3 * each * steps:.1f} ms"


def ours(problem: hx.Problem, names: list[str], method: hx.AbstractMethod) -> tuple[End, Callable[[float], float]]:
    run = lambda dt, n: hx.simulate(problem, method, dt=dt, steps=n, save_every=n)

    def end(dt: float, n: int) -> dict[str, float]:
        sol = run(dt, n)
        return {name: float(sol.joint(name).angle[-1]) for name in names}

    return end, lambda dt: least_difference(lambda n: run(dt, n), 500)


def theirs(path: Path, names: list[str], integrator: str) -> tuple[End, Callable[[float], float]] | None:
    """The same for MuJoCo; None where it does not read the file."""
    model = mujoco_model(path, integrator)
    if model is None:
        return None
    import mujoco

    bits, data = mujoco.mjtDisableBit, mujoco.MjData(model)
    for bit in (bits.mjDSBL_LIMIT, bits.mjDSBL_CONTACT, bits.mjDSBL_FRICTIONLOSS, bits.mjDSBL_EQUALITY):
        model.opt.disableflags |= int(bit)

    def run(dt: float, n: int) -> None:
        mujoco.mj_resetData(model, data)
        model.opt.timestep, data.qvel[:] = dt, 0.3
        mujoco.mj_step(model, data, n)

    def end(dt: float, n: int) -> dict[str, float]:
        run(dt, n)
        return {name: float(data.qpos[model.joint(name).qposadr[0]]) for name in names}

    return end, lambda dt: least_difference(lambda n: run(dt, n), 5000)


def rows(name: str, path: Path, options: argparse.Namespace) -> Iterator[str]:
    problem = problem_of(name, path, ROBOTS[name][1])
    names = [joint.name for joint in hx.Mechanism.from_urdf(path, **ROBOTS[name][1]).joints if joint.kind == "revolute"]
    exact = ours(problem, names, hx.Composition(hx.RATTLE(), order=8))[0](REFERENCE, round(options.time / REFERENCE))
    peers = {x: theirs(path, names, x) for x in ("RK4", "IMPLICITFAST", "EULER")}
    if peers["RK4"] is not None:
        far = apart(peers["RK4"][0](2.0**-14, round(options.time * 2**14)), exact)
        yield f"{name}: MuJoCo's RK4 with a step of 6e-5 ends {far:.1e} from the reference"
    for title, method in METHODS.items():
        yield f"| {title} | {work(*ours(problem, names, method), exact, options.time, options.error)} |"
    for title, peer in peers.items():
        if peer is not None:
            yield f"| MuJoCo, `{title.lower()}` | {work(*peer, exact, options.time, options.error)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    parser.add_argument("--only", nargs="*", choices=[x for x in ROBOTS if ROBOTS[x][0]], default=["ur5", "panda"])
    parser.add_argument("--time", type=float, default=2.0)
    parser.add_argument("--error", type=float, default=1e-6)
    options = parser.parse_args()
    for name in options.only:
        path = find(ROBOTS[name][0], folders_of(options.files))
        if path is None:
            print(f"{name}: {ROBOTS[name][0]} is not installed")
            continue
        print(f"{name}, best of {REPEAT}\n| method | step | steps | time of a step | work |", flush=True)
        for row in rows(name, path, options):
            print(row, flush=True)


if __name__ == "__main__":
    main()
