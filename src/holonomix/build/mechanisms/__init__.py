"""Mechanisms: bodies and joints, from Python, URDF or MJCF, that end in a `Problem`."""

from .bodies import Body as Body
from .joints import Joint as Joint
from .mechanism import Mechanism as Mechanism
from .shapes import Box as Box
from .shapes import Cylinder as Cylinder
from .shapes import Plate as Plate
from .shapes import Ring as Ring
from .shapes import Rod as Rod
from .shapes import Sphere as Sphere
