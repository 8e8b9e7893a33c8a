"""The step of a problem as LLVM text that needs nothing else: one block of memory, and four functions of it.

`init` writes the start of the problem into a block, `start` begins at the `q`, `p` and `t` that stand in the block,
`project` moves these to the nearest consistent state, `step` takes steps. Every form of export calls these four.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...compiler.emit import KERNEL, KernelEmitter, Layout
from ...compiler.graph import Unsupported
from ...compiler.program import Program
from ...compiler.runner import ASKED_LIMIT, LoopBody, choose_program
from ...core.errors import InputError
from ...core.status import Status
from ...core.types import ArrayLike
from ...linalg.small import UNROLL
from ...mechanics.projection import direct_momenta, nearest_point
from ...run.loop import Loop
from ...run.stepper import Stepper

MAX_PROJECTION = 200  # iterations
ALIGN = 64


@dataclasses.dataclass(frozen=True)
class Field:
    """An array in the block: where it begins, and what it is."""

    name: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Text and memory of an exported step.

    `fields` are the arrays that users see: `t`, `q`, `p`, `dt`, `status`, `n`, each parameter as `params.NAME`, each
    observable as `obs.NAME`, and the `key` of a method with random numbers. `image` is a block at the problem's start.
    """

    name: str
    texts: tuple[str, ...]  # modules of LLVM IR
    fields: dict[str, Field]
    size: int  # bytes of a block
    image: bytes
    operations: int
    projects: bool
    no_projection: str  # the reason, where there is none
    method: str
    one_step: bool
    adaptive: bool
    wide: bool
    clock: tuple[Field, Field]  # time is t0 + n dt: the places of t0 and n

    def parameters(self) -> dict[str, Field]:
        return {name[7:]: f for name, f in self.fields.items() if name.startswith("params.")}

    def observables(self) -> dict[str, Field]:
        return {name[4:]: f for name, f in self.fields.items() if name.startswith("obs.")}

    def value(self, field: Field) -> np.ndarray:
        """The numbers of a field at the problem's start."""
        return np.frombuffer(self.image, field.dtype, field.count, field.offset).reshape(field.shape)


class Evaluate:
    """A function of a carry and constants as a loop that takes no step: its only row is the result."""

    def __init__(self, fn: Callable[..., Any]):
        self.read = fn

    def step(self, carry: PyTree, consts: PyTree) -> Any:
        return carry

    def halted(self, carry: PyTree, consts: PyTree) -> Any:
        return jnp.asarray(True)


class Measured:
    """A stepper whose rows also hold functions of (system, q, p, t), so that they follow the parameters."""

    def __init__(self, stepper: Stepper, measure: Mapping[str, Callable[..., Any]]):
        self.stepper, self.measure = stepper, measure
        self.step, self.halted = stepper.step, stepper.halted

    def read(self, carry: PyTree, consts: PyTree) -> Any:
        row, system = self.stepper.read(carry, consts), self.stepper.parts(consts)[0]
        place = (system, row["q"], row["p"], row["t"])
        return row | {f"obs/{name}": jnp.asarray(fn(*place)) for name, fn in self.measure.items()}


def _start(stepper: Stepper, carry: PyTree, consts: PyTree) -> Any:
    q, p, t = carry
    return stepper.start(dataclasses.replace(consts, t0=t), q, p), t


def _project(stepper: Stepper, redundant: bool, carry: PyTree, consts: PyTree) -> Any:
    q, p, t = carry
    system = stepper.parts(consts)[0]
    here, converged = nearest_point(system, q, t, MAX_PROJECTION, redundant, newton_size=UNROLL)
    there = direct_momenta(system, here, p, t, "min-norm" if redundant else None).p
    good = converged & jnp.isfinite(jnp.sum(jnp.abs(here)) + jnp.sum(jnp.abs(there)))
    status = jnp.where(good, Status.OK, Status.NOT_CONVERGED).astype(jnp.int32)
    return jnp.where(good, here, q), jnp.where(good, there, p), status


