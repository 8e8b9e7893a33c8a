"""The cuda back end: its text, its loop over trajectories and its errors without a GPU, the rest with one."""

import ctypes
import dataclasses
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import Functions, evaluate_batch
from test_backends_contract import CARRY, CONSTS, LOOP, starts
from test_backends_control import X, branches, newton_root, updates

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.compiler import cuda, native, ptx
from holonomix.compiler.emit import KERNEL, KernelEmitter, Layout
from holonomix.compiler.graph import dtype_of

SERIAL = itertools.count()
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
AXES = {"dt": 0, "mu": None, "radius": None}


@pytest.fixture(scope="module")
def program():
    return kernels.lower(LOOP, CARRY, CONSTS)


def test_every_operation_is_rounded_and_none_are_contracted(program):
    text = ptx.team_ptx(program, 90)[0]
    assert f".visible .entry {KERNEL}(" in text and ".target sm_90" in text
    arithmetic = re.findall(r"\b(?:add|sub|mul|div|sqrt|fma)(?:\.\w+)*\.f64", text)
    assert len(arithmetic) > 20
    assert [x for x in arithmetic if ".rn." not in x] == []
    # approximations only where quick divisions and roots begin; their last operation rounds
    rest = re.sub(r"\br(?:cp|sqrt)\.approx\.ftz\.f64", "", text)
    assert "approx" not in rest and "ftz" not in rest
    fused = sum(program.graph.op[n] in ("fma", "fms", "fnma") for n in program.live)
    # the power function has some of its own, so that is a bound from below
    assert len([x for x in arithmetic if x.startswith("fma")]) >= fused > 0


# 1/x and 1/sqrt(x) to 20 bits, in place of the GPU's approximations
COARSE = """define double @{0}(double %x) {{
  %root = call double @llvm.sqrt.f64(double %x)
  %y = fdiv double 1.0, %{1}
  %w = bitcast double %y to i64
  %c = and i64 %w, -4294967296
  %r = bitcast i64 %c to double
  ret double %r
}}"""


def as_one_thread(program, place: dict[str, int], target=ptx.PTX):
    """The GPU's function, compiled for this CPU as one thread of a grid."""
    text = KernelEmitter(program, 1, native.has_fma(), target=target).module().replace(ptx.PTX.convention, "")
    for name, value in place.items():
        intrinsic = f"llvm.nvvm.read.ptx.sreg.{name}"
        text = text.replace(f"declare i32 @{intrinsic}()", f"define i32 @{intrinsic}() {{ ret i32 {value} }}")
        text = text.replace(intrinsic, f"register.{name}")
    for name, value in (("rcp", "x"), ("rsqrt", "root")):
        intrinsic, root = f"llvm.nvvm.{name}.approx.ftz.d", "declare double @llvm.sqrt.f64(double)"
        text = text.replace(f"declare double @{intrinsic}(double)", COARSE.format(name, value))
        text = text.replace(f"@{intrinsic}(", f"@{name}(")
        text = text if root in text else root + "\n" + text
    text = text.replace("@__nv_", "@")
    llvm, _ = native.load_llvm()
    builder = llvm.JITLibraryBuilder()
    builder.add_object_img(native._machine().emit_object(native.optimize(text)))
    builder.add_current_process()
    builder.export_symbol(KERNEL)
    library = builder.link(native._jit(), f"thread{next(SERIAL)}")
    return CALL(library[KERNEL]), library


