"""Numbers at logarithmic axes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

SHORT = 1.5  # decades; on a shorter axis 2 and 5 are labeled as well as powers of ten


def label_log_axis(axes: Axes, name: str = "x") -> None:
    """Label a logarithmic axis so that numbers do not overlap; call it when everything is drawn."""
    axis = getattr(axes, f"{name}axis")
    low, high = sorted(getattr(axes, f"get_{name}lim")())
    if np.log10(high / low) < SHORT:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e"))
        )
    axis.set_minor_formatter(NullFormatter())
