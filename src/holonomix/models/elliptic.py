"""Jacobi's elliptic functions and the integral of the first kind, in numpy, for the closed form of the pendulum."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["complete", "incomplete", "jacobi"]


def jacobi(u: Any, m: float) -> tuple[Any, Any, Any, Any]:
    """`(sn, cn, dn, am)` of u for the parameter `m = k^2` in [0, 1], by the arithmetic-geometric mean (A&S 16.4)."""
    u = np.asarray(u, float)
    if m == 1.0:
        sech = 1.0 / np.cosh(u)
        return np.tanh(u), sech, sech, np.arcsin(np.tanh(u))
    a, b, c = [1.0], np.sqrt(1.0 - m), [np.sqrt(m)]
    while abs(c[-1]) > 1e-17 and len(a) < 40:
        mean, half = (a[-1] + b) / 2, (a[-1] - b) / 2
        b = np.sqrt(a[-1] * b)
        a.append(mean)
        c.append(half)
    phi = 2.0 ** (len(a) - 1) * a[-1] * u
    for n in range(len(a) - 1, 0, -1):
        phi = (phi + np.arcsin(c[n] * np.sin(phi) / a[n])) / 2
    sn, cn = np.sin(phi), np.cos(phi)
    # 1 - m sn^2 without cancellation
    return sn, cn, np.sqrt((1.0 - m) + m * cn**2), phi


def incomplete(phi: float, m: float) -> float:
    """`F(phi | m)` for |phi| <= pi/2, through Carlson's symmetric integral R_F."""
    s, x, y, z = np.sin(phi), np.cos(phi) ** 2, 1.0 - m * np.sin(phi) ** 2, 1.0
    for _ in range(40):
        root = np.sqrt(x * y) + np.sqrt(y * z) + np.sqrt(z * x)
        x, y, z = (x + root) / 4, (y + root) / 4, (z + root) / 4
    return float(s / np.sqrt((x + y + z) / 3))


def complete(m: float) -> float:
    """`K(m)`, a quarter of the period."""
    return incomplete(np.pi / 2, m)
