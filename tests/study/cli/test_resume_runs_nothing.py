"""What a store contains is never executed: not a file in it, not a file that it names."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from holonomix.core.private import _secret, keyed_hash
from holonomix.run.io import Store, StoreError
from holonomix.study.cli import execute
from holonomix.study.cli.exits import CommandError
from holonomix.study.cli.request import spec_from
from holonomix.study.cli.runfile import RunSpec
from holonomix.study.cli.trust import SEAL, is_own_seal, make_seal

EVIL = "open('ran', 'w').close()\nraise SystemExit\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    _secret.cache_clear()
    yield
    _secret.cache_clear()


def store_naming(file: Path, source: str = EVIL, seal: str | None = None) -> Path:
    """A store whose run file names a Python file, with its right hash."""
    digest = hashlib.sha256(source.encode()).hexdigest()
    toml = RunSpec(system=str(file.absolute()), system_sha256=digest, steps=1).to_toml()
    files = {"run.toml": toml, "system.py": source} | ({} if seal is None else {SEAL: seal})
    Store("run", "create", files=files).close()
    return Path("run")


def resumed(**options: Path) -> str:
    """Resume; what the error said. The file ran if it left its mark."""
    with pytest.raises((StoreError, CommandError)) as caught:
        execute.resume(Path("run"), quiet=True, **options)
    return str(caught.value)


@pytest.mark.parametrize("seal", [None, "", "0" * 64, "not hexadecimal"])
def test_a_file_inside_the_store(seal):
    store_naming(Path("run/system.py"), seal=seal)
    assert "nothing shows that you started it" in resumed()
    assert not Path("ran").exists()


def test_a_file_elsewhere_that_the_store_names():
    Path("elsewhere.py").write_text(EVIL)
    store_naming(Path("elsewhere.py"))
    assert "--system FILE.py" in resumed()
    assert not Path("ran").exists()


def test_a_file_inside_the_store_even_if_it_is_named_or_sealed():
    store_naming(Path("run/system.py"))
    assert "never run" in resumed(system=Path("run/system.py"))
    os.symlink("run/system.py", "link.py")
    assert "never run" in resumed(system=Path("link.py"))
    Path("run", SEAL).write_text(make_seal(Path("run/run.toml").read_text()))
    assert "never run" in resumed()
    assert not Path("ran").exists()


def test_a_file_with_another_hash():
    store_naming(Path("mine.py"))
    Path("mine.py").write_text(EVIL + "# changed")
    assert "SHA-256 differs" in resumed(system=Path("mine.py"))
    assert not Path("ran").exists()


def test_the_control_the_named_file_is_run():
    Path("mine.py").write_text(EVIL)
    store_naming(Path("mine.py"))
    resumed(system=Path("mine.py"))
    assert Path("ran").exists()


def test_the_seal_covers_every_byte_and_belongs_to_the_user(monkeypatch, tmp_path):
    text = "system = '/mine.py'\n"
    seal = make_seal(text)
    assert len(seal) == 64 and is_own_seal(text.encode(), seal.encode())
    assert not is_own_seal(text.replace("mine", "your").encode(), seal.encode())
    assert not is_own_seal(text.encode(), hashlib.sha256(text.encode()).hexdigest().encode())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert not is_own_seal(text.encode(), seal.encode())


def test_the_secret_is_readable_by_the_user_alone(tmp_path):
    assert keyed_hash("a", b"bc") != keyed_hash("ab", b"c") != keyed_hash("ab", b"", b"c")
    file = tmp_path / "state" / "holonomix" / "secret.key"
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    file.chmod(0o644)
    _secret.cache_clear()
    assert keyed_hash("a") is None and make_seal("x") == "" and not is_own_seal(b"x", b"")


def test_running_the_run_file_of_a_store_is_no_way_around():
    store_naming(Path("run/system.py"))
    with pytest.raises(StoreError, match="nothing shows that you started it"):
        spec_from("run/run.toml", {}, [], None)
    Path("elsewhere.py").write_text(EVIL)
    shutil.rmtree("run")
    store_naming(Path("elsewhere.py"))
    with pytest.raises(StoreError, match="nothing shows that you started it"):
        spec_from("run/run.toml", {}, [], None)
    Path("run", SEAL).write_text(make_seal(Path("run/run.toml").read_text()))
    assert spec_from("run/run.toml", {}, [], None).system == str(Path("elsewhere.py").absolute())
