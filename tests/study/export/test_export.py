"""Exported steps run without Python and have the library's bits."""

from __future__ import annotations

import base64
import ctypes
import json
import platform
import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

import holonomix as hx
from tests.browser import Browser, needs_chromium

node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
STEPS = 500


def run_js(folder: Path, name: str, script: str):
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "run.mjs").write_text(f'import {{load}} from "./{name}.js";\nconst k = await load();\n{script}')
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_c(folder: Path, name: str, steps: int, compiler: str = "gcc", runner: tuple[str, ...] = ()) -> list[str]:
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "main.c", f"{name}.o", "-lm", "-o", "main"]
    command += ["-static"] if runner else []
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    done = subprocess.run([*runner, "./main", str(steps)], cwd=folder, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines()


def bits(lines: list[str], name: str) -> np.ndarray:
    found = [line.split()[-1] for line in lines if line.startswith(f"{name}[")]
    return np.array([int(x, 16) for x in found], np.uint64).view(np.float64)


@gcc
@pytest.mark.parametrize("method", [hx.RATTLE(), hx.LineIntegral(order=4)], ids=lambda m: m.name)
def test_c_has_the_bits_of_python(tmp_path, method):
    problem = hx.models.double_pendulum()
    hx.export(problem, method, tmp_path, "c")
    lines = run_c(tmp_path, "double_pendulum", STEPS)
    sol = hx.simulate(problem, method, steps=STEPS, save_every=STEPS, backend="native")
    assert lines[0] == "status = 0"
    np.testing.assert_array_equal(bits(lines, "q"), np.ravel(sol.q[-1]))
    np.testing.assert_array_equal(bits(lines, "p"), np.ravel(sol.p[-1]))
    other = bits(run_c(tmp_path, "double_pendulum", STEPS + 1), "q")
    assert np.any(other != np.ravel(sol.q[-1]))  # the comparison can fail


@node
@gcc
def test_wasm_has_the_bits_of_a_baseline_cpu(tmp_path):
    problem = hx.models.four_bar()
    hx.export(problem, hx.RATTLE(), tmp_path / "w", "wasm", name="bar")
    hx.export(problem, hx.RATTLE(), tmp_path / "c", "c", name="bar", target="x86_64-linux-gnu")
    script = f"const s = k.step({STEPS}); console.log(JSON.stringify([s, k.n, [...k.q], [...k.p]]))"
    status, n, q, p = run_js(tmp_path / "w", "bar", script)
    assert (status, n) == (0, STEPS)
    if platform.machine() == "x86_64":
        lines = run_c(tmp_path / "c", "bar", STEPS)
        np.testing.assert_array_equal(q, bits(lines, "q"))
        np.testing.assert_array_equal(p, bits(lines, "p"))


@node
def test_parameters_step_start_and_observables_change_at_run_time(tmp_path):
    problem = hx.models.double_pendulum()
    observe = {"energy": problem.system.hamiltonian}
    hx.export(problem, hx.RATTLE(), tmp_path, observe=observe)
    script = """
    k.step(10); k.reset();
    k.set({q: [[0.1, -1.0], [1.0, -2.2]], p: [0, 0, 0.3, 0], t: 2, dt: 0.02, params: {gravity: 2.5}});
    const status = k.project(), q = [...k.q], p = [...k.p];
    const done = k.step(100);
    console.log(JSON.stringify([status, q, p, done, [...k.q], k.t, k.observables.energy[0]]))
    """
    status, q, p, done, end, t, energy = run_js(tmp_path, "double_pendulum", script)
    system = problem.system.with_params({**problem.system.params, "gravity": 2.5})
    start = hx.project(system, [[0.1, -1.0], [1.0, -2.2]], [[0, 0], [0.3, 0.0]])
    np.testing.assert_allclose([q, p], [np.ravel(x) for x in start], rtol=0, atol=1e-14)
    assert status == done == 0
    sol = hx.simulate(system, hx.RATTLE(), *start, dt=0.02, t0=2.0, steps=100)
    np.testing.assert_allclose(end, np.ravel(sol.q[-1]), rtol=0, atol=1e-12)
    assert t == sol.t[-1]
    assert abs(energy - float(system.hamiltonian(sol.q[-1], sol.p[-1], 0.0))) < 1e-12


@node
def test_integers_among_the_parameters_change_at_run_time(tmp_path):
    system = hx.System(lambda q, params: params["k"] * q @ q / 2, params={"k": 4})
    problem = hx.Problem(system, np.ones(2), np.zeros(2), 0.01, 1.0)
    hx.export(problem, hx.RATTLE(), tmp_path, name="spring")
    script = "k.set({params: {k: 9}}); console.log(JSON.stringify([k.step(100), [...k.q]]))"
    status, q = run_js(tmp_path, "spring", script)
    sol = hx.simulate(system.with_params({"k": 9}), hx.RATTLE(), problem.q0, problem.p0, dt=0.01, steps=100)
    assert status == 0
    np.testing.assert_allclose(q, sol.q[-1], rtol=0, atol=1e-14)


@node
@gcc
def test_flags_and_small_numbers_are_read_and_set(tmp_path):
    def potential(q, params):
        return jax.numpy.where(params["on"], params["small"] * params["counts"][1], 1.0) * q @ q

    params = {"on": True, "small": np.float32(2.0), "counts": np.arange(3, dtype=np.int16)}
    system = hx.System(potential, params=params)
    problem = hx.Problem(system, np.ones(2), np.zeros(2), 0.01, 1.0)
    observe = {"first": lambda q, p: q[0] > 0, "place": lambda q, p: jax.numpy.argmax(q)}
    hx.export(problem, hx.RATTLE(), tmp_path, name="odd", observe=observe)
    script = """
    const s = k.set({params: {on: false}}), t = k.step(100), {small, counts} = k.params, {first, place} = k.observables;
    console.log(JSON.stringify([s, t, [...k.q], small[0], [...counts], first[0], Number(place[0])]))
    """
    *status, q, small, counts, first, place = run_js(tmp_path, "odd", script)
    sol = hx.simulate(system.with_params({**params, "on": False}), hx.RATTLE(), *(np.ones(2), np.zeros(2)), dt=0.01,
                      steps=100)  # fmt: skip
    assert status == [0, 0] and (small, counts, first, place) == (2.0, [0, 1, 2], 1, 0)
    np.testing.assert_allclose(q, sol.q[-1], rtol=0, atol=1e-14)
    hx.export(problem, hx.RATTLE(), tmp_path, "c", name="odd", observe=observe)
    assert run_c(tmp_path, "odd", 10)[0] == "status = 0"


@node
def test_names_are_no_places_of_a_template(tmp_path):
    names = ("@CLASS@", "@NAME@", "__proto__", "toString")
    system = hx.System(lambda q, params: sum(params[name] for name in names) * q @ q, params=dict.fromkeys(names, 0.25))
    problem = hx.Problem(system, np.ones(2), np.zeros(2), 0.01, 1.0, name="@LAYOUT@")
    hx.export(problem, hx.RATTLE(), tmp_path, name="odd")
    script = """
    const said = [];
    for (const name of ["constructor", "__proto__"])
      try { k.set({params: JSON.parse(`{"${name}": 2}`)}); said.push(k.params[name][0]); }
      catch (e) { said.push(e.message); }
    console.log(JSON.stringify([Object.keys(k.params).sort(), said]))"""
    found, (unknown, known) = run_js(tmp_path, "odd", script)
    assert found == sorted(names) and unknown.startswith("no parameter constructor") and known == 2


def test_two_arrays_with_one_name_are_refused(tmp_path):
    system = hx.System(lambda q, p: p["a"]["b"] * q @ q + p["a.b"] * q[0], params={"a": {"b": 1.0}, "a.b": 2.0})
    with pytest.raises(hx.InputError, match=r"two parameters called 'a\.b'"):
        hx.export(hx.Problem(system, np.ones(2), np.zeros(2), 0.01, 1.0), hx.RATTLE(), tmp_path)
    with pytest.raises(hx.InputError, match=r"two observables called 'a\.b'"):
        observe = {"a/b": lambda q, p: q[0], "a.b": lambda q, p: p[0]}
        hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path, observe=observe)


