"""Reuse of values that a loop computes twice: at the end of an iteration and at the start of the next one.

A Newton sweep evaluates the residual at the new point; the next sweep starts by recomputing parts of it for the
Jacobian. Such a value becomes one more carried variable. With `e(x)` a value of the sweep that begins at `x` and `x'`
the state after the sweep: if `e(x')` is computed already, then `e` is carried, starting at `e(x0)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .graph import Branches, Graph, Loop, Scope, is_within

if TYPE_CHECKING:
    from .trace import Tracer

_COMMUTE = {"add", "mul", "max", "min", "and", "or", "xor"}
_PLAIN = {
    "add", "sub", "mul", "div", "neg", "max", "min", "select", "sqrt", "abs", "sin", "cos", "tan", "exp", "log", "pow",
    "tanh", "atan2", "asin", "acos", "atan", "exp2", "expm1", "log1p", "sinh", "cosh", "cbrt", "erf",
}  # fmt: skip


def carry_over(t: Tracer, loop: Loop, first: int) -> dict[int, tuple[int, int]]:
    """Find the values worth carrying and replace them by parameters in all nodes from `first` on.

    Returns, for each replaced node, its parameter and the node that is its value for the next iteration.
    """
    g, scope = t.graph, loop.scope
    roots = [loop.go, *loop.results, *loop.collect]
    inside = _reachable(g, scope, roots)
    later = dict(zip(loop.params, loop.results, strict=True))
    for n in inside:
        if g.op[n] in _PLAIN and g.scope[n] is scope:
            args = [later.get(a, a if g.scope[a] is not scope else -1) for a in g.args[n]]
            found = _find(g, n, args, scope) if -1 not in args else None
            if found is not None and found != n:
                later[n] = found
    known = {n for n in inside if n in later and n not in loop.params}
    cut = known & ({a for n in inside if n not in known for a in g.args[n]} | set(roots))
    if not known or 2 * len(known) < 3 * len(cut):  # each carried value costs about as much as an operation
        return {}
    replaced = {n: g.append("param", (), g.kind[n], None, scope, g.length[n]) for n in sorted(known)}
    _replace(g, loop, replaced, first)
    return {n: (p, replaced.get(later[n], later[n])) for n, p in replaced.items()}


def _reachable(g: Graph, scope: Scope, roots: list[int]) -> list[int]:
    """Nodes of the scope that the roots need, in order of evaluation."""
    found: set[int] = set()
    work = list(roots)
    while work:
        n = work.pop()
        if n in found or g.op[n] == "const" or not is_within(g.scope[n], scope):
            continue
        found.add(n)
        work.extend(g.args[n])
        attr = g.attr[n]
        if isinstance(attr, Loop | Branches):
            work += attr.uses
    return sorted(found)


def _find(g: Graph, n: int, args: list[int], scope: Scope) -> int | None:
    """The existing node that is `n` with other arguments, or None."""
    if g.op[n] in _COMMUTE:
        args = sorted(args)
    home = max((g.scope[a] for a in args), key=lambda s: s.depth)
    if home is not scope:
        return None
    return scope.seen.get((g.op[n], tuple(args), g.kind[n], g.attr[n]))


def _replace(g: Graph, loop: Loop, replaced: dict[int, int], first: int) -> None:
    get = replaced.get
    loop.replace(get)
    for n in range(first, len(g.op)):
        if n in replaced:
            continue
        args = g.args[n]
        if any(a in replaced for a in args):
            g.args[n] = tuple(get(a, a) for a in args)
        attr = g.attr[n]
        if isinstance(attr, Loop | Branches):
            attr.replace(get)


def rebuild(t: Tracer, n: int, mapping: dict[int, int], args: tuple[int, ...]) -> int:
    """Node `n` on other arguments, simplified again."""
    return t.algebra.apply(t.graph.op[n], tuple(mapping.get(a, a) for a in args), t.graph.kind[n], t.graph.attr[n])


def remember(g: Graph, n: int, args: list[int], value: int) -> None:
    """Record that `n` on these arguments is `value`."""
    if g.op[n] in _COMMUTE:
        args = sorted(args)
    home = max((g.scope[a] for a in args), key=lambda s: s.depth)
    if home is g.scope[value]:
        home.seen.setdefault((g.op[n], tuple(args), g.kind[n], g.attr[n]), value)
