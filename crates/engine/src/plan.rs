//! The plan of a run, as values. `check` rejects what cannot be; all later code may rely
//! on it.

use crate::error::{Error, Kind, Result};
use crate::pace::{Arrivals, Ns, Think};
use crate::shape::Segment;
use std::ffi::OsString;

/// How SQL is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One message with the whole text.
    Simple,
    /// Parse, bind and execute each time.
    Extended,
    /// Parse once for each client, then bind and execute.
    Prepared,
}

/// Where transactions come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// One schedule for all clients, `rate` per second in all.
    Open {
        /// Transactions a second.
        rate: f64,
        /// Their spacing.
        arrivals: Arrivals,
    },
    /// A schedule for each client, `rate` per second each.
    Paced {
        /// Transactions a second and user.
        rate: f64,
        /// Their spacing.
        arrivals: Arrivals,
    },
    /// Each client starts its next transaction when it is free.
    Closed {
        /// The pause before it.
        think: Think,
    },
}

/// What happens to a transaction that is later than the limit before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// It runs all the same.
    Run,
    /// It is counted as skipped and never sent.
    Skip,
}

/// What happens at the end to what was due and not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backlog {
    /// It is still served, within the grace period.
    Serve,
    /// It is not; policy skip counts as skipped what is too late by then.
    Drop,
}

/// How a thread waits for its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// As costs least of what the system allows.
    Auto,
    /// By readiness: epoll, or kqueue where that is what the system has.
    Epoll,
    /// By completions: io_uring, or an error where there is none.
    IoUring,
}

/// A log of every transaction in pgbench's format: a file for each thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// The files are called PREFIX.PID and PREFIX.PID.THREAD.
    pub prefix: OsString,
    /// The share of transactions that is written, over 0 and at most 1.
    pub sampling: f64,
    /// Seconds that are summed up in a line; none writes a line for each transaction.
    pub aggregate_s: Option<u32>,
    /// Whether failures are named by their kind.
    pub detailed: bool,
}

/// When nothing new falls due any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// After this long, not counting the warm-up.
    Time(Ns),
    /// After this many transactions of each client.
    Count(u64),
}

/// The clients of one generator among those of several that make one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number of its first client.
    pub first: u32,
    /// The clients of all generators.
    pub of: u32,
}

/// One trial.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Connections, at least one.
    pub clients: u32,
    /// What of the load these are; none where they are all of it.
    pub part: Option<Part>,
    /// Threads that drive them, at least one.
    pub threads: u32,
    /// How SQL is sent.
    pub protocol: Protocol,
    /// Whether results are described, as pgbench does, in the extended protocols.
    pub describe: bool,
    /// Where transactions come from.
    pub load: Load,
    /// How the rate changes over the measured part; empty where it does not.
    pub shape: Vec<Segment>,
    /// What happens to those that are too late to start.
    pub policy: Policy,
    /// The latency above which a transaction is late, unless its script has a limit of its own.
    pub limit: Option<Ns>,
    /// The limits of scripts that have one of their own, by the number of the script.
    pub limits: Vec<(u16, Ns)>,
    /// When the trial ends.
    pub stop: Stop,
    /// How long after one another the clients of a closed or paced load come.
    pub start_every: Ns,
    /// How long the load runs before it counts.
    pub warmup: Ns,
    /// How long what was due before the end may still take.
    pub grace: Ns,
    /// All random numbers follow from it.
    pub seed: u64,
    /// Script variables: their names and texts.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// SQL that every connection runs first.
    pub on_connect: Vec<String>,
    /// What happens to what was due and not started at the end.
    pub backlog: Backlog,
    /// How often a transaction is tried that fails by serialization or deadlock; 0: until it
    /// succeeds, the limit has passed or the trial is over.
    pub max_tries: u32,
    /// Whether another failure of a statement fails its transaction only; else it aborts its client.
    pub continue_on_error: bool,
    /// Whether a client that is aborted ends the run.
    pub exit_on_abort: bool,
    /// Whether a client goes on after a lost connection, and after a script that leaves a transaction
    /// block open; else both abort it.
    pub recover: bool,
    /// Whether the run goes on although the first transactions of its scripts all fail in a way that
    /// trying again does not mend.
    pub keep_going: bool,
    /// Whether every transaction has a connection of its own.
    pub connect_each: bool,
    /// Whether meta commands are timed as well.
    pub time_commands: bool,
    /// Whether to report every failure and retry.
    pub verbose: bool,
    /// Whether to report notices and warnings of the server.
    pub notices: bool,
    /// Whether clients tell every step that they take.
    pub debug: bool,
    /// How threads wait for their connections.
    pub poll: Polling,
    /// A log of every transaction.
    pub log: Option<Log>,
}

/// The limit of a script without one: nothing takes longer.
pub const NO_LIMIT: Ns = Ns::MAX;

/// The longest time that may be asked for: a year.
const LONGEST: Ns = 366 * 86_400 * 1_000_000_000;

