"""Exported steps: WebAssembly beside native code without fused multiply-add, ten models and three methods each.

    python benchmarks/export.py [--quick] [model ...]        (needs gcc; wasmtime of PyPI and Chromium where installed)

Claims: after 10 000 steps q, p and t of WebAssembly, in wasmtime and in headless Chromium, have every bit of
`hx.simulate` without fused multiply-add; a step takes at most 1.5 times as long as that of the native library made of
the same code. Times are the least of many short runs: of processor time, in Chromium of the clock.
"""

from __future__ import annotations

import base64
import ctypes
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from rows import Row, print_rows

import holonomix as hx
from holonomix.compiler import native

STEPS, REPEATS, RATIO = 10_000, 40, 1.5
SLICE = 4e-3  # seconds that are timed at once: less than a process gets before another one runs
MODELS: dict[str, Callable[[], hx.Problem]] = {
    "double-pendulum": hx.models.double_pendulum,
    "four-bar": hx.models.four_bar,
    "slider-crank": hx.models.slider_crank,
    "heavy-top": hx.models.heavy_top,
    "henon-heiles": hx.models.henon_heiles,
    "kepler": hx.models.kepler,
    "tethered-satellites": hx.models.tethered_satellites,
    "spherical-pendulum": hx.models.spherical_pendulum,
    "chain": lambda: hx.models.chain(10),
    "jansen-leg": hx.models.jansen_leg,
}
METHODS = {
    "RATTLE": hx.RATTLE(),
    "order 8": hx.Composition(hx.RATTLE(), order=8),
    "LineIntegral(4)": hx.LineIntegral(4),
}


def least(run: Callable[[], float]) -> float:
    return min(run() for _ in range(REPEATS))


def in_native(folder: Path, steps: int, timed: int) -> tuple[list[float], float]:
    """The end of a run in a library of the code without fused multiply-add, and the seconds of a step."""
    code = ctypes.CDLL(str(folder / "kernel.so"))
    layout = read_layout(folder)
    memory = ctypes.create_string_buffer(layout["size"] + 64)
    at = -(-ctypes.addressof(memory) // 64) * 64
    step = code.kernel_step
    step.argtypes = (ctypes.c_void_p, ctypes.c_int64)

    def run() -> float:
        code.kernel_init(ctypes.c_void_p(at))
        began = time.thread_time()
        assert step(at, timed) == 0
        return (time.thread_time() - began) / timed

    spent = least(run)
    code.kernel_init(ctypes.c_void_p(at))
    assert step(at, steps) == 0
    return read_end(ctypes.string_at(at, layout["size"]), layout), spent


def in_wasmtime(folder: Path, steps: int, timed: int) -> tuple[list[float], float]:
    import wasmtime

    store = wasmtime.Store()
    module = wasmtime.Module.from_file(store.engine, str(folder / "kernel.wasm"))
    parts = wasmtime.Instance(store, module, []).exports(store)
    layout, at, memory = read_layout(folder), parts["__heap_base"].value(store), parts["memory"]
    missing = at + layout["size"] - memory.data_len(store)
    if missing > 0:
        memory.grow(store, -(-missing // 65536))

    def run() -> float:
        parts["kernel_init"](store, at)
        began = time.thread_time()
        assert parts["kernel_step"](store, at, timed) == 0
        return (time.thread_time() - began) / timed

    spent = least(run)
    parts["kernel_init"](store, at)
    assert parts["kernel_step"](store, at, steps) == 0
    return read_end(bytes(memory.read(store, at, at + layout["size"])), layout), spent


SCRIPT = """(async () => {
  const bytes = Uint8Array.from(atob("@WASM@"), c => c.charCodeAt(0));
  const {load} = await import("data:text/javascript;base64,@JS@");
  const k = await load(bytes);
  let spent = Infinity;
  const end = performance.now() + 2000;  // until the optimized code is there
  for (let i = 0; i < REPEATS || performance.now() < end; i++) {
    k.reset();
    const began = performance.now();
    if (k.step(TIMED)) throw new Error(k.status);
    spent = Math.min(spent, performance.now() - began);
  }
  k.reset();
  if (k.step(STEPS)) throw new Error(k.status);
  return [[...k.q, ...k.p, k.t], spent / 1000 / TIMED];
})()"""


def in_chromium(browser, folder: Path, steps: int, timed: int) -> tuple[list[float], float]:
    script = (folder / "kernel.js").read_text().replace('new URL("./kernel.wasm", import.meta.url)', "null")
    texts = {"@WASM@": (folder / "kernel.wasm").read_bytes(), "@JS@": script.encode()}
    text = SCRIPT.replace("REPEATS", str(REPEATS)).replace("STEPS", str(steps)).replace("TIMED", str(timed))
    for name, data in texts.items():
        text = text.replace(name, base64.b64encode(data).decode())
    return browser.ask(text)


def read_layout(folder: Path) -> dict:
    text = (folder / "kernel.js").read_text()
    start = text.index("const layout = ") + 15
    return json.loads(text[start : text.index("};", start) + 1])


def read_end(block: bytes, layout: dict) -> list[float]:
    fields = (layout["fields"][name] for name in "qpt")
    parts = [np.frombuffer(block, "f8", math.prod(f["shape"]), f["offset"]) for f in fields]
    return np.concatenate(parts).tolist()


def without_fma(problem: hx.Problem, method, steps: int) -> list[float]:
    kept, native.has_fma = native.has_fma, lambda: False
    try:
        sol = hx.simulate(problem, method, steps=steps, save_every=steps, backend="native")
    finally:
        native.has_fma = kept
    return [*np.ravel(sol.q[-1]), *np.ravel(sol.p[-1]), float(sol.t[-1])]


def measure(names: list[str], steps: int) -> Iterator[Row]:
    browser = None
    from tests import browser as browsers

    if browsers.CHROMIUM:
        browser = browsers.Browser()
    try:
        for name in names:
            for text, method in METHODS.items():
                yield from one(f"{name}, {text}", MODELS[name](), method, steps, browser)
    finally:
        if browser:
            browser.close()


def one(what: str, problem: hx.Problem, method, steps: int, browser) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        hx.export(problem, method, folder, name="kernel")
        hx.export(problem, method, folder, "c", name="kernel", target="x86_64-linux-gnu")
        os.system(f"cd {place} && gcc -shared kernel.o -lm -o kernel.so")
        expected = without_fma(problem, method, steps)
        timed = math.ceil(SLICE / in_native(folder, steps, 100)[1])
        found = {"native": in_native(folder, steps, timed), "wasmtime": in_wasmtime(folder, steps, timed)}
        if browser:
            found["chromium"] = in_chromium(browser, folder, steps, timed)
        base = found["native"][1]
        size = (folder / "kernel.wasm").stat().st_size / 1000
        note = f"native {base * 1e6:.3g} us, wasm {size:.1f} kB, {steps} steps"
        for machine, (end, spent) in found.items():
            different = sum(
                np.float64(a).tobytes() != np.float64(b).tobytes() for a, b in zip(end, expected, strict=True)
            )
            yield Row(f"{what}, {machine}: numbers that differ", different, 0, note if machine == "native" else "")
            if machine != "native":
                yield Row(f"{what}, {machine}: time over native", spent / base, RATIO)


if __name__ == "__main__":
    chosen = [x for x in sys.argv[1:] if not x.startswith("-")] or list(MODELS)
    sys.exit(print_rows([measure(chosen, STEPS // 10 if "--quick" in sys.argv else STEPS)]))
