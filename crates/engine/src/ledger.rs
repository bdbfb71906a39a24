//! The due transactions of a load, and their outcomes: batches of workers or virtual users in, one
//! `Interval` a second out. Due transactions are counted here from a copy of the schedule, so that
//! they do not depend on being served. Pure.

use crate::backlog::{Backlog, Moments};
use crate::feeds::Streams;
use crate::interval::{Interval, Summary};
use crate::pace::{Due, Ns, SECOND, Stream, Taken};
use crate::record::{Batch, DueCount, count_due};
use std::collections::BTreeMap;

/// The accounts of one load.
pub struct Ledger {
    summary: Summary,
    /// What falls due by a schedule; empty in a closed load, where the batches have it.
    due: Vec<Stream>,
    /// The one schedule of an open load as it was at the start.
    whole: Option<Stream>,
    backlog: Backlog,
    second: i64,
    /// What is due and has no outcome, by due second and script.
    owed: BTreeMap<(i64, u16), u64>,
    /// The sum of when that fell due, where a schedule says it.
    owed_since: i128,
}

impl Ledger {
    /// The counts of `clients` clients whose load begins at `start`.
    pub(crate) fn new(clients: u32, start: Ns, streams: Streams) -> Self {
        Self {
            summary: Summary::new(clients, start),
            whole: streams.whole(),
            due: streams.falling(),
            backlog: Backlog::new(start),
            second: start.div_euclid(SECOND),
            owed: BTreeMap::new(),
            owed_since: 0,
        }
    }

    /// The next second, of which these are the batches. Nothing falls due at `end` or later.
    pub fn interval(&mut self, batches: &mut [Batch], end: Ns) -> Interval {
        let boundary = end.min((self.second + 1) * SECOND);
        let interval = self.until(boundary, batches, end);
        self.owe(&interval);
        interval
    }

    /// Passes what is taken, so that the last second does not take as long as the load.
    pub fn pass(&mut self, taken: &Taken) {
        if let Some(stream) = &mut self.whole {
            stream.pass(taken.number());
        }
    }

    /// The last second. Transactions that were not taken, or given back, stay unfinished.
    pub fn last(&mut self, batches: &mut [Batch], end: Ns, taken: &Taken) -> Interval {
        let mut interval = self.until(end, batches, end);
        if let Some(stream) = self.whole.take() {
            let (mut left, mut fell_due): (Vec<DueCount>, Moments) = Default::default();
            let mut leave = |due: Due| {
                count_due(&mut left, due.at, due.script);
                fell_due.add(due.at);
            };
            stream.from(taken.number()).until(end, &mut leave);
            std::iter::from_fn(|| taken.take_back()).filter(|due| due.at < end).for_each(leave);
            for entry in left {
                interval.tally(entry.second, entry.script).unfinished += entry.count;
            }
            let waited = fell_due.until(interval.ended);
            interval.waited_ns += Ns::try_from(waited).unwrap_or(Ns::MAX);
            self.owed_since -= fell_due.sum();
        }
        self.owe(&interval);
        interval
    }

    /// Counts what lost virtual users had taken as unfinished; only in the last second, and only
    /// where one was lost: otherwise it would hide missing reports.
    pub fn write_off(&mut self, last: &mut Interval) {
        let mut owed = 0;
        for ((second, script), count) in std::mem::take(&mut self.owed) {
            last.tally(second, script).unfinished += count;
            owed += i128::from(count);
        }
        if !self.due.is_empty() {
            let waited = owed * i128::from(last.ended) - self.owed_since;
            last.waited_ns += Ns::try_from(waited).unwrap_or(Ns::MAX);
        }
    }

    fn until(&mut self, boundary: Ns, batches: &mut [Batch], end: Ns) -> Interval {
        let (mut due, mut fell_due): (Vec<DueCount>, Moments) = Default::default();
        for stream in &mut self.due {
            stream.until(boundary, |d| {
                count_due(&mut due, d.at, d.script);
                fell_due.add(d.at);
            });
        }
        let (mut pending_ns, mut waited_ns) = (0, 0);
        if !self.due.is_empty() {
            let mut done = Moments::default();
            batches.iter().flat_map(|batch| &batch.outcomes).for_each(|outcome| {
                done.add(outcome.done);
                waited_ns += outcome.done - outcome.due;
                if outcome.due >= end {
                    // Started in the moment between a request to stop and its being seen.
                    count_due(&mut due, outcome.due, outcome.script);
                    fell_due.add(outcome.due);
                }
            });
            let closed = batches.iter().map(|batch| batch.ended).max();
            let until = closed.unwrap_or((self.second + 1) * SECOND);
            self.owed_since += fell_due.sum() - (done.sum() - i128::from(waited_ns));
            pending_ns = self.backlog.integral(fell_due, done, until);
        }
        let mut interval = self.summary.interval(self.second, batches, &due);
        (interval.pending_ns, interval.waited_ns) = (pending_ns, waited_ns);
        self.second += 1;
        interval
    }

    /// What a second adds to what is owed.
    fn owe(&mut self, interval: &Interval) {
        for tally in &interval.tallies {
            let failed: u64 = tally.failed.values().sum();
            let ended = tally.on_time + tally.late + tally.skipped + failed + tally.unfinished;
            let key = (tally.due_second, tally.script);
            let owed = self.owed.remove(&key).unwrap_or(0) + tally.due;
            if owed > ended {
                self.owed.insert(key, owed - ended);
            }
        }
    }
}
