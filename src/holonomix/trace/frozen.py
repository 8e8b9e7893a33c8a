"""User functions, frozen when a run begins: the run uses and is identified by what they compute at that moment.

A Python function may change without becoming another object: a variable that it closes over, a global, an attribute of
the object it belongs to. Compiled code must not outlive such a change. So every function is traced again each time a
system is prepared, and replaced by its program. That takes a millisecond, and is skipped where `stamps` shows that the
function has not changed. Programs are equal when they compute the same: equal programs share compiled code, and a
changed function gets new code.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Hashable, Iterable
from types import FunctionType
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.extend import core as jex_core
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import PyTree

from ..core.types import ArrayLike, Function
from .closures import Closure
from .compiled import Recent
from .functions import Fixed
from .purity import home, is_type_check
from .stamps import stamp

_PACKAGE = __name__.partition(".")[0]
_ADDRESS = re.compile(r"0x[0-9a-f]+")
Signature = tuple[Any, ...]
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_default_prng_impl")
SETTINGS += ("jax_threefry_partitionable", "jax_random_seed_offset")
HEAVY = 1 << 20  # a tree with an array of more bytes has no identity, which would keep the array alive


def settings() -> tuple[object, ...]:
    """Settings of JAX that change what a trace contains: some by name, and those by which JAX keys its own caches."""
    context = getattr(sys.modules.get("jax._src.config"), "trace_context", tuple)
    return context(), tuple(getattr(jax.config, name, None) for name in SETTINGS), np.dtype(float).str


class Program:
    """One traced function: equations with their constants, for arguments of one structure and shape."""

    def __init__(self, closed: ClosedJaxpr, structure: Any, traced: tuple[int, ...]):
        self.closed, self.structure, self.traced = closed, structure, traced
        own = program_digest(closed)
        plain = jax.tree_util.treedef_is_leaf(structure)  # [x] and x have the same equations
        self.digest = own if plain else hashlib.sha256(f"{own} {structure}".encode()).hexdigest()

    def __call__(self, leaves: Iterable[Any], captured: Iterable[Any]) -> Any:
        consts = list(self.closed.consts)
        for k, value in zip(self.traced, captured, strict=True):
            consts[k] = value
        out = jax.core.eval_jaxpr(self.closed.jaxpr, consts, *leaves)  # pyright: ignore[reportAttributeAccessIssue]
        return jax.tree.unflatten(self.structure, out)


class Programs:
    """The programs of one function, by the signature of its arguments; equal to others that compute the same."""

    def __init__(self, fn: Function, found: dict[Signature, Program]):
        self.fn, self.found = fn, found
        self.digest = hashlib.sha256(
            "\n".join(f"{_text(key)} {program.digest}" for key, program in found.items()).encode()
        ).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Programs) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"program {self.digest[:12]}"


class Frozen(eqx.Module):
    """A user's function as it was when its system was prepared.

    `arrays` are those of a callable PyTree, which stay runtime values; `captured` are values of an outer transformation
    that the function closes over, by signature.
    """

    programs: Programs = eqx.field(static=True)
    arrays: tuple[Any, ...]
    captured: tuple[tuple[Any, ...], ...]

    def __call__(self, *args: PyTree) -> Any:
        leaves, signature = _flatten(args)
        for (known, program), captured in zip(self.programs.found.items(), self.captured, strict=True):
            if known == signature:
                return program((*self.arrays, *leaves), captured)
        return _rebuilt(self.programs.fn, self.arrays)(*args)  # a signature that was not traced


class Recorder:
    """Replaces a function while a system is tried out, and traces it for each signature that it is called with."""

    def __init__(self, fn: Function):
        self.user = fn.fn if isinstance(fn, Fixed) else fn
        own = () if isinstance(fn, Fixed) else tuple(x for x in jax.tree.leaves(fn) if eqx.is_array(x))
        self.arrays: tuple[Any, ...] = own
        self.found: dict[Signature, Program] = {}
        self.captured: dict[Signature, tuple[Any, ...]] = {}

    def __call__(self, *args: PyTree) -> Any:
        leaves, signature = _flatten(args)
        if signature not in self.found:
            self.found[signature], self.captured[signature] = self._trace(args)
        return self.found[signature]((*self.arrays, *leaves), self.captured[signature])

    def _trace(self, args: tuple[Any, ...]) -> tuple[Program, tuple[Any, ...]]:
        arrays, static = eqx.partition(args, eqx.is_array_like)
        structure: list[Any] = []

        def call(own: PyTree, arrays: PyTree):
            out = _rebuilt(self.user, own)(*eqx.combine(arrays, static))
            leaves, tree = jax.tree.flatten(out)
            structure.append(tree)
            return leaves

        closed = jax.make_jaxpr(call)(self.arrays, jax.tree.map(_abstract, arrays))
        traced = tuple(k for k, x in enumerate(closed.consts) if isinstance(x, Tracer))
        return Program(closed, structure[0], traced), tuple(closed.consts[k] for k in traced)

    def frozen(self) -> Frozen:
        return Frozen(Programs(self.user, self.found), self.arrays, tuple(self.captured[key] for key in self.found))


_known: Recent[tuple[Programs | None, ...]] = Recent(256)


def freeze(tree: PyTree, try_out: Callable[[Any], Any], *like: PyTree) -> Any:
    """`tree` with every user function replaced by its current program.

    `try_out(tree)` calls the functions as a run does; functions that it does not call are not replaced. If a function
    fails, `tree` is returned unchanged, and later checks report the failure. Functions inside of `params` become part
    of the programs of the functions that call them. `like` are the arrays that `try_out` uses; programs are cached by
    their shapes.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_user_function)
    in_params = lambda path: any(getattr(part, "name", None) == "params" for part in path)
    places = [k for k, (path, leaf) in enumerate(paths) if _is_user_function(leaf) and not in_params(path)]
    if not places:
        return tree
    leaves = [leaf for _, leaf in paths]
    foreign = any(map(in_params, (path for path, _ in paths))) and _has_foreign_params(tree, in_params)
    key = None if foreign else _key(leaves, places, treedef, like)
    known = None if key is None else _known.get(key)
    if known is not None:
        for k, programs in zip(places, known, strict=True):
            if programs is not None:
                leaves[k] = Frozen(programs, (), ((),) * len(programs.found))
        return jax.tree.unflatten(treedef, leaves)
    recorders = {k: Recorder(leaves[k]) for k in places}
    try:
        trial = jax.tree.unflatten(treedef, [recorders.get(k, leaf) for k, leaf in enumerate(leaves)])
        jax.eval_shape(lambda: (try_out(trial), None)[1])
    except Exception:
        return tree
    for k, recorder in recorders.items():
        if recorder.found:
            leaves[k] = recorder.frozen()
    if key is not None and not any(any(r.captured.values()) for r in recorders.values()):
        _known.put(key, tuple(leaves[k].programs if recorders[k].found else None for k in places))
    return jax.tree.unflatten(treedef, leaves)


