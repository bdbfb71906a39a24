//! What became of every transaction. Pure: times come in.
//!
//! due = on time + late + skipped + failed + unfinished (+ pending while a trial runs),
//! per due second and script. Counts belong to the second in which a transaction was due,
//! whenever its outcome is known; `Interval` holds what became known in one second.
//!
//! The hot path only appends an `Outcome` to a vector that is used again every other second;
//! counting and histograms are made from it on the thread that asks for intervals.

use crate::error::{Error, Kind, Result};
use crate::pace::{Due, Ns, SECOND};
use crate::wire::Fault;
use serde::{Deserialize, Serialize};

/// A five-character SQLSTATE.
pub type SqlState = [u8; 5];

/// What became of a transaction. Exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Succeeded within the limit, or there is none.
    OnTime,
    /// Succeeded after the limit.
    Late,
    /// Never sent, because it was already too late.
    Skipped,
    /// The server, the connection or the script made it fail.
    Failed,
    /// Without an outcome when the grace period ended.
    Unfinished,
}

/// The end of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// When it was meant to start.
    pub due: Ns,
    /// When it was started; the time of the decision where it never was.
    pub sent: Ns,
    /// When its end was seen.
    pub done: Ns,
    /// The client that ran it.
    pub client: u32,
    /// The script it ran.
    pub script: u16,
    /// What became of it.
    pub class: Class,
    /// Whether its client was idle when it was due: then its lag is ours.
    pub idle: bool,
    /// Why it failed.
    pub sqlstate: SqlState,
    /// Tries after the first.
    pub retries: u32,
    /// The server's process that ran it; 0 where it is unknown.
    pub pid: i32,
}

impl Outcome {
    /// A transaction that was never sent, as decided at `now`.
    #[must_use]
    pub fn unsent(due: Due, now: Ns, client: u32, class: Class) -> Self {
        let Due { at, script, .. } = due;
        let sqlstate = *b"00000";
        let retries = 0;
        Self {
            due: at,
            sent: now,
            done: now,
            client,
            script,
            class,
            idle: false,
            sqlstate,
            retries,
            pid: 0,
        }
    }

    /// The second it was due in.
    #[must_use]
    pub fn due_second(&self) -> i64 {
        self.due.div_euclid(SECOND)
    }
}

/// How one command of a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// As it should.
    Done,
    /// It failed, and its transaction with it.
    Failed,
    /// It failed, and its transaction was tried again.
    Retried,
}

/// How long one command of a script took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Its script.
    pub script: u16,
    /// Its place in the script.
    pub command: u16,
    /// How it ended.
    pub end: End,
    /// From its beginning, for SQL from sending it, to the end of its answer.
    pub ns: Ns,
}

/// How much a line for the user matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the usual levels")]
pub enum Level {
    /// As it is, without a prefix: what a script prints with `debug()`.
    Plain,
    Info,
    Warning,
    Error,
}

/// The most lines of a second that are kept, and the most bytes of them.
const LINES_MAX: usize = 100_000;
const LINE_BYTES_MAX: usize = 16 << 20;

/// How many transactions of a script fell due in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueCount {
    /// The second.
    pub second: i64,
    /// The script.
    pub script: u16,
    /// How many.
    pub count: u64,
}

impl DueCount {
    fn counts(&self, at: Ns, script: u16) -> bool {
        self.script == script && (self.second * SECOND..(self.second + 1) * SECOND).contains(&at)
    }
}

/// Counts what is due at `at`; neighbours share an entry.
#[inline]
pub fn count_due(counts: &mut Vec<DueCount>, at: Ns, script: u16) {
    match counts.last_mut() {
        Some(last) if last.counts(at, script) => last.count += 1,
        _ => count_elsewhere(counts, at, script),
    }
}

#[cold]
fn count_elsewhere(counts: &mut Vec<DueCount>, at: Ns, script: u16) {
    match counts.iter_mut().rev().take(8).find(|entry| entry.counts(at, script)) {
        Some(entry) => entry.count += 1,
        None => counts.push(DueCount { second: at.div_euclid(SECOND), script, count: 1 }),
    }
}

/// Everything one worker saw in one second.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Batch {
    /// The worker.
    pub worker: usize,
    /// The second, which began at `second` times `SECOND`.
    pub second: i64,
    /// Transactions that ended.
    pub outcomes: Vec<Outcome>,
    /// Statements that ended.
    pub timings: Vec<Timing>,
    /// What fell due, where only the worker can know it (closed loads).
    pub due: Vec<DueCount>,
    /// One message for each SQLSTATE seen.
    pub messages: Vec<(SqlState, String)>,
    /// Why connections were ended by us, one for each SQLSTATE; none in another process.
    #[serde(skip)]
    pub faults: Vec<(SqlState, Error)>,
    /// CPU time of the worker's thread, nanoseconds.
    pub cpu_ns: u64,
    /// The integral of transactions in flight over this second, nanoseconds.
    pub in_flight_ns: u64,
    /// Connections made, and lost, in this second.
    pub connects: u32,
    /// Connections lost in this second.
    pub disconnects: u32,
    /// When this number of further clients were without the connection that they need.
    pub down: Vec<(Ns, i32)>,
    /// Clients that got their connection back.
    pub outages: u32,
    /// The longest of them, and of those that last until the end of the run, nanoseconds.
    pub outage_ns_max: u64,
    /// Things the user should know once.
    pub notes: Vec<Note>,
    /// What a client says at once, in pgbench's words.
    pub lines: Vec<(Level, String)>,
    /// What connecting took, where every transaction has a connection of its own, nanoseconds.
    pub connect_ns: u64,
    /// Clients that gave up.
    pub aborted: u32,
    /// When the batch was closed: the end of its second, or of the trial.
    pub ended: Ns,
    /// True for the worker's last batch.
    pub last: bool,
}