def test_the_threads_of_a_grid_together_take_every_trajectory_once(program):
    count, rows, every = 17, 3, 10
    carry, consts = starts(count), CONSTS | {"dt": np.linspace(0.005, 0.02, count)}
    want, want_rows = kernels.build(program).run(carry, consts, AXES, rows=rows, every=every)
    p, layout = program, Layout.of(program)
    given, carry_in = jax.tree.leaves(consts), jax.tree.leaves(carry)
    out = [np.zeros((count, *leaf.shape), dtype_of(leaf.kind)) for leaf in p.carry]
    saved = [np.zeros((count, rows, *leaf.shape), dtype_of(leaf.kind)) for leaf in p.rows]
    address = lambda a: a.ctypes.data
    arrays = [np.ascontiguousarray(a) for a in given]
    words = np.zeros(layout.size, np.int64)
    words[[Layout.BATCH, Layout.ROWS, Layout.EVERY]] = count, rows, every
    words[5:] = [*map(address, arrays), *(a.size // count for a in arrays), *map(address, (*carry_in, *out, *saved))]
    untouched = [a.copy() for a in out]
    for block, thread in itertools.product(range(2), range(3)):
        fn, _library = as_one_thread(p, {"ctaid.x": block, "ntid.x": 3, "nctaid.x": 2, "tid.x": thread})
        fn(words.ctypes.data)
        mine = np.arange(count) % 6 == 3 * block + thread
        n = out[sorted(carry).index("n")]
        assert (n[mine] > 0).all()
        assert all((a[mine] == b[mine]).all() for a, b in zip(out, jax.tree.leaves(want), strict=True))
    assert not all((a == b).all() for a, b in zip(out, untouched, strict=True))
    for a, b in zip((*out, *saved), (*jax.tree.leaves(want), *jax.tree.leaves(want_rows)), strict=True):
        assert a.tobytes() == np.asarray(b).tobytes()


def test_what_follows_from_common_constants_is_shared(program, monkeypatch):
    texts, common = [], dataclasses.replace(ptx.PTX, common=True)
    place = {"ctaid.x": 0, "ntid.x": 1, "nctaid.x": 1, "tid.x": 0}
    fn, _library = as_one_thread(program, place, common)

    class Both(OneThread):
        def function(self, text, shared):
            texts.append(text)
            return ctypes.cast(fn if b"common[" in text else self.fn, ctypes.c_void_p)

    monkeypatch.setattr(cuda, "driver", lambda ordinal: Both(program))
    monkeypatch.setattr(cuda, "MAX_SHORT", 0)
    runner, alone = cuda.CudaRunner(program, jax.devices("cpu")[:1]), kernels.build(program)
    for consts, axes in ((CONSTS, None), (CONSTS | {"dt": np.linspace(0.005, 0.02, 9)}, AXES)):
        got = runner.run(starts(9), consts, axes, rows=2, every=30)
        want = alone.run(starts(9), consts, axes, rows=2, every=30)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert [b"ld.volatile.shared" in text for text in texts] == [True, False]


def read_tables(c, k):
    """A table of literals and one of numbers that follow from a constant, read at a place that depends on the carry."""
    q, n = c
    literal = jnp.array([0.5, 0.25, 0.125, -1.0])
    return jnp.cos(q) + 0.1 * (literal[n % 4] + jnp.sin(k * literal)[n % 4]) * k**3, n + 1


def test_tables_are_not_shared_as_numbers():
    """What the constants give is shared within a block, except for tables: their names are addresses."""
    loop = Functions(read_tables, lambda c, k: c[0], lambda c, k: c[1] > 1000)
    carry, k = (np.float64(0.3), np.int64(0)), np.float64(0.7)
    program = kernels.lower(loop, carry, k)
    g = program.graph
    read = {a for n in program.live if g.op[n] == "load" and g.scope[n] is not g.root for a in g.args[n]}
    assert sum(g.op[a] == "table" and g.scope[a] is g.root for a in read) == 2
    assert "ld.volatile.shared" in ptx.team_ptx(program, 90, common=True)[0]
    place = {"ctaid.x": 0, "ntid.x": 1, "nctaid.x": 1, "tid.x": 0}
    fn, _library = as_one_thread(program, place, dataclasses.replace(ptx.PTX, common=True))
    batch = (np.linspace(0.1, 0.5, 3), np.arange(3))
    want = kernels.build(program).run(batch, k, rows=4, every=25)
    out, rows = (np.empty(3), np.empty(3, np.int64)), np.empty((3, 4))
    words = np.zeros(Layout.of(program).size, np.int64)
    words[[Layout.BATCH, Layout.ROWS, Layout.EVERY]] = 3, 4, 25
    given = np.array(k)
    words[5:] = [given.ctypes.data, 0, *(a.ctypes.data for a in (*batch, *out, rows))]
    fn(words.ctypes.data)
    for a, b in zip((*out, rows), jax.tree.leaves(want), strict=True):
        assert a.tobytes() == np.asarray(b).tobytes()


def divide_and_root(c, k):
    return (c[0] / c[1], 1 / c[0], jnp.sqrt(c[0]), c[3] + 1)


STRANGE = [0.0, -0.0, 1.0, -3.0, np.inf, np.nan, 1e-310, 1e308, 1e-200, -1e-160, 3e200, np.nextafter(2, 1)]


def test_quick_division_and_root_are_rounded_and_strange_operands_take_the_careful_steps():
    loop = Functions(divide_and_root, lambda c, k: c[:3], lambda c, k: c[3] >= 1)
    one = (1.0, 1.0, 1.0, 0)
    program = kernels.lower(loop, tuple(map(np.asarray, one)), ())
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(20_000) * 10.0 ** rng.integers(-60, 60, 20_000) for _ in range(2))
    near = 1 + np.arange(-50, 50) * 2.0**-52
    x, y = (z.ravel() for z in np.meshgrid([*STRANGE, *near], [*STRANGE, *near]))
    a, b = np.concatenate([x, np.abs(a)]), np.concatenate([y, b])
    carry = (a, b, np.zeros_like(a), np.zeros(len(a), np.int64))
    driver = OneThread(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "driver", lambda ordinal: driver)
        out, _ = cuda.CudaRunner(program, jax.devices("cpu")[:1]).run(carry, (), None, rows=1, every=1)
    with np.errstate(all="ignore"):
        want = (a / b, 1 / a, np.sqrt(a))
    for got, good in zip(out, want):
        np.testing.assert_array_equal(got, good)
        np.testing.assert_array_equal(np.signbit(got)[~np.isnan(good)], np.signbit(good)[~np.isnan(good)])


SEVERAL = """
import jax, numpy as np, sys
sys.path.insert(0, sys.argv[1])
from test_backends_cuda import *
cuda.driver, cuda.MIN_PER_DEVICE = lambda ordinal: OneThread(program), 3
program = kernels.lower(LOOP, CARRY, CONSTS)
for count, used in ((12, 3), (10, 2), (7, 1)):  # so many devices that all have the same number of trajectories
    runner = cuda.CudaRunner(program, jax.devices())
    launched = []
    for k, d in enumerate(runner.drivers):
        d.enqueue = lambda f, words, n, *_, k=k, **__: (launched.append((k, n)), CALL(f.value)(words.ctypes.data))
    carry, consts = starts(count), CONSTS | {"dt": np.linspace(0.005, 0.02, count)}
    got = runner.run(carry, consts, AXES, rows=2, every=30)
    again = runner.run(got[0], consts, AXES, rows=1, every=5)
    alone = kernels.build(program)
    want = alone.run(carry, consts, AXES, rows=2, every=30)
    more = alone.run(want[0], consts, AXES, rows=1, every=5)
    for a, b in zip(jax.tree.leaves((got, again)), jax.tree.leaves((want, more)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert sorted(launched) == sorted([(k, count // used) for k in range(used)] * 2)
    assert len(jax.tree.leaves(got)[0].devices()) == used
"""


@pytest.mark.slow
def test_a_batch_is_spread_over_all_devices():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=3", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SEVERAL, str(Path(__file__).parent)]
    done = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_custom_call_reports_what_went_wrong(program, monkeypatch):
    monkeypatch.setattr(cuda, "driver", lambda ordinal: OneThread(program))
    runner = cuda.CudaRunner(program, jax.devices("cpu")[:1])
    monkeypatch.setattr(runner.driver, "enqueue", lambda *a, **k: 1 / 0)
    here = jax.default_device(jax.devices("cpu")[0])  # beside a GPU, too
    with here, pytest.raises(jax.errors.JaxRuntimeError, match="ZeroDivisionError"):
        jax.block_until_ready(jax.jit(lambda c: runner.under_jit(c, CONSTS, rows=1, every=3))(CARRY))


class OneThread:
    """In the place of a GPU's driver: the kernel runs on this CPU, as a grid of one thread."""

    capability, spills = 90, True

    def __init__(self, program):
        place = {"ctaid.x": 0, "ntid.x": 1, "nctaid.x": 1, "tid.x": 0}
        self.fn, self.library = as_one_thread(program, place)

    def function(self, text, shared):
        assert text.endswith(b"\0") and b".visible .entry" in text
        return ctypes.cast(self.fn, ctypes.c_void_p)

    def enqueue(self, function, words, count, stream, short, team, wait=False):
        assert stream is None
        CALL(function.value)(words.ctypes.data)

    def on_host(self, function, table, inputs, outputs, count, short, team):
        CALL(function.value)(table([a.ctypes.data for a in (*inputs, *outputs)]).ctypes.data)


def test_the_runner_hands_over_and_brings_back(program, monkeypatch):
    monkeypatch.setattr(cuda, "driver", lambda ordinal: OneThread(program))
    runner = cuda.CudaRunner(program, jax.devices("cpu")[:1])
    carry, consts = starts(9), CONSTS | {"dt": np.linspace(0.005, 0.02, 9)}
    native_runner = kernels.build(program)
    for given, axes in ((consts, AXES), (CONSTS, None)):
        got = runner.run(carry, given, axes, rows=2, every=30)
        again = runner.run(got[0], given, axes, rows=1, every=5)  # from what it brought back
        want = native_runner.run(carry, given, axes, rows=2, every=30)
        more = native_runner.run(want[0], given, axes, rows=1, every=5)
        for a, b in zip(jax.tree.leaves((got, again)), jax.tree.leaves((want, more)), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()
    one, alone = runner.run_one(CARRY, CONSTS, rows=1, every=7), native_runner.run_one(CARRY, CONSTS, rows=1, every=7)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(alone), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    with jax.default_device(jax.devices("cpu")[0]):  # beside a GPU, too
        inside = jax.jit(jax.vmap(lambda c: runner.under_jit(c, CONSTS, rows=2, every=30)))(carry)
    runner.prepare(1, callback=True)
    for a, b in zip(jax.tree.leaves(inside), jax.tree.leaves(native_runner.run(carry, CONSTS, rows=2, every=30))):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    with pytest.raises(TypeError, match="carry has shape"):
        runner.run(carry | {"q": carry["q"][:, :1]}, consts, AXES, rows=1, every=1)


def test_a_function_without_the_library_is_named(monkeypatch):
    loop = Functions(lambda c, k: jnp.arcsinh(c) + k, lambda c, k: c, lambda c, k: c > 1e9)
    program = kernels.lower(loop, np.float64(0.5), np.float64(0.1))
    monkeypatch.setattr(ptx, "libdevice", lambda: None)
    with pytest.raises(kernels.Unsupported, match="asinh"):
        ptx.team_ptx(program, 90)


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="the tests themselves run on a GPU")
def test_without_a_gpu_the_error_says_so():
    problem = hx.models.planar_pendulum()
    q, p = problem.q0[None], problem.p0[None]
    with pytest.raises(hx.InputError, match=r"'cuda'.*GPU.*backend='array'"):
        hx.simulate_ensemble(problem.system, hx.RATTLE(), q, p, dt=0.01, steps=3, backend="cuda")


@pytest.mark.gpu
def test_a_batch_has_the_bits_of_the_cpu(program):
    carry, consts = starts(1037), CONSTS | {"dt": np.linspace(0.005, 0.02, 1037)}
    want = kernels.build(program).run(carry, consts, AXES, rows=3, every=30)
    got = kernels.build(program, "cuda").run(carry, consts, AXES, rows=3, every=30)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("fn", [newton_root, branches, updates], ids=lambda f: f.__name__)
def test_control_flow_on_the_gpu(fn):
    got, want = evaluate_batch(fn, [X], backend="cuda"), evaluate_batch(fn, [X])
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)


