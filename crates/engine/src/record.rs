//! What became of every transaction, and how an interval sums it up. Pure: times come in.
//!
//! due = on time + late + skipped + failed + unfinished (+ pending while a trial runs),
//! per due second and script. Counts belong to the second in which a transaction was due,
//! whenever its outcome is known; `Interval` holds what became known in one second.
//!
//! The hot path only appends an `Outcome` to a vector that is used again every other second;
//! counting and histograms are made from it on the thread that asks for intervals.

use crate::pace::{Due, Ns, SECOND};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use std::collections::BTreeMap;

/// A five-character SQLSTATE.
pub type SqlState = [u8; 5];

/// What became of a transaction. Exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Tries behind the first.
    pub retries: u32,
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
        }
    }

    /// The second it was due in.
    #[must_use]
    pub fn due_second(&self) -> i64 {
        self.due.div_euclid(SECOND)
    }
}

/// How one command of a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Done,
    /// It failed, and its transaction with it.
    Failed,
    /// It failed, and its transaction was tried again.
    Retried,
}

/// How long one command of a script took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual levels")]
pub enum Level {
    /// As it is, without a prefix: what a script prints with `debug()`.
    Plain,
    Info,
    Warning,
    Error,
}

/// The most lines of a second that are kept.
const LINES_MAX: usize = 100_000;

/// How many transactions of a script fell due in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
pub fn count_due(counts: &mut Vec<DueCount>, at: Ns, script: u16) {
    match counts.iter_mut().rev().take(8).find(|entry| entry.counts(at, script)) {
        Some(entry) => entry.count += 1,
        None => counts.push(DueCount { second: at.div_euclid(SECOND), script, count: 1 }),
    }
}

/// Everything one worker saw in one second.
#[derive(Debug, Default, Clone)]
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
    /// CPU time of the worker's thread, nanoseconds.
    pub cpu_ns: u64,
    /// The integral of transactions in flight over this second, nanoseconds.
    pub in_flight_ns: u64,
    /// Connections made, and lost, in this second.
    pub connects: u32,
    /// Connections lost in this second.
    pub disconnects: u32,
    /// When so many more clients were without the connection that they need.
    pub down: Vec<(Ns, i32)>,
    /// Clients that got their connection back.
    pub outages: u32,
    /// The longest of them, and of those that last until the end of the run, nanoseconds.
    pub outage_ns_max: u64,
    /// Things the user should know once.
    pub notes: Vec<String>,
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

/// A worker's record of the second that is going on.
#[derive(Debug, Default)]
pub struct Recorder {
    /// What was seen so far.
    pub batch: Batch,
    spare: Vec<Batch>,
    in_flight: u64,
    counted_to: Ns,
}

