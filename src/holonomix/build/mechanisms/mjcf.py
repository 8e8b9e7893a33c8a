"""Models from MuJoCo XML files (MJCF), read by MuJoCo's own parser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike
from .actuators import Motor, affine, polynomial_damping
from .bodies import Body
from .frames import Frame
from .joints import Joint, coupling_row
from .mechanism import Mechanism
from .queries import add_stops
from .shapes import AbstractShape, Box, Cylinder, Sphere
from .xml_files import HERE, STOP_TIME, after, check_options, composite, naming, warn_about

# whose members are compared as whole numbers: those of MuJoCo 4 differ from equal numbers of NumPy
ENUMERATIONS = ("mjtJoint", "mjtGeom", "mjtTrn", "mjtGain", "mjtBias", "mjtDyn", "mjtEq", "mjtObj")
FLUID = ("density", "viscosity", "wind")
FLAGS = ("constraint", "equality", "passive", "spring", "damper", "actuation", "clampctrl")
GAINS, BIASES = ("FIXED", "AFFINE"), ("NONE", "AFFINE")
# what a model counts, and how a file calls it
COUNTED = {
    "npair": "<contact>",
    "ntendon": "<tendon>",
    "nsensor": "<sensor>",
    "nflex": "<deformable>",
    "nskin": "<deformable>",
    "nplugin": "<extension>",
    "nmocap": "mocap bodies",
}


def from_mjcf(
    path: str | Path,
    *,
    gravity: ArrayLike | None = None,
    positions: Mapping[str, Any] | None = None,
    velocities: Mapping[str, Any] | None = None,
    keyframe: str | None = None,
    limits: str = "ignore",
    friction: bool = False,
) -> Mechanism:
    """The model of a MuJoCo XML file, with joints at `positions` and their rates `velocities`, or at a `keyframe`.

    MuJoCo itself reads the file (`pip install 'holonomix[robots]'`), so includes, defaults, meshes and mass corrections
    work as in MuJoCo. Bodies without joints are merged into their parents. Hinge, slide, ball and free joints are read
    with damping and stiffness; several joints of one body keep their own names. `connect`, `weld` and `joint` of
    `<equality>` hold exactly here. Joint positions count from the pose in the file, even if a joint has a `ref`; the
    position of a ball joint is a rotation. If a joint and a body have the same name, the joint is `m["joint NAME"]`. A
    warning lists what was left out (contacts, limits, tendons).

    `keyframe="home"`, or later `m.keyframe("home")`, places all bodies, with their velocities, as that keyframe of the
    file does.

    Actuators of joints become motors, `m.motors`, which exert no force until `m.command`. `limits="spring"` turns joint
    ranges into elastic stops, `"bounce"` into elastic impacts, and `friction=True` turns `frictionloss` into a smooth
    force.
    """
    check_options(limits, friction)
    try:
        import mujoco  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("MJCF files are read by MuJoCo: pip install 'holonomix[robots]'") from None
    if keyframe is not None and not (positions is None and velocities is None):
        raise InputError("give a keyframe, or positions and velocities of joints")
    with naming(path):
        made = _Reader(mujoco, Path(path), gravity, limits, friction).read(positions, velocities)
        return made if keyframe is None else made.keyframe(keyframe)


class _Reader:
    """A compiled model with everything placed as in the file; bodies without joints belong to their parents."""

    def __init__(self, mujoco: ModuleType, path: Path, gravity: ArrayLike | None, limits: str, friction: bool):
        self.mujoco, self.path, self.limits, self.friction = mujoco, path, limits, friction
        self.ranges: list[tuple[Joint, float, float]] = []
        try:
            spec = mujoco.MjSpec.from_file(str(path))
            self.model = model = spec.compile()
        except (ValueError, OSError) as error:
            raise InputError("; ".join(str(error).split("\n")).strip("; ")) from None
        self.placed = mujoco.MjData(model)
        mujoco.mj_kinematics(model, self.placed)
        enumerations = [getattr(mujoco, name) for name in ENUMERATIONS]
        self.codes = {x: int(getattr(e, x)) for e in enumerations for x in dir(e) if x.startswith("mj")}
        bits = mujoco.mjtDisableBit  # versions know different ones
        off = lambda flag: bool(model.opt.disableflags & int(getattr(bits, f"mjDSBL_{flag.upper()}", 0)))
        self.left_out: Counter[str] = Counter()
        for key, text in COUNTED.items():
            self.left_out[text] += getattr(model, key)
        self.left_out.update(f"<option {key}>" for key in FLUID if np.any(getattr(model.opt, key)))
        self.left_out.update(f"<flag {key}>" for key in FLAGS if off(key))
        self.left_out["gravcomp of bodies"] = int(np.count_nonzero(model.body_gravcomp))
        if not off("contact") and model.ngeom:
            kinds, partners = (np.bitwise_or.reduce(x) for x in (model.geom_contype, model.geom_conaffinity))
            touching = (model.geom_contype & partners) | (model.geom_conaffinity & kinds)
            self.left_out["contacts of geoms"] = int(np.count_nonzero(touching))
        found = np.zeros(3) if off("gravity") else model.opt.gravity.copy()
        name = path.stem if spec.modelname in ("", "MuJoCo Model") else spec.modelname
        self.mechanism = Mechanism(found if gravity is None else gravity, name=name)
        self.mechanism.when_empty = "none of its bodies has a joint"
        self.bodies: dict[int, Body] = {0: self.mechanism.ground}  # by the number of the body that has the joints
        self.joints: dict[int, Joint] = {}
        self.names = {model.body(k).name for k in range(model.nbody)}

    def read(self, positions: Mapping[str, Any] | None, velocities: Mapping[str, Any] | None) -> Mechanism:
        for k in range(1, self.model.nbody):
            if self.model.body_weldid[k] == k:
                self._body(k)
        for k in range(self.model.neq):
            self._equality(k)
        self._name_frames()
        for k in range(self.model.nu):
            self._actuator(k)
        add_stops(self.mechanism, self.ranges, None if self.limits == "bounce" else STOP_TIME)
        self._keyframes()
        self.mechanism.unsupported = warn_about(self.path, self.left_out)
        self.mechanism.configure(positions, velocities)
        return self.mechanism

    def _keyframes(self) -> None:
        """Poses and velocities of all bodies in every keyframe."""
        model, mujoco = self.model, self.mujoco
        data, twist = mujoco.MjData(model), np.zeros(6)
        for k in range(model.nkey):
            mujoco.mj_resetDataKeyframe(model, data, k)
            for compute in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_comVel):
                compute(model, data)
            found = self.mechanism.keyframes[self._name("key", k)] = {}
            for number, body in self.bodies.items():
                if not body.fixed:
                    mujoco.mj_objectVelocity(model, data, self.codes["mjOBJ_XBODY"], number, twist, 0)
                    pose = data.body(number)
                    values = pose.xpos, pose.xmat.reshape(3, 3), twist[3:], twist[:3]
                    found[body.name] = tuple(x.copy() for x in values)
        self.left_out["controls of keyframes"] = int(np.count_nonzero(np.any(model.key_ctrl, axis=1)))

    def _name_frames(self) -> None:
        """Add welded bodies and sites as frames with their names."""
        model = self.model
        found = [("body", k, k) for k in range(1, model.nbody) if model.body_weldid[k] != k]
        found += [("site", k, int(model.site_bodyid[k])) for k in range(model.nsite)]
        for kind, k, owner in found:
            name = getattr(model, kind)(k).name
            label = self.mechanism._free_name(kind, name)
            if name and label not in self.mechanism._names:
                body, (at, turn) = self._owner(owner), self._pose(kind, k)
                own = body.attitude.T
                self.mechanism.add_frame(label, body, position=own @ (at - body.origin), rotation=own @ turn)

    def _name(self, kind: str, number: int) -> str:
        """The name of the n-th thing of a kind, or kind and number."""
        return getattr(self.model, kind)(number).name or f"{kind} {number}"

    def _pose(self, kind: str, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The pose of a body, geom or site in the world."""
        at = getattr(self.placed, kind)(number)
        return at.xpos.copy(), at.xmat.reshape(3, 3).copy()

    def _owner(self, body: int) -> Body:
        return self.bodies[int(self.model.body_weldid[body])]

    def _body(self, number: int) -> None:
        """A moving body with everything that is fixed to it, and its joints to its parent."""
        model, (origin, attitude) = self.model, self._pose("body", number)
        lumps = []
        for part in np.flatnonzero((model.body_weldid == number) & (model.body_mass > 0)).tolist():
            turn = attitude.T @ self.placed.ximat[part].reshape(3, 3)
            center = attitude.T @ (self.placed.xipos[part] - origin)
            lumps.append((float(model.body_mass[part]), center, turn @ np.diag(model.body_inertia[part]) @ turn.T))
        mass, center, inertia = composite(lumps)
        label = self.mechanism._free_name("body", self._name("body", number))
        body = self.mechanism.body(label, mass=mass, inertia=inertia, center=center, position=origin, rotation=attitude)
        self.bodies[number] = body
        for geom in np.flatnonzero(model.body_weldid[model.geom_bodyid] == number).tolist():
            shape = self._shape(geom)
            if shape is not None:
                at, turn = self._pose("geom", geom)
                body.shapes.append((shape, attitude.T @ (at - origin), attitude.T @ turn))
        first, count = int(model.body_jntadr[number]), int(model.body_jntnum[number])
        self._joints(range(first, first + count), self._owner(int(model.body_parentid[number])), body)

    def _shape(self, geom: int) -> AbstractShape | None:
        """The shape for pictures; capsules are drawn as cylinders."""
        kind, size = int(self.model.geom_type[geom]), [float(x) for x in self.model.geom_size[geom]]
        if kind == self.codes["mjGEOM_SPHERE"]:
            return Sphere(size[0])
        if kind == self.codes["mjGEOM_BOX"]:
            return Box(*(2 * x for x in size))
        if kind in (self.codes["mjGEOM_CYLINDER"], self.codes["mjGEOM_CAPSULE"]):
            return Cylinder(size[0], 2 * size[1])
        return None

    def _joints(self, numbers: range, parent: Body, body: Body) -> None:
        model, m = self.model, self.mechanism
        words = {self.codes[f"mjJNT_{word.upper()}"]: word for word in ("free", "ball", "slide", "hinge")}
        kinds = [words[int(model.jnt_type[k])] for k in numbers]
        labels = []
        for k in numbers:
            name = model.joint(k).name or f"{body.name} joint" + (f" {k - numbers[0] + 1}" if len(numbers) > 1 else "")
            labels.append(m._free_name("joint", name, self.names))
        places = [(self.placed.xanchor[k].copy(), self.placed.xaxis[k].copy()) for k in numbers]
        if kinds in (["hinge"], ["slide"], ["ball"]):
            kind = {"hinge": "revolute", "slide": "prismatic", "ball": "spherical"}[kinds[0]]
            axis = None if kinds == ["ball"] else places[0][1]
            made = [m.joint(kind, labels[0], parent, body, at=places[0][0], axis=axis)]
        elif "ball" in kinds:
            raise InputError(
                f"body {body.name!r} has the joints {' + '.join(kinds)}, which no joint here stands for; put a light "
                "body between them"
            )
        elif "free" not in kinds:
            made = m._add_stack(labels, parent, body, [(x, *place) for x, place in zip(kinds, places, strict=True)])
        else:
            made = []
        self.joints.update(zip(numbers, made, strict=False))
        for k, kind in zip(numbers, kinds, strict=True):
            self._dynamics(k, kind)

    def _dynamics(self, number: int, kind: str) -> None:
        """Add damping and stiffness of a joint, and note its features that are left out."""
        model, name = self.model, self._name("joint", number)
        first = model.jnt_dofadr[number]
        dofs = slice(first, first + {"free": 6, "ball": 3}.get(kind, 1))
        damping, stiffness = float(model.dof_damping[first]), float(model.jnt_stiffness[number])
        rotor = float(model.dof_armature[first])
        if kind in ("hinge", "slide"):
            more = [self._reflected(key, number) for key in ("armature", "damping")]
            rotor, damping = rotor + more[0], damping + more[1]
        limited, loss = bool(model.jnt_limited[number]), float(np.max(model.dof_frictionloss[dofs]))
        stops, rubs = limited and self.limits != "ignore", loss > 0 and self.friction
        if kind in ("free", "ball"):
            stops = rubs = False
        if stops and kind == "hinge" and np.ptp(model.jnt_range[number]) >= 2 * np.pi:
            stops = False  # angles do not count turns
        self.left_out["range of joints"] += int(limited and not stops)
        self.left_out["frictionloss of joints"] += int(loss > 0 and not rubs)
        for key, which, text in (
            ("jnt_stiffnesspoly", number, "polynomial stiffness of joints"),
            ("jnt_springyield", number, "springyield of joints"),
        ):
            self.left_out[text] += int(np.any(getattr(model, key, np.zeros(model.nv))[which]))
        self.left_out["actuatorfrcrange of joints with several actuators"] += int(
            model.jnt_actfrclimited[number] and len(self._actuators(number)) > 1
        )
        powers = getattr(model, "dof_dampingpoly", np.zeros((model.nv, 1)))[dofs]  # since MuJoCo 4
        if kind in ("free", "ball"):
            damping += float(np.any(powers))
            what = {"free": "free", "ball": "spherical"}[kind]
            self.left_out[f"springs and dampers of {what} joints"] += int(damping != 0 or stiffness != 0)
            self.left_out[f"armature of {what} joints"] += int(np.any(model.dof_armature[dofs]))
            return
        if np.any(powers):
            self.mechanism.motor(self.joints[number], polynomial_damping(powers[0].tolist()))
        if rotor > 0:
            self.mechanism.armature(self.joints[number], rotor)
        if rubs:
            self.mechanism.friction(self.joints[number], loss)
        if stops:
            lower, upper = model.jnt_range[number] - model.qpos0[model.jnt_qposadr[number]]
            self.ranges.append((self.joints[number], float(lower), float(upper)))
        if damping < 0 or stiffness < 0:
            raise InputError(f"joint {name!r} has negative damping or stiffness")
        # at the pose of the file, a joint of MuJoCo has the position `ref`, and ours zero
        at = model.jnt_qposadr[number]
        rest = float(model.qpos_spring[at] - model.qpos0[at])
        self.mechanism.torsion_spring(self.joints[number], stiffness=stiffness, rest=rest, damping=damping)

    def _actuators(self, joint: int) -> list[int]:
        """The actuators of a joint, by number."""
        of_joint = [self.codes["mjTRN_JOINT"], self.codes["mjTRN_JOINTINPARENT"]]
        found = np.isin(self.model.actuator_trntype, of_joint) & (self.model.actuator_trnid[:, 0] == joint)
        return np.flatnonzero(found).tolist()

    def _reflected(self, key: str, joint: int) -> float:
        """Armature or damping of the actuators of a joint, seen from the joint; MuJoCo 3 has none."""
        values, gears = getattr(self.model, f"actuator_{key}", None), self.model.actuator_gear[:, 0]
        return 0.0 if values is None else float(sum(gears[k] ** 2 * values[k] for k in self._actuators(joint)))

    def _actuator(self, number: int) -> None:
        """An actuator of a joint as a motor, if it has no internal dynamics."""
        model, codes = self.model, self.codes
        name = model.actuator(number).name or f"actuator {number}"
        own = int(model.actuator_trnid[number, 0])
        joint, among = self.joints.get(own), self._actuators(own)
        if number not in among or joint is None or not joint.coordinates:
            self.left_out["<actuator> of tendons, sites, bodies, ball and free joints"] += 1
            return
        gain, bias = int(model.actuator_gaintype[number]), int(model.actuator_biastype[number])
        kinds = [[codes[f"mj{what}_{x}"] for x in words] for what, words in (("GAIN", GAINS), ("BIAS", BIASES))]
        dynamic = int(model.actuator_dyntype[number]) != codes["mjDYN_NONE"]
        if dynamic or gain not in kinds[0] or bias not in kinds[1]:
            self.left_out["<actuator> with internal dynamics, muscles"] += 1
            return
        self.left_out["delay of actuators"] += int(np.any(getattr(model, "actuator_delay", np.zeros(model.nu))[number]))
        first = model.actuator_gainprm[number, :3] * ([1, 0, 0] if gain == kinds[0][0] else [1, 1, 1])
        second = model.actuator_biasprm[number, :3] * (bias != kinds[1][0])
        limits = [
            tuple(float(x) for x in ends) if limited else None
            for limited, ends in (
                (model.actuator_ctrllimited[number], model.actuator_ctrlrange[number]),
                (model.actuator_forcelimited[number], model.actuator_forcerange[number]),
                (model.jnt_actfrclimited[own] and len(among) == 1, model.jnt_actfrcrange[own]),
            )
        ]
        shift = float(model.qpos0[model.jnt_qposadr[own]])
        law = affine(float(model.actuator_gear[number, 0]), shift, first, second, limits)
        self.mechanism.motors[name] = Motor(name, joint, law)

    def _equality(self, number: int) -> None:
        model = self.model
        if not model.eq_active0[number]:
            return
        kind, data = model.eq_type[number], model.eq_data[number]
        words = {self.codes[f"mjEQ_{word.upper()}"]: word for word in ("connect", "weld", "joint")}
        word = words.get(int(kind), "")
        if not word:
            self.left_out["<equality> of tendons and deformable bodies"] += 1
            return
        name = model.eq(number).name or f"{word} {number + 1}"
        name = self.mechanism._free_name("equality", name)
        ends = [int(model.eq_obj1id[number]), int(model.eq_obj2id[number])]
        if word == "joint":
            self._coupled(name, ends, data[:5])
            return
        sites = int(model.eq_objtype[number]) == self.codes["mjOBJ_SITE"]
        a, b = (self._owner(int(model.site_bodyid[x]) if sites else x) for x in ends)
        poses = [self._pose("site" if sites else "body", x) for x in ends]
        if word == "connect":
            points = [np.zeros(3)] * 2 if sites else [data[:3], data[3:6]]
            at = [p + turn @ x for (p, turn), x in zip(poses, points, strict=True)]
            own = [body.attitude.T @ (x - body.origin) for body, x in zip((a, b), at, strict=True)]
            self.mechanism.spherical(name, a, b, point_a=own[0], point_b=own[1])
        else:  # frames of both bodies that coincide; data[6:10] is the rotation of the second body seen from the first
            turn = np.zeros(9)
            self.mujoco.mju_quat2Mat(turn, data[6:10])
            held = [HERE, HERE] if sites else [(data[3:6], turn.reshape(3, 3)), (data[:3], np.eye(3))]
            frames = []
            for body, pose, more in zip((a, b), poses, held, strict=True):
                at, axes = after(pose, more)
                at, axes = body.attitude.T @ (at - body.origin), body.attitude.T @ axes
                frames.append(Frame(self.mechanism, name, body, at, axes))
            self.mechanism.fixed(name, *frames)

    def _coupled(self, name: str, ends: list[int], powers: np.ndarray) -> None:
        """`joint1 = a0 + a1 joint2` (higher powers are left out); without a second joint `joint1 = a0`."""
        joints = []
        for k in ends if ends[1] >= 0 else ends[:1]:
            if k not in self.joints or not self.joints[k].coordinates:
                raise InputError(f"equality {name!r} couples joint {self._name('joint', k)!r}, which has no position")
            joints.append(self.joints[k])
        if np.any(powers[2:]) and len(joints) == 2:
            self.left_out["powers in couplings of joints"] += 1
        factors = (1.0, -float(powers[1]))
        terms = [(n, joint.coordinates[0]) for n, joint in zip(factors, joints, strict=False)]
        row, _ = coupling_row(terms, float(powers[0]))
        relation = (float(powers[1]), float(powers[0])) if len(joints) == 2 else None
        self.mechanism._add_gear(name, joints[-1], joints[0], row, relation)
