"""Measurements: certificates of declared properties, comparisons of methods, stability and stiff limits."""

from ...mechanics.projection import penalty_multipliers as penalty_multipliers
from .certificate import Certificate as Certificate
from .certificate import Finding as Finding
from .certification import certify as certify
from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .limits import LimitStudy as LimitStudy
from .limits import limit_study as limit_study
from .stability import LinearStability as LinearStability
from .stability import StabilityMap as StabilityMap
from .stability import linear_stability as linear_stability
from .stability import stability_map as stability_map
