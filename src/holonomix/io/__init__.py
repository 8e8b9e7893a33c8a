"""The Zarr store of a run, its checkpoints, and exports."""

from .directory import FORMAT, is_store
from .ensemble import EnsembleStore, StorePlace
from .environment import current_environment, environment_changes
from .errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreExistsError,
    StoreFullError,
    StoreLinkError,
    StoreNotFoundError,
    StoreVersionError,
    StoreWriteError,
)
from .store import Store
from .sweeps import open_sweep
from .verify import verify
from .xyz import export_xyz

__all__ = [
    "FORMAT",
    "EnsembleStore",
    "Store",
    "StoreBusyError",
    "StoreDamagedError",
    "StoreError",
    "StoreExistsError",
    "StoreFullError",
    "StoreLinkError",
    "StoreNotFoundError",
    "StorePlace",
    "StoreVersionError",
    "StoreWriteError",
    "current_environment",
    "environment_changes",
    "export_xyz",
    "is_store",
    "open_sweep",
    "verify",
]