impl Recorder {
    /// A recorder for `worker` whose first second holds `start`.
    #[must_use]
    pub fn new(worker: usize, start: Ns) -> Self {
        let batch = Batch { worker, second: start.div_euclid(SECOND), ..Batch::default() };
        Self { batch, spare: Vec::new(), in_flight: 0, counted_to: start }
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

    /// A line that the user is to see at once.
    pub fn say(&mut self, level: Level, text: String) {
        match self.batch.lines.len() {
            0..LINES_MAX => self.batch.lines.push((level, text)),
            LINES_MAX => {
                let text = "more lines in this second were left out".to_owned();
                self.batch.lines.push((Level::Warning, text));
            }
            _ => {}
        }
    }

    /// Takes the second that ended at `end` and goes on with the next.
    pub fn swap(&mut self, end: Ns) -> Batch {
        self.advance(end);
        let (worker, second) = (self.batch.worker, self.batch.second);
        let mut fresh = self.spare.pop().unwrap_or_default();
        fresh.worker = worker;
        fresh.second = second + 1;
        self.batch.ended = end;
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

/// What became known in one second about one script's transactions of one due second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// The second in which they were due.
    pub due_second: i64,
    /// The script.
    pub script: u16,
    /// How many fell due; counted once, in the interval of that second or the next.
    pub due: u64,
    /// Succeeded within the limit.
    pub on_time: u64,
    /// Succeeded after it.
    pub late: u64,
    /// Never sent.
    pub skipped: u64,
    /// Failed, by SQLSTATE.
    pub failed: BTreeMap<SqlState, u64>,
    /// Without an outcome at the end.
    pub unfinished: u64,
    /// Latency of those that succeeded: done - due.
    pub latency: Times,
    /// Lag of those that succeeded: sent - due.
    pub lag: Times,
    /// Service of those that succeeded: done - sent.
    pub service: Times,
    /// Of those that succeeded or failed, how many were tried more than once.
    pub retried: u64,
    /// Their tries behind the first.
    pub retries: u64,
}

/// A distribution of times: exact sums and a histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub sum_ns: u128,
    /// The sum of their squares, square nanoseconds.
    pub square_sum: f64,
    /// The largest, nanoseconds.
    pub max_ns: u64,
    /// The histogram in HdrHistogram's V2 encoding; empty where `count` is 0.
    pub histogram: Vec<u8>,
}

/// Statements of one kind that ended in one second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatementTally {
    /// The script.
    pub script: u16,
    /// The command's place in the script.
    pub command: u16,
    /// How many failed, and their transactions with them.
    pub failed: u64,
    /// How many failed in a transaction that was then tried again.
    pub retries: u64,
    /// Times of those that succeeded.
    pub times: Times,
}

/// What became known in one second.
#[derive(Debug, Clone, Default)]
pub struct Interval {
    /// The second, from 0 at the start of the measured part; negative in the warm-up.
    pub second: i64,
    /// By due second and script.
    pub tallies: Vec<Tally>,
    /// By script and command.
    pub statements: Vec<StatementTally>,
    /// One message for each SQLSTATE.
    pub messages: Vec<(SqlState, String)>,
    /// CPU time of each worker, nanoseconds.
    pub cpu_ns: Vec<u64>,
    /// Lag of transactions whose client was idle at the due time.
    pub dispatch: Times,
    /// The integral of transactions in flight, nanoseconds.
    pub in_flight_ns: u128,
    /// The integral of what is due and not done, nanoseconds; 0 in a closed load.
    pub pending_ns: i64,
    /// For how long what ended in this second had been due, nanoseconds; 0 in a closed load.
    pub waited_ns: i64,
    /// When the last worker closed it: the end of its second, or of the trial.
    pub ended: Ns,
    /// Connections made.
    pub connects: u32,
    /// Connections lost.
    pub disconnects: u32,
    /// Clients that got their connection back.
    pub outages: u32,
    /// The longest outage of them, and of those still down when the run ended, nanoseconds.
    pub outage_ns_max: u64,
    /// Clients without the connection that they need when it ended.
    pub down: u32,
    /// How long one client at least was without, nanoseconds.
    pub some_down_ns: u64,
    /// How long all clients were, nanoseconds.
    pub all_down_ns: u64,
    /// Things the user should know once.
    pub notes: Vec<String>,
    /// What clients say at once, in pgbench's words.
    pub lines: Vec<(Level, String)>,
    /// What connecting took, where every transaction has a connection of its own, nanoseconds.
    pub connect_ns: u64,
    /// The worker of each client that gave up.
    pub aborted: Vec<usize>,
}

impl Interval {
    /// The tally of a due second and script, a new one if there is none.
    pub fn tally(&mut self, due_second: i64, script: u16) -> &mut Tally {
        let at = self.tallies.iter().position(|t| (t.due_second, t.script) == (due_second, script));
        let at = at.unwrap_or_else(|| {
            self.tallies.push(Tally { due_second, script, ..Tally::default() });
            self.tallies.len() - 1
        });
        &mut self.tallies[at]
    }
}

