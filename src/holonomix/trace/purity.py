"""The names that a user's function may use and still be known to compute the same: an allow list.

Everything here computes its result from its arguments alone. A function that uses another name is traced in each run.
"""

from __future__ import annotations

import builtins
import cmath
import functools
import importlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

import jaxtyping

BUILTINS = """
    abs all any bool bytes callable complex dict divmod enumerate filter float frozenset int isinstance issubclass iter
    len list map max min pow range reversed round set slice sorted str sum tuple type zip Ellipsis NotImplemented
    property staticmethod classmethod
""".split()

# The same names in NumPy and in jax.numpy, where they exist.
ARRAYS = """
    abs absolute acos acosh add all allclose amax amin angle any append apply_along_axis arange arccos arccosh
    arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere around array array_equal asarray asin asinh
    astype atan atan2 atanh atleast_1d atleast_2d atleast_3d average block broadcast_arrays broadcast_to cbrt ceil
    choose clip column_stack complex128 complex64 compress concatenate concat conj conjugate convolve copysign
    correlate cos cosh count_nonzero cov cross cumprod cumsum cumulative_sum deg2rad degrees delete diag
    diag_indices diagflat diagonal diff digitize divide divmod dot dstack dtype ediff1d einsum empty empty_like
    equal exp exp2 expand_dims expm1 eye fabs fill_diagonal flatnonzero flip fliplr flipud float32 float64
    float_power floor floor_divide fmax fmin fmod full full_like geomspace gradient greater greater_equal heaviside
    hsplit hstack hypot identity imag indices inner insert int32 int64 bool_ interp invert isclose isfinite isinf
    isnan issubdtype ix_ kron less less_equal linspace log log10 log1p log2 logaddexp logaddexp2 logical_and
    logical_not logical_or logical_xor logspace matmul matrix_transpose matvec max maximum mean median meshgrid min
    minimum mod moveaxis multiply nan_to_num nanmax nanmin nansum ndim negative nextafter nonzero not_equal ones
    ones_like outer pad permute_dims piecewise poly polyadd polyder polyfit polyint polymul polyval positive pow
    power prod ptp quantile rad2deg radians ravel real reciprocal remainder repeat reshape result_type roll rollaxis
    rot90 round searchsorted select shape sign signbit sin sinc sinh size sort split sqrt square squeeze stack std
    subtract sum swapaxes take take_along_axis tan tanh tensordot tile trace transpose trapezoid tri tril
    tril_indices triu triu_indices true_divide trunc unravel_index unwrap vander var vdot vecdot vecmat vectorize
    vsplit vstack where zeros zeros_like i0 fft ifft ndarray floating integer inexact number bitwise_and bitwise_or
    bitwise_xor left_shift right_shift finfo iinfo
""".split()
LINALG = """
    cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power matrix_rank
    matrix_transpose multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()
LAX = """
    abs acos acosh add asin asinh associative_scan atan atan2 atanh batch_matmul broadcast broadcast_in_dim cbrt ceil
    clamp complex concatenate cond conj cos cosh cumlogsumexp cummax cummin cumprod cumsum custom_root div dot
    dot_general dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_slice erf erf_inv erfc exp exp2
    expm1 floor fori_loop full gather imag index_in_dim integer_pow is_finite lgamma log log1p logistic map max min mul
    ne neg pad pow real reciprocal reduce rem reshape rev round rsqrt scan select select_n sign sin sinh slice
    slice_in_dim sort sqrt square squeeze stop_gradient sub switch tan tanh top_k transpose while_loop zeros_like_array
""".split()
NN = "celu elu gelu glu hard_sigmoid leaky_relu log_sigmoid log_softmax one_hot relu selu sigmoid silu softmax softplus"
SPECIAL = """
    bernoulli betainc betaln digamma ellipj ellipk ellipe entr erf erfc erfinv exp1 expi expit expn factorial gamma
    gammainc gammaincc gammaln i0 i0e i1 i1e j0 j1 jn_zeros jv kl_div log_ndtr logit logsumexp ndtr ndtri polygamma
    rel_entr softmax spence xlog1py xlogy zeta
""".split()
TRANSFORMS = """
    checkpoint custom_jvp custom_vjp grad hessian jacfwd jacobian jacrev jit jvp linear_transpose linearize remat
    value_and_grad vjp vmap Array ShapeDtypeStruct
""".split()
RANDOM = """
    PRNGKey key split fold_in normal uniform bernoulli choice exponential gamma permutation randint multivariate_normal
    truncated_normal rademacher key_data wrap_key_data
