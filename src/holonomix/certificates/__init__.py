"""Certificates: what a method promises, measured on a problem."""

from .certificate import Certificate as Certificate
from .certificate import Finding as Finding
from .certification import certify as certify
