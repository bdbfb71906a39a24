//! Distributions for confidence intervals and tests, from CEPHES, as scipy has them: scipy itself takes
//! longer to load than a whole command. tests/unit/test_distributions.py holds them against it.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use spec_math::cephes64::{chdtri, fdtrc, incbet, incbi};

fn positive(value: f64) -> PyResult<f64> {
    if value > 0.0 && value.is_finite() {
        Ok(value)
    } else {
        Err(PyValueError::new_err(format!("{value} must be positive and finite")))
    }
}

fn inside(p: f64) -> PyResult<f64> {
    if p > 0.0 && p < 1.0 {
        Ok(p)
    } else {
        Err(PyValueError::new_err(format!("{p} must be a probability between 0 and 1")))
    }
}

/// P(T <= t) of Student's distribution.
#[pyfunction]
pub fn student_cdf(freedom: f64, t: f64) -> PyResult<f64> {
    let freedom = positive(freedom)?;
    let square = t * t;
    // Of the middle or of the tail, whichever is small: nothing is lost.
    let tail = if square < 1.0 {
        0.5 - 0.5 * incbet(0.5, 0.5 * freedom, square / (freedom + square))
    } else {
        0.5 * incbet(0.5 * freedom, 0.5, freedom / (freedom + square))
    };
    Ok(if t < 0.0 { tail } else { 1.0 - tail })
}

/// The t with P(T <= t) = p.
#[pyfunction]
pub fn student_quantile(freedom: f64, p: f64) -> PyResult<f64> {
    let (freedom, p) = (positive(freedom)?, inside(p)?);
    // t^2 / (freedom + t^2) is of a beta distribution: nothing is lost where t is small.
    let x = incbi(0.5, 0.5 * freedom, (1.0 - 2.0 * p).abs());
    let t = (freedom * x / (1.0 - x)).sqrt();
    Ok(if p < 0.5 { -t } else { t })
}

/// P(B <= k) of n events, each with probability p; between integers by the beta distribution.
#[pyfunction]
pub fn binomial_cdf(k: f64, n: f64, p: f64) -> PyResult<f64> {
    let p = inside(p)?;
    match k {
        _ if k <= -1.0 => Ok(0.0),
        _ if k >= n => Ok(1.0),
        _ => Ok(incbet(n - k, k + 1.0, 1.0 - p)),
    }
}

/// The x with P(X <= x) = p of the chi-squared distribution.
#[pyfunction]
pub fn chi_squared_quantile(freedom: f64, p: f64) -> PyResult<f64> {
    Ok(chdtri(positive(freedom)?, 1.0 - inside(p)?))
}

/// P(F > x) of the ratio of two variances with these degrees of freedom.
#[pyfunction]
pub fn fisher_above(above: f64, below: f64, x: f64) -> PyResult<f64> {
    Ok(fdtrc(positive(above)?, positive(below)?, positive(x)?))
}
