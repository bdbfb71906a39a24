//! `pgpaces._engine`: the engine for Python. Nothing else knows PyO3. Python is entered once an
//! interval; while the engine works, the GIL is released. Only users that are Python functions
//! (`Actors`) call it for every action. Documented in `_engine.pyi`.

mod actors;
mod convert;
mod distributions;
mod errors;
mod histogram;

use errors::{exception, unraised};
use pgpaces_engine::conninfo::{self, ProcessEnvironment};
use pgpaces_engine::error::Error;
use pgpaces_engine::script::{Action, Scripts};
use pgpaces_engine::{rehearsal, route, run};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Resolved connection parameters.
#[pyclass(frozen, module = "pgpaces._engine")]
struct Conninfo(conninfo::Conninfo);

#[pymethods]
impl Conninfo {
    /// Every keyword that has a value. Empty ones keep the variables of libpq out.
    fn keywords(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(keyword, value)| (keyword.to_owned(), value.to_owned())).collect()
    }

    /// Settings that were ignored despite their purpose.
    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.0.warnings.iter().map(|error| unraised(py, error)).collect()
    }

    /// The password of all hosts, if they have one in common.
    fn password(&self) -> PyResult<Option<String>> {
        let mut endpoints = self.0.endpoints().map_err(|e| exception(&e))?.into_iter();
        let first = endpoints.next().and_then(|endpoint| endpoint.password);
        Ok(first.filter(|own| endpoints.all(|other| other.password.as_ref() == Some(own))))
    }
}

/// Resolves a connection string as libpq does.
#[pyfunction]
fn resolve(dsn: &str, overrides: BTreeMap<String, String>) -> PyResult<Conninfo> {
    let pairs: Vec<(&str, &str)> =
        overrides.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    conninfo::resolve(dsn, &pairs, &ProcessEnvironment).map(Conninfo).map_err(|e| exception(&e))
}

/// The way to a server that was found to work.
#[pyclass(frozen, module = "pgpaces._engine")]
struct Route(route::Route);

#[pymethods]
impl Route {
    #[getter]
    fn server_version(&self) -> &str {
        &self.0.server_version
    }

    /// Why the connection is not encrypted, if it was to be where possible.
    #[getter]
    fn unencrypted<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.unencrypted.as_ref().map(|error| unraised(py, error)).transpose()
    }

    #[getter]
    fn address(&self) -> String {
        route::shown(&self.0.address)
    }
}

/// How often a wait looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// What work returns that may wait for a server. Ctrl-C ends the wait at once; what the work opens
/// is closed when it is done.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    std::thread::Builder::new()
        .spawn(move || sender.send(work()))
        .map_err(|e| exception(&run::not_started(&e)))?;
    loop {
        let heard;
        (heard, receiver) = py.detach(move || (receiver.recv_timeout(LOOK), receiver));
        match heard {
            Ok(done) => return done.map_err(|e| exception(&e)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception(&run::panicked()));
            }
        }
    }
}

/// Logs in once to find the way to a server.
#[pyfunction]
fn find_route(py: Python<'_>, conninfo: &Conninfo) -> PyResult<Route> {
    let conninfo = conninfo.0.clone();
    interruptible(py, move || route::find(&conninfo)).map(Route)
}

/// The commands of a script: line, first line of text, and whether it is SQL. Whether its SQL is to
/// be sent with parameters, of which there must not be too many.
#[pyfunction]
#[pyo3(signature = (name, text, parameters = false))]
fn parse_script(
    py: Python<'_>,
    name: &str,
    text: &Bound<'_, PyAny>,
    parameters: bool,
) -> PyResult<Vec<(u32, Py<PyBytes>, bool)>> {
    let mut scripts = Scripts::default();
    scripts.add(name, 1, in_place(text)?).map_err(|e| exception(&e))?;
    if parameters {
        scripts.check_parameters().map_err(|e| exception(&e))?;
    }
    let commands = scripts.list.remove(0).commands.into_iter();
    let shown = |text: &[u8]| PyBytes::new(py, text).unbind();
    Ok(commands.map(|c| (c.line, shown(&c.text), matches!(c.action, Action::Sql(_)))).collect())
}

