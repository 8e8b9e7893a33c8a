"""Shared by every test: the CPU, in 64 bits, and hypothesis runs that repeat themselves."""

import ctypes
import gc
import importlib.metadata
import os
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HOLONOMIX_DEFECTS"] = "raise"  # runs take another way around a defect of the kernel compiler; tests do not


def _share_compiled_programs() -> None:
    """XLA compiles a program once for all workers and for the next run; HOLONOMIX_TEST_CACHE=off compiles anew."""
    where = os.environ.get("HOLONOMIX_TEST_CACHE", str(Path(tempfile.gettempdir()) / f"holonomix-tests-{os.getuid()}"))
    if where == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    directory = Path(where)
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA reports its own flags when it loads a program


_share_compiled_programs()
if importlib.metadata.version("jaxlib") == "0.10.1":  # XLA ends the process over a flag that it does not know
    # the tests' own programs compile like those of the library, and all without the passes of LLVM that take an eighth
    # of the suite's time; make test-all leaves them as users have them
    flags = "--xla_cpu_use_fusion_emitters=false --xla_llvm_disable_expensive_passes=true"
    os.environ.setdefault("XLA_FLAGS", flags)

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_sessionstart(session):
    """Collect garbage rarely: traced programs are many small objects that live long, a fifth of the time otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


MOST_MEMORY = 900e6  # bytes that a worker holds when compiled programs are forgotten


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Compiled programs are most of the memory of a worker, and of little use to the next file."""
    yield
    held = Path("/proc/self/statm")
    if held.exists() and int(held.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > MOST_MEMORY:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # back to the system


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the tests of `slow.txt`, which were measured to be long, beside those that are marked where they stand."""
    listed = set(Path(__file__).with_name("slow.txt").read_text().splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker("slow")
