"""The commands from end to end, in this process: what they print, what they write, with which code they leave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import holonomix as hx
from holonomix.run.io import disk
from holonomix.run.io.text import sign
from holonomix.study.certificates import comparison
from holonomix.study.cli.app import app
from holonomix.study.cli.execute import job_from
from holonomix.study.cli.exits import Exit
from holonomix.study.cli.request import spec_from
from holonomix.study.cli.suggest import complete_method, complete_model, kebab

SYSTEM = """
import jax.numpy as jnp
import holonomix as hx

print_me = "never"
system = hx.System(lambda q: q[1], lambda q: jnp.array([q @ q - 1.0]))
q0, p0, dt = [1.0, 0.0], [0.0, 0.0], 0.05
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: object, code: int = Exit.OK) -> str:
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == code, f"{result.exit_code}\n{result.output}\n{result.exception}"
    assert "Traceback" not in result.output
    return result.output


def said(*words: object, code: int) -> str:
    """What was said, on one line."""
    return " ".join(call(*words, code=code).split())


# ---- run


def test_run_a_model(here):
    summary = json.loads(call("run", "double-pendulum", "-n", "1e3", "--save-every", 10, "-o", "run1", "--json", "-q"))
    assert summary["status"] == "OK" and summary["steps"] == 1000 and summary["rows"] == 101
    assert summary["constraint_error"] < 1e-13
    problem = hx.models.double_pendulum()
    sol = hx.simulate(problem, hx.RATTLE(), dt=problem.dt, steps=1000, save_every=10, backend=summary["backend"])
    data = xr.open_zarr("run1")
    assert data.q.values.tobytes() == np.asarray(sol.q).tobytes()
    assert data.p.values.tobytes() == np.asarray(sol.p).tobytes()
    assert np.allclose(data.multipliers.values, sol.multipliers, rtol=0, atol=1e-12)
    assert summary["energy_error"] == pytest.approx(np.max(np.abs(sol.energy_error())), abs=1e-15)
    assert "run1" in call("resume", "run1", "-q")


def test_the_default_directory_is_never_taken(here):
    for name in ("planar-pendulum-rattle", "planar-pendulum-rattle-2", "planar-pendulum-rattle-3"):
        assert name in call("run", "planar-pendulum", "-n", 3, "-q")
        assert Path(name, "run.toml").exists()


def test_a_saved_run_repeats_itself(here):
    call(*"run chain --set n=2 --set gravity=2 -m composition-4 --dt 0.02 -n 40 -o a -q".split())
    call("run", "a/run.toml", "-o", "b", "-q")
    assert Path("a/run.toml").read_text() == Path("b/run.toml").read_text()
    a, b = xr.open_zarr("a"), xr.open_zarr("b")
    assert a.q.shape == (41, 2, 2) and a.q.values.tobytes() == b.q.values.tobytes()
    assert "holonomix" in json.loads(Path("a/run.json").read_text())["versions"]


def test_start_observables_and_penalty(here):
    Path("run.toml").write_text(
        "model = 'double-pendulum'\nmethod = 'zhang-skeel'\nomega = 40.0\nsteps = 20\ndt = 0.01\n"
        "observe = ['energy', 'angular_momentum', 'linear_momentum']\n"
        "[start]\nq = [0.0, -1.0, 0.1, -2.4]\np = [0, 0, 0, 0]\n"
    )
    call("run", "run.toml", "-o", "run1", "-q")
    data = xr.open_zarr("run1")
    assert data.q[0].values.tolist() == [[0.0, -1.0], [0.1, -2.4]]
    assert data.linear_momentum.shape == (21, 2) and "angular_momentum" in data and "constraint_error" not in data


def test_a_random_run_repeats_with_its_seed(here):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        call("run", "planar-pendulum", "-m", "gla-rattle", "--seed", seed, "-n", 30, "-o", name, "-q")
    a, b, c = (xr.open_zarr(name).p.values.tobytes() for name in "abc")
    assert a == b != c


def test_times_with_units(here):
    job = job_from(spec_from("water-cluster", {"dt": "1.0 fs", "t1": "0.5 ps"}, ["n=1"], None))
    assert job.dt == pytest.approx(1 / 48.888, rel=1e-4) and job.total == 500
    assert "no physical units" in said("run", "chain", "--dt", "1 fs", code=Exit.USAGE)
    assert "kcal/mol" in said("run", "water-cluster", "--set", "units=joule", code=Exit.USAGE)


# ---- a system of one's own


