//! Virtual users in another process: functions of a program. This module says when each of their
//! actions is due and counts its outcome; by the same schedules and the same records as
//! those of clients. Pure: times come in. Batches go out as bytes, to a `Ledger` elsewhere.

use crate::error::{Error, Kind, Result};
use crate::feeds::{Seeds, Streams, share};
use crate::ledger::Ledger;
use crate::pace::{Due, Feed, Ns, SECOND, Taken};
use crate::plan::{Plan, Policy};
use crate::record::{Batch, Class, Level, Outcome, Recorder, SqlState, count_due};
use std::sync::Arc;

/// What a user is doing.
#[derive(Debug, Clone, Copy)]
enum State {
    Free,
    Waiting(Due),
    /// Performs what was due, since when; whether it was idle when that was due.
    Acting(Due, Ns, bool),
}

/// The users of one process.
pub struct Actors {
    feed: Feed,
    record: Recorder,
    /// Seconds that are over and not fetched.
    over: Vec<Batch>,
    limits: Box<[Ns]>,
    policy: Policy,
    states: Vec<State>,
    first: u32,
}

/// The accounts of a load whose clients are users of other processes, of which there are
/// `plan.threads`, for tasks of these weights.
///
/// # Errors
/// What cannot be: a plan, weights.
pub fn ledger(plan: &Plan, weights: &[u32]) -> Result<Ledger> {
    let (streams, _) = streams(plan, weights)?;
    Ok(Ledger::new(plan.clients, -plan.warmup, streams))
}

fn streams(plan: &Plan, weights: &[u32]) -> Result<(Streams, Box<[Ns]>)> {
    plan.check_limits(weights.len())?;
    plan.check()?;
    if weights.iter().all(|&weight| weight == 0) {
        return Err(Error::new(Kind::Plan, "script-weights-zero"));
    }
    let streams = Streams::new(plan, weights.into(), &mut Seeds::new(plan), -plan.warmup);
    Ok((streams, plan.limits(weights.len())))
}

impl Actors {
    /// The users of process `number` of `plan.threads`.
    ///
    /// # Errors
    /// What cannot be: a plan, weights.
    pub fn new(plan: &Plan, weights: &[u32], number: u32) -> Result<Self> {
        let (streams, limits) = streams(plan, weights)?;
        let processes = plan.threads.min(plan.clients);
        let first = (0..number).map(|n| share(plan.clients, processes, n)).sum();
        let count = share(plan.clients, processes, number);
        Ok(Self {
            feed: streams.feed(first..first + count, &Arc::new(Taken::default())),
            record: Recorder::new(number as usize, -plan.warmup),
            over: Vec::new(),
            limits,
            policy: plan.policy,
            states: vec![State::Free; count as usize],
            first: plan.first() + first,
        })
    }

    /// The number of its first user among all, and how many it has.
    #[must_use]
    pub fn users(&self) -> (u32, usize) {
        (self.first, self.states.len())
    }

    /// Whether transaction `number` of an open load is this generator's.
    #[must_use]
    pub fn owns(&self, number: u64) -> bool {
        match &self.feed {
            Feed::Open { stream, .. } => stream.owns(number),
            Feed::Paced(_) | Feed::Closed { .. } => true,
        }
    }

    /// What its `user`, free since then, does next; none where nothing more is due before `end`.
    /// number: the next one that is not taken, of an open load.
    pub fn next(&mut self, user: usize, since: Ns, end: Ns, number: u64) -> Option<Due> {
        let due = match &mut self.feed {
            Feed::Open { stream, .. } => stream.at(number).filter(|due| due.at < end),
            feed => feed.next(user, since, end),
        };
        self.states[user] = due.map_or(State::Free, State::Waiting);
        due
    }