@pytest.mark.gpu
def test_functions_of_the_platform_differ_in_the_last_bit_at_most():
    fn = lambda x: (jnp.sin(1e12 * x), jnp.cbrt(x), jnp.arctanh(x / 20), jax.scipy.special.erf(x))
    x = np.linspace(-5, 5, 101)
    for a, b in zip(*(jax.tree.leaves(evaluate_batch(fn, [x], backend=k)) for k in ("cuda", "native")), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-16, atol=1e-300)


@pytest.mark.gpu
def test_an_ensemble_on_the_gpu_takes_cuda_and_has_the_bits_of_the_cpu():
    problem = hx.models.double_pendulum()
    q, p = (jnp.tile(x, (100, 1, 1)) for x in (problem.q0, problem.p0))
    dt = np.linspace(0.005, 0.02, 100)
    run = lambda backend: hx.simulate_ensemble(
        problem.system, hx.GLA(hx.RATTLE(), friction=0.1, temperature=0.1), q, p, dt=dt, steps=300, save_every=100,
        key=jax.random.key(1), backend=backend,
    )  # fmt: skip
    got, want = run("auto"), run("native")
    assert got.stats["backend"] == "cuda" and got.ok.all()
    assert got.q.tobytes() == want.q.tobytes() and got.p.tobytes() == want.p.tobytes()


@pytest.mark.gpu
def test_a_team_of_threads_has_the_bits_of_the_cpu():
    problem = hx.models.chain(100)
    momentum = hx.project(problem.system, problem.q0, np.random.default_rng(0).standard_normal(problem.q0.shape))[1]
    p = jnp.linspace(0.1, 0.3, 70)[:, None, None] * momentum
    q = jnp.tile(problem.q0, (70, 1, 1))
    run = lambda backend: hx.simulate_ensemble(
        problem.system, hx.RATTLE(), q, p, dt=0.01, steps=40, save_every=20, backend=backend
    )
    got, want = run("cuda"), run("native")
    assert got.ok.all() and got.q.tobytes() == want.q.tobytes() and got.p.tobytes() == want.p.tobytes()
