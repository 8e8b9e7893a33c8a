"""Coefficients of symmetric compositions, as data with their source.

A scheme is the palindromic list of factors gamma_i; a composition takes steps gamma_i dt of a symmetric method of order
two. Digits are those printed in Hairer, Lubich & Wanner, Geometric Numerical Integration (2006), section V.3.2, unless
another source is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.checks import whole_number
from ..core.errors import InputError

# Round-off and cost grow with the number of substeps of a step.
MAX_SUBSTEPS = 10_000
# The order of a user's coefficients is determined up to here; the number of conditions grows like 1.6^order.
MAX_CHECKED_ORDER = 12
MAX_COEFFICIENTS = 500


class Scheme(NamedTuple):
    name: str
    order: int
    coefficients: tuple[float, ...]
    source: str


def _mirror(half: tuple[float, ...]) -> tuple[float, ...]:
    """The whole palindrome from its first half and middle element; the middle is set so that the sum is one."""
    outer = half[:-1]
    middle = 1.0 - 2.0 * sum(outer)
    if abs(middle - half[-1]) > 1e-13:
        raise InputError(f"the coefficients do not add up to one: off by {middle - half[-1]:.2g}")
    return outer + (middle,) + outer[::-1]


def triple_jump(order: int) -> Scheme:
    """Yoshida's and Suzuki's triple jump to any even order: `3^(order/2 - 1)` substeps."""
    return _fractal("triple-jump", order, 3, "Yoshida 1990; Creutz & Gocksch 1989; Farrell 2009 (7.3)")


def suzuki(order: int) -> Scheme:
    """Suzuki's fractals to any even order: `5^(order/2 - 1)` substeps, smaller error constants."""
    return _fractal("suzuki", order, 5, "Suzuki 1990")


