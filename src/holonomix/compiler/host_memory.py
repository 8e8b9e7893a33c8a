"""Page-locked host memory, into which a GPU copies at full speed; it is reused.

A copy into fresh memory takes twenty times as long, because every page faults for the first time. Locking the pages
takes as long again. So a block of memory is kept when the arrays in it are gone.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable

import numpy as np

from .graph import Unavailable

MIN_BYTES, MAX_LOCKED = 1 << 20, 1 << 30  # bytes of an array worth locking, and of all locked memory
UNIT = 1 << 16

Allocate = Callable[[int], int]


class HostMemory:
    """Locked memory, in pieces that are in use or free; `allocate(size)` and `free(address)` are the driver's."""

    def __init__(self, allocate: Allocate, free: Callable[[int], None]):
        self._allocate, self._free_piece = allocate, free
        self._lock = threading.Lock()
        self._free: list[tuple[int, int]] = []  # size and address, those that were used last at the end
        self._locked = 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array with undefined values; in ordinary memory where it is small, or much is locked already."""
        wanted = math.prod(shape) * dtype.itemsize
        size = -(-wanted // UNIT) * UNIT
        address = self._take(size) if MIN_BYTES <= wanted else None
        if address is None:
            return np.empty(shape, dtype)
        piece = (ctypes.c_char * size).from_address(address)
        weakref.finalize(piece, self._give_back, size, address)  # when the last array in it is gone
        return np.frombuffer(memoryview(piece), dtype, wanted // dtype.itemsize).reshape(shape)

    def _take(self, size: int) -> int | None:
        """The address of a free or new piece of exactly `size` bytes, or None if no more memory may be locked.

        Other free pieces are unlocked, the oldest first, if there is no room for a new one.
        """
        with self._lock:
            for k in range(len(self._free) - 1, -1, -1):
                if self._free[k][0] == size:
                    return self._free.pop(k)[1]
            while self._free and self._locked + size > MAX_LOCKED:
                old, address = self._free.pop(0)
                self._free_piece(address)
                self._locked -= old
            if self._locked + size > MAX_LOCKED:
                return None
            try:
                address = self._allocate(size)
            except Unavailable:  # no more may be locked
                return None
            self._locked += size
            return address

    def _give_back(self, size: int, address: int) -> None:
        with self._lock:
            self._free.append((size, address))
