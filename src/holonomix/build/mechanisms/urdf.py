"""Robots from URDF files."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike
from .actuators import Motor, geared
from .bodies import Body, repair_inertia
from .frames import Frame
from .joints import Joint, coupling_row
from .loops import read_loops
from .mechanism import Mechanism
from .queries import add_stops
from .shapes import Box, Cylinder, Sphere
from .xml_files import (
    HERE,
    STOP_TIME,
    Pose,
    after,
    check_options,
    composite,
    moved,
    naming,
    numbers,
    one_number,
    read_xml,
    required,
    roll_pitch_yaw,
    warn_about,
    warn_repaired,
)

KINDS = {"revolute": "revolute", "continuous": "revolute", "prismatic": "prismatic", "planar": "planar"}
IGNORED = {"safety_controller": "safety controllers", "calibration": "calibrations"}
SHAPES: dict[str, tuple[Any, dict[str, int]]] = {
    "box": (Box, {"size": 3}),
    "cylinder": (Cylinder, {"radius": 1, "length": 1}),
    "sphere": (Sphere, {"radius": 1}),
}
SKIPPED = ("gazebo", "sensor")


def from_urdf(
    path: str | Path,
    *,
    gravity: ArrayLike = (0.0, 0.0, -9.81),
    base: str = "fixed",
    positions: Mapping[str, Any] | None = None,
    velocities: Mapping[str, Any] | None = None,
    inertia: str = "refuse",
    loops: str | Path | Mapping[str, Any] | None = None,
    limits: str = "ignore",
    friction: bool = False,
) -> Mechanism:
    """The robot of a URDF file, with joints at `positions` (zero by default) and their rates `velocities`.

    Links joined by fixed joints become one body. `base="fixed"` makes the root link part of the ground, `"free"` lets
    it move. Supported are inertias, revolute, continuous, prismatic, planar, floating and fixed joints, their damping,
    mimic joints, `<loop_joint>`, and visual shapes. A warning lists what was left out (limits, friction, contacts).
    Universal and ball joints are often written as massless links between two or three joints. These become one joint
    with several positions, each under its own name. An impossible inertia (one principal moment larger than the other
    two together, or zero) is an error that gives the numbers. `inertia="repair"` takes the nearest possible inertia
    with a warning, and `m.repaired` lists the changes. Every link that is part of a body or of the ground is also a
    frame, `m["tool0"]`.

    `loops` is a YAML file or a dictionary. `closed_loop` lists pairs of links or joints that coincide, and `type` says
    whether in position ("3d") or also in rotation ("6d", the default). `joint_name` and `joint_type` list joints that a
    URDF file cannot express ("SPHERICAL", or "UJOINT_" and two axes, as in "UJOINT_ZY").

    Every `<actuator>` of a `<transmission>` becomes a motor, `m.motors`, which exerts no force until `m.command`.
    `limits="spring"` turns joint limits into elastic stops, `"bounce"` into elastic impacts, and `friction=True` turns
    dry friction into a smooth force.
    """
    check_options(limits, friction)
    if inertia not in ("refuse", "repair"):
        raise InputError(f'inertia must be "refuse" or "repair", not {inertia!r}')
    if base not in ("fixed", "free"):
        raise InputError(f'base must be "fixed" or "free", not {base!r}')
    with naming(path):
        reader = _Reader(Path(path), gravity, base == "free", inertia == "repair", read_loops(loops))
        reader.limits, reader.friction = limits, friction
        return reader.read(positions, velocities)


def _pose(element: Element | None) -> Pose:
    origin = element.find("origin") if element is not None else None
    if origin is None:
        return HERE
    xyz = numbers(origin, "xyz", 3, (0, 0, 0))
    return xyz, roll_pitch_yaw(numbers(origin, "rpy", 3, (0, 0, 0)))


def _end_of(joint: Element, tag: str, known: Container[str], what: str) -> tuple[Element, str]:
    """The child `tag` of a joint and the name of its link, which must be `known`; `what` names the joint in errors."""
    element = joint.find(tag)
    if element is None:
        raise InputError(f"{what} has no <{tag}>")
    link = required(element, "link")
    if link not in known:
        raise InputError(f"{what} refers to link {link!r}, which does not exist")
    return element, link


@dataclasses.dataclass
class _Group:
    """Links held together by fixed joints: their inertias, joints to other links, and poses in the first link."""

    parts: list[tuple[float, np.ndarray, np.ndarray]]
    pending: list[tuple[Any, Pose]]
    members: list[tuple[str, Pose]]


class _Reader:
    """One file: links by name, joints by child, and features that could not be read."""

    def __init__(self, path: Path, gravity: ArrayLike, free: bool, repair: bool, loops: Mapping[str, Any]):
        self.path, self.free, self.repair = path, free, repair
        self.loops, self.types = loops, dict(zip(loops["joint_name"], loops["joint_type"], strict=True))
        self.robot = read_xml(path, "robot")
        self.left_out: Counter[str] = Counter()
        self.mechanism = Mechanism(gravity, name=self.robot.get("name") or path.stem)
        self.links = self._by_name("link")
        self.joints = self._by_name("joint")
        if not self.links:
            raise InputError("the robot has no links")
        self.children: dict[str, list[Any]] = {name: [] for name in self.links}
        self.parents: dict[str, str] = {}
        self._connect()
        self.where: dict[str, tuple[Body, Pose]] = {}  # link -> its body and its pose in that body
        self.made: dict[str, Joint] = {}
        self.inside: dict[str, str] = {}  # links without mass -> the joint that leads to them
        self.limits, self.friction = "ignore", False
        self.ranges: list[tuple[Joint, float, float]] = []
        self.waiting: list[tuple[Any, Body, Pose]] = []  # joints, their parents, and the poses of these

    def _by_name(self, tag: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for element in self.robot.findall(tag):
            name = required(element, "name")
            if name in found:
                raise InputError(f"there are two {tag}s called {name!r}")
            found[name] = element
        return found

    def _link_of(self, joint: Element, end: str) -> str:
        """The name of the link in the element `end` of a joint."""
        return _end_of(joint, end, self.links, f"joint {joint.get('name')!r}")[1]

    def _connect(self) -> None:
        for name, joint in self.joints.items():
            parent, child = self._link_of(joint, "parent"), self._link_of(joint, "child")
            if child in self.parents:
                raise InputError(f"link {child!r} has two parents (joint {name!r}); close loops with <loop_joint>")
            self.parents[child] = parent
            self.children[parent].append(joint)

    def read(self, positions: Mapping[str, Any] | None, velocities: Mapping[str, Any] | None) -> Mechanism:
        roots = [name for name in self.links if name not in self.parents]
        if len(roots) != 1:
            what = "no root link: its joints form a ring" if not roots else f"{len(roots)} root links, {roots[:4]}"
            raise InputError(f"a robot is one tree of links; this one has {what}")
        root = self._group(roots[0])
        if self.free and (root.parts or [j.get("type") for j, _ in root.pending] != ["floating"]):
            self._body(roots[0], HERE)
        else:
            self._ground(roots[0])
            self.mechanism.when_empty = (
                f'link {roots[0]!r} and all that is fixed to it stand on the ground; use base="free"'
            )
        while self.waiting:
            self._joint(*self.waiting.pop(0))
        apart = [name for name in self.links if name not in self.where and name not in self.inside]
        if apart:
            raise InputError(f"links {apart[:4]} form a ring that is not connected to the root link {roots[0]!r}")
        for name, joint in self.joints.items():
            self._mimic(name, joint)
        for loop in self.robot.findall("loop_joint"):
            self._loop(loop)
        for k, (pair, kind) in enumerate(zip(self.loops["closed_loop"], self.loops["type"], strict=True)):
            a, b = (self._end(name) for name in pair)
            label = self.mechanism._free_name("loop", f"loop {k + 1}", self.links)
            self.mechanism.joint({"6d": "fixed", "3d": "spherical"}[kind], label, a, b)
        self._name_frames()
        self._transmissions()
        add_stops(self.mechanism, self.ranges, None if self.limits == "bounce" else STOP_TIME)
        for tag in SKIPPED:
            self.left_out[f"<{tag}>"] = len(self.robot.findall(tag))
        self.left_out["contacts (<collision>)"] = len(self.robot.findall("link/collision"))
        self.mechanism.unsupported = warn_about(self.path, self.left_out)
        warn_repaired(self.path, self.mechanism.repaired)
        self.mechanism.configure(positions, velocities)
        return self.mechanism

    def _end(self, name: str) -> Frame:
        """The frame of a link, or of the child link of a joint."""
        link = self._link_of(self.joints[name], "child") if name not in self.links and name in self.joints else name
        if link not in self.where:
            why = "has no mass and is part of a joint" if link in self.inside else "does not exist"
            raise InputError(f"a loop refers to {name!r}, which {why}")
        body, (at, turn) = self.where[link]
        return Frame(self.mechanism, name, body, at, turn)

    def _name_frames(self) -> None:
        """Add links that have become part of a body or of the ground as frames with their names."""
        for link, (body, (at, turn)) in self.where.items():
            if body.name != link:
                label = self.mechanism._free_name("link", link)
                self.mechanism.add_frame(label, body, position=at, rotation=turn)

    def _inertial(self, name: str, link: Element, pose: Pose) -> tuple[float, np.ndarray, np.ndarray] | None:
        """Mass, center and inertia of a link in the coordinates of its body."""
        inertial = link.find("inertial")
        if inertial is None:
            return None
        for tag in ("mass", "inertia"):
            if inertial.find(tag) is None:
                raise InputError(f"the <inertial> of link {name!r} has no <{tag}>")
        mass = one_number(inertial.find("mass"), "value")
        if mass < 0:
            raise InputError(f"link {name!r} has the negative mass {mass:g}")
        xx, xy, xz, yy, yz, zz = (
            one_number(inertial.find("inertia"), key, 0.0 if key[1] != key[2] else None)
            for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        )
        matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if mass == 0 and not matrix.any():
            return None
        return moved(after(pose, _pose(inertial)), (mass, np.zeros(3), matrix))

    def _body(self, name: str, at: Pose) -> Body:
        """Add the body of a link and everything fixed to it; `at` is the pose of the link in the world."""
        group = self._group(name)
        if not group.parts:
            raise InputError(
                f"link {name!r} moves but has no mass: give it an <inertial>, or attach it by a fixed joint"
            )
        return self._made_body(name, at, group)

    def _made_body(self, name: str, at: Pose, group: _Group) -> Body:
        mass, center, inertia = composite(group.parts)
        if self.repair:
            inertia, change = repair_inertia(mass, inertia)
            if change:
                self.mechanism.repaired.append(f"link {name!r}: {change}")
        with self._offering_repair():
            body = self.mechanism.body(name, mass=mass, inertia=inertia, center=center, position=at[0], rotation=at[1])
        for member, pose in group.members:
            self.where[member] = (body, pose)
            self._shapes(body, self.links[member], pose)
        self.waiting[:0] = [(joint, body, after(at, pose)) for joint, pose in group.pending]  # depth first
        return body

    @contextlib.contextmanager
    def _offering_repair(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            fits = any(text in str(error) for text in ("triangle", "its inertia is zero", "is a rod", "is a point"))
            hint = '; inertia="repair" takes the nearest possible one' if fits and not self.repair else ""
            raise InputError(f"{error}{hint}") from None

    def _group(self, name: str) -> _Group:
        """A link and everything fixed to it."""
        group = _Group([], [], [])
        self._collect(name, HERE, group)
        if not any(mass for mass, _, _ in group.parts):
            group.parts.clear()  # drop an inertia without a mass
        return group

    def _carries_mass(self, name: str) -> bool:
        group = self._group(name)
        return bool(group.parts) or any(self._carries_mass(self._link_of(j, "child")) for j, _ in group.pending)

    def _collect(self, name: str, pose: Pose, group: _Group) -> None:
        group.members.append((name, pose))
        own = self._inertial(name, self.links[name], pose)
        if own is not None:
            group.parts.append(own)
        for joint in self.children[name]:
            if joint.get("type") == "fixed":
                self._collect(self._link_of(joint, "child"), after(pose, _pose(joint)), group)
            else:
                group.pending.append((joint, pose))

    def _ground(self, name: str) -> None:
        """Add a root link and everything fixed to it to the ground."""
        group = self._group(name)
        for member, where in group.members:
            self.where[member] = (self.mechanism.ground, where)
        self.waiting += [(joint, self.mechanism.ground, where) for joint, where in group.pending]

    def _joint(self, joint: Element, parent: Body, world: Pose) -> None:
        """Add a joint and the body of its child link; `world` is the pose of the parent link.

        Links without mass on the way to that body make it a stack of joints.
        """
        chain: list[tuple[str, str, Pose]] = []
        if not self._carries_mass(self._link_of(joint, "child")):
            self._fix_massless_joint(joint, parent, world)
            return
        while True:
            name, kind = required(joint, "name"), self._kind(joint)
            at = after(world, _pose(joint))
            chain.append((name, kind, at))
            link = self._link_of(joint, "child")
            group = self._group(link)
            if group.parts or len(group.pending) != 1:
                break
            self.inside.update({member: name for member, _ in group.members})
            joint, pose = group.pending[0]
            world = after(at, pose)
        if not group.parts and group.pending:
            names = ", ".join(repr(j.get("name")) for j, _ in group.pending)
            raise InputError(f"link {link!r} moves but has no mass, and carries the joints {names}; give it a mass")
        child = self._made_body(link, at, group) if group.parts else self._body(link, at)
        if kind == "floating" and len(chain) == 1:
            return
        labels = [self.mechanism._free_name("joint", name, self.links) for name, _, _ in chain]
        with self._offering_repair():
            made = self._made_joints(chain, labels, parent, child)
        for (name, _, _), one in zip(chain, made, strict=True):
            self.made[name] = one
            self._dynamics(name, one)

    def _fix_massless_joint(self, joint: Element, parent: Body, world: Pose) -> None:
        """Fix a joint that moves no mass at zero; its link becomes a frame of the parent."""
        at = after(world, _pose(joint))
        own = parent.attitude.T @ (at[0] - parent.origin), parent.attitude.T @ at[1]
        group = self._group(self._link_of(joint, "child"))
        self.left_out["joints that move no mass"] += 1
        self.where.update({member: (parent, after(own, pose)) for member, pose in group.members})
        for further, pose in group.pending:
            self._fix_massless_joint(further, parent, after(at, pose))

    def _made_joints(self, chain: list[tuple[str, str, Pose]], labels: list[str], a: Body, b: Body) -> list[Joint]:
        if len(chain) == 1:
            name, kind, at = chain[0]
            if kind == "SPHERICAL":
                return [self.mechanism.spherical(labels[0], a, b, at=at[0])]
            if kind.startswith("UJOINT_"):
                axis, axis2 = (at[1][:, "XYZ".index(x)] for x in kind[-2:])
                return [self.mechanism.universal(labels[0], a, b, at=at[0], axis=axis, axis2=axis2)]
            axis = self._axis(name, at)
            return [self.mechanism.joint(KINDS[kind], labels[0], a, b, at=at[0], axis=axis)]
        words = {"revolute": "hinge", "continuous": "hinge", "prismatic": "slide"}
        for name, kind, _ in chain:
            if kind not in words:
                raise InputError(f"there is no mass between joint {name!r} ({kind}) and the next one; add some")
        parts = [(words[kind], at[0], self._axis(name, at)) for name, kind, at in chain]
        return self.mechanism._add_stack(labels, a, b, parts)

    def _kind(self, joint: Element) -> str:
        name, kind = required(joint, "name"), required(joint, "type")
        if name in self.types:
            return self.types[name]
        if kind != "floating" and kind not in KINDS:
            known = ", ".join([*KINDS, "fixed", "floating"])
            raise InputError(f"joint {name!r} has the unknown type {kind!r}; known are {known}")
        for tag, text in IGNORED.items():
            if joint.find(tag) is not None:
                self.left_out[text] += 1
        return kind

    def _axis(self, name: str, at: Pose) -> np.ndarray:
        """The axis of a joint in the world."""
        axis = at[1] @ numbers(self.joints[name].find("axis"), "xyz", 3, (1, 0, 0))
        if not np.linalg.norm(axis) > 0:
            raise InputError(f"the axis of joint {name!r} is zero")
        return axis

    def _dynamics(self, name: str, made: Joint) -> None:
        """Add the damping of a joint, and note its features that are left out."""
        dynamics = self.joints[name].find("dynamics")
        if dynamics is not None:
            damping = one_number(dynamics, "damping", 0.0)
            if damping < 0:
                raise InputError(f"joint {name!r} has the negative damping {damping:g}")
            if made.coordinates:
                self.mechanism.torsion_spring(made, damping=damping)
            elif damping:
                self.left_out["dampers of spherical joints"] += 1
            dry = one_number(dynamics, "friction", 0.0)
            if dry != 0 and self.friction and made.coordinates:
                self.mechanism.friction(made, dry)
            elif dry != 0:
                self.left_out["dry friction of joints"] += 1
        limit = self.joints[name].find("limit")
        if limit is not None and self.joints[name].get("type") != "continuous":
            lower, upper = (one_number(limit, key, 0.0) for key in ("lower", "upper"))
            turn = bool(made.coordinates) and made.coordinates[0].kind == "angle"
            wide = turn and upper - lower >= 2 * np.pi
            if wide and self.limits == "ignore":
                return  # hardly a limit
            if wide or self.limits == "ignore" or not made.coordinates or not lower < upper:
                self.left_out["limits of joints"] += 1
            else:
                self.ranges.append((made, lower, upper))

    def _transmissions(self) -> None:
        """Add the actuators of transmissions as motors."""
        for transmission in self.robot.findall("transmission"):
            joint, actuators = transmission.find("joint"), transmission.findall("actuator")
            made = None if joint is None else self.made.get(joint.get("name", ""))
            if made is None or not made.coordinates or not actuators:
                self.left_out["<transmission> without a joint that moves, or without an actuator"] += 1
                continue
            for actuator in actuators:
                ratio = actuator.find("mechanicalReduction")
                text = "" if ratio is None else (ratio.text or "").strip()
                try:
                    gear = float(text or 1)
                except ValueError:
                    self.left_out["mechanicalReduction that is not a number, taken as 1"] += 1
                    gear = 1.0
                name = actuator.get("name") or required(transmission, "name")
                self.mechanism.motors[name] = Motor(name, made, geared(gear))

    def _mimic(self, name: str, joint: Element) -> None:
        mimic = joint.find("mimic")
        if mimic is None:
            return
        leader = required(mimic, "joint")
        if name not in self.made:
            self.left_out["<mimic> of joints that do not move"] += 1
            return
        if leader not in self.made:
            what = "do not move" if leader in self.joints else "do not exist"
            self.left_out[f"<mimic> of leaders that {what}"] += 1
            return
        if leader == name:
            raise InputError(f"joint {name!r} mimics itself")
        factor = one_number(mimic, "multiplier", 1.0)
        offset = one_number(mimic, "offset", 0.0)
        first, second = self.made[leader].coordinates[0], self.made[name].coordinates[0]
        row, whole = coupling_row([(-factor, first), (1.0, second)], offset)
        if not whole:
            self.left_out["full turns of mimic joints whose multiplier is no ratio of small numbers"] += 1
        self.mechanism._add_gear(f"{name} (mimic)", self.made[leader], self.made[name], row, (factor, offset))

    def _loop(self, loop: Element) -> None:
        """`<loop_joint name type><link1 link xyz rpy/><link2 .../><axis/></loop_joint>`."""
        name, kind = required(loop, "name"), loop.get("type", "revolute")
        known = {**KINDS, "spherical": "spherical", "ball": "spherical", "fixed": "fixed", "universal": "universal"}
        if kind not in known or kind == "universal":
            raise InputError(f"loop joint {name!r} has the unknown type {kind!r}")
        ends = []
        for tag in ("link1", "link2"):
            element, link = _end_of(loop, tag, self.where, f"loop joint {name!r}")
            body, pose = self.where[link]
            xyz = numbers(element, "xyz", 3, (0, 0, 0))
            own = (xyz, roll_pitch_yaw(numbers(element, "rpy", 3, (0, 0, 0))))
            ends.append((body, after(pose, own)))
        axis = numbers(loop.find("axis"), "xyz", 3, (0, 0, 1))
        (a, pa), (b, pb) = ends
        self.mechanism.joint(
            known[kind], name, a, b, point_a=pa[0], point_b=pb[0], axis_a=pa[1] @ axis, axis_b=pb[1] @ axis
        )

    def _shapes(self, body: Body, link: Element, pose: Pose) -> None:
        for visual in link.findall("visual"):
            geometry = visual.find("geometry")
            at, turn = after(pose, _pose(visual))
            for child in [] if geometry is None else geometry:
                if child.tag not in SHAPES:
                    self.left_out[f"<{child.tag}> shapes"] += 1
                    continue
                make, sizes = SHAPES[child.tag]
                values = [float(x) for key, count in sizes.items() for x in numbers(child, key, count)]
                if min(values) > 0:
                    body.shapes.append((make(*values), at, turn))
                else:
                    self.left_out["shapes without extent"] += 1
