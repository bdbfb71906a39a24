//! Why a run cannot start or go on, each with a hint. A failed transaction is data and never
//! an error here. Knows nothing of exit codes and languages: `kind` is what a face maps.

use crate::record::SqlState;
use std::fmt;

/// What went wrong, as far as a caller must tell cases apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value of the plan is impossible.
    Plan,
    /// A script does not parse, or cannot run as written.
    Script,
    /// A connection string, service or password file cannot be used.
    Conninfo,
    /// No server answers, or it answers something that is not PostgreSQL.
    Connect,
    /// The server does not let us in: password, role, pg_hba.conf.
    Auth,
    /// The database asked for does not exist.
    NoDatabase,
    /// The server has no free connection left.
    TooManyConnections,
    /// TLS cannot be set up or the certificate cannot be verified.
    Tls,
    /// A client gave up, and the plan says that the run ends then.
    Aborted,
    /// The first transactions of the scripts all fail in a way that comes again.
    Hopeless,
    /// The log of transactions ends early: the disk does not take it. The load itself is complete.
    Log,
    /// The operating system refuses something we need (threads, files, memory).
    System,
}

/// An error that ends the run: what was found, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The case.
    pub kind: Kind,
    /// What was found and what was expected, as one sentence without a final full stop.
    pub message: String,
    /// What to do, where we know it.
    pub hint: Option<String>,
    /// The server's code, if it refused something.
    pub sqlstate: Option<SqlState>,
}

impl Error {
    /// An error without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: without_numbers(message.into()), hint: None, sqlstate: None }
    }

    /// The same error with the server's code.
    #[must_use]
    pub fn with_sqlstate(mut self, sqlstate: SqlState) -> Self {
        self.sqlstate = Some(sqlstate);
        self
    }

    /// The same error with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A message with the texts of the system's errors, without their numbers.
pub(crate) fn without_numbers(mut message: String) -> String {
    while let Some(at) = message.find(" (os error ") {
        let Some(length) = message[at..].find(')') else { break };
        message.replace_range(at..=at + length, "");
    }
    message
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The result of everything that can end a run.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_system_are_left_out() {
        let refused = std::io::Error::from_raw_os_error(111);
        let error = Error::new(Kind::Connect, format!("a: {refused}; b: {refused}, (os error "));
        assert_eq!(error.message, "a: Connection refused; b: Connection refused, (os error ");
    }
}