def test_a_python_file(here):
    Path("mine.py").write_text(SYSTEM)
    call("run", "mine.py", "-n", 50, "-o", "run1", "-q")
    assert Path("run1/system.py").read_text() == SYSTEM
    assert xr.open_zarr("run1").constraint_error.values.max() < 1e-13
    call("resume", "run1", "-n", 60, "-q")
    assert xr.open_zarr("run1").sizes["t"] == 61
    call("resume", "run1", "-n", 40, "-q")  # nothing is left to do
    assert xr.open_zarr("run1").sizes["t"] == 61


def test_a_changed_file_is_not_run(here):
    Path("mine.py").write_text(SYSTEM)
    call("run", "mine.py", "-n", 5, "-o", "run1", "-q")
    Path("mine.py").write_text(SYSTEM + "\nopen('ran', 'w').close()\n")
    assert "SHA-256 differs" in said("resume", "run1", "-q", code=Exit.USAGE)
    assert not Path("ran").exists()
    # nor the copy inside the store, nor a path without a recorded hash
    Path("run1/system.py").write_text("open('ran', 'w').close()")
    toml = Path("run1/run.toml").read_text()
    Path("run1/run.toml").write_text("\n".join(x for x in toml.splitlines() if "sha256" not in x))
    assert "run.toml was changed" in said("resume", "run1", "-q", code=Exit.STORE)
    assert not Path("ran").exists()
    listed = Path("run1/holonomix/format.json")
    kept = listed.read_bytes()
    # a store of an older version has no checksum of its run file
    listed.write_bytes(sign({key: x for key, x in json.loads(kept).items() if key not in ("files", "sha256")}))
    assert "does not record the SHA-256" in said("resume", "run1", "-q", code=Exit.STORE)
    assert not Path("ran").exists()
    listed.write_bytes(kept)
    Path("mine.py").write_text(SYSTEM)
    Path("run1/run.toml").write_text(toml)
    call("resume", "run1", "-q")


def test_a_problem_function_takes_arguments(here):
    body = "def problem(length=1.0):\n    import holonomix as hx\n    return hx.models.planar_pendulum(length=length)\n"
    Path("mine.py").write_text(body)
    call("run", "mine.py", "--set", "length=2.0", "-n", 1, "-o", "run1", "-q")
    assert xr.open_zarr("run1").q[0].values.tolist() == [0.0, -2.0]
    message = said("run", "mine.py", "--set", "lenght=2", code=Exit.USAGE)
    assert "unknown argument 'lenght'; did you mean 'length'" in message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x = 1\nraise RuntimeError('no luck')", "mine.py, line 2: RuntimeError: no luck"),
        ("def f(:", "mine.py, line 1: SyntaxError"),
        ("import sys\nsys.exit(3)", "mine.py, line 2: SystemExit"),
        ("x = 1", "define `system = hx.System(...)`"),
        ("def problem(): return 3", "returned a int"),
        (SYSTEM.replace("q0, p0, dt = [1.0, 0.0], [0.0, 0.0], 0.05", ""), "define q0"),
        (SYSTEM.replace("[1.0, 0.0], [0.0", "[1.5, 0.0], [0.0"), "--set start.project=true"),
        (SYSTEM.replace("lambda q: q[1]", "lambda q: q[1, 1]"), "the potential fails in mine.py, line 6: IndexError"),
        (SYSTEM.replace("lambda q: q[1]", "lambda q: float(q[1])"), "write it with jax.numpy"),
        ("system = 3", "define `system"),
    ],
)
def test_mistakes_in_a_python_file(here, body, words):
    Path("mine.py").write_text(body)
    assert words in said("run", "mine.py", "-n", 2, "-o", "run1", "-q", code=Exit.USAGE)
    assert not Path("run1").exists(), "a run that never began leaves nothing"


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["run", "dubble-pendulum"], "did you mean 'double-pendulum'", Exit.USAGE),
        (["run", "chain", "-m", "ratle"], "did you mean 'rattle'", Exit.USAGE),
        (["run", "chain", "--set", "gravty=1"], "did you mean 'gravity'", Exit.USAGE),
        (["run", "chain", "--set", "n=-3"], "n", Exit.USAGE),
        (["run", "chain", "--steps", "many"], "a whole number", Exit.USAGE),
        (["run", "chain", "-n", "5", "--t1", "2"], "steps and t1", Exit.USAGE),
        (["run", "chain", "--t1", "-2"], "cannot be reached", Exit.USAGE),
        (["run", "kepler", "-m", "shake"], "SHAKE", Exit.USAGE),
        (["run", "chain", "-m", "zhang-skeel", "--dt", "0.1"], "--omega 20", Exit.USAGE),
        (["run", "missing.toml"], "does not exist", Exit.USAGE),
        (["run", "missing.py"], "cannot be read", Exit.USAGE),
        (["run", "chain", "--stps", "3"], "--stps", Exit.USAGE),
        (["rnu"], "rnu", Exit.USAGE),
        (["resume", "nowhere"], "does not exist", Exit.STORE),
        (["view", "nowhere"], "does not exist", Exit.STORE),
        (["export", "nowhere", "x.xyz"], "does not exist", Exit.STORE),
        (["reproduce", "farel2009"], "did you mean 'farrell2009'", Exit.USAGE),
        (["compare", "chain", "rattle", "gla"], "random numbers", Exit.USAGE),
        (["methods", "ratle"], "did you mean 'rattle'", Exit.USAGE),
        (["models", "chian"], "did you mean 'chain'", Exit.USAGE),
        (["bench", "nothing"], "unknown benchmark", Exit.USAGE),
    ],
)
def test_refusals(here, words, message, code):
    assert message in said(*words, code=code)
    assert list(here.iterdir()) == [], "nothing was made"


