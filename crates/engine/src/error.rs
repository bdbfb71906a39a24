//! Why a run cannot start or go on: a name with values. The sentences are in `core/errors.toml` of
//! Python's package. A failed transaction is data and never an error here. Knows nothing of exit
//! codes and languages: `kind` is what a face maps.

use crate::record::SqlState;
use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};

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

/// A value of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A word of the user, the server, or the system; or a sentence that pgbench defines.
    Text(String),
    /// A count.
    Number(i64),
    /// Several words.
    List(Vec<String>),
}

/// An error that ends the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The case.
    pub kind: Kind,
    /// What happened, as an entry of the catalog of errors.
    pub name: &'static str,
    /// What the entry has placeholders for.
    pub values: Vec<(&'static str, Value)>,
    /// The file and line that the error is about; empty if the values tell.
    pub about: String,
    /// What led to it, if that is an error too.
    pub cause: Option<Cause>,
}

/// The error of a library or the system that led to ours.
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn StdError + Send + Sync>);

/// Errors are compared by their values, which have the words of the cause.
impl PartialEq for Cause {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cause {}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_ref().map(|cause| &*cause.0 as &(dyn StdError + 'static))
    }
}

impl Error {
    /// An error without values.
    #[must_use]
    pub fn new(kind: Kind, name: &'static str) -> Self {
        Self { kind, name, values: Vec::new(), about: String::new(), cause: None }
    }

    /// The same error with a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.values.push((name, value.into()));
        self
    }

    /// The same error with its cause: the words of a library or of the system, and the system's
    /// number if there is one.
    #[must_use]
    pub fn because(mut self, cause: impl StdError + Send + Sync + 'static) -> Self {
        let why = without_numbers(cause.to_string());
        if let Some(errno) = errno(&cause) {
            self = self.with("errno", i64::from(errno));
        }
        self.cause = Some(Cause(Arc::new(cause)));
        self.with("why", why)
    }

    /// The same error with an error of the system that is used elsewhere too.
    #[must_use]
    pub fn with_system(self, error: &io::Error) -> Self {
        self.because(match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.kind(), error.to_string()),
        })
    }

    /// The same error with the server's code.
    #[must_use]
    pub fn with_sqlstate(self, sqlstate: SqlState) -> Self {
        self.with("sqlstate", &*String::from_utf8_lossy(&sqlstate))
    }

    /// The value of that name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Vec<&str>> for Value {
    fn from(words: Vec<&str>) -> Self {
        Self::List(words.into_iter().map(str::to_owned).collect())
    }
}

/// The number of the first error of the system among an error and its sources.
fn errno(error: &(dyn StdError + 'static)) -> Option<i32> {
    match error.downcast_ref::<io::Error>() {
        // One that wraps another does not give it as its source.
        Some(system) => system.raw_os_error().or_else(|| errno(system.get_ref()?)),
        None => errno(error.source()?),
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

/// For logs and tests; people read the sentence of the catalog.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.about.is_empty() { "" } else { ": " };
        write!(f, "{}{mark}{}", self.about, self.name)?;
        for (name, value) in &self.values {
            match value {
                Value::Text(text) => write!(f, " {name}={text}")?,
                Value::Number(number) => write!(f, " {name}={number}")?,
                Value::List(words) => write!(f, " {name}={}", words.join(","))?,
            }
        }
        Ok(())
    }
}

/// The result of everything that can end a run.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_system_are_values_of_their_own() {
        let refused = io::Error::from_raw_os_error(111);
        let error = Error::new(Kind::Connect, "no-server-answers").with_system(&refused);
        assert_eq!(error.value("errno"), Some(&Value::Number(111)));
        assert_eq!(error.value("why"), Some(&"Connection refused".into()));
        let source = StdError::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(111));
        let twice = format!("a: {refused}; b: {refused}, (os error ");
        let expected = "a: Connection refused; b: Connection refused, (os error ";
        assert_eq!(without_numbers(twice), expected);
    }

    #[test]
    fn an_error_has_a_source_and_the_number_of_the_system_behind_it() {
        let full = io::Error::from_raw_os_error(28);
        let error = Error::new(Kind::Log, "log-ended-early").because(io::Error::other(full));
        assert_eq!(error.value("errno"), Some(&Value::Number(28)));
        assert!(error.source().is_some());
        assert!(Error::new(Kind::Log, "log-ended-early").source().is_none());
    }
}
