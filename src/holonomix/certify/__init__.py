"""Certificates: what a method promises, measured on a problem."""

import sys
import types
from typing import Any

from .certificate import Certificate as Certificate
from .certificate import Finding as Finding
from .certify import certify as certify


class _Package(types.ModuleType):
    """`hx.certify` is the function; where this package was imported first, Python puts the package under that name."""

    def __call__(self, *args: Any, **options: Any) -> Certificate:
        return certify(*args, **options)


sys.modules[__name__].__class__ = _Package
