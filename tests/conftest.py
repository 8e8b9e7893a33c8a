"""Shared by every test: the CPU, in 64 bits, and hypothesis runs that repeat themselves."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HOLONOMIX_DEFECTS"] = "raise"  # runs take another way around a defect of the kernel compiler; tests do not

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")
