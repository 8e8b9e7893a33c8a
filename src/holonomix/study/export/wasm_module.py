"""Link one object file of LLVM into a WebAssembly module.

The object imports its memory and its stack pointer and has relocations for data addresses. The linker defines memory
and stack pointer, applies the relocations, and exports functions. Address fields have a fixed width, so no code moves.
Imported functions come first in object and module, so function indices do not change. Format: the WebAssembly
specification, and "Linking.md" of WebAssembly/tool-conventions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

from ...core.errors import InputError

PAGE = 1 << 16
STACK_BYTES = 1 << 17  # kernels keep at most 32 kB of arrays on the stack
CUSTOM, TYPE, IMPORT, FUNCTION, MEMORY, GLOBAL, EXPORT, CODE, DATA_COUNT, DATA = 0, 1, 2, 3, 5, 6, 7, 10, 12, 11
ORDER = (TYPE, IMPORT, FUNCTION, MEMORY, GLOBAL, EXPORT, DATA_COUNT, CODE, DATA)
SYMBOL_TABLE, SEGMENT_INFO = 8, 5
FUNCTION_SYMBOL, DATA_SYMBOL, SECTION_SYMBOL = 0, 1, 3
UNDEFINED, EXPLICIT_NAME = 0x10, 0x40
# kinds of relocations: how the number is written, and whether it is an address
UNSIGNED, SIGNED, WORD = "unsigned", "signed", "word"
RELOCATIONS = {0: (UNSIGNED, False), 3: (UNSIGNED, True), 4: (SIGNED, True), 5: (WORD, True), 6: (UNSIGNED, False),
               7: (UNSIGNED, False)}  # fmt: skip
TYPE_INDEX = 6
# functions of JavaScript's Math that modules may import
MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh exp expm1 log log10 log1p log2 pow sin sinh tan tanh".split()
)


class Reader:
    """Numbers and names from bytes."""

    def __init__(self, data: bytes, at: int = 0):
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """An unsigned LEB128 number."""
        return self._leb128()[0]

    def signed(self) -> int:
        """A signed LEB128 number: the highest bit that is given is the sign."""
        value, bits = self._leb128()
        return value - (1 << bits) if value >> (bits - 1) else value

    def _leb128(self) -> tuple[int, int]:
        """A number and how many of its bits are given."""
        value = bits = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << bits
            bits += 7
            if byte < 128:
                return value, bits

    def bytes(self) -> bytes:
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at]

    def name(self) -> str:
        return self.bytes().decode()

    def more(self) -> bool:
        return self.at < len(self.data)


def leb(value: int) -> bytes:
    """An unsigned LEB128 number."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (128 if value else 0))
        if not value:
            return bytes(out)


def sleb(value: int) -> bytes:
    """A signed LEB128 number."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        done = (value == 0 and not low & 64) or (value == -1 and low & 64)
        out.append(low | (0 if done else 128))
        if done:
            return bytes(out)


def padded(value: int) -> bytes:
    """Five bytes of LEB128; a signed number has the same form as long as it is below 2^31."""
    return bytes((value >> 7 * k & 127) | (128 if k < 4 else 0) for k in range(5))


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A function by its index, or data by its segment and the place in it."""

    kind: int
    flags: int
    index: int
    name: str = ""
    place: int = 0


@dataclasses.dataclass
class Segment:
    """Data: the bytes, where they stand in the section, their alignment and their address in memory."""

    start: int
    data: bytes
    align: int = 1
    address: int = 0


