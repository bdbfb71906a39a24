//! Histograms of times for Python: the engine's, merged and read by rank.

use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use pgpaces_engine::stored;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A histogram of times in nanoseconds, 3 significant digits.
#[pyclass(module = "pgpaces._engine")]
pub struct Histogram(hdrhistogram::Histogram<u64>);

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn damaged(why: String) -> PyErr {
    PyValueError::new_err(format!("not an encoded histogram: {why}"))
}

/// How many times an encoded histogram counts; empty bytes count none.
#[pyfunction]
pub fn histogram_count(encoded: &[u8]) -> PyResult<u64> {
    stored::count(encoded).map_err(damaged)
}

/// How many times of an encoded histogram are at most as long as each of these.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made of a Python sequence")]
pub fn histogram_counts(encoded: &[u8], values_ns: Vec<u64>) -> PyResult<Vec<u64>> {
    stored::counts_at_most(encoded, &values_ns).map_err(damaged)
}

#[pymethods]
impl Histogram {
    #[new]
    fn new() -> Self {
        Self(stored::empty())
    }

    /// Adds an encoded histogram; empty bytes add nothing.
    fn add(&mut self, encoded: &[u8]) -> PyResult<()> {
        stored::add(encoded, &mut self.0).map_err(damaged)
    }

    /// Counts one time.
    fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// The V2 encoding.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// How many times were counted.
    #[getter]
    fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time at `rank`, from 1 for the smallest; none beyond the count.
    fn value_at_rank(&self, rank: u64) -> Option<u64> {
        stored::value_at_rank(&self.0, rank)
    }
}
