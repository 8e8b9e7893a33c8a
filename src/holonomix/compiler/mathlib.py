"""Elementary functions of float64: a few ulp, and the same bits in scalar and lane form.

Rare arguments (huge angles, infinities, negative bases) go to the C library one lane at a time, behind a branch that
is almost never taken; so do a few rarely used functions altogether. Range reductions and polynomials of sin, cos and
log are those of fdlibm, of atan those of Cephes; the inverse error function is Giles's.
"""

from __future__ import annotations

import math

from .graph import float_bits
from .mathlang import Body, V, function

# -- circular functions ----------------------------------------------------------------------------

_HUGE_ANGLE = 823549.0  # 2^19 pi/2: the reduction below is exact enough up to here
_PIO2 = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_SIN = [-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
        2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10]  # fmt: skip
_COS = [4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
        -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11]  # fmt: skip


def _reduce_angle(f: Body, x: V) -> tuple[V, V, V]:
    """x = n pi/2 + y + tail; returns y, tail and the integer n."""
    n, k = f.nearest(x * (2 / math.pi))
    minus = -n
    r = f.fma(minus, _PIO2[0], x)
    p = minus * _PIO2[1]  # exact: 33 bits times at most 20
    s = r + p
    lost = (r - s) + p
    w = f.fma(minus, _PIO2[2], lost)
    y = s + w
    return y, (s - y) + w, k


def _sin_cos(f: Body, y: V, tail: V) -> tuple[V, V]:
    z = y * y
    v = z * y
    q = f.poly(z, _SIN[1:])
    inner = f.fma(z, f.fma(-v, q, tail * 0.5), -tail)  # y - ((z (tail/2 - v q) - tail) - v S1)
    sine = y - f.fma(v, -_SIN[0], inner)
    half = z * 0.5
    w = 1.0 - half
    cosine = w + (((1.0 - w) - half) + f.fma(z * z, f.poly(z, _COS), -(y * tail)))
    return sine, cosine


def _circular(f: Body, x: V, turn: int, name: str) -> V:
    y, tail, k = _reduce_angle(f, x)
    sine, cosine = _sin_cos(f, y, tail)
    k = k + turn if turn else k
    odd = (k & 1).compare("ne", 0)
    value = f.select(odd, cosine, sine)
    value = (value.bits ^ ((k & 2) << 62)).double
    if name == "sin":
        value = f.select(f.abs(x) < 1e-12, x, value)
    return f.library(f.abs(x) > _HUGE_ANGLE, value, name, x)


@function
def _sin(f: Body, x: V) -> V:
    return _circular(f, x, 0, "sin")


@function
def _cos(f: Body, x: V) -> V:
    return _circular(f, x, 1, "cos")


@function
def _tan(f: Body, x: V) -> V:
    y, tail, k = _reduce_angle(f, x)
    sine, cosine = _sin_cos(f, y, tail)
    odd = (k & 1).compare("ne", 0)
    value = f.select(odd, -cosine, sine) / f.select(odd, sine, cosine)
    value = f.select(f.abs(x) < 1e-12, x, value)
    return f.library(f.abs(x) > _HUGE_ANGLE, value, "tan", x)


# -- inverse circular functions --------------------------------------------------------------------

_ATAN_P = [-6.485021904942025371773e1, -1.228866684490136173410e2, -7.500855792314704667340e1,
           -1.615753718733365076637e1, -8.750608600031904122785e-1]  # fmt: skip
_ATAN_Q = [1.945506571482613964425e2, 4.853903996359136964868e2, 4.328810604912902668951e2, 1.650270098316988542046e2,
           2.485846490142306297962e1, 1.0]  # fmt: skip
_MOREBITS = 6.123233995736765886130e-17