impl Batch {
    /// As bytes, for another process.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        rmp_serde::to_vec(self).expect("a batch is nothing but numbers and texts")
    }

    /// From the bytes of another process.
    ///
    /// # Errors
    /// `Kind::System` where they are none of a batch.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        rmp_serde::from_slice(bytes)
            .map_err(|error| Error::new(Kind::System, "invalid-data-from-process").because(error))
    }
}

/// What the user should know once: a finding of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// The script of this name ended within a transaction block, which is rolled back.
    LeftOpen(String),
    /// A client cannot log in again, for this reason; never in another process.
    #[serde(skip)]
    LockedOut(Fault),
    /// Clients connect to another server now, at this address.
    Moved(String),
    /// So many statements could not be cancelled at the end of the load.
    StillRunning(usize),
}

impl Note {
    /// The name of the finding.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::LeftOpen(_) => "transaction-left-open",
            Self::LockedOut(_) => "client-locked-out",
            Self::Moved(_) => "server-moved",
            Self::StillRunning(_) => "statements-left-running",
        }
    }
}

/// A worker's record of the second that is going on.
#[derive(Debug, Default)]
pub struct Recorder {
    /// What was seen so far.
    pub batch: Batch,
    spare: Vec<Batch>,
    /// The bytes of this second's lines, and of the one that was too many.
    said: usize,
    in_flight: u64,
    counted_to: Ns,
}

impl Recorder {
    /// A recorder for `worker` whose first second holds `start`.
    #[must_use]
    pub fn new(worker: usize, start: Ns) -> Self {
        let batch = Batch { worker, second: start.div_euclid(SECOND), ..Batch::default() };
        Self { batch, counted_to: start, ..Self::default() }
    }

    /// A transaction started.
    pub fn begin(&mut self, now: Ns) {
        self.advance(now);
        self.in_flight += 1;
    }

    /// A transaction that had begun ended.
    pub fn end(&mut self, outcome: Outcome) {
        debug_assert!(outcome.done >= outcome.sent, "ended before it began: {outcome:?}");
        self.leave(outcome.done);
        self.put(outcome);
    }

    /// A transaction that had begun was done at `done`; its outcome is `put` later.
    pub fn leave(&mut self, done: Ns) {
        self.advance(done);
        // It may be seen after something later was: what was counted since is not its own.
        let since = (self.counted_to - done).max(0).cast_unsigned();
        self.batch.in_flight_ns = self.batch.in_flight_ns.saturating_sub(since);
        self.in_flight -= 1;
    }

    /// The outcome of a transaction that is not in flight: it never began, or has left.
    pub fn put(&mut self, outcome: Outcome) {
        self.batch.outcomes.push(outcome);
    }

    /// A client lost its connection, or cannot get the one it needs.
    pub fn down(&mut self, now: Ns) {
        self.batch.down.push((now, 1));
    }

    /// A client that had been without its connection since `since` has it again.
    pub fn up(&mut self, since: Ns, now: Ns) {
        self.batch.down.push((now, -1));
        self.batch.outages += 1;
        self.outlasted(since, now);
    }

    /// A client has been without its connection from `since` to `now` at least.
    pub fn outlasted(&mut self, since: Ns, now: Ns) {
        let lasted = u64::try_from(now - since).unwrap_or(0);
        self.batch.outage_ns_max = self.batch.outage_ns_max.max(lasted);
    }

    /// A failure's message, kept once for each SQLSTATE and second.
    pub fn message(&mut self, sqlstate: SqlState, message: &str) {
        if self.batch.messages.len() < 32 && self.batch.messages.iter().all(|m| m.0 != sqlstate) {
            self.batch.messages.push((sqlstate, message.to_owned()));
        }
    }

    /// Why a connection ended, kept once for each SQLSTATE and second.
    pub fn fault(&mut self, fault: &Fault) {
        let sqlstate = fault.sqlstate();
        match fault {
            Fault::Server(error) => self.message(sqlstate, &error.message),
            Fault::Own(error) if self.batch.faults.iter().all(|each| each.0 != sqlstate) => {
                self.batch.faults.push((sqlstate, (**error).clone()));
            }
            Fault::Own(_) => {}
        }
    }

    /// A line that the user is to see at once.
    pub fn say(&mut self, level: Level, text: String) {
        if self.said > LINE_BYTES_MAX {
            return;
        }
        self.said += text.len();
        if self.said <= LINE_BYTES_MAX && self.batch.lines.len() < LINES_MAX {
            self.batch.lines.push((level, text));
            return;
        }
        self.said = usize::MAX;
        let text = "more lines in this second were left out".to_owned();
        self.batch.lines.push((Level::Warning, text));
    }

    /// Takes the second that ended at `end` and goes on with the next.
    pub fn swap(&mut self, end: Ns) -> Batch {
        self.advance(end);
        let (worker, second) = (self.batch.worker, self.batch.second);
        let mut fresh = self.spare.pop().unwrap_or_default();
        fresh.worker = worker;
        fresh.second = second + 1;
        self.batch.ended = end;
        self.said = 0;
        std::mem::replace(&mut self.batch, fresh)
    }

    /// Takes back a batch whose content was read, to use its memory again.
    pub fn recycle(&mut self, mut batch: Batch) {
        batch.outcomes.clear();
        batch.timings.clear();
        let kept = Batch { outcomes: batch.outcomes, timings: batch.timings, ..Batch::default() };
        self.spare.push(kept);
    }

    fn advance(&mut self, now: Ns) {
        let passed = (now - self.counted_to).max(0).cast_unsigned();
        self.batch.in_flight_ns += passed * self.in_flight;
        self.counted_to = self.counted_to.max(now);
    }
}
