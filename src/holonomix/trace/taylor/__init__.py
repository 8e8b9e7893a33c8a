"""Taylor series of solutions of ordinary differential equations, from ordinary JAX functions.

    coefficients = hx.taylor.series(f, z, order)      # z' = f(z): z(t + h) = sum_n coefficients[n] h^n

Every operation of `f` gives its n-th coefficient from lower ones (Moore 1966; Jorba & Zou 2005), so all coefficients up
to order N cost O(N^2) operations. Branches (`where`, `abs`, `maximum`) follow the branch that is taken at the center.
"""

from . import functions as functions
from . import products as products
from . import rules as rules
from .forms import in_two_forms as in_two_forms
from .series import Series as Series
from .series import SeriesError as SeriesError
from .series import SeriesProgram as SeriesProgram
from .series import loop as loop
from .solution import evaluate as evaluate
from .solution import series as series
