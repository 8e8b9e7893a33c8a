"""`simulate`: chunks, partial results, observables, progress, errors with numbers in them."""

from __future__ import annotations

import io
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import holonomix as hx
from holonomix.trace import compiled

PROBLEM = hx.models.double_pendulum()


def run(problem=PROBLEM, method=None, **changes):
    options = {"dt": 0.02, "steps": 50} | changes
    return hx.simulate(problem.system, method or hx.RATTLE(), problem.q0, problem.p0, **options)


def test_rows_do_not_depend_on_the_chunks(monkeypatch):
    whole = run(steps=500, save_every=3)
    monkeypatch.setattr(sys.modules["holonomix.run.run"], "CHUNK_BYTES", 1)  # one row a chunk
    pieces = run(steps=500, save_every=3)
    assert whole.t.shape == (167,)
    for name in whole.rows:
        np.testing.assert_array_equal(whole.rows[name], pieces.rows[name])


def test_t1_and_steps_are_alternatives():
    assert run(steps=None, t1=1.0).stats["steps"] == 50
    with pytest.raises(hx.InputError, match="either steps or t1"):
        run(t1=1.0)
    with pytest.raises(hx.InputError, match="neither"):
        run(steps=None)
    with pytest.raises(hx.InputError, match="cannot be reached"):
        run(steps=None, t1=-1.0)


def test_negative_dt_walks_back():
    there = run(steps=200)
    back = hx.simulate(PROBLEM.system, hx.RATTLE(), there.final_q, there.final_p, dt=-0.02, t0=there.final_t, steps=200)
    np.testing.assert_allclose(back.final_q, PROBLEM.q0, rtol=0, atol=1e-11)
    assert back.final_t == pytest.approx(0.0, abs=1e-12)


def test_observables_are_computed_in_the_loop():
    sol = run(observe={"height": lambda q, p: q[1, 1], "clock": lambda q, p, t: t}, save_every=5)
    np.testing.assert_array_equal(sol.observables["height"], sol.q[:, 1, 1])
    np.testing.assert_array_equal(sol.observables["clock"], sol.t)
    with pytest.raises(hx.InputError, match="takes 1"):
        run(observe=lambda q: q)
    with pytest.raises(hx.InputError, match="observable 'both' must return a number or an array, not dict"):
        run(observe={"both": lambda q, p: {"q": q, "p": p}})


def test_a_failing_step_keeps_what_came_before():
    with pytest.raises(hx.ConvergenceError, match="step") as caught:
        run(dt=0.9, steps=200)
    error = caught.value
    assert error.solution.stats["steps"] == error.step - 1 == len(error.solution.t) - 1
    assert np.isfinite(error.solution.q).all()
    partial = run(dt=0.9, steps=200, throw=False)
    assert partial.status is hx.Status.NOT_CONVERGED and len(partial.t) == len(error.solution.t)


def test_a_failure_between_rows_keeps_the_last_good_state():
    sol = run(dt=0.9, steps=200, save_every=50, throw=False)
    assert sol.rows["n"][-1] == sol.stats["steps"] and sol.stats["steps"] % 50


@pytest.mark.parametrize("backend", ["array", "native"])
def test_nan_from_the_potential_ends_the_run_with_its_status(backend):
    system = hx.System(lambda q: q[1] + 1e-9 * jnp.sqrt(q[1] + 0.5))  # NaN below -1/2
    sol = hx.simulate(
        system,
        hx.StormerVerlet(),
        jnp.array([0.0, 0.0]),
        jnp.array([1.0, 0.0]),
        dt=0.1,
        steps=100,
        throw=False,
        backend=backend,
    )
    assert sol.status is hx.Status.NONFINITE and 5 < sol.stats["steps"] < 20
    assert np.isfinite(sol.q).all()


def test_errors_of_the_solution_are_small_and_the_control_is_not():
    good, bad = run(steps=2000), run(steps=2000, method=hx.RK4())
    assert good.constraint_error().max() < 1e-14 and good.hidden_constraint_error().max() < 1e-14
    assert bad.constraint_error().max() > 1e-9
    assert np.abs(good.energy_error()).max() < 1e-3


def test_multipliers_are_lambda_of_q_and_p():
    sol = run(steps=20)
    expected = PROBLEM.system.multipliers(jnp.asarray(sol.q[7]), jnp.asarray(sol.p[7]))
    np.testing.assert_allclose(sol.multipliers[7], expected, rtol=1e-14)
    assert sol.multipliers[0, 0] > 0  # a hanging rod pulls
    lr, lv = sol.step_multipliers["lr"], sol.step_multipliers["lv"]
    mean = (lv[1:-1] + lr[2:]) / 2
    assert np.abs(mean - sol.multipliers[1:-1]).max() < np.abs(lr[1:] - sol.multipliers[:-1]).max() / 5


def test_to_xarray_and_repr():
    data = run(save_every=10).to_xarray()
    assert data["q"].dims[0] == "t" and data.sizes["t"] == 6 and "RATTLE" in repr(run())


def test_progress_fits_the_terminal():
    for width, named in ((140, True), (80, False)):
        console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
        run(progress=console)
        shown = console.export_text().strip().splitlines()[-1]
        assert ("RATTLE" in shown) is named
        assert "100%" in shown and "steps/s" in shown and "energy" in shown and "constraint" in shown
        assert "\N{HORIZONTAL ELLIPSIS}" not in shown


def test_progress_prints_lines_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys.modules["holonomix.run.progress"], "LINE_SECONDS", 0.0)
    console = Console(width=140, record=True, file=io.StringIO())
    run(progress=console)
    line = console.export_text().splitlines()[0]
    assert "steps (" in line and "energy" in line and "constraint" in line


