"""The commands and their help. Everything heavy is imported inside them, so that `--help` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .exits import CommandError, Exit, guarded, stop_on_terminate
from .printing import make_console, print_json, read_certificate, report, report_sweep
from .suggest import complete_method, complete_model

__all__ = ["app", "main"]

HELP = """Simulate mechanical systems with holonomic constraints.

  holonomix run double-pendulum            a model by name, with its own step
  holonomix run double-pendulum -m composition-8 --steps 1e6 -o run1
  holonomix resume run1                    continue a run that was stopped
  holonomix view run1                      the motion and charts, as a page
  holonomix export run1 run1.csv           rows for other programs
  holonomix models                         what can be simulated
  holonomix methods                        how, and what each method keeps
  holonomix explain double-pendulum        how a run is carried out, and why
  holonomix compare double-pendulum rk4 rattle composition-8
  holonomix certify rattle                 measure what a method declares

Exit codes: 0 done; 1 a declared property failed, or a benchmark failed;
2 command line, run file, model or method; 3 the run stopped before its end;
4 the store; 5 a mistake of ours; 130 Ctrl-C and 143 SIGTERM, after which
`holonomix resume` continues.
"""

CODES = (
    "Exit codes: 0 done; 2 command line, run file, model or method; 3 the run stopped before its end (the store keeps "
    "what it computed); 4 the store, or a full disk; 130 Ctrl-C and 143 SIGTERM, after which `holonomix resume` goes "
    "on."
)

app = typer.Typer(
    name="holonomix",
    help=HELP.replace("\n\n", "\n\n\b\n"),
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Directory of the run. [default: MODEL-METHOD, numbered]")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A run key, or an argument of the model; "
        "the value is TOML: --set gravity=9.81 --set 'lengths=[1, 2]'. May be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Executor = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", help="Of a sweep: processes:N or dask:ADDRESS.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress output.")]
Dt = Annotated[str | None, typer.Option("--dt", metavar="NUMBER", help="The step. [default: the model's own]")]
T1 = Annotated[
    str | None, typer.Option("--t1", metavar="NUMBER", help="The time to run to. [default: the model's own]")
]
Omega = Annotated[
    str | None, typer.Option("--omega", metavar="NUMBER", help="Stiffness that stands in for the constraints.")
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL | FILE.py", help="A model by name, or your own Python file.", autocompletion=complete_model
    ),
]


def main() -> None:
    """The entry point."""
    stop_on_terminate()
    app()


def _print_version(wanted: bool) -> bool:
    if wanted:
        import holonomix

        typer.echo(f"holonomix {holonomix.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command(epilog=CODES)
def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.toml | MODEL | FILE.py | ROBOT.urdf", help="What to run.", autocompletion=complete_model
        ),
    ],
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            metavar="METHOD",
            help="Such as rattle, composition-8, 'HBVM(k=6, s=2)'.",
            autocompletion=complete_method,
        ),
    ] = None,
    dt: Dt = None,
    steps: Annotated[
        str | None, typer.Option("--steps", "-n", metavar="COUNT", help="How many steps, such as 50000000 or 1e8.")
    ] = None,
    t1: T1 = None,
    save_every: Annotated[
        str | None, typer.Option("--save-every", metavar="COUNT", help="Save a row every so many steps.")
    ] = None,
    seed: Annotated[str | None, typer.Option("--seed", metavar="NUMBER", help="Random seed.")] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="NAME", help="auto, array, native or cuda.")
    ] = None,
    observe: Annotated[
        str | None,
        typer.Option("--observe", metavar="NAMES", help="Names separated by commas: energy,angular_momentum"),
    ] = None,
    omega: Omega = None,
    executor: Executor = None,
    sets: Sets = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Simulate into a resumable output directory.

    The directory is Zarr: xarray.open_zarr(DIR) reads q, p, multipliers and observables over t while the run goes on.
    It also holds the run file (run.toml) and the versions, so that the run can be repeated exactly.
    """
    place = out
    with guarded(lambda: f"Continue with `holonomix resume {place}`" if place and place.exists() else ""):
        from .execute import free_directory, job_from, start
        from .request import spec_from

        flags = {"method": method, "dt": dt, "steps": steps, "t1": t1, "save_every": save_every, "seed": seed}
        flags |= {"backend": backend, "omega": omega, "observe": observe.split(",") if observe else None}
        spec = spec_from(target, flags, sets or [], out)
        if spec.sweep or executor is not None:
            from .sweep import run_sweep

            place = Path(spec.out) if spec.out else free_directory(spec)
            return report_sweep(run_sweep(spec, place, executor=executor, quiet=quiet), as_json)
        job = job_from(spec)
        place = Path(spec.out) if spec.out else free_directory(job.spec)
        report(start(job, place, quiet=quiet), as_json)


