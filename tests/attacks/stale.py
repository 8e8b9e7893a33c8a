"""Functions that read a number in some roundabout way: after it has changed, they must compute something else."""

from __future__ import annotations

import builtins
import collections
import contextvars
import enum
import functools
import importlib
import itertools
import json
import operator
import os
import pathlib
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

VALUE = 1.0
TABLE = {"k": 1.0}
LISTED = [1.0]
ARRAY = np.ones(1)
_MEMORY = np.ones(16)
ALIGNED = _MEMORY[(-_MEMORY.ctypes.data // 8) % 8 :][:8]
SHARED = jax.device_put(ALIGNED)  # JAX shares memory that is aligned to 64 bytes
CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("strength", default=1.0)
MODULE = types.ModuleType("hx_attack_module")
sys.modules["hx_attack_module"] = MODULE
Pair = collections.namedtuple("Pair", "k other")
PAIR = Pair([1.0], 0)


class Holder:
    k = 1.0

    @property
    def doubled(self) -> float:
        return 2 * type(self).k

    def __getattr__(self, name: str) -> Any:
        return type(self).k

    def __float__(self) -> float:
        return type(self).k

    def __mul__(self, other: Any) -> Any:
        return type(self).k * other


class Level(enum.Enum):
    ONE = 1

    @property
    def strength(self) -> float:
        return Holder.k


HOLDER = Holder()


class Tree(eqx.Module):
    size: float = eqx.field(static=True, default=1.0)

    def __call__(self, q: Any) -> Any:
        return Holder.k * jnp.sum(q**2)


def helper(q: Any) -> Any:
    return VALUE * jnp.sum(q**2)


def kept(q: Any, k: list[float] = LISTED) -> Any:
    return k[0] * jnp.sum(q**2)


def with_attribute(q: Any) -> Any:
    return with_attribute.k * jnp.sum(q**2)  # type: ignore[attr-defined]


with_attribute.k = 1.0  # type: ignore[attr-defined]


@functools.lru_cache
def file_text(path: str) -> float:
    return float(pathlib.Path(path).read_text())


def power(q: Any) -> Any:
    return jnp.sum(q**2)


def channels(folder: pathlib.Path) -> dict[str, Callable[[Any], Any]]:
    """Functions `strength * |q|^2`, by the way in which they read the strength."""
    text, binary, lines = str(folder / "k.txt"), str(folder / "k.npy"), str(folder / "k.json")

    def by_import(q: Any) -> Any:
        import hx_attack_module  # type: ignore[import-not-found]

        return hx_attack_module.k * jnp.sum(q**2)

    def by_from(q: Any) -> Any:
        from hx_attack_module import k  # type: ignore[import-not-found]

        return k * jnp.sum(q**2)

    def by_locals(q: Any) -> Any:
        found = [*map(globals().get, ["VALUE"])]
        return found[0] * power(q)

    def by_class(q: Any) -> Any:
        class Inner:
            k = Holder.k

        return Inner.k * power(q)

    def by_with(q: Any) -> Any:
        with open(text) as file:
            return float(file.read()) * power(q)

    def by_comprehension(q: Any) -> Any:
        return sum(x * power(q) for x in LISTED)

    def by_pattern(q: Any) -> Any:
        function = type(lambda: 0)
        match power:
            case function(__globals__=names):  # type: ignore[misc]
                return names["VALUE"] * power(q)

    def forged(q: Any) -> Any:
        return VALUE * power(q)

    forged.__module__ = "holonomix.mechanics.potentials"

    def copied(q: Any) -> Any:
        return VALUE * power(q)

    functools.update_wrapper(copied, hx.mechanics.fixman)
    names: dict[str, Any] = {"__builtins__": {"abs": lambda x: VALUE}, "power": power}
    exec("def by_own_builtins(q): return abs(-1.0) * power(q)", names)
    by_own_builtins = names["by_own_builtins"]
    inner = lambda q: helper(q)
    return {
        "environment": lambda q: float(os.environ["HX_ATTACK"]) * power(q),
        "getenv": lambda q: float(os.getenv("HX_ATTACK", "0")) * power(q),
        "open": lambda q: float(open(text).read()) * power(q),
        "with": by_with,
        "pathlib": lambda q: float(pathlib.Path(text).read_text()) * power(q),
        "json": lambda q: json.loads(pathlib.Path(lines).read_text())["k"] * power(q),
        "numpy load": lambda q: np.load(binary)[0] * power(q),
        "numpy fromfile": lambda q: np.fromfile(binary)[-1] * power(q),
        "jax load": lambda q: jnp.load(binary)[0] * power(q),
        "modules": lambda q: sys.modules["hx_attack_module"].k * power(q),
        "import_module": lambda q: importlib.import_module("hx_attack_module").k * power(q),
        "__import__": lambda q: __import__("hx_attack_module").k * power(q),
        "import": by_import,
        "from": by_from,
        "module": lambda q: MODULE.k * power(q),
        "globals": lambda q: globals()["VALUE"] * power(q),
        "locals": by_locals,
        "eval": lambda q: eval("VALUE") * power(q),
        "exec": lambda q: (space := {}, exec("x = VALUE", globals(), space))[0]["x"] * power(q),
        "vars": lambda q: vars(MODULE)["k"] * power(q),
        "getattr": lambda q: getattr(Holder, "k") * power(q),  # noqa: B009
        "attrgetter": lambda q: operator.attrgetter("k")(Holder) * power(q),
        "attrgetter of a pure function": lambda q: operator.attrgetter("__globals__")(power)["VALUE"] * power(q),
        "attrgetter of a builtin": lambda q: operator.attrgetter("__self__.eval")(len)("LISTED")[0] * power(q),
        "attrgetter of a global list": lambda q: operator.attrgetter("__globals__")(power)["LISTED"][0] * power(q),
        "methodcaller": lambda q: float(operator.methodcaller("format", power)("{0.__globals__[VALUE]}")) * power(q),
        "itemgetter": lambda q: operator.itemgetter(0)(LISTED) * power(q),
        "itemgetter of globals": lambda q: operator.itemgetter("VALUE")(globals()) * power(q),
        "operator": lambda q: operator.mul(operator.getitem(LISTED, 0), power(q)),
        "pattern": by_pattern,
        "own builtins": by_own_builtins,
        "forged module": forged,
        "copied wrapper": copied,
        "shared memory": lambda q: SHARED[0] * power(q),
        "dunder": lambda q: helper.__globals__["VALUE"] * power(q),
        "frame": lambda q: sys._getframe().f_globals["VALUE"] * power(q),
        "format": lambda q: float("{0.k}".format(Holder)) * power(q),  # noqa: UP030, UP032
        "class": lambda q: Holder.k * power(q),
        "class body": by_class,
        "property": lambda q: HOLDER.doubled / 2 * power(q),
        "__getattr__": lambda q: HOLDER.anything * power(q),
        "__float__": lambda q: float(HOLDER) * power(q),  # type: ignore[arg-type]
        "__mul__": lambda q: HOLDER * power(q),
        "enum": lambda q: Level.ONE.strength * power(q),
        "list": lambda q: LISTED[0] * power(q),
        "dict": lambda q: TABLE["k"] * power(q),
        "array": lambda q: ARRAY[0] * power(q),
        "view": lambda q: ARRAY[:][0] * power(q),
        "tuple": lambda q: PAIR.k[0] * power(q),
        "context": lambda q: CONTEXT.get() * power(q),
        "global": lambda q: VALUE * power(q),
        "global of a helper": helper,
        "helper of a helper": inner,
        "default": kept,
        "attribute": with_attribute,
        "partial": functools.partial(lambda k, q: k[0] * power(q), LISTED),
        "method": functools.partial(operator.call, helper) if hasattr(operator, "call") else helper,
        "tree": Tree(),
        "comprehension": by_comprehension,
        "map": lambda q: list(map(Holder.__dict__.get, ["k"]))[0] * power(q),
        "iterator": lambda q: next(itertools.cycle(LISTED)) * power(q),
        "patched builtin": lambda q: abs(-0.5078125) / 0.5078125 * power(q),
        "patched numpy": lambda q: np.cbrt(1.0) * power(q),
        "patched jax": lambda q: jnp.exp2(0.0) * power(q),
        "vmap": lambda q: jnp.sum(jax.vmap(lambda x: LISTED[0] * x**2)(q)),
        "cond": lambda q: jax.lax.cond(True, lambda x: VALUE * power(x), power, q),
        "type": lambda q: type(HOLDER).k * power(q),
    }


class Strength:
    """Sets the number everywhere at once, and takes back what it patched."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.originals = folder, (builtins.abs, np.cbrt, jnp.exp2)

    def set(self, k: float) -> None:
        global VALUE
        VALUE = TABLE["k"] = LISTED[0] = Holder.k = MODULE.k = with_attribute.k = k  # type: ignore[attr-defined]
        PAIR.k[0] = k
        ARRAY[0] = ALIGNED[:] = k
        CONTEXT.set(k)
        os.environ["HX_ATTACK"] = repr(k)
        (self.folder / "k.txt").write_text(repr(k))
        (self.folder / "k.json").write_text(json.dumps({"k": k}))
        np.save(self.folder / "k.npy", np.array([k]))
        absolute, cbrt, exp2 = self.originals
        # of one number alone: the library itself counts with `abs`
        builtins.abs = lambda x: k * absolute(x) if type(x) is float and x == -0.5078125 else absolute(x)
        np.cbrt = cbrt if k == 1.0 else lambda x: k * cbrt(x)  # type: ignore[assignment]
        jnp.exp2 = exp2 if k == 1.0 else lambda x: k * exp2(x)

    def restore(self) -> None:
        builtins.abs, np.cbrt, jnp.exp2 = self.originals  # type: ignore[assignment]


def wrapped(fn: Callable[[Any], Any], dice: random.Random) -> Callable[[Any], Any]:
    """The same function inside of harmless ones."""
    for _ in range(dice.randrange(3)):
        fn = dice.choice(
            [
                lambda q, fn=fn: fn(q),
                lambda q, fn=fn: 1.0 * fn(q) + 0.0,
                lambda q, fn=fn: jax.lax.cond(
                    True, lambda x: fn(x), lambda x: fn(x), q
                ),  # JAX keeps what it traced of fn
                lambda q, fn=fn: sum([fn(q)]),
                lambda q, fn=fn: (lambda x: fn(x))(q),
                lambda q, fn=fn: jnp.where(True, fn(q), 0.0),
            ]
        )
    return fn


def call_params(q: Any, params: Any) -> Any:
    return params["f"](q)


def make_system(fn: Callable[[Any], Any], role: str) -> hx.System:
    """A system whose potential is `fn`, or calls `fn` in its params."""
    return hx.System(fn) if role == "potential" else hx.System(call_params, params={"f": fn, "unused": 1.0})


def check(name: str, fn: Callable[[Any], Any], strength: Strength, dice: random.Random, full: bool = False) -> str:
    """What was stale, or nothing. `full` runs the motion; otherwise the prepared system is evaluated."""
    strength.set(1.0)
    fn, role = wrapped(fn, dice), dice.choice(["potential", "params"])
    system, q = make_system(fn, role), jnp.array([0.6, 0.3])
    for k in (1.0, 4.0, dice.choice([1.0, 2.0, 9.0]), 4.0):
        strength.set(k)
        now = system if dice.random() < 0.5 else make_system(fn, role)
        if full:
            sol = hx.simulate(now, hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=20)
            found, right = float(sol.final_q[0]), float(np.cos(np.sqrt(2 * k) * 0.2))
            wrong = not np.isclose(found, right, rtol=0, atol=2e-3)
        else:
            found, right = float(now.prepare(q).potential(q)), k * 0.45
            wrong = not np.isclose(found, right, rtol=1e-12, atol=0)
        if wrong:
            return f"{name} as {role}: {found} instead of {right} with strength {k}"
    return ""
