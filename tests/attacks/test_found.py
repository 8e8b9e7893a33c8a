"""What the attacks found, each as a case of its own."""

from __future__ import annotations

import io
import json
import warnings
import zipfile

import jax
import numpy as np
import pytest

import holonomix as hx
from holonomix.run.io import EnsembleStore
from holonomix.run.io.arrays import unpacked
from holonomix.run.io.text import sign


@pytest.mark.parametrize(
    "make",
    [
        lambda key: hx.Newton(tol=key),
        lambda key: hx.LocalPotential(lambda x: x.sum(), key),
        lambda key: hx.Distance(key, 1.0),
    ],
)
def test_random_keys_are_no_numbers(make):
    with pytest.raises(hx.InputError):
        make(jax.random.key(0))


@pytest.mark.parametrize("header", ["{" * 3000, "__import__('os')", "{'descr': '<f8', 'shape': (1,)}", "\0"])
def test_array_headers_that_no_parser_reads(header):
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(8)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("q.npy", body)
    with pytest.raises(ValueError, match=r"."):
        unpacked(file.getvalue())


@pytest.fixture
def ensemble(tmp_path):
    problem = hx.models.planar_pendulum()
    q0 = np.broadcast_to(np.asarray(problem.q0), (4, 2))

    def run():
        return hx.simulate_ensemble(
            problem.system, hx.RATTLE(), q0, 0 * q0, dt=0.01, steps=20, save_every=5, block=2, store=tmp_path / "run"
        )

    run()
    return run, tmp_path / "run/holonomix/ensemble.json"


def forged(file, change):
    body = json.loads(file.read_bytes())
    body.pop("sha256")
    change(body)
    file.write_bytes(sign(body))


def test_an_ensemble_without_its_times(ensemble):
    _, file = ensemble
    forged(file, lambda body: body["fixed"].clear())
    with pytest.raises(hx.HolonomixError, match="does not name t"):
        EnsembleStore(file.parents[1]).coordinate("t")


@pytest.mark.parametrize("rows", [2**40, 4, 10**400])
def test_an_ensemble_that_declares_other_rows(ensemble, rows):
    run, file = ensemble
    forged(file, lambda body: body.update(rows=rows))
    with pytest.raises(hx.HolonomixError, match=r"ensemble\.json is damaged"):
        run()


def test_long_names_of_columns_are_shown_short(ensemble):
    _, file = ensemble
    forged(file, lambda body: body["columns"][0].update(key="a" * 5000))
    with pytest.raises(hx.HolonomixError, match="the name 'aaa") as caught:
        EnsembleStore(file.parents[1])
    assert len(str(caught.value)) < 400


def test_long_values_are_shown_short(ensemble):
    run, file = ensemble
    forged(file, lambda body: body["meta"].update(t0="a" * 5000))
    with pytest.raises(hx.InputError, match="t0 = aaa") as caught:
        run()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", [[0] * 50, {"a": 1}, 3, None, "a" * 5000])
@pytest.mark.parametrize("part", ["program", "environment"])
def test_descriptions_of_a_run_that_are_no_texts(ensemble, part, value):
    run, file = ensemble

    def change(body):
        body["meta"][part][next(iter(body["meta"][part]))] = value

    forged(file, change)
    if part == "environment":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
        return
    with pytest.raises(hx.InputError, match="the store holds a run in which") as caught:
        run()
    assert len(str(caught.value)) < 500


def test_an_ensemble_that_declares_fewer_trajectories(ensemble):
    run, file = ensemble

    def change(body):
        body["trajectories"] = 2
        for column in body["columns"]:
            column["trajectories"] = 2

    forged(file, change)
    with pytest.raises(hx.HolonomixError, match="2 trajectories|damaged"):
        run()


def test_parameters_whose_names_have_no_order():
    with pytest.raises(hx.InputError, match="params"):
        hx.System(lambda q, k: q[0], params={1: 1.0, "a": 2.0})
