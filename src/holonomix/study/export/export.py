"""`export`: the compiled step of a problem as files for other programs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.checks import one_of
from ...core.errors import InputError
from ...core.types import ArrayLike
from ...mechanics.problem import Problem
from ...run.arguments import Arguments, MethodLike, Observe, Options
from ...run.loop import make_loop
from .kernels import Kernel, make_kernel
from .targets import WASM, Target
from .wasm_module import module_of

if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]
else:
    PathLike = object

TEMPLATES = Path(__file__).parent / "templates"
FORMS = ("wasm", "c")
C_TYPES = {"float64": "double", "int64": "int64_t", "int32": "int32_t", "uint32": "uint32_t"}


def export(
    problem: Problem,
    method: MethodLike,
    path: PathLike,
    form: str = "wasm",
    *,
    observe: Observe | None = None,
    dt: float | None = None,
    key: ArrayLike | None = None,
    name: str | None = None,
    target: str | None = None,
) -> Path:
    """Write the compiled step of `method` on `problem` into the directory `path`, and return it.

    `form="wasm"` writes NAME.wasm and NAME.js, an ES module for browsers and node. `form="c"` writes NAME.h, NAME.o and
    an example, main.c. Parameters, `dt` and the start can be changed at run time; `observe` is as in `simulate`. `name`
    is what functions and files are called, by default the name of the problem.

    `target` is for `form="c"`: None compiles for this machine, with the bits of `hx.simulate`; an LLVM triple such as
    `"aarch64-linux-gnu"` for any machine of that kind, with the bits of WebAssembly. A step that `hx.explain` sends to
    the array path cannot be exported.
    """
    one_of("form", form, FORMS)
    if not isinstance(problem, Problem):
        raise InputError(f"export needs a Problem, which has a start and a step, not {type(problem).__name__}")
    if form == "wasm" and target is not None:
        raise InputError(f"target {target!r} is for form='c'; WebAssembly runs everywhere")
    name = _identifier(problem.name if name is None else name)
    machine = Target(WASM if form == "wasm" else target)
    options = Options(dt=dt, steps=1, observe=observe, key=key)
    loop = make_loop(Arguments.of(problem, method, None, None, options).alone(stored=False))
    kernel = make_kernel(loop, name, fma=machine.fma, width=machine.width)
    code = machine.compile(kernel.texts)
    files: dict[str, bytes | str] = {}
    if form == "wasm":
        entries = [f"{name}_{part}" for part in _entries(kernel)]
        files[f"{name}.wasm"] = module_of(code, entries)
        files[f"{name}.js"] = _filled("kernel.js", NAME=name, LAYOUT=json.dumps(layout(kernel), indent=2),
                                        CLASS=template("kernel_class.js"))  # fmt: skip
    else:
        files[f"{name}.o"] = code
        files[f"{name}.h"] = header(kernel)
        files["main.c"] = _filled("main.c", NAME=name)
    folder = Path(os.fspath(path))
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def layout(kernel: Kernel) -> dict[str, object]:
    """The places of the fields in a block, for programs that read it."""
    fields = {
        field.name: {"offset": field.offset, "type": field.dtype.name, "shape": list(field.shape)}
        for field in kernel.fields.values()
    }
    return {
        "name": kernel.name,
        "size": kernel.size,
        "method": kernel.method,
        "noProjection": kernel.no_projection,
        "fields": fields,
    }


def header(kernel: Kernel) -> str:
    """The C header: a block as a type, its fields as macros, the functions."""
    name, lines = kernel.name, []
    for field in kernel.fields.values():
        kind, macro = C_TYPES[field.dtype.name], f"{name}_{re.sub(r'[^0-9A-Za-z_]', '_', field.name)}"
        shape = "".join(f"[{n}]" for n in field.shape)
        lines.append(f"/* {field.name}{shape} */")
        lines.append(f"#define {macro}(k) (({kind} *)(void *)((k)->bytes + {field.offset}))")
        lines.append(f"#define {macro}_count {field.count}")
    project = f"int32_t {name}_project({name}_kernel *k); /* moves q, p to the nearest consistent state */"
    if not kernel.projects:
        project = f"/* no {name}_project: {kernel.no_projection} */"
    return _filled("kernel.h", NAME=name, METHOD=kernel.method, SIZE=str(kernel.size), FIELDS="\n".join(lines),
                   PROJECT=project)  # fmt: skip


def _entries(kernel: Kernel) -> tuple[str, ...]:
    return ("init", "start", "step", "project") if kernel.projects else ("init", "start", "step")


def template(file: str) -> str:
    """The text of a template."""
    return (TEMPLATES / file).read_text()


def _filled(file: str, **values: str) -> str:
    text = template(file)
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _identifier(name: str) -> str:
    found = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_").lower()
    if not found:
        return "kernel"
    return found if found[0].isalpha() else f"k_{found}"
