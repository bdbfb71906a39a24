//! The one place where an engine error becomes a Python exception.

use pgpaces_engine::error::{Error, Kind, Value};
use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The class of `pgpaces.core.errors` that stands for a kind.
fn class_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Plan => "PlanError",
        Kind::Script => "ScriptError",
        Kind::Conninfo | Kind::Connect => "ServerError",
        Kind::Auth => "AuthError",
        Kind::NoDatabase => "DatabaseAbsentError",
        Kind::TooManyConnections => "ConnectionsError",
        Kind::Tls => "TlsError",
        Kind::Log => "LogError",
        Kind::Aborted | Kind::System => "RunError",
        Kind::Hopeless => "HopelessError",
    }
}

/// The exception for an error, which is not raised yet.
pub fn unraised<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let values = PyDict::new(py);
    for (name, value) in &error.values {
        match value {
            Value::Text(text) => values.set_item(name, text)?,
            Value::Number(number) => values.set_item(name, number)?,
            Value::List(words) => values.set_item(name, words)?,
        }
    }
    let module = py.import("pgpaces.core.errors")?;
    let parts = (class_name(error.kind), error.name, values);
    module.call_method1("from_engine", parts)?.call_method1("at", (&error.about,))
}

/// The sentence of an error.
pub fn sentence(py: Python<'_>, error: &Error) -> PyResult<String> {
    unraised(py, error)?.getattr("message")?.extract()
}

/// The exception for an error.
pub fn exception(error: &Error) -> PyErr {
    Python::attach(|py| match unraised(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyRuntimeError::new_err(error.to_string()),
    })
}