def _atan_ratio(f: Body, a: V, b: V) -> V:
    """atan(a/b) for a, b >= 0, not both zero or infinite."""
    big = a > 2.41421356237309504880 * b
    middle = a > 0.66 * b
    top = f.select(big, -b, f.select(middle, a - b, a))
    bottom = f.select(big, a, f.select(middle, a + b, b))
    t = top / bottom
    z = t * t
    series = f.fma(t * z, f.poly(z, _ATAN_P) / f.poly(z, _ATAN_Q), t)
    quarter = f.select(big, math.pi / 2, f.select(middle, f.lift(math.pi / 4, "f8"), 0.0))
    extra = f.select(big, _MOREBITS, f.select(middle, f.lift(0.5 * _MOREBITS, "f8"), 0.0))
    return quarter + (series + extra)


@function
def _atan(f: Body, x: V) -> V:
    a = f.abs(x)
    value = f.copysign(_atan_ratio(f, a, f.lift(1.0, "f8")), x)
    value = f.select(a < 1e-9, x, value)
    return f.select(a > 1e300, f.copysign(f.lift(math.pi / 2, "f8"), x), value)


@function
def _atan2(f: Body, y: V, x: V) -> V:
    a, b = f.abs(y), f.abs(x)
    angle = _atan_ratio(f, a, b)
    low = 1.2246467991473532e-16  # pi = math.pi + low
    angle = f.select(x < 0.0, (math.pi - angle) + low, angle)
    value = f.copysign(angle, y)
    unusual = (a > 1e290) | (b > 1e290) | (a < 1e-290) | (b < 1e-290) | y.compare("uno", x)
    return f.library(unusual, value, "atan2", y, x)


@function
def _asin(f: Body, x: V) -> V:
    a = f.abs(x)
    value = _atan_ratio(f, a, f.unary("sqrt", (1.0 - a) * (1.0 + a)))
    return f.select(a < 1e-9, x, f.copysign(value, x))


@function
def _acos(f: Body, x: V) -> V:
    a = f.abs(x)
    angle = _atan_ratio(f, f.unary("sqrt", (1.0 - a) * (1.0 + a)), a)
    return f.select(x < 0.0, (math.pi - angle) + 1.2246467991473532e-16, angle)


# -- exponential and hyperbolic functions ----------------------------------------------------------

_LN2_HI, _LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_EXP = [1 / math.factorial(k) for k in range(2, 14)]


def _exp_parts(f: Body, x: V) -> tuple[V, V]:
    """x = n ln 2 + r; returns exp(r) - 1 and the integer n."""
    n, k = f.nearest(x * (1 / math.log(2)))
    r = f.fma(-n, _LN2_LO, f.fma(-n, _LN2_HI, x))
    return f.fma(r * r, f.poly(r, _EXP), r), k


def _scaled(f: Body, value: V, k: V) -> V:
    """value 2^k, also where 2^k is out of range."""
    half = k >> 1
    return value * f.exponent(half) * f.exponent(k - half)


def _clamp(f: Body, x: V, low: float, high: float) -> V:
    x = f.select(x < low, low, x)
    return f.select(x > high, high, x)


@function
def _exp(f: Body, x: V) -> V:
    e, k = _exp_parts(f, _clamp(f, x, -746.0, 710.0))
    return _scaled(f, 1.0 + e, k)


@function
def _exp2(f: Body, x: V) -> V:
    x = _clamp(f, x, -1076.0, 1025.0)
    n, k = f.nearest(x)
    r = (x - n) * math.log(2)
    return _scaled(f, 1.0 + f.fma(r * r, f.poly(r, _EXP), r), k)


def _expm1_of(f: Body, x: V) -> V:
    e, k = _exp_parts(f, x)
    half = f.exponent(k - 1)
    return 2.0 * f.fma(half, e, half - 0.5)


@function
def _expm1(f: Body, x: V) -> V:
    value = _expm1_of(f, _clamp(f, x, -50.0, 710.0))
    return f.select(f.abs(x) < 1e-20, x, value)