    /// Its `user`, free since then, is to act now; false where it is too late for that.
    pub fn start(&mut self, user: usize, since: Ns, now: Ns) -> bool {
        let State::Waiting(due) = self.states[user] else { return false };
        self.rotate(now);
        let now = now.max(due.at);
        if self.policy == Policy::Skip && now - due.at > self.limits[usize::from(due.script)] {
            let client = self.client(user);
            self.record.put(Outcome::unsent(due, now, client, Class::Skipped));
            self.states[user] = State::Free;
            return false;
        }
        if matches!(self.feed, Feed::Closed { .. }) {
            count_due(&mut self.record.batch.due, due.at, due.script);
        }
        self.record.begin(now);
        self.states[user] = State::Acting(due, now, due.at > since);
        true
    }

    /// What its `user` did is done now; failure: its class.
    pub fn end(&mut self, user: usize, now: Ns, failure: Option<SqlState>) {
        let State::Acting(due, sent, idle) = self.states[user] else { return };
        self.rotate(now);
        let done = now.max(sent);
        let class = match failure {
            Some(_) => Class::Failed,
            None if done - due.at > self.limits[usize::from(due.script)] => Class::Late,
            None => Class::OnTime,
        };
        let sqlstate = failure.unwrap_or(*b"00000");
        self.put(user, (due, sent, idle), done, class, sqlstate);
    }

    fn put(
        &mut self,
        user: usize,
        (due, sent, idle): (Due, Ns, bool),
        done: Ns,
        class: Class,
        sqlstate: SqlState,
    ) {
        let client = self.client(user);
        let unsent = Outcome::unsent(due, sent, client, class);
        self.record.end(Outcome { done, idle, sqlstate, ..unsent });
        self.states[user] = State::Free;
    }

    /// A failure's message, kept once for each class and second.
    pub fn message(&mut self, class: SqlState, text: &str) {
        self.record.message(class, text);
    }

    /// What a function prints.
    pub fn say(&mut self, text: String) {
        self.record.say(Level::Plain, text);
    }

    /// Nothing falls due at `end` or later, and what is not done now stays unfinished.
    pub fn abandon(&mut self, now: Ns, end: Ns) {
        self.rotate(now);
        for user in 0..self.states.len() {
            match self.states[user] {
                State::Waiting(due)
                    if due.at < end && !matches!(self.feed, Feed::Closed { .. }) =>
                {
                    let client = self.client(user);
                    self.record.put(Outcome::unsent(due, now, client, Class::Unfinished));
                }
                State::Acting(due, sent, idle) => {
                    let done = now.max(sent);
                    self.put(user, (due, sent, idle), done, Class::Unfinished, *b"00000");
                }
                State::Free | State::Waiting(_) => {}
            }
            self.states[user] = State::Free;
        }
        let first = self.first;
        if let Feed::Paced(streams) = &mut self.feed {
            for (client, stream) in (first..).zip(streams) {
                let record = &mut self.record;
                stream.until(end, |due| {
                    record.put(Outcome::unsent(due, now, client, Class::Unfinished));
                });
            }
        }
    }

    /// Ends the seconds that are over at `now`.
    pub fn rotate(&mut self, now: Ns) {
        while now >= (self.record.batch.second + 1) * SECOND {
            let end = (self.record.batch.second + 1) * SECOND;
            self.over.push(self.record.swap(end));
        }
    }

    /// The seconds that are over; the CPU time is that of all of them.
    pub fn fetch(&mut self, cpu_ns: u64) -> Vec<Batch> {
        if let Some(first) = self.over.first_mut() {
            first.cpu_ns = cpu_ns;
        }
        std::mem::take(&mut self.over)
    }

    /// The same with the second that goes on: its last.
    pub fn fetch_last(&mut self, now: Ns, cpu_ns: u64) -> Vec<Batch> {
        self.rotate(now);
        let mut last = self.record.swap(now);
        last.last = true;
        self.over.push(last);
        self.fetch(cpu_ns)
    }

    fn client(&self, user: usize) -> u32 {
        self.first + u32::try_from(user).unwrap_or(u32::MAX)
    }
}
