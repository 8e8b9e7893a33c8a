"""The commands about runs and their directories. Everything heavy is imported inside of them: `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .app import T1, Backend, Directory, Dt, Executor, Json, Omega, Quiet, Sets, Trust, app
from .exits import CommandError, Exit, guarded
from .printing import make_console, read_certificate, report, report_sweep
from .suggest import complete_method, complete_model

CODES = (
    "Exit codes: 0 done; 2 command line, run file, model or method; 3 the run stopped before its end (the store keeps "
    "what it computed); 4 the store, or a full disk; 130 Ctrl-C and 143 SIGTERM, after which `holonomix resume` goes "
    "on."
)


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
    backend: Backend = None,
    observe: Annotated[
        str | None,
        typer.Option("--observe", metavar="NAMES", help="Names separated by commas: energy,angular_momentum"),
    ] = None,
    omega: Omega = None,
    executor: Executor = None,
    sets: Sets = None,
    trust: Trust = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory of the run. [default: MODEL-METHOD, numbered]")
    ] = None,
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
        spec = spec_from(target, flags, sets or [], out, trust=trust)
        if spec.sweep or executor is not None:
            from .sweep import run_sweep

            place = Path(spec.out) if spec.out else free_directory(spec)
            return report_sweep(run_sweep(spec, place, executor=executor, quiet=quiet), as_json)
        job = job_from(spec)
        place = Path(spec.out) if spec.out else free_directory(job.spec)
        report(start(job, place, quiet=quiet), as_json)


@app.command(epilog=CODES)
def resume(
    directory: Directory,
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
        from holonomix.run.io.directory import is_ensemble

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
        options: dict[str, Any] = {"from_start": from_start, "allow_different_bits": allow_different_bits}
        count = None if steps is None else whole_number("steps", steps)
        report(go_on(directory, steps=count, quiet=quiet, system=system, **options), as_json)


@app.command()
def view(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run, finished or not.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page. [default: DIR/view.html]")] = None,
    rows: Annotated[int, typer.Option("--rows", min=2, help="Show about this many rows as frames.")] = 2000,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    watch: Annotated[bool, typer.Option("--watch", help="Follow a run in progress until it ends.")] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", metavar="FILE.json", help="A tab with it: what `certify MODEL METHOD --json` printed."
        ),
    ] = None,
) -> None:
    """Show a run or an ensemble as a page.

    The motion, and charts of what was kept, as one HTML page that needs a browser and nothing else. Of a long run it
    shows some stretches of consecutive rows as motion, and the range of every quantity over the whole run. Of an
    ensemble it shows some trajectories together, and what was reduced as a map.
    """
    with guarded():
        from holonomix.study.viewer import follow, write_page

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
def verify(directory: Directory) -> None:
    """Check every byte of a run against its checksums."""
    with guarded():
        from holonomix.run.io import verify as verified

        damaged = verified(directory)
        for name in damaged:
            typer.echo(f"damaged or missing: {directory / name}")
        if damaged:
            raise SystemExit(Exit.STORE)
        typer.echo(f"{directory}: everything is as it was written")


@app.command()
def export(
    directory: Directory,
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
