"""Symbolic links in a store: never followed, to read, to write or to delete."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from holonomix.run.io import Store, StoreError, StoreLinkError, directory, disk, verify
from holonomix.study.viewer import write_page

from .harness import drive, fresh


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory with files of the user, some of them called as ours are."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("letter.txt", "00000000.json", "00000007.npz", "c.9.0.0", "zarr.json", ".zarr.json.tmp", "view.html"):
        (folder / name).write_text("mine")
    return folder


def replaced_by_link(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    os.symlink(target, path)


def untouched(folder: Path) -> bool:
    return len(list(folder.iterdir())) == 7 and all(f.read_text() == "mine" for f in folder.iterdir())


@pytest.mark.parametrize("inside", ["holonomix/checkpoints", "holonomix", "q", "t"])
@pytest.mark.parametrize("from_start", [False, True])
def test_a_directory_of_the_store(run, elsewhere, inside, from_start):
    replaced_by_link(run / inside, elsewhere)
    try:
        drive(fresh(run, from_start=from_start))
    except StoreError:
        pass
    assert untouched(elsewhere)


@pytest.mark.parametrize("inside", ["zarr.json", "q/zarr.json", "q/c.0.0.0", "holonomix/status.json", "holonomix/lock"])
def test_a_file_of_the_store(run, elsewhere, inside):
    replaced_by_link(run / inside, elsewhere / "letter.txt")
    try:
        drive(fresh(run))
    except StoreError:
        pass
    assert untouched(elsewhere)


@pytest.mark.parametrize("hidden", [".zarr.json.tmp", "q/.c.0.0.0.tmp", "q/.c.1.0.0.tmp", "holonomix/.status.json.tmp"])
def test_a_file_that_is_about_to_be_written(run, elsewhere, hidden):
    for victim in (run / "q").glob("c.*"):
        victim.unlink()  # so that everything is written again
    os.symlink(elsewhere / "letter.txt", run / hidden)
    drive(fresh(run))
    assert untouched(elsewhere) and verify(run) == []


def test_the_page_of_a_run(run, elsewhere):
    for name in (".view.html.tmp", "view.html"):
        os.symlink(elsewhere / "letter.txt", run / name)
    write_page(run, run / "view.html")
    assert untouched(elsewhere) and "<html" in (run / "view.html").read_text()


def test_reading_says_that_it_is_a_link(run, tmp_path):
    shutil.copytree(run / "q", tmp_path / "copy")
    replaced_by_link(run / "q", tmp_path / "copy")
    with pytest.raises(StoreLinkError, match="q is a symbolic link"):
        Store(run, "read").load()
    assert "q/c.0.0.0" in verify(run)
    (run / "q").unlink()
    shutil.copytree(tmp_path / "copy", run / "q")
    replaced_by_link(run / "p" / "c.0.0.0", run / "q" / "c.0.0.0")
    with pytest.raises(StoreLinkError, match=r"p/c\.0\.0\.0 is a symbolic link"):
        Store(run, "read").dataset().p.load()


def test_a_pipe_in_place_of_a_file_does_not_block(run):
    (run / "holonomix" / "status.json").unlink()
    os.mkfifo(run / "holonomix" / "status.json")
    assert Store(run, "read").rows == 17  # from the checkpoint
    (run / "run.json").unlink(missing_ok=True)
    os.mkfifo(run / "run.json")
    with pytest.raises(StoreError, match="not a file"):
        Store(run, "read").file("run.json")


def test_the_store_itself_may_be_reached_through_a_link(run, tmp_path):
    os.symlink(run, tmp_path / "shortcut")
    assert np.array_equal(Store(tmp_path / "shortcut", "read").load()["q"], Store(run, "read").load()["q"])


def test_cleaning_up_leaves_names_that_are_not_ours(run):
    kept = [run / "q" / "notes.txt", run / "q" / "c.draft", run / "holonomix" / "checkpoints" / "notes.txt"]
    for file in kept:
        file.write_text("mine")
    (run / "q" / "c.7.0.0").write_bytes(b"left over")
    drive(fresh(run))
    assert all(file.read_text() == "mine" for file in kept) and not (run / "q" / "c.7.0.0").exists()


# ---- making a store


def test_out_may_be_a_link_to_an_empty_directory(tmp_path):
    (tmp_path / "disk" / "empty").mkdir(parents=True)
    os.symlink(tmp_path / "disk" / "empty", tmp_path / "run")
    drive(fresh(tmp_path / "run"))
    assert (tmp_path / "run").is_symlink() and Store(tmp_path / "disk" / "empty", "read").rows == 17


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o027])
def test_the_umask_holds_for_everything(tmp_path, mask):
    before = os.umask(mask)
    try:
        drive(fresh(tmp_path / "run"))
    finally:
        os.umask(before)
    for path in [tmp_path / "run", *(tmp_path / "run").rglob("*")]:
        assert path.stat().st_mode & mask == 0
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o777 & ~mask


def test_what_a_killed_process_left_while_creating_is_removed(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(source: Path, target: Path) -> None:
        raise Killed

    locks, take = [], directory.take_lock
    with monkeypatch.context() as patch:
        patch.setattr(disk, "do_move", killed)
        patch.setattr(directory, "take_lock", lambda root: locks.append(take(root)) or locks[-1])
        with pytest.raises(Killed):
            fresh(tmp_path / "run")
    (left,) = tmp_path.iterdir()
    Store(tmp_path / "run", "create").close()
    assert left.exists()  # its process may still be at work: the lock is held
    shutil.rmtree(tmp_path / "run")
    os.close(locks[0])  # what the system does for the dead
    assert left.name.startswith(".run.new-")
    other = tmp_path / ".run.new-mine"
    other.mkdir()
    drive(fresh(tmp_path / "run"))
    assert sorted(p.name for p in tmp_path.iterdir()) == [".run.new-mine", "run"]


def test_an_error_or_a_signal_while_creating_leaves_nothing(tmp_path, monkeypatch):
    for error in (KeyboardInterrupt(), OSError(28, "No space left on device")):

        def failing(*args: object, error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(disk, "do_move", failing)
            with pytest.raises((KeyboardInterrupt, StoreError)):
                fresh(tmp_path / "run")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a\\b", "a\nb", " a", "a ", "run.toml", ".hidden", "x" * 300, ""])
def test_names_that_could_not_be_read_back_are_refused(tmp_path, name):
    store = fresh(tmp_path / "run")
    store.begin({})
    with pytest.raises(StoreError, match="plain name"):
        store.append({"t": np.zeros(1), f"obs/{name}": np.zeros(1)})
