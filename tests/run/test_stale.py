"""What a function computes when a run begins is what the run computes, whatever changed since the last one."""

# ruff: noqa: B023  (functions that see a variable change are what is tested here)

from __future__ import annotations

import functools
import operator
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.run import backends
from holonomix.trace import compiled
from holonomix.trace.frozen import Frozen, Recorder, digest_of, freeze
from holonomix.trace.functions import Fixed
from holonomix.trace.signatures import required_arguments
from holonomix.trace.stamps import stamp

STRENGTH = 1.0


class Holder:
    def __init__(self, strength):
        self.strength = strength

    def method(self, q):
        return 0.5 * self.strength * jnp.sum(q**2)

    __call__ = method


class Spring(eqx.Module):
    size: jax.Array

    def __call__(self, q):
        return 0.5 * STRENGTH * self.size * jnp.sum(q**2)


def by_closure():
    strength = 1.0

    def change(value):
        nonlocal strength
        strength = value

    return lambda q: 0.5 * strength * jnp.sum(q**2), change


def by_global():
    return lambda q: 0.5 * STRENGTH * jnp.sum(q**2), functools.partial(setattr_global)


def setattr_global(value):
    global STRENGTH
    STRENGTH = value


def by_attribute():
    holder = Holder(1.0)
    return holder.method, lambda value: setattr(holder, "strength", value)


def by_callable():
    holder = Holder(1.0)
    return holder, lambda value: setattr(holder, "strength", value)


def by_array():
    table = np.ones(1)
    return lambda q: 0.5 * jnp.asarray(table)[0] * jnp.sum(q**2), lambda value: table.fill(value)


def by_module():
    return Spring(jnp.asarray(1.0)), setattr_global


WAYS = [by_closure, by_global, by_attribute, by_callable, by_array, by_module]


def expected(strength, t=0.5):
    return np.cos(np.sqrt(strength) * t)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_a_function_that_changed_is_not_stale(way):
    potential, change = way()
    for system in (hx.System(potential), None):
        for strength in (1.0, 4.0):
            change(strength)
            now = system or hx.System(potential)
            sol = hx.simulate(now, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=50)
            q, _ = hx.integrate(now, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=50)
            assert sol.final_q[0] == pytest.approx(expected(strength), abs=1e-4)
            assert float(q[0]) == pytest.approx(expected(strength), abs=1e-4)
    change(1.0)


TABLE = [1.0]


def end_of_run(system):
    return float(hx.simulate(system, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=50).final_q[0])


class Strange(eqx.Module):
    """Params whose operators read a global list."""

    size: float = eqx.field(static=True, default=1.0)

    def __getitem__(self, k):
        return TABLE[k]

    def __call__(self, q):
        return 0.5 * TABLE[0] * jnp.sum(q**2)


def in_params(q):
    return 0.5 * TABLE[0] * jnp.sum(q**2)


@pytest.mark.parametrize(
    ("potential", "params"),
    [
        (lambda q, params: params["f"](q), {"f": in_params}),
        (lambda q, params: params[0](q), [functools.partial(lambda k, q: in_params(q), 1)]),
        (lambda q, params: params["f"](q), {"f": Strange()}),
        (lambda q, params: params[0] * 0.5 * jnp.sum(q**2), Strange()),
    ],
    ids=["function", "partial", "module", "operator"],
)
def test_functions_in_params_are_not_stale(potential, params):
    kept = hx.System(potential, params=params)
    try:
        for TABLE[0] in (1.0, 4.0):
            for system in (kept, hx.System(potential, params=params)):
                assert end_of_run(system) == pytest.approx(expected(TABLE[0]), abs=1e-4)
    finally:
        TABLE[0] = 1.0


def test_functions_in_params_that_cannot_change_are_traced_once(monkeypatch):
    def pure(q):
        return jnp.sum(q**2)

    system = hx.System(lambda q, params: params["f"](q), params={"f": pure})
    system.prepare(jnp.ones(2))
    monkeypatch.delattr(Recorder, "_trace")
    assert isinstance(system.prepare(jnp.ones(2)).potential_fn, Frozen)


