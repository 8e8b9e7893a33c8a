"""Every method of the registry with its variants, other solvers and settings, and the wrappers around all of them."""

from __future__ import annotations

import functools
from typing import Any

import jax

import holonomix as hx
from holonomix.mechanics import Capability
from holonomix.mechanics.projection import AbstractSolver

from .features import Features

HUGE = 1e40  # a temperature at which every proposal is accepted
INNER = 2  # steps of a proposal
YOSHIDA = (1 / (2 - 2 ** (1 / 3)), -(2 ** (1 / 3)) / (2 - 2 ** (1 / 3)), 1 / (2 - 2 ** (1 / 3)))
# Tend to a motion of their own as dt falls (tests/methods/test_traits.py).
OWN_LIMIT = ("MollifiedImpulse", "ProjectedImpulse")


def _deterministic(method: Any) -> Any:
    """The same sampler without noise."""
    if isinstance(method, hx.GLA):
        return hx.GLA(method.method, friction=0.0, symmetric=method.symmetric)
    if isinstance(method, hx.GeodesicBAOAB):
        return hx.GeodesicBAOAB(friction=0.0, geodesic_steps=method.geodesic_steps)
    if isinstance(method, hx.ConstrainedHMC):
        return hx.ConstrainedHMC(inner_steps=INNER, friction=0.0, temperature=HUGE)
    return method


def _extras() -> dict[str, Any]:
    """Settings that no variant of the registry has."""
    a, b, c = YOSHIDA
    return {
        "RATTLE/symmetric": hx.RATTLE(hx.SymmetricNewton()),
        "RATTLE/sor": hx.RATTLE(hx.SOR(1.1)),
        "RATTLE/gauss-seidel": hx.RATTLE(hx.GaussSeidel()),
        "SHAKE/symmetric": hx.SHAKE(solver=hx.SymmetricNewton()),
        "HBVM/corrected": hx.HBVM(6, 2, start="corrected", momentum="projected"),
        "HBVM/newton": hx.HBVM(6, 2, iteration="newton"),
        "HBVM/fixed-point": hx.HBVM(6, 2, iteration="fixed-point"),
        "LineIntegral/newton": hx.LineIntegral(4, iteration="newton"),
        "VRATTLE/arc-length": hx.VRATTLE(hx.monitors.ArcLengthMonitor()),
        "Splitting/order-4": hx.Splitting((a / 2, (a + b) / 2, (b + c) / 2, c / 2), (a, b, c, 0.0)),
    }


@functools.cache
def methods() -> dict[str, Any]:
    """Name -> method. Wrappers are named after what they wrap: `Composition[Gauss-1]`, `GLA[HBVM]`."""
    plain = {}
    for name, entry in hx.methods.registry().items():
        for k, make in enumerate((entry.make, *entry.variants)):
            plain[f"{name}-{k}" if k else name] = _deterministic(make())
    plain |= _extras()
    wrapped = {}
    for name, method in plain.items():
        if name.startswith(("Composition", "GLA")):
            continue
        for label, wrap in WRAPPERS.items():
            if label == "GLA-symmetric" and name not in SYMMETRIC:
                continue
            try:
                wrapped[f"{label}[{name}]"] = wrap(method)
            except hx.MethodError:
                continue
    return plain | wrapped


SYMMETRIC = ("RK4", "HBVM", "HBVM-3", "Gauss-1", "LineIntegral", "LobattoIIIAB", "ZhangSkeel", "Taylor")
WRAPPERS = {
    "Composition": lambda method: hx.Composition(method, order=4),
    "GLA": lambda method: hx.GLA(method, friction=0.0),
    "GLA-symmetric": lambda method: hx.GLA(method, friction=0.0, symmetric=True),
}


def accepting_redundant(method: Any) -> Any:
    """The same method with solvers that accept rows which depend on each other."""
    is_solver = lambda x: isinstance(x, AbstractSolver)
    accepting = lambda x: hx.Newton(redundant="min-norm") if is_solver(x) else x
    return jax.tree.map(accepting, method, is_leaf=is_solver)


def base(method: Any) -> Any:
    """The method inside of all wrappers."""
    while hasattr(method, "method"):
        method = method.method
    return method


def declared(method: Any, features: Features) -> Any:
    """The traits that the method declares for such a system, or None where it declares none."""
    kind = "free" if features.kind == "stiff" and "stiff" not in method.traits else features.kind
    traits = method.traits.get(kind)
    return None if traits is None or features.needs - set(traits.treats) else traits


def suits(method: Any, features: Features) -> bool:
    """Whether the method should run on such a system: declared, and of the geometry that it is for."""
    if declared(method, features) is None:
        return False
    if base(method).family == "so3":  # one rotation matrix with the mass of a rigid body
        rigid = features.mass == "scalar"
        return features.geometry == "rotation" and rigid
    if isinstance(base(method), hx.RungeKutta) and Capability.REDUNDANT in features.needs:
        return False
    return True
