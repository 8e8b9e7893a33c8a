"""Monitors: what they measure, how they bound steps, and how bad ones are refused."""

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.core.status import Status
from holonomix.methods.monitors import as_monitor, natural_time

from .support import there_and_back

KEPLER = hx.models.kepler(0.6)
PENDULUM = hx.models.double_pendulum(angles=(1.0, 0.3), masses=(1.0, 2.0))


def test_values():
    system, q, p = (
        PENDULUM.system.prepare(PENDULUM.q0),
        PENDULUM.q0,
        PENDULUM.p0 + jnp.asarray([[0.1, -0.2], [0.3, 0.4]]),
    )
    v = np.asarray(p) / np.array([[1.0], [2.0]])
    lam = np.asarray(system.multipliers(q, p))
    gradient = np.asarray(system.gradient(q))
    assert float(hx.monitors.ForceMonitor(1.0)(system, q, p)) == pytest.approx(
        np.sqrt(np.sum(v**2) + np.sum(gradient**2))
    )
    assert float(hx.MultiplierMonitor(floor=0.3)(system, q, p)) == pytest.approx(np.sqrt(lam @ lam + 0.09))
    total = gradient + np.tensordot(lam, np.asarray(system.linearize(q).todense()).reshape(2, 2, 2), 1)
    assert float(hx.monitors.ArcLengthMonitor(1.0)(system, q, p)) == pytest.approx(
        np.sqrt(np.sum(v**2) + np.sum(total**2))
    )
    assert float(hx.monitors.LargestForceMonitor()(system, q, p)) == pytest.approx(np.max(np.abs(gradient)))
    fastest = np.max(np.sum(v**2, axis=1))
    assert float(hx.monitors.FastestParticleMonitor(floor=0.2)(system, q, p)) == pytest.approx(np.sqrt(fastest + 0.04))


def test_wall_monitor_watches_the_nearest_wall():
    system = hx.System(lambda q: 0.0)
    q = jnp.asarray([0.2, 0.7])
    assert float(hx.monitors.WallMonitor(lambda q: jnp.stack([q[0], 1 - q[1]]), 3.0)(system, q, q)) == pytest.approx(
        0.2**-3, rel=1e-13
    )
    with_params = hx.System(lambda q, c: 0.0, params=jnp.asarray(1.0))
    assert float(hx.monitors.WallMonitor(lambda q, c: c - q, 2.0)(with_params, q, q)) == pytest.approx(
        0.3**-2, rel=1e-13
    )


def test_a_function_of_q_and_p_is_a_monitor_and_its_scale_does_not_matter():
    ends = []
    for scale in (1.0, 8.0):  # a power of two: the same bits
        monitor = lambda q, p, scale=scale: scale * jnp.sqrt(jnp.sum(p**2) + 1 / jnp.sum(q**2) ** 2)
        ends.append(hx.integrate(KEPLER, hx.AdaptiveVerlet(monitor), dt=0.01, steps=200))
    np.testing.assert_array_equal(ends[0][0], ends[1][0])


@pytest.mark.parametrize(
    "monitor, words",
    [
        (lambda q, p: 0.0 * jnp.sum(p), "positive and finite; at the start U = 0"),
        (lambda q, p: -1.0 - jnp.sum(q**2), "positive and finite; at the start U = -"),
        (lambda q, p: jnp.sum(q) * jnp.nan, "U = nan"),
        (lambda q, p: 1.0 + 0.1 * p[0] + p[1], "even in p"),
        (lambda q, p: q, r"shape \(2,\)"),
    ],
    ids=["zero", "negative", "nan", "odd", "vector"],
)
def test_bad_monitors_are_refused_before_the_run(monitor, words):
    for method in (hx.AdaptiveVerlet(monitor), hx.AdaptiveVerlet(monitor, update="explicit")):
        with pytest.raises(hx.InputError, match=words):
            hx.simulate(KEPLER, method, dt=0.01, steps=10)


