"""Run files and calls that nobody would write: each is carried out or refused with an error of ours."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from holonomix.core.errors import HolonomixError
from holonomix.study.cli.exits import CommandError
from holonomix.study.cli.request import spec_from

from .stores import Broken

GOOD = """model = "double-pendulum"
method = "rattle"
dt = 0.01
steps = 100
save_every = 10
observe = ["energy", "constraint_error"]
seed = 3
[arguments]
gravity = 9.81
[start]
project = true
"""
PIECES = ["[", "]", "=", '"', "'", "\n", "#", "{", "}", ",", ".", "-", "1e999", "nan", "inf", "0x", "\x00", "\u202e"]
PIECES += ["9" * 400, "[[" * 50, "a.b.c.d" * 9, '"""', "system = 'evil.py'", "sweep", "true", "1979-05-27", "\ud7ff"]


def mutated(dice: random.Random) -> str:
    """A run file with some of its characters replaced, removed, doubled or moved."""
    text = GOOD
    for _ in range(dice.randrange(1, 6)):
        at, length = dice.randrange(len(text) + 1), dice.randrange(12)
        part = text[at : at + length]
        how = dice.randrange(4)
        new = {0: dice.choice(PIECES), 1: "", 2: part + part, 3: part[::-1]}[how]
        text = text[:at] + new + text[at + length :]
    return text


def attack(folder: Path, dice: random.Random) -> None:
    """Write a mutated run file, and read it the way the command line does."""
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    file = folder / "run.toml"
    text = mutated(dice)
    file.write_text(text)
    try:
        spec: Any = spec_from(str(file), {}, [], None)
        spec.to_toml()
    except (CommandError, HolonomixError):
        pass
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}\n{text}") from error
    if (folder / "ran").exists():
        raise Broken(f"it ran Python\n{text}")