@function
def _sinh(f: Body, x: V) -> V:
    a = f.abs(x)
    near = _expm1_of(f, f.select(a > 25.0, 25.0, a))
    near = 0.5 * (near + near / (near + 1.0))
    e, k = _exp_parts(f, _clamp(f, a, 0.0, 711.0))
    far = _scaled(f, 1.0 + e, k - 1)
    value = f.copysign(f.select(a > 22.0, far, near), x)
    return f.select(a < 1e-20, x, value)


@function
def _cosh(f: Body, x: V) -> V:
    e, k = _exp_parts(f, _clamp(f, f.abs(x), 0.0, 711.0))
    half = _scaled(f, 1.0 + e, k - 1)
    return half + 0.25 / half


@function
def _tanh(f: Body, x: V) -> V:
    a = f.abs(x)
    e = _expm1_of(f, 2.0 * f.select(a > 22.0, 22.0, a))
    value = f.copysign(e / (e + 2.0), x)
    return f.select(a < 1e-20, x, value)


# -- logarithms and powers -------------------------------------------------------------------------

_LOG = [6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
        1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01]  # fmt: skip
_SQRT_HALF = float_bits(math.sqrt(0.5))


def _mantissa(x: V) -> tuple[V, V]:
    """x = m 2^k with m in [sqrt 1/2, sqrt 2), for normal positive x."""
    bits = x.bits
    k = (bits - _SQRT_HALF) >> 52
    return (bits - (k << 52)).double, k


def _log_of(f: Body, x: V) -> V:
    """log of a positive finite number."""
    tiny = x < 2.0**-1022
    m, k = _mantissa(f.select(tiny, x * 2.0**54, x))
    k = f.integer_to_double(f.select(tiny, k - 54, k))
    t = m - 1.0
    s = t / (t + 2.0)
    z = s * s
    half = 0.5 * (t * t)
    r = z * f.poly(z, _LOG)
    return f.fma(k, _LN2_HI, -((half - f.fma(s, half + r, k * _LN2_LO)) - t))


def _log_edges(f: Body, x: V, value: V) -> V:
    value = f.select(x < math.inf, value, x)  # infinity and NaN
    value = f.select(x > 0.0, value, f.select(x.compare("oeq", 0.0), f.lift(-math.inf, "f8"), math.nan))
    return f.select(x.compare("uno", x), x, value)


@function
def _log(f: Body, x: V) -> V:
    return _log_edges(f, x, _log_of(f, x))


@function
def _log1p(f: Body, x: V) -> V:
    u = x + 1.0
    lost = x - (u - 1.0)
    value = _log_of(f, u) + lost / u
    return f.select(f.abs(x) < 1e-20, x, _log_edges(f, u, value))


def _two_sum(a: V, b: V) -> tuple[V, V]:
    """a + b exactly, for |a| >= |b|."""
    s = a + b
    return s, b - (s - a)


@function
def _pow(f: Body, x: V, y: V) -> V:
    """exp(y log x) with the logarithm in double-double; negative and special numbers go to the C library."""
    unusual = x.compare("ult", 2.0**-1022) | x.compare("ugt", 1e308) | f.abs(y).compare("ugt", 1e15)
    if not f.w.fma:
        return f.c_library("pow", x, y)
    m, k = _mantissa(f.select(unusual, 1.0, x))
    k = f.integer_to_double(k)
    t = m - 1.0
    d, d_low = _two_sum(f.lift(2.0, "f8"), t)
    s = t / d
    s_low = f.fma(-s, d_low, f.fma(-s, d, t)) / d
    z = s * s
    z_low = f.fma(2.0 * s, s_low, f.fma(s, s, -z))
    # log m = 2 s + s (2/3 z + z^2 (2/5 + ...)); the first two terms carry their low parts
    third, third_low = 2 / 3, 3.700743415417188e-17
    u = z * third
    u_low = f.fma(z, third_low, f.fma(z_low, third, f.fma(z, third, -u)))
    rest = f.fma(z * z, f.poly(z, [2 / (2 * j + 5) for j in range(9)]), u_low)
    u, u_low = _two_sum(u, rest)
    c = s * u
    c_low = f.fma(s, u_low, f.fma(s_low, u, f.fma(s, u, -c)))
    high, low = _two_sum(2.0 * s, c)
    low = low + (c_low + 2.0 * s_low)
    head = k * _LN2_HI  # exact
    total = head + high
    back = total - head
    error = (head - (total - back)) + (high - back)
    low = low + f.fma(k, _LN2_LO, error)
    # the exponential of y (total + low)
    p = y * total
    p_low = f.fma(y, low, f.fma(y, total, -p))
    p = _clamp(f, p, -746.0, 710.0)
    n, e = f.nearest(p * (1 / math.log(2)))
    r = f.fma(-n, _LN2_LO, f.fma(-n, _LN2_HI, p)) + p_low
    value = _scaled(f, 1.0 + f.fma(r * r, f.poly(r, _EXP), r), e)
    return f.library(unusual, value, "pow", x, y)