def _key(leaves: list[Any], places: list[int], treedef: Any, like: PyTree) -> Any:
    """A key of everything that the programs of a tree depend on; None if that is unknown."""
    kinds: list[Any] = [
        treedef,
        settings(),
        *((np.shape(x), str(jax.numpy.result_type(x))) for x in jax.tree.leaves(like)),
    ]
    for k, leaf in enumerate(leaves):
        if k not in places and eqx.is_array(leaf):
            kinds.append((leaf.shape, str(leaf.dtype)))
            continue
        mark = stamp(leaf.fn if isinstance(leaf, Fixed) else leaf)
        if mark is None:
            return None
        kinds.append(mark)
    try:
        hash(key := tuple(kinds))
    except TypeError:
        return None
    return key


def identity(tree: PyTree) -> Hashable | None:
    """A key that is equal for two trees only if arrays, settings and the computations of functions are equal.

    None if that is unknown.
    """
    leaves, treedef = jax.tree.flatten(tree, is_leaf=_is_foreign)
    marks = tuple(stamp(leaf.fn if isinstance(leaf, Fixed) else leaf) for leaf in leaves)
    try:
        hash(treedef)
    except TypeError:
        return None
    heavy = any(isinstance(leaf, jax.Array) and leaf.nbytes > HEAVY for leaf in leaves)
    return None if None in marks or heavy else (treedef, settings(), marks)


