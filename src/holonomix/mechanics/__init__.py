"""Mechanical systems."""

from ..core.scene import Scene as Scene
from ..trace.signatures import TimeDependent as TimeDependent
from .abstract import AbstractSystem as AbstractSystem
from .capabilities import Capability as Capability
from .constraints import Rheonomic as Rheonomic
from .fixman import fixman as fixman
from .fixman import fixman_potential as fixman_potential
from .mass import BlockMass as BlockMass
from .mass import as_mass as as_mass
from .potentials import LocalPotential as LocalPotential
from .potentials import Pairs as Pairs
from .problem import Problem as Problem
from .resonance import ResonanceWatch as ResonanceWatch
from .resonance import resonances as resonances
from .stiff import StiffSystem as StiffSystem
from .stiff import effective as effective
from .stiff import resonance_watch as resonance_watch
from .structured import Distance as Distance
from .structured import Local as Local
from .system import System as System
