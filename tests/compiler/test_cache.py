"""Machine code on disk: loaded only where this user alone can have put it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holonomix
from holonomix.compiler import cache
from holonomix.core.private import _secret, cache_root, private_directory, trim
from holonomix.study.cli import environment

KEY, CODE = "k" * 64, b"machine code"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOLONOMIX_CACHE", str(tmp_path / "cache"))
    _secret.cache_clear()
    return tmp_path / "cache" / "kernels"


def test_what_was_saved_is_loaded(place):
    assert cache.load(KEY) is None
    cache.save(KEY, CODE)
    assert cache.load(KEY) == CODE
    assert place.stat().st_mode & 0o777 == 0o700 and (place / f"{KEY}.o").stat().st_mode & 0o777 == 0o600


def test_every_directory_that_is_made_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLONOMIX_CACHE", str(tmp_path / "new" / "cache"))
    before = os.umask(0o022)
    try:
        cache.save(KEY, CODE)
    finally:
        os.umask(before)
    for path in (tmp_path / "new", tmp_path / "new" / "cache", tmp_path / "new" / "cache" / "kernels"):
        assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("word", ["off", "OFF", "", "0", "none", "no", "false", " off "])
def test_off_is_off(tmp_path, monkeypatch, word):
    monkeypatch.setenv("HOLONOMIX_CACHE", word)
    assert cache_root() is None and environment.cache_directory() is None
    cache.save(KEY, CODE)
    assert cache.load(KEY) is None and list(tmp_path.iterdir()) == []


def test_off_in_a_process(tmp_path):
    code = (
        "from holonomix.study.cli.environment import set_up_jax; set_up_jax(); import os\n"
        "assert 'JAX_COMPILATION_CACHE_DIR' not in os.environ\n"
        "from holonomix.compiler import native; native.kept('x', lambda: b'code')\n"
    )
    source = str(Path(holonomix.__file__).parents[1])
    env = os.environ | {"HOLONOMIX_CACHE": "off", "HOME": str(tmp_path), "PYTHONPATH": source}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_relative_path_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLONOMIX_CACHE", "offf")
    cache.save(KEY, CODE)
    assert list(tmp_path.iterdir()) == []


def test_code_that_this_user_did_not_write(place):
    cache.save(KEY, CODE)
    evil = b"other code"
    for stored in (hashlib.sha256(evil).digest() + evil, b"\0" * 32 + evil, evil, b""):
        (place / f"{KEY}.o").write_bytes(stored)
        assert cache.load(KEY) is None
    cache.save(KEY, CODE)
    os.rename(place / f"{KEY}.o", place / "other.o")  # right code under a wrong key
    assert cache.load("other") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o1777])
def test_a_directory_that_others_can_write_to(place, mode):
    cache.save(KEY, CODE)
    place.chmod(mode)
    assert cache.load(KEY) is None
    cache.save("fresh", CODE)
    assert not (place / "fresh.o").exists()
    assert environment.cache_directory() is not None  # the one of JAX beside it is still private
    os.chmod(environment.cache_directory() or "", mode)
    assert environment.cache_directory() is None


def test_a_directory_of_somebody_else(place, monkeypatch):
    cache.save(KEY, CODE)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert cache.load(KEY) is None
    with pytest.raises(PermissionError), private_directory(place):
        pass


def test_links_are_not_followed(place, tmp_path):
    cache.save(KEY, CODE)
    os.rename(place / f"{KEY}.o", tmp_path / "code")
    os.symlink(tmp_path / "code", place / f"{KEY}.o")
    assert cache.load(KEY) is None
    os.rename(place, tmp_path / "moved")
    os.symlink(tmp_path / "moved", place)
    cache.save("fresh", CODE)
    assert not (tmp_path / "moved" / "fresh.o").exists()


def test_without_a_secret_nothing_is_kept(place, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    _secret.cache_clear()
    cache.save(KEY, CODE)
    assert not place.exists() and cache.load(KEY) is None


def test_size_and_age_are_bounded(place):
    cache.save(KEY, CODE)
    for age in range(6):
        (place / f"{age}.o").write_bytes(b"x" * 100)
        os.utime(place / f"{age}.o", (0, (place / f"{KEY}.o").stat().st_mtime - 1000 * (age + 1)))
    with private_directory(place) as directory:
        trim(directory, most_bytes=10**6, most_seconds=4500.0)
        assert sorted(p.stem for p in place.iterdir()) == ["0", "1", "2", "3", KEY]
        trim(directory, most_bytes=250, most_seconds=1e9)
    assert (place / f"{KEY}.o").exists() and not (place / "3.o").exists()
    cache.save("large", b"x" * (cache.MAX_ENTRY_BYTES + 1))
    assert not (place / "large.o").exists()