def _has_foreign_params(tree: PyTree, in_params: Callable[[Any], bool]) -> bool:
    """Whether params contain an object whose methods may read anything: operators on it are not seen in the code."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_foreign)
    return any(in_params(path) and not eqx.is_array(leaf) and stamp(leaf) is None for path, leaf in paths)


def _is_foreign(x: object) -> bool:
    """A function of the user, or an object whose methods may be."""
    return type(x).__module__.partition(".")[0] not in ("builtins", _PACKAGE) or _is_user_function(x)


def has_user_functions(tree: PyTree) -> bool:
    """Whether a tree has functions to freeze."""
    return any(_is_user_function(x) for x in jax.tree.leaves(tree, is_leaf=_is_user_function))


def _is_user_function(x: object) -> bool:
    """A plain function, or a callable PyTree of a class that is not ours."""
    if isinstance(x, Fixed):
        return not _is_ours(x.fn)
    if isinstance(x, Closure):
        return True
    if not callable(x) or isinstance(x, type) or isinstance(x, (Recorder, Frozen)):
        return False
    ours = any(cls.__module__.partition(".")[0] == _PACKAGE for cls in inspect.getmro(type(x)))
    return not ours and not jax.tree_util.all_leaves([x])


def _is_ours(fn: Any) -> bool:
    """A function of this package that closes over nothing cannot change; type checks wrapped around it do not count."""
    while isinstance(fn, FunctionType) and is_type_check(fn.__code__):
        fn = getattr(fn, "__wrapped__", None)
    return isinstance(fn, FunctionType) and fn.__closure__ is None and bool(home(fn.__code__))


def _rebuilt(fn: Function, arrays: tuple[Any, ...]) -> Any:
    """A callable PyTree with other arrays; plain functions are returned unchanged."""
    if not arrays:
        return fn
    leaves, treedef = jax.tree.flatten(fn)
    given = iter(arrays)
    return jax.tree.unflatten(treedef, [next(given) if eqx.is_array(x) else x for x in leaves])


def _abstract(x: ArrayLike) -> Any:
    return jax.ShapeDtypeStruct(np.shape(x), jax.numpy.result_type(x))


def _flatten(args: tuple[Any, ...]) -> tuple[list[Any], Signature]:
    leaves, treedef = jax.tree.flatten(args)
    numbers = [eqx.is_array_like(x) for x in leaves]
    kinds = tuple(
        (np.shape(x), str(jax.numpy.result_type(x))) if number else x for x, number in zip(leaves, numbers, strict=True)
    )
    return [x for x, number in zip(leaves, numbers, strict=True) if number], (treedef, *kinds)


# ---- what a program computes, as a hash that does not depend on the process


DERIVATIVES = 2  # orders of derivatives whose rules are hashed: forces and their Jacobians


def program_digest(closed: ClosedJaxpr) -> str:
    """A hash of the equations and constants of a jaxpr; names of variables and functions do not matter.

    Where there are derivative rules (`jax.custom_jvp`), what they compute belongs to it: a rule may close over values.
    """
    digest = hashlib.sha256()
    for _ in range(DERIVATIVES + 1):
        _feed_jaxpr(digest.update, closed.jaxpr, closed.consts)
        if not has_rules(closed.jaxpr):
            break
        try:
            closed = _derivative(closed)
        except Exception:  # a failing rule raises where it is used
            break
    return digest.hexdigest()


def has_rules(jaxpr: Jaxpr, *kinds: str) -> bool:
    """Whether a program has derivative rules of the given kinds (all by default)."""
    kinds = kinds or ("custom_jvp", "custom_vjp")
    return any(
        eqn.primitive.name.startswith(kinds)
        or any(has_rules(inner, *kinds) for inner in jex_core.jaxprs_in_params(eqn.params))
        for eqn in jaxpr.eqns
    )


def _derivative(closed: ClosedJaxpr) -> Any:
    """The program of the derivative of a program: forward, or backward where a rule is for that."""
    program, given = jex_core.jaxpr_as_fun(closed), closed.in_avals
    smooth = [jax.numpy.issubdtype(x.dtype, jax.numpy.inexact) for x in given]

    def full(args: PyTree) -> Any:
        rest = iter(args)
        return program(*(next(rest) if real else jax.numpy.zeros(x.shape, x.dtype) for x, real in zip(given, smooth)))

    args = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x, real in zip(given, smooth, strict=True) if real)
    if has_rules(closed.jaxpr, "custom_vjp"):
        return jax.make_jaxpr(lambda x, dy: jax.vjp(full, x)[1](dy))(args, jax.eval_shape(full, args))
    return jax.make_jaxpr(lambda x, dx: jax.jvp(full, (x,), (dx,)))(args, args)


def _feed_jaxpr(feed: Callable[[bytes], None], jaxpr: Jaxpr, consts: PyTree) -> None:
    numbers: dict[Any, int] = {}

    def atom(x: jex_core.Var | jex_core.Literal) -> None:
        if isinstance(x, jex_core.Literal):
            _feed_value(feed, np.asarray(x.val))
        else:
            feed(f"v{numbers.setdefault(x, len(numbers))}:{x.aval.str_short()};".encode())

    for x in (*jaxpr.constvars, *jaxpr.invars):
        atom(x)
    for value in consts:
        _feed_value(feed, value)
    for eqn in jaxpr.eqns:
        feed(f"\n{eqn.primitive.name}(".encode())
        if eqn.primitive.name.startswith("random_") and not getattr(jax.config, "jax_threefry_partitionable", True):
            feed(b"in order;")  # the same equation makes other numbers
        for x in eqn.invars:
            atom(x)
        for name in sorted(eqn.params):
            if name != "name":
                feed(f"{name}=".encode())
                _feed_value(feed, eqn.params[name], callback="callback" in eqn.primitive.name)
        for x in eqn.outvars:
            numbers.setdefault(x, len(numbers))
    feed(b"\nout ")
    for x in jaxpr.outvars:
        atom(x)


def _feed_value(feed: Callable[[bytes], None], value: object, callback: bool = False) -> None:
    if isinstance(value, jex_core.ClosedJaxpr):
        _feed_jaxpr(feed, value.jaxpr, value.consts)
    elif isinstance(value, jex_core.Jaxpr):
        _feed_jaxpr(feed, value, ())
    elif isinstance(value, Tracer):
        feed(f"traced {value.aval.str_short()};".encode())  # its value is passed at run time
    elif isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        _feed_value(feed, jax.random.key_data(value))
    elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        feed(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    elif isinstance(value, (tuple, list)):
        feed(b"(")
        for item in value:
            _feed_value(feed, item, callback)
        feed(b")")
    elif isinstance(value, dict):
        _feed_value(feed, sorted(value.items(), key=lambda pair: str(pair[0])), callback)
    elif isinstance(value, (int, float, complex, str, bytes, bool, type(None))):
        feed(f"{value!r};".encode())
    elif callable(value) and callback:
        feed(f"callback {id(value)};".encode())  # Python that runs at run time: only the same object is the same
    elif callable(value):
        feed(f"{_code(value)};".encode())  # derivative rules: their program is hashed separately
    else:
        feed(f"{_text(value)};".encode())


# Stores written before the packages were regrouped identify derivative rules by these module names.
_RECORDED_MODULES = {
    "holonomix.trace.indexing": "holonomix.linalg.indexing",
    "holonomix.linalg.multifrontal": "holonomix.multifrontal",
    "holonomix.mechanics.projection": "holonomix.projection",
    "holonomix.mechanics": "holonomix.systems",
    "holonomix.trace.taylor": "holonomix.taylor",
    "holonomix.build": "holonomix",
}


def _code(fn: Function) -> str:
    fn = inspect.unwrap(getattr(fn, "f", fn))
    code = fn.__code__.co_code.hex() if isinstance(fn, FunctionType) else ""
    return f"{_recorded_module(fn)}.{getattr(fn, '__qualname__', type(fn).__name__)} {code}"


def _recorded_module(fn: Function) -> str:
    """The module of a function, by the name that stores have for it."""
    module = str(getattr(fn, "__module__", ""))
    for prefix, recorded in _RECORDED_MODULES.items():
        if module == prefix or module.startswith(f"{prefix}."):
            return recorded + module.removeprefix(prefix)
    return module


def _text(value: object) -> str:
    """The text of a value without addresses."""
    return _ADDRESS.sub("0x", repr(value))


def digest_of(tree: PyTree) -> dict[str, str]:
    """A description of the static parts of a tree, by path: names of classes, settings, and hashes of user functions.

    Two trees with the same entries and the same arrays compute the same.
    """
    found: dict[str, str] = {}
    _describe(tree, "", found)
    return found


def _describe(x: object, path: str, found: dict[str, str]) -> None:
    if isinstance(x, Frozen):
        found[path] = f"function {x.programs.digest[:16]}"
    elif isinstance(x, Fixed):
        found[path] = f"function {_code(x.fn)}"
    elif eqx.is_array(x):
        found[path] = "array"
    elif isinstance(x, eqx.Module):
        found[path] = type(x).__qualname__
        for name in type(x).__dataclass_fields__:
            if hasattr(x, name):
                _describe(getattr(x, name), f"{path}.{name}", found)
    elif isinstance(x, dict):
        for key in sorted(x, key=str):
            _describe(x[key], f"{path}[{key!r}]", found)
    elif isinstance(x, (tuple, list)):
        for k, item in enumerate(x):
            _describe(item, f"{path}[{k}]", found)
    elif isinstance(x, FunctionType):
        found[path] = f"function {hashlib.sha256(_code(x).encode()).hexdigest()[:16]}"
    else:
        found[path] = _text(x)