@node
def test_wrong_values_in_javascript_are_named(tmp_path):
    hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path, name="hh")
    script = """
    const said = [];
    for (const f of [() => k.set({q: [1]}), () => k.set({params: {no: 1}}), () => k.project(), () => k.set({no: 1}),
                     () => k.set({dt: "0.1"})])
      try { f(); said.push("") } catch (e) { said.push(e.message) }
    console.log(JSON.stringify(said))"""
    one, two, three, four, five = run_js(tmp_path, "hh", script)
    assert "q needs 2 numbers" in one and "no parameter no" in two and "no constraints" in three
    assert "set does not take no" in four and "dt needs numbers, not string" in five


def test_a_step_that_fails_stops_with_a_finite_state(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    hx.export(hx.models.double_pendulum(), hx.RATTLE(), tmp_path)
    script = """
    k.set({dt: 50}); const s = k.step(10);
    console.log(JSON.stringify([s, k.status, k.n, [...k.q]]))"""
    status, kept, n, q = run_js(tmp_path, "double_pendulum", script)
    assert status == kept != 0 and hx.Status(status).failed and n < 10 and np.all(np.isfinite(q))


@gcc
@pytest.mark.parametrize("arch, triple", [("aarch64", "aarch64-linux-gnu"), ("riscv64", "riscv64-linux-gnu"),
                                          ("arm", "arm-linux-gnueabihf"), ("i386", "i686-linux-gnu"),
                                          ("ppc64le", "powerpc64le-linux-gnu"),
                                          ("mips64el", "mips64el-linux-gnuabi64")])  # fmt: skip
def test_an_object_of_another_machine_runs_with_the_bits_of_webassembly(tmp_path, arch, triple):
    if not (shutil.which(f"qemu-{arch}") and shutil.which(f"{triple}-gcc")):
        pytest.skip(f"no compiler or emulator of {arch}")
    problem = hx.models.double_pendulum()
    hx.export(problem, hx.RATTLE(), tmp_path / "a", "c", target=triple.replace("arm-", "armv7-"))
    hx.export(problem, hx.RATTLE(), tmp_path / "x", "c", target="x86_64-linux-gnu")
    lines = run_c(tmp_path / "a", "double_pendulum", STEPS, f"{triple}-gcc", (f"qemu-{arch}",))
    assert lines == run_c(tmp_path / "x", "double_pendulum", STEPS)


def test_objects_of_other_machines_are_theirs(tmp_path):
    hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path, "c", name="hh", target="aarch64-linux-gnu")
    data = (tmp_path / "hh.o").read_bytes()
    assert data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == 183
    hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path, "c", name="hh", target="riscv64-linux-gnu")
    flags = int.from_bytes((tmp_path / "hh.o").read_bytes()[48:52], "little")
    assert flags & 6 == 4  # doubles in registers, as the toolchains of Linux expect
    hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path, "c", name="hh", target="armv7-linux-gnueabihf")
    assert b"\x1c\x01" in (tmp_path / "hh.o").read_bytes().split(b"aeabi")[1][:80]  # Tag_ABI_VFP_args: registers