class Block:
    """Places of arrays in one piece of memory."""

    def __init__(self) -> None:
        self.end, self.values = 0, []

    def add(self, name: str, value: ArrayLike) -> Field:
        value = np.asarray(value, order="C")
        field = Field(name, self.reserve(value.nbytes), value.dtype, np.shape(value))
        self.values.append((field, value))
        return field

    def reserve(self, size: int) -> int:
        offset, self.end = self.end, self.end + -(-max(size, 1) // 8) * 8
        return offset

    def image(self) -> bytes:
        data = bytearray(self.size)
        for field, value in self.values:
            data[field.offset : field.offset + value.nbytes] = value.tobytes()
        return bytes(data)

    @property
    def size(self) -> int:
        return -(-self.end // ALIGN) * ALIGN


def make_kernel(
    loop: Loop, name: str, *, fma: bool, width: int, measure: Mapping[str, Callable[..., Any]] | None = None
) -> Kernel:
    """The kernel of a loop of one trajectory; `width` elements of a long axis are in one register.

    `measure` are observables as functions of (system, q, p, t), of the system with the parameters of the moment.
    """
    carry, row = (jax.tree.map(lambda x: np.asarray(x)[0], part) for part in loop.start())
    if loop.watch.events:
        raise InputError("an exported step cannot bounce; only simulate and simulate_ensemble treat bouncing stops")
    consts = jax.tree.map(np.asarray, loop.lane(0))
    if consts.dt.dtype != np.float64:
        raise _refusal(loop, "kernels are compiled for 64-bit floats only")
    block, given = Block(), (row["q"], row["p"], row["t"])
    stepper = loop.stepper
    if measure:
        stepper = Measured(loop.stepper, measure)
        row = jax.tree.map(np.asarray, stepper.read(carry, consts))
    stepping = _program(loop, stepper, carry, consts)
    starting = _program(loop, Evaluate(functools.partial(_start, loop.stepper)), given, consts)
    projecting, reason = None, "the system has no constraints"
    if loop.constrained:
        try:
            body = Evaluate(functools.partial(_project, loop.stepper, loop.redundant))
            projecting = _choose(body, given, consts)
        except Unsupported as error:
            reason = str(error)
    rows = {key: block.add(key.replace("/", "."), row[key]) for key in sorted(row)}
    paths = jax.tree_util.tree_flatten_with_path(consts)[0]
    constants = [block.add(_constant_name(path), value) for path, value in paths]
    _check_names([*rows.values(), *constants])
    leaves = jax.tree_util.tree_flatten_with_path(carry)[0]
    memory = [block.add("carry" + jax.tree_util.keystr(path), value) for path, value in leaves]
    projected = block.add("projected", np.zeros((), np.int32))
    unused = [block.add("unused", np.zeros_like(x)) for x in given]
    shown = [rows["q"], rows["p"], rows["t"]]
    t0 = next(f for f in constants if f.name == "t0")
    write = functools.partial(_text, fma=fma, width=width, block=block)
    step = write(stepping, f"{name}_steps", constants, memory, memory, [rows[key] for key in sorted(row)])
    start = write(starting, f"{name}_starts", constants, shown, unused, [*memory, t0])
    texts = [step, start]
    if projecting is not None:
        texts.append(write(projecting, f"{name}_projects", constants, shown, unused, [*shown[:2], projected]))
    status = next(f for f in memory if f.name == "carry.status")
    entries = _entries(name, block.size, block.image(), texts, status, projected)
    fields = {
        f.name: f for f in (*rows.values(), *constants) if not f.name.startswith((".", "step.", "t_end", "n_end"))
    }
    fields["status"] = dataclasses.replace(status, name="status")
    fields.pop("t0")
    clock = t0, next(f for f in memory if f.name == "carry.state.n")
    return Kernel(
        name=name,
        texts=(*(text.module for text in texts), entries),
        fields=fields,
        size=block.size,
        image=block.image(),
        operations=stepping.operations,
        projects=projecting is not None,
        no_projection="" if projecting is not None else reason,
        method=loop.method.name,
        one_step=loop.method.one_step,
        adaptive=loop.method.adaptive,
        wide=stepping.wide,
        clock=clock,
    )


def _check_names(fields: list[Field]) -> None:
    """Raise if two parameters, such as `a["b"]` and `"a.b"`, or two observables have one name."""
    names = [f.name for f in fields]
    for name in names:
        kind, _, rest = name.partition(".")
        if kind in ("params", "obs") and names.count(name) > 1:
            what = "parameters" if kind == "params" else "observables"
            raise InputError(f"an exported step would have two {what} called {rest!r}: rename one of them")


def _choose(body: LoopBody, carry: PyTree, consts: PyTree) -> Program:
    return choose_program(body, carry, consts, True, False, ASKED_LIMIT)


def _program(loop: Loop, body: LoopBody, carry: PyTree, consts: PyTree) -> Program:
    try:
        return _choose(body, carry, consts)
    except Unsupported as error:
        raise _refusal(loop, f"array path, because {error}") from error


def _refusal(loop: Loop, reason: str) -> InputError:
    what = f" on {loop.name}" if loop.name else ""
    return InputError(f"{loop.method.name}{what} cannot be exported: {reason} (hx.explain says the same)")


def _constant_name(path: tuple[Any, ...]) -> str:
    """`params.NAME` for what users set, the field of `Consts` for numbers of the run, a path for other arrays."""
    text = jax.tree_util.keystr(path)
    head = ".arrays[0].params"
    if text.startswith(head):
        return f"params.{param_name(path[_depth(head) :])}"
    return text[1:] if text[1:].isidentifier() else text


def param_name(path: tuple[Any, ...]) -> str:
    """The name of a leaf of params."""
    return ".".join(_key(k) for k in path) or "params"


def _depth(head: str) -> int:
    return head.count(".") + head.count("[")


def _key(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


@dataclasses.dataclass(frozen=True)
class Text:
    """A module, the name of its function, and the words that the function receives: numbers or places in the block."""

    module: str
    symbol: str
    words: tuple[tuple[bool, int], ...]  # whether it is a place, and the number


def _text(
    program: Program,
    symbol: str,
    consts: list[Field],
    carry_in: list[Field],
    carry_out: list[Field],
    rows: list[Field],
    *,
    fma: bool,
    width: int,
    block: Block,
) -> Text:
    emitter = KernelEmitter(program, 1, fma, width if program.wide else 1)
    module = emitter.module().replace(f"@{KERNEL}(", f"@{symbol}(")
    scratch = 0
    if emitter.scratch:
        block.end = -(-block.end // ALIGN) * ALIGN
        scratch = block.reserve(emitter.scratch)
    layout = Layout.of(program)
    words = [(False, 0), (False, 1), (False, 1), (False, 1), (False, 0)]
    words += [(True, f.offset) for f in consts] + [(False, 0)] * len(consts)
    words += [(True, f.offset) for part in (carry_in, carry_out, rows) for f in part] + [(True, scratch)]
    assert len(words) == layout.size + 1
    return Text(module, symbol, tuple(words))


def _entries(name: str, size: int, image: bytes, texts: list[Text], status: Field, projected: Field) -> str:
    """The four functions as LLVM text."""
    escaped = "".join(f"\\{b:02X}" for b in image)
    lines = [
        f'@{name}_image = internal constant [{size} x i8] c"{escaped}", align 64',
        "declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)",
        *(f"declare void @{text.symbol}(ptr)" for text in texts),
        f"define void @{name}_init(ptr %block) nounwind {{",
        f"  call void @llvm.memcpy.p0.p0.i32(ptr align 8 %block, ptr align 8 @{name}_image, i32 {size}, i1 false)",
        "  ret void",
        "}",
        f"define i32 @{name}_step(ptr %block, i64 %count) nounwind {{",
        *_call(texts[0], "%count"),
        *_result(status),
        "}",
        f"define i32 @{name}_start(ptr %block) nounwind {{",
        *_call(texts[1], "0"),
        f"  %done = call i32 @{name}_step(ptr %block, i64 0)",
        "  ret i32 %done",
        "}",
    ]
    if len(texts) > 2:
        lines += [
            f"define i32 @{name}_project(ptr %block) nounwind {{",
            *_call(texts[2], "0"),
            *_result(projected),
            "}",
        ]
    return "\n".join(lines) + "\n"


def _result(field: Field) -> Iterator[str]:
    yield f"  %at = getelementptr i8, ptr %block, i64 {field.offset}"
    yield "  %value = load i32, ptr %at"
    yield "  ret i32 %value"


def _call(text: Text, count: str) -> Iterator[str]:
    """Write the words and call the function; `count` steps are taken."""
    yield f"  %words = alloca [{len(text.words)} x i64], align 16"
    yield "  %base = ptrtoint ptr %block to i64"
    for k, (place, number) in enumerate(text.words):
        value = count if k == Layout.EVERY else str(number)
        if place:
            yield f"  %v{k} = add i64 %base, {number}"
            value = f"%v{k}"
        yield f"  %w{k} = getelementptr [{len(text.words)} x i64], ptr %words, i64 0, i64 {k}"
        yield f"  store i64 {value}, ptr %w{k}"
    yield f"  call void @{text.symbol}(ptr %words)"
