"""The result of `certify`: one finding per measured property, as data and as a table."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

from ...core import pictures

_WORDS = {True: "confirmed", False: "FAILED", None: "-"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One measurement beside the declared property.

    `kept` says whether the measurement confirms it, and is None if the method declares nothing. `bound` is the
    tolerance. A finding from a run that `stopped` early has `kept=False`, declared or not. A property without a meaning
    on the problem is not measured and has `applicable=False`. In both cases `note` gives the reason.
    """

    name: str
    measured: float
    declared: Any = None
    kept: bool | None = None
    bound: float | None = None
    note: str = ""
    applicable: bool = True
    stopped: bool = False


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The findings of `certify`; `print(certificate)` shows them as a table.

    `passed` is True if something was measured, no declared property failed, and no run stopped early.
    """

    method: str
    problem: str
    kind: str
    dt: float
    findings: tuple[Finding, ...]
    step_sizes: tuple[float, ...] = ()
    errors: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return any(f.applicable for f in self.findings) and all(f.kept is not False for f in self.findings)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Declared properties that could not be measured; their notes give the reason."""
        return tuple(f.name for f in self.findings if f.note.startswith("not measured") and f.declared)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if not any(f.applicable for f in self.findings):
            return "nothing was measured"
        if any(f.stopped for f in self.findings):
            return "failed: a run stopped early"
        if not self.passed:
            return "a declared property failed"
        if self.unmeasured:
            return f"no declared property failed; not measured: {', '.join(self.unmeasured)}"
        return "all declared properties confirmed"

    @property
    def measured(self) -> dict[str, float]:
        """Name -> measured value."""
        return {f.name: f.measured for f in self.findings}

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"{name!r} was not measured; there are {', '.join(self.measured)}")

    def __contains__(self, name: str) -> bool:
        return name in self.measured

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain data for JSON."""
        return {**dataclasses.asdict(self), "passed": self.passed}

    def plot(self) -> Any:
        """A figure of the errors over step sizes, and of every finding with its verdict."""
        return pictures.plotting.plot_certificate(self)

    def _repr_png_(self) -> bytes:
        return self.plot()._repr_png_()

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(
            title=f"{self.method} on {self.problem} ({self.kind}, dt = {self.dt:g})",
            caption=self.verdict,
            title_justify="left",
        )
        for column in ("measured", "declared", "value", "verdict", ""):
            table.add_column(column, justify="right" if column == "value" else "left")
        for f in self.findings:
            style = {False: "bold red", True: "green", None: ""}[f.kept]
            declared = "" if f.declared is None else {True: "yes", False: "no"}.get(f.declared, str(f.declared))
            if isinstance(f.declared, int) and not isinstance(f.declared, bool):
                declared = str(f.declared)
            value = f"{f.measured:.2f}" if f.name.startswith(("order", "iterations")) else f"{f.measured:.2g}"
            if not f.applicable:
                table.add_row(f.name, "", "", "not applicable", f.note)
                continue
            table.add_row(f.name, declared, value, _WORDS[f.kept], f.note, style=style)
        return table

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=110, no_color=True, force_terminal=False).print(self)
        return text.getvalue().rstrip()
