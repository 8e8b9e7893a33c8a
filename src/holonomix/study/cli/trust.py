"""Decide which Python file a run file may execute: only one that the user has authorized.

A run of the user's own Python file records the path and the SHA-256 of the file in run.toml. Beside it, run.seal holds
a hash of run.toml that is keyed with a secret of the user, so other users who make or alter a store cannot produce it.
`resume`, and commands that read a run file, execute the recorded file only if the seal is the user's own. For any other
store, `resume` executes only the file that the user names. For any other run file, the commands execute its file only
with `--trust`. A file inside a store, or one whose SHA-256 differs, is never executed.
"""

from __future__ import annotations

import hmac
from pathlib import Path

from holonomix.core.private import keyed_hash
from holonomix.run.io import StoreDamagedError, StoreError, is_store
from holonomix.run.io.disk import read_regular

from .exits import CommandError
from .runfile import RunSpec

SEAL = "run.seal"
DESCRIPTIONS = (".urdf", ".xml")  # of robots, which are read and not executed


def make_seal(text: str) -> str:
    """The keyed hash of a run file; empty if the user's secret cannot be stored."""
    found = keyed_hash("run file", text.encode())
    return "" if found is None else found.hex()


def is_own_seal(data: bytes, seal: bytes) -> bool:
    """Whether this user sealed the run file."""
    found = keyed_hash("run file", data)
    return found is not None and hmac.compare_digest(found.hex().encode(), seal.strip())


def check_run_file(file: Path, data: bytes, spec: RunSpec, trust: bool) -> None:
    """Raise if a run file names a Python file that the user has not authorized."""
    path = Path(str(spec.system))
    if path.suffix.lower() in DESCRIPTIONS:
        return
    try:
        own = is_own_seal(data, read_regular(file.with_name(SEAL), 64 + 2))
    except OSError:
        own = False
    if is_store(file.parent):
        trusted_file(file.parent, spec, path if trust else None, own)
    elif not own and not trust:
        raise CommandError(
            f"{file} asks to run the Python file {path}, which is not run on the word of a run file. If you wrote "
            f"it or have read it, say so: add --trust. Or name it yourself: `holonomix run {path}`"
        )


def trusted_file(store: Path, spec: RunSpec, named: Path | None, own: bool) -> Path:
    """The Python file to execute; raises with the reason if there is none."""
    if spec.system is None:
        raise CommandError(f"--system {named}: the run in {store} is of the model {spec.model}, not of a Python file")
    if spec.system_sha256 is None:
        raise StoreDamagedError(f"{store / 'run.toml'} does not record the SHA-256 of {spec.system}: it is not run")
    if named is None and not own:
        raise StoreError(
            f"{store} asks to run the Python file {spec.system}, and nothing shows that you started it: a store from "
            "elsewhere, or a run file that was changed. It is not run. If you know the file and trust it, name it: "
            f"`holonomix resume {store} --system FILE.py`"
        )
    path = Path(spec.system) if named is None else named
    if path.resolve().is_relative_to(store.resolve()):
        raise StoreError(f"{path} lies inside the store {store}: what a store holds is never run. Read it, and copy it")
    return path.absolute()
