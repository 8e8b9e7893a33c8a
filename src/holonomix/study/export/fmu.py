"""A functional mock-up unit (FMI 2.0 and 3.0, co-simulation): a zip of a library and modelDescription.xml."""

from __future__ import annotations

import hashlib
import itertools
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import jax
import numpy as np

from ...core.checks import short_repr
from ...core.errors import InputError
from ...core.status import Status
from ...run.loop import Loop
from .kernels import Kernel, param_name

NOT_ALLOWED = re.compile(
    "[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)  # XML 1.0, section 2.2, and no tabs or lines
OUTPUT, START, PARAMETER, INPUT = "OUTPUT", "START", "PARAMETER", "INPUT"  # as in fmu.c
# exponents of kg, m, s, rad
UNITS = {
    "s": (0, 0, 1, 0), "m": (0, 1, 0, 0), "kg": (1, 0, 0, 0), "rad": (0, 0, 0, 1), "m/s": (0, 1, -1, 0),
    "rad/s": (0, 0, -1, 1), "m/s2": (0, 1, -2, 0), "kg.m/s": (1, 1, -1, 0), "kg.m2": (1, 2, 0, 0),
    "kg.m2/s": (1, 2, -1, 0), "N": (1, 1, -2, 0), "N.m": (1, 2, -2, 0), "J": (1, 2, -2, 0), "W": (1, 2, -3, 0),
    "N/m": (1, 0, -2, 0), "N.s/m": (1, 0, -1, 0), "1": (0, 0, 0, 0),
}  # fmt: skip


class Variable(NamedTuple):
    """A variable of the unit: numbers in the block of the kernel."""

    name: str
    offset: int
    shape: tuple[int, ...]
    kind: str
    start: np.ndarray
    text: str

    @property
    def size(self) -> int:
        return self.start.size

    def elements(self) -> list[Variable]:
        """One variable per number, as FMI 2.0 needs them: `q[1,2]`."""
        if not self.shape:
            return [self]
        places = itertools.product(*(range(n) for n in self.shape))
        return [
            self._replace(name=f"{self.name}[{','.join(str(i + 1) for i in place)}]", offset=self.offset + 8 * k,
                          shape=(), start=self.start[place])
            for k, place in enumerate(places)
        ]  # fmt: skip


def check_inputs(loop: Loop, inputs: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """Map inputs to leaves of `params`; raise if the form or the method does not allow them."""
    if loop.method.adaptive:
        raise InputError(
            f"{loop.method.name} chooses its own steps and does not end at communication points: an FMU needs a method "
            "with a fixed dt"
        )
    if not float(loop.consts.dt) > 0:
        raise InputError(f"dt = {float(loop.consts.dt):g}: the time of an FMU runs forward, so dt must be positive")
    if inputs is None:
        return {}
    if isinstance(inputs, str) or not isinstance(inputs, Mapping | list | tuple):
        raise InputError(f"inputs must be a list of parameters, or a dict from names to parameters, not {inputs!r}")
    if inputs and not loop.method.one_step:
        raise InputError(
            f"{loop.method.name} uses earlier steps, which a changed input makes invalid: inputs need a one-step "
            "method such as RATTLE()"
        )
    found = dict(inputs) if isinstance(inputs, Mapping) else {name: name for name in inputs}
    if twice := [leaf for leaf in found.values() if list(found.values()).count(leaf) > 1]:
        raise InputError(f"two inputs are for the parameter {twice[0]!r}")
    return found


def shortens(loop: Loop) -> bool:
    """Whether the last step before a communication point may be shorter than dt."""
    method = loop.method
    return method.one_step and not method.stochastic and method.traits_on(loop.system).symplectic is False


def check_rows(loop: Loop, inputs: dict[str, str]) -> None:
    """Raise if constraints depend on inputs, because inputs jump at communication points."""
    if not inputs or not loop.constrained:
        return
    system, q, t = loop.lane_system(0), loop.q0[0], loop.consts.t0
    places = {param_name(path): k for k, (path, _) in enumerate(jax.tree_util.tree_flatten_with_path(system.params)[0])}
    leaves, tree = jax.tree.flatten(system.params)
    rows = np.asarray(system.constraint(q, t))
    for name, leaf in inputs.items():
        if leaf not in places:
            continue  # `variables_of` raises for unknown parameters
        k = places[leaf]
        others = [*leaves[:k], 1.5 * leaves[k] + 1.0, *leaves[k + 1 :]]
        there = system.with_params(jax.tree.unflatten(tree, others))
        if not np.array_equal(rows, there.constraint(q, t), equal_nan=True):
            raise InputError(
                f"input {name!r} changes the constraints, and a jump at a communication point would violate them: "
                "inputs may affect only forces and potentials"
            )


def variables_of(kernel: Kernel, inputs: dict[str, str]) -> list[Variable]:
    """All variables, in the order of their value references in FMI 3.0."""
    floats = lambda fields: {name: f for name, f in fields.items() if f.dtype == np.float64 and f.count}
    parameters = floats(kernel.parameters())
    for name, leaf in inputs.items():
        if leaf not in parameters:
            known = ", ".join(parameters) or "none; give the system params, or a mechanism a motor with a name"
            raise InputError(f"input {name!r}: the system has no parameter {leaf!r} of floats; there are: {known}")
    shown = {"q": "positions", "p": "momenta"}
    found = [(name, kernel.fields[name], START, text) for name, text in shown.items()]
    found += [(name, f, OUTPUT, "") for name, f in floats(kernel.observables()).items()]
    commanded = set(inputs.values())
    found += [(name, f, PARAMETER, "") for name, f in parameters.items() if name not in commanded]
    found.append(("dt", kernel.fields["dt"], PARAMETER, "step size"))
    found += [(name, parameters[leaf], INPUT, "") for name, leaf in inputs.items()]
    taken = {"time"}
    if odd := next((name for name, *_ in found if NOT_ALLOWED.search(name)), None):
        raise InputError(f"the variable {odd!r} has a character that FMI does not allow: choose another name")
    out = [Variable("time", kernel.fields["t"].offset, (), OUTPUT, np.zeros(()), "")]
    for name, field, kind, text in found:
        if name in taken and name not in inputs:
            name = f"{'params' if kind == PARAMETER else 'observable'}.{name}"
        if name in taken:
            raise InputError(f"two variables of the unit are called {name!r}; give the input another name")
        taken.add(name)
        out.append(Variable(name, field.offset, field.shape, kind, kernel.value(field), text))
    return out


def check_units(units: Any, variables: list[Variable]) -> None:
    if not isinstance(units, Mapping) or not all(isinstance(unit, str) for unit in units.values()):
        raise InputError(f'units must be a dict from variables to texts such as "N.m", not {short_repr(units)}')
    known = [v.name for v in variables]
    for name in units:
        if name not in known:
            raise InputError(f"units: there is no variable {name!r}; there are: {', '.join(known)}")


def sources(
    kernel: Kernel,
    variables: list[Variable],
    version: int,
    token: str,
    resizes: bool,
    template: Callable[[str], str],
    filled: Callable[..., str],
) -> str:
    """The C wrapper around the kernel."""
    project = "    /* the system has no projection */"
    if kernel.projects:
        project = (
            f"    status = {kernel.name}_project(&s->block);\n    if (status) return fail(c, \"no consistent state is "
            'near the start that was set: %s", status_text(status));'
        )  # fmt: skip
    t0, n = kernel.clock
    return filled(
        "fmu.c",
        INTERFACE=template(f"fmi{version}.c"),
        VARIABLES="\n".join(f'  {{{v.offset}, {v.size}, {v.kind}, "{_c(v.name)}"}},' for v in variables),
        STATUS=", ".join(f'"{_c(f"{s.message}; {s.advice}")}"' for s in Status),
        PROJECT=project,
        ORIGIN=str(t0.offset),
        STEP_COUNT=str(n.offset),
        SHORTENS=str(int(resizes)),
        TOKEN=token,
        METHOD=_c(kernel.method).replace("%", "%%"),  # the name goes into a printf format
        NAME=kernel.name,
    )


def _c(text: str) -> str:
    """Text in a string of C."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found[0]):03o}", escaped)


def token_of(*parts: Any) -> str:
    """An identifier of this unit, equal for equal contents."""
    text = hashlib.sha256(repr(parts).encode()).hexdigest()
    return f"{{{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}}}"


def description(
    kernel: Kernel,
    loop: Loop,
    variables: list[Variable],
    version: int,
    token: str,
    resizes: bool,
    units: Mapping[str, str],
) -> bytes:
    """modelDescription.xml."""
    from ... import __version__

    dt, problem = float(loop.consts.dt), loop.problem
    title = NOT_ALLOWED.sub(" ", (problem.name if problem else "") or kernel.name)
    root = ElementTree.Element("fmiModelDescription", {"fmiVersion": f"{version}.0", "modelName": title})
    root.set("instantiationToken" if version == 3 else "guid", token)
    root.set("description", f"{title}, {kernel.method} with dt = {dt:g}")
    root.set("generationTool", f"holonomix {__version__}")
    root.set("variableNamingConvention", "flat")
    able = {"modelIdentifier": kernel.name, "canHandleVariableCommunicationStepSize": "true"}
    able["canGetAndSetFMUState" if version == 3 else "canGetAndSetFMUstate"] = "true"
    able["canSerializeFMUState" if version == 3 else "canSerializeFMUstate"] = "true"
    if version == 3 and not resizes:
        able["fixedInternalStepSize"] = repr(dt)
    ElementTree.SubElement(root, "CoSimulation", able)
    _units(root, {"s", *units.values()})
    categories = ElementTree.SubElement(root, "LogCategories")
    ElementTree.SubElement(categories, "Category", {"name": "logStatusError", "description": "errors"})
    start = float(loop.consts.t0)
    end = start + (float(problem.t1) if problem else dt)
    times = {"startTime": repr(start), "stopTime": repr(end), "stepSize": repr(dt)}
    ElementTree.SubElement(root, "DefaultExperiment", times)
    listed = ElementTree.SubElement(root, "ModelVariables")
    structure = ElementTree.Element("ModelStructure")
    outputs, unknowns = [], []
    for reference, v in enumerate(variables):
        facts = {"name": v.name, "valueReference": str(reference), **_causality(v, reference)}
        typed = {"unit": units[v.name.partition("[")[0]]} if v.name.partition("[")[0] in units else {}
        if facts.get("initial") != "calculated" and facts["causality"] != "independent":
            typed["start"] = " ".join(repr(float(x)) for x in np.ravel(v.start))
        if v.text:
            facts["description"] = v.text
        if version == 2:
            outer = ElementTree.SubElement(listed, "ScalarVariable", facts)
            ElementTree.SubElement(outer, "Real", typed)
        else:
            outer = ElementTree.SubElement(listed, "Float64", {**facts, **typed})
            for n in v.shape:
                ElementTree.SubElement(outer, "Dimension", {"start": str(n)})
        if facts["causality"] == "output":
            outputs.append(reference)
            if facts["initial"] == "calculated":
                unknowns.append(reference)
    root.append(structure)
    if version == 3:
        for kind, several in (("Output", outputs), ("InitialUnknown", unknowns)):
            for reference in several:
                ElementTree.SubElement(structure, kind, {"valueReference": str(reference)})
    else:
        for kind, several in (("Outputs", outputs), ("InitialUnknowns", unknowns)):
            if several:
                group = ElementTree.SubElement(structure, kind)
                for reference in several:
                    ElementTree.SubElement(group, "Unknown", {"index": str(reference + 1)})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _causality(v: Variable, reference: int) -> dict[str, str]:
    if reference == 0:
        return {"causality": "independent", "variability": "continuous"}
    return {
        START: {"causality": "output", "variability": "continuous", "initial": "exact"},
        OUTPUT: {"causality": "output", "variability": "continuous", "initial": "calculated"},
        PARAMETER: {"causality": "parameter", "variability": "fixed", "initial": "exact"},
        INPUT: {"causality": "input", "variability": "continuous"},
    }[v.kind]


def _units(root: ElementTree.Element, names: set[str]) -> None:
    listed = ElementTree.SubElement(root, "UnitDefinitions")
    for name in sorted(names):
        unit = ElementTree.SubElement(listed, "Unit", {"name": name})
        if name in UNITS:
            powers = zip(("kg", "m", "s", "rad"), UNITS[name], strict=True)
            ElementTree.SubElement(unit, "BaseUnit", {base: str(n) for base, n in powers if n})


def pack(path: Path, files: Mapping[str, bytes]) -> None:
    """A zip file whose bytes do not depend on when it is written."""
    with zipfile.ZipFile(path, "w") as out:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            out.writestr(info, content)
