"""Robots: processor time per RATTLE step and to the first step, beside MuJoCo at the same step.

python benchmarks/robots.py [--files FOLDER ...] [--steps 2000] [--only NAME ...]

`seven_axis_arm` and `strandbeest` are models of the library. The other robots are URDF files, looked for by name below
the folders given and in the installed package `example-robot-data`; what is not found is left out. Times are processor
seconds of this process, the difference of long and short runs, the least of several. Joints start at small speeds.
"""

import argparse
import sysconfig
import time
from pathlib import Path
from typing import Any

import holonomix as hx

# robot: file, options, goals: us per step, seconds to the first step
ROBOTS = {
    "seven_axis_arm": (None, {}, None, None),
    "strandbeest": (None, {}, 25, None),
    "ur5": ("ur5_robot.urdf", {}, 12, None),
    "panda": ("panda.urdf", {}, 15, 4),
    "solo12": ("solo12.urdf", {"base": "free"}, None, None),
    "g1": ("g1_29dof_rev_1_0.urdf", {"base": "free"}, 80, 10),
}
DT, REPEAT = 1e-3, 3


def folders_of(given: list[Path]) -> list[Path]:
    return [*given, Path(sysconfig.get_path("purelib")) / "cmeel.prefix" / "share" / "example-robot-data"]


def find(name: str, folders: list[Path]) -> Path | None:
    return next((found for folder in folders for found in sorted(folder.rglob(name))), None)


def problem_of(name: str, path: Path | None, options: dict) -> hx.Problem:
    if path is None:
        return getattr(hx.models, name)()
    m = hx.Mechanism.from_urdf(path, **options)
    moving = [joint.name for joint in m.joints if joint.kind == "revolute"]
    return hx.Mechanism.from_urdf(path, velocities=dict.fromkeys(moving, 0.3), **options).problem(dt=DT)


def least_difference(run, steps: int) -> float:
    """Processor seconds per step: long runs less short ones."""
    times = {10: [], steps: []}
    for _ in range(REPEAT):
        for n, taken in times.items():
            began = time.process_time()
            run(n)
            taken.append(time.process_time() - began)
    return (min(times[steps]) - min(times[10])) / (steps - 10)


def ours(problem: hx.Problem, steps: int) -> dict:
    run = lambda n: hx.simulate(problem, hx.RATTLE(), dt=DT, steps=n, save_every=n)
    began = time.process_time()
    run(10)
    first = time.process_time() - began
    run(10)
    began = time.process_time()
    run(11)
    again = time.process_time() - began
    seconds = least_difference(run, steps)
    stats = run(steps).stats
    return {"us": 1e6 * seconds, "first": first, "again": again} | {
        key: stats[key] for key in ("backend", "operations", "mean_iterations") if key in stats
    }


def mujoco_model(path: Path, integrator: str) -> Any:
    """The model of a URDF file without geometry and meshes; None where MuJoCo does not read it."""
    try:
        import mujoco
    except ImportError:
        return None
    text = path.read_text()
    if "<mujoco>" not in text:
        text = text.replace("</robot>", '<mujoco><compiler discardvisual="true"/></mujoco></robot>')
    try:
        spec = mujoco.MjSpec.from_string(text)
        for part in [*spec.geoms, *spec.meshes]:
            spec.delete(part)
        model = spec.compile()
    except ValueError:
        return None
    model.opt.timestep, model.opt.integrator = DT, getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    return model


def theirs(path: Path, steps: int) -> dict[str, float]:
    """Microseconds per step of MuJoCo by integrator; none where it does not read the file."""
    out = {}
    for name in ("EULER", "RK4"):
        model = mujoco_model(path, name)
        if model is None:
            return {}
        import mujoco

        data = mujoco.MjData(model)

        def run(n: int, model=model, data=data) -> None:
            mujoco.mj_resetData(model, data)
            mujoco.mj_step(model, data, n)

        out[name] = 1e6 * least_difference(run, steps)
    return out


def verdict(value: float, goal: float | None) -> str:
    return "" if goal is None else f" (goal {goal}: {'pass' if value <= goal else 'miss'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--only", nargs="*", choices=list(ROBOTS))
    options = parser.parse_args()
    folders = folders_of(options.files)
    for name in options.only or ROBOTS:
        file, settings, goal, first_goal = ROBOTS[name]
        path = None if file is None else find(file, folders)
        if file is not None and path is None:
            print(f"{name:15s} {file} is not installed")
            continue
        try:
            found = ours(problem_of(name, path, settings), options.steps)
        except hx.errors.HolonomixError as error:
            print(f"{name:15s} {error}")
            continue
        beside = {} if path is None else theirs(path, options.steps)
        print(
            f"{name:15s} {found['us']:7.1f} us per step{verdict(found['us'], goal)}, "
            f"first step {found['first']:.1f} s{verdict(found['first'], first_goal)}, "
            f"another number of steps {found['again']:.2f} s, {found['backend']}, "
            f"{found.get('operations', '-')} operations, {found.get('mean_iterations', 0):.1f} iterations"
            + "".join(f"; MuJoCo {key} {value:.1f} us" for key, value in beside.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
