//! Why a run cannot start or go on: a name with values. The sentences are in `core/errors.toml` of
//! Python's package. A failed transaction is data and never an error here. Knows nothing of exit
//! codes and languages: `kind` is what a face maps.

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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The case.
    pub kind: Kind,
    /// What happened, as an entry of the catalog of errors.
    pub name: &'static str,
    /// What the entry has placeholders for.
    pub values: Vec<(&'static str, Value)>,
    /// The file and line that the error is about; empty if the values tell.
    pub about: String,
}

impl Error {
    /// An error without values.
    #[must_use]
    pub fn new(kind: Kind, name: &'static str) -> Self {
        Self { kind, name, values: Vec::new(), about: String::new() }
    }

    /// The same error with a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.values.push((name, value.into()));
        self
    }

    /// The same error with the words of a library, or of the system without their number.
    #[must_use]
    pub fn because(self, error: &dyn fmt::Display) -> Self {
        self.with("why", without_numbers(error.to_string()))
    }

    /// The same error with the words and the number of the system.
    #[must_use]
    pub fn with_system(self, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => self.with("errno", i64::from(errno)).because(error),
            None => self.because(error),
        }
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
        let refused = std::io::Error::from_raw_os_error(111);
        let error = Error::new(Kind::Connect, "no-server-answers").with_system(&refused);
        assert_eq!(error.value("errno"), Some(&Value::Number(111)));
        assert_eq!(error.value("why"), Some(&"Connection refused".into()));
        let twice = format!("a: {refused}; b: {refused}, (os error ");
        let expected = "a: Connection refused; b: Connection refused, (os error ";
        assert_eq!(without_numbers(twice), expected);
    }
}