def squares(q):
    return jnp.sum(q**2)


def globals_by_pattern(q):
    function = type(lambda: 0)
    match squares:
        case function(__globals__=names):
            return names["TABLE"][0] * jnp.sum(q**2)


def forged(q):
    return TABLE[0] * jnp.sum(q**2)


forged.__module__ = "holonomix.mechanics.potentials"


def copied(q):
    return TABLE[0] * jnp.sum(q**2)


functools.update_wrapper(copied, hx.mechanics.fixman)


def with_own_builtins():
    names = {"__builtins__": {"abs": lambda x: TABLE[0]}, "jnp": jnp}
    exec("def fn(q): return abs(-1.0) * jnp.sum(q**2)", names)
    return names["fn"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda q: operator.attrgetter("__globals__")(squares)["TABLE"][0] * jnp.sum(q**2),
        lambda q: float(operator.methodcaller("format", squares)("{0.__globals__[TABLE][0]}")) * jnp.sum(q**2),
        globals_by_pattern,
        forged,
        copied,
        with_own_builtins(),
    ],
    ids=["attrgetter", "methodcaller", "match", "__module__", "__wrapped__", "__builtins__"],
)
def test_what_reaches_a_list_in_a_roundabout_way_is_not_stale(fn):
    system = hx.System(fn)
    try:
        for TABLE[0] in (0.5, 2.0):
            assert end_of_run(system) == pytest.approx(expected(2 * TABLE[0]), abs=1e-4)
    finally:
        TABLE[0] = 1.0


def test_pure_operators_have_a_stamp():
    assert stamp(lambda q: operator.itemgetter(0)(q) * operator.mul(2.0, q[0])) is not None
    assert stamp(lambda q: operator.attrgetter("T")(q)) is None


def test_the_signature_of_a_wrapper_is_its_own():
    @functools.wraps(hx.mechanics.fixman)  # two arguments
    def one(q):
        return 0.0

    @functools.wraps(lambda q, t: 0.0)
    def any_number(*args):
        return 0.0

    assert required_arguments(one) == 1 and required_arguments(any_number) == 2
    assert required_arguments(jax.jit(lambda q, t: 0.0)) == 2
    any_number.__wrapped__ = any_number  # a circle
    assert required_arguments(any_number) is None


@pytest.mark.parametrize(
    ("name", "values"), [("jax_threefry_partitionable", (True, False)), ("jax_random_seed_offset", (0, 5))]
)
def test_settings_of_random_numbers_are_not_stale(name, values):
    potential = lambda q: jax.random.uniform(jax.random.key(0), (3,))[1] * jnp.sum(q**2)
    system, found, right, before = hx.System(potential), [], [], getattr(jax.config, name)
    try:
        for value in values:
            jax.config.update(name, value)
            sol = hx.simulate(system, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=20)
            found.append(float(sol.final_q[0]))
            right.append(np.cos(np.sqrt(2 * potential(jnp.ones(1))) * 0.2))
    finally:
        jax.config.update(name, before)
    assert right[0] != right[1]
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-4)