@node
@pytest.mark.slow
def test_loops_over_axes_and_fronts_run_in_webassembly(tmp_path):
    problem = hx.models.cosserat_rod(6)
    assert "loops over axes" in hx.explain(problem, hx.RATTLE())
    hx.export(problem, hx.RATTLE(), tmp_path, name="rod")
    status, q = run_js(tmp_path, "rod", "const s = k.step(50); console.log(JSON.stringify([s, [...k.q]]))")
    sol = hx.simulate(problem, hx.RATTLE(), steps=50)
    assert status == 0
    np.testing.assert_allclose(q, np.ravel(sol.q[-1]), rtol=0, atol=1e-14)


def test_refusals_say_why(untyped, tmp_path):
    problem = hx.models.double_pendulum()
    with pytest.raises(hx.InputError, match="no-such-machine"):
        hx.export(problem, hx.RATTLE(), tmp_path, "c", target="no-such-machine")
    for target in ("nvptx64", "bpf", "r600", "amdgcn-amd-amdhsa", "spirv64"):  # LLVM ends the process on bpf and r600
        with pytest.raises(hx.InputError, match=f"target '{target}'; try"):
            hx.export(problem, hx.RATTLE(), tmp_path, "c", target=target)
    for odd in (3, 'x86_64-linux-gnu"\n', True):
        with pytest.raises(hx.InputError, match="target must be the triple"):
            hx.export(problem, hx.RATTLE(), tmp_path, "c", target=odd)  # pyright: ignore[reportArgumentType]
    with pytest.raises(hx.InputError, match="name must be a text, not 3"):
        hx.export(problem, hx.RATTLE(), tmp_path, name=3)  # pyright: ignore[reportArgumentType]
    for path in ("", "a\0b", None, 3):
        with pytest.raises(hx.InputError, match="path must be"):
            hx.export(problem, hx.RATTLE(), path)  # pyright: ignore[reportArgumentType]
    with pytest.raises(hx.InputError, match="form"):
        hx.export(problem, hx.RATTLE(), tmp_path, "exe")

    def potential(q):
        return jax.pure_callback(lambda x: np.sum(x**2), jax.ShapeDtypeStruct((), np.float64), q)

    def slope(q):
        return jax.pure_callback(lambda x: 2 * x, jax.ShapeDtypeStruct(q.shape, np.float64), q)

    fn = jax.custom_jvp(potential)
    fn.defjvp(lambda primals, tangents: (potential(*primals), (slope(*primals) * tangents[0]).sum()))
    called = hx.Problem(hx.System(fn), np.ones(2), np.zeros(2), 0.01, 1.0)
    reason = hx.explain(called, hx.RATTLE()).reason
    with pytest.raises(hx.InputError) as error:
        hx.export(called, hx.RATTLE(), tmp_path)
    assert reason in str(error.value)


