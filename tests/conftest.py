"""Shared by every test: the CPU, 64 bits, repeatable hypothesis runs; order, time limit and GPU of the suite."""

import ctypes
import gc
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # tests marked gpu have a process of their own
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
import jaxtyping  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402


def _check_types_of_lasting_functions(jaxtyped):
    """`jaxtyped` without the functions that other functions define: a checker would be made each time they are."""

    def decorator(*args, **options):
        if not args:
            return lambda fn: fn if "<locals>" in getattr(fn, "__qualname__", "") else jaxtyped(fn, **options)
        return jaxtyped(*args, **options)

    return decorator


jaxtyping.jaxtyped = _check_types_of_lasting_functions(jaxtyping.jaxtyped)


@pytest.fixture
def untyped():
    """Switch off the run-time type checks of the suite, which would reject a bad argument before our own checks do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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


# ---- slow tests


def _slow_names() -> list[str]:
    """The tests of `slow.txt`, which were measured to be long."""
    lines = Path(__file__).with_name("slow.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class SlowNames(pytest.Item):
    """Fails when `slow.txt` names a test that does not exist."""

    def runtest(self):
        names = _slow_names()
        stale = sorted(set(names) - self.config.stash[COLLECTED])
        if stale or len(names) != len(set(names)):
            twice = sorted({name for name in names if names.count(name) > 1})
            lines = [f"no such test: {name}" for name in stale] + [f"named twice: {name}" for name in twice]
            pytest.fail("\n".join(lines), pytrace=False)

    def reportinfo(self):
        return self.path, None, "slow.txt"


class SlowFile(pytest.File):
    def collect(self):
        yield SlowNames.from_parent(self, name="names")


COLLECTED = pytest.StashKey[set]()


def pytest_collect_file(file_path, parent):
    """`slow.txt` lies in the folder of all tests: it is checked whenever they are all collected."""
    return SlowFile.from_parent(parent, path=file_path) if file_path.name == "slow.txt" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the tests of `slow.txt`, beside those that are marked where they stand; draw an order if asked to."""
    config.stash[COLLECTED] = {item.nodeid for item in items}
    listed = set(_slow_names())
    for item in items:
        if item.nodeid in listed:
            item.add_marker("slow")
    if (seed := config.getoption("--order-seed")) is not None:
        draw = lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()
        # the tests of a file stay together: they share fixtures and compiled programs
        items.sort(key=lambda item: (draw(item.nodeid.split("::")[0]), draw(item.nodeid)))


# ---- order and time limit

DEADLINE = pytest.StashKey[float]()
NOT_REACHED = "not reached"


def pytest_addoption(parser):
    group = parser.getgroup("order and time")
    group.addoption("--order-seed", metavar="TEXT", help="draw the order of the tests from TEXT")
    group.addoption(
        "--time-limit",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="start no test after this time; the tests left are listed at the end and are no failure",
    )


def pytest_configure(config):
    given = getattr(config, "workerinput", {}).get("deadline")  # workers of pytest-xdist share one deadline
    config.stash[DEADLINE] = time.time() + config.getoption("--time-limit") if given is None else float(given)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["deadline"] = repr(node.config.stash[DEADLINE])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if time.time() > item.config.stash[DEADLINE]:
        item.user_properties.append((NOT_REACHED, True))
        pytest.skip(NOT_REACHED)
    if item.get_closest_marker("gpu") and not HAS_GPU:
        pytest.skip("needs an NVIDIA GPU and JAX for CUDA")


def pytest_report_teststatus(report):
    properties = getattr(report, "user_properties", ())  # a file that is skipped as a whole has none
    if report.skipped and NOT_REACHED in dict(properties):
        return NOT_REACHED, "", NOT_REACHED.upper()
    return None


def pytest_terminal_summary(terminalreporter):
    left = sorted(report.nodeid for report in terminalreporter.stats.get(NOT_REACHED, ()))
    if left:
        terminalreporter.section(f"not reached within the time limit: {len(left)}")
        terminalreporter.write("".join(f"{name}\n" for name in left))


# ---- tests on a GPU


def _has_gpu() -> bool:
    """Whether there is an NVIDIA GPU and JAX can use it. JAX itself is not asked: it would initialize the GPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not Path("/dev/nvidiactl").exists():
        return False
    return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))


HAS_GPU = _has_gpu()
ON_GPU = "HOLONOMIX_TEST_ON_GPU"  # in the environment of a process that runs one test on the GPU


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test marked gpu in a process in which the GPU is JAX's default; all others stay on the CPU."""
    if pyfuncitem.get_closest_marker("gpu") is None:
        return None
    if ON_GPU in os.environ or jax.default_backend() == "gpu":
        assert jax.default_backend() == "gpu", "JAX does not use the GPU"
        return None
    flags = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", ON_GPU: "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", pyfuncitem.nodeid]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | flags
    done = subprocess.run(command, cwd=pyfuncitem.config.rootpath, env=environment, capture_output=True, text=True)
    if done.returncode or "1 passed" not in done.stdout:
        pytest.fail(f"on the GPU:\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}", pytrace=False)
    return True
