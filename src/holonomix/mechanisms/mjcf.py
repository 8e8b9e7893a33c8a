"""Models from MuJoCo XML files (MJCF)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .bodies import Body
from .joints import Joint, coupling_row
from .mechanism import Mechanism
from .mjcf_geometry import Defaults, geom_inertia, geom_pose, geom_shape, orientation
from .xml_files import attribute_numbers, composite, read_xml, required, warn_about

__all__ = ["from_mjcf"]

LEFT_OUT = ("actuator", "contact", "tendon", "sensor", "keyframe", "deformable", "extension")
KNOWN_JOINTS = ("hinge", "slide", "ball", "free")


def from_mjcf(
    path: str | Path,
    *,
    gravity: Any = None,
    positions: Mapping[str, Any] | None = None,
    velocities: Mapping[str, Any] | None = None,
) -> Mechanism:
    """The model of a MuJoCo XML file, with joints at `positions` and their rates `velocities`.

    Read are bodies, inertias (given, or of geoms with their density), hinge, slide, ball and free joints, their damping
    and stiffness, and `connect`, `weld` and `joint` of `<equality>`, which here hold exactly. Two hinges of one body
    become a universal joint, two slides and a hinge a planar one, three hinges a ball. A warning lists what was left
    out (contacts, actuators, limits, armatures).
    """
    return _Reader(Path(path), gravity).read(positions or {}, velocities or {})


class _Reader:
    def __init__(self, path: Path, gravity: Any):
        self.path = path
        self.root = read_xml(path, "mujoco")
        compiler = self.root.find("compiler")
        settings = {} if compiler is None else compiler.attrib
        self.degrees = settings.get("angle", "degree") != "radian"
        self.euler = settings.get("eulerseq", "xyz")
        self.defaults = Defaults(path, self.root)
        self.unsupported = [f"<{tag}>" for tag in LEFT_OUT if self.root.find(tag) is not None]
        if self.root.find(".//include") is not None:
            raise InputError(f"{path}: <include> is not read; flatten the file first (mujoco can save one)")
        option = self.root.find("option")
        found = attribute_numbers(path, option, "gravity", 3, (0.0, 0.0, -9.81))
        self.mechanism = Mechanism(found if gravity is None else gravity, name=self.root.get("model") or path.stem)
        self.bodies: dict[str, Body] = {"world": self.mechanism.ground}
        self.joints: dict[str, tuple[Joint, int]] = {}
        self.unnamed = 0

    def read(self, positions: Mapping[str, Any], velocities: Mapping[str, Any]) -> Mechanism:
        world = self.root.find("worldbody")
        if world is None:
            raise InputError(f"{self.path}: there is no <worldbody>")
        for body in world.findall("body"):
            self._body(body, self.mechanism.ground, (np.zeros(3), np.eye(3)), "")
        equality = self.root.find("equality")
        for element in [] if equality is None else equality:
            self._equality(element)
        if any(geom.get("contype") != "0" for geom in self.root.iter("geom")):
            self.unsupported.append("contacts of geoms")
        self.mechanism.unsupported = list(dict.fromkeys(self.unsupported))
        warn_about(self.path, self.unsupported)
        self.mechanism.configure(positions, velocities)
        return self.mechanism

    def _pose(self, element: Any) -> tuple[np.ndarray, np.ndarray]:
        at = attribute_numbers(self.path, element, "pos", 3, (0, 0, 0))
        return at, orientation(self.path, element, self.degrees, self.euler)

    def _body(self, element: Any, parent: Body, world: Any, inherited: str) -> None:
        own = self._pose(element)
        at = (world[0] + world[1] @ own[0], world[1] @ own[1])
        class_name = element.get("childclass", inherited)
        self.unnamed += 1
        name = element.get("name") or f"body {self.unnamed}"
        if name in self.bodies:
            raise InputError(f"{self.path}: there are two bodies called {name!r}")
        joints = [*element.findall("joint"), *element.findall("freejoint")]
        mass, center, inertia = self._inertia(name, element, class_name)
        if not joints and parent.fixed:
            self.bodies[name] = self.mechanism.ground
            body = self.mechanism.ground  # fixed to the world
            at_child = at
        else:
            if mass <= 0:
                raise InputError(f"{self.path}: body {name!r} moves but has no mass: give it an <inertial> or geoms")
            try:
                label = name if name not in self.mechanism._names else f"body {name}"
                body = self.mechanism.body(
                    label, mass=mass, inertia=inertia, center=center, position=at[0], rotation=at[1]
                )
            except InputError as error:
                raise InputError(f"{self.path}: {error}") from None
            self.bodies[name] = body
            at_child = at
            for geom in element.findall("geom"):
                given = self.defaults.of(geom, class_name)
                shape = geom_shape(self.path, given)
                if shape is not None:
                    body.shapes.append((shape, *geom_pose(self.path, given, self.degrees, self.euler)))
            self._joints(name, joints, parent, body, at, class_name)
        for child in element.findall("body"):
            self._body(child, body, at_child, class_name)

    def _inertia(self, name: str, element: Any, class_name: str) -> tuple[float, np.ndarray, np.ndarray]:
        given = element.find("inertial")
        if given is not None:
            mass = float(attribute_numbers(self.path, given, "mass", 1)[0])
            if not mass > 0:
                raise InputError(f"{self.path}: body {name!r} has the mass {mass:g}; it must be positive")
            center, turn = self._pose(given)
            if given.get("fullinertia") is not None:
                xx, yy, zz, xy, xz, yz = attribute_numbers(self.path, given, "fullinertia", 6)
                return mass, center, np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            if given.get("diaginertia") is None:
                raise InputError(f"{self.path}: the <inertial> of body {name!r} has no diaginertia or fullinertia")
            return mass, center, turn @ np.diag(attribute_numbers(self.path, given, "diaginertia", 3)) @ turn.T
        parts = []
        for geom in element.findall("geom"):
            found = geom_inertia(self.path, self.defaults.of(geom, class_name), self.degrees, self.euler)
            if found is not None:
                parts.append(found)
        return composite(parts) if parts else (0.0, np.zeros(3), np.zeros((3, 3)))

    def _joints(self, name: str, elements: list[Any], parent: Body, body: Body, at: Any, class_name: str) -> None:
        if not elements:
            self.mechanism.fixed(f"{name} (weld)", parent, body, at=at[0])
            return
        found = []
        for element in elements:
            given = self.defaults.of(element, class_name) if element.tag == "joint" else element
            kind = given.get("type", "hinge") if element.tag == "joint" else "free"
            if kind not in KNOWN_JOINTS:
                known = ", ".join(KNOWN_JOINTS)
                raise InputError(
                    f"{self.path}: joint {given.get('name')!r} has the unknown type {kind!r}; known: {known}"
                )
            axis = at[1] @ attribute_numbers(self.path, given, "axis", 3, (0, 0, 1))
            point = at[0] + at[1] @ attribute_numbers(self.path, given, "pos", 3, (0, 0, 0))
            found.append((kind, given, point, axis))
            for key in ("range", "armature", "frictionloss"):
                if given.get(key) not in (None, "0") and kind != "free":
                    self.unsupported.append(f"{key} of joints")
        kinds = [kind for kind, *_ in found]
        if kinds == ["free"]:
            return
        label = found[0][1].get("name") or f"{name} joint"
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
            self.unsupported.append(f"springs and dampers of the three hinges of {body.name!r}, now a ball joint")
            joint = m.spherical(label, parent, body, at=point)
        elif sorted(kinds) == ["hinge", "slide"] and np.allclose(np.cross(found[0][3], found[1][3]), 0, atol=1e-9):
            ordered = [kinds.index("hinge"), kinds.index("slide")]
            joint = m.cylindrical(label, parent, body, at=found[ordered[0]][2], axis=axis)
        elif sorted(kinds) == ["hinge", "slide", "slide"]:
            ordered = []  # the slides of a planar joint are along axes of its own choice
            self.unsupported.append(f"springs and dampers of the planar joint of {body.name!r}")
            hinge = found[kinds.index("hinge")]
            joint = m.planar(label, parent, body, at=hinge[2], axis=hinge[3])
        else:
            raise InputError(
                f"{self.path}: body {body.name!r} has the joints {' + '.join(kinds)}, which no joint here stands for; "
                "put a light body between them"
            )
        for which, k in enumerate(ordered):
            if which < len(joint.coordinates):
                self._dynamics(joint, which, found[k][1])

    def _dynamics(self, joint: Joint, which: int, given: Any) -> None:
        name = given.get("name")
        if name is not None:
            self.joints[name] = (joint, which)
        damping = float(attribute_numbers(self.path, given, "damping", None, 0.0).reshape(-1)[0])
        stiffness = float(attribute_numbers(self.path, given, "stiffness", None, 0.0).reshape(-1)[0])
        rest = float(attribute_numbers(self.path, given, "springref", 1, 0.0).reshape(()))
        if self.degrees and joint.coordinates[which].kind == "angle":
            rest = np.deg2rad(rest)
        if damping < 0 or stiffness < 0:
            raise InputError(f"{self.path}: joint {name!r} has negative damping or stiffness")
        self.mechanism.torsion_spring(joint, stiffness=stiffness, rest=rest, damping=damping, which=which)

    def _equality(self, element: Any) -> None:
        self.unnamed += 1
        name = element.get("name") or f"{element.tag} {self.unnamed}"
        if element.get("active") == "false":
            return
        if element.tag == "joint":
            return self._coupled(name, element)
        if element.tag not in ("connect", "weld"):
            self.unsupported.append(f"<equality><{element.tag}>")
            return None
        if element.get("site1") is not None:
            self.unsupported.append(f"<{element.tag}> between sites")
            return None
        a = self._known(name, required(self.path, element, "body1"))
        b = self._known(name, element.get("body2", "world"))
        if element.tag == "connect":
            anchor = attribute_numbers(self.path, element, "anchor", 3)  # in body 1, at the start
            world = a.origin + a.attitude @ anchor
            self.mechanism.spherical(name, a, b, at=world)
        else:
            self.mechanism.fixed(name, a, b, at=b.origin if a.fixed else a.origin)

    def _known(self, name: str, body: str) -> Body:
        if body not in self.bodies:
            raise InputError(f"{self.path}: equality {name!r} refers to body {body!r}, which does not exist")
        return self.bodies[body]

    def _coupled(self, name: str, element: Any) -> None:
        """`joint1 = a0 + a1 joint2` (higher powers are left out)."""
        ends = [element.get("joint1"), element.get("joint2")]
        for end in ends:
            if end not in self.joints:
                raise InputError(f"{self.path}: equality {name!r} couples joint {end!r}, which does not exist")
        powers = attribute_numbers(self.path, element, "polycoef", 5, (0, 1, 0, 0, 0))
        if np.any(powers[2:]):
            self.unsupported.append(f"powers in the coupling {name!r}")
        (first, k), (second, l) = (self.joints[str(end)] for end in ends)
        terms = [(1.0, first.coordinates[k]), (-float(powers[1]), second.coordinates[l])]
        row, _ = coupling_row(name, terms, float(powers[0]))
        self.mechanism._add_joint(Joint(name, "gear", first.b, second.b, [row], None))
