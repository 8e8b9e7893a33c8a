"""Problems from equations in SymPy (`pip install 'holonomix[sympy]'`)."""

from .problem import from_sympy as from_sympy
