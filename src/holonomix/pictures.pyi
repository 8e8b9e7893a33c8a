from . import plotting as plotting
from . import viewer as viewer

SOURCES: dict[str, str]
