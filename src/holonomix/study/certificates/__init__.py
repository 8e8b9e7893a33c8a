"""Certificates: what a method promises, measured on a problem."""

from .certificate import Certificate as Certificate
from .certificate import Finding as Finding
from .certification import certify as certify
from .comparison import Comparison as Comparison
from .comparison import compare as compare
