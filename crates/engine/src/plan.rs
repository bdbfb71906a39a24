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

fn impossible(key: &str) -> Result<()> {
    Err(Error::new(Kind::Plan, "impossible-plan").with("key", key))
}

impl Plan {
    /// What cannot be. Python's package looks at most of it before, in the words of its options.
    ///
    /// # Errors
    /// `Kind::Plan` for a value out of range or values that do not go together.
    pub fn check(&self) -> Result<()> {
        if self.clients == 0 {
            return impossible("clients");
        }
        if self.threads == 0 {
            return impossible("threads");
        }
        if u64::from(self.first()) + u64::from(self.clients) > u64::from(self.clients_in_all()) {
            return impossible("part");
        }
        let rate = match self.load {
            Load::Open { rate, .. } | Load::Paced { rate, .. } => rate,
            Load::Closed { .. } => 1.0,
        };
        if !(rate.is_finite() && (1e-6..=1e7).contains(&rate)) {
            return impossible("rate");
        }
        let duration = match self.stop {
            Stop::Time(duration) => duration,
            Stop::Count(count) => Ns::from(count > 0),
        };
        if duration <= 0 || duration > LONGEST {
            return impossible("duration");
        }
        if self.part.is_some() && self.log.is_some() {
            return Err(Error::new(Kind::Plan, "log-of-several-generators"));
        }
        self.check_start_every()?;
        let own = self.limits.iter().map(|(_, limit)| *limit);
        if own.chain(self.limit).any(|limit| limit <= 0) {
            return impossible("limit");
        }
        if !(0..=LONGEST).contains(&self.warmup) {
            return impossible("warmup");
        }
        if !(0..=LONGEST).contains(&self.grace) {
            return impossible("grace");
        }
        if self.on_connect.iter().any(|sql| sql.contains('\0')) {
            return Err(Error::new(Kind::Plan, "on-connect-has-nul"));
        }
        if let Some(log) = &self.log
            && !(log.sampling > 0.0 && log.sampling <= 1.0 && log.aggregate_s != Some(0))
        {
            return impossible("log");
        }
        if self.policy == Policy::Skip && matches!(self.load, Load::Closed { .. }) {
            return Err(Error::new(Kind::Plan, "skip-needs-rate"));
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
        if self.start_every == 0 {
            return Ok(());
        }
        if !(0..=LONGEST)
            .contains(&self.start_every.saturating_mul(Ns::from(self.clients_in_all())))
        {
            return impossible("start_every");
        }
        if matches!(self.load, Load::Open { .. }) {
            return Err(Error::new(Kind::Plan, "start-every-of-open-load"));
        }
        if !self.shape.is_empty() {
            return impossible("start_every");
        }
        Ok(())
    }

    fn check_shape(&self, rate: f64) -> Result<()> {
        if self.shape.is_empty() {
            return Ok(());
        }
        if matches!(self.load, Load::Closed { .. }) {
            return impossible("shape");
        }
        let Stop::Time(duration) = self.stop else {
            return impossible("shape");
        };
        let starts = || self.shape.iter().map(|segment| segment.start);
        let in_order = starts().is_sorted() && starts().next() == Some(0);
        if !in_order || starts().any(|start| start > duration) {
            return impossible("shape");
        }
        let multipliers = || self.shape.iter().flat_map(|segment| [segment.from, segment.to]);
        if !multipliers().all(|m| m.is_finite() && m >= 0.0 && m * rate <= 1e7) {
            return impossible("shape");
        }
        if multipliers().all(|m| m == 0.0) {
            return impossible("shape");
        }
        Ok(())
    }

    /// What cannot be combined with this number of scripts.
    ///
    /// # Errors
    /// `Kind::Plan` where a script lacks the latency limit that something needs.
    pub fn check_limits(&self, scripts: usize) -> Result<()> {
        if self.limits.iter().any(|(script, _)| usize::from(*script) >= scripts) {
            return impossible("limits");
        }
        if !self.limits(scripts).contains(&NO_LIMIT) {
            return Ok(());
        }
        if self.policy == Policy::Skip {
            return Err(Error::new(Kind::Plan, "skip-needs-limits"));
        }
        if self.max_tries == 0 && matches!(self.stop, Stop::Count(_)) {
            return Err(Error::new(Kind::Plan, "endless-tries"));
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
