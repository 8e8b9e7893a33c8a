from ..build import atoms as atoms
from ..study import plotting as plotting
from ..study import viewer as viewer

SOURCES: dict[str, str]
