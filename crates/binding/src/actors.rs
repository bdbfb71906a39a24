//! Users of other processes for Python: when they act, what became of it, and the accounts of it.

use crate::convert;
use crate::errors::exception;
use pgpaces_engine::pace::Taken;
use pgpaces_engine::record::{Batch, SqlState};
use pgpaces_engine::{actors, ledger};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn open<T>(locked: &Mutex<T>) -> MutexGuard<'_, T> {
    locked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The users of one process.
#[pyclass(frozen, module = "pgpaces._engine")]
pub struct Actors(Mutex<actors::Actors>);

#[pymethods]
impl Actors {
    #[new]
    fn new(plan: convert::PlanIn, weights: Vec<u32>, number: u32) -> PyResult<Self> {
        let made = actors::Actors::new(&plan.plan()?, &weights, number);
        made.map(|made| Self(Mutex::new(made))).map_err(|e| exception(&e))
    }

    /// The number of the first user among all, and how many there are.
    #[getter]
    fn users(&self) -> (u32, usize) {
        open(&self.0).users()
    }

    /// Whether a transaction of an open load is this generator's.
    fn owns(&self, number: u64) -> bool {
        open(&self.0).owns(number)
    }

    /// When a user acts next, and what it does.
    #[pyo3(signature = (user, since_ns, end_ns, number = 0))]
    fn next(&self, user: usize, since_ns: i64, end_ns: i64, number: u64) -> Option<(i64, u16)> {
        let due = open(&self.0).next(user, since_ns, end_ns, number);
        due.map(|due| (due.at, due.script))
    }

    /// A user is to act now; false where it is too late.
    fn start(&self, user: usize, since_ns: i64, now_ns: i64) -> bool {
        open(&self.0).start(user, since_ns, now_ns)
    }

    /// What it did is done.
    #[pyo3(signature = (user, now_ns, failure = None))]
    fn end(&self, user: usize, now_ns: i64, failure: Option<SqlState>) {
        open(&self.0).end(user, now_ns, failure);
    }

    /// What a failure says.
    fn message(&self, failure: SqlState, text: &str) {
        open(&self.0).message(failure, text);
    }

    /// What a function prints.
    fn say(&self, text: String) {
        open(&self.0).say(text);
    }

    /// What is not done now stays unfinished.
    fn abandon(&self, now_ns: i64, end_ns: i64) {
        open(&self.0).abandon(now_ns, end_ns);
    }

    /// The seconds that are over at this time, as bytes.
    fn fetch(&self, py: Python<'_>, now_ns: i64, cpu_ns: u64) -> Vec<Py<PyBytes>> {
        let mut actors = open(&self.0);
        actors.rotate(now_ns);
        packed(py, actors.fetch(cpu_ns))
    }

    /// The same with the last one.
    fn fetch_last(&self, py: Python<'_>, now_ns: i64, cpu_ns: u64) -> Vec<Py<PyBytes>> {
        packed(py, open(&self.0).fetch_last(now_ns, cpu_ns))
    }
}

fn packed(py: Python<'_>, batches: Vec<Batch>) -> Vec<Py<PyBytes>> {
    batches.iter().map(|batch| PyBytes::new(py, &batch.to_bytes()).unbind()).collect()
}

/// The accounts of a load of users.
#[pyclass(frozen, module = "pgpaces._engine")]
pub struct Ledger(Mutex<ledger::Ledger>);

#[pymethods]
impl Ledger {
    #[new]
    fn new(plan: convert::PlanIn, weights: Vec<u32>) -> PyResult<Self> {
        let made = actors::ledger(&plan.plan()?, &weights);
        made.map(|made| Self(Mutex::new(made))).map_err(|e| exception(&e))
    }

    /// The next second, of which each process has told this.
    fn interval(
        &self,
        py: Python<'_>,
        told: Vec<Vec<u8>>,
        end_ns: i64,
    ) -> PyResult<convert::Interval> {
        let interval = open(&self.0).interval(&mut unpacked(&told)?, end_ns);
        convert::Interval::new(py, interval)
    }

    /// The last second. taken: of an open load, up to which number; lost: a process went down.
    fn last(
        &self,
        py: Python<'_>,
        told: Vec<Vec<u8>>,
        end_ns: i64,
        taken: u64,
        lost: bool,
    ) -> PyResult<convert::Interval> {
        let mut ledger = open(&self.0);
        let mut interval = ledger.last(&mut unpacked(&told)?, end_ns, &Taken::until(taken));
        if lost {
            ledger.write_off(&mut interval);
        }
        convert::Interval::new(py, interval)
    }
}

fn unpacked(told: &[Vec<u8>]) -> PyResult<Vec<Batch>> {
    told.iter().map(|bytes| Batch::from_bytes(bytes).map_err(|e| exception(&e))).collect()
}