@app.command(epilog=CODES)
def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run.")],
    steps: Annotated[
        str | None, typer.Option("--steps", "-n", metavar="COUNT", help="Go on to this many steps in all.")
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="When no checkpoint is intact: compute it all again.")
    ] = False,
    allow_different_bits: Annotated[
        bool, typer.Option("--allow-different-bits", help="Go on with another back end.")
    ] = False,
    system: Annotated[
        Path | None,
        typer.Option("--system", metavar="FILE.py", help="The Python file of a run that you did not start yourself."),
    ] = None,
    executor: Executor = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run or a sweep that was stopped.

    The result is bitwise identical to an uninterrupted run, also after a kill, Ctrl-C or a full disk.

    Damaged or half-written rows are cut off and computed again. The Python file of a run that you started is run only
    if it is still the same, byte for byte. What a store from elsewhere names is not run: name the file with --system.
    """
    with guarded(lambda: f"Continue with `holonomix resume {directory}`"):
        from holonomix.io.directory import is_ensemble

        from .execute import resume as go_on
        from .request import whole_number

        if is_ensemble(directory):
            from .sweep import resume_sweep

            if steps is not None or from_start:
                raise CommandError(
                    f"{directory} holds a sweep, which goes on to its end: leave out --steps, --from-start"
                )
            given = {"executor": executor, "allow_different_bits": allow_different_bits, "system": system}
            return report_sweep(resume_sweep(directory, quiet=quiet, **given), as_json)
        if executor is not None:
            raise CommandError(f"--executor is for sweeps, and {directory} holds one run")
        options: dict[str, Any] = {
            "from_start": from_start,
            "allow_different_bits": allow_different_bits,
            "quiet": quiet,
            "system": system,
        }
        report(go_on(directory, steps=None if steps is None else whole_number("steps", steps), **options), as_json)


@app.command()
def compare(
    model: Model,
    methods: Annotated[
        list[str], typer.Argument(metavar="METHOD", help="Two methods or more.", autocompletion=complete_method)
    ],
    dt: Dt = None,
    t1: T1 = None,
    omega: Annotated[
        str | None,
        typer.Option("--omega", metavar="NUMBER", help="Stiffness for methods of stiff systems. [default: 2/dt]"),
    ] = None,
    levels: Annotated[int, typer.Option("--levels", min=1, max=12, help="How many step sizes the curves have.")] = 5,
    sets: Sets = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory of the plot.")] = Path("compare"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods: table and work-precision plot.

    Methods for stiff systems run on the penalized model, where springs of stiffness omega stand in for the constraints;
    their error is still counted against the rigid motion.
    """
    with guarded():
        from holonomix.certificates.comparison import compare as carry_out

        from .compare import table, winners
        from .execute import job_from
        from .methodspec import parse_method
        from .request import number, spec_from

        spec = spec_from(model, {"dt": dt, "t1": t1}, sets or [], None)
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