def test_oddness_is_found_even_at_rest():
    problem = hx.models.double_pendulum()  # starts at rest, where any function of p alone looks even
    method = hx.VRATTLE(lambda q, p: 1.0 + p[0, 0] ** 3)
    with pytest.raises(hx.InputError, match="a momentum drawn at random"):
        hx.simulate(problem, method, dt=0.01, steps=10)


def test_a_monitor_that_fails_on_the_way_keeps_what_was_computed():
    free = hx.System(lambda q: 0.0)
    fading = lambda q, p: 1.0 - q[0]  # zero at q = 1
    with pytest.raises(hx.SimulationError, match="monitor") as caught:
        hx.simulate(free, hx.AdaptiveVerlet(fading), jnp.zeros(1), jnp.ones(1), dt=0.05, t1=5.0)
    assert caught.value.status == Status.MONITOR
    kept = caught.value.solution
    assert len(kept.t) > 3 and np.all(np.isfinite(kept.q)) and kept.q[-1, 0] < 1.0

    broken = lambda q, p: jnp.where(q[0] < 0.5, 1.0, jnp.nan)
    for method in (hx.AdaptiveVerlet(broken), hx.AdaptiveVerlet(broken, update="explicit"), hx.PoincareEuler(broken)):
        sol = hx.simulate(free, method, jnp.zeros(1), jnp.ones(1), dt=0.05, t1=5.0, throw=False)
        assert sol.status == Status.MONITOR
        assert 0.45 < sol.q[-1, 0] < 0.6


def test_a_step_that_underflows_is_reported():
    free = hx.System(lambda q: 0.0)
    steep = lambda q, p: jnp.exp(60.0 * q[0])
    sol = hx.simulate(free, hx.AdaptiveVerlet(steep), jnp.zeros(1), jnp.ones(1), dt=0.01, t1=9.0, t0=1.0, throw=False)
    assert sol.status in (Status.STEP_UNDERFLOW, Status.UNREACHED)
    wall = hx.monitors.WallMonitor(lambda q: 1.0 - q, 1.0)
    with pytest.raises(hx.SimulationError, match="too small to advance time") as caught:
        hx.simulate(free, hx.AdaptiveVerlet(wall), jnp.zeros(1), jnp.ones(1), dt=0.3, t1=9.0, t0=4.0)
    assert caught.value.status == Status.STEP_UNDERFLOW
    assert 4.9 < caught.value.solution.t[-1] <= 5.0  # the wall is met at t = 5 and never passed


def test_a_time_out_of_reach_is_reported():
    with pytest.raises(hx.SimulationError, match="target time was not reached") as caught:
        hx.simulate(KEPLER, hx.AdaptiveVerlet(), dt=0.01, t1=100.0, max_steps=50)
    assert caught.value.status == Status.UNREACHED
    assert len(caught.value.solution.t) == 51


def test_step_bounds_hold_and_keep_reversibility():
    problem = hx.models.kepler(0.9)
    dt, low, high = 2e-3, 1e-3, 0.02
    bounded = hx.AdaptiveVerlet(hx.monitors.StepBounds(hx.monitors.ForceMonitor(), low, high))
    sol = hx.simulate(problem, bounded, dt=dt, t1=7.0)
    steps = np.diff(sol.t)
    assert steps[0] == pytest.approx(dt, rel=1e-2)
    assert low < np.min(steps) and np.max(steps) < high
    free = hx.simulate(problem, hx.AdaptiveVerlet(), dt=dt, t1=7.0)
    assert np.max(np.diff(free.t)) > 2 * high  # without bounds it goes beyond
    assert there_and_back(problem, bounded, dt, 500)[0] < 1e-12


def test_step_bounds_are_checked():
    with pytest.raises(hx.InputError, match="dt_min < dt_max"):
        hx.monitors.StepBounds(hx.monitors.ForceMonitor(), 0.1, 0.01)
    method = hx.AdaptiveVerlet(hx.monitors.StepBounds(hx.monitors.ForceMonitor(), 1e-3, 1e-2))
    with pytest.raises(hx.InputError, match="must lie between"):
        hx.simulate(KEPLER, method, dt=0.1, steps=3)