# -- the inverse error function --------------------------------------------------------------------

# Giles, "Approximating the erfinv function" (2010), double precision, lowest order first: in w - 3.125, sqrt(w) - 3.25
# and sqrt(w) - 5 with w = -log(1 - x^2), for w below 6.25, 16 and beyond
_ERF_INV = (
    [1.6536545626831027356, 0.24015818242558961693, -0.0060336708714301490533, -0.00074070253416626697512,
     0.0001867342080340571352, -1.3882523362786468719e-05, -1.3654692000834678645e-06, 4.2347877827932403518e-07,
     -2.9070369957882005086e-08, -4.1126339803469836976e-09, 1.051212273321532285e-09, -5.4154120542946279317e-11,
     -1.2975133253453532498e-11, 2.6335093153082322977e-12, -8.1519341976054721522e-14, -4.0545662729752068639e-14,
     6.6376381343583238325e-15, 2.0972767875968561637e-17, -1.333171662854620906e-16, 1.115787767802518096e-17,
     1.2858480715256400167e-18, -1.685059138182016589e-19, -3.6444120640178196996e-21],
    [3.0838856104922207635, 1.0052589676941592334, 0.005370914553590063617, -0.0037512085075692412107,
     0.0024914420961078508066, -0.0016882755560235047313, 0.00095328937973738049703, -0.0003550375203628474796,
     2.4031110387097893999e-05, 6.8284851459573175448e-05, -4.7318229009055733981e-05, 1.2475304481671778723e-05,
     2.9234449089955446044e-06, -4.013867526981545969e-06, 1.5027403968909827627e-06, 1.8239629214389227755e-08,
     -2.7517406297064545428e-07, 9.0756561938885390979e-08, 2.2137376921775787049e-09],
    [4.8499064014085844221, 1.0103004648645343977, -0.00013871931833623122026, -0.00021503011930044477347,
     7.5995277030017761139e-05, -1.9681778105531670567e-05, 4.5260625972231537039e-06, -9.9298272942317002539e-07,
     2.2900482228026654717e-07, -6.7711997758452339498e-08, 2.9147953450901080826e-08, -1.4960026627149240478e-08,
     7.6157012080783393804e-09, -3.7894654401267369937e-09, 1.5076572693500548083e-09, -2.5556418169965252055e-10,
     -2.7109920616438573243e-11],
)  # fmt: skip


@function
def _erf_inv(f: Body, x: V) -> V:
    w = -f.call("log1p", -(x * x))
    near = f.poly(w - 3.125, _ERF_INV[0]) * x
    return f.rare(w.compare("uge", 6.25), near, f.helper("erf_inv_tail", 2), w, x)


@function
def _erf_inv_tail(f: Body, w: V, x: V) -> V:
    root = f.unary("sqrt", w)
    far = f.poly(root - 3.25, _ERF_INV[1])
    farther = f.poly(root - 5.0, _ERF_INV[2])
    value = f.select(w < 16.0, far, farther) * x
    return f.select(w < math.inf, value, f.select(w > 0.0, x * math.inf, w))