def without_fma(monkeypatch, problem, method, steps: int) -> hx.Solution:
    from holonomix.compiler import native
    from holonomix.run import backends, loop

    for module, cache in ((loop, "_known"), (backends, "_CACHE")):  # what is compiled here is for this test alone
        monkeypatch.setattr(module, cache, loop.Recent(1))
    monkeypatch.setattr(native, "has_fma", lambda: False)
    return hx.simulate(problem, method, steps=steps, save_every=steps, backend="native")


@pytest.mark.parametrize("method", [hx.RATTLE(), hx.LineIntegral(order=4)], ids=lambda m: m.name)
def test_wasm_has_the_bits_of_the_library_without_fused_operations(tmp_path, monkeypatch, method):
    wasmtime = pytest.importorskip("wasmtime")
    problem = hx.models.double_pendulum()
    hx.export(problem, method, tmp_path, name="dp")
    text = (tmp_path / "dp.js").read_text()
    start = text.index("const layout = ") + 15
    layout = json.loads(text[start : text.index("};", start) + 1])
    store = wasmtime.Store()
    module = wasmtime.Module.from_file(store.engine, str(tmp_path / "dp.wasm"))
    assert not module.imports
    parts = wasmtime.Instance(store, module, []).exports(store)
    block, memory = parts["__heap_base"].value(store), parts["memory"]
    parts["dp_init"](store, block)
    assert parts["dp_step"](store, block, STEPS) == 0
    sol = without_fma(monkeypatch, problem, method, STEPS)
    for name in ("q", "p"):
        at = block + layout["fields"][name]["offset"]
        found = np.frombuffer(memory.read(store, at, at + 32), float)
        np.testing.assert_array_equal(found, np.ravel(getattr(sol, name)[-1]))


@node
def test_steps_with_sines_run_in_webassembly_with_the_bits_of_the_library(tmp_path, monkeypatch):
    problem = hx.models.double_pendulum_angles()
    hx.export(problem, hx.RATTLE(), tmp_path, name="dp")
    found = run_js(tmp_path, "dp", f"console.log(JSON.stringify([k.step({STEPS}), [...k.q], [...k.p]]))")
    sol = without_fma(monkeypatch, problem, hx.RATTLE(), STEPS)
    assert found == [0, np.ravel(sol.q[-1]).tolist(), np.ravel(sol.p[-1]).tolist()]