class WasmObject:
    """An object file taken apart."""

    def __init__(self, data: bytes):
        if data[:8] != b"\0asm\1\0\0\0":
            raise ValueError("not a WebAssembly object")
        self.sections: dict[int, bytearray] = {}
        self.order: list[int] = []  # of sections, as relocations count them
        self.symbols: list[Symbol] = []
        self.segments: list[Segment] = []
        self.imported_functions: list[tuple[str, int]] = []  # name and type
        aligns: list[int] = []
        relocations: list[bytes] = []
        reader = Reader(data, 8)
        while reader.more():
            kind = reader.byte()
            content = reader.bytes()
            self.order.append(kind)
            if kind != CUSTOM:
                self.sections[kind] = bytearray(content)
                continue
            part = Reader(content)
            name = part.name()
            if name == "linking":
                aligns = self._linking(part)
            elif name.startswith("reloc."):
                relocations.append(content[part.at :])
        self._imports()
        self._segments(aligns)
        self.relocations = relocations

    def _linking(self, part: Reader) -> list[int]:
        aligns: list[int] = []
        part.number()  # version
        while part.more():
            kind, inner = part.byte(), Reader(part.bytes())
            if kind == SYMBOL_TABLE:
                self.symbols = [self._symbol(inner) for _ in range(inner.number())]
            elif kind == SEGMENT_INFO:
                for _ in range(inner.number()):
                    inner.name()
                    aligns.append(1 << inner.number())
                    inner.number()  # flags
        return aligns

    @staticmethod
    def _symbol(inner: Reader) -> Symbol:
        kind, flags = inner.byte(), inner.number()
        if kind == DATA_SYMBOL:
            name = inner.name()
            if flags & UNDEFINED:
                return Symbol(kind, flags, -1, name)
            index, place = inner.number(), inner.number()
            inner.number()  # size
            return Symbol(kind, flags, index, name, place)
        index = inner.number()
        named = kind != SECTION_SYMBOL and (not flags & UNDEFINED or flags & EXPLICIT_NAME)
        return Symbol(kind, flags, index, inner.name() if named else "")

    def _imports(self) -> None:
        reader = Reader(bytes(self.sections.get(IMPORT, b"\0")))
        for _ in range(reader.number()):
            reader.name()
            name, kind = reader.name(), reader.byte()
            if kind == 0:
                self.imported_functions.append((name, reader.number()))
            elif kind == 3:  # the stack pointer
                reader.byte()
                reader.byte()
            else:  # a table or the memory: limits, after the type of a table's elements
                if kind == 1:
                    reader.byte()
                limited = reader.byte() & 1
                reader.number()
                if limited:
                    reader.number()

    def _segments(self, aligns: list[int]) -> None:
        reader = Reader(bytes(self.sections.get(DATA, b"\0")))
        for k in range(reader.number()):
            if reader.number() != 0:
                raise ValueError("a data segment that is not at a place in memory")
            reader.byte()  # i32.const, the address, end
            reader.signed()
            reader.byte()
            size = reader.number()
            start = reader.at
            reader.at += size
            self.segments.append(Segment(start, reader.data[start : start + size], aligns[k] if aligns else 16))

    def relocate(self) -> None:
        """Fill in all addresses."""
        for content in self.relocations:
            reader = Reader(content)
            kind_of_section = self.order[reader.number()]
            if kind_of_section not in (CODE, DATA):
                continue  # names for debuggers
            section = self.sections[kind_of_section]
            for _ in range(reader.number()):
                kind, offset, index = reader.byte(), reader.number(), reader.number()
                if kind not in RELOCATIONS:
                    raise ValueError(f"a relocation of kind {kind}")
                form, is_address = RELOCATIONS[kind]
                extra = reader.signed() if is_address else 0
                value = index
                if is_address:
                    symbol = self.symbols[index]
                    value = self.segments[symbol.index].address + symbol.place + extra
                elif kind != TYPE_INDEX:
                    value = self.symbols[index].index
                new = value.to_bytes(4, "little") if form == WORD else padded(value)
                section[offset : offset + len(new)] = new


def module_of(data: bytes, names: list[str], imports: Collection[str] = ()) -> bytes:
    """The module, which exports these functions, `memory`, and `__heap_base` (the first free address).

    Functions in `imports` may be missing in the object; the module imports them from "env".
    """
    found = WasmObject(data)
    missing = [name for name, _ in found.imported_functions if name not in imports]
    missing += [s.name for s in found.symbols if s.kind == DATA_SYMBOL and s.index < 0]
    if missing:
        raise InputError(
            f'the step calls {", ".join(sorted(set(missing)))}, which WebAssembly does not have; form="c" can call them'
        )
    end = STACK_BYTES
    for segment in found.segments:
        end = segment.address = -(-end // segment.align) * segment.align
        end += len(segment.data)
    found.relocate()
    heap = -(-end // 64) * 64
    functions = {s.name: s.index for s in found.symbols if s.kind == FUNCTION_SYMBOL}
    entries = [_text(name) + b"\0" + leb(functions[name]) for name in names]
    entries += [_text("memory") + b"\2\0", _text("__heap_base") + b"\3\1"]
    sections = {kind: bytes(content) for kind, content in found.sections.items()}
    sections.pop(IMPORT, None)
    if found.imported_functions:
        needed = [_text("env") + _text(name) + b"\0" + leb(kind) for name, kind in found.imported_functions]
        sections[IMPORT] = leb(len(needed)) + b"".join(needed)
    sections[MEMORY] = b"\1\0" + leb(-(-heap // PAGE) + 1)
    sections[GLOBAL] = b"\2" + b"\x7f\1\x41" + sleb(STACK_BYTES) + b"\x0b" + b"\x7f\0\x41" + sleb(heap) + b"\x0b"
    sections[EXPORT] = leb(len(entries)) + b"".join(entries)
    if found.segments:
        data_section = sections[DATA]
        sections[DATA] = leb(len(found.segments)) + b"".join(_segments(found.segments, data_section))
    return b"\0asm\1\0\0\0" + b"".join(
        bytes([kind]) + leb(len(sections[kind])) + sections[kind] for kind in ORDER if kind in sections
    )


def _segments(segments: list[Segment], section: bytes) -> Iterator[bytes]:
    for segment in segments:
        content = section[segment.start : segment.start + len(segment.data)]
        yield b"\0\x41" + sleb(segment.address) + b"\x0b" + leb(len(content)) + content


def _text(name: str) -> bytes:
    return leb(len(name)) + name.encode()
