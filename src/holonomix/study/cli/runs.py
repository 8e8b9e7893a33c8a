"""The commands for runs and their directories. They import JAX only when they run, so that `--help` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .app import T1, Backend, Directory, Dt, Executor, Json, Omega, Quiet, Sets, Trust, app
from .environment import set_up_jax
from .exits import CommandError, Exit, exit_on_error
from .printing import make_console, read_certificate, report, report_sweep
from .suggest import complete_method, complete_model

CODES = (
    "Exit codes: 0 done; 2 error in the command line, run file, model or method; 3 the run stopped before its end (the "
    "store has its rows); 4 error of the store, or a full disk; 130 Ctrl-C and 143 SIGTERM, after which `holonomix "
    "resume` continues."
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
            help="A method, such as rattle, composition-8 or 'HBVM(k=6, s=2)'.",
            autocompletion=complete_method,
        ),
    ] = None,
    dt: Dt = None,
    steps: Annotated[
        str | None, typer.Option("--steps", "-n", metavar="COUNT", help="Number of steps, such as 50000000 or 1e8.")
    ] = None,
    t1: T1 = None,
    save_every: Annotated[
        str | None, typer.Option("--save-every", metavar="COUNT", help="Number of steps between saved rows.")
    ] = None,
    seed: Annotated[str | None, typer.Option("--seed", metavar="NUMBER", help="Random seed.")] = None,
    backend: Backend = None,
    observe: Annotated[
        str | None,
        typer.Option(
            "--observe", metavar="NAMES", help="Observables to save, separated by commas: energy,angular_momentum"
        ),
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

    The directory is a Zarr store: xarray.open_zarr(DIR) reads q, p, multipliers and observables over t, also during
    the run. It contains the run file (run.toml) and the versions of all packages, so that the run can be repeated.
    """
    place = out
    with exit_on_error(lambda: f"Continue with `holonomix resume {place}`" if place and place.exists() else ""):
        set_up_jax()
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
        str | None, typer.Option("--steps", "-n", metavar="COUNT", help="Continue to this total number of steps.")
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="If no checkpoint is intact, start from the beginning.")
    ] = False,
    allow_different_bits: Annotated[
        bool, typer.Option("--allow-different-bits", help="Continue with another back end.")
    ] = False,
    system: Annotated[
        Path | None,
        typer.Option("--system", metavar="FILE.py", help="The Python file of a run that another user started."),
    ] = None,
    executor: Executor = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run or a sweep that was stopped.

    The result is bitwise identical to an uninterrupted run, also after a kill, Ctrl-C or a full disk.

    Damaged or incomplete rows are removed and computed again. The Python file of a run that you started is executed
    only if it has not changed. The file of a store that you did not make is not executed: name it with --system.
    """
    with exit_on_error(lambda: f"Continue with `holonomix resume {directory}`"):
        set_up_jax()
        from holonomix.run.io.directory import is_ensemble

        from .execute import resume as go_on
        from .request import whole_number

        if is_ensemble(directory):
            from .sweep import resume_sweep

            if steps is not None or from_start:
                raise CommandError(
                    f"{directory} contains a sweep, which always runs to its end: leave out --steps, --from-start"
                )
            given = {"executor": executor, "allow_different_bits": allow_different_bits, "system": system}
            return report_sweep(resume_sweep(directory, quiet=quiet, **given), as_json)
        if executor is not None:
            raise CommandError(f"--executor is for sweeps, but {directory} contains a single run")
        options: dict[str, Any] = {"from_start": from_start, "allow_different_bits": allow_different_bits}
        count = None if steps is None else whole_number("steps", steps)
        report(go_on(directory, steps=count, quiet=quiet, system=system, **options), as_json)


@app.command()
def view(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run, finished or not.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File name of the page. [default: DIR/view.html]")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=2, help="Approximate number of frames.")] = 2000,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    watch: Annotated[bool, typer.Option("--watch", help="Follow a run in progress until it ends.")] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", metavar="FILE.json", help="Add a certificate: the output of `certify MODEL METHOD --json`."
        ),
    ] = None,
) -> None:
    """Write a run or an ensemble as an HTML page.

    The page shows an animation and charts of conserved quantities, and works offline. For a long run the animation
    shows several stretches of consecutive rows, and the charts show the range of every quantity over the whole run. For
    an ensemble the page shows several trajectories together, and a map of the reductions.
    """
    with exit_on_error():
        set_up_jax()
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


@app.command(epilog="Exit codes: 0 all checksums match; 4 a file is damaged or missing.")
def verify(directory: Directory) -> None:
    """Check every byte of a run against its checksums."""
    with exit_on_error():
        set_up_jax()
        from holonomix.run.io import verify as verified
        from holonomix.run.io.stores import unfinished

        damaged = verified(directory)
        for name in damaged:
            typer.echo(f"damaged or missing: {directory / name}")
        if damaged:
            raise SystemExit(Exit.STORE)
        typer.echo(f"{directory}: all checksums match{unfinished(directory)}")


@app.command()
def export(
    directory: Directory,
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="FILE.xyz (extended XYZ, for ASE or OVITO), FILE.npz or FILE.csv.")
    ],
    species: Annotated[
        str, typer.Option("--species", help="One element for all particles, or one per particle: O,H,H")
    ] = "X",
    dimension: Annotated[
        int | None, typer.Option("--dimension", min=1, max=3, help="Number of coordinates per particle, if q is flat.")
    ] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Export every N-th row.")] = 1,
    trajectory: Annotated[
        int | None, typer.Option("--trajectory", min=0, help="One trajectory of an ensemble. [default: all]")
    ] = None,
) -> None:
    """Write the rows of a run or an ensemble in another format."""
    with exit_on_error():
        set_up_jax()
        from .exports import write

        options = {"species": species, "dimension": dimension, "every": every, "trajectory": trajectory}
        count = write(directory, target, **options)
        make_console().print(f"{target}: {count} rows", highlight=False)
