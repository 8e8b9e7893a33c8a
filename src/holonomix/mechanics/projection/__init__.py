"""Multiplier solvers and projections onto the manifold."""

from .nearest import nearest_point as nearest_point
from .project import as_array as as_array
from .project import as_state_arrays as as_state_arrays
from .project import check_constant_mass as check_constant_mass
from .project import check_functions as check_functions
from .project import check_rank as check_rank
from .project import check_start as check_start
from .project import check_system as check_system
from .project import constraint_sizes as constraint_sizes
from .project import project as project
from .project import rounding_sizes as rounding_sizes
from .project import speed_sizes as speed_sizes
from .recovery import penalty_multipliers as penalty_multipliers
from .recovery import stiff_multipliers as stiff_multipliers
from .solvers import SINGULAR_PIVOT as SINGULAR_PIVOT
from .solvers import SOR as SOR
from .solvers import AbstractSolver as AbstractSolver
from .solvers import GaussSeidel as GaussSeidel
from .solvers import MomentumSolve as MomentumSolve
from .solvers import Newton as Newton
from .solvers import PositionSolve as PositionSolve
from .solvers import SymmetricNewton as SymmetricNewton
from .solvers import accepts_redundant as accepts_redundant
from .solvers import direct_momenta as direct_momenta
