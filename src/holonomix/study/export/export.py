"""`export`: the compiled step of a problem as files for other programs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.checks import file_path, one_of, short_repr
from ...core.errors import InputError
from ...core.types import ArrayLike
from ...mechanics.problem import Problem
from ...run.arguments import Arguments, MethodLike, Observe, Options
from ...run.loop import Loop, make_loop
from . import fmu
from .kernels import Kernel, make_kernel
from .targets import WASM, Target
from .wasm_module import MATH, module_of

if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]
else:
    PathLike = object

TEMPLATES = Path(__file__).parent / "templates"
FORMS = ("wasm", "c", "fmu")
SUFFIXES = (".fmu", ".wasm", ".js", ".html", ".c", ".h", ".o", ".so")
MARK = "compiled by holonomix"  # in the first line of the text files that `export` writes
C_TYPES = {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
C_TYPES |= {"float64": "double", "float32": "float", "bool": "uint8_t"}


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
    shared: bool = False,
    version: int = 3,
    inputs: Mapping[str, str] | Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Path:
    """Write the compiled step of `method` on `problem` for use without Python, and return the path.

    `form="wasm"` writes NAME.wasm and NAME.js, an ES module for browsers and node, into the directory `path`.
    `form="c"` writes NAME.h, NAME.o (with `shared=True` also a shared library) and, unless there is one, an example,
    main.c. `form="fmu"` writes the file `path`, a functional mock-up unit for co-simulation with FMI 3.0 or, with
    `version=2`, 2.0.
    Parameters, `dt` and the start can be changed at run time. `observe` is as in `simulate`. `name` is used for
    functions and files; the default is the name of the problem.

    `target` is for libraries. None compiles for this machine; results are bitwise identical to `hx.simulate`. An LLVM
    triple such as `"aarch64-linux-gnu"` compiles for any machine of that kind; results are bitwise identical to
    WebAssembly. A step that `hx.explain` assigns to the array path cannot be exported.

    For an FMU, `inputs` are parameters that may change at communication points: a list of their names, or a dict from
    names in the FMU to parameters. `units` maps variables to units such as "N.m".
    """
    one_of("form", form, FORMS)
    if not isinstance(problem, Problem):
        raise InputError(f"export needs a Problem, which has a start and a step, not {type(problem).__name__}")
    if form == "wasm" and target is not None:
        raise InputError(f"target {target!r} is for form='c' and 'fmu'; WebAssembly runs everywhere")
    _check_form("shared", shared, form, "c")
    _check_form("inputs", inputs, form, "fmu")
    _check_form("units", units, form, "fmu")
    if version not in (2, 3):
        raise InputError(f"version must be 2 or 3, of FMI, not {version!r}")
    folder = file_path("path", path)
    if form != "fmu" and folder.suffix in SUFFIXES and not folder.is_dir():
        advice = "add form='fmu'" if folder.suffix == ".fmu" else "give a directory, and name=... for the files in it"
        raise InputError(f"form={form!r} writes files into a directory, and {folder} looks like a file: {advice}")
    if form == "fmu" and folder.suffix.lower() != ".fmu":
        raise InputError(f"form='fmu' writes one file whose name ends in .fmu, not {folder}")
    name = _identifier(problem.name if name is None else name)
    machine = Target(WASM if form == "wasm" else target)
    observe, measure = split_observables(observe, problem)
    options = Options(dt=dt, steps=1, observe=observe, key=key)
    loop = make_loop(Arguments.of(problem, method, None, None, options).alone(stored=False))
    if form == "fmu":
        return _write_unit(folder, loop, name, machine, version, inputs, units or {}, measure)
    kernel = make_kernel(loop, name, fma=machine.fma, width=machine.width, measure=measure)
    code = machine.compile(kernel.texts)
    files: dict[str, bytes | str] = {}
    if form == "wasm":
        entries = [f"{name}_{part}" for part in _entries(kernel)]
        files[f"{name}.wasm"] = module_of(code, entries, MATH)
        files[f"{name}.js"] = _filled("kernel.js", NAME=name, LAYOUT=json.dumps(layout(kernel), indent=2),
                                        CLASS=template("kernel_class.js"))  # fmt: skip
    else:
        files[f"{name}.o"] = code
        files[f"{name}.h"] = header(kernel)
        files["main.c"] = _filled("main.c", NAME=name)
        if shared:
            suffix = "dylib" if machine.platform[1] == "darwin" else "so"
            files[f"lib{name}.{suffix}"] = machine.link({f"{name}.o": code}, "a shared library")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _check_others(folder, files)
        for file, content in files.items():
            if file == "main.c" and (folder / file).exists():
                continue  # an example, which users edit
            (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def _write_unit(
    path: Path,
    loop: Loop,
    name: str,
    machine: Target,
    version: int,
    inputs: Mapping[str, str] | Sequence[str] | None,
    units: Mapping[str, str],
    measure: Mapping[str, Callable[..., Any]],
) -> Path:
    """The file of an FMU."""
    commands = fmu.check_inputs(loop, inputs)
    fmu.check_rows(loop, commands)
    kernel = make_kernel(loop, name, fma=machine.fma, width=machine.width, measure=measure)
    variables = fmu.variables_of(kernel, commands)
    fmu.check_units(units, variables)
    if version == 2:
        variables = [one for v in variables for one in v.elements()]
    resizes = fmu.shortens(loop)
    arch, system = machine.platform
    token = fmu.token_of(kernel.texts, variables, machine.triple, machine.host, version)
    wrapper = fmu.sources(kernel, variables, version, token, resizes, template, _filled)
    parts = {"fmu.c": wrapper, f"{name}.h": header(kernel), f"{name}.o": machine.compile(kernel.texts)}
    library = machine.link(parts, "an FMU")
    folder = {("x86_64", "linux"): "linux64", ("x86_64", "darwin"): "darwin64"}.get((arch, system), f"{arch}-{system}")
    folder = folder if version == 2 else f"{arch}-{system}"
    suffix = "dylib" if system == "darwin" else "so"
    about = fmu.description(kernel, loop, variables, version, token, resizes, units)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fmu.pack(path, {"modelDescription.xml": about, f"binaries/{folder}/{name}.{suffix}": library})
    return path


def split_observables(observe: Any, problem: Problem) -> tuple[Any, dict[str, Callable[..., Any]]]:
    """Other observables, and those that are known to depend on the system and use its current parameters.

    The second kind are methods of `problem.system`, such as `hamiltonian`, and joint forces.
    """
    if not isinstance(observe, Mapping):
        return observe, {}
    measure: dict[str, Callable[..., Any]] = {}
    for name, fn in observe.items():
        if getattr(fn, "__self__", None) is problem.system and fn.__name__ in ("hamiltonian", "multipliers", "kinetic"):
            time = fn.__name__ != "kinetic"
            measure[name] = lambda system, q, p, t, fn=fn, time=time: fn.__func__(system, q, p, *((t,) if time else ()))
        elif callable(on := getattr(fn, "on", None)):
            measure[name] = on
    return {name: fn for name, fn in observe.items() if name not in measure}, measure


def _check_others(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Raise if a file would be overwritten that `export` did not write. Binary files have a text file beside them."""
    texts = [file for file, content in files.items() if isinstance(content, str) and file != "main.c"]
    for file in (*texts, *(file for file in files if file not in texts and file != "main.c")):
        if (folder / file).exists():
            mark = folder / (file if file in texts else texts[0])
            line = ""
            if mark.exists():
                with mark.open(errors="replace") as old:
                    line = old.readline()
            if MARK not in line:
                raise InputError(f"{folder / file} was not written by export: choose another directory or name=...")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn file system errors into errors that name the path."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error


