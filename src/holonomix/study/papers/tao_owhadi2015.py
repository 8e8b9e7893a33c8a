"""Tao & Owhadi, Variational and linearly implicit integrators, with applications (IMA J. Numer. Anal. 2015).

The items are in modules by subject: pendula (sections 3, 4.1, 4.2), properties and theorems (section 2, appendix),
water (4.3), DNA (4.4), SO(3) (4.5), and computing times.
"""

from __future__ import annotations

from .items import Paper
from .tao_owhadi2015_dna import ITEMS as DNA
from .tao_owhadi2015_pendula import ITEMS as PENDULA
from .tao_owhadi2015_properties import ITEMS as PROPERTIES
from .tao_owhadi2015_so3 import ITEMS as SO3
from .tao_owhadi2015_theorems import ITEMS as THEOREMS
from .tao_owhadi2015_times import ITEMS as TIMES
from .tao_owhadi2015_water import ITEMS as WATER

PAPER = Paper(
    "tao_owhadi2015",
    "Tao & Owhadi, Variational and linearly implicit integrators, with applications (2015)",
    (*PROPERTIES, *THEOREMS, *PENDULA, *WATER, *DNA, *SO3, *TIMES),
)
