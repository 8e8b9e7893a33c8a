"""Every method on everything it declares to treat, and refused on everything it does not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import holonomix as hx
from holonomix.mechanics import Capability
from holonomix.mechanics.projection import AbstractSolver
from holonomix.methods.base import _OTHERS

from ..combinations.methods import accepting_redundant
from .capability_problems import CONSTRAINED_ONLY, T1, end_errors, measured_order, problem

# A quick choice for every run of the suite; all others are measured by `make test-all`.
QUICK = ("Gauss-free-MASS", "HBVM-constrained-MAGNETIC", "RATTLE-constrained-TIME", "Taylor-1-constrained-MAGNETIC")
# The order of these is that of a motion of their own (see test_traits.py).
OWN_LIMIT = ("MollifiedImpulse", "ProjectedImpulse")


def cases():
    for name, entry in hx.methods.registry().items():
        # Adams methods of other orders differ by their coefficients only, which test_traits.py measures
        variants = () if name in ("AdamsBashforth", "AdamsMoulton") else entry.variants
        for k, make in enumerate((entry.make, *variants)):
            for kind, traits in make().traits.items():
                for capability in Capability:
                    if capability in CONSTRAINED_ONLY and kind != "constrained":
                        continue
                    case = f"{name}{f'-{k}' if k else ''}-{kind}-{capability.name}"
                    yield case, make, kind, capability, capability in traits.treats


def declared():
    """A default with one thing at a time; a variant with all that it declares in one system.

    Variants with M(q), whose programs take long to compile, are in the table of combinations.
    """
    together = {}
    for case, make, kind, capability, treated in CASES:
        if not treated:
            continue
        name = case.removesuffix(f"-{capability.name}")
        if name.split("-")[1].isdigit() and case not in QUICK:
            if capability is Capability.MASS:
                continue
            together.setdefault(name, (make, kind, set()))[2].add(capability)
        else:
            yield case, make, kind, frozenset({capability})
    for name, (make, kind, capabilities) in together.items():
        yield f"{name}-all", make, kind, frozenset(capabilities)


CASES = list(cases())
DECLARED = [
    pytest.param(make, kind, c, id=case, marks=[] if case in QUICK else pytest.mark.slow)
    for case, make, kind, c in declared()
]
REFUSED = [pytest.param(make, kind, c, id=case) for case, make, kind, c, treated in CASES if not treated]


@pytest.mark.parametrize(("make", "kind", "capabilities"), DECLARED)
def test_declared_capabilities_are_measured(make, kind, capabilities):
    method = make()
    if Capability.REDUNDANT in capabilities:
        method = accepting_redundant(method)
    if method.stochastic:
        return check_sampler(method, kind, capabilities)
    if method.name.startswith(OWN_LIMIT):
        return None
    if isinstance(method, hx.TaylorAdaptive):
        return check_own_steps(method, kind, capabilities)
    traits = method.traits[kind]
    orders, errors, (system, q, p) = measured_order(method, kind, capabilities)
    for variable, order, error in zip("qp", orders, errors[-1], strict=True):
        declared = traits.order_of(variable)
        assert abs(order - declared) < 0.2 or error < 1e-13, (variable, order, declared, errors)
    if traits.constraint_exact and getattr(method, "degree", 3) >= 3:  # the surface is a cubic
        assert float(jnp.max(jnp.abs(system.constraint(q, T1)))) < 1e-14
    if traits.hidden_exact:
        assert float(jnp.max(jnp.abs(system.hidden_constraint(q, p, T1)))) < 1e-14


def check_own_steps(method, kind, capabilities):
    """A method that chooses its steps for all digits gives them at a wanted time."""
    system, q, p = problem(kind, capabilities)
    run = hx.simulate(system, method, q, p, dt=0.1, save_at=[T1])
    assert max(end_errors((run.q[-1], run.p[-1]), kind, capabilities)) < 1e-11
    if kind == "constrained":
        assert float(jnp.max(jnp.abs(system.constraint(run.q[-1], T1)))) < 1e-14


def check_sampler(method, kind, capabilities):
    """Noise leaves no order: ten steps go well and stay on the manifold."""
    from .capability_problems import walk

    system, q, p = problem(kind, capabilities)
    q, p, failed = walk(system, method, q, p, key=jax.random.key(0))(0.02, 10)
    assert not bool(failed) and bool(jnp.all(jnp.isfinite(q)))
    if kind == "constrained":
        assert float(jnp.max(jnp.abs(system.constraint(q, 0.2)))) < 1e-14
        assert float(jnp.max(jnp.abs(system.hidden_constraint(q, p, 0.2)))) < 1e-14


@pytest.mark.parametrize(("make", "kind", "capability"), REFUSED)
def test_what_is_not_declared_is_refused(make, kind, capability):
    method = make()
    if capability is Capability.REDUNDANT:
        is_solver = lambda x: isinstance(x, AbstractSolver)
        solvers = [x for x in jax.tree.leaves(method, is_leaf=is_solver) if is_solver(x)]
        assert not solvers or method.adaptive, "a method with a solver treats redundant rows, or says why not"
        return
    if kind == "stiff" and capability in (Capability.TIME, Capability.MAGNETIC):
        with pytest.raises(hx.InputError, match="time|vector"):
            problem(kind, frozenset({capability}))
        return
    system, _, _ = problem(kind, frozenset({capability}))
    with pytest.raises(hx.MethodError) as error:
        method.check(system)
    text = str(error.value)
    assert text.startswith(f"{method.title} needs {capability.condition}") and capability.meaning in text
    assert method.name in text
    assert _OTHERS[capability] in text


def test_the_methods_an_error_names_do_treat_it():
    registry = hx.methods.registry()
    for capability, text in _OTHERS.items():
        names = [name for name in registry if name in text.replace("(", " ").replace(",", " ").split()]
        assert len(names) >= 2, text
        for name in names:
            treats = [t.treats for kind, t in registry[name].traits.items() if kind in ("free", "constrained")]
            assert any(capability in t for t in treats), (name, capability)


def test_command_line_and_docs_show_them():
    from holonomix.study.cli.listing import method_rows

    rows = {row["class"]: row for row in method_rows()}
    assert rows["RATTLE"]["traits"]["constrained"]["treats"] == [c.value for c in Capability]
    assert rows["Newmark"]["traits"]["free"]["treats"] == []