def test_existing_and_foreign_directories(here):
    call("run", "planar-pendulum", "-n", 2, "-o", "run1", "-q")
    assert "holonomix resume run1" in said("run", "planar-pendulum", "-n", 2, "-o", "run1", code=Exit.STORE)
    assert "holonomix resume run1" in said("run", "run1", code=Exit.USAGE)
    Path("other").mkdir()
    Path("other/letter").write_text("mine")
    assert "not an empty directory" in said("run", "planar-pendulum", "-n", 2, "-o", "other", code=Exit.STORE)
    assert "not a holonomix store" in said("resume", "other", code=Exit.STORE)


def test_damaged_and_newer_stores(here):
    call("run", "planar-pendulum", "-n", 50, "-o", "run1", "-q")
    before = xr.open_zarr("run1").q.values.tobytes()
    toml = Path("run1/run.toml").read_text()
    Path("run1/run.toml").write_text(toml[: len(toml) // 2])
    assert "The rows are safe" in said("resume", "run1", "-q", code=Exit.STORE)
    Path("run1/run.toml").write_text(toml)
    next(Path("run1/q").glob("c.*")).write_bytes(b"half a chu")
    call("resume", "run1", "-q")
    assert xr.open_zarr("run1").q.values.tobytes() == before
    for file in Path("run1/holonomix/checkpoints").glob("*.json"):
        file.write_text("{}")
    assert "--from-start" in said("resume", "run1", "-q", code=Exit.STORE)
    call("resume", "run1", "-q", "--from-start")
    assert xr.open_zarr("run1").q.values.tobytes() == before
    Path("run1/holonomix/format.json").write_text('{"format": 99, "holonomix": "9.9"}')
    assert "written by holonomix 9.9" in said("resume", "run1", "-q", code=Exit.STORE)


def test_a_store_written_from_python_is_sent_back_there(here):
    problem = hx.models.planar_pendulum()
    hx.simulate(problem, hx.RATTLE(), dt=0.1, steps=5, store="run1")
    assert "written from Python" in said("resume", "run1", code=Exit.STORE)


def test_a_failing_run_keeps_what_it_has(here):
    message = said("run", "double-pendulum", "--dt", 2.0, "-n", 1000, "-o", "run1", "-q", code=Exit.SIMULATION)
    assert "did not converge" in message and "in the store" in message
    assert 0 < xr.open_zarr("run1").sizes["t"] < 1000


def test_a_full_disk(here, monkeypatch):
    fill, left = disk.do_fill, 40

    def limited(*args):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        fill(*args)

    monkeypatch.setattr(disk, "do_fill", limited)
    words = ("run", "planar-pendulum", "-n", "300000", "--save-every", "10", "-q", "-o")
    assert "No space left" in said(*words, "run1", code=Exit.STORE)
    monkeypatch.setattr(disk, "do_fill", fill)
    call("resume", "run1", "-q")
    call(*words, "whole")
    assert xr.open_zarr("run1").q.values.tobytes() == xr.open_zarr("whole").q.values.tobytes()


def test_a_mistake_of_ours_is_one_line(here, monkeypatch):
    def broken(*args, **options):
        raise ZeroDivisionError("secret\nplace")

    monkeypatch.setattr(hx, "simulate", broken)
    assert "unexpected ZeroDivisionError: secret place" in said("run", "chain", "-o", "run1", code=Exit.INTERNAL)


# ---- the other commands


FIVE = ("rk4", "rattle", "composition-8", "hbvm-2-2", "zhang-skeel")


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("planar-pendulum", ("rk4", "rattle", "zhang-skeel")),  # has a closed form
        pytest.param("double-pendulum", FIVE, marks=pytest.mark.slow),
    ],
)
def test_compare(here, monkeypatch, model, names):
    monkeypatch.setattr(comparison, "TIMED_SECONDS", 0.002)
    result = json.loads(call("compare", model, *names, "--dt", 0.05, "--t1", 1, "--levels", 2, "-q", "--json"))
    curves = {c["name"]: c for c in result["curves"]}
    assert tuple(curves) == names
    assert Path(result["plot"]).stat().st_size > 10_000
    error = {name: c["levels"][-1]["error"] for name, c in curves.items()}
    assert error["rk4"] < error["rattle"] < error["zhang-skeel"] * 10
    if "composition-8" in names:
        assert error["composition-8"] < error["hbvm-2-2"] < error["rk4"]
        assert 0 < result["uncertainty"] < 1e-12
    for curve in curves.values():
        # read off the curve, never beyond it: between its best and its worst error
        errors, equal = [level["error"] for level in curve["levels"]], curve["error_at_equal_work"]
        assert equal is None or max(min(errors), result["uncertainty"]) * 0.999 <= equal <= max(errors) * 1.001
        assert all(level["seconds"] > 0 for level in curve["levels"])
    assert curves["zhang-skeel"]["system"] == "omega = 2/dt" and curves["rattle"]["system"] == "as it is"
    drift = {name: c["levels"][-1]["constraint_error"] for name, c in curves.items()}
    assert drift["rattle"] < 1e-13 < drift["rk4"] and drift["zhang-skeel"] > 1e-6


