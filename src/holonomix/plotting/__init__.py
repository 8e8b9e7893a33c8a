"""Figures of solutions and certificates, as matplotlib figures that belong to no window."""

from .certificate import plot_certificate as plot_certificate
from .solution import plot_constraints as plot_constraints
from .solution import plot_energy as plot_energy
from .solution import plot_solution as plot_solution
from .solution import plot_trajectory as plot_trajectory