/// The bytes of a text, or bytes, without a copy.
fn in_place<'a>(text: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    match text.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.as_bytes()),
        Err(_) => Ok(text.cast::<PyBytes>()?.as_bytes()),
    }
}

/// The SQL of one execution of a script: the place of each command, and its text.
#[pyfunction]
fn rehearse(
    py: Python<'_>,
    name: &str,
    text: &[u8],
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    seed: u64,
) -> PyResult<Vec<(usize, Py<PyBytes>)>> {
    let found = rehearsal::rehearse(name, text, &variables, seed).map_err(|e| exception(&e))?;
    let bytes = |text: Vec<u8>| PyBytes::new(py, &text).unbind();
    Ok(found.into_iter().map(|(place, text)| (place, bytes(text))).collect())
}

/// A load whose clients are connected, or that is going on.
#[pyclass(frozen, module = "pgpaces._engine")]
struct Run {
    run: Mutex<run::Run>,
    handle: run::Handle,
    #[pyo3(get)]
    connect_ns: u64,
    #[pyo3(get)]
    poll: &'static str,
}

#[pymethods]
impl Run {
    /// Connects all clients.
    #[new]
    fn new(
        py: Python<'_>,
        plan: convert::PlanIn,
        scripts: Vec<(String, u32, PyBackedBytes)>,
        route: &Route,
    ) -> PyResult<Self> {
        let (plan, route) = (plan.plan()?, route.0.clone());
        let mut parsed = Scripts::default();
        for (name, weight, text) in &scripts {
            parsed.add(name, *weight, text).map_err(|e| exception(&e))?;
        }
        let run = interruptible(py, move || run::Run::connect(&plan, parsed, route))?;
        let connect_ns = u64::try_from(run.connect_time.as_nanos()).unwrap_or(u64::MAX);
        let poll = run.poll.name();
        Ok(Self { handle: run.handle(), run: Mutex::new(run), connect_ns, poll })
    }

    /// Starts the load `ahead_ns` nanoseconds from now.
    fn begin(&self, ahead_ns: u64) {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        run.begin(Duration::from_nanos(ahead_ns));
    }

    /// The next second; none when the trial is over.
    fn next_interval(&self, py: Python<'_>) -> PyResult<Option<convert::Interval>> {
        let next =
            py.detach(|| self.run.lock().unwrap_or_else(PoisonError::into_inner).next_interval());
        match next.map_err(|e| exception(&e))? {
            None => Ok(None),
            Some(interval) => convert::Interval::new(py, interval).map(Some),
        }
    }

    /// Lets nothing new fall due.
    fn stop(&self) {
        self.handle.stop();
    }

    /// Ends at once.
    fn abort(&self) {
        self.handle.abort();
    }

    /// When nothing new falls due any more.
    #[getter]
    fn end_ns(&self) -> i64 {
        self.handle.end()
    }
}

/// The load engine.
#[pymodule(name = "_engine")]
fn engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Conninfo>()?;
    module.add_class::<Route>()?;
    module.add_class::<Run>()?;
    module.add_class::<actors::Actors>()?;
    module.add_class::<actors::Ledger>()?;
    module.add_class::<histogram::Histogram>()?;
    module.add_class::<convert::Interval>()?;
    module.add_class::<convert::Tally>()?;
    module.add_class::<convert::StatementTally>()?;
    module.add_class::<convert::Times>()?;
    module.add_function(wrap_pyfunction!(histogram::histogram_count, module)?)?;
    module.add_function(wrap_pyfunction!(histogram::histogram_counts, module)?)?;
    module.add_function(wrap_pyfunction!(distributions::student_cdf, module)?)?;
    module.add_function(wrap_pyfunction!(distributions::student_quantile, module)?)?;
    module.add_function(wrap_pyfunction!(distributions::binomial_cdf, module)?)?;
    module.add_function(wrap_pyfunction!(distributions::chi_squared_quantile, module)?)?;
    module.add_function(wrap_pyfunction!(distributions::fisher_above, module)?)?;
    module.add_function(wrap_pyfunction!(resolve, module)?)?;
    module.add_function(wrap_pyfunction!(find_route, module)?)?;
    module.add_function(wrap_pyfunction!(parse_script, module)?)?;
    module.add_function(wrap_pyfunction!(rehearse, module)?)?;
    Ok(())
}