/// The histogram of all times: 3 significant digits up to an hour, in nanoseconds.
///
/// # Panics
/// Never: the bounds are constants.
#[must_use]
pub fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds")
}

/// Makes intervals from batches; keeps its histograms between them.
pub struct Summary {
    histogram: Histogram<u32>,
    serializer: V2Serializer,
    downtime: Downtime,
}

/// How many clients are without a connection; counted from interval to interval.
#[derive(Debug, Default)]
struct Downtime {
    clients: u32,
    down: u32,
    counted_to: Ns,
}

impl Downtime {
    /// Counts one interval, up to its end. Workers' changes come in the order of workers.
    fn count(&mut self, batches: &[Batch], interval: &mut Interval) {
        let mut changes: Vec<_> = batches.iter().flat_map(|b| &b.down).copied().collect();
        changes.sort_by_key(|(at, _)| *at);
        for (at, change) in changes {
            self.advance(at, interval);
            self.down = self.down.saturating_add_signed(change);
        }
        self.advance(interval.ended, interval);
        interval.down = self.down;
    }

    fn advance(&mut self, at: Ns, interval: &mut Interval) {
        let passed = u64::try_from(at - self.counted_to).unwrap_or(0);
        interval.some_down_ns += if self.down > 0 { passed } else { 0 };
        interval.all_down_ns += if self.down >= self.clients { passed } else { 0 };
        self.counted_to = self.counted_to.max(at);
    }
}

impl Summary {
    /// A summary of the load of so many clients that begins at `start`.
    #[must_use]
    pub fn new(clients: u32, start: Ns) -> Self {
        let downtime = Downtime { clients, down: 0, counted_to: start };
        Self { histogram: histogram(), serializer: V2Serializer::new(), downtime }
    }

    /// The interval of one second from every worker's batch of it and what fell due.
    pub fn interval(&mut self, second: i64, batches: &mut [Batch], due: &[DueCount]) -> Interval {
        let mut interval = Interval { second, ..Interval::default() };
        let mut tallies: BTreeMap<(i64, u16), Tally> = BTreeMap::new();
        for count in due.iter().chain(batches.iter().flat_map(|b| &b.due)) {
            tally(&mut tallies, count.second, count.script).due += count.count;
        }
        for ((second, script), runs) in grouped(batches.iter().map(|b| &b.outcomes[..])) {
            self.count(&runs, tally(&mut tallies, second, script));
        }
        interval.tallies = tallies.into_values().collect();
        let outcomes = batches.iter().flat_map(|b| &b.outcomes);
        let dispatched = outcomes.filter(|o| o.idle && o.class != Class::Skipped);
        interval.dispatch = self.times(dispatched.map(|o| o.sent - o.due));
        interval.statements = self.statements(batches);
        for batch in batches.iter_mut() {
            interval.cpu_ns.push(batch.cpu_ns);
            interval.in_flight_ns += u128::from(batch.in_flight_ns);
            interval.ended = interval.ended.max(batch.ended);
            interval.connects += batch.connects;
            interval.disconnects += batch.disconnects;
            interval.outages += batch.outages;
            interval.outage_ns_max = interval.outage_ns_max.max(batch.outage_ns_max);
            interval.messages.append(&mut batch.messages);
            interval.notes.append(&mut batch.notes);
            interval.lines.append(&mut batch.lines);
            interval.connect_ns += batch.connect_ns;
            interval.aborted.extend((0..batch.aborted).map(|_| batch.worker));
        }
        self.downtime.count(batches, &mut interval);
        interval
    }

