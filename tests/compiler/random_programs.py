"""Random programs: straight-line JAX code over small typed arrays, with nested control flow, drawn from a seed.

A `Program` is a list of statements. Each statement is a plain function of earlier values; shapes and types are known
when it is drawn. What makes two right answers differ is avoided: values stay of order one, and numbers are shifted by
an odd constant before they are compared, rounded or ranked, so that no rounding error decides a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

Spec = jax.ShapeDtypeStruct
ODD = 0.123456789
INTEGERS = (np.int64, np.int32, np.int8, np.uint8, np.uint32)


@dataclass(eq=False)
class Program:
    """Statements over an environment that begins with the arguments; `outs` are the values it returns."""

    inputs: list[Spec]
    statements: list[tuple[str, Callable, tuple[int, ...]]] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)

    def __call__(self, *args):
        env = [jnp.asarray(a) for a in args]
        for _, fn, where in self.statements:
            env.append(fn(*(env[k] for k in where)))
        return tuple(env[k] for k in self.outs)

    def __str__(self) -> str:
        first = len(self.inputs)
        lines = [f"v{k}: {s.dtype}{list(s.shape)}" for k, s in enumerate(self.inputs)]
        lines += [f"v{first + k} = {name}({', '.join(f'v{a}' for a in at)})" for k, (name, _, at) in
                  enumerate(self.statements)]  # fmt: skip
        return "\n".join([*lines, f"return {', '.join(f'v{k}' for k in self.outs)}"])


def kind_of(spec) -> str:
    return {"f": "float", "b": "bool", "i": "int", "u": "int"}[np.dtype(spec.dtype).kind]


def generic(x):
    """Numbers without ties."""
    return x + 0.37 * jnp.sin(1.7 * jnp.arange(x.size).reshape(x.shape) + 0.3)


class Draw:
    """Draws one program. `smooth` leaves out what has no derivative in reverse mode; `n` is the length of axes."""

    def __init__(self, rng: np.random.Generator, inputs: Sequence[Spec], n: int, depth: int = 0, smooth: bool = False):
        self.rng, self.n, self.depth, self.smooth = rng, n, depth, smooth
        self.program = Program(list(inputs))
        self.specs: list[Spec] = list(inputs)
        if not any(kind_of(s) == "float" and s.shape for s in inputs):
            self.add("const", lambda: jnp.linspace(-0.7, 0.9, n))

    # -- helpers ---------------------------------------------------------------------------------------
    def add(self, name: str, fn: Callable, *at: int) -> int:
        spec = jax.eval_shape(fn, *(self.specs[k] for k in at))
        self.program.statements.append((name, fn, at))
        self.specs.append(spec)
        return len(self.specs) - 1

    def one_of(self, *items):
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """low <= result < high"""
        return int(self.rng.integers(low, high))

    def pick(self, kind: str = "float", least: int = 0, most: int = 9, where: Callable[[Spec], bool] = lambda s: True):
        """A value of a kind with `least` to `most` axes, recent ones more often; made where there is none."""
        found = [
            k for k, s in enumerate(self.specs)
            if kind_of(s) == kind and least <= len(s.shape) <= most and 0 not in s.shape and where(s)
        ]  # fmt: skip
        if found:
            return found[-1] if self.rng.random() < 0.4 else self.one_of(*found)
        if kind == "float":
            if least <= 1 <= most:
                fresh = self.add("const", lambda: jnp.linspace(-0.6, 0.8, self.n))
            else:
                source = self.pick("float", 1)
                if least == 0:
                    fresh = self.add("sum", lambda x: jnp.tanh(jnp.sum(x)), source)
                else:
                    fresh = self.add("outer", lambda x: jnp.tanh(jnp.outer(x.ravel()[:3], jnp.arange(1.0, 4))), source)
            return fresh if where(self.specs[fresh]) else self.pick("float", 1)
        source = self.pick("float", least, most)
        if kind == "bool":
            return self.add("gt", lambda x: x > ODD, source)
        dtype = self.one_of(*INTEGERS)
        return self.add("to int", lambda x: jnp.floor(5 * (jnp.tanh(x) + 1) + ODD).astype(dtype), source)

    def index(self) -> int:
        """A runtime integer without axes, sometimes out of bounds, of any integer type."""
        return self.pick("int", 0, 0)

    def shape(self, k: int) -> tuple[int, ...]:
        return tuple(self.specs[k].shape)

    def body(self, inputs: Sequence[Spec], outputs: Sequence[Spec], size: int, smooth: bool | None = None) -> Program:
        """An inner program with given types of arguments and results; results stay within -1 .. 1."""
        inner = Draw(self.rng, inputs, self.n, self.depth + 1, self.smooth if smooth is None else smooth)
        inner.statements(size)
        inner.program.outs = [inner.fitted(s) for s in outputs]
        return inner.program

    def fitted(self, want: Spec) -> int:
        """A value of this type and shape."""
        kind, shape, dtype = kind_of(want), tuple(want.shape), want.dtype
        same = [k for k, s in enumerate(self.specs) if kind_of(s) == kind and tuple(s.shape) == shape]
        k = same[-1] if same else self.pick(kind)
        if kind == "float":
            if self.shape(k) != shape:
                k = self.add("fit", lambda x: jnp.broadcast_to(jnp.sum(x), shape), k)
            return self.add("tanh", lambda x: jnp.tanh(x).astype(dtype), k)
        if kind == "bool":
            return k if self.shape(k) == shape else self.add("fit", lambda x: jnp.broadcast_to(jnp.any(x), shape), k)
        if self.shape(k) != shape:
            k = self.add("fit", lambda x: jnp.broadcast_to(jnp.sum(x), shape), k)
        return self.add("astype", lambda x: x.astype(dtype), k)

    def statements(self, size: int) -> None:
        names = [name for name in OPS if not (self.smooth and name in ROUGH) and not (self.depth and name in OUTER)]
        weights = np.array(
            [WEIGHTS.get(name, 1.0) * (0.25 if self.depth > 1 and name in DEEP else 1) for name in names]
        )
        for _ in range(size):
            OPS[names[int(self.rng.choice(len(names), p=weights / weights.sum()))]](self)


OPS: dict[str, Callable[[Draw], object]] = {}
WEIGHTS: dict[str, float] = {}
ROUGH: set[str] = set()  # no derivative, or none in reverse mode
OUTER: set[str] = set()  # not inside of others
DEEP: set[str] = set()  # have programs inside


def op(weight: float = 1.0, rough: bool = False, outer: bool = False, deep: bool = False):
    def register(fn):
        name = fn.__name__.strip("_")
        OPS[name], WEIGHTS[name] = fn, weight
        for flag, names in ((rough, ROUGH), (outer, OUTER), (deep, DEEP)):
            if flag:
                names.add(name)
        return fn

    return register


# -- programs ----------------------------------------------------------------------------------------------


def draw(seed: int, n: int = 5, size: int = 10, smooth: bool = False, inputs: Sequence[Spec] | None = None) -> Program:
    """The program of a seed; axes are of about `n` elements."""
    rng = np.random.default_rng(seed)
    given = inputs or [Spec((n,), np.float64), Spec((n, 3) if n > 20 else (2, 3), np.float64), Spec((), np.float64),
                       Spec((), np.int64)]  # fmt: skip
    d = Draw(rng, given, n, smooth=smooth)
    d.statements(size)
    first = len(given)
    d.program.outs = sorted({*range(first, len(d.specs))}) or [0]
    return d.program


def arguments(program: Program, seed: int, count: int) -> list[np.ndarray]:
    """`count` sets of arguments with a leading axis, of order one; integers reach beyond the ends of arrays."""
    rng = np.random.default_rng([seed, 1])
    out = []
    for s in program.inputs:
        shape = (count, *s.shape)
        real = kind_of(s) == "float"
        out.append(rng.uniform(-1.2, 1.2, shape) if real else rng.integers(-2, 9, shape).astype(s.dtype))
    return out
