"""Measurements that tests of several packages share."""

import numpy as np

from holonomix.study.certificates import measure


def symplectic_defect(system, method, q, p, dt):
    """`max |T^T (J^T W J - W) T|` of one step on the cotangent bundle of the manifold; without constraints, T = I."""
    return measure.symplectic_defect(system.prepare(q), method, q, p, 0.0, dt)


def slope(steps, errors):
    """The observed order."""
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