def test_arguments_are_checked():
    for bad in ({"update": "implicit"}, {"start": "late"}, {"monitor": 3.0}, {"solver": hx.SOR()}):
        with pytest.raises(hx.InputError):
            hx.VRATTLE(**bad)
    assert (
        hx.VRATTLE(hx.monitors.WallMonitor(lambda q: q), solver=hx.SOR()).order == 2
    )  # the density is explicit: any solver will do
    with pytest.raises(hx.MethodError, match="without constraints use ForceMonitor"):
        hx.simulate(KEPLER, hx.AdaptiveVerlet(hx.MultiplierMonitor()), dt=0.1, steps=3)
    with pytest.raises(hx.MethodError):
        hx.VRATTLE().check(KEPLER.system)
    pushed = hx.System(lambda q: jnp.sum(q**2), force=lambda q, v, t: -v)
    with pytest.raises(hx.MethodError, match="reversibility"):
        hx.AdaptiveVerlet().check(pushed)
    with pytest.raises(hx.MethodError, match="one-step map"):
        hx.Composition(hx.VRATTLE())
    assert as_monitor(hx.monitors.ForceMonitor()) == hx.monitors.ForceMonitor()


def test_new_floors_and_steps_do_not_recompile():
    import equinox as eqx

    traces = []

    @eqx.filter_jit
    def run(method, dt):
        traces.append(1)
        return hx.integrate(PENDULUM, method, dt=dt, steps=3)

    for floor in (0.5, 0.7):
        for dt in (0.01, 0.02):
            run(hx.VRATTLE(hx.MultiplierMonitor(floor)), jnp.asarray(dt))
    assert len(traces) == 1


def cart(shift):
    """A cart on a track with a pendulum, everything moved by `shift`."""
    place = lambda q: q - jnp.asarray([shift, 2 * shift])
    rows = lambda x: jnp.stack([x[0, 1], jnp.sum((x[1] - x[0]) ** 2) - 1.0])
    return hx.System(lambda q: 9.81 * jnp.sum(place(q)[:, 1]), lambda q: rows(place(q)))


MONITORS = [
    hx.monitors.ForceMonitor,
    hx.MultiplierMonitor,
    hx.monitors.ArcLengthMonitor,
    hx.monitors.FastestParticleMonitor,
]


@pytest.mark.parametrize("start", ["moving", "at rest"])
@pytest.mark.parametrize("monitor", MONITORS)
def test_steps_do_not_depend_on_the_origin(monitor, start):
    q = np.array([[0.0, 0.0], [0.6, -0.8]])
    p = np.array([[1.0, 0.0], [1.0, 0.0]]) if start == "moving" else np.zeros((2, 2))
    runs = [
        hx.simulate(cart(a), hx.VRATTLE(monitor()), q + np.array([a, 2 * a]), p, dt=0.01, steps=40)
        for a in (0.0, 2.0, 1024.0)
    ]
    for run in runs[1:]:
        np.testing.assert_allclose(run.t, runs[0].t, rtol=0, atol=1e-11)


def test_the_natural_time_is_half_a_period_of_an_oscillator_and_of_a_pendulum():
    spring = hx.System(lambda q: 0.5 * 9.0 * q @ q, mass=4.0).prepare(jnp.ones(1))
    assert float(natural_time(spring, jnp.ones(1), jnp.zeros(1))) == pytest.approx(np.pi * 2 / 3)
    pendulum = hx.System(lambda q: 2.0 * 9.81 * q[1], lambda q: jnp.stack([q @ q - 0.25]), mass=2.0)
    for q in ([0.5, 0.0], [0.3, -0.4]):
        system = pendulum.prepare(jnp.asarray(q))
        assert float(natural_time(system, jnp.asarray(q), jnp.zeros(2))) == pytest.approx(np.pi * np.sqrt(0.5 / 9.81))