class Memory:
    """A sink in memory that can pretend to have been killed."""

    def __init__(self):
        self.rows, self.saved, self.closed = [], None, None

    def restart(self):
        return self.saved

    def begin(self, meta):
        self.meta = meta

    def append(self, rows):
        self.rows.append(rows)

    def checkpoint(self, arrays, meta):
        self.saved = ({k: v.copy() for k, v in arrays.items()}, meta)

    def close(self, meta):
        self.closed = meta

    def load(self):
        return {name: np.concatenate([r[name] for r in self.rows]) for name in self.rows[0]}


@pytest.mark.parametrize("backend", ["array", "native"])
def test_restart_is_bitwise(backend):
    whole, halves = Memory(), Memory()
    run(steps=2000, save_every=100, store=whole, backend=backend)
    run(steps=1000, save_every=100, store=halves, backend=backend)
    assert len(halves.load()["t"]) == 11
    run(steps=2000, save_every=100, store=halves, backend=backend)
    for name, rows in whole.load().items():
        np.testing.assert_array_equal(rows, halves.load()[name])


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"dt": 0.02}, r"dt = 0\.01.*0\.02"),
        ({"save_every": 7}, "save_every = 1.*7"),
        ({"method": hx.SHAKE()}, "method = RATTLE.*SHAKE"),
        ({"start": hx.models.double_pendulum(angles=(0.1, 0.2))}, r"another p0|another q0"),
        ({"start": hx.models.double_pendulum(gravity=1.5)}, r"another system.*gravity.*0\.5"),
    ],
)
def test_a_store_of_another_run_is_not_continued(changes, number):
    sink, options = Memory(), {"dt": 0.01, "steps": 20, "backend": "array"} | changes
    run(steps=10, dt=0.01, store=sink, backend="array")
    before = sink.saved
    problem, method = options.pop("start", PROBLEM), options.pop("method", hx.RATTLE())
    with pytest.raises(hx.InputError, match=number):
        hx.simulate(problem.system, method, problem.q0, problem.p0, store=sink, **options)
    assert sink.saved is before


def test_a_store_is_not_continued_to_fewer_steps():
    sink = Memory()
    run(steps=20, store=sink, backend="array")
    before = sink.saved
    for length in ({"steps": 10}, {"steps": None, "t1": 0.2}):
        with pytest.raises(hx.InputError, match="20 steps.*10 steps are requested.*at least 20"):
            run(**length, store=sink, backend="array")
    assert sink.saved is before
    assert len(run(steps=20, store=sink, backend="array").t) == 21
    assert len(run(steps=30, store=sink, backend="array").t) == 31


def test_another_back_end_is_refused_unless_told():
    sink = Memory()
    run(steps=100, store=sink, backend="native")
    with pytest.raises(hx.InputError, match="allow_different_bits"):
        run(steps=200, store=sink, backend="array")
    run(steps=200, store=sink, backend="array", allow_different_bits=True)


def test_new_numbers_do_not_compile_again():
    def potential(q, params):
        return params["gravity"] * jnp.sum(q[:, 1])

    def constraint(q, params):
        return jnp.stack([jnp.sum(q[0] ** 2), jnp.sum((q[1] - q[0]) ** 2)]) - params["lengths"] ** 2

    def go(gravity, dt, mass, backend):
        lengths = jnp.array([1.0, jnp.sqrt(2.0)])
        system = hx.System(potential, constraint, mass, params={"gravity": gravity, "lengths": lengths})
        hx.simulate(system, hx.RATTLE(), PROBLEM.q0, PROBLEM.p0, dt=dt, steps=10, backend=backend)
        hx.integrate(system, hx.RATTLE(), PROBLEM.q0, PROBLEM.p0, dt=dt, steps=10)

    for backend in ("array", "native"):
        go(1.0, 0.01, 1.0, backend)
        before = compiled.statistics["compiled"]
        go(2.0, 0.02, 3.0, backend)
        assert compiled.statistics["compiled"] == before > 0


def test_a_module_with_arrays_works_as_a_potential():
    class Spring(eqx.Module):
        strength: jnp.ndarray

        def __call__(self, q):
            return 0.5 * self.strength * jnp.sum(q**2)

    for strength in (1.0, 4.0):
        sol = hx.simulate(
            hx.System(Spring(jnp.asarray(strength))), hx.StormerVerlet(), [1.0], [0.0], dt=0.001, steps=500
        )
        assert sol.final_q[0] == pytest.approx(np.cos(np.sqrt(strength) * 0.5), abs=1e-6)


@pytest.mark.parametrize("backend", ["array", "native"])
def test_a_run_that_fails_in_its_first_step_ends(backend):
    """Its force is finite at the start alone; one trajectory and many."""
    system = hx.System(lambda q: jnp.where(q[0] > 0.999, 1.0, jnp.nan) * q[1], lambda q: jnp.array([q @ q - 1.0]))
    q0, p0 = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    options = {"dt": 0.1, "steps": 10, "backend": backend}
    sol = hx.simulate(system, hx.RATTLE(), q0, p0, throw=False, **options)
    assert sol.status is hx.Status.NONFINITE and sol.stats["steps"] == 0 and len(sol.t) == 1
    with pytest.warns(hx.errors.FailedTrajectoriesWarning, match="3 of 3"):
        many = hx.simulate_ensemble(system, hx.RATTLE(), np.stack([q0] * 3), np.stack([p0] * 3), **options)
    assert list(many.status) == [hx.Status.NONFINITE] * 3
