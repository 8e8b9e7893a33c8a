"""Running methods: `integrate`, `simulate`, `simulate_ensemble`, `explain`."""

from .adjoints import Checkpointed as Checkpointed
from .adjoints import Reversible as Reversible
from .ensemble import Ensemble as Ensemble
from .ensemble import simulate_ensemble as simulate_ensemble
from .events import Event as Event
from .explain import explain as explain
from .integrate import integrate as integrate
from .observe import FirstPassage as FirstPassage
from .observe import Maximum as Maximum
from .observe import Mean as Mean
from .observe import Minimum as Minimum
from .simulate import simulate as simulate
from .solution import Solution as Solution
