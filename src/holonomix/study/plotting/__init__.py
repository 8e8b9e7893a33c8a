"""Matplotlib figures of problems, solutions, ensembles and certificates. Notebooks display them; no window opens."""

from .animation import animate as animate
from .certificate import plot_certificate as plot_certificate
from .ensemble import plot_ensemble as plot_ensemble
from .notebook import Picture as Picture
from .notebook import facts_html as facts_html
from .notebook import solution_html as solution_html
from .phase import plot_phase as plot_phase
from .phase import poincare as poincare
from .phase import spectrum as spectrum
from .quantities import invariants as invariants
from .quantities import multipliers as multipliers
from .solution import plot_constraints as plot_constraints
from .solution import plot_energy as plot_energy
from .solution import plot_problem as plot_problem
from .solution import plot_scene as plot_scene
from .solution import plot_solution as plot_solution
from .work_precision import work_precision as work_precision
