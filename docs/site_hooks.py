"""Hooks of the documentation build: folders in the navigation, the reference of every public name, live pages.

An entry of `nav` that ends in a slash stands for the pages of that folder which `nav` does not name; pages of the
top folder that are named nowhere come under "More". So a new page needs no change of mkdocs.yml.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
from pathlib import Path

INTRODUCTIONS = {
    "Systems": "Mechanical systems: potentials, constraints, masses and forces.",
    "Projection": "Projection onto the constraint manifold, and the solvers for the multipliers.",
    "Mechanisms": "Systems built from bodies and joints.",
    "Runs": "Functions that run one trajectory or many, and their results.",
    "Methods": "The integrators; [the method chooser](../methods/index.md) helps to choose one.",
    "Certificates": "Measurements of declared properties, comparisons of methods, stability and stiff limits.",
    "Errors and status": "Errors, warnings, status codes; [troubleshooting](../troubleshooting.md) has the remedies.",
    "Store": "Runs on disk; [the store](../store.md) describes the format.",
    "Invariants and statistics": "Conserved quantities, drifts, and statistics of samples.",
    "Pictures": "Figures of problems, solutions and certificates.",
    "Taylor series": "Taylor series of the solutions of differential equations.",
}
SECTIONS = {  # by the module that a name is imported from; the longest entry that fits
    "mechanics": "Systems",
    "mechanics.projection": "Projection",
    "build.mechanisms": "Mechanisms",
    "build.symbolic": "Systems",
    "run": "Runs",
    "core.types": "Runs",
    "core.scene": "Runs",
    "methods": "Methods",
    "build.models": "Models",
    "study.certificates": "Certificates",
    "core.errors": "Errors and status",
    "core.status": "Errors and status",
    "run.io": "Store",
    "mechanics.invariants": "Invariants and statistics",
    "study.plotting": "Pictures",
    "study.viewer": "Pictures",
    "study.export": "Export",
    "study.lyapunov": "Certificates",
    "trace.taylor": "Taylor series",
}
HELPERS = ("_", "as_", "check_")
FAMILY_PAGES = {  # the pages of docs/methods and the modules that they describe
    "classical": ("runge_kutta", "verlet"),
    "multistep": ("multistep", "partitioned"),
    "taylor": ("taylor",),
    "rattle": ("shake", "rattle"),
    "composition": ("composition",),
    "line_integral": ("hbvm", "line_integral", "lobatto"),
    "adaptive": ("adaptive", "poincare"),
    "stiff": ("newmark", "zhang_skeel"),
    "impulse": ("impulse",),
    "variational": ("variational",),
    "so3": ("so3",),
}
GALLERY = {  # models and steps
    "double_pendulum": 2000,
    "four_bar": 1000,
    "heavy_top": 500,
    "cosserat_rod": 400,
    "water_cluster": 300,
    "tethered_satellites": 600,
}


def on_config(config):
    """Expand the folders of the navigation."""
    root = Path(config.docs_dir)
    named = set(_named(config.nav))
    pages = sorted(str(path.relative_to(root)) for path in root.rglob("*.md"))
    pages += [f"howto/{path.stem}.md" for path in _notebooks(root)]
    config.nav = _expanded(config.nav, [page for page in pages if page not in named])
    rest = [page for page in pages if page not in set(_named(config.nav))]
    if rest:
        config.nav.append({"More": rest})
    config.nav.append({"Reference": [{title: page} for title, page in _reference_pages().items()]})
    return config


def _named(nav):
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from _named(value) if isinstance(value, list) else [value]


def _expanded(nav, pages):
    found = []
    for entry in nav:
        if isinstance(entry, dict):
            found.append({k: _expanded(v, pages) if isinstance(v, list) else v for k, v in entry.items()})
        elif entry.endswith("/"):
            found.extend(page for page in pages if page.startswith(entry))
        else:
            found.append(entry)
    return found


def _reference_pages():
    titles = dict.fromkeys([*SECTIONS.values(), "Models"])
    return {title: f"reference/{title.lower().replace(' ', '_')}.md" for title in titles}


def on_files(files, config):
    """Add one page of reference per section."""
    from mkdocs.structure.files import File

    contents = {title: [f"# {title}", INTRODUCTIONS.get(title, "")] for title in _reference_pages()}
    for label, path, section in sorted(_public_names()):
        contents[section].append(f"::: {path}\n    options:\n      heading: {label}\n      toc_label: {label}\n")
    for title, page in _reference_pages().items():
        text = "\n\n".join(contents[title])
        files.append(File.generated(config, page, content=text))
    for notebook in _notebooks(config.docs_dir):
        files.append(File.generated(config, f"howto/{notebook.stem}.md", content=_notebook_page(notebook)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to notebooks lead to their pages; a page of a family of methods ends with a table of their traits."""
    folder, _, name = page.file.src_uri.rpartition("/")
    if folder == "howto":  # where they are downloads
        return markdown
    if folder == "methods" and name.removesuffix(".md") in FAMILY_PAGES:
        markdown += _traits(Path(config.docs_dir), FAMILY_PAGES[name.removesuffix(".md")])
    return markdown.replace(".ipynb)", ".md)")


