"""Models from MuJoCo XML files (MJCF)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InputError, number
from .bodies import Body
from .joints import Joint, coupling_row
from .mechanism import Mechanism
from .mjcf_geometry import Defaults, Given, geom_inertia, geom_pose, geom_shape, orientation
from .xml_files import HERE, Pose, after, composite, moved, naming, numbers, one_number, read_xml, required, warn_about

LEFT_OUT = ("actuator", "contact", "tendon", "sensor", "keyframe", "deformable", "extension")
GENERATED = ("include", "replicate", "composite", "flexcomp", "attach")
CORRECTIONS = ("settotalmass", "boundmass", "boundinertia", "balanceinertia")
FLUID = ("density", "viscosity", "wind")
FLAGS = ("constraint", "equality", "passive", "spring", "damper")
NOTHING = (None, "0", "-1", "false", "0 0 0")
KNOWN_JOINTS = ("hinge", "slide", "ball", "free")


def from_mjcf(
    path: str | Path,
    *,
    gravity: Any = None,
    positions: Mapping[str, Any] | None = None,
    velocities: Mapping[str, Any] | None = None,
) -> Mechanism:
    """The model of a MuJoCo XML file, with joints at `positions` and their rates `velocities`.

    Read are bodies (those without joints become part of what they hang from), inertias (given, or of geoms with their
    density), hinge, slide, ball and free joints, their damping and stiffness, and `connect`, `weld` and `joint` of
    `<equality>`, which here hold exactly. Two hinges of one body become a universal joint, two slides and a hinge a
    planar one, three hinges a ball. Positions of joints count from the pose in the file, also where a joint has a
    `ref`; that of a ball is a rotation. A joint called like a body is `m["joint NAME"]`. A warning lists what was left
    out (contacts, actuators, limits, armatures).
    """
    with naming(path):
        return _Reader(Path(path), gravity).read(positions or {}, velocities or {})


@dataclasses.dataclass(frozen=True)
class _Part:
    """A `<body>` without joints, or with those of its lump; `pose` is that in the lump."""

    name: str
    element: Any
    class_name: str
    pose: Pose


class _Reader:
    def __init__(self, path: Path, gravity: Any):
        self.path = path
        self.root = read_xml(path, "mujoco")
        settings = self._section("compiler")
        self.degrees = settings.get("angle", "degree") != "radian"
        self.euler = settings.get("eulerseq", "xyz")
        self.from_geoms = settings.get("inertiafromgeom", "auto")
        self.groups = numbers(settings, "inertiagrouprange", 2, (0, 5))
        self.defaults = Defaults(self.root)
        self.unsupported = [f"<{tag}>" for tag in LEFT_OUT if self.root.find(tag) is not None]
        self.unsupported += [f"<compiler {key}>" for key in CORRECTIONS if settings.get(key) not in NOTHING]
        for tag in GENERATED:
            if self.root.find(f".//{tag}") is not None:
                raise InputError(f"<{tag}> is not read; flatten the file first (mujoco can save one)")
        found = self._gravity()
        self.mechanism = Mechanism(found if gravity is None else gravity, name=self.root.get("model") or path.stem)
        self.bodies: dict[str, tuple[Body, Pose]] = {}
        self.sites: dict[str, tuple[Body, Pose]] = {}
        self.joints: dict[str, tuple[Joint, int, float] | None] = {}  # joint, number and sign of its position
        self.unnamed = 0

    def _section(self, tag: str) -> Given:
        """The attributes of a section, which may come in several parts."""
        return Given(tag, {key: value for part in self.root.findall(tag) for key, value in part.attrib.items()})

    def _gravity(self) -> np.ndarray:
        option = self._section("option")
        self.unsupported += [f"<option {key}>" for key in FLUID if option.get(key) not in NOTHING]
        flags = {key: value for part in self.root.findall("option/flag") for key, value in part.attrib.items()}
        self.unsupported += [f"<flag {key}>" for key in FLAGS if flags.get(key) == "disable"]
        found = numbers(option, "gravity", 3, (0.0, 0.0, -9.81))
        return np.zeros(3) if flags.get("gravity") == "disable" else found

    def read(self, positions: Mapping[str, Any], velocities: Mapping[str, Any]) -> Mechanism:
        worlds = self.root.findall("worldbody")
        if not worlds:
            raise InputError("there is no <worldbody>")
        for world in worlds:
            parts, hanging = self._collect(world, HERE, "")
            self._register(parts, self.mechanism.ground)
            for element, class_name, at in hanging:
                self._body(element, class_name, self.mechanism.ground, at)
        for element in [x for section in self.root.findall("equality") for x in section]:
            self._equality(element)
        if any(geom.get("contype") != "0" for geom in self.root.iter("geom")):
            self.unsupported.append("contacts of geoms")
        self.mechanism.unsupported = list(dict.fromkeys(self.unsupported))
        warn_about(self.path, self.unsupported)
        self.mechanism.configure(self._by_joint(positions), self._by_joint(velocities))
        return self.mechanism

    def _by_joint(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Positions or rates by joints of the file, some of which are parts of one joint here."""
        out: dict[str, Any] = {}
        for name, value in given.items():
            joint, which, sign = self.joints.get(name) or (None, 0, 1.0)
            if joint is not None and len(joint.coordinates) > 1 and np.ndim(value) == 0:
                out.setdefault(joint.name, np.zeros(len(joint.coordinates)))[which] = sign * number(
                    f"joint {name!r}", value
                )
            elif joint is None and name in self.joints and name not in self.mechanism._names:
                raise InputError(
                    f"joint {name!r} is part of another joint here, whose position is a rotation or a list"
                )
            else:
                out[name if joint is None else joint.name] = value
        return out

    def _pose(self, element: Any) -> Pose:
        at = numbers(element, "pos", 3, (0, 0, 0))
        return at, orientation(element, self.degrees, self.euler)

    def _members(self, element: Any, class_name: str, pose: Pose = HERE) -> Iterator[tuple[Any, str, Pose]]:
        """The children of a body with their default class; those of a `<frame>` with the pose of the frame."""
        for child in element:
            if child.tag == "frame":
                yield from self._members(child, child.get("childclass", class_name), after(pose, self._pose(child)))
            else:
                yield child, class_name, pose

    def _collect(self, element: Any, pose: Pose, inherited: str) -> tuple[list[_Part], list[tuple[Any, str, Pose]]]:
        """A body with the bodies fixed to it, and the bodies that hang from these by joints, with their poses."""
        self.unnamed += 1
        name = "world" if element.tag == "worldbody" else element.get("name") or f"body {self.unnamed}"
        class_name = element.get("childclass", inherited)
        if element.get("gravcomp") not in NOTHING:
            self.unsupported.append("gravcomp of bodies")
        parts, hanging = [_Part(name, element, class_name, pose)], []
        for child, own_class, frame in self._members(element, class_name):
            if child.tag == "body":
                where = after(pose, after(frame, self._pose(child)))
                if any(x.tag in ("joint", "freejoint") for x, *_ in self._members(child, own_class)):
                    hanging.append((child, own_class, where))
                else:
                    more = self._collect(child, where, own_class)
                    parts, hanging = parts + more[0], hanging + more[1]
        return parts, hanging

    def _body(self, element: Any, inherited: str, parent: Body, at: Pose) -> None:
        """A body that moves, all that hangs from it, and the joint to its parent; `at` is its pose in the world."""
        parts, hanging = self._collect(element, HERE, inherited)
        name = parts[0].name
        lumps = [lump for part in parts for lump in self._inertia(part)]
        if not lumps:
            raise InputError(f"body {name!r} moves but has no mass: give it an <inertial> or geoms")
        mass, center, inertia = composite(lumps)
        label = self._label("body", name)
        body = self.mechanism.body(label, mass=mass, inertia=inertia, center=center, position=at[0], rotation=at[1])
        self._register(parts, body)
        members = self._members(element, parts[0].class_name)
        self._joints(name, [x for x in members if x[0].tag in ("joint", "freejoint")], parent, body, at)
        for child, class_name, pose in hanging:
            self._body(child, class_name, body, after(at, pose))

    def _label(self, kind: str, name: str) -> str:
        return name if name not in self.mechanism._names else f"{kind} {name}"

    def _register(self, parts: list[_Part], body: Body) -> None:
        """Names, sites and shapes of the parts of a body."""
        for part in parts:
            if part.name in self.bodies and part.name != "world":
                raise InputError(f"there are two bodies called {part.name!r}")
            self.bodies[part.name] = (body, part.pose)
            for child, class_name, frame in self._members(part.element, part.class_name):
                if child.tag == "site" and child.get("name") is not None:
                    given = self.defaults.of(child, class_name)
                    self.sites[child.get("name")] = (body, after(part.pose, after(frame, self._pose(given))))
                if child.tag == "geom" and not body.fixed:
                    given = self.defaults.of(child, class_name)
                    shape = geom_shape(given)
                    if shape is not None:
                        pose = after(frame, geom_pose(given, self.degrees, self.euler))
                        body.shapes.append((shape, *after(part.pose, pose)))

    def _inertia(self, part: _Part) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """Masses, centers and inertias of a part, in coordinates of its lump."""
        given = part.element.find("inertial")
        if given is not None and self.from_geoms != "true":
            mass = one_number(given, "mass")
            if mass < 0:
                raise InputError(f"body {part.name!r} has the negative mass {mass:g}")
            return [moved(part.pose, (mass, *self._given_inertia(part.name, given)))] if mass else []
        lumps = []
        for child, class_name, frame in self._members(part.element, part.class_name):
            if child.tag == "geom" and self.from_geoms != "false":
                geom = self.defaults.of(child, class_name)
                group = one_number(geom, "group", 0.0)
                found = geom_inertia(geom, self.degrees, self.euler)
                if found is not None and self.groups[0] <= group <= self.groups[1]:
                    lumps.append(moved(after(part.pose, frame), found))
        return lumps

    def _given_inertia(self, name: str, given: Any) -> tuple[np.ndarray, np.ndarray]:
        center, turn = self._pose(given)
        if given.get("fullinertia") is not None:
            xx, yy, zz, xy, xz, yz = numbers(given, "fullinertia", 6)
            return center, np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if given.get("diaginertia") is None:
            raise InputError(f"the <inertial> of body {name!r} has no diaginertia or fullinertia")
        return center, turn @ np.diag(numbers(given, "diaginertia", 3)) @ turn.T

    def _joints(self, name: str, members: list[tuple[Any, str, Pose]], parent: Body, body: Body, at: Pose) -> None:
        found = []
        for element, class_name, frame in members:
            given = self.defaults.of(element, class_name) if element.tag == "joint" else element
            kind = given.get("type", "hinge") if element.tag == "joint" else "free"
            if kind not in KNOWN_JOINTS:
                known = ", ".join(KNOWN_JOINTS)
                raise InputError(f"joint {given.get('name')!r} has the unknown type {kind!r}; known: {known}")
            if given.get("name") in self.joints:
                raise InputError(f"there are two joints called {given.get('name')!r}")
            if given.get("name") is not None:
                self.joints[given.get("name")] = None
            here = after(at, frame)
            axis = here[1] @ numbers(given, "axis", 3, (0, 0, 1))
            point = here[0] + here[1] @ numbers(given, "pos", 3, (0, 0, 0))
            found.append((kind, given, point, axis))
            for key in ("range", "armature", "frictionloss", "springdamper"):
                if given.get(key) not in NOTHING and kind != "free":
                    self.unsupported.append(f"{key} of joints")
        kinds = [kind for kind, *_ in found]
        if kinds == ["free"]:
            return self._lost(found[0][1], f"the free joint of {name!r}")
        label = self._label("joint", found[0][1].get("name") or f"{name} joint")
        self._one_joint(label, kinds, found, parent, body)

    def _one_joint(self, label: str, kinds: list[str], found: list[Any], parent: Body, body: Body) -> None:
        m = self.mechanism
        point, axis = found[-1][2], found[0][3]
        together = all(np.allclose(x[2], point, atol=1e-9) for x in found if x[0] != "slide")
        ordered = list(range(len(found)))
        if kinds in (["hinge"], ["slide"], ["ball"]):
            kind = {"hinge": "revolute", "slide": "prismatic", "ball": "spherical"}[kinds[0]]
            joint = m.joint(kind, label, parent, body, at=point, axis=axis if kinds != ["ball"] else None)
        elif kinds == ["hinge", "hinge"] and together:
            joint = m.universal(label, parent, body, at=point, axis=axis, axis2=found[1][3])
        elif kinds == ["hinge"] * 3 and together:
            joint = m.spherical(label, parent, body, at=point)
        elif sorted(kinds) == ["hinge", "slide"] and np.allclose(np.cross(found[0][3], found[1][3]), 0, atol=1e-9):
            ordered = [kinds.index("hinge"), kinds.index("slide")]
            axis = found[ordered[0]][3]
            joint = m.cylindrical(label, parent, body, at=found[ordered[0]][2], axis=axis)
        elif sorted(kinds) == ["hinge", "slide", "slide"]:
            ordered = []  # its slides are along axes of its own choice
            hinge = found[kinds.index("hinge")]
            joint = m.planar(label, parent, body, at=hinge[2], axis=hinge[3])
        else:
            raise InputError(
                f"body {body.name!r} has the joints {' + '.join(kinds)}, which no joint here stands for; put a light "
                "body between them"
            )
        for k, (_, given, _, way) in enumerate(found):
            which = ordered.index(k) if k in ordered else len(joint.coordinates)
            if which < len(joint.coordinates):
                backward = joint.kind == "cylindrical" and way @ axis < 0
                self._dynamics(joint, which, given, -1.0 if backward else 1.0)
            else:
                self._lost(given, f"the {joint.kind} joint of {body.name!r}")

    def _lost(self, given: Any, what: str) -> None:
        if any(given.get(key) not in NOTHING for key in ("damping", "stiffness")):
            self.unsupported.append(f"springs and dampers of {what}")

    def _dynamics(self, joint: Joint, which: int, given: Any, sign: float) -> None:
        name = given.get("name")
        if name is not None:
            self.joints[name] = (joint, which, sign)
        damping = float(numbers(given, "damping", None, 0.0).reshape(-1)[0])
        stiffness = float(numbers(given, "stiffness", None, 0.0).reshape(-1)[0])
        # where the file places the bodies a joint of MuJoCo has the position `ref`, ours zero
        rest, zero = (one_number(given, key, 0.0) for key in ("springref", "ref"))
        rest = sign * (rest - zero)
        if self.degrees and joint.coordinates[which].kind == "angle":
            rest = np.deg2rad(rest)
        if damping < 0 or stiffness < 0:
            raise InputError(f"joint {name!r} has negative damping or stiffness")
        self.mechanism.torsion_spring(joint, stiffness=stiffness, rest=rest, damping=damping, which=which)

    def _equality(self, element: Any) -> None:
        self.unnamed += 1
        name = self._label("equality", element.get("name") or f"{element.tag} {self.unnamed}")
        if element.get("active") == "false":
            return
        if element.tag == "joint":
            self._coupled(name, element)
        elif element.tag not in ("connect", "weld"):
            self.unsupported.append(f"<equality><{element.tag}>")
        elif element.get("site1") is not None:
            self._sites(name, element)
        else:
            self._bodies(name, element)

    def _bodies(self, name: str, element: Any) -> None:
        a, pose = self._known(name, "body", self.bodies, required(element, "body1"))
        b, _ = self._known(name, "body", self.bodies, element.get("body2", "world"))
        if element.tag == "connect":
            anchor = after(pose, (numbers(element, "anchor", 3), np.eye(3)))[0]
            self.mechanism.spherical(name, a, b, at=a.origin + a.attitude @ anchor)  # in body 1, as placed
        else:
            if np.any(numbers(element, "relpose", 7, np.zeros(7))[3:]):
                self.unsupported.append(f"relpose of the weld {name!r}, which holds the bodies as placed")
            self.mechanism.fixed(name, a, b, at=b.origin if a.fixed else a.origin)

    def _sites(self, name: str, element: Any) -> None:
        if element.tag == "weld":
            self.unsupported.append("<weld> between sites")
            return
        ends = [self._known(name, "site", self.sites, required(element, key)) for key in ("site1", "site2")]
        (a, first), (b, second) = ends
        self.mechanism.spherical(name, a, b, point_a=first[0], point_b=second[0])

    def _known(self, name: str, kind: str, known: dict[str, tuple[Body, Pose]], which: str) -> tuple[Body, Pose]:
        if which not in known:
            raise InputError(f"equality {name!r} refers to {kind} {which!r}, which does not exist")
        return known[which]

    def _coupled(self, name: str, element: Any) -> None:
        """`joint1 = a0 + a1 joint2` (higher powers are left out); without a second joint `joint1 = a0`."""
        terms, ends = [], []
        powers = numbers(element, "polycoef", 5, (0, 1, 0, 0, 0))
        for key, factor in (("joint1", 1.0), ("joint2", -float(powers[1]))):
            end = element.get(key)
            if end is None and key == "joint2":
                continue
            found = self.joints.get(str(end))
            if found is None:
                raise InputError(f"equality {name!r} couples joint {end!r}, which is no joint with a position here")
            ends.append(found)
            terms.append((factor * found[2], found[0].coordinates[found[1]]))
        if np.any(powers[2:]) and len(terms) == 2:
            self.unsupported.append(f"powers in the coupling {name!r}")
        row, _ = coupling_row(terms, float(powers[0]))
        (first, place, way), (second, other, sign) = ends[-1], ends[0]
        plain = len(ends) == 2 and place == other == 0
        relation = (sign * way * float(powers[1]), sign * float(powers[0])) if plain else None
        self.mechanism._add_gear(name, first, second, row, relation)
