//! Histograms of times for Python: the engine's, merged and read by rank.

use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A histogram of times in nanoseconds, 3 significant digits.
#[pyclass(module = "pgpaces._engine")]
pub struct Histogram(hdrhistogram::Histogram<u64>);

fn empty() -> hdrhistogram::Histogram<u64> {
    hdrhistogram::Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds")
}

#[pymethods]
impl Histogram {
    #[new]
    fn new() -> Self {
        Self(empty())
    }

    /// Adds an encoded histogram; empty bytes add nothing.
    fn add(&mut self, encoded: &[u8]) -> PyResult<()> {
        if encoded.is_empty() {
            return Ok(());
        }
        let wrong = |e: &dyn std::fmt::Display| {
            PyValueError::new_err(format!("not an encoded histogram: {e}"))
        };
        let mut bytes = encoded;
        let other: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes).map_err(|e| wrong(&e))?;
        self.0.add(&other).map_err(|e| wrong(&e))
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
        if rank == 0 || rank > self.0.len() {
            return None;
        }
        let mut passed = 0;
        for step in self.0.iter_recorded() {
            passed += step.count_since_last_iteration();
            if passed >= rank {
                return Some(step.value_iterated_to());
            }
        }
        None
    }
}
