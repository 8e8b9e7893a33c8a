"""Every trait of every method in the registry, measured. A method that is added is measured without a word here.

What cannot be measured is left out by kind, explicitly: a stochastic method has no order and no reversal, and is held
to its constraints; the statistics of samplers are measured in their own tests.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.base import KINDS, AbstractMethod

STEPS = 600


def constrained() -> hx.Problem:
    """A nonlinear problem with two constraints and a mass that is not the identity."""
    return hx.models.double_pendulum(masses=(1.3, 0.7))


def small() -> hx.Problem:
    """The same with one constraint, for methods whose derivatives take long to compile."""
    return hx.models.planar_pendulum(angle=1.0, mass=1.3)


LONG = ("AdamsBashforth", "AdamsMoulton", "LinearMultistep", "Taylor")


def very_smooth() -> hx.Problem:
    """Errors of order ten and more are above round-off here long enough to be divided."""
    return hx.models.spherical_pendulum()


def stiff() -> hx.Problem:
    """A stiff system that a small step resolves: orders are those of a step that tends to zero."""
    return dataclasses.replace(hx.models.penalized_double_pendulum(omega=10.0), dt=0.02, t1=10.0)


def soft(body: hx.Problem) -> hx.Problem:
    """The nine entries of a rotation matrix held by a penalty that a small step resolves."""
    return dataclasses.replace(body, system=body.system.penalized(2.0), dt=0.02, t1=10.0, reference=None)


def growing() -> hx.Problem:
    """For methods that gain energy: with longer steps they leave the well before the run ends."""
    return dataclasses.replace(hx.models.henon_heiles(), dt=0.02)


# Explicit Euler under two names; steps that follow the speed and alternate in length when they are long.
GAIN_ENERGY = ("ExplicitEuler", "AdamsBashforth(1)", "AdaptiveVerlet")


def deep() -> hx.Problem:
    """A well that no heat bath makes a trajectory leave."""
    return hx.Problem(hx.System(lambda q: jnp.sum(q**4 / 4 + q**2 / 2)), np.array([0.5, 0.2]), np.zeros(2), 0.1, 50.0)


# They kick with a slow force that is changed by O(epsilon), and so tend to a motion of their own as dt falls; how near
# it is to the slow motion is measured in tests/methods/stiff.
OWN_LIMIT = ("MollifiedImpulse", "ProjectedImpulse")


# With quadratic constraints `G M^-1 p` is a quadratic invariant of the index-reduced equations; these keep those.
KEPT_BY_LUCK = {(name, "hidden constraint") for name in ("ImplicitMidpoint", "Gauss(1)", "Gauss(2)")}


def problem_for(method, kind: str, quick: bool) -> hx.Problem:
    if method.family == "so3":
        body = hx.models.magnetized_body()
        return body if kind == "constrained" else soft(body)
    if quick and kind == "constrained":
        return small()
    if kind == "free" and method.stochastic:
        return deep()
    if kind == "free" and method.name.startswith(GAIN_ENERGY):
        return growing()
    high = method.traits[kind].order_of("q") > 8
    return {"free": hx.models.henon_heiles, "constrained": very_smooth if high else constrained, "stiff": stiff}[kind]()


def instances():
    for name, entry in hx.methods.registry().items():
        for k, make in enumerate((entry.make, *entry.variants)):
            # every default is measured by `make test`, and SHAKE's second form; other settings by `make test-all`
            marks = [pytest.mark.slow] if k and name != "SHAKE" else []
            for kind in make().traits:
                case = f"{name}{f'-{k}' if k else ''}-{kind}"
                long = name in LONG and kind == "constrained"
                yield pytest.param(make, kind, long, id=case, marks=marks)
                if long:
                    yield pytest.param(make, kind, False, id=f"{case}-double", marks=pytest.mark.slow)


CASES = list(instances())


def test_the_registry_is_complete_and_cited():
    for name, entry in hx.methods.registry().items():
        assert entry.reference and entry.family and entry.summary, name
        assert set(entry.traits) <= set(KINDS) and entry.traits, name
    declared = {"RATTLE", "SHAKE", "StormerVerlet", "Leapfrog", "ImplicitMidpoint", "RK4", "Composition", "Splitting"}
    assert declared <= set(hx.methods.registry())


@pytest.mark.parametrize(("make", "kind", "quick"), CASES)
def test_declared_traits_are_borne_out(make, kind, quick):
    method = make()
    problem = problem_for(method, kind, quick)
    assert problem.system.kind == kind
    own = method.name.startswith(OWN_LIMIT)
    certificate = hx.certify(problem, method, steps=STEPS, reference=method if own else None)
    contradicted = {f.name: (f.declared, f.measured) for f in certificate.findings if f.kept is False}
    assert not contradicted, f"\n{certificate}"
    traits = method.traits_on(problem.system)
    if method.stochastic:
        assert traits.constraint_exact == ("constraint" in certificate and certificate["constraint"].kept is True)
        return
    for variable in () if method.tolerance_driven else ("q", "p"):
        assert certificate[f"order of {variable}"].kept is True, f"\n{certificate}"
    # what is declared absent must be seen to be absent, where the order leaves it above round-off; the first step of a
    # method with memory is its starter's
    if traits.order_of("q") <= 4:
        for trait in ("symplectic", "symmetric", "constraint", "hidden constraint"):
            if trait not in certificate or (trait == "symplectic" and not method.one_step):
                continue
            if certificate[trait].declared is False and (method.name, trait) not in KEPT_BY_LUCK:
                assert certificate[trait].measured > certificate[trait].bound, f"{trait}: declared worse\n{certificate}"


@pytest.mark.parametrize(("make", "kind", "quick"), CASES)
def test_a_system_of_another_kind_is_refused(make, kind, quick):
    method = make()
    problems = {"free": hx.models.henon_heiles(), "constrained": hx.models.planar_pendulum(), "stiff": stiff()}
    for other in set(KINDS) - set(method.traits):
        if other == "stiff" and "free" in method.traits:
            continue  # a stiff system is also an unconstrained one
        with pytest.raises(hx.MethodError, match=method.name.split("(")[0]):
            method.check(problems[other].system)


# ---- wrappers: measured with every method that they accept


class WithoutNoise(AbstractMethod):
    """A thermostat of friction zero as what it then is, a deterministic method with an order."""

    reference = "nobody"
    family = "control"

    method: hx.GLA

    @property
    def traits(self):
        return self.method.traits

    @property
    def name(self):
        return self.method.name

    def init(self, system, state, dt):
        return self.method.init(system, state, dt)

    def step(self, system, state, dt, carry, key=None):
        return self.method.step(system, state, dt, carry, jax.random.key(0))

    def read(self, system, state, carry):
        return self.method.read(system, state, carry)


WRAPPERS = {
    "GLA": lambda method: WithoutNoise(hx.GLA(method, friction=0.0)),
    "Composition": lambda method: hx.Composition(method, order=4),
}
# A choice for every run of the suite; all others are measured by `make test-all`.
QUICK_WRAPPED = ("GLA-HBVM-constrained", "GLA-RK4-free", "Composition-StormerVerlet-free")


def wrapped():
    """Each wrapper with the default of every method; with their variants in the table of combinations."""
    for wrapper, wrap in WRAPPERS.items():
        for name, entry in hx.methods.registry().items():
            if name in ("Composition", "GLA"):
                continue
            try:
                kinds = wrap(entry.make()).traits
            except hx.MethodError:
                continue
            for kind in kinds:
                case = f"{wrapper}-{name}-{kind}"
                marks = [] if case in QUICK_WRAPPED else pytest.mark.slow
                yield pytest.param(lambda wrap=wrap, make=entry.make: wrap(make()), kind, id=case, marks=marks)


@pytest.mark.parametrize(("make", "kind"), list(wrapped()))
def test_what_wrappers_declare_is_borne_out(make, kind):
    method = make()
    problem = problem_for(method.method.method if isinstance(method, WithoutNoise) else method.method, kind, True)
    own = any(name in method.name for name in OWN_LIMIT)
    found = hx.certify(problem, method, steps=STEPS, measure=("order", "constraint"), reference=method if own else None)
    assert found.passed, f"\n{found}"
    assert found["order of q"].kept and found["order of p"].kept, f"\n{found}"


def followed():
    for name, entry in hx.methods.registry().items():
        try:
            kinds = hx.ConstrainedHMC(method=entry.make()).traits
        except hx.MethodError:
            continue
        for kind in kinds:
            case = f"{name}-{kind}"
            marks = [] if case == "RATTLE-constrained" else pytest.mark.slow
            yield pytest.param(entry.make, kind, id=case, marks=marks)


@pytest.mark.parametrize(("make", "kind"), list(followed()))
def test_hmc_accepts_nearly_all_short_steps_of_every_method_that_it_follows(make, kind):
    """Reversible, on the manifold, and with an energy error that falls with dt: nothing else is asked of a proposal."""
    problem = small() if kind == "constrained" else deep()
    method = hx.ConstrainedHMC(inner_steps=5, temperature=1.0, method=make())
    sol = hx.simulate(problem.system, method, problem.q0, problem.p0, dt=0.02, steps=100, key=jax.random.key(1))
    assert sol.stats["acceptance"] > 0.9 and sol.stats["irreversible"] == 0 and sol.stats["unsolved"] == 0
    if kind == "constrained":
        assert sol.constraint_error().max() < 1e-13 and sol.hidden_constraint_error().max() < 1e-12
