"""Linear algebra and iterations for the inside of a step."""

from .compensated import Compensation as Compensation
from .compensated import add as add
from .iterate import Iterated as Iterated
from .iterate import implicit_root as implicit_root
from .iterate import iterate as iterate
from .iterate import known_value as known_value
from .iterate import newton_root as newton_root
from .small import UNROLL as UNROLL
from .small import Dense as Dense
from .small import root as root
from .small import solve as solve
