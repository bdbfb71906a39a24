//! The end of a second, and of the run.

use super::{Stage, Then, Worker};
use crate::cancel::CancelKey;
use crate::pace::{Feed, Ns, SECOND};
use crate::poll::Poll;
use crate::poll::clock::thread_cpu;
use crate::record::{Class, Outcome};

impl<P: Poll> Worker<P> {
    /// What was to start at `end` or later never falls due.
    pub(super) fn forget_after(&mut self, end: Ns) {
        for slot in &mut self.slots {
            if !matches!(slot.then(), Then::Start(due) if due.at >= end) {
                continue;
            }
            slot.stage = match slot.stage {
                Stage::Connecting { .. } => Stage::Connecting { until: None, then: Then::Nothing },
                Stage::Aborted(_) => Stage::Aborted(None),
                Stage::LockedOut(_) => Stage::LockedOut(None),
                _ => Stage::Done,
            };
        }
    }

    /// Counts what is still going on; the cancel keys of statements that the server still runs.
    pub(super) fn abandon(&mut self) -> Vec<CancelKey> {
        self.pass_on_orphans();
        let now = self.poll.now();
        let end = self.setup.control.end();
        let mut keys = Vec::new();
        for token in 0..self.slots.len() {
            let slot = &mut self.slots[token];
            let id = slot.client.id();
            if let Some(outage) = &slot.outage {
                self.record.outlasted(outage.since, now);
            }
            if let Then::Start(due) = slot.then()
                && due.at < end
                && !matches!(self.feed, Feed::Closed { .. })
            {
                self.record.put(Outcome::unsent(due, now, id, Class::Unfinished));
            }
            if slot.client.is_in_transaction() {
                let place = slot.place.clone();
                let key = slot.client.connection().and_then(|c| c.cancel_key());
                keys.extend(place.zip(key).map(|(place, key)| CancelKey { place, key }));
            }
            slot.client.abandon(now, &mut self.record);
        }
        self.leave_unfinished(now, end);
        keys
    }

    /// Counts what was due for these clients and not taken.
    fn leave_unfinished(&mut self, now: Ns, end: Ns) {
        let record = &mut self.record;
        match &mut self.feed {
            Feed::Paced(streams) => {
                for (slot, stream) in self.slots.iter().zip(streams) {
                    let client = slot.client.id();
                    stream.until(end, |due| {
                        record.put(Outcome::unsent(due, now, client, Class::Unfinished));
                    });
                }
            }
            // Counted by the owner of the run: another worker may still take it.
            Feed::Open { .. } | Feed::Closed { .. } => {}
        }
    }

    /// Sends every second that has passed.
    pub(super) fn rotate(&mut self, now: Ns) {
        while now >= (self.record.batch.second + 1) * SECOND {
            let end = (self.record.batch.second + 1) * SECOND;
            self.send_batch(end, false);
        }
    }

    pub(super) fn rotate_last(&mut self) {
        let now = self.poll.now();
        self.rotate(now);
        self.send_batch(now, true);
    }

    fn send_batch(&mut self, end: Ns, last: bool) {
        let cpu = thread_cpu();
        let mut batch = self.record.swap(end);
        batch.cpu_ns = (cpu - self.cpu_before).cast_unsigned();
        batch.last = last;
        self.cpu_before = cpu;
        // An owner that went away needs no more batches.
        let _ = self.setup.batches.send(batch);
        while let Ok(batch) = self.setup.spare.try_recv() {
            self.record.recycle(batch);
        }
    }
}
