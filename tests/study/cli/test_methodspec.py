"""Methods as they are typed: both forms mean the same object, and nothing is ever evaluated."""

from __future__ import annotations

import equinox as eqx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holonomix as hx
from holonomix.study.cli.exits import CommandError
from holonomix.study.cli.methodspec import parse_method
from holonomix.study.cli.suggest import kebab


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("rattle", hx.RATTLE()),
        ("RATTLE", hx.RATTLE()),
        ("RATTLE()", hx.RATTLE()),
        ("rk4", hx.RK4()),
        ("composition-8", hx.Composition(hx.RATTLE(), order=8)),
        ("composition-stormer-verlet-4", hx.Composition(hx.StormerVerlet(), order=4)),
        ("Composition(RATTLE(), order=8)", hx.Composition(hx.RATTLE(), order=8)),
        ("Composition(hx.RATTLE(solver=SymmetricNewton(tol=1e-12)), 4)",
         hx.Composition(hx.RATTLE(solver=hx.SymmetricNewton(tol=1e-12)), 4)),
        ("hbvm-2-2", hx.HBVM(2, 2)),
        ("HBVM(k=6, s=2)", hx.HBVM(k=6, s=2)),
        ("zhang-skeel", hx.ZhangSkeel()),
        ("zhang-skeel-0.4", hx.ZhangSkeel(beta=0.4)),
        ("stormer_verlet", hx.StormerVerlet()),
        ("gla-rattle", hx.GLA(hx.RATTLE())),
        ("gla-rattle-0.5-2", hx.GLA(hx.RATTLE(), friction=0.5, temperature=2.0)),
        ("VRATTLE(monitor=MultiplierMonitor())", hx.VRATTLE(monitor=hx.MultiplierMonitor())),
        ("hx.VRATTLE(hx.monitors.ForceMonitor(2.0))", hx.VRATTLE(hx.monitors.ForceMonitor(2.0))),
        ("Splitting(c=[0.5, 0.5], d=(1.0, -0.0))", hx.Splitting((0.5, 0.5), (1.0, 0.0))),
    ],
)  # fmt: skip
def test_what_a_text_means(text, method):
    assert eqx.tree_equal(parse_method(text), method)


@pytest.mark.parametrize("name", list(hx.methods.registry()))
def test_every_method_has_a_short_name(name):
    assert type(parse_method(kebab(name))) is type(hx.methods.registry()[name].default)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ratle", "did you mean 'rattle'"),
        ("rattle-x", "is not a number"),
        ("hbvm-2-2-3", "3 numbers, but takes 2"),
        ("composition-7", "even order"),
        ("gla-composition-4", "the number 4 is ambiguous"),
        ("RATTLE(solvr=Newton())", "solvr"),
        ("RATTLE(solver=Newtn())", "did you mean 'Newton'"),
        ("Newton()", "not a method"),
        ("__import__('os').system('true')", "is not a name of this package"),
        ("RATTLE(solver=open('/etc/passwd'))", "unknown name 'open'"),
        ("RATTLE().__class__()", "is not a name of this package"),
        ("(lambda: 1)()", "is not a name of this package"),
        ("HBVM(k=[x for x in (1, 2)])", "is not allowed"),
        ("HBVM(**{'k': 3})", "is not allowed"),
        ("RATTLE(", "is not a call"),
        ("HBVM(k='two')", "HBVM"),
        ("", "write a name"),
        ("x" * 1000, "too many"),
        ("RATTLE(" * 100 + ")" * 100, "too many|not"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(CommandError, match=words):
        parse_method(text)


@settings(max_examples=300)
@given(
    st.text(max_size=40) | st.from_regex(r"(rattle|hbvm|gla|HBVM|Composition)[-(][a-z0-9=,.()-]{0,20}", fullmatch=True)
)
def test_any_text_is_a_method_or_an_error_of_ours(text):
    try:
        method = parse_method(text)
    except CommandError as error:
        assert str(error)
    else:
        assert hasattr(method, "step")
