//! What all sessions of a server share: what was asked for, the texts seen so far, the journal and
//! the random numbers. Knows no sockets and no clock.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use crate::auth::Account;
use crate::config::Config;
use crate::journal::{Journal, Stats};
use crate::random::Random;
use crate::sql::{Dice, Parameters, Query};

/// Texts that are kept taken apart, and counted one by one.
const MOST_KEPT: usize = 10_000;
/// Longer texts are taken apart each time.
const LONGEST_KEPT: usize = 16 * 1024;
/// What executions of texts that were not kept are counted under.
const OTHER: &str = "(other texts)";

/// Shared by all sessions.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) account: Account,
    pub(crate) journal: Journal,
    /// For nonces, salts and cancel keys, so that they leave service times alone.
    pub(crate) secrets: Random,
    /// Of a session without parameters.
    pub(crate) no_parameters: Parameters,
    /// Sessions that count against `max_connections`.
    pub(crate) sessions: usize,
    /// Executions of whatever text.
    pub(crate) executed: u64,
    random: Random,
    generators: HashMap<u64, Random>,
    queries: HashMap<Box<str>, Rc<Query>>,
}

impl State {
    pub(crate) fn new(config: Config, now: Instant) -> io::Result<Self> {
        let mut secrets = Random::new(!config.seed);
        Ok(Self {
            account: Account::new(&config.password, &mut secrets),
            journal: Journal::open(config.record.as_deref(), now)?,
            secrets,
            no_parameters: Rc::new([]),
            random: Random::new(config.seed),
            sessions: 0,
            executed: 0,
            generators: HashMap::new(),
            queries: HashMap::new(),
            config,
        })
    }

    /// The text taken apart, from memory where it has been seen before.
    pub(crate) fn query(&mut self, text: &[u8]) -> Rc<Query> {
        let text = String::from_utf8_lossy(text);
        if let Some(query) = self.queries.get(&*text) {
            return Rc::clone(query);
        }
        let query = Query::parse(&text);
        if self.queries.len() < MOST_KEPT && text.len() <= LONGEST_KEPT {
            self.queries.insert(text.into(), Rc::clone(&query));
        }
        query
    }

    /// What a session learns of the server at its start.
    pub(crate) fn settings(&self) -> [(&str, &str); 11] {
        [
            ("server_version", &self.config.server_version),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("IntervalStyle", "postgres"),
            ("TimeZone", "UTC"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
            ("in_hot_standby", "off"),
            ("default_transaction_read_only", "off"),
            ("is_superuser", "off"),
        ]
    }

    /// The counts of sessions and statements; the event loop adds its own.
    pub(crate) fn stats(&self) -> Stats {
        let kept: u64 = self.queries.values().map(|query| query.executed.get()).sum();
        let kept_queries = self.queries.values().map(|query| (&*query.text, query.executed.get()));
        self.journal.stats(kept_queries.chain([(OTHER, self.executed - kept)]))
    }
}

impl Dice for State {
    fn random(&mut self, seed: Option<u64>) -> &mut Random {
        match seed {
            None => &mut self.random,
            Some(seed) => self.generators.entry(seed).or_insert_with(|| Random::new(seed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::new(Config::default(), Instant::now()).unwrap()
    }

    #[test]
    fn generators_with_a_seed_are_alone_and_repeatable() {
        let (mut one, mut other) = (state(), state());
        let numbers: Vec<u64> = (0..3).map(|_| one.random(Some(5)).bits()).collect();
        let again: Vec<u64> = (0..3)
            .map(|_| {
                other.random(None).bits();
                other.random(Some(6)).bits();
                other.random(Some(5)).bits()
            })
            .collect();
        assert_eq!(numbers, again);
        assert_ne!(one.random(None).bits(), one.random(None).bits());
    }

    #[test]
    fn a_text_is_taken_apart_once_as_long_as_there_are_not_too_many() {
        let mut state = state();
        assert!(Rc::ptr_eq(&state.query(b"SELECT 1"), &state.query(b"SELECT 1")));
        for number in 0..=MOST_KEPT {
            let query = state.query(format!("SELECT {number}").as_bytes());
            query.executed.set(1);
            state.executed += 1;
        }
        assert_eq!(state.queries.len(), MOST_KEPT);
        assert_eq!(state.stats().queries[OTHER], 1);
    }
}