def test_memory_shared_with_numpy_is_not_stale():
    memory = np.zeros(16)
    shared = memory[(-memory.ctypes.data // 8) % 8 :][:8]  # JAX shares memory that is aligned to 64 bytes
    shared[:] = 1.0
    array = jax.device_put(shared)
    system = hx.System(lambda q: 0.5 * array[0] * jnp.sum(q**2))
    for shared[:] in (1.0, 4.0):
        assert end_of_run(system) == pytest.approx(expected(float(np.asarray(array)[0])), abs=1e-4)


def unsorted_table():
    table = {1: 2.0, "a": 1.0}
    return lambda q: table[1] * jnp.sum(q**2)


@functools.singledispatch
def dispatched(q):
    return 2.0 * jnp.sum(q**2)


dispatched.register(int, lambda q: 0.0)


@pytest.mark.parametrize(
    "fn",
    [
        unsorted_table(),
        lambda q, table={1: 2.0, "a": 1.0}: table[1] * jnp.sum(q**2),
        functools.partial(lambda table, q: table[1] * jnp.sum(q**2), {1: 2.0, "a": 1.0}),
        jax.tree_util.Partial(lambda table, q: table[1] * jnp.sum(q**2), {1: 2.0, "a": 1.0}),
        dispatched,
    ],
    ids=["closure", "default", "partial", "Partial", "singledispatch"],
)
def test_functions_may_hold_dictionaries_whose_keys_have_no_order(fn):
    sol = hx.simulate(hx.System(fn), hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=3)
    assert sol.final_q[0] == pytest.approx(expected(4.0, 0.03), abs=1e-6)


def test_observables_events_and_constraints_are_not_stale():
    level = 1.0
    system = hx.System(lambda q: q[1], lambda q: jnp.array([q @ q - level**2]))
    for level in (1.0, 2.0):
        q0, p0 = hx.project(system, jnp.array([0.6, -0.8]) * level, jnp.zeros(2))
        np.testing.assert_allclose(jnp.sum(q0**2), level**2, rtol=1e-12)
        sol = hx.simulate(
            system, hx.RATTLE(), q0, p0, dt=0.02, steps=200, observe={"level": lambda q, p: level * q[0]},
            events=lambda q, p: q[0] - 0.3 * level,
        )  # fmt: skip
        np.testing.assert_array_equal(sol.observables["level"], level * sol.q[:, 0])
        assert len(sol.events[0].t) and np.abs(sol.events[0].q[:, 0] - 0.3 * level).max() < 1e-8
        assert sol.constraint_error().max() < 1e-13


def test_a_solution_remembers_the_system_of_its_run():
    strength = 1.0
    system = hx.System(lambda q: 0.5 * strength * jnp.sum(q**2))
    sol = hx.simulate(system, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=50)
    strength = 100.0
    assert np.abs(sol.energy_error()).max() < 1e-4


def test_reductions_of_an_ensemble_are_not_stale():
    factor = 1.0
    system = hx.System(lambda q: 0.5 * jnp.sum(q**2))
    for factor in (1.0, 3.0):
        ens = hx.simulate_ensemble(
            system, hx.StormerVerlet(), np.ones((2, 1)), np.zeros((2, 1)), dt=0.01, steps=5,
            reduce={"high": hx.reductions.Maximum(lambda q, p: factor * q[0])},
        )  # fmt: skip
        np.testing.assert_allclose(ens.reduced["high"], factor, rtol=1e-13)


class Longest:
    """A reduction that is a plain object, which may change between two runs."""

    def __init__(self, factor):
        self.factor = factor

    def init(self, q, p, t):
        return self.factor * q[0]

    def update(self, longest, q, p, t):
        return jnp.maximum(longest, self.factor * q[0])

    def result(self, longest):
        return longest / self.factor**2


class LongestModule(eqx.Module):
    """The same as a PyTree that reads a global."""

    factor: float = 1.0

    def init(self, q, p, t):
        return STRENGTH * q[0]

    def update(self, longest, q, p, t):
        return jnp.maximum(longest, STRENGTH * q[0])

    def result(self, longest):
        return longest / STRENGTH**2


@pytest.mark.parametrize(
    ("reducer", "change"),
    [(plain := Longest(1.0), lambda x: setattr(plain, "factor", x)), (LongestModule(), setattr_global)],
)
def test_reductions_that_are_objects_of_the_user_are_not_stale(reducer, change):
    system = hx.System(lambda q: 0.5 * jnp.sum(q**2))
    start = np.ones((2, 1)), np.zeros((2, 1))
    for factor in (1.0, 4.0):
        change(factor)
        ens = hx.simulate_ensemble(system, hx.StormerVerlet(), *start, dt=0.01, steps=5, reduce={"longest": reducer})
        np.testing.assert_allclose(ens.reduced["longest"], 1 / factor, rtol=1e-13)
    change(1.0)


def test_symmetries_of_a_variational_integrator_are_not_stale():
    system, factor = hx.System(lambda q: 0.5 * jnp.sum(q**2)), 1.0
    method = hx.VariationalIntegrator(symmetries=[lambda q: factor * jnp.stack([-q[1], q[0]])])
    for factor in (1.0, 4.0):
        sol = hx.simulate(system, method, [1.0, 0.0], [0.0, 1.0], dt=0.01, steps=3)
        np.testing.assert_allclose(sol.step_multipliers["noether"][1:, 0], factor, rtol=1e-12)


@pytest.mark.parametrize("rule", ["jvp", "vjp"])
def test_derivative_rules_are_not_stale(rule):
    strength = 1.0
    if rule == "jvp":
        energy = jax.custom_jvp(lambda q: 0.5 * jnp.sum(q**2))
        energy.defjvp(lambda q, dq: (energy(*q), strength * jnp.sum(q[0] * dq[0])))
    else:
        energy = jax.custom_vjp(lambda q: 0.5 * jnp.sum(q**2))
        energy.defvjp(lambda q: (energy(q), q), lambda q, slope: (strength * slope * q,))
    for system in (hx.System(lambda q: energy(q)), hx.System(energy)):
        for strength in (1.0, 4.0):
            sol = hx.simulate(system, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=50)
            q, _ = hx.integrate(system, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=50)
            assert sol.final_q[0] == pytest.approx(expected(strength), abs=1e-4)
            assert float(q[0]) == pytest.approx(expected(strength), abs=1e-4)


def test_functions_that_compute_the_same_share_their_code():
    def make(table):
        return hx.System(lambda q: 0.5 * jnp.sum(table * q**2))

    run = functools.partial(hx.simulate, method=hx.StormerVerlet(), q0=[1.0], p0=[0.0], dt=0.01, steps=5)
    run(make(jnp.array([2.0])))
    before = compiled.statistics["compiled"], len(backends._CACHE)
    run(make(jnp.array([2.0])))
    assert (compiled.statistics["compiled"], len(backends._CACHE)) == before
    run(make(jnp.array([3.0])))
    assert compiled.statistics["compiled"] > before[0]


def test_what_a_function_captures_from_a_transformation_stays_a_variable():
    def energy(strength):
        system = hx.System(lambda q: 0.5 * strength * jnp.sum(q**2))
        q, _ = hx.integrate(system, hx.StormerVerlet(), jnp.ones(1), jnp.zeros(1), dt=0.01, steps=50)
        return q[0]

    slope = jax.grad(energy)(4.0)
    assert float(slope) == pytest.approx(-0.5 * np.sin(1.0) / 4, abs=1e-4)
    np.testing.assert_allclose(
        jax.vmap(energy)(jnp.array([1.0, 4.0])), [expected(1.0), expected(4.0)], rtol=0, atol=1e-4
    )


def test_the_digest_tells_what_differs():
    q = jnp.ones(2)

    def frozen(fn):
        return freeze(Fixed(fn), lambda f: f(q))

    same = digest_of(frozen(lambda q: 2.0 * jnp.sum(q)))
    assert same == digest_of(frozen(lambda x: 2.0 * jnp.sum(x)))
    assert same != digest_of(frozen(lambda q: 2.5 * jnp.sum(q)))
    assert isinstance(frozen(jnp.sum), Frozen)


def ping(q):
    return pong(q) + circle_of(q, 1)


def pong(q):
    return ping(q) + circle_of(q, 2)


def circle_of(q, k):
    return ping(q) + pong(q) + k


def test_a_stamp_is_given_only_where_nothing_can_change_unseen():
    number, array = 2.0, jnp.ones(3)

    def inner(q):
        return number * jnp.sum(q)

    def outer(q):
        return inner(q) + jnp.sum(array) + np.pi

    first = stamp(outer)
    assert first is not None and first == stamp(outer)
    number = 3.0
    assert stamp(outer) not in (None, first)
    circle = [lambda q, k=k: circle_of(q, k) for k in range(3)]
    assert stamp(ping) == stamp(ping) is not None and stamp(circle[0]) is not None
    listed, holder = [1.0], Holder(1.0)
    for unsure in (
        lambda q: listed[0] * q,
        lambda q: holder.strength * q,
        holder.method,
        functools.partial(inner),
        jax.jit(inner),
        Spring(array),
    ):
        assert stamp(unsure) is None


def run_many_systems(count):
    """Simulate on `count` different systems; the number of memory maps of the process in the middle and at the end."""
    maps = []
    for k in range(count):
        c = 1.0 + 0.001 * k
        system = hx.System(lambda q: c * q[1] + 0.1 * jnp.cos(c * q[0]))
        hx.simulate(system, hx.StormerVerlet(), [0.6, -0.8], [0.8, 0.6], dt=0.01, steps=5)
        if k in (count // 2, count - 1):
            with open("/proc/self/maps", encoding="ascii") as lines:
                maps.append(sum(1 for _ in lines))
    return maps


def test_caches_are_bounded(monkeypatch):
    from holonomix.compiler import native

    monkeypatch.setattr(compiled._programs, "limit", 6)
    monkeypatch.setattr(backends._CACHE, "limit", 2)
    monkeypatch.setattr(native._loaded, "limit", 2)
    before, after = run_many_systems(7)
    assert after - before <= 8  # three systems would have added some 90


MANY = """
from holonomix.trace import compiled
from tests.run.test_stale import run_many_systems

def resident():
    with open("/proc/self/statm", encoding="ascii") as line:
        return int(line.read().split()[1]) * 4096


run_many_systems(1)
begun = resident()
before, after = run_many_systems(600)
assert after - before < 200 and after < 10_000, (before, after)
assert len(compiled._programs) <= compiled.LIMIT
assert resident() - begun < 300e6, (begun, resident())  # docs/faq.md says 0.2 GB beside those of JAX
"""


@pytest.mark.slow
def test_six_hundred_systems_do_not_exhaust_the_process():
    """In a process as users have it, which is faster than one that checks types; 60 000 maps are the most there are.

    Every kernel is compiled: one that is loaded from the cache on disk takes none of LLVM's memory.
    """
    root, environment = Path(__file__).parents[2], os.environ | {"HOLONOMIX_CACHE": "off"}
    command = [sys.executable, "-c", MANY]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


def test_functions_without_a_module_are_taken():
    names: dict[str, object] = {}
    exec("potential = lambda q: q[0] ** 2", names)  # as notebooks of some kinds and documentation tests do
    system = hx.System(names["potential"])
    sol = hx.simulate(system, hx.StormerVerlet(), jnp.array([1.0]), jnp.array([0.0]), dt=0.1, steps=3)
    assert not sol.status.failed


@pytest.mark.parametrize("size", [1.25, 1.5])
def test_a_list_and_a_number_are_different_functions(size):
    """`[x]` and `x` have the same equations; only the first is a constraint of one row."""
    number = hx.System(lambda q: q[1], lambda q: q @ q - size**2)
    row = hx.System(lambda q: q[1], lambda q: [q @ q - size**2])
    start = hx.RATTLE(), jnp.array([size, 0.0]), jnp.zeros(2)

    def refused():
        with pytest.raises(hx.ShapeError, match="1-D"):
            hx.simulate(number, *start, dt=0.01, steps=2)

    def accepted():
        assert hx.simulate(row, *start, dt=0.01, steps=2).multipliers.shape == (3, 1)

    for check in (refused, accepted) if size < 1.4 else (accepted, refused):
        check()
