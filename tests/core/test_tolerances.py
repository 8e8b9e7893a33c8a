"""Every comparison of arrays states its tolerances: those of NumPy are large, and hide the one that is given."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# `assert_allclose(a, b, atol=1e-14)` accepts a relative error of 1e-7 as well; `allclose` one of 1e-5, or 1e-8
STATED = {"assert_allclose": {"rtol"}, "allclose": {"rtol", "atol"}, "isclose": {"rtol", "atol"}}


def unstated(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)) if "close(" in source else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STATED:
            given = {k.arg for k in node.keywords} | set(("a", "b", "rtol", "atol")[: len(node.args)])
            if ast.unparse(node.func.value) != "math" and not STATED[node.func.attr] <= given:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_tolerances_are_stated():
    wrong = {str(path): unstated(path.read_text()) for path in TESTS.rglob("*.py")}
    assert not any(wrong.values()), {path: lines for path, lines in wrong.items() if lines}


@pytest.mark.parametrize(
    "call",
    ["np.allclose(a, b, atol=1e-15)", "np.testing.assert_allclose(a, b, atol=1e-14)", "jnp.isclose(a, b, 1e-10)"],
)
def test_an_unstated_tolerance_is_found(call):
    assert unstated(call) == [f"1: {call}"] and not unstated("np.allclose(a, b, 0, 1e-9)")
