"""Which blocks of an ensemble are finished: a record per block, and once all are there a list of the records.

A block counts from the moment its record, `blocks/NNNNNNNN.json`, is renamed into place. When all blocks are finished,
`blocks.json` holds the SHA-256 of each record, and `status.json` says "closed". `verify` then notices if any of these
files is lost. Ensembles of older versions have no list, or say "new"; `list_all` completes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from typing import Any

import numpy as np

from .directory import STATUS_FILE, blank_status
from .disk import Folder
from .errors import StoreDamagedError, StoreError
from .layout import INTERNAL, whole_number
from .records import Records
from .text import MAX_JSON_BYTES, signed, unsigned

BLOCK_BYTES = 1 << 25
MAX_BLOCKS, MAX_BLOCK_TRAJECTORIES = 1 << 20, 1 << 16
MAX_ATTACHMENT_BYTES = 1 << 34
LIST = "blocks.json"
MAX_LIST_BYTES = 128 * MAX_BLOCKS


def block_size(trajectories: int, bytes_per_trajectory: int) -> int:
    """How many trajectories make a block of about 32 MB."""
    return max(1, min(trajectories, MAX_BLOCK_TRAJECTORIES, BLOCK_BYTES // max(1, bytes_per_trajectory)))


@dataclasses.dataclass(frozen=True)
class BlockRecords:
    """The records of an ensemble of `blocks` blocks, each of at most `size` trajectories."""

    root: Folder
    blocks: int
    size: int

    @property
    def inside(self) -> Folder:
        return self.root / INTERNAL

    @property
    def _records(self) -> Records:
        return Records(self.inside / "blocks", "bin", "attachment", MAX_ATTACHMENT_BYTES, unique=True)

    def finished(self) -> set[int]:
        """The blocks that are there."""
        return {number for number in self._records.numbers() if number < self.blocks}

    def save(self, block: int, statuses: np.ndarray, attached: bytes) -> None:
        """Record a block whose files are all on the device; `attached` is kept with it."""
        codes, counts = np.unique(statuses, return_counts=True)
        body: dict[str, Any] = {"block": block, "statuses": {str(code): int(n) for code, n in zip(codes, counts)}}
        self._records.save(block, body, attached or None)
        self.list_all(block)

    def _body(self, block: int) -> dict[str, Any]:
        """The content of a record, verified."""
        try:
            body = self._records.body(block)
            counts = {int(code): whole_number(n, 0, self.size) for code, n in body["statuses"].items()}
            if body["block"] != block or sum(counts.values()) > self.size:
                raise ValueError("it belongs to another block")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreDamagedError(f"{self.root}: the record of block {block} is damaged: {error}") from error
        return body

    def counts(self, block: int) -> dict[int, int]:
        """How many trajectories of a finished block ended with each status."""
        return {int(code): n for code, n in self._body(block)["statuses"].items()}

    def attachment(self, block: int) -> bytes:
        """The bytes that a finished block was given, verified; empty where there are none."""
        return self._records.data(block, self._body(block)) or b""

    def is_damaged(self, block: int) -> bool:
        """Whether the record of a block or its attachment is missing or not as it was written."""
        try:
            self.attachment(block)
        except StoreError:
            return True
        return False

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
        finished = self.finished()
        bad = {block for block in finished if self.is_damaged(block)}
        closed = self._state() == "closed"
        sums = self._listed()
        if sums is not None:
            bad |= {block for block, wanted in enumerate(sums) if self._digest_or_none(block) != wanted}
        elif closed:
            bad |= {*range(self.blocks)} - finished
        lost = sums is None and (closed or LIST in self.inside.names())  # else not finished, or of an older version
        records = [f"{INTERNAL}/blocks/{block:08d}.json" for block in sorted(bad)]
        return [f"{INTERNAL}/{LIST}", *records] if lost else records

    def _digest(self, block: int) -> str:
        return hashlib.sha256(self._records.text(block)).hexdigest()

    def _digest_or_none(self, block: int) -> str | None:
        with contextlib.suppress(StoreError):
            return self._digest(block)
        return None

    def _listed(self) -> list[str] | None:
        """The checksums in the list of blocks; None where it is missing or damaged."""
        with contextlib.suppress(OSError, ValueError, KeyError, StoreError):
            sums = unsigned(self.inside.read(LIST, MAX_LIST_BYTES))["blocks"]
            if isinstance(sums, list) and len(sums) == self.blocks and all(isinstance(x, str) for x in sums):
                return sums
        return None

    def _state(self) -> str | None:
        """The state in the status, "new" or "closed"; None where the status is missing or damaged."""
        with contextlib.suppress(OSError, ValueError, KeyError, StoreError):
            return str(unsigned(self.inside.read(STATUS_FILE, MAX_JSON_BYTES))["state"])
        return None
