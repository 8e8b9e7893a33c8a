"""Run files: what is accepted means what it says, and every mistake is named."""

from __future__ import annotations

import dataclasses
import math
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holonomix.study.cli.exits import CommandError
from holonomix.study.cli.literals import dumps, literal
from holonomix.study.cli.request import spec_from
from holonomix.study.cli.runfile import KEYS, RunSpec, validate

GOOD = """
model = "double-pendulum"
method = "composition-8"
dt = 0.01
steps = 1e3
save-every = 10
observe = ["energy", "angular-momentum"]

[arguments]
gravity = 9.81
lengths = [1.0, 2.0]

[start]
project = true
"""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_run_file(tmp_path):
    spec = spec_from(write(tmp_path / "run.toml", GOOD), {}, [], None)
    assert spec.model == "double-pendulum" and spec.steps == 1000 and isinstance(spec.steps, int)
    assert spec.save_every == 10 and spec.observe == ("energy", "angular_momentum")
    assert spec.arguments == {"gravity": 9.81, "lengths": [1.0, 2.0]} and spec.start == {"project": True}


def test_flags_beat_sets_beat_the_file(tmp_path):
    file = write(tmp_path / "run.toml", GOOD)
    spec = spec_from(file, {"dt": "0.5", "t1": "10"}, ["dt=0.25", "gravity=2", "seed=7", "start.project=false"], None)
    assert spec.dt == 0.5 and spec.t1 == 10.0 and spec.steps is None and spec.seed == 7
    assert spec.arguments["gravity"] == 2 and spec.start == {"project": False}


def test_the_saved_file_says_the_same(tmp_path):
    spec = spec_from(write(tmp_path / "run.toml", GOOD), {}, ["dt=0.1", "t0=-0.30000000000000004"], None)
    again = spec_from(write(tmp_path / "again.toml", spec.to_toml()), {}, [], None)
    assert again == dataclasses.replace(spec, out=None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("metod = 'rattle'", "unknown key 'metod'; did you mean 'method'? the keys are"),
        ("dt = 'fast'", "dt = 'fast': must be a number"),
        ("dt = 0", "not zero"),
        ("dt = nan", "finite"),
        ("dt = '3 parsec'", "units: fs, ps, ns"),
        ("dt = true", "a number"),
        ("steps = -1", "a whole number of at least 0"),
        ("steps = 1.5", "a whole number"),
        ("steps = inf", "a whole number"),
        ("save_every = 0", "at least 1"),
        ("backend = 'nativ'", "one of 'auto', 'array', 'native', 'cuda'; did you mean 'native'"),
        ("observe = ['enrgy']", "did you mean 'energy'"),
        ("observe = 3", "a list of names from energy"),
        ("method = 3", "a text"),
        ("arguments = 3", "a table"),
        ("start = {q = [[1, 2], 'x']}", "something other than finite numbers"),
        ("start = {r = 1}", "a table with q and p"),
        ("system = 'mine.py'", "model and system"),
        ("steps = 3\nt1 = 2.0", "steps and t1"),
        ("system_sha256 = 'abc'", "64 hexadecimal digits"),
    ],
)
def test_every_mistake_is_named(tmp_path, line, words):
    file = write(tmp_path / "run.toml", f"model = 'chain'\n{line}\n")
    with pytest.raises(CommandError) as error:
        spec_from(file, {}, [], None)
    for part in words.split("? "):
        assert part in str(error.value)
    assert str(file) in str(error.value)


def test_all_mistakes_at_once():
    with pytest.raises(CommandError, match="3 entries are wrong"):
        validate({"model": 3, "dt": "x", "stepz": 1}, "run.toml")


@pytest.mark.parametrize("text", ["model = ", "= 3", "[", "model = 'a'\nmodel = 'b'", "\x00", "[[[[" * 300])
def test_not_toml(tmp_path, text):
    with pytest.raises(CommandError, match="not TOML"):
        spec_from(write(tmp_path / "run.toml", text), {}, [], None)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(CommandError, match="does not exist"):
        spec_from(str(tmp_path / "missing.toml"), {}, [], None)
    (tmp_path / "latin.toml").write_bytes(b"model = '\xff\xfe'")
    with pytest.raises(CommandError, match="cannot be read as text"):
        spec_from(str(tmp_path / "latin.toml"), {}, [], None)
    with pytest.raises(CommandError, match="cannot be read"):
        (tmp_path / "folder.toml").mkdir()
        spec_from(str(tmp_path / "folder.toml"), {}, [], None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gravity", "key=value"),
        ("=3", "key=value"),
        ("gravity=[1,", "TOML value"),
        ("dt.x=3", "not a table"),
        ("gravty=3", "did you mean 'gravity'"),
    ],
)
def test_bad_sets(tmp_path, text, words):
    with pytest.raises(CommandError, match=words):
        spec_from(write(tmp_path / "run.toml", GOOD), {}, [text], None)


def test_literals():
    assert literal("9.81") == 9.81 and literal(" [1, 2] ") == [1, 2] and literal("true") is True
    assert literal('"text"') == "text" and literal("torus") == "torus" and literal("1_000") == 1000
    for bad in ("", "1 2", "[", "a b", "1\ny = 2"):
        with pytest.raises(CommandError):
            literal(bad)


values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from([*KEYS, *(k.replace("_", "-") for k in KEYS)]) | st.text(
    st.characters(codec="utf-8"), min_size=1, max_size=8
)


@settings(max_examples=500)
@given(st.dictionaries(keys, values, max_size=6))
def test_any_table_round_trips_or_is_refused_by_name(table):
    assert _same(tomllib.loads(dumps(table)), table)
    try:
        spec = validate(table, "run.toml")
    except CommandError as error:
        assert "run.toml: " in str(error)
    else:
        assert _same(
            dataclasses.asdict(validate(tomllib.loads(spec.to_toml()), "x")),
            dataclasses.asdict(dataclasses.replace(spec, out=None)),
        )


def _same(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return a == b and type(a) is type(b)


@settings(max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.binary(max_size=60)
    | st.text(max_size=80).map(lambda s: s.encode("utf-8", "surrogatepass"))
    | st.tuples(st.integers(0, len(GOOD)), st.integers(0, 20), st.binary(max_size=8)).map(
        lambda cut: GOOD.encode()[: cut[0]] + cut[2] + GOOD.encode()[cut[0] + cut[1] :]
    ),
)
def test_malformed_run_files(tmp_path, data):
    """A thousand broken files: a run that can be written down again, or an error of ours that names the file."""
    file = tmp_path / "run.toml"
    file.write_bytes(data)
    try:
        spec = spec_from(str(file), {}, [], None)
    except CommandError as error:
        assert str(file) in str(error)
    else:
        assert isinstance(spec, RunSpec)
        assert validate(tomllib.loads(spec.to_toml()), "again").subject == spec.subject
    assert file.read_bytes() == data