""".split()
# Without attrgetter and methodcaller, which reach any attribute, such as the globals of a function.
OPERATORS = """
    abs add and_ call concat contains countOf eq floordiv ge getitem gt iadd iand iconcat ifloordiv ilshift imatmul imod
    imul index indexOf inv invert ior ipow irshift is_ is_not isub itemgetter itruediv ixor le length_hint lshift lt
    matmul mod mul ne neg not_ or_ pos pow rshift setitem sub truediv truth xor
""".split()
TREES = "leaves map reduce structure flatten unflatten all tree_map tree_leaves tree_reduce tree_flatten tree_unflatten"

NAMES: dict[str, Sequence[str]] = {
    "numpy": ARRAYS,
    "numpy.linalg": LINALG,
    "jax.numpy": ARRAYS,
    "jax.numpy.linalg": LINALG,
    "jax.lax": LAX,
    "jax.lax.linalg": LINALG,
    "jax.nn": NN.split(),
    "jax.scipy.special": SPECIAL,
    "jax.scipy.linalg": ["block_diag", "cho_factor", "cho_solve", "expm", "lu_factor", "lu_solve", "solve_triangular"],
    "scipy.special": SPECIAL,
    "jax": TRANSFORMS,
    "jax.random": RANDOM,
    "jax.tree": TREES.split(),
    "jax.tree_util": TREES.split(),
    "operator": OPERATORS,
}
_WHOLE = (math, cmath, itertools)  # modules of functions without state
_ROOT = Path(__file__).parents[1]
_CHECKS = Path(str(jaxtyping.__file__)).parent

# Parts of this package whose functions read nothing but their arguments.
OURS = tuple(f"holonomix.{name}" for name in ("core.types", "linalg", "mechanics", "methods", "trace"))
OURS += tuple(
    f"holonomix.build.models.{name}" for name in ("alkanes", "bodies", "linkages", "machines", "orbital", "rod")
)
OURS += tuple(f"holonomix.build.models.{name}" for name in ("oscillators", "pendula", "stiff", "surfaces", "water"))
OURS += tuple(f"holonomix.build.mechanisms.{name}" for name in ("bodies", "forces", "forms", "joints", "mechanism"))
OURS += tuple(f"holonomix.build.mechanisms.{name}" for name in ("shapes", "terms", "tree", "velocities"))

# Attributes of arrays, of containers and of what `x.at[k]` gives. An attribute may be a property of a user's class.
ATTRIBUTES = frozenset(
    """
    T mT at set add multiply divide power min max apply get mul shape size ndim dtype real imag conj conjugate sum prod
    mean std var dot all any argmax argmin argsort astype clip copy cumprod cumsum diagonal flatten flat ravel reshape
    repeat round sort squeeze swapaxes take trace transpose tolist item fill nonzero searchsorted
    append extend insert pop items keys values index count update union intersection difference
    """.split()
)


@functools.cache
def allowed() -> dict[int, object]:
    """Everything on the list, by identity; the objects are kept, so that no identity is reused."""
    found: list[object] = [getattr(builtins, name) for name in BUILTINS]
    found += [x for x in vars(builtins).values() if isinstance(x, type) and issubclass(x, BaseException)]
    found += [x for module in _WHOLE for name, x in vars(module).items() if not name.startswith("_") and callable(x)]
    found += [functools.reduce, functools.partial]
    for name, names in NAMES.items():
        module = _module(name)
        found += [getattr(module, x) for x in names if hasattr(module, x)]
    return {id(x): x for x in found}


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # SciPy is optional
        return None


@functools.lru_cache(4096)
def home(code: CodeType) -> str:
    """The module of this package that a function's code was written in; empty for others.

    Found from the file, because `__module__` and `__wrapped__` can be set, and decorators copy them.
    """
    file = Path(code.co_filename)
    return ".".join((_ROOT.name, *file.relative_to(_ROOT).with_suffix("").parts)) if _ROOT in file.parents else ""


@functools.lru_cache(4096)
def is_pure(code: CodeType) -> bool:
    """Whether code belongs to one of our functions that read only their arguments and the values they close over."""
    module = home(code)
    return any(module == name or module.startswith(name + ".") for name in OURS)


@functools.lru_cache(4096)
def is_type_check(code: CodeType) -> bool:
    """Whether a wrapper is one of jaxtyping's; any other may compute something else than what it wraps."""
    return _CHECKS in Path(code.co_filename).parents
