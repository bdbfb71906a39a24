//! What a run is asked to do, as values. `check` says what cannot be; everything behind it may
//! rely on it.

use crate::error::{Error, Kind, Result};
use crate::pace::{Arrivals, Ns, Think};

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

/// When nothing new falls due any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// After this long, not counting the warm-up.
    Time(Ns),
    /// After this many transactions of each client.
    Count(u64),
}

/// One trial.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Connections, at least one.
    pub clients: u32,
    /// Threads that drive them, at least one.
    pub threads: u32,
    /// How SQL is sent.
    pub protocol: Protocol,
    /// Whether results are described, as pgbench does, in the extended protocols.
    pub describe: bool,
    /// Where transactions come from.
    pub load: Load,
    /// What happens to those that are too late to start.
    pub policy: Policy,
    /// The latency above which a transaction is late.
    pub limit: Option<Ns>,
    /// When the trial ends.
    pub stop: Stop,
    /// How long the load runs before it counts.
    pub warmup: Ns,
    /// How long what was due before the end may still take.
    pub grace: Ns,
    /// All random numbers follow from it.
    pub seed: u64,
    /// Script variables, as text.
    pub variables: Vec<(String, String)>,
    /// SQL that every connection runs first.
    pub on_connect: Vec<String>,
}

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
        if self.limit.is_some_and(|limit| limit <= 0) {
            return wrong("a latency limit must be longer than nothing".into());
        }
        if !(0..=LONGEST).contains(&self.warmup) || !(0..=LONGEST).contains(&self.grace) {
            return wrong("warm-up and grace cannot be negative or longer than a year".into());
        }
        if self.on_connect.iter().any(|sql| sql.contains('\0')) {
            return wrong("SQL to run on connecting cannot hold a NUL byte".into());
        }
        if self.policy == Policy::Skip {
            if self.limit.is_none() {
                return wrong(
                    "policy skip needs a latency limit: without one nothing is too late".into(),
                );
            }
            if matches!(self.load, Load::Closed { .. }) {
                return wrong("policy skip needs a rate or a pace: a closed load has no schedule to fall behind".into());
            }
        }
        Ok(())
    }
}
