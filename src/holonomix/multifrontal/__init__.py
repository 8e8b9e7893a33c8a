"""Sparse linear systems with a fixed pattern, by compiled multifrontal elimination."""

from __future__ import annotations

from .foreign import available
from .operations import factor, shortest, solution
from .plan import Plan, plan_of

__all__ = ["Plan", "available", "factor", "plan_of", "shortest", "solution"]
