"""The Typer application that commands register with, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .exits import Exit, stop_on_terminate, was_terminated
from .suggest import complete_method, complete_model

HELP = """Simulate mechanical systems with holonomic constraints.

  holonomix run double-pendulum            a model by name, with its own step
  holonomix run double-pendulum -m composition-8 --steps 1e6 -o run1
  holonomix resume run1                    continue a run that was stopped
  holonomix view run1                      write a page: animation and charts
  holonomix live double-pendulum rattle    write a page that simulates it
  holonomix export run1 run1.csv           export the rows as CSV, NPZ or XYZ
  holonomix models                         list the models
  holonomix methods                        list the methods and their properties
  holonomix explain double-pendulum        show the back end, and why
  holonomix build double-pendulum out      the step as WebAssembly, C or FMU
  holonomix compare double-pendulum rk4 rattle composition-8
  holonomix certify double-pendulum rattle measure the declared properties

Exit codes: 0 done; 1 a declared property failed, or a benchmark failed;
2 error in the command line, run file, model or method; 3 the run stopped
before its end; 4 error of the store; 5 internal error; 130 Ctrl-C and
143 SIGTERM, after which `holonomix resume` continues.
"""

app = typer.Typer(
    name="holonomix",
    help=HELP.replace("\n\n", "\n\n\b\n"),
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the run or an argument of the model. "
        "The value is TOML: --set gravity=9.81 --set 'lengths=[1, 2]'. May be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Executor = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", help="Where to run a sweep: processes:N or dask:ADDRESS.")
]
Trust = Annotated[bool, typer.Option("--trust", help="Allow the run file to execute the Python file that it names.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress output.")]
Dt = Annotated[str | None, typer.Option("--dt", metavar="NUMBER", help="Step size. [default: the model's]")]
T1 = Annotated[str | None, typer.Option("--t1", metavar="NUMBER", help="End time. [default: the model's]")]
Omega = Annotated[
    str | None, typer.Option("--omega", metavar="NUMBER", help="Replace the constraints by springs of this stiffness.")
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL | FILE",
        help="Name of a model, a run file (.toml), a robot (.urdf, .xml) or your own Python file.",
        autocompletion=complete_model,
    ),
]
MaybeMethod = Annotated[
    str | None,
    typer.Argument(
        metavar="METHOD",
        help="A method, such as rattle or 'HBVM(k=6, s=2)'. [default: chosen by the kind of system]",
        autocompletion=complete_method,
    ),
]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run.")]
Backend = Annotated[str | None, typer.Option("--backend", metavar="NAME", help="auto, array, native or cuda.")]


def main() -> None:
    """The entry point of the `holonomix` command."""
    stop_on_terminate()
    try:
        app()
    except (SystemExit, KeyboardInterrupt):
        if was_terminated():  # before a command began; a running command prints how to continue
            raise SystemExit(Exit.TERMINATED) from None
        raise


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
