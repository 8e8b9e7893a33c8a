"""Certificates: what a method promises, measured on a problem."""

from .certificate import Certificate as Certificate
from .certificate import Finding as Finding
from .certify import certify as certify
