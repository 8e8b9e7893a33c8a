"""Numbered records: a JSON file that holds the SHA-256 of itself and of the data file beside it.

A checkpoint of a run and a finished block of an ensemble are records. The JSON is renamed into place last: a record
either is complete or does not exist.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from .disk import Folder
from .errors import StoreDamagedError, StoreError
from .text import MAX_JSON_BYTES, read_signed, sign


@dataclasses.dataclass(frozen=True)
class Records:
    """The records in a folder. Data files end in `ending`, and the JSON holds their checksum under `sum_key`.

    `unique` is for records that several processes may write at once.
    """

    folder: Folder
    ending: str
    sum_key: str
    max_bytes: int
    unique: bool = False

    def numbers(self) -> list[int]:
        """The numbers of the records whose JSON exists, newest first, without reading them."""
        names = (n for n in self.folder.names() if re.fullmatch(r"\d{8}\.json", n))
        return sorted((int(name[:8]) for name in names), reverse=True)

    def save(self, number: int, body: dict[str, Any], data: bytes | None) -> None:
        """Write a record; it is valid once its JSON is renamed into place."""
        if data is not None:
            self.folder.write(f"{number:08d}.{self.ending}", data, unique=self.unique)
            body = {**body, self.sum_key: hashlib.sha256(data).hexdigest()}
        self.folder.write(f"{number:08d}.json", sign(body), unique=self.unique)
        self.folder.sync()

    def text(self, number: int) -> bytes:
        """The bytes of the JSON."""
        return self._read(f"{number:08d}.json", MAX_JSON_BYTES)

    def body(self, number: int) -> dict[str, Any]:
        """The content of the JSON, verified."""
        try:
            return read_signed(self.text(number))
        except ValueError as error:
            raise StoreDamagedError(f"{self.folder}/{number:08d}.json is damaged: {error}") from error

    def data(self, number: int, body: Mapping[str, Any]) -> bytes | None:
        """The verified bytes of the data file; None if the record has none."""
        wanted, name = body.get(self.sum_key), f"{number:08d}.{self.ending}"
        if wanted is None:
            return None
        data = self._read(name, self.max_bytes)
        if hashlib.sha256(data).hexdigest() != wanted:
            raise StoreDamagedError(f"{self.folder}/{name} is damaged: its SHA-256 differs")
        return data

    def is_forged(self, number: int) -> bool:
        """Whether a file of the record is sparse, too long, or not a regular file, without reading it."""
        for name, most in ((f"{number:08d}.json", MAX_JSON_BYTES), (f"{number:08d}.{self.ending}", self.max_bytes)):
            try:
                with self.folder.file(name) as (_, size):
                    if size > most:
                        return True
            except StoreError:
                return True
            except OSError:
                continue  # missing: reading it finds out
        return False

    def _read(self, name: str, most: int) -> bytes:
        try:
            return self.folder.read(name, most)
        except OSError as error:
            raise StoreDamagedError(f"{self.folder}/{name} cannot be read: {error.strerror}") from error
