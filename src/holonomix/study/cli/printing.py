"""Output of the commands: summaries as text, results as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from .exits import CommandError

MIN_STEPS_TO_TIME = 10_000  # fewer steps take little time compared with the start


def report(summary: dict[str, Any], as_json: bool) -> None:
    """Print the summary of a run, which `execute.summarize` returns, as text or as JSON."""
    if as_json:
        print_json(summary)
        return
    lines = [f"{summary['steps']:,} steps of {summary['method']} on {summary['model']} to t = {summary['t']:g}"]
    if summary["energy_error"] is not None:
        lines.append(f"{summary.get('energy_title', 'energy error'):16} {summary['energy_error']:.2e}")
    if summary["constraint_error"] is not None:
        lines.append(f"constraint error {summary['constraint_error']:.2e}")
    if summary["steps_per_second"] and summary["steps"] >= MIN_STEPS_TO_TIME:
        lines.append(f"speed            {summary['steps_per_second']:,.0f} steps/s, back end {summary['backend']}")
    lines.append(
        f"{summary['rows']:,} rows in {summary['out']}: xarray.open_zarr({summary['out']!r}), "
        f"or `holonomix view {summary['out']}`"
    )
    typer.echo("\n".join(lines))


def report_sweep(summary: dict[str, Any], as_json: bool) -> None:
    """Print the summary of a sweep, which `sweep.run_sweep` returns, as text or as JSON."""
    if as_json:
        print_json(summary)
        return
    axes = " x ".join(f"{count} {name}" for name, count in summary["axes"].items())
    typer.echo(
        f"{summary['trajectories']:,} trajectories of {summary['method']} on {summary['model']}, {axes}; "
        f"{summary['failed']:,} failed\n"
        f"{summary.get('energy_title', 'energy error'):16} {summary['energy_error']:.2e}\n"
        f"{summary['rows']:,} rows each in {summary['out']}: hx.io.open_sweep({summary['out']!r})"
    )


def print_json(value: Any) -> None:
    """Print strict JSON; NaN and infinity become null."""
    typer.echo(json.dumps(_finite(value), indent=1, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def make_console(stderr: bool = False) -> Any:
    """A console; without a terminal its lines are long enough not to break tables."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    return console


def read_certificate(path: Path) -> dict[str, Any]:
    """Read a certificate that `certify --json` printed."""
    from holonomix.run.io.text import parse_json

    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as a certificate: {error}") from error
    if not isinstance(found.get("findings"), list):
        raise CommandError(
            f"{path} is not a certificate: make one with `holonomix certify MODEL METHOD --json > {path}`"
        )
    return found