impl Plan {
    /// What cannot be, as a sentence.
    ///
    /// # Errors
    /// `Kind::Plan` for a value out of range or values that do not go together.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::new(Kind::Plan, message));
        if self.clients == 0 || self.threads == 0 {
            return wrong("a run needs at least one client and one thread".into());
        }
        if u64::from(self.first()) + u64::from(self.clients) > u64::from(self.clients_in_all()) {
            return wrong("a generator cannot have clients that the load does not have".into());
        }
        let rate = match self.load {
            Load::Open { rate, .. } | Load::Paced { rate, .. } => rate,
            Load::Closed { .. } => 1.0,
        };
        if !(rate.is_finite() && (1e-6..=1e7).contains(&rate)) {
            return wrong(format!(
                "a rate of {rate} per second is out of range (0.000001 to 10000000)"
            ));
        }
        let duration = match self.stop {
            Stop::Time(duration) => duration,
            Stop::Count(count) => Ns::from(count > 0),
        };
        if duration <= 0 || duration > LONGEST {
            return wrong("a trial must last longer than nothing and at most a year".into());
        }
        if self.part.is_some() && self.log.is_some() {
            return wrong(
                "a log of transactions is written by one generator, not by several".into(),
            );
        }
        self.check_start_every()?;
        let own = self.limits.iter().map(|(_, limit)| *limit);
        if own.chain(self.limit).any(|limit| limit <= 0) {
            return wrong("a latency limit must be longer than nothing".into());
        }
        if !(0..=LONGEST).contains(&self.warmup) || !(0..=LONGEST).contains(&self.grace) {
            return wrong("warm-up and grace cannot be negative or longer than a year".into());
        }
        if self.on_connect.iter().any(|sql| sql.contains('\0')) {
            return wrong("SQL to run on connecting cannot hold a NUL byte".into());
        }
        if let Some(log) = &self.log
            && !(log.sampling > 0.0 && log.sampling <= 1.0 && log.aggregate_s != Some(0))
        {
            return wrong("a log samples more than nothing, and sums up at least a second".into());
        }
        if self.policy == Policy::Skip && matches!(self.load, Load::Closed { .. }) {
            return wrong(
                "policy skip needs a rate or a pace: a closed load has no schedule to fall behind"
                    .into(),
            );
        }
        self.check_shape(rate)
    }

    /// The number of its first client among those of all generators.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.part.map_or(0, |part| part.first)
    }

    /// The clients of all generators.
    #[must_use]
    pub fn clients_in_all(&self) -> u32 {
        self.part.map_or(self.clients, |part| part.of)
    }

    fn check_start_every(&self) -> Result<()> {
        let wrong = |message: &str| Err(Error::new(Kind::Plan, message));
        if self.start_every == 0 {
            return Ok(());
        }
        if !(0..=LONGEST)
            .contains(&self.start_every.saturating_mul(Ns::from(self.clients_in_all())))
        {
            return wrong("the last client would come before the first, or after more than a year");
        }
        if matches!(self.load, Load::Open { .. }) {
            return wrong("clients of an open load cannot come one after another: it has one rate");
        }
        if !self.shape.is_empty() {
            return wrong("clients come one after another or by a shape, not both");
        }
        Ok(())
    }

    fn check_shape(&self, rate: f64) -> Result<()> {
        let wrong = |message: &str| Err(Error::new(Kind::Plan, message));
        if self.shape.is_empty() {
            return Ok(());
        }
        if matches!(self.load, Load::Closed { .. }) {
            return wrong(
                "a shape needs a rate or a pace: a closed load has none that could change",
            );
        }
        let Stop::Time(duration) = self.stop else {
            return wrong("a shape needs a duration that it is drawn over");
        };
        let starts = || self.shape.iter().map(|segment| segment.start);
        let in_order = starts().is_sorted() && starts().next() == Some(0);
        if !in_order || starts().any(|start| start > duration) {
            return wrong("the segments of a shape go from 0 to the end of the trial, in order");
        }
        let multipliers = || self.shape.iter().flat_map(|segment| [segment.from, segment.to]);
        if !multipliers().all(|m| m.is_finite() && m >= 0.0 && m * rate <= 1e7) {
            return wrong(
                "the multipliers of a shape are not negative, and no rate is over 10000000",
            );
        }
        if multipliers().all(|m| m == 0.0) {
            return wrong("a shape that is nothing but 0 has no load");
        }
        Ok(())
    }

    /// What cannot be combined with this number of scripts, as a sentence.
    ///
    /// # Errors
    /// `Kind::Plan` where a script lacks the latency limit that something needs.
    pub fn check_limits(&self, scripts: usize) -> Result<()> {
        let wrong = |message: &str| Err(Error::new(Kind::Plan, message));
        if self.limits.iter().any(|(script, _)| usize::from(*script) >= scripts) {
            return wrong("a latency limit is that of a script that does not run");
        }
        if !self.limits(scripts).contains(&NO_LIMIT) {
            return Ok(());
        }
        if self.policy == Policy::Skip {
            return wrong(
                "policy skip needs a latency limit for every script: without one nothing is too late",
            );
        }
        if self.max_tries == 0 && matches!(self.stop, Stop::Count(_)) {
            return wrong("unlimited tries need a latency limit or a duration to end them");
        }
        Ok(())
    }

    /// The latency limit of each of `scripts` scripts; `NO_LIMIT` where it has none.
    #[must_use]
    pub fn limits(&self, scripts: usize) -> Box<[Ns]> {
        let mut limits = vec![self.limit.unwrap_or(NO_LIMIT); scripts];
        for (script, limit) in &self.limits {
            if let Some(own) = limits.get_mut(usize::from(*script)) {
                *own = *limit;
            }
        }
        limits.into()
    }
}
