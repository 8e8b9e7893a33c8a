"""Threads that share a trajectory, without a GPU: every thread of a team is one of this process."""

import ctypes
import re
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import Functions
from test_backends_cuda import COARSE

from holonomix import compiler as kernels
from holonomix.compiler import native, ptx, register_order
from holonomix.compiler.arena import owned, places
from holonomix.compiler.emit import KERNEL, KernelEmitter, Layout
from holonomix.compiler.graph import dtype_of
from holonomix.compiler.vector_schedule import VectorSchedule
from holonomix.compiler.wide import in_step

N = 40
WEIGHTS = np.linspace(0.9, 1.1, N)


def step(c, k):
    """Rotations, differences, halves, sums over places, reductions, a loop and a branch, over an axis of 40."""
    x, n = c
    apart = jnp.concatenate([x[1:] - x[:-1], jnp.ones(1)])
    pull = jnp.roll(x, 3) + apart * jnp.concatenate([jnp.zeros(1), apart[:-1]])
    even = x[0::2] * x[1::2]
    least, total = jnp.min(pull), jnp.sum(x * pull)
    pull = pull + jnp.repeat(even, 2) / (1 + jnp.max(jnp.abs(x)) + least * least)

    def sweep(s):
        y, _, i = s
        y = y - (y * y * y + y - pull) / (3 * y * y + 1)
        return y, jnp.max(jnp.abs(y * y * y + y - pull)), i + 1

    y, left, i = jax.lax.while_loop(lambda s: (s[1] > 1e-12) & (s[2] < 9), sweep, (x, jnp.float64(1), 0))
    y = jax.lax.cond(jnp.any(y > 0.9), lambda y: y - jnp.mean(y), lambda y: jnp.sin(y) + left, y)
    return y + 1e-3 * total * (k / WEIGHTS), n + i


LOOP = Functions(step, lambda c, k: (jnp.max(c[0]), c[0]), lambda c, k: c[1] > 1000)


