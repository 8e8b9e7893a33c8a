"""Sweeps from run files: points, labels, and the same numbers as single runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from typer.testing import CliRunner

import holonomix as hx
from holonomix.core.scene import Scene
from holonomix.mechanics.scenes import scene_of
from holonomix.run.io import EnsembleStore
from holonomix.study.cli import sweep
from holonomix.study.cli.app import app
from holonomix.study.cli.exits import CommandError
from holonomix.study.cli.request import spec_from
from holonomix.study.cli.sweep import axes_of, points_of, run_sweep
from holonomix.study.viewer.ensembles import from_ensemble_store

FILE = """
model = "double-pendulum"
method = "rattle"
dt = 0.02
steps = 20
save_every = 10
[arguments]
angles = [0.5, 1.0]
[sweep]
gravity = [1.0, 9.81]
angles.0 = { from = 0.2, to = 1.0, count = 3 }
"""


def command(*words, code=0):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, f"{result.exit_code}\n{result.output}\n{result.exception}"
    return " ".join(result.output.split())


def test_a_sweep_is_an_ensemble_with_labels(tmp_path):
    (tmp_path / "sweep.toml").write_text(FILE)
    spec = spec_from(str(tmp_path / "sweep.toml"), {}, [], tmp_path / "out")
    summary = run_sweep(spec, tmp_path / "out", quiet=True)
    assert (summary["trajectories"], summary["failed"], summary["rows"]) == (6, 0, 3)
    data = EnsembleStore(tmp_path / "out").to_xarray()
    np.testing.assert_array_equal(data.gravity, np.repeat([1.0, 9.81], 3))
    np.testing.assert_allclose(data.angles_0, np.tile([0.2, 0.6, 1.0], 2), rtol=1e-13)
    grid = data.q.set_index(trajectory=["gravity", "angles_0"]).unstack()
    problem = hx.models.double_pendulum(gravity=9.81, angles=[0.6, 1.0])
    single = hx.simulate(problem, hx.RATTLE(), dt=0.02, steps=20, save_every=10)
    found = grid.sel(gravity=9.81).isel(angles_0=1).transpose("t", "q_0", "q_1")
    np.testing.assert_allclose(found, single.q, rtol=0, atol=1e-13)
    assert run_sweep(spec, tmp_path / "out", quiet=True)["energy_error"] == summary["energy_error"]  # nothing is left


def test_the_store_of_a_sweep_has_the_scene_of_the_model(tmp_path):
    (tmp_path / "sweep.toml").write_text(FILE)
    run_sweep(spec_from(str(tmp_path / "sweep.toml"), {}, [], tmp_path / "out"), tmp_path / "out", quiet=True)
    scene = Scene.from_dict(EnsembleStore(tmp_path / "out").meta["scene"])
    assert scene == scene_of(hx.models.double_pendulum().system, (2, 2), hx.models.double_pendulum())
    assert [(b.a, b.b) for b in scene.bonds] == [(-1, 0), (0, 1)] and scene.anchors == ((0.0, 0.0),)
    drawn = from_ensemble_store(EnsembleStore(tmp_path / "out")).scene
    assert drawn is not None and len(drawn.bonds) == 6 * 2 and drawn.anchors == scene.anchors


def test_points_are_combinations_and_draws_are_repeatable():
    axes, draws, seed = axes_of({"a": [1, 2], "b": {"c": {"normal": [0.0, 1.0]}}, "draws": 3, "seed": 4})
    points = points_of(axes, draws, seed)
    np.testing.assert_array_equal(points["a"], [1, 1, 1, 2, 2, 2])
    assert len(np.unique(points["b_c"])) == 6
    np.testing.assert_array_equal(points_of(axes, draws, seed)["b_c"], points["b_c"])
    assert not np.array_equal(points_of(axes, draws, 5)["b_c"], points["b_c"])
    log = axes_of({"k": {"from": 1.0, "to": 100.0, "count": 3, "scale": "log"}})[0][0]
    np.testing.assert_allclose(log.values, [1, 10, 100], rtol=1e-13)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({}, "empty"),
        ({"g": "x"}, "must be a list"),
        ({"g": {"from": 0, "to": 1, "count": 0}}, "must be"),
        ({"g": {"from": 0, "to": 1, "count": 3, "scale": "log"}}, "must be"),
        ({"g": {"uniform": [0, 1]}}, "draws"),
        ({"g": [1.0], "draws": 2}, "nothing"),
    ],
)
def test_what_is_wrong_is_named(table, text):
    with pytest.raises(CommandError, match=text):
        axes_of(table)


def test_what_is_no_parameter_is_refused(tmp_path):
    file = FILE.replace("gravity = [1.0, 9.81]", "masses = [1.0, 2.0]")
    (tmp_path / "sweep.toml").write_text(file)
    spec = spec_from(str(tmp_path / "sweep.toml"), {}, [], None)
    with pytest.raises(CommandError, match="more of the system than its params"):
        run_sweep(spec, tmp_path / "out", quiet=True)
    file = FILE.replace("angles = [0.5, 1.0]", "")
    (tmp_path / "sweep.toml").write_text(file)
    with pytest.raises(CommandError, match="other entries of angles"):
        run_sweep(spec_from(str(tmp_path / "sweep.toml"), {}, [], None), tmp_path / "out", quiet=True)


def test_a_sweep_resumes_and_is_exported_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(FILE)
    command("run", "sweep.toml", "-o", "out", "-q")
    before = EnsembleStore("out").to_xarray().load()
    (tmp_path / "out/holonomix/blocks/00000000.json").unlink()  # as if killed before the block was whole
    assert not EnsembleStore("out").to_xarray().finished.any()
    (tmp_path / "sweep.toml").unlink()
    assert "6 trajectories" in command("resume", "out", "-q")
    assert EnsembleStore("out").to_xarray().equals(before)
    assert "leave out --steps" in command("resume", "out", "-n", "50", code=2)
    assert "18 rows" in command("export", "out", "all.csv")
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert lines[0].startswith("trajectory,gravity,angles_0,t,") and len(lines) == 19
    assert lines[4].startswith("1,1.0,0.6000000000000001,0.0,")
    assert "2 rows" in command("export", "out", "one.xyz", "--trajectory", "5", "--every", "2", "--dimension", "2")
    command("export", "out", "all.npz")
    with np.load(tmp_path / "all.npz") as arrays:
        np.testing.assert_array_equal(arrays["q"], before.q)
    assert "--trajectory 0" in command("export", "out", "all.xyz", code=2)
    assert "0 to 5" in command("export", "out", "one.csv", "--trajectory", "6", code=2)


def test_a_sweep_over_methods_has_a_store_for_each(tmp_path):
    table = FILE.replace("[sweep]", '[sweep]\nmethod = ["rattle", "SHAKE()"]').replace("count = 3", "count = 2")
    (tmp_path / "sweep.toml").write_text(table)
    spec = spec_from(str(tmp_path / "sweep.toml"), {}, [], None)
    summary = run_sweep(spec, tmp_path / "out", quiet=True)
    assert (summary["trajectories"], summary["axes"]["method"], len(summary["stores"])) == (8, 2, 2)
    data = hx.io.open_sweep(tmp_path / "out")
    one = data.isel(trajectory=data.method == "shake")
    np.testing.assert_array_equal(one.q, EnsembleStore(tmp_path / "out/shake").to_xarray().q)
    assert set(data.method.values) == {"rattle", "shake"} and data.sizes["trajectory"] == 8
    assert abs(data.q.values[:4] - one.q.values).max() < 1e-12  # RATTLE and SHAKE take the same positions
    assert not (tmp_path / "out/rattle/run.toml").read_text().count("SHAKE")
    for wrong in (3, [], [1]):
        with pytest.raises(CommandError, match="must be a list"):
            run_sweep(dataclasses.replace(spec, sweep=dict(spec.sweep, method=wrong)), tmp_path / "no", quiet=True)
    with pytest.raises(CommandError, match="twice"):
        run_sweep(dataclasses.replace(spec, sweep=dict(spec.sweep, method=["shake"] * 2)), tmp_path / "no", quiet=True)
    with pytest.raises(hx.io.StoreNotFoundError, match="not a sweep"):
        hx.io.open_sweep(tmp_path)


MINE = """
import jax.numpy as jnp
import numpy as np
import holonomix as hx

