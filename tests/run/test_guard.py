"""Nothing that goes wrong inside the kernel compiler ends a run that the array path can do."""

import gc
import logging
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.compiler import native, program
from holonomix.run import backends
from holonomix.trace.primitives import TABLE


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Equal programs share their code, also between tests."""
    backends._CACHE.clear()
    native._loaded.clear()
    yield
    backends._CACHE.clear()


def overflow(*_, **__):
    return overflow()


def wrong(*_, **__):
    raise KeyError("node 7 (mul) is used before it is computed")


PLACES = {
    "rule": lambda m, fn: m.setattr(TABLE["sin"], "kernel", fn),
    "schedule": lambda m, fn: m.setattr(program, "_schedule", fn),
    "emission": lambda m, fn: m.setattr(native, "KernelEmitter", fn),
    "compilation": lambda m, fn: m.setattr(native, "kept", fn),
}


def system():
    return hx.System(lambda q: jnp.sum(jnp.sin(q) ** 2))


def run(backend, ensemble=False):
    q = np.array([0.1, 0.4])
    options = {"dt": 0.1, "steps": 5, "backend": backend}
    if ensemble:
        return hx.simulate_ensemble(system(), hx.StormerVerlet(), np.stack([q] * 3), np.ones((3, 2)), **options)
    return hx.simulate(system(), hx.StormerVerlet(), q, np.ones(2), **options)


@pytest.mark.parametrize(("place", "ensemble"), [*((p, False) for p in PLACES), ("compilation", True)])
def test_a_defect_costs_speed_and_one_warning(monkeypatch, caplog, place, ensemble):
    PLACES[place](monkeypatch, overflow if place == "schedule" else wrong)
    monkeypatch.setenv("HOLONOMIX_DEFECTS", "")
    with caplog.at_level(logging.WARNING, "holonomix"):
        found = run("auto", ensemble)
    assert [r.levelname for r in caplog.records if r.name.startswith("holonomix")] == ["WARNING"]  # JAX may warn, too
    assert "defect" in caplog.text and ("RecursionError" if place == "schedule" else "node 7") in caplog.text
    assert found.stats["backend"] == "array"
    assert np.isfinite(found.q).all()


@pytest.mark.parametrize("place", PLACES)
def test_a_defect_raises_where_the_back_end_is_named_and_in_tests(monkeypatch, place):
    PLACES[place](monkeypatch, wrong)
    with pytest.raises(kernels.Defect, match="node 7"):
        run("auto")
    monkeypatch.setenv("HOLONOMIX_DEFECTS", "")
    with pytest.raises(kernels.Defect, match=r"node 7.*array"):
        run("native")


def test_errors_of_users_are_not_defects():
    def potential(q):
        raise ZeroDivisionError("mine")

    with pytest.raises(Exception, match="mine") as error:
        hx.simulate(hx.System(potential), hx.StormerVerlet(), np.ones(2), np.ones(2), dt=0.1, steps=1)
    assert not isinstance(error.value, kernels.Defect)


def test_a_cached_refusal_keeps_no_program(monkeypatch):
    """Its traceback would hold the graph of everything that was traced."""
    graphs = []

    class Remembered(program.Graph):
        def __init__(self, *args):
            super().__init__(*args)
            graphs.append(weakref.ref(self))

    monkeypatch.setattr(program, "Graph", Remembered)
    refused = hx.System(lambda q: jnp.sum(jnp.sort(jnp.tile(q, 14)) * jnp.arange(42.0)))
    for _ in range(2):
        found = hx.simulate(refused, hx.StormerVerlet(), np.ones(3), np.ones(3), dt=0.01, steps=1)
    assert found.stats["backend"] == "array" and "sort" in found.stats["backend_reason"]
    errors = [x for x in backends._CACHE.values() if isinstance(x, Exception)]
    assert errors and all(e.__traceback__ is None and e.__context__ is None for e in errors)
    gc.collect()
    assert len(graphs) == 1 and graphs[0]() is None