class Team:
    """The threads of one block: what they exchange, and where they wait for each other."""

    def __init__(self, text: str, count: int):
        self.count, self.mine = count, threading.local()
        self.barrier, self.sent = threading.Barrier(count), [0] * count
        self.careful = 0  # times that a thread began again with careful steps
        word = ctypes.c_int32
        functions = {
            "read.ptx.sreg.tid.x": ctypes.CFUNCTYPE(word)(lambda: self.mine.number),
            "bar.warp.sync": ctypes.CFUNCTYPE(None, word)(lambda mask: self.wait()),
            "barrier0": ctypes.CFUNCTYPE(None)(self.wait),
            "vote.any.sync": ctypes.CFUNCTYPE(word, word, word)(lambda mask, x: int(any(self.exchange(x & 1)))),
            "barrier0.or": ctypes.CFUNCTYPE(word, word)(lambda x: int(any(self.exchange(x)))),
            "redux.sync.umax": ctypes.CFUNCTYPE(word, word, word)(
                lambda x, mask: max(self.group(x), key=lambda y: y & 0xFFFFFFFF)
            ),
            "again": ctypes.CFUNCTYPE(None)(self.again),
            "shfl.sync.bfly.i32": ctypes.CFUNCTYPE(word, word, word, word, word)(
                lambda mask, x, bit, clamp: self.exchange(x)[self.mine.number ^ bit]
            ),
        }
        text = text.replace("i1 @llvm.nvvm.vote.any.sync(i32, i1)", "i1 @llvm.nvvm.vote.any.sync(i32, i1 zeroext)")
        text = (
            text.replace("again:\n", "again:\n  call void @llvm.nvvm.again()\n") + "declare void @llvm.nvvm.again()\n"
        )
        self.builder = native.load_llvm()[0].JITLibraryBuilder()
        for name, fn in functions.items():
            own = name.replace(".", "_")
            text = re.sub(rf"llvm\.nvvm\.{re.escape(name)}(?=\()", own, text)
            self.builder.import_symbol(own, ctypes.cast(fn, ctypes.c_void_p).value)
        self.functions = functions
        self.builder.add_object_img(native._machine().emit_object(native.optimize(text)))
        self.builder.add_current_process()
        self.builder.export_symbol(KERNEL)
        self.library = self.builder.link(native._jit(), f"team{id(self)}")
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.library[KERNEL])

    def again(self) -> None:
        self.careful += 1

    def wait(self) -> None:
        self.barrier.wait(20)

    def exchange(self, x: int) -> list[int]:
        self.sent[self.mine.number] = x
        self.wait()
        found = list(self.sent)
        self.wait()
        return found

    def group(self, x: int) -> list[int]:
        """What the threads of this group of 32 have sent."""
        first = self.mine.number & ~31
        return self.exchange(x)[first : first + 32]

    def run(self, words: int) -> None:
        def thread(number: int) -> None:
            self.mine.number = number
            self.call(words)

        threads = [threading.Thread(target=thread, args=(k,)) for k in range(self.count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def team_of(program, count: int) -> Team:
    target = ptx.dataclasses.replace(ptx.TEAMS, team=count, redux=count == 32)
    emitter = KernelEmitter(program, 1, native.has_fma(), target=target)
    text = emitter.module().replace(target.convention, "").replace("@__nv_", "@")
    for name, value in (("ctaid.x", 0), ("ntid.x", count), ("nctaid.x", 1)):
        register = f"i32 @llvm.nvvm.read.ptx.sreg.{name}()"
        text = text.replace(f"declare {register}", f"define i32 @at.{name}() {{ ret i32 {value} }}")
        text = text.replace(register, f"i32 @at.{name}()")
    text = text.replace('asm sideeffect "mov.u32 $0, %tid.x;", "=r"', "@llvm.nvvm.read.ptx.sreg.tid.x")
    for name, value in (("rcp", "x"), ("rsqrt", "root")):
        intrinsic, root = f"llvm.nvvm.{name}.approx.ftz.d", "declare double @llvm.sqrt.f64(double)"
        text = text.replace(f"declare double @{intrinsic}(double)", COARSE.format(name, value))
        text = text.replace(f"@{intrinsic}(", f"@{name}(")
        text = text if root in text else root + "\n" + text
    memory = f"@shared = internal addrspace(3) global [{emitter.values.space} x i8] zeroinitializer, align 16"
    return Team(re.sub(r"@shared = external.*", memory, text), count)


@pytest.mark.parametrize("count", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_a_team_has_the_bits_of_one_thread(count):
    program = kernels.lower(LOOP, (np.zeros(N), np.int64(0)), np.float64(0), wide=True)
    assert program.wide and program.loops > 3
    rng = np.random.default_rng(0)
    batch, rows, every = 2, 2, 1
    carry, consts = (rng.standard_normal((batch, N)), np.zeros(batch, np.int64)), np.float64(0.5)
    carry[0][1, 5] = -0.0
    want, want_rows = kernels.build(program).run(carry, consts, None, rows=rows, every=every)
    out = [np.zeros((batch, *leaf.shape), dtype_of(leaf.kind)) for leaf in program.carry]
    saved = [np.zeros((batch, rows, *leaf.shape), dtype_of(leaf.kind)) for leaf in program.rows]
    words = np.zeros(Layout.of(program).size, np.int64)
    words[[Layout.BATCH, Layout.ROWS, Layout.EVERY]] = batch, rows, every
    given = np.array([consts])
    words[5:] = [given.ctypes.data, 0, *(a.ctypes.data for a in (*carry, *out, *saved))]
    team = team_of(program, count)
    team.run(words.ctypes.data)
    assert not team.careful
    for a, b in zip((*out, *saved), (*jax.tree.leaves(want), *jax.tree.leaves(want_rows)), strict=True):
        assert a.tobytes() == np.asarray(b).tobytes()


def test_arrays_share_memory():
    program = kernels.lower(LOOP, (np.zeros(N), np.int64(0)), np.float64(0), wide=True)
    offsets, space = places(program, VectorSchedule(program))
    lengths = [program.graph.length[n] for n in offsets]
    assert 0 < space < 0.7 * 8 * sum(lengths)
    assert all(x % 8 == 0 and x + 8 * n <= space for x, n in zip(offsets.values(), lengths))


def test_vectors_that_no_other_thread_reads_are_in_registers():
    program = kernels.lower(LOOP, (np.zeros(N), np.int64(0)), np.float64(0), wide=True)
    schedule = VectorSchedule(program)
    mine, g = owned(program, schedule), program.graph
    read = {a for n in program.live if g.op[n] in ("take", "rsum", "rmax", "rmin", "ror") for a in g.args[n]}
    assert mine and not mine & read
    assert places(program, schedule, mine)[1] < places(program, schedule)[1]


def test_elements_that_are_repeated_are_read_in_step():
    """Each one twice and four times, from any start, without a table of places."""
    for places_, step_ in (
        (np.arange(64) // 4 - 1, (1, -1)),
        (np.arange(64) // 2 + 3, (2, 3)),
        (np.arange(64), (4, 0)),
    ):
        assert in_step(places_, 40) == step_

    def step(x, k):
        twice = jnp.concatenate([jnp.zeros(2), jnp.repeat(x, 2)])[:N]
        return 0.5 * x + 0.25 * twice + 0.125 * jnp.concatenate([jnp.repeat(x, 4)[8:N], jnp.zeros(8)])

    loop = Functions(step, lambda c, k: c, lambda c, k: c[0] > 9)
    program = kernels.lower(loop, np.zeros(N), np.float64(0), wide=True)
    assert program.loops == 1
    x = np.random.default_rng(1).standard_normal(N)
    got, _ = kernels.build(program).run_one(x, np.float64(0), rows=1, every=3)
    want = x
    for _ in range(3):
        want = np.asarray(step(want, 0))
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-16)


def test_copies_of_vectors_are_not_stored():
    """Every second element of a vector that was made longer is read from the vector itself."""
    longer = lambda x: jnp.concatenate([x, jnp.ones(1)])
    loop = Functions(lambda c, k: c + 1 / longer(longer(c)[1:])[:-1], lambda c, k: c, lambda c, k: c[0] > 9)
    program = kernels.lower(loop, np.ones(N), np.float64(0), wide=True)
    pieces = [p for p in VectorSchedule(program).loops if p.nodes]
    assert len(pieces) == program.loops == 1


def wide_and_flat(c, k):
    """A hundred and sixty numbers at once in the order of the arrays, a few where each sum follows its terms."""
    x = c * np.linspace(0.9, 1.1, 160)
    y = x * x + 1
    return jnp.sum(jnp.reshape(y * x - x / y, (16, 10)), 1).mean() * 0.01


def test_operations_are_ordered_for_few_registers(monkeypatch):
    loop = Functions(wide_and_flat, lambda c, k: c, lambda c, k: c > 1e9)
    program = kernels.lower(loop, np.float64(0.5), np.float64(0.1))
    nodes = program.blocks[program.scope].nodes
    best = register_order.reordered(program, nodes)
    place = {n: k for k, n in enumerate(best)}
    assert sorted(best) == sorted(nodes) and best != nodes
    assert all(place[a] < k for n, k in place.items() for a in program.graph.args[n] if a in place)
    needs = {n: [a for a in program.graph.args[n] if program.graph.op[a] != "const"] for n in nodes}
    most = [register_order.excess(program, order, needs, {nodes[-1]})[1] for order in (nodes, best)]
    assert most[0] > 150 and most[1] < 40
    text = ptx.team_ptx(program, 90)[0]
    monkeypatch.setattr(register_order, "ROOM", 1 << 20)  # then none is beyond
    assert ptx.team_ptx(program, 90)[0] != text
