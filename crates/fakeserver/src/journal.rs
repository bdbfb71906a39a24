//! What the server saw: counts, the last messages with SQL in them, and a file of all of them.
//! Knows no sockets; times are arguments.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::json;
use crate::sql::{Parameters, Query};

/// Entries that `log` gives back.
const LOGGED: usize = 100;
/// Characters of a query that counts go by.
const COUNTED_CHARACTERS: usize = 200;

/// How a text came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// A Query message.
    Simple,
    /// A Parse message.
    Parse,
    /// An Execute message.
    Execute,
}

impl Manner {
    fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Parse => "parse",
            Self::Execute => "execute",
        }
    }
}

/// One message with SQL in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When it came in, since the server started.
    pub at: Duration,
    /// Which connection it came from; they are numbered from 1 in order of arrival.
    pub connection: u64,
    /// How it came in.
    pub manner: Manner,
    /// The name of the prepared statement; empty for the unnamed one and for simple queries.
    pub statement: String,
    /// The text.
    pub sql: String,
    /// Values of `$1`, `$2`, ... as text; `None` is NULL.
    pub parameters: Vec<Option<String>>,
}

impl LogEntry {
    /// The entry as one line of JSON.
    pub fn to_json(&self) -> String {
        let parameters = self
            .parameters
            .iter()
            .map(|parameter| parameter.as_deref().map_or_else(|| "null".to_owned(), json::string));
        json::object([
            ("at_s", format!("{:.6}", self.at.as_secs_f64())),
            ("connection", self.connection.to_string()),
            ("manner", json::string(self.manner.name())),
            ("statement", json::string(&self.statement)),
            ("sql", json::string(&self.sql)),
            ("parameters", json::array(parameters)),
        ])
    }
}

/// Counts since the server started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections open now.
    pub open: usize,
    /// Connections accepted so far, also those that only cancelled or never logged in.
    pub accepted: u64,
    /// Connections that came as far as their first ReadyForQuery.
    pub logged_in: u64,
    /// Statements executed so far.
    pub statements: u64,
    /// Statements in service now.
    pub in_service: usize,
    /// Statements waiting for a server now.
    pub waiting: usize,
    /// Errors sent.
    pub errors: u64,
    /// Statements that a cancel request ended.
    pub cancelled: u64,
    /// Bytes read from clients.
    pub bytes_received: u64,
    /// Bytes written to clients.
    pub bytes_sent: u64,
    /// Client messages by their type.
    pub messages: BTreeMap<char, u64>,
    /// Executions by text, the first 200 characters of it.
    pub queries: BTreeMap<String, u64>,
}

impl Stats {
    /// The counts as one line of JSON.
    pub fn to_json(&self) -> String {
        let numbers = [
            ("open", self.open as u64),
            ("accepted", self.accepted),
            ("logged_in", self.logged_in),
            ("statements", self.statements),
            ("in_service", self.in_service as u64),
            ("waiting", self.waiting as u64),
            ("errors", self.errors),
            ("cancelled", self.cancelled),
            ("bytes_received", self.bytes_received),
            ("bytes_sent", self.bytes_sent),
        ];
        let maps =
            [("messages", json::object(&self.messages)), ("queries", json::object(&self.queries))];
        let pairs = numbers.map(|(name, number)| (name, number.to_string()));
        json::object(pairs.into_iter().chain(maps))
    }
}

/// What one connection says of a message with SQL in it.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) connection: u64,
    pub(crate) manner: Manner,
    pub(crate) statement: &'a [u8],
    pub(crate) query: &'a Rc<Query>,
    pub(crate) parameters: &'a Parameters,
}

#[derive(Debug)]
struct Logged {
    at: Instant,
    connection: u64,
    manner: Manner,
    statement: Box<[u8]>,
    query: Rc<Query>,
    parameters: Parameters,
}

/// Keeps the counts, the log and the record.
#[derive(Debug)]
pub(crate) struct Journal {
    started: Instant,
    /// Counts; texts and message types are filled in when they are asked for.
    pub(crate) stats: Stats,
    messages: [u64; 256],
    log: VecDeque<Logged>,
    record: Option<BufWriter<File>>,
}

