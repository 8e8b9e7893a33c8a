"""Invariants of the exact motion, and their errors along a computed one."""

from .conserved import angular_momentum as angular_momentum
from .conserved import constraint_error as constraint_error
from .conserved import energy as energy
from .conserved import hidden_constraint_error as hidden_constraint_error
from .conserved import kinetic_temperature as kinetic_temperature
from .conserved import linear_momentum as linear_momentum
from .series import Trend as Trend
from .series import along as along
from .series import drift as drift
from .series import trend as trend
from .statistics import autocorrelation_time as autocorrelation_time
from .statistics import autocovariance as autocovariance
from .statistics import effective_sample_size as effective_sample_size
from .statistics import split_r_hat as split_r_hat
