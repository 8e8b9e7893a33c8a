"""Methods that solve for several sets of multipliers together use the structure of the rows beyond 16 unknowns."""

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.linalg import UNROLL
from holonomix.mechanics.abstract import AbstractSystem

METHODS = {
    "RATTLE": hx.RATTLE(),
    "HBVM": hx.HBVM(6, 2),
    "Gauss": hx.Gauss(2),
    "LineIntegral": hx.LineIntegral(order=4),
    "Lobatto": hx.LobattoIIIAB(3),
    "Composition": hx.Composition(hx.RATTLE(), order=4),
}


@pytest.mark.parametrize("name, n", [("LineIntegral", 10), ("Lobatto", 9)])
def test_a_chain_between_the_dense_and_the_long_ones_runs_natively(name, n):
    assert hx.explain(hx.models.chain(n), METHODS[name]).backend == "native"


# All lengths of the dense form of two sets and of one, and some on each side; the other methods have one set.
LENGTHS = [
    (name, n) for name in ("LineIntegral", "Lobatto") for n in ((3, 5, 8), range(9, 13), range(13, 17), (17, 24, 40))
]
LENGTHS += [(name, (3, 9, 16, 17, 40)) for name in ("RATTLE", "HBVM", "Gauss", "Composition")]


@pytest.mark.slow
@pytest.mark.parametrize("name, lengths", LENGTHS, ids=[f"{name}-{n[0]}-{n[-1]}" for name, n in LENGTHS])
def test_chains_of_every_length_run_natively(name, lengths):
    found = {n: hx.explain(hx.models.chain(n), METHODS[name]) for n in lengths}
    assert {n: text.reason for n, text in found.items() if text.backend != "native"} == {}


def test_rows_are_structured_from_the_size_of_the_whole_solve():
    problem = hx.models.chain(UNROLL // 2 + 1)
    system, q = problem.system, problem.q0
    assert system.dense_rows(q) and not system.with_row_sets(2).dense_rows(q)
    assert "tridiagonal" in system.with_row_sets(2).structure(q)
    short = hx.models.chain(UNROLL // 2)
    assert short.system.with_row_sets(2).dense_rows(short.q0)


def test_plain_functions_are_searched_for_structure_as_well():
    def links(q):
        return (jnp.sum(jnp.diff(q, axis=0, prepend=0.0) ** 2, axis=1) - 1.0) / 2

    system, q = hx.System(lambda q: 9.81 * jnp.sum(q[:, 1]), links), jnp.ones((10, 2))
    assert system.dense_rows(q) and not system.with_row_sets(2).dense_rows(q)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LineIntegral", "Lobatto"])
def test_both_forms_find_the_same_steps(name, monkeypatch):
    """One factored block with corrections against LU factors of all blocks."""
    problem = hx.models.chain(10)
    run = lambda method: hx.simulate(problem, method, dt=0.02, steps=200, save_every=50, backend="array")
    structured = run(METHODS[name])
    monkeypatch.setattr(AbstractSystem, "with_row_sets", lambda self, count: self)
    # with another limit, so that the program that is compiled already does not serve
    other = {"LineIntegral": hx.LineIntegral(max_iterations=99), "Lobatto": hx.LobattoIIIAB(3, max_iterations=99)}
    dense = run(other[name])
    assert structured.q.tobytes() != dense.q.tobytes()  # they are two ways indeed
    np.testing.assert_allclose(structured.q, dense.q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(structured.p, dense.p, rtol=0, atol=1e-10)
