"""Which blocks of an ensemble are finished: a record per block, and once all are there a list of the records.

A block counts from the moment its record, `blocks/NNNNNNNN.json`, is renamed into place. When all blocks are finished,
`blocks.json` holds the SHA-256 of each record, and `status.json` says "closed". `verify` then notices if any of these
files is lost. Ensembles of older versions have no list, or say "new"; `list_all` completes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from typing import Any

from .directory import blank_status
from .disk import Folder
from .errors import StoreDamagedError, StoreError
from .layout import INTERNAL, whole_number
from .text import MOST_JSON, signed, unsigned

MOST_BLOCKS = 1 << 20  # of an ensemble
LIST, STATUS_FILE = "blocks.json", "status.json"
MOST_LIST = 128 * MOST_BLOCKS  # bytes


@dataclasses.dataclass(frozen=True)
class BlockRecords:
    """The records of an ensemble of `blocks` blocks, each of at most `size` trajectories."""

    root: Folder
    blocks: int
    size: int

    @property
    def inside(self) -> Folder:
        return self.root / INTERNAL

    def finished(self) -> set[int]:
        """The blocks that are there."""
        names = (self.inside / "blocks").names()
        return {int(n[:8]) for n in names if re.fullmatch(r"\d{8}\.json", n) and int(n[:8]) < self.blocks}

    def read(self, block: int) -> bytes:
        """The bytes of a record."""
        folder, name = self.inside / "blocks", f"{block:08d}.json"
        try:
            return folder.read(name, MOST_JSON)
        except OSError as error:
            raise StoreDamagedError(f"{folder}/{name} cannot be read: {error.strerror}") from error

    def body(self, block: int) -> dict[str, Any]:
        """What a record says, verified."""
        try:
            body = unsigned(self.read(block))
            counts = {int(code): whole_number(n, 0, self.size) for code, n in body["statuses"].items()}
            if body["block"] != block or sum(counts.values()) > self.size:
                raise ValueError("it belongs to another block")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreDamagedError(f"{self.root}: the record of block {block} is damaged: {error}") from error
        return body

    def counts(self, block: int) -> dict[int, int]:
        """How many trajectories of a finished block ended with each status."""
        return {int(code): n for code, n in self.body(block)["statuses"].items()}

    def list_all(self, written: int | None = None) -> None:
        """Once every block is there, list their checksums and close the ensemble.

        A list that is there stays, except for the block that was just written.
        """
        if len(self.finished()) < self.blocks:
            return
        sums = self._listed()
        have = None if sums is None else list(sums)
        if sums is None:
            sums = [self._digest(block) for block in range(self.blocks)]
        elif written is not None:
            sums[written] = self._digest(written)
        if sums != have:
            self.inside.write(LIST, signed({"blocks": sums}), unique=True)
        # last: a list in an ensemble that is not closed is valid, the reverse is damage
        if self._state() != "closed":
            self.inside.write(STATUS_FILE, blank_status("closed"), unique=True)

    def damaged(self) -> list[str]:
        """The list of a finished ensemble, and the records, that are missing or not as they were written."""
        closed = self._state() == "closed"
        if not closed and LIST not in self.inside.names():
            return []  # not finished, or of an older version
        sums = self._listed()
        if sums is None:
            bad = sorted({*range(self.blocks)} - self.finished()) if closed else []
        else:
            bad = [block for block, wanted in enumerate(sums) if self._digest_or_none(block) != wanted]
        records = [f"{INTERNAL}/blocks/{block:08d}.json" for block in bad]
        return [f"{INTERNAL}/{LIST}", *records] if sums is None else records

    def _digest(self, block: int) -> str:
        return hashlib.sha256(self.read(block)).hexdigest()

    def _digest_or_none(self, block: int) -> str | None:
        with contextlib.suppress(StoreError):
            return self._digest(block)
        return None

    def _listed(self) -> list[str] | None:
        """The checksums in the list of blocks; None where it is missing or damaged."""
        with contextlib.suppress(OSError, ValueError, KeyError, StoreError):
            sums = unsigned(self.inside.read(LIST, MOST_LIST))["blocks"]
            if isinstance(sums, list) and len(sums) == self.blocks and all(isinstance(x, str) for x in sums):
                return sums
        return None

    def _state(self) -> str | None:
        """The state in the status, "new" or "closed"; None where the status is missing or damaged."""
        with contextlib.suppress(OSError, ValueError, KeyError, StoreError):
            return str(unsigned(self.inside.read(STATUS_FILE, MOST_JSON))["state"])
        return None
