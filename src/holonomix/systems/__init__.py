"""Mechanical systems."""

from .constraints import Rheonomic as Rheonomic
from .mass import as_mass as as_mass
from .mass import check_mass as check_mass
from .system import System as System