@needs_chromium
@pytest.mark.slow
def test_a_browser_has_the_bits_of_the_library_without_fused_operations(tmp_path, monkeypatch):
    problem = hx.models.four_bar()
    hx.export(problem, hx.RATTLE(), tmp_path, name="bar")
    module, code = ((tmp_path / f"bar.{end}").read_bytes() for end in ("js", "wasm"))
    module = module.replace(b'new URL("./bar.wasm", import.meta.url)', b"null")  # a data URL has no neighbors
    (tmp_path / "page.html").write_text("<!doctype html><title>bar</title>")
    browser = Browser()
    try:
        browser.open(tmp_path / "page.html")
        found = browser.ask(f"""(async () => {{
          const {{load}} = await import("data:text/javascript;base64,{base64.b64encode(module).decode()}");
          const k = await load(Uint8Array.from(atob("{base64.b64encode(code).decode()}"), c => c.charCodeAt(0)));
          return [k.step({STEPS}), k.t, [...k.q], [...k.p]];
        }})()""")
    finally:
        browser.close()
    sol = without_fma(monkeypatch, problem, hx.RATTLE(), STEPS)
    assert found == [0, sol.t[-1], np.ravel(sol.q[-1]).tolist(), np.ravel(sol.p[-1]).tolist()]


@gcc
def test_a_shared_library_has_the_bits_of_python(tmp_path):
    problem = hx.models.henon_heiles()
    hx.export(problem, hx.RATTLE(), tmp_path, "c", name="hh", shared=True)
    code = ctypes.CDLL(str(tmp_path / "libhh.so"))
    lines = (tmp_path / "hh.h").read_text().splitlines()
    size = int(next(line for line in lines if "bytes[" in line).split("[")[1].split("]")[0])
    q = next(int(line.split("+ ")[1].split(")")[0]) for line in lines if line.startswith("#define hh_q(k)"))
    memory = ctypes.create_string_buffer(size + 64)
    block = -(-ctypes.addressof(memory) // 64) * 64
    code.hh_init(ctypes.c_void_p(block))
    assert code.hh_step(ctypes.c_void_p(block), ctypes.c_int64(STEPS)) == 0
    found = np.frombuffer(ctypes.string_at(block + q, 16), float)
    np.testing.assert_array_equal(found, hx.simulate(problem, hx.RATTLE(), steps=STEPS, backend="native").q[-1])


@gcc
def test_an_aarch64_object_links(tmp_path):
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("aarch64-linux-gnu-gcc is not installed")
    hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path, "c", name="hh", target="aarch64-linux-gnu", shared=True)
    data = (tmp_path / "libhh.so").read_bytes()
    assert data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == 183


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(hx.InputError, match="cannot write to .*file"):
        hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path / "file")
    with pytest.raises(hx.InputError, match="looks like a file: add form='fmu'"):
        hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path / "hh.fmu")


def test_files_of_others_are_not_overwritten(tmp_path):
    export = lambda form: hx.export(hx.models.henon_heiles(), hx.RATTLE(), tmp_path, form, name="hh")
    (tmp_path / "hh.js").write_text("// my own page\n")
    with pytest.raises(hx.InputError, match="hh.js was not written by export"):
        export("wasm")
    assert [f.name for f in tmp_path.iterdir()] == ["hh.js"]
    (tmp_path / "hh.o").write_bytes(b"object code of somebody else")
    with pytest.raises(hx.InputError, match="hh.o was not written by export"):
        export("c")
    (tmp_path / "hh.o").unlink()
    export("c")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    export("c")
    assert (tmp_path / "main.c").read_text() == "int main(void) { return 0; }\n"


@gcc
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_header_with_similar_names_works_in_c_and_in_cxx(tmp_path):
    names = ("a b", "a.b", "x*/", "\u03b8", "\u03c9", "a_b_count")
    potential = lambda q, params: sum(params[name] for name in names) * q @ q
    problem = hx.Problem(hx.System(potential, params=dict.fromkeys(names, 0.25)), np.ones(2), np.zeros(2), 0.01, 1.0)
    hx.export(problem, hx.RATTLE(), tmp_path, "c", name="many")
    places = [line.split("+ ")[1] for line in (tmp_path / "many.h").read_text().splitlines() if "many_params" in line
              and "(k)" in line]  # fmt: skip
    assert len(set(places)) == len(names)
    assert run_c(tmp_path, "many", 10)[0] == "status = 0"
    (tmp_path / "main.cpp").write_text(
        '#include "many.h"\nint main() { static many_kernel k; many_init(&k); return many_step(&k, 10); }\n'
    )
    command = ["g++", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.cpp", "many.o", "-lm", "-o", "other"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    subprocess.run(["./other"], cwd=tmp_path, check=True, timeout=60)
