//! The one place where an engine error becomes a Python exception.

use pgpaces_engine::error::{Error, Kind};
use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

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
        let made = py
            .import("pgpaces.core.errors")
            .and_then(|module| module.getattr(class_name(error.kind)))
            .and_then(|class| match error.sqlstate {
                None => class.call1((error.message.as_str(), error.hint.as_deref())),
                Some(state) => {
                    let state = String::from_utf8_lossy(&state);
                    class.call1((error.message.as_str(), error.hint.as_deref(), state))
                }
            });
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(_) => PyRuntimeError::new_err(error.message.clone()),
        }
    })
}
