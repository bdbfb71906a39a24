"""Distribution functions that intervals and tests need, from the binding and the standard library.

They equal scipy's, which takes longer to load than a command takes to start. Probabilities are
above 0 and below 1, degrees of freedom above 0; ValueError for others.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

from pgpaces import _engine

_NORMAL = NormalDist()
chi_squared_quantile = _engine.chi_squared_quantile
fisher_above = _engine.fisher_above
# P(B <= k) of n events, each with probability p; between integers, from -1 on, by beta.
binomial_cdf = _engine.binomial_cdf


def student_cdf(freedom: float, t: float) -> float:
    """P(T <= t) of Student's distribution; t may be infinite."""
    return float(t > 0) if math.isinf(t) else _engine.student_cdf(freedom, t)


@lru_cache(1024)  # called often with few different arguments
def student_quantile(freedom: float, p: float) -> float:
    """The t with P(T <= t) = p; the normal quantile for infinite degrees of freedom."""
    return _NORMAL.inv_cdf(p) if math.isinf(freedom) else _engine.student_quantile(freedom, p)
