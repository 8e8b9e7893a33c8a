"""Sidecar files of URDF robots that name closed loops and joints which URDF cannot express."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import InputError

UNIVERSAL = {f"UJOINT_{a}{b}" for a, b in itertools.permutations("XYZ", 2)}


def read_loops(given: str | Path | Mapping[str, Any] | None) -> dict[str, list[Any]]:
    """`closed_loop`, `type`, `joint_name` and `joint_type`, checked; lists are empty where nothing is given."""
    if given is not None and not isinstance(given, (str, Path, Mapping)):
        raise InputError(f"loops must be a YAML file or a dictionary, not {given!r}")
    found = {} if given is None else given if isinstance(given, Mapping) else _read(Path(given))
    for key in ("closed_loop", "type", "joint_name", "joint_type"):
        if not isinstance(found.get(key) or [], (list, tuple)):
            raise InputError(f"loops: {key} must be a list, not {found[key]!r}")
    pairs = list(found.get("closed_loop") or [])
    kinds = list(found.get("type") or ["6d"] * len(pairs))
    names, types = (list(found.get(key) or []) for key in ("joint_name", "joint_type"))
    types = [str(x).upper() for x in types]
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pairs):
        raise InputError("loops: closed_loop must list pairs of names")
    if len(kinds) != len(pairs) or any(kind not in ("6d", "3d") for kind in kinds):
        raise InputError(f'loops: type must be "6d" or "3d" for each of the {len(pairs)} pairs, not {kinds}')
    if len(names) != len(types):
        raise InputError(f"loops: there are {len(names)} entries of joint_name but {len(types)} of joint_type")
    for kind in types:
        if kind != "SPHERICAL" and kind not in UNIVERSAL:
            raise InputError(f"loops: unknown joint_type {kind!r}; there are SPHERICAL, {', '.join(sorted(UNIVERSAL))}")
    return {"closed_loop": pairs, "type": kinds, "joint_name": names, "joint_type": types}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        import yaml  # pyright: ignore[reportMissingModuleSource]
    except ImportError:
        raise InputError("YAML files are read by PyYAML: pip install 'holonomix[robots]'") from None
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from None
    if not isinstance(found, Mapping):
        raise InputError(f"{path} must have entries such as closed_loop and type")
    return found