def _traits(docs, modules):
    """What the methods of some modules declare, beside what was measured (tools/measured_traits.py)."""
    import holonomix as hx

    known = json.loads((docs / "assets" / "measured_traits.json").read_text())
    lines = [
        "\n\n## Declared and measured\n",
        "Default options, on the problem that is named. Orders are slopes; the other numbers are defects, at round-off "
        "where a property is declared. `hx.certify(problem, method)` measures the same on yours.\n",
        "| method | on | order of q | symplectic | symmetric | constraint | energy |\n|---|---|---|---|---|---|---|",
    ]
    for name in (n for module in modules for n in hx.methods.FAMILIES[module]):
        for kind, traits in hx.methods.registry()[name].traits.items():
            found = known.get(name, {}).get(kind, {})
            shown = found.get("findings", {})
            on = f"{kind} ({found['problem']})" if "problem" in found else kind
            cells = [str(traits.order_of("q")) + _value(shown, "order of q", "{:.2f}")]
            for key, declared in (
                ("symplectic", traits.symplectic),
                ("symmetric", traits.symmetric),
                ("constraint", traits.constraint_exact),
                ("energy", traits.energy_exact),
            ):
                word = {True: "yes", False: "no", None: "not proved"}[declared]
                cells.append(word + _value(shown, key, "{:.0e}"))
            lines.append(f"| `{name}` | {on} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _value(findings, key, form):
    return f" ({form.format(findings[key][0])})" if key in findings else ""


def _notebooks(docs):
    return sorted((Path(docs) / "howto").glob("*.ipynb"))


def _notebook_page(notebook):
    """A notebook as a page: its text, its code, and what it printed and drew."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                parts.append(f'<img alt="" src="data:image/png;base64,{data["image/png"]}">')
            elif "text/html" in data:
                parts.append(f'<div markdown="0">{"".join(data["text/html"])}</div>')
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    parts.insert(1, f"[Download this page as a notebook]({notebook.name}){{ download }}")
    return "\n\n".join(parts)


def _public_names():
    """The name as users write it, the place of its definition, and its section; a name in `hx` is not repeated."""
    import holonomix as hx

    seen, modules = set(), {}
    for name, (module, _) in hx._HOME.items():
        value = getattr(hx, name)
        if inspect.ismodule(value):
            modules[name] = value
        else:
            seen.add(id(value))
            yield f"hx.{name}", *_place(value, name, module)
    for label, module in modules.items():
        for name, value in _members(module):
            if id(value) not in seen:
                seen.add(id(value))
                yield f"hx.{label}.{name}", *_place(value, name, module.__name__.partition(".")[2])


def _members(module):
    """The functions and classes of a public module, without helpers; of `errors` only the classes."""
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name)
        home = str(getattr(value, "__module__", ""))
        helper = home.startswith("holonomix.core") and not inspect.isclass(value)
        if callable(value) and home.startswith("holonomix") and not helper and not name.startswith(HELPERS):
            yield name, value


def _place(value, name, module):
    home = getattr(value, "__module__", "")
    if not home.startswith("holonomix"):
        home = f"holonomix.{module}"
    section = SECTIONS[max((entry for entry in SECTIONS if f"{module}.".startswith(f"{entry}.")), key=len)]
    return f"{home}.{getattr(value, '__qualname__', name)}", section


def on_post_build(config):
    """Write the pages of the galleries."""
    import holonomix as hx

    for name, steps in GALLERY.items():
        problem = getattr(hx.models, name)()
        hx.simulate(problem, hx.RATTLE(), steps=steps).view(Path(config.site_dir) / "gallery" / f"{name}.html")
    _ensemble(hx).view(Path(config.site_dir) / "gallery" / "ensemble.html")
    gallery = _live_gallery(Path(config.docs_dir))
    for name, make in gallery.PAGES.items():
        make(Path(config.site_dir) / "live" / f"{name}.html")


def _live_gallery(docs):
    """Import `tools/live_gallery.py`, which makes the live pages."""
    spec = importlib.util.spec_from_file_location("live_gallery", docs.parent / "tools" / "live_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ensemble(hx):
    """Double pendula released from many angles."""
    import numpy as np

    a, b = map(np.ravel, np.meshgrid(*[np.linspace(-2.5, 2.5, 31)] * 2))
    first = np.stack([np.sin(a), -np.cos(a)], axis=1)
    q0 = np.stack([first, first + np.stack([np.sin(b), -np.cos(b)], axis=1)], axis=1)
    problem = hx.models.double_pendulum(lengths=(1.0, 1.0))
    return hx.simulate_ensemble(
        problem, hx.RATTLE(), q0, np.zeros_like(q0), dt=0.02, steps=800, save_every=2,
        coordinates={"first angle": a, "second angle": b},
        reduce={"highest": hx.reductions.Maximum(lambda q, p: q[1, 1])},
    )  # fmt: skip