def problem(gravity=1.0, angle=0.3):
    angle = {read}(angle)
    rod = lambda q, params: jnp.array([q @ q - 1.0])
    system = hx.System(lambda q, params: params["g"] * q[1], rod, params={{"g": gravity}})
    return hx.Problem(system, jnp.stack([jnp.sin(angle), -jnp.cos(angle)]), jnp.zeros(2), 0.05, 1.0)
"""


def built(tmp_path, read, count):
    (tmp_path / "mine.py").write_text(MINE.format(read=read))
    spec = spec_from(str(tmp_path / "mine.py"), {"steps": 2}, [], tmp_path / "out")
    axes, *rest = axes_of({"gravity": [1.0, 9.81], "angle": {"from": 0.1, "to": 1.5, "count": count}})
    points = points_of(axes, *rest)
    return sweep._build(spec, axes, np.stack([points[axis.name] for axis in axes], 1), True), points


@pytest.mark.parametrize("read", ["jnp.asarray", "float"])
def test_many_points_are_built_at_once_where_the_model_allows_it(tmp_path, monkeypatch, read):
    one, calls = sweep.job_from, []
    monkeypatch.setattr(sweep, "job_from", lambda spec: calls.append(spec) or one(spec))
    made, points = built(tmp_path, read, 150)
    assert (len(calls) < 30) == (read == "jnp.asarray")
    np.testing.assert_allclose(made.q[:, 0], np.sin(points["angle"]), rtol=1e-14)
    np.testing.assert_array_equal(made.system.params["g"], points["gravity"])
    assert made.in_axes == {"params": {"g": 0}} and (made.dt == 0.05).all()


def test_a_point_that_the_model_refuses_is_named_among_many(tmp_path):
    spec = spec_from("double-pendulum", {"steps": 2}, [], tmp_path / "out")
    axes, *rest = axes_of({"lengths": {"from": -1.0, "to": 1.0, "count": 501}})
    points = points_of(axes, *rest)
    with pytest.raises(CommandError, match="lengths must be positive"):
        sweep._build(spec, axes, np.stack([points[axis.name] for axis in axes], 1), True)
