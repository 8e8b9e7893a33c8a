"""Shared by every test: the CPU, in 64 bits, and hypothesis runs that repeat themselves."""

import logging
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")


class NoDefects(logging.Handler):
    """Runs go on where the kernel compiler finds a defect of its own; tests do not."""

    def emit(self, record: logging.LogRecord) -> None:
        if "defect in the kernel compiler" in record.msg:
            raise RuntimeError(record.getMessage())


logging.getLogger("holonomix").addHandler(NoDefects())
