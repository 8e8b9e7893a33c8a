"""The commands for methods, models and papers. They import JAX only when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .app import T1, Backend, Dt, Json, MaybeMethod, Model, Omega, Quiet, Sets, Trust, app
from .environment import set_up_jax
from .exits import Exit, exit_on_error
from .printing import make_console, print_json
from .suggest import complete_method, complete_model


@app.command(epilog="Exit codes: 0 compared; 2 wrong model or method; 3 no run of any method reached its end.")
def compare(
    model: Model,
    methods: Annotated[
        list[str], typer.Argument(metavar="METHOD", help="Two or more methods.", autocompletion=complete_method)
    ],
    dt: Dt = None,
    t1: T1 = None,
    omega: Annotated[
        str | None,
        typer.Option(
            "--omega", metavar="NUMBER", help="Spring stiffness for methods of stiff systems. [default: 2/dt]"
        ),
    ] = None,
    levels: Annotated[int, typer.Option("--levels", min=1, max=12, help="Number of step sizes.")] = 5,
    sets: Sets = None,
    trust: Trust = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the plot.")] = Path("compare"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare errors and costs of methods.

    The result is a table and a work-precision plot.

    Methods for stiff systems run on the penalized model, in which springs of stiffness omega replace the constraints.
    Their errors are measured against the rigid motion.
    """
    with exit_on_error():
        set_up_jax()
        from holonomix.study.certificates.comparison import compare as carry_out
        from holonomix.study.certificates.table import table, winners

        from .execute import job_from
        from .methodspec import parse_method
        from .request import number, spec_from

        spec = spec_from(model, {"dt": dt, "t1": t1}, sets or [], None, trust=trust)
        job = job_from(spec)
        stiffness = None if omega is None else number("omega", omega)
        end = job.problem.t1 if job.t1 is None else job.t1
        console = make_console(stderr=True)
        say = (lambda name: None) if quiet else (lambda name: console.print(f"{name} ...", highlight=False))
        chosen = {name: parse_method(name) for name in methods}
        result = carry_out(job.problem, chosen, dt=job.dt, t1=end, omega=stiffness, levels=levels, progress=say)
        picture = out / f"{job.spec.subject}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        result.plot().savefig(picture, dpi=150)
        if as_json:
            print_json({**result.to_dict(), "plot": str(picture)})
        else:
            make_console().print(table(result))
            make_console().print(winners(result), highlight=False)
            make_console().print(f"work-precision plot: {picture}", highlight=False)
        if all(curve.failed for curve in result.curves):
            raise SystemExit(Exit.SIMULATION)