@app.command(epilog="Exit codes: 0 confirmed; 1 a declared property failed; 2 model or method.")
def certify(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="A method, such as rattle or 'HBVM(k=6, s=2)'.", autocompletion=complete_method
        ),
    ],
    model: Model = "double-pendulum",
    dt: Dt = None,
    omega: Omega = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Measure what a method promises.

    Order, symplecticity, reversibility, constraints, drifts, each beside what the method declares.
    """
    with guarded():
        from .execute import job_from
        from .request import spec_from

        spec = spec_from(model, {"method": method, "dt": dt, "omega": omega}, sets or [], None)
        job = job_from(spec)
        import holonomix as hx

        certificate = hx.certify(job.method, job.problem, dt=None if dt is None else job.dt)
        if as_json:
            print_json(certificate.to_dict())
        else:
            make_console().print(certificate)
        if not certificate.passed:
            raise SystemExit(Exit.CONTRADICTED)


@app.command()
def explain(
    model: Model,
    method: Annotated[
        str | None,
        typer.Argument(metavar="METHOD", help="A method. [default: the model's own]", autocompletion=complete_method),
    ] = None,
    backend: Annotated[str, typer.Option("--backend", metavar="NAME", help="auto, array, native or cuda.")] = "auto",
    omega: Omega = None,
    sets: Sets = None,
) -> None:
    """Say how a run would be carried out, and why.

    Back end, size of a step, solver.
    """
    with guarded():
        from .execute import job_from
        from .request import spec_from

        job = job_from(spec_from(model, {"method": method, "omega": omega}, sets or [], None))
        import holonomix as hx

        typer.echo(str(hx.explain(job.problem, job.method, backend=backend)))


@app.command()
def reproduce(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="Which paper, or all; without it, the papers are listed.")
    ] = None,
    item: Annotated[
        str | None, typer.Argument(metavar="ITEM", help="A figure or table; all of them by default.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, the same conclusion.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory of pictures and data.")] = Path("reproduced"),
    report: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="Write Markdown, HTML, PNG, PDF, SVG and CSV there.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the items with their quick and full time.")] = False,
) -> None:
    """Compute the figures and tables of the papers.

    Each with a verdict.
    """
    with guarded():
        from .environment import set_up_jax
        from .papers import PAPERS, list_items
        from .papers import reproduce as carry_out

        set_up_jax()
        console = make_console()
        if listed:
            list_items(paper or "all", console)
        elif paper is None:
            console.print("\n".join(f"{name:28} {title}" for name, title in PAPERS.items()), highlight=False)
        else:
            carry_out(paper, item, quick, out, report, console)


@app.command()
def view(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run, finished or not.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page. [default: DIR/view.html]")] = None,
    rows: Annotated[int, typer.Option("--rows", min=2, help="Show about this many rows as frames.")] = 2000,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    watch: Annotated[bool, typer.Option("--watch", help="Follow a run in progress until it ends.")] = False,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE.json", help="A tab with it: what `certify METHOD --json` printed."),
    ] = None,
) -> None:
    """Show a run or an ensemble as a page.

    The motion, and charts of what was kept, as one HTML page that needs a browser and nothing else. Of a long run it
    shows some stretches of consecutive rows as motion, and the range of every quantity over the whole run. Of an
    ensemble it shows some trajectories together, and what was reduced as a map.
    """
    with guarded():
        from holonomix.viewer import follow, write_page

        target = out or directory / "view.html"
        found = None if certificate is None else read_certificate(certificate)
        page = write_page(directory, target, rows=rows, reload=5.0 if watch else 0.0, certificate=found)
        make_console().print(f"page: {page}", highlight=False)
        if show:
            import webbrowser

            webbrowser.open(page.absolute().as_uri())
        if watch:
            follow(directory, target, rows=rows)


@app.command(epilog="Exit codes: 0 everything is as it was written; 4 something is not.")
def verify(directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run.")]) -> None:
    """Check every byte of a run against its checksums."""
    with guarded():
        from holonomix.io import verify as verified

        damaged = verified(directory)
        for name in damaged:
            typer.echo(f"damaged or missing: {directory / name}")
        if damaged:
            raise SystemExit(Exit.STORE)
        typer.echo(f"{directory}: everything is as it was written")


@app.command()
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run.")],
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="FILE.xyz (extended XYZ, for ASE or OVITO), FILE.npz or FILE.csv.")
    ],
    species: Annotated[str, typer.Option("--species", help="One element, or one a particle: O,H,H")] = "X",
    dimension: Annotated[
        int | None, typer.Option("--dimension", min=1, max=3, help="Coordinates a particle, for a flat q.")
    ] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Every so many rows.")] = 1,
    trajectory: Annotated[
        int | None, typer.Option("--trajectory", min=0, help="One trajectory of an ensemble. [default: all]")
    ] = None,
) -> None:
    """Write the rows of a run or an ensemble in another format."""
    with guarded():
        from .exports import write

        options = {"species": species, "dimension": dimension, "every": every, "trajectory": trajectory}
        count = write(directory, target, **options)
        make_console().print(f"{target}: {count} rows", highlight=False)


@app.command()
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Describe and draw this one.", autocompletion=complete_model)
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.png", help="Draw the start of the model NAME.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models, with their arguments."""
    with guarded():
        from .environment import set_up_jax

        set_up_jax()
        from .listing import describe_model, draw_model, model_rows, print_models, sketched_model
        from .suggest import kebab

        if picture is not None:
            draw_model(name, picture)
        if name is not None and not as_json:
            typer.echo(describe_model(name))
            if drawn := sketched_model(name):
                typer.echo(f"\n{drawn}")
        elif as_json:
            text = None if name is None else describe_model(name)  # refuses what is not there
            rows = [row for row in model_rows() if text is None or row["name"] == kebab(str(name))]
            print_json(rows if text is None else {**rows[0], "description": text})
        else:
            print_models(make_console())


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Describe this one in full.", autocompletion=complete_method)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods, with what they promise."""
    with guarded():
        from .environment import set_up_jax

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
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Which scripts; all of them by default.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the scripts.")] = False,
) -> None:
    """Run the benchmark scripts of the source tree."""
    with guarded():
        from .benchmarks import run_scripts, scripts

        if listed:
            typer.echo("\n".join(scripts()))
        elif run_scripts(names or [], make_console()):
            raise SystemExit(Exit.CONTRADICTED)
