"""Reductions of a trajectory to one value inside the loop: `simulate_ensemble(..., reduce={"top": Maximum(fn)})`."""

from .observe import AbstractReducer as AbstractReducer
from .observe import FirstPassage as FirstPassage
from .observe import Maximum as Maximum
from .observe import Mean as Mean
from .observe import Minimum as Minimum
