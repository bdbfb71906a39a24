//! The one place where an engine error becomes a Python exception.

use pgpaces_engine::error::{Error, Kind};
use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

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

/// The exception for an error, with its hint.
pub fn exception(error: &Error) -> PyErr {
    Python::attach(|py| {
        let state = error.sqlstate.map(|state| String::from_utf8_lossy(&state).into_owned());
        let made = py.import("pgpaces.core.errors").and_then(|module| {
            let values = (class_name(error.kind), &error.message, &error.hint);
            let code = [("sqlstate", state)].into_py_dict(py)?;
            module.call_method("from_engine", values, Some(&code))
        });
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(_) => PyRuntimeError::new_err(error.message.clone()),
        }
    })
}
