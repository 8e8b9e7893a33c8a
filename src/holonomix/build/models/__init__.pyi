# The models, for editors and type checkers; `__init__.py` reads them from here. A model is added by one line.
# ruff: noqa: I001  (the order is that of the documentation)

from collections.abc import Callable

from ...mechanics.problem import Problem
from .pendula import planar_pendulum as planar_pendulum
from .pendula import spherical_pendulum as spherical_pendulum
from .pendula import conical_pendulum as conical_pendulum
from .pendula import modified_pendulum as modified_pendulum
from .pendula import double_pendulum as double_pendulum
from .pendula import chain as chain
from .orbital import tethered_satellites as tethered_satellites
from .orbital import kepler as kepler
from .oscillators import henon_heiles as henon_heiles
from .oscillators import harmonic_oscillator as harmonic_oscillator
from .surfaces import bead_on_surface as bead_on_surface
from .water import water_cluster as water_cluster
from .stiff import stiff_spring_double_pendulum as stiff_spring_double_pendulum
from .stiff import penalized_double_pendulum as penalized_double_pendulum
from .stiff import penalized_chain as penalized_chain
from .stiff import double_pendulum_angles as double_pendulum_angles
from .stiff import dna_chain as dna_chain
from .bodies import rigid_body as rigid_body
from .bodies import magnetized_body as magnetized_body
from .bodies import heavy_top as heavy_top
from .alkanes import butane as butane
from .rod import cosserat_rod as cosserat_rod
from .linkages import slider_crank as slider_crank
from .linkages import four_bar as four_bar
from .linkages import watt as watt
from .linkages import planar_ring as planar_ring
from .linkages import rigid_molecules as rigid_molecules
from .linkages import mobile as mobile
from .machines import hoberman_ring as hoberman_ring
from .machines import jansen_leg as jansen_leg
from .machines import strandbeest as strandbeest
from .machines import stewart_platform as stewart_platform
from .machines import bennett_linkage as bennett_linkage
from .machines import bricard_linkage as bricard_linkage
from .machines import gyroscope as gyroscope
from .machines import seven_axis_arm as seven_axis_arm
from .iftomm import iftomm_a01 as iftomm_a01
from .iftomm import iftomm_a02 as iftomm_a02
from .iftomm import iftomm_a03 as iftomm_a03
from .iftomm import iftomm_a04 as iftomm_a04
from .iftomm import iftomm_a05 as iftomm_a05

MODELS: dict[str, str]

def registry() -> dict[str, Callable[..., Problem]]: ...
