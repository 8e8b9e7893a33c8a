"""Sparse linear systems with a fixed pattern, by compiled multifrontal elimination."""

from .foreign import available as available
from .operations import factor as factor
from .operations import shortest as shortest
from .operations import solution as solution
from .plan import Plan as Plan
from .plan import plan_of as plan_of
