"""Memory of the host that is used again, with a driver that only counts."""

import ctypes

import numpy as np

from holonomix.compiler import Unavailable, host_memory
from holonomix.compiler.host_memory import MIN_BYTES, HostMemory


class Locked:
    """Memory of this process in place of locked memory."""

    def __init__(self, most: int = 1 << 40):
        self.pieces, self.left, self.taken = {}, most, 0

    def allocate(self, size: int) -> int:
        if size > self.left:
            raise Unavailable("out of memory")
        self.left, self.taken = self.left - size, self.taken + 1
        piece = ctypes.create_string_buffer(size)
        self.pieces[ctypes.addressof(piece)] = piece
        return ctypes.addressof(piece)

    def free(self, address: int) -> None:
        self.left += len(self.pieces.pop(address))


def test_memory_is_used_again_when_the_last_array_in_it_is_gone():
    locked = Locked()
    memory = HostMemory(locked.allocate, locked.free)
    count = MIN_BYTES // 8 + 3
    first = memory.array((count,), np.dtype(float))
    first[:] = 1.0
    part = first[5:10]
    del first
    second = memory.array((count,), np.dtype(float))
    second[:] = 2.0
    assert locked.taken == 2 and (part == 1.0).all()
    del part
    third = memory.array((count, 1), np.dtype(np.int64))
    assert locked.taken == 2 and third.shape == (count, 1) and third.ctypes.data != second.ctypes.data


def test_small_arrays_and_those_beyond_the_limit_are_ordinary(monkeypatch):
    locked = Locked()
    memory = HostMemory(locked.allocate, locked.free)
    small = memory.array((3, 4), np.dtype(np.int32))
    assert small.shape == (3, 4) and small.dtype == np.int32 and not locked.taken
    monkeypatch.setattr(host_memory, "MAX_LOCKED", 3 * MIN_BYTES)
    held = memory.array((2 * MIN_BYTES,), np.dtype(np.uint8))
    assert memory.array((2 * MIN_BYTES,), np.dtype(np.uint8)).nbytes == 2 * MIN_BYTES and locked.taken == 1
    del held  # what is free makes room for another size
    assert memory.array((3 * MIN_BYTES,), np.dtype(np.uint8)).nbytes == 3 * MIN_BYTES
    assert locked.taken == 2 and len(locked.pieces) == 1
    empty = HostMemory(Locked(0).allocate, locked.free)
    assert empty.array((MIN_BYTES,), np.dtype(np.uint8)).shape == (MIN_BYTES,)