def test_the_table_says_which_methods_ran_with_springs(here, monkeypatch):
    monkeypatch.setattr(comparison, "TIMED_SECONDS", 0.002)
    compare = "compare planar-pendulum --t1 0.5 --levels 1 -q".split()
    text = said(*compare, "rattle", "zhang-skeel", "--omega", 50, code=0)
    for words in ("omega = 50", "stiff springs in place of the constraints", "work-precision plot"):
        assert words in text
    assert "springs" not in said(*compare, "rattle", "rk4", code=0)


def test_certify(here):
    found = json.loads(call("certify", "planar-pendulum", "rattle", "--json"))
    assert found["passed"] and found["method"] == "RATTLE"
    swapped = said("certify", "composition-8", "planar-pendulum", code=2)
    assert "composition-8 is a method; write `holonomix certify planar-pendulum composition-8`" in swapped
    assert "unknown model 'composishun'" in said("certify", "composishun", "rattle", code=2)


def test_a_live_page(here):
    call(*"live henon-heiles stormer-verlet --slider coupling=0:2 -o page.html --no-open".split())
    assert '"label": "coupling"' in Path("page.html").read_text()
    assert "NAME=LOW:HIGH" in said("live", "henon-heiles", "--slider", "coupling", code=2)
    assert "not a parameter of henon-heiles" in said("live", "henon-heiles", "--slider", "gravity=0:1", code=2)


def test_the_shell_completes_models_and_methods():
    assert complete_model("double-p") == ["double-pendulum", "double-pendulum-angles"]
    assert complete_method("rat") == ["rattle"] and "gla" in complete_method("")
    assert {kebab(name) for name in hx.models.MODELS} == set(complete_model(""))


def test_a_model_is_described_and_drawn_in_eighty_columns():
    text = call("models", "four-bar", code=0)
    assert max(map(len, text.splitlines())) <= 80
    drawn = [c for c in text if 0x2800 < ord(c) < 0x2900]
    assert len(drawn) > 30, "bars as dots of Braille letters"


def test_models_and_methods():
    models = {m["name"]: m for m in json.loads(call("models", "--json"))}
    assert models["double-pendulum"]["arguments"]["gravity"] == 1.0
    methods = {m["name"]: m for m in json.loads(call("methods", "--json"))}
    assert methods["rattle"]["traits"]["constrained"]["symplectic"] is True
    assert set(methods) == {m["name"] for m in json.loads(call("methods", "--json"))}
    assert "double-pendulum" in call("models") and "rattle" in call("methods")
    one = json.loads(call("models", "double_pendulum", "--json"))
    assert one["arguments"]["gravity"] == 1.0 and "angles" in one["description"]
    assert "RATTLE" in json.loads(call("methods", "rattle", "--json"))["description"]
    assert "gravity = 1" in call("models", "double-pendulum") and "'Any'" not in call("methods", "rattle")
    said("models", "nothing", "--json", code=Exit.USAGE)
    assert "gravity" in call("models", "chain") and "Andersen" in call("methods", "rattle")