@app.command(epilog="Exit codes: 0 confirmed; 1 a declared property failed or a run stopped early; 2 wrong arguments.")
def certify(
    model: Model,
    method: MaybeMethod = None,
    dt: Dt = None,
    omega: Omega = None,
    sets: Sets = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Measure on a model the properties that a method declares.

    The table shows order, symplecticity, reversibility, constraint errors and drifts beside what is declared.
    """
    with exit_on_error():
        set_up_jax()
        from .execute import job_from
        from .request import check_model_first, spec_from

        check_model_first("certify", model, method)
        spec = spec_from(model, {"method": method, "dt": dt, "omega": omega}, sets or [], None, trust=trust)
        job = job_from(spec)
        import holonomix as hx

        certificate = hx.certify(job.problem, job.method, dt=None if dt is None else job.dt)
        if as_json:
            print_json(certificate.to_dict())
        else:
            make_console().print(certificate)
        if not certificate.passed:
            raise SystemExit(Exit.CONTRADICTED)


@app.command()
def live(
    model: Model,
    method: MaybeMethod = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="File name of the page.")] = Path(
        "live.html"
    ),
    sliders: Annotated[
        list[str] | None,
        typer.Option(
            "--slider",
            metavar="NAME=LOW:HIGH",
            help="A slider for a parameter, one of its entries or dt: --slider gravity=0:20. May be repeated.",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--compare", metavar="METHOD", help="A second method from the same start, drawn beside the first."
        ),
    ] = None,
    ensemble: Annotated[int, typer.Option("--ensemble", min=0, help="Number of ghosts.")] = 0,
    spread: Annotated[str, typer.Option("--spread", metavar="NUMBER", help="Spread of the ghosts' q.")] = "1e-3",
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="NUMBER", help="Simulated time per second. [default: 120 steps]")
    ] = None,
    dt: Dt = None,
    omega: Omega = None,
    sets: Sets = None,
    trust: Trust = False,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Write a page that runs the simulation.

    The page is one file that needs no network. Particles and bodies can be dragged, and sliders change parameters.
    """
    with exit_on_error():
        set_up_jax()
        import jax

        import holonomix as hx

        from .execute import job_from
        from .methodspec import parse_method
        from .request import check_model_first, number, slider, spec_from

        check_model_first("live", model, method)
        job = job_from(spec_from(model, {"method": method, "dt": dt, "omega": omega}, sets or [], None, trust=trust))
        page = hx.live(
            job.problem,
            job.method,
            out,
            sliders=dict(slider(text) for text in sliders or []),
            compare=None if beside is None else parse_method(beside),
            ensemble=ensemble,
            spread=number("spread", spread),
            rate=None if rate is None else number("rate", rate),
            dt=job.dt,
            key=jax.random.key(job.spec.seed) if job.method.stochastic else None,
            open=show,
        )
        make_console().print(f"page: {page}", highlight=False)


@app.command()
def explain(
    model: Model,
    method: MaybeMethod = None,
    backend: Backend = "auto",
    omega: Omega = None,
    sets: Sets = None,
    trust: Trust = False,
) -> None:
    """Show the back end of a run, and why.

    Also shows the size of the step and the solver.
    """
    with exit_on_error():
        set_up_jax()
        from .execute import job_from
        from .request import spec_from

        job = job_from(spec_from(model, {"method": method, "omega": omega}, sets or [], None, trust=trust))
        import holonomix as hx

        typer.echo(str(hx.explain(job.problem, job.method, backend=backend or "auto")))


@app.command()
def build(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory, or the file of an FMU.")],
    method: MaybeMethod = None,
    form: Annotated[
        str | None,
        typer.Option("--form", metavar="NAME", help="wasm, c or fmu. [default: fmu for OUT.fmu, else wasm]"),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="TRIPLE", help="Another machine, such as aarch64-linux-gnu.")
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="With c: also link a shared library.")] = False,
    version: Annotated[int, typer.Option("--fmi", metavar="2|3", help="With fmu: the version of FMI.")] = 3,
    inputs: Annotated[
        str | None, typer.Option("--inputs", metavar="NAMES", help="With fmu: input parameters, separated by commas.")
    ] = None,
    dt: Dt = None,
    omega: Omega = None,
    sets: Sets = None,
    trust: Trust = False,
) -> None:
    """Write the compiled step for use without Python.

    The result is a WebAssembly module for browsers and node, an object file with a C header, or a functional mock-up
    unit (FMU) for co-simulation.
    """
    with exit_on_error():
        set_up_jax()
        from .execute import job_from
        from .request import spec_from

        spec = spec_from(model, {"method": method, "dt": dt, "omega": omega}, sets or [], None, trust=trust)
        job = job_from(spec)
        import jax

        import holonomix as hx

        form = form or ("fmu" if out.suffix == ".fmu" else "wasm")
        given = inputs.split(",") if inputs else None
        observe = job.observe | {"energy": job.problem.system.hamiltonian}
        more = {"dt": job.dt, "observe": observe, "target": target, "shared": shared}
        if job.method.stochastic:
            more["key"] = jax.random.key(job.spec.seed)
        if form == "fmu":
            more["version"] = version
        hx.export(job.problem, job.method, out, form, inputs=given, **more)
        typer.echo(f"{form}: {out}")


@app.command()
def reproduce(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="Name of a paper, or all. Without it, the papers are listed.")
    ] = None,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="A figure or table. [default: all]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs that lead to the same verdict.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for figures and data.")] = Path("reproduced"),
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            help="Write a report as Markdown and HTML, with PNG, PDF, SVG and CSV files, to DIR.",
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the items with their quick and full run times.")] = False,
) -> None:
    """Recompute figures and tables of the papers.

    Each item has a verdict.
    """
    with exit_on_error():
        set_up_jax()
        from .papers import PAPERS, list_items
        from .papers import reproduce as carry_out

        console = make_console()
        if listed:
            list_items(paper or "all", console)
        elif paper is None:
            console.print("\n".join(f"{name:28} {title}" for name, title in PAPERS.items()), highlight=False)
        else:
            carry_out(paper, item, quick, out, report, console)


@app.command()
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Describe and draw this model.", autocompletion=complete_model)
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.png", help="Save a picture of the model NAME.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models with their arguments."""
    with exit_on_error():
        set_up_jax()

        from .listing import describe_model, draw_model, model_rows, print_models, sketch_model
        from .suggest import kebab

        if picture is not None:
            draw_model(name, picture)
        if name is not None and not as_json:
            typer.echo(describe_model(name))
            if drawn := sketch_model(name):
                typer.echo(f"\n{drawn}")
        elif as_json:
            text = None if name is None else describe_model(name)  # raises if the model is unknown
            rows = [row for row in model_rows() if text is None or row["name"] == kebab(str(name))]
            print_json(rows if text is None else {**rows[0], "description": text})
        else:
            print_models(make_console())


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Describe this method in full.", autocompletion=complete_method)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods with their declared properties."""
    with exit_on_error():
        set_up_jax()

        from .listing import describe_method, method_rows, print_methods

        if name is not None and not as_json:
            typer.echo(describe_method(name))
        elif as_json:
            print_json(method_rows() if name is None else {"name": name, "description": describe_method(name)})
        else:
            print_methods(make_console())


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Names of scripts. [default: all]")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the scripts.")] = False,
) -> None:
    """Run the benchmark scripts of the source tree."""
    with exit_on_error():
        from .benchmarks import run_scripts, scripts

        if listed:
            typer.echo("\n".join(scripts()))
        elif run_scripts(names or [], make_console()):
            raise SystemExit(Exit.CONTRADICTED)
