"""Load all URDF and MJCF files of folders, and compare accelerations with Pinocchio and MuJoCo.

    python tools/robot_files.py NAME=FOLDER ... [--states 10] [--only TEXT] [--json out.json]

Prints a table by folder: how many files the reference loads, how many of these become a problem, the relative error of
joint accelerations at random states (median and worst over files), and every refusal by kind. References are Pinocchio
(`pip install pin`) for URDF, MuJoCo for MJCF.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import re
import signal
import time
import warnings
from typing import Any
from xml.etree import ElementTree

import numpy as np

import holonomix as hx
from holonomix.core.errors import HolonomixError

SECONDS = 300  # of processor time per file


def urdf_reference(path: pathlib.Path) -> Any:
    """A model of Pinocchio, in which mimic joints are free; None where it does not load the file."""
    import pinocchio as pin  # pyright: ignore[reportMissingImports]

    try:
        return pin.buildModelFromUrdf(str(path))
    except Exception:
        return None


def mimics(path: pathlib.Path) -> dict[str, tuple[str, float, float]]:
    """Mimic joints of a URDF file: leader, factor and offset."""
    out = {}
    for joint in ElementTree.fromstring(path.read_bytes().lstrip()).findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None:
            factor, offset = (float(mimic.get(key, x)) for key, x in (("multiplier", 1.0), ("offset", 0.0)))
            out[joint.get("name", "")] = (mimic.get("joint", ""), factor, offset)
    return out


def mjcf_reference(path: pathlib.Path) -> Any:
    import mujoco  # pyright: ignore[reportMissingImports]

    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except Exception:
        return None


def compare_urdf(model: Any, m: Any, states: int, path: pathlib.Path) -> list[float]:
    """Relative errors of joint accelerations, damping included, motors at rest.

    Mimic joints `x = Z y + c` are reduced here: `Z^T M Z y'' = Z^T (f - h)`.
    """
    import pinocchio as pin  # pyright: ignore[reportMissingImports]

    data, rng, errors = model.createData(), np.random.default_rng(0), []
    joints = {name: model.joints[k] for k, name in enumerate(model.names) if k}
    follow = {k: x for k, x in mimics(path).items() if k in joints and x[0] in joints}
    known = {joint.name.removeprefix("joint ") for joint in m.joints}  # others move no mass and stay at zero here
    plain = [name for name, joint in joints.items() if joint.nv == 1 and name in known]
    free = [name for name in plain if name not in follow]
    if not free:
        return []
    z = np.zeros((model.nv, len(free)))
    for name in plain:
        leader, factor = name, 1.0
        while leader in follow:
            leader, factor = follow[leader][0], factor * follow[leader][1]
        z[joints[name].idx_v, free.index(leader)] = factor
    damping = np.asarray(getattr(model, "damping", np.zeros(model.nv)))
    for _ in range(states):
        x = {name: rng.uniform(-1, 1) for name in free}
        rates = rng.normal(size=len(free))
        every = dict(x)
        while len(every) < len(plain):
            every |= {k: f * every[a] + c for k, (a, f, c) in follow.items() if a in every}
        qp, vp = pin.neutral(model), z @ rates
        for name, value in every.items():
            joint = joints[name]
            two = joint.nq == 2
            qp[joint.idx_q : joint.idx_q + joint.nq] = [np.cos(value), np.sin(value)] if two else value
        found = m.acceleration(x, dict(zip(free, rates, strict=True)))
        mass = pin.crba(model, data, qp)
        mass = np.triu(mass) + np.triu(mass, 1).T
        load = -damping * vp - pin.rnea(model, data, qp, vp, np.zeros(model.nv))
        theirs = np.linalg.solve(z.T @ mass @ z, z.T @ load)
        ours = np.array([found[f"joint {name}" if f"joint {name}" in found else name] for name in free])
        errors.append(error(ours, theirs, rates))
    return errors


def error(ours: np.ndarray, theirs: np.ndarray, rates: np.ndarray) -> float:
    """The largest difference, relative to the largest acceleration, or to the square of the rates if it vanishes."""
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), (rates**2).max()))


def joint_name(model: Any, number: int) -> str:
    """The name of a joint, or the one that it gets when its file is read."""
    body = int(model.jnt_bodyid[number])
    of = model.body(body).name or f"body {body}"
    first, count = model.body_jntadr[body], model.body_jntnum[body]
    return model.joint(number).name or f"{of} joint" + (f" {number - first + 1}" if count > 1 else "")


def compare_mjcf(model: Any, m: Any, states: int) -> list[float]:
    """The same with MuJoCo, contacts, limits, dry friction and actuators disabled, equality constraints exact."""
    import mujoco  # pyright: ignore[reportMissingImports]

    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= int(bits.mjDSBL_CONTACT) | int(bits.mjDSBL_LIMIT) | int(bits.mjDSBL_FRICTIONLOSS)
    model.opt.disableflags |= int(bits.mjDSBL_ACTUATION) | int(bits.mjDSBL_EQUALITY)
    model.opt.density = model.opt.viscosity = 0.0  # left out here, and m.unsupported says so
    for value in (model.opt.wind, model.tendon_stiffness, model.tendon_damping, model.tendon_armature):
        value[:] = 0.0
    model.body_gravcomp[:] = 0.0
    data, rng, errors = mujoco.MjData(model), np.random.default_rng(0), []
    hinges = [k for k in range(model.njnt) if model.jnt_type[k] >= 2]
    if not hinges or np.any(model.eq_active0):
        return []
    names = [joint_name(model, k) for k in hinges]
    for _ in range(states):
        mujoco.mj_resetData(model, data)
        x, v = rng.uniform(-0.7, 0.7, len(hinges)), rng.normal(size=len(hinges))
        for k, value, rate in zip(hinges, x, v, strict=True):
            data.qpos[model.jnt_qposadr[k]] = model.qpos0[model.jnt_qposadr[k]] + value
            data.qvel[model.jnt_dofadr[k]] = rate
        mujoco.mj_forward(model, data)
        theirs = data.qacc_smooth[[model.jnt_dofadr[k] for k in hinges]]
        found = m.acceleration(dict(zip(names, x, strict=True)), dict(zip(names, v, strict=True)))
        ours = np.array([found.get(name, found.get(f"joint {name}", np.nan)) for name in names])
        errors.append(error(ours, theirs, v))
    return errors


def kind_of(error: Exception) -> str:
    """An error without its names and numbers."""
    text = str(error).split(": ", 1)[-1] if isinstance(error, HolonomixError) else f"{type(error).__name__}: {error}"
    text = re.sub(r"'[^']*'", "X", text)
    return re.sub(r"-?\d[\d.e+-]*", "N", text)[:140]


def load(path: pathlib.Path, heavy: bool, **options: Any) -> Any:
    if path.suffix == ".urdf":
        return hx.Mechanism.from_urdf(path, base="free" if heavy else "fixed", **options)
    return hx.Mechanism.from_mjcf(path)


def try_file(path: pathlib.Path, states: int) -> dict[str, Any]:
    """What the reference and we make of a file."""
    urdf = path.suffix == ".urdf"
    reference = (urdf_reference if urdf else mjcf_reference)(path)
    out: dict[str, Any] = {"path": str(path), "reference": reference is not None, "error": "", "errors": []}
    if reference is None:
        return out
    start = time.process_time()
    # a file in which nothing moves and nothing has a mass is scenery
    heavy = urdf and reference.nv == 0 and reference.inertias[0].mass > 0
    try:
        try:
            m = load(path, heavy)
        except HolonomixError as error:
            if not urdf or 'inertia="repair"' not in str(error):
                raise
            m = load(path, heavy, inertia="repair")
            out["repaired"] = m.repaired
        if m.bodies:
            m.problem()
            if urdf and not m.repaired:
                out["errors"] = compare_urdf(reference, m, states, path)
            elif not urdf:
                out["errors"] = compare_mjcf(reference, m, states)
        else:
            out["static"] = True  # nothing moves, neither there nor here
    except TimeoutError:
        out["error"] = out["kind"] = f"more than {SECONDS} s"
    except Exception as error:
        out["error"], out["kind"] = f"{type(error).__name__}: {error}", kind_of(error)
    out["seconds"] = time.process_time() - start
    return out


def _stop(*_: Any) -> None:
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", help="NAME=FOLDER")
    parser.add_argument("--states", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="random_urdfs")
    parser.add_argument("--json")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _stop)
    found: dict[str, list[dict[str, Any]]] = {}
    for item in given.folders:
        name, folder = item.split("=", 1)
        files = sorted(x for x in pathlib.Path(folder).rglob("*") if x.suffix in (".urdf", ".xml", ".mjcf"))
        for path in files:
            if given.only not in str(path) or (given.skip and given.skip in str(path)):
                continue
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            result = try_file(path, given.states)
            signal.setitimer(signal.ITIMER_PROF, 0)
            form = "URDF" if path.suffix == ".urdf" else "MJCF"
            found.setdefault(f"{name}, {form}", []).append(result)
            if result["reference"]:
                worst = max(result["errors"], default=float("nan"))
                print(f"{path.relative_to(folder)}: {result['error'][:160] or f'{worst:.1e}'}", flush=True)
    report(found)
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(found, indent=1))


def report(found: dict[str, list[dict[str, Any]]]) -> None:
    print("\n| files | loaded by the reference | a problem here | repaired | compared | median error | worst error |")
    print("|---|---|---|---|---|---|---|")
    for name, results in found.items():
        loaded = [r for r in results if r["reference"]]
        good = [r for r in loaded if not r["error"]]
        errors = [max(r["errors"]) for r in good if r["errors"]]
        median = f"{np.median(errors):.1e}" if errors else ""
        worst = f"{max(errors):.1e}" if errors else ""
        mended = sum("repaired" in r for r in good)
        print(f"| {name} | {len(loaded)} | {len(good)} | {mended} | {len(errors)} | {median} | {worst} |")
    kinds: dict[str, list[str]] = collections.defaultdict(list)
    for results in found.values():
        for r in results:
            if r["error"]:
                kinds[r["kind"]].append(pathlib.Path(r["path"]).name)
    for kind, paths in sorted(kinds.items(), key=lambda x: -len(x[1])):
        print(f"- {len(paths)} x {kind}: {', '.join(paths[:8])}")


if __name__ == "__main__":
    main()
