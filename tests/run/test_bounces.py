"""Elastic impacts: order, energy, reversibility, and what they combine with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

PENDULUM = hx.models.planar_pendulum()  # it starts at the bottom, with a velocity to the right


def bounce(fn, direction=1):
    return hx.Event(fn, direction=direction, bounce=True)


WALL = bounce(lambda q, p: q[0], direction=-1)  # the motion stays at x >= 0: starts on the wall
BALL = hx.System(lambda q: 0.0 * q[0])
FLOOR = bounce(lambda q, p: -q[0])


def mirrored(t):
    """The exact motion: that of the free pendulum, reflected."""
    q, p = (np.array(x) for x in PENDULUM.reference(t))
    side = np.where(q[..., :1] < 0, -1.0, 1.0)
    return np.abs(q * [1.0, 0.0]) + q * [0.0, 1.0], p * np.concatenate([side, np.ones_like(side)], -1)


@pytest.mark.parametrize(("method", "order"), [(hx.RATTLE(), 2), (hx.Composition(hx.RATTLE(), order=4), 4)])
def test_order_through_impacts(method, order):
    errors = []
    for steps in (100, 200, 400):
        sol = hx.simulate(PENDULUM, method, dt=12.0 / steps, steps=steps, events=WALL)
        q, p = mirrored(sol.t)
        assert len(sol.events[0].t) == 3 and sol.q[:, 0].min() > -1e-15
        errors.append(max(np.max(np.abs(sol.q - q)), np.max(np.abs(sol.p - p))))
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(rates - order) < 0.2), (rates, errors)


@pytest.mark.slow
def test_energy_and_constraint_are_kept_exactly():
    sol = hx.simulate(PENDULUM, hx.LineIntegral(4), dt=0.1, steps=1000, events=WALL)
    assert len(sol.events[0].t) == 29
    assert np.abs(sol.energy_error()).max() < 1e-14
    assert sol.constraint_error().max() < 1e-15 and sol.hidden_constraint_error().max() < 1e-14


def test_a_run_goes_back_to_its_start():
    forth = hx.simulate(PENDULUM, hx.RATTLE(), dt=0.1, steps=100, events=WALL)
    back = hx.simulate(PENDULUM, hx.RATTLE(), forth.final_q, forth.final_p, dt=-0.1, steps=100, t0=10.0, events=WALL)
    # the end is on the wall
    np.testing.assert_allclose(back.q[-1], PENDULUM.q0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(back.events[0].t, forth.events[0].t[::-1], rtol=0, atol=1e-12)


def test_many_impacts_in_one_step():
    """A ball between walls at 0 and 0.03: thirty impacts in ten steps, at exact times."""
    walls = [FLOOR, bounce(lambda q, p: q[0] - 0.03)]
    sol = hx.simulate(BALL, hx.StormerVerlet(), [0.01], [1.0], dt=0.1, steps=10, events=walls)
    folded = (0.01 + sol.t) % 0.06
    np.testing.assert_allclose(sol.q[:, 0], np.minimum(folded, 0.06 - folded), rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.abs(sol.p), 1.0, rtol=0, atol=1e-15)
    assert len(sol.events[0].t) == 16 and len(sol.events[1].t) == 17


def test_a_corner():
    """Two walls at one time."""
    system = hx.System(lambda q: 0.0 * q[0])
    walls = [bounce(lambda q, p: q[0]), bounce(lambda q, p: q[1])]
    sol = hx.simulate(system, hx.StormerVerlet(), [-0.25, -0.5], [1.0, 2.0], dt=0.1, steps=5, events=walls)
    np.testing.assert_allclose(sol.q[-1], [-0.25, -0.5], rtol=0, atol=1e-15)
    np.testing.assert_allclose(sol.p[-1], [-1.0, -2.0], rtol=0, atol=1e-15)


def test_a_moving_wall():
    """A wall with the velocity 1/2 against a ball with the velocity -1: the ball leaves with 2/2 + 1."""
    wall = bounce(lambda q, p, t: t / 2 - q[0])
    sol = hx.simulate(BALL, hx.StormerVerlet(), [1.0], [-1.0], dt=0.1, steps=10, events=wall)
    np.testing.assert_allclose(sol.events[0].t, [2 / 3], rtol=0, atol=1e-14)
    np.testing.assert_allclose(sol.q[-1], [1 / 3 + 2 / 3], rtol=0, atol=1e-14)
    np.testing.assert_allclose(sol.p[-1], [2.0], rtol=0, atol=1e-14)


@pytest.mark.slow
def test_starts_on_and_behind_the_wall_and_rest():
    falling = hx.System(lambda q: 10.0 * q[0])
    starts = np.array([[0.0], [0.0], [-0.1], [-0.1], [1e-5]])
    momenta = np.array([[0.0], [-1.0], [-1.0], [1.0], [0.0]])
    ens = hx.simulate_ensemble(
        falling, hx.StormerVerlet(), starts, momenta, dt=0.01, steps=300, save_every=1, events=FLOOR
    )
    assert ens.ok.all() and np.abs(ens.energy_error()).max() < 1e-12
    # a ball that rests enters the floor by about dt^2 times its acceleration
    assert ens.q[[0, 4]].min() > -2e-3 and ens.q[0].max() < 1e-3
    assert ens.q[1].min() > -1e-14 and ens.q[1].max() == pytest.approx(0.05, rel=1e-2)
    assert ens.q[2].min() == -0.1 and ens.p[2, 1] > 0  # reflected at once
    assert ens.q[3].min() == -0.1  # on its way out


@pytest.mark.slow
def test_an_impulse_stays_on_the_manifold():
    """A mass of a double pendulum meets a curved wall: the rods pass on the impulse, also if one is doubled."""
    q, p = np.array([[0.0, -1.0], [1.0, -2.0]]), np.zeros((2, 2))
    rods = lambda q: jnp.stack([q[0] @ q[0] - 1, (q[1] - q[0]) @ (q[1] - q[0]) - 2, 2 * (q[0] @ q[0] - 1)])
    wall = bounce(lambda q, p: q[1, 0] - q[0, 1] ** 2 / 2, direction=-1)
    method = hx.RATTLE(hx.Newton(redundant="min-norm"))
    runs = []
    for rows in (lambda q: rods(q)[:2], rods):
        system = hx.System(lambda q: q[0, 1] + q[1, 1], rows)
        sol = hx.simulate(system, method if rows is rods else hx.RATTLE(), q, p, dt=0.01, steps=300, events=wall)
        assert sol.constraint_error().max() < 1e-14 and sol.hidden_constraint_error().max() < 1e-13
        assert np.abs(sol.energy_error()).max() < 1e-3 and len(sol.events[0].t) >= 1
        runs.append(sol)
    np.testing.assert_allclose(runs[1].q, runs[0].q, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_rows_observers_and_other_events():
    falls = hx.Event(lambda q, p: p[0], direction=1)
    options = {"dt": 0.1, "steps": 90, "observe": {"height": lambda q, p: q[1]}}
    every = hx.simulate(PENDULUM, hx.RATTLE(), events=[falls, WALL], **options)
    third = hx.simulate(PENDULUM, hx.RATTLE(), events=[falls, WALL], save_every=3, **options)
    assert np.array_equal(third.q, every.q[::3]) and np.array_equal(third.t, every.t[::3])
    assert np.array_equal(every.observables["height"], every.q[:, 1])
    assert np.array_equal(every.t, 0.1 * np.arange(91))
    for last in (3.39, 3.45):  # in the step of the first impact, after it, and in the next one
        end = hx.Event(lambda q, p, t, last=last: t - last, terminal=True)
        ended = hx.simulate(PENDULUM, hx.RATTLE(), events=[end, WALL], **options)
        assert ended.status == hx.Status.TERMINATED and len(ended.events[1].t) == 1
        assert 3.3 < ended.events[1].t[0] < ended.final_t == pytest.approx(last, abs=1e-14)
        np.testing.assert_allclose(ended.final_q, mirrored(np.array(last))[0], rtol=0, atol=1e-2)
        np.testing.assert_allclose(ended.q[-1], ended.final_q, rtol=0, atol=1e-15)
        assert ended.t[-1] == ended.final_t and ended.final_p[0] > 0


def test_a_stored_run_resumes_to_the_same_bits(tmp_path):
    whole = hx.simulate(PENDULUM, hx.RATTLE(), dt=0.1, steps=120, events=WALL)
    for steps in (40, 120):
        part = hx.simulate(PENDULUM, hx.RATTLE(), dt=0.1, steps=steps, events=WALL, store=tmp_path / "run")
    assert np.array_equal(part.q, whole.q) and np.array_equal(part.p, whole.p)
    assert np.array_equal(part.events[0].t, whole.events[0].t) and len(whole.events[0].t) == 3
    with pytest.raises(hx.errors.HolonomixError):  # an event that only looks is another run
        event = hx.Event(lambda q, p: q[0], direction=-1)
        hx.simulate(PENDULUM, hx.RATTLE(), dt=0.1, steps=120, events=event, store=tmp_path / "run")


def test_ensembles(tmp_path):
    p = np.array([[0.5, 0.0], [1.0, 0.0], [1.5, 0.0]])
    q = np.tile(PENDULUM.q0, (3, 1))
    options = {"dt": 0.1, "steps": 100, "events": WALL, "save_every": 1}
    ens = hx.simulate_ensemble(PENDULUM.system, hx.RATTLE(), q, p, **options)
    for k in range(3):
        one = hx.simulate(PENDULUM.system, hx.RATTLE(), q[k], p[k], **options)
        np.testing.assert_allclose(ens.q[k], one.q, rtol=0, atol=1e-13)
        np.testing.assert_allclose(ens.events[k][0].t, one.events[0].t, rtol=0, atol=1e-13)
    stored = hx.simulate_ensemble(PENDULUM.system, hx.RATTLE(), q, p, **options, store=tmp_path / "e", block=2)
    assert np.array_equal(stored.q, ens.q)


def test_refusals():
    for method in (hx.VRATTLE(), hx.AdamsBashforth(2)):
        system = PENDULUM.system if method.adaptive else BALL
        with pytest.raises(hx.errors.MethodError, match="a bounce ends a step early"):
            hx.simulate(system, method, [0.0, -1.0], [1.0, 0.0], dt=0.1, steps=5, events=WALL)
    with pytest.raises(hx.errors.MethodError, match="random numbers"):
        method = hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0)
        hx.simulate(PENDULUM, method, events=WALL, key=jax.random.key(0))
    for options in ({"dense": True}, {"save_at": [0.5]}):
        with pytest.raises(hx.InputError, match="not one with bounces; use save_every"):
            hx.simulate(PENDULUM, hx.RATTLE(), events=WALL, **options)
    with pytest.raises(hx.InputError, match="event 0 bounces at a wall, which is a function of q"):
        hx.simulate(PENDULUM, hx.RATTLE(), events=bounce(lambda q, p: p[0]))
    with pytest.raises(hx.InputError, match="a bounce needs direction=1"):
        bounce(lambda q, p: q[0], direction=0)


@pytest.mark.slow
def test_ten_thousand_impacts():
    """RATTLE keeps the energy within its usual error: impacts add no drift."""
    sol = hx.simulate(PENDULUM, hx.RATTLE(), dt=0.1, steps=337_500, events=WALL, save_every=25)
    error = np.abs(sol.energy_error())
    assert len(sol.events[0].t) >= 10_000
    assert error.max() < 1.2 * error[:200].max()
