"""The Zarr store of a run, its checkpoints, and exports."""

from .directory import FORMAT as FORMAT
from .directory import is_store as is_store
from .ensemble import EnsembleStore as EnsembleStore
from .ensemble import StorePlace as StorePlace
from .environment import current_environment as current_environment
from .environment import environment_changes as environment_changes
from .errors import StoreBusyError as StoreBusyError
from .errors import StoreDamagedError as StoreDamagedError
from .errors import StoreError as StoreError
from .errors import StoreExistsError as StoreExistsError
from .errors import StoreFullError as StoreFullError
from .errors import StoreLinkError as StoreLinkError
from .errors import StoreNotFoundError as StoreNotFoundError
from .errors import StoreVersionError as StoreVersionError
from .errors import StoreWriteError as StoreWriteError
from .store import Store as Store
from .stores import open_sweep as open_sweep
from .stores import verify as verify
from .xyz import export_xyz as export_xyz