def _fractal(name: str, order: int, parts: int, source: str) -> Scheme:
    if order < 2 or order % 2:
        raise InputError(f"a symmetric composition has an even order of at least 2, not {order}")
    levels, highest = order // 2 - 1, 2 + 2 * int(math.log(MAX_SUBSTEPS, parts))
    if order > highest:
        raise InputError(
            f"{name} of order {_short(order)} takes {parts}^{_short(levels)} substeps per step; {name}-{highest} is "
            f"the highest available, with at most {MAX_SUBSTEPS} substeps. Use order 10 or less, or a Gauss method"
        )
    coefficients = (1.0,)
    for p in range(2, order, 2):
        outer = 1.0 / ((parts - 1) - (parts - 1) ** (1.0 / (p + 1)))
        middle = 1.0 - (parts - 1) * outer
        side = tuple(outer * c for c in coefficients) * ((parts - 1) // 2)
        coefficients = side + tuple(middle * c for c in coefficients) + side
    return Scheme(f"{name}-{order}", order, coefficients, source)


SCHEMES = (
    Scheme("suzuki-4", 4, suzuki(4).coefficients, "Suzuki 1990"),
    Scheme(
        "yoshida-6",
        6,
        _mirror(
            (
                0.78451361047755726381949763,
                0.23557321335935813368479318,
                -1.17767998417887100694641568,
                1.31518632068391121888424973,
            )
        ),
        "Yoshida 1990, solution A",
    ),
    Scheme(
        "kahan-li-6",
        6,
        _mirror(
            (
                0.39216144400731413927925056,
                0.33259913678935943859974864,
                -0.70624617255763935980996482,
                0.08221359629355080023149045,
                0.79854399093482996339895035,
            )
        ),
        "Kahan & Li 1997",
    ),
    Scheme(
        "suzuki-umeno-8",
        8,
        _mirror(
            (
                0.74167036435061295344822780,
                -0.40910082580003159399730010,
                0.19075471029623837995387626,
                -0.57386247111608226665638773,
                0.29906418130365592384446354,
                0.33462491824529818378495798,
                0.31529309239676659663205666,
                -0.79688793935291635401978884,
            )
        ),
        "Suzuki & Umeno 1993; McLachlan 1995",
    ),
    Scheme(
        "kahan-li-8",
        8,
        _mirror(
            (
                0.13020248308889008087881763,
                0.56116298177510838456196441,
                -0.38947496264484728640807860,
                0.15884190655515560089621075,
                -0.39590389413323757733623154,
                0.18453964097831570709183254,
                0.25837438768632204729397911,
                0.29501172360931029887096624,
                -0.60550853383003451169892108,
            )
        ),
        "Kahan & Li 1997",
    ),
    Scheme(
        "sofroniou-spaletta-10",
        10,
        _mirror(
            (
                0.07879572252168641926390768,
                0.31309610341510852776481247,
                0.02791838323507806610952027,
                -0.22959284159390709415121340,
                0.13096206107716486317465686,
                -0.26973340565451071434460973,
                0.07497334315589143566613711,
                0.11199342399981020488957508,
                0.36613344954622675119314812,
                -0.39910563013603589787862981,
                0.10308739852747107731580277,
                0.41143087395589023782070412,
                -0.00486636058313526176219566,
                -0.39203335370863990644808194,
                0.05194250296244964703718290,
                0.05066509075992449633587434,
                0.04967437063972987905456880,
                0.04931773575959453791768001,
            )
        ),
        "Sofroniou & Spaletta 2005",
    ),
)

_BEST = {4: "suzuki-4", 6: "kahan-li-6", 8: "kahan-li-8", 10: "sofroniou-spaletta-10"}


def _short(n: int) -> str:
    return str(n) if n < 10**9 else "more than 10^9"


def given_scheme(coefficients: Sequence[float | int] | np.ndarray, order: int | None) -> Scheme:
    """A user's own coefficients, with the order that their order conditions give."""
    try:
        gamma = tuple(float(c) for c in coefficients)
    except (TypeError, ValueError) as error:
        raise InputError(f"scheme must be a name or a sequence of numbers, not {coefficients!r}") from error
    if not gamma or len(gamma) > MAX_COEFFICIENTS or not all(math.isfinite(c) for c in gamma):
        raise InputError(f"scheme needs 1 to {MAX_COEFFICIENTS} finite coefficients; {len(gamma)} were given")
    if abs(sum(gamma) - 1) > 1e-12 or any(abs(a - b) > 1e-14 for a, b in zip(gamma, gamma[::-1], strict=True)):
        raise InputError(f"coefficients must be palindromic and add up to 1; they add up to {sum(gamma):.15g}")
    found = composition_order(gamma)
    if order is not None and whole_number("the order of a composition", order) > found:
        raise InputError(
            f"the coefficients satisfy the order conditions up to order {found} only, not {order}"
            + (f" (orders above {MAX_CHECKED_ORDER} are not checked)" if order > MAX_CHECKED_ORDER else "")
        )
    return Scheme(f"{len(gamma)}-stage", found if order is None else int(order), gamma, "given by the user")


def composition_order(gamma: Sequence[float]) -> int:
    """The order of a palindromic composition of a symmetric method of order two, from its order conditions.

    Such a method is the exponential of `h Y_1 + h^3 Y_3 + h^5 Y_5 + ...` with fields that do not commute. A composition
    has order p when the product of the exponentials for `gamma_i h` is `exp(h Y_1)` up to terms of weight p: every
    product of fields of weight at most p that contains another field than Y_1 must have the coefficient zero. (Words
    of odd weights; there are as many as Fibonacci numbers say.)
    """
    words: list[tuple[int, ...]] = [()]
    for word in words:  # grows while it is read
        words += [(*word, k) for k in range(1, MAX_CHECKED_ORDER - sum(word) + 1, 2)]
    # exp of one factor: each word w has the coefficient gamma^weight(w) / len(w)!
    unit = {word: 1.0 / math.factorial(len(word)) for word in words}
    product: dict[tuple[int, ...], float] = {(): 1.0}
    size: dict[tuple[int, ...], float] = {(): 1.0}
    for g in gamma:
        new = {
            w: sum(product.get(w[:i], 0.0) * unit[w[i:]] * g ** sum(w[i:]) for i in range(len(w) + 1)) for w in words
        }
        grown = {
            w: sum(size.get(w[:i], 0.0) * unit[w[i:]] * abs(g) ** sum(w[i:]) for i in range(len(w) + 1)) for w in words
        }
        product, size = new, grown
    failed = [sum(w) for w in words if set(w) - {1} and abs(product[w]) > 1e-11 * max(size[w], 1e-3)]
    # a palindrome has an even order: the first condition that fails is one of odd weight
    return min(failed, default=MAX_CHECKED_ORDER + 1) - 1


def find_scheme(which: int | str) -> Scheme:
    """A scheme by order (the best known one, triple jumps beyond 10) or by name, as `"triple-jump-8"`."""
    if not isinstance(which, str):
        which = whole_number("the order of a composition", which)
        if which in _BEST:
            which = _BEST[which]
        else:
            return triple_jump(which)
    named = {s.name: s for s in SCHEMES}
    if which in named:
        return named[which]
    for maker in (triple_jump, suzuki):
        prefix = maker.__name__.replace("_", "-") + "-"
        if which.startswith(prefix) and which[len(prefix) :].isdigit():
            digits = which[len(prefix) :]
            return maker(int(digits) if len(digits) < 10 else 2 * 10**9)
    raise InputError(
        f"unknown composition scheme {which!r}; give an even order, a list of coefficients, or one of "
        f"{', '.join(named)}, triple-jump-ORDER, suzuki-ORDER"
    )