impl Journal {
    pub(crate) fn open(record: Option<&Path>, now: Instant) -> io::Result<Self> {
        let open = |path| OpenOptions::new().append(true).create(true).open(path);
        Ok(Self {
            started: now,
            stats: Stats::default(),
            messages: [0; 256],
            log: VecDeque::with_capacity(LOGGED),
            record: record.map(open).transpose()?.map(BufWriter::new),
        })
    }

    pub(crate) fn count_message(&mut self, kind: u8) {
        self.messages[usize::from(kind)] += 1;
    }

    /// Logs and records a message with SQL in it.
    pub(crate) fn note(&mut self, entry: Entry<'_>, at: Instant) {
        if self.log.len() == LOGGED {
            self.log.pop_front();
        }
        let logged = Logged {
            at,
            connection: entry.connection,
            manner: entry.manner,
            statement: entry.statement.into(),
            query: Rc::clone(entry.query),
            parameters: Rc::clone(entry.parameters),
        };
        if let Some(record) = &mut self.record {
            let line = logged.entry(self.started).to_json();
            // A full disk must not change what clients see; the reader of the record will see it.
            let _ = writeln!(record, "{line}");
        }
        self.log.push_back(logged);
    }

    /// Writes what is recorded so far to the file.
    pub(crate) fn flush(&mut self) {
        if let Some(record) = &mut self.record {
            let _ = record.flush();
        }
    }

    /// The last messages with SQL in them, oldest first.
    pub(crate) fn log(&self) -> Vec<LogEntry> {
        self.log.iter().map(|logged| logged.entry(self.started)).collect()
    }

    /// The counts, with those of `queries`: texts and their executions.
    pub(crate) fn stats<'a>(&self, queries: impl Iterator<Item = (&'a str, u64)>) -> Stats {
        let mut stats = self.stats.clone();
        for (kind, &count) in (0_u8..=255).zip(&self.messages).filter(|(_, count)| **count > 0) {
            stats.messages.insert(char::from(kind), count);
        }
        for (text, executed) in queries.filter(|(_, executed)| *executed > 0) {
            let text = text.chars().take(COUNTED_CHARACTERS).collect();
            *stats.queries.entry(text).or_default() += executed;
        }
        stats
    }
}

impl Logged {
    fn entry(&self, started: Instant) -> LogEntry {
        LogEntry {
            at: self.at.saturating_duration_since(started),
            connection: self.connection,
            manner: self.manner,
            statement: String::from_utf8_lossy(&self.statement).into_owned(),
            sql: self.query.text.to_string(),
            parameters: self.parameters.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_last_hundred() {
        let now = Instant::now();
        let mut journal = Journal::open(None, now).unwrap();
        let parameters: Parameters = Rc::new([Some("a".to_owned()), None]);
        for connection in 1..=150 {
            let query = &Query::parse("SELECT 1");
            let entry = Entry {
                connection,
                manner: Manner::Execute,
                statement: b"s",
                query,
                parameters: &parameters,
            };
            journal.note(entry, now);
        }
        let log = journal.log();
        assert_eq!((log.len(), log[0].connection, log[99].connection), (100, 51, 150));
        assert_eq!(
            log[0].to_json(),
            r#"{"at_s": 0.000000, "connection": 51, "manner": "execute", "statement": "s", "sql": "SELECT 1", "parameters": ["a", null]}"#
        );
    }

    #[test]
    fn executions_are_counted_by_the_first_two_hundred_characters() {
        let mut journal = Journal::open(None, Instant::now()).unwrap();
        journal.count_message(b'Q');
        let (long_a, long_b) = (format!("{}a", "x".repeat(200)), format!("{}b", "x".repeat(200)));
        let queries = [(long_a.as_str(), 2), (long_b.as_str(), 3), ("never", 0)];
        let stats = journal.stats(queries.into_iter());
        assert_eq!(stats.queries, BTreeMap::from([("x".repeat(200), 5)]));
        assert_eq!(stats.messages, BTreeMap::from([('Q', 1)]));
        assert!(stats.to_json().contains(r#""messages": {"Q": 1}"#));
    }
}
