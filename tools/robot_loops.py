"""Accelerations of robots with closed loops beside those of `pinocchio.constraintDynamics`.

    python tools/robot_loops.py FOLDER ... [--states 10]

Each folder has `robot.urdf` and `robot.yaml`, which names the loops. The position is that in which the loops close, the
rates are random ones that keep them closed. Robots whose sidecar changes the kinds of joints are left out: Pinocchio
reads the file as it is. Needs `pip install pin` and `holonomix[robots]`.
"""

from __future__ import annotations

import argparse
import pathlib
import warnings
from typing import Any

import numpy as np

import holonomix as hx
from holonomix.build.mechanisms import queries
from holonomix.build.mechanisms.loops import read_loops


def read(folder: pathlib.Path) -> hx.Mechanism:
    files = {"path": folder / "robot.urdf", "loops": folder / "robot.yaml"}
    try:
        return hx.Mechanism.from_urdf(**files)
    except hx.errors.InputError as error:
        if "repair" not in str(error):
            raise
        return hx.Mechanism.from_urdf(**files, inertia="repair")


def constraints(model: Any, loops: dict[str, list[Any]]) -> tuple[Any, Any]:
    """Models and data of the loops, as lists of Pinocchio."""
    import pinocchio as pin  # pyright: ignore[reportMissingImports]

    models, datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    kinds = {"6d": pin.ContactType.CONTACT_6D, "3d": pin.ContactType.CONTACT_3D}
    for pair, kind in zip(loops["closed_loop"], loops["type"], strict=True):
        a, b = (model.frames[model.getFrameId(name)] for name in pair)
        ends = (a.parentJoint, a.placement, b.parentJoint, b.placement)
        models.append(pin.RigidConstraintModel(kinds[kind], model, *ends, pin.LOCAL))
        datas.append(models[len(models) - 1].createData())
    return models, datas


def compare(m: hx.Mechanism, model: Any, loops: dict[str, list[Any]], states: int) -> list[float]:
    """Differences of joint accelerations, relative to the largest acceleration or square of a rate."""
    import pinocchio as pin  # pyright: ignore[reportMissingImports]

    problem, rng, errors = m.problem(), np.random.default_rng(0), []
    q, masses, equations = np.asarray(problem.q0), m._start()[2][:, None], m.equations
    known = dict(queries._positions(m))
    joints = {name: model.joints[k] for k, name in enumerate(model.names) if k}
    along = {name: known.get(f"joint {name}", known.get(name)) for name in joints}
    along = {name: coordinate for name, coordinate in along.items() if coordinate is not None}
    data, (models, datas) = model.createData(), constraints(model, loops)
    pin.initConstraintDynamics(model, data, models, datas)
    for _ in range(states):
        v = np.asarray(hx.project(problem.system, q, np.sqrt(masses) * rng.normal(size=q.shape))[1]) / masses
        a, x, rates = m.acceleration(q, v), pin.neutral(model), np.zeros(model.nv)
        frames, speeds, bends = equations.frames(q), queries.frame_rates(equations, q, v), queries._bends(equations, v)
        ours = []
        for name, coordinate in along.items():
            (value, slopes), joint = coordinate.value_and_slopes(q), joints[name]
            turned = [np.cos(value), np.sin(value)] if joint.nq == 2 else value
            x[joint.idx_q : joint.idx_q + joint.nq], rates[joint.idx_v] = turned, np.sum(slopes * v)
            ours.append(float(np.sum(slopes * a)) + queries._coordinate_bend(coordinate, frames, speeds, bends))
        load = -np.asarray(getattr(model, "damping", np.zeros(model.nv))) * rates
        settings = pin.ProximalSettings(1e-14, 1e-12, 100)
        found = pin.constraintDynamics(model, data, x, rates, load, models, datas, settings)
        theirs = np.array([found[joints[name].idx_v] for name in along])
        errors.append(float(np.abs(np.array(ours) - theirs).max() / max(np.abs(theirs).max(), (rates**2).max())))
    return errors


def main() -> None:
    import pinocchio as pin  # pyright: ignore[reportMissingImports]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--states", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for folder in given.folders:
        loops = read_loops(folder / "robot.yaml")
        if loops["joint_name"]:
            print(f"{folder.name}: left out, its sidecar changes joints")
            continue
        errors = compare(read(folder), pin.buildModelFromUrdf(str(folder / "robot.urdf")), loops, given.states)
        print(f"{folder.name}: median {np.median(errors):.1e}, worst {max(errors):.1e}", flush=True)


if __name__ == "__main__":
    main()
