//! How a second is summed up: counts and distributions of what became known in it. Pure; made
//! from the workers' batches on the thread that asks for intervals.

use crate::error::Error;
use crate::pace::{Ns, SECOND};
use crate::record::{Batch, Class, DueCount, End, Level, Note, Outcome, SqlState, Timing};
use crate::times::{Collector, Times};
use std::collections::BTreeMap;

/// The most outcomes of a second that an interval names.
const MISSED_MAX: usize = 65_536;

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
    /// Their tries after the first.
    pub retries: u64,
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
    /// Why connections were ended by us, by SQLSTATE.
    pub faults: Vec<(SqlState, Error)>,
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
    pub notes: Vec<Note>,
    /// What clients say at once, in pgbench's words.
    pub lines: Vec<(Level, String)>,
    /// What connecting took, where every transaction has a connection of its own, nanoseconds.
    pub connect_ns: u64,
    /// The worker of each client that gave up.
    pub aborted: Vec<usize>,
    /// What missed its limit or failed, at most `MISSED_MAX`.
    pub missed: Vec<Outcome>,
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

/// Makes intervals from batches; keeps its memory between them.
pub struct Summary {
    collector: Collector,
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
    /// A summary of the load of `clients` clients that begins at `start`.
    #[must_use]
    pub fn new(clients: u32, start: Ns) -> Self {
        let downtime = Downtime { clients, down: 0, counted_to: start };
        Self { collector: Collector::default(), downtime }
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
        let missed = outcomes.clone().filter(|o| o.class != Class::OnTime);
        interval.missed.extend(missed.take(MISSED_MAX).copied());
        let dispatched = outcomes.filter(|o| o.idle && o.class != Class::Skipped);
        interval.dispatch = self.collector.times(dispatched.map(|o| o.sent - o.due));
        interval.statements = self.statements(batches);
        for batch in batches.iter_mut() {
            // A thread that has ended sends nothing more, and keeps its place.
            if interval.cpu_ns.len() <= batch.worker {
                interval.cpu_ns.resize(batch.worker + 1, 0);
            }
            interval.cpu_ns[batch.worker] += batch.cpu_ns;
            interval.in_flight_ns += u128::from(batch.in_flight_ns);
            interval.ended = interval.ended.max(batch.ended);
            interval.connects += batch.connects;
            interval.disconnects += batch.disconnects;
            interval.outages += batch.outages;
            interval.outage_ns_max = interval.outage_ns_max.max(batch.outage_ns_max);
            interval.messages.append(&mut batch.messages);
            interval.faults.append(&mut batch.faults);
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
        outcomes().for_each(|outcome| {
            match outcome.class {
                Class::OnTime => tally.on_time += 1,
                Class::Late => tally.late += 1,
                Class::Skipped => tally.skipped += 1,
                Class::Failed => *tally.failed.entry(outcome.sqlstate).or_default() += 1,
                Class::Unfinished => tally.unfinished += 1,
            }
            tally.retried += u64::from(outcome.retries > 0);
            tally.retries += u64::from(outcome.retries);
        });
        let succeeded = || outcomes().filter(|o| matches!(o.class, Class::OnTime | Class::Late));
        tally.latency = self.collector.times(succeeded().map(|o| o.done - o.due));
        tally.lag = self.collector.times(succeeded().map(|o| o.sent - o.due));
        tally.service = self.collector.times(succeeded().map(|o| o.done - o.sent));
    }

    fn statements(&mut self, batches: &[Batch]) -> Vec<StatementTally> {
        let groups = grouped(batches.iter().map(|b| &b.timings[..])).into_iter();
        groups
            .map(|((script, command), runs)| {
                let timings = runs.iter().copied().flatten();
                let (mut failed, mut retries) = (0, 0);
                let succeeded = timings.filter(|timing| {
                    match timing.end {
                        End::Done => return true,
                        End::Failed => failed += 1,
                        End::Retried => retries += 1,
                    }
                    false
                });
                let times = self.collector.times(succeeded.map(|t| t.ns));
                StatementTally { script, command, failed, retries, times }
            })
            .collect()
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
            let (run, tail) = items.split_at(others.unwrap_or(items.len()));
            groups.entry(key).or_default().push(run);
            items = tail;
        }
    }
    groups
}
