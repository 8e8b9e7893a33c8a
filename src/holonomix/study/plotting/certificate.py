"""A figure of a certificate: errors over step sizes beside the verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .notebook import Picture
from .ticks import label_log_axis

_COLORS = {True: "tab:green", False: "tab:red", None: "tab:gray"}
_MARKS = {True: "confirmed", False: "FAILED", None: ""}


def plot_certificate(certificate: Any) -> Picture:
    """Plot errors over step sizes with lines of the declared orders, and list every finding with its verdict."""
    figure = Picture(figsize=(11, 4.6), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1.25))
    axes = figure.add_subplot(grid[0])
    dt = np.asarray(certificate.step_sizes)
    for name, errors in certificate.errors.items():
        good = np.asarray(errors) > 0
        line = axes.loglog(
            dt[good], np.asarray(errors)[good], "o-", label=f"{name}: {certificate[f'order of {name}'].measured:.2f}"
        )
        order = certificate[f"order of {name}"].declared
        if good.any():
            top = np.asarray(errors)[good][-1] * (dt[good] / dt[good][-1]) ** order
            axes.loglog(dt[good], top, "--", color=line[0].get_color(), linewidth=0.8, label=f"order {order}")
    axes.set(xlabel="dt", ylabel="relative error")
    if certificate.errors:
        axes.legend(fontsize="small")
        label_log_axis(axes)
    table = figure.add_subplot(grid[1])
    table.set_axis_off()
    rows = certificate.findings
    for k, finding in enumerate(rows):
        y, color = 1 - (k + 0.5) / max(len(rows), 1), _COLORS[finding.kept]
        value = (
            f"{finding.measured:.2f}" if finding.name.startswith(("order", "iterations")) else f"{finding.measured:.1e}"
        )
        table.text(0.0, y, finding.name, va="center")
        table.text(0.45, y, value, va="center", family="monospace")
        table.text(0.68, y, _MARKS[finding.kept], va="center", color=color, weight="bold")
    figure.suptitle(
        f"{certificate.method} on {certificate.problem}: " + ("passed" if certificate.passed else "NOT passed")
    )
    return figure
