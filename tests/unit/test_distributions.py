"""The binding's distribution functions say what scipy's say."""

import math
from contextlib import nullcontext

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from pgpaces import _engine
from pgpaces.analysis import stats

FREEDOM = st.floats(1.0, 1e6)
P = st.floats(1e-4, 1 - 1e-4)


def close(found, expected):
    return math.isclose(found, expected, rel_tol=1e-7, abs_tol=1e-9)


@given(FREEDOM, st.floats(-40, 40))
def test_students_distribution(freedom, t):
    assert close(stats.student_cdf(freedom, t), scipy.special.stdtr(freedom, t))


@given(FREEDOM, P)
def test_students_quantile(freedom, p):
    assert close(stats.student_quantile(freedom, p), scipy.special.stdtrit(freedom, p))
    assert close(stats.student_quantile(math.inf, p), scipy.special.ndtri(p))


@given(st.integers(1, 3_000_000), st.data(), P)
def test_the_binomial_distribution(n, data, p):
    spread = 6 * math.sqrt(n * p * (1 - p)) + 2
    k = data.draw(st.integers(max(0, int(n * p - spread)), min(n, int(n * p + spread))))
    assert close(stats.binomial_cdf(k, n, p), scipy.special.bdtr(k, n, p))
    assert stats.binomial_cdf(-1, n, p) == 0
    assert 0 <= stats.binomial_cdf(-0.5, n, p) <= stats.binomial_cdf(0, n, p)


@given(FREEDOM, P)
def test_the_chi_squared_quantile(freedom, p):
    assert close(stats.chi_squared_quantile(freedom, p), scipy.special.chdtri(freedom, 1 - p))


@given(st.integers(1, 100), st.integers(1, 100), st.floats(0.1, 20))
def test_fishers_distribution(above, below, x):
    assert close(_engine.fisher_above(above, below, x), scipy.special.fdtrc(above, below, x))


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, math.nan])
def test_what_is_no_probability_or_no_degree_of_freedom_is_refused(wrong):
    with pytest.raises(ValueError, match="must be a probability"):
        stats.student_quantile(3, wrong)
    with pytest.raises(ValueError, match="must be positive") if wrong != 1.0 else nullcontext():
        stats.student_cdf(wrong, 1.0)