def _check_form(argument: str, value: object, form: str, wanted: str) -> None:
    if value and form != wanted:
        raise InputError(f"{argument}={value!r} is for form={wanted!r}, not {form!r}")


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
    macros: set[str] = set()
    for field in kernel.fields.values():
        kind, macro = C_TYPES[field.dtype.name], f"{name}_{re.sub(r'[^0-9A-Za-z_]', '_', field.name)}"
        free = (macro, *(f"{macro}_{k}" for k in range(2, len(macros) + 3)))  # names may differ in one symbol only
        macro = next(m for m in free if not {m, f"{m}_count"} & macros)
        macros |= {macro, f"{macro}_count"}
        shape = "".join(f"[{n}]" for n in field.shape)
        lines.append(f"/* {_comment(field.name)}{shape} */")
        lines.append(f"#define {macro}(k) (({kind} *)(void *)((k)->bytes + {field.offset}))")
        lines.append(f"#define {macro}_count {field.count}")
    project = f"int32_t {name}_project({name}_kernel *k); /* moves q, p to the nearest consistent state */"
    if not kernel.projects:
        project = f"/* no {name}_project: {_comment(kernel.no_projection)} */"
    method, size = _comment(kernel.method), str(kernel.size)
    return _filled("kernel.h", NAME=name, METHOD=method, SIZE=size, FIELDS="\n".join(lines), PROJECT=project)


def _comment(text: str) -> str:
    """Text that neither ends nor begins a comment in C."""
    return text.replace("*", " * ").replace("\n", " ") if "*/" in text or "/*" in text else text


def _entries(kernel: Kernel) -> tuple[str, ...]:
    return ("init", "start", "step", "project") if kernel.projects else ("init", "start", "step")


def template(file: str) -> str:
    """The text of a template."""
    return (TEMPLATES / file).read_text()


def _filled(file: str, **values: str) -> str:
    """A template with its places filled in; values that look like places are kept."""
    return re.sub("@([A-Z_]+)@", lambda found: values[found[1]], template(file))


def _identifier(name: object) -> str:
    if not isinstance(name, str):
        raise InputError(f"name must be a text, not {short_repr(name)}")
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()  # u for an umlaut
    found = re.sub(r"[^0-9A-Za-z]+", "_", plain).strip("_").lower()
    if not found:
        return "kernel"
    return found if found[0].isalpha() else f"k_{found}"