def test_view_and_export(here):
    call("run", "double-pendulum", "-n", 50, "-o", "run1", "-q")
    call("view", "run1", "--no-open")
    page = Path("run1/view.html").read_text()
    assert "<script" in page and "energy error" in page and "https://cdn" not in page
    assert xr.open_zarr("run1").sizes["t"] == 51, "the page does not disturb the store"
    assert "51 rows" in call("export", "run1", "out.xyz", "--species", "H,He")
    assert "26 rows" in call("export", "run1", "out.npz", "--every", 2)
    assert np.load("out.npz")["q"].shape == (26, 2, 2)
    call("export", "run1", "out.csv")
    lines = Path("out.csv").read_text().splitlines()
    assert len(lines) == 52 and "q[1,0]" in lines[0]
    assert ".xyz, .extxyz, .npz or .csv" in said("export", "run1", "out.pdf", code=Exit.USAGE)


@pytest.mark.parametrize(
    "model", ["harmonic-oscillator", "spherical-pendulum", pytest.param("rigid-body", marks=pytest.mark.slow)]
)
def test_view_of_other_shapes(here, model):
    call("run", model, "-n", 5, "-o", model, "-q")
    call("view", model, "--no-open", "-o", f"{model}.html")
    assert Path(f"{model}.html").stat().st_size > 10_000


def test_reproduce_lists_papers():
    assert "tao_owhadi2015" in call("reproduce")


def test_verify(here):
    call("run", "planar-pendulum", "-n", 50, "-o", "run1", "-q")
    assert "all checksums match" in call("verify", "run1")
    assert "run1/run.toml" in call("explain", "run1", code=Exit.USAGE)
    assert "back end" in call("explain", "run1/run.toml")
    Path("run1/q/c.0.0").unlink()
    text = Path("run1/zarr.json").read_text()
    Path("run1/zarr.json").write_text(text.replace("51", "59", 1))
    said = call("verify", "run1", code=Exit.STORE)
    assert "run1/q/c.0.0" in said and "run1/zarr.json" in said
    for command in (("export", "run1", "out.csv"), ("view", "run1", "--no-open")):
        assert "q/c.0.0 is missing" in call(*command, code=Exit.STORE)


def test_explain_and_the_picture_of_a_model(here):
    assert "back end" in call("explain", "double-pendulum", "rattle")
    call("models", "four-bar", "--picture", "four.png")
    assert Path("four.png").read_bytes().startswith(b"\x89PNG")
    assert "give its NAME" in said("models", "--picture", "x.png", code=Exit.USAGE)


def test_build_writes_the_step_of_a_model(here):
    assert "wasm: page" in call("build", "henon-heiles", "page", "rattle", "--dt", "0.05")
    assert "wasm: noise" in call("build", "henon-heiles", "noise", "gla")  # the random seed is that of `run`
    assert Path("page/henon_heiles.wasm").read_bytes().startswith(b"\0asm")
    assert "energy" in Path("page/henon_heiles.js").read_text()
    assert "no-such" in said("build", "henon-heiles", "x", "--form", "c", "--target", "no-such", code=Exit.USAGE)


def test_help_and_summary_fit_into_eighty_columns():
    from holonomix.study.cli.app import HELP
    from holonomix.study.cli.listing import SUMMARY
    from holonomix.study.cli.methodspec import parse_method

    assert max(map(len, (HELP + SUMMARY).splitlines())) <= 80
    for name in ("gla-rattle", "geodesic-baoab", "constrained-hmc", "zhang-skeel", "composition-8", "line-integral"):
        assert name in SUMMARY and parse_method(name)


def test_dir_shows_what_is_public():
    assert not {"os", "sys", "importlib", "difflib", "Any", "TYPE_CHECKING"} & set(dir(hx))
    assert {"System", "RATTLE", "models", "simulate", "__version__"} <= set(dir(hx))
    assert len([name for name in dir(hx) if not name.startswith("_")]) <= 100


def test_names_that_moved_are_found_and_say_where_they_are_now():
    moved = {
        "ForceMonitor": "monitors", "Tableau": "methods", "Maximum": "reductions", "Rod": "mechanisms",
        "BlockMass": "mechanics", "linear_stability": "certificates", "ResonanceWarning": "errors", "papers": "study",
    }  # fmt: skip
    for name, module in moved.items():
        assert name not in dir(hx)
        with pytest.warns(DeprecationWarning, match=f"holonomix.{name} is now holonomix.{module}.{name}"):
            found = getattr(hx, name)
        assert found is getattr(getattr(hx, module), name)