    /// Counts outcomes of one due second and script.
    fn count(&mut self, runs: &[&[Outcome]], tally: &mut Tally) {
        let outcomes = || runs.iter().copied().flatten();
        for outcome in outcomes() {
            match outcome.class {
                Class::OnTime => tally.on_time += 1,
                Class::Late => tally.late += 1,
                Class::Skipped => tally.skipped += 1,
                Class::Failed => *tally.failed.entry(outcome.sqlstate).or_default() += 1,
                Class::Unfinished => tally.unfinished += 1,
            }
            tally.retried += u64::from(outcome.retries > 0);
            tally.retries += u64::from(outcome.retries);
        }
        let succeeded = || outcomes().filter(|o| matches!(o.class, Class::OnTime | Class::Late));
        tally.lag = self.times(succeeded().map(|o| o.sent - o.due));
        tally.service = self.times(succeeded().map(|o| o.done - o.sent));
        tally.latency = if tally.lag.max_ns == 0 {
            // Nothing was sent late, as in every closed load.
            tally.service.clone()
        } else {
            self.times(succeeded().map(|o| o.done - o.due))
        };
    }

    fn statements(&mut self, batches: &[Batch]) -> Vec<StatementTally> {
        let groups = grouped(batches.iter().map(|b| &b.timings[..])).into_iter();
        groups
            .map(|((script, command), runs)| {
                let timings = || runs.iter().copied().flatten();
                let count = |end: End| timings().filter(|t| t.end == end).count() as u64;
                let (failed, retries) = (count(End::Failed), count(End::Retried));
                let succeeded = timings().filter(|t| t.end == End::Done);
                let times = self.times(succeeded.map(|t| t.ns));
                StatementTally { script, command, failed, retries, times }
            })
            .collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "a sum of squares for a deviation")]
    fn times(&mut self, values: impl Iterator<Item = Ns>) -> Times {
        let mut times = Times::default();
        let histogram = &mut self.histogram;
        // Many are the same, such as lags of 0: those are put into the histogram together.
        let (mut same, mut repeated) = (0, 0);
        for value in values {
            let value = u64::try_from(value).unwrap_or(0);
            times.count += 1;
            times.sum_ns += u128::from(value);
            times.square_sum += (value as f64).powi(2);
            times.max_ns = times.max_ns.max(value);
            if value != same {
                histogram.saturating_record_n(same, repeated);
                (same, repeated) = (value, 0);
            }
            repeated += 1;
        }
        if times.count > 0 {
            histogram.saturating_record_n(same, repeated);
            self.serializer
                .serialize(histogram, &mut times.histogram)
                .expect("a vector takes all bytes");
            histogram.reset();
        }
        times
    }
}

fn tally(tallies: &mut BTreeMap<(i64, u16), Tally>, due_second: i64, script: u16) -> &mut Tally {
    tallies.entry((due_second, script)).or_insert_with(|| Tally {
        due_second,
        script,
        ..Tally::default()
    })
}

/// What is counted in groups.
trait Grouped {
    type Key: Ord + Copy;
    fn key(&self) -> Self::Key;
    fn has(&self, key: Self::Key) -> bool;
}

/// By due second and script.
impl Grouped for Outcome {
    type Key = (i64, u16);

    fn key(&self) -> Self::Key {
        (self.due_second(), self.script)
    }

    fn has(&self, (second, script): Self::Key) -> bool {
        self.script == script && (second * SECOND..(second + 1) * SECOND).contains(&self.due)
    }
}

/// By script and command.
impl Grouped for Timing {
    type Key = (u16, u16);

    fn key(&self) -> Self::Key {
        (self.script, self.command)
    }

    fn has(&self, key: Self::Key) -> bool {
        self.key() == key
    }
}

/// Items by key, in the order they came; quick where neighbours share a key.
fn grouped<'a, T: Grouped>(lists: impl Iterator<Item = &'a [T]>) -> BTreeMap<T::Key, Vec<&'a [T]>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for mut items in lists {
        while let Some(first) = items.first() {
            let key = first.key();
            let others = items.iter().position(|item| !item.has(key));
            let (run, behind) = items.split_at(others.unwrap_or(items.len()));
            groups.entry(key).or_default().push(run);
            items = behind;
        }
    }
    groups
}
