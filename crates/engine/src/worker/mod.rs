//! One thread that drives many clients: all input and output and all clock reading is here,
//! through `Poll`. It decides nothing about transactions: `pace` says when they are due, `client`
//! what they do, `record` what they count as. `connections` makes and loses connections, `ending`
//! closes seconds and the run.

mod connections;
mod ending;

use crate::cancel::CancelKey;
use crate::client::{Client, Moment, Next, State, Trouble, TroubleOr};
use crate::conninfo::TcpSettings;
use crate::control::{Control, NEVER};
use crate::destination::{Destination, Place};
use crate::error::{Error, Kind, Result};
use crate::pace::{Due, Feed, Ns, SECOND};
use crate::plan::{Backlog, Policy};
use crate::poll::clock::thread_cpu;
use crate::poll::{Poll, Ready, Received, Token};
use crate::record::{Batch, Class, Outcome, Recorder, count_due};
use crate::script::random::Random;
use crate::wire::Fault;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// How many connections a thread opens at the same time.
const CONNECTING_MAX: usize = 32;
/// How many alarms a client may have at most, of which one counts.
const ALARMS_MOST: usize = 4;
/// After how many connections of a turn that takes longer than this the alarms are looked at.
const ALARMS_EVERY: usize = 64;
const TURN_NS: Ns = 1_000_000;
/// How many buffers in a row one connection may fill before the others have their turn.
const TURN: usize = 16;
/// How often a client without a connection looks whether the server was found.
const SEARCHED_EVERY: Ns = 100_000_000;
/// Waits between attempts to connect again: doubled from the first to the last.
const BACKOFF: (Ns, Ns) = (10_000_000, SECOND);

/// What a worker is made of.
pub struct Setup {
    /// Its number.
    pub number: usize,
    /// Where their connections go.
    pub destination: Arc<Destination>,
    /// What happens to transactions that are too late to start.
    pub policy: Policy,
    /// What happens to transactions that have not started at the end.
    pub backlog: Backlog,
    /// Whether every transaction has a connection of its own.
    pub connect_each: bool,
    /// Whether a lost connection is made again, or aborts its client.
    pub recover: bool,
    /// Whether a client that is aborted ends the run.
    pub exit_on_abort: bool,
    /// The latency limit of each script.
    pub limits: Box<[Ns]>,
    /// How long what was due before the end may still take.
    pub grace: Ns,
    /// How long all connections may take to come about.
    pub connect_timeout: Ns,
    /// How a connection over TCP finds out that the other side is gone.
    pub tcp: TcpSettings,
    /// For the jitter of reconnecting.
    pub random: Random,
    /// Shared with the owner of the run.
    pub control: Arc<Control>,
    /// Where finished seconds go.
    pub batches: Sender<Batch>,
    /// Where their memory comes back.
    pub spare: Receiver<Batch>,
}

/// What a client does when it has a connection.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// It asks for its next transaction.
    Ask,
    Start(Due),
    /// Nothing more falls due for it.
    Nothing,
}

/// What a client does, or waits for.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// It runs a transaction, or has not begun.
    Busy,
    /// It is among the free clients.
    Free { since: Ns },
    /// Its next transaction is not due yet.
    Waiting(Due),
    /// Its script sleeps.
    Sleeping { until: Ns },
    /// Its script waits for a shell command.
    InShell { number: u64 },
    /// It logs in, which must not take longer.
    Connecting { until: Option<Ns>, then: Then },
    /// It has no connection before it tries again.
    Down { until: Ns, then: Then },
    /// Nothing more falls due for it.
    Done,
    /// It gave up, and did not start this.
    Aborted(Option<Due>),
    /// The server does not let it in any more, and it did not start this.
    LockedOut(Option<Due>),
}

/// The time that a client has had no connection.
struct Outage {
    since: Ns,
    /// Since when the server has refused it.
    refused_since: Option<Ns>,
}

/// A client and what its thread knows about it.
struct Slot {
    client: Client,
    stage: Stage,
    /// How often it tried to connect again.
    attempts: u32,
    /// Where it connected last.
    place: Option<Arc<Place>>,
    outage: Option<Outage>,
    /// When the connection for its next transaction was begun.
    opened: Option<Ns>,
}

impl Slot {
    /// When its thread has to look at it.
    fn alarm(&self) -> Option<Ns> {
        match self.stage {
            Stage::Waiting(due) => Some(due.at),
            Stage::Sleeping { until } | Stage::Down { until, .. } => Some(until),
            Stage::Connecting { until, .. } => until,
            _ => None,
        }
    }

    /// What it does after the connection that it lost or waits for.
    fn then(&self) -> Then {
        match self.stage {
            Stage::Waiting(due) => Then::Start(due),
            Stage::Connecting { then, .. } | Stage::Down { then, .. } => then,
            Stage::Aborted(missed) | Stage::LockedOut(missed) => {
                missed.map_or(Then::Nothing, Then::Start)
            }
            Stage::Done => Then::Nothing,
            _ => Then::Ask,
        }
    }

    /// What it was to start, which it begins with now.
    #[inline]
    fn take_due(&mut self) -> Option<Due> {
        match std::mem::replace(&mut self.stage, Stage::Busy) {
            Stage::Waiting(due) | Stage::Connecting { then: Then::Start(due), .. } => Some(due),
            _ => None,
        }
    }

    /// Whether it takes no part any more though it might have something to do.
    fn has_left(&self) -> bool {
        matches!(self.stage, Stage::Aborted(_) | Stage::LockedOut(_))
    }

    /// Whether nothing more falls due for it.
    fn is_done(&self) -> bool {
        self.has_left() || matches!(self.then(), Then::Nothing)
    }
}

/// One thread's clients.
pub struct Worker<P> {
    poll: P,
    slots: Vec<Slot>,
    setup: Setup,
    feed: Feed,
    record: Recorder,
    alarms: BinaryHeap<Reverse<(Ns, Token)>>,
    /// Free clients that go on in the next turn, since when.
    free: VecDeque<(Token, Ns)>,
    /// What clients were to start that have lost their connections.
    orphans: Vec<Due>,
    /// Connections that may have more for us.
    unread: VecDeque<Token>,
    ready: Vec<Ready>,
    cpu_before: Ns,
    /// Between `connect` and the end: a lost connection is data now.
    running: bool,
    /// The number of the newest place that its clients have connected to.
    newest_place: u32,
    /// All its clients have done their part of a run that ends by count, or have left.
    through: bool,
}

impl<P: Poll> Worker<P> {
    /// A worker whose clients get their transactions from `feed`.
    pub fn new(poll: P, setup: Setup, clients: Vec<Client>, feed: Feed) -> Self {
        let slots = clients.into_iter().map(|client| Slot {
            client,
            stage: Stage::Busy,
            attempts: 0,
            place: None,
            outage: None,
            opened: None,
        });
        Self {
            poll,
            slots: slots.collect(),
            record: Recorder::new(setup.number, 0),
            setup,
            feed,
            alarms: BinaryHeap::new(),
            free: VecDeque::new(),
            orphans: Vec::new(),
            unread: VecDeque::new(),
            ready: Vec::new(),
            cpu_before: 0,
            running: false,
            newest_place: 0,
            through: false,
        }
    }

    /// The poller, to set its clock between `connect` and `run`.
    pub fn poll(&mut self) -> &mut P {
        &mut self.poll
    }

    /// Drives the load until nothing is left to do, and sends what it saw of each second. Returns
    /// the keys of statements that the server still runs, and why the run must end: a script that
    /// cannot run as written, or the operating system. Connections stay open until `close`, because
    /// a pooler forgets the keys of those that are closed.
    pub fn run(&mut self, start: Ns) -> (Vec<CancelKey>, Result<()>) {
        self.record = Recorder::new(self.setup.number, start);
        self.cpu_before = thread_cpu();
        self.running = true;
        for entry in &mut self.free {
            entry.1 = start;
            self.slots[entry.0].stage = Stage::Free { since: start };
        }
        let ended = self.drive();
        let keys = self.abandon();
        self.rotate_last();
        (keys, ended)
    }

    /// Ends all connections.
    pub fn close(&mut self) {
        for token in 0..self.slots.len() {
            self.hang_up(token);
        }
    }

    fn drive(&mut self) -> Result<()> {
        let mut last_end = Ns::MAX;
        loop {
            let now = self.poll.now();
            self.rotate(now);
            self.pass_on_orphans();
            if let Some(error) = self.setup.control.hopeless() {
                return Err(error.clone());
            }
            let end = self.setup.control.end();
            // What is counted as due until `end` must have had the time to fall due.
            let grace = if self.setup.control.is_aborted() { 0 } else { self.setup.grace };
            if now >= end.saturating_add(grace) {
                return Ok(());
            }
            if end != last_end {
                self.forget_after(end);
                last_end = end;
            }
            self.fire(now)?;
            self.go_on(end)?;
            self.pass_on_orphans();
            // The last client may just have given up.
            let end = self.setup.control.end();
            if self.is_idle() && (now >= end || (end >= NEVER && self.is_through(now))) {
                return Ok(());
            }
            let end = self.setup.control.end();
            let (until, precise) = self.deadline(now, end);
            self.exchange(until, precise)?;
        }
    }

    /// Nothing more will fall due for anybody, and nothing is in flight.
    fn is_idle(&self) -> bool {
        let idle = |slot: &Slot| slot.is_done() && !slot.client.is_in_transaction();
        self.slots.iter().all(idle)
    }

    /// Ends its part of a run that ends by count. Where clients have left, what is due for them is
    /// counted until the last client of all threads is through.
    fn is_through(&mut self, now: Ns) -> bool {
        if !std::mem::replace(&mut self.through, true) {
            let aborted = |slot: &&Slot| matches!(slot.stage, Stage::Aborted(_));
            let through = self.slots.len() - self.slots.iter().filter(aborted).count();
            if through > 0 {
                self.setup.control.clients_gone(u32::try_from(through).unwrap_or(0), now);
            }
        }
        let left = self.slots.iter().any(Slot::has_left);
        !left || matches!(self.feed, Feed::Closed { .. })
    }

    /// When to look up at the latest, and whether that matters to the microsecond.
    fn deadline(&self, now: Ns, end: Ns) -> (Ns, bool) {
        if !self.free.is_empty() || !self.unread.is_empty() {
            return (now, false);
        }
        let second = (self.record.batch.second + 1) * SECOND;
        let last = if now < end { end } else { end.saturating_add(self.setup.grace) };
        let coarse = second.min(last);
        match self.alarms.peek() {
            Some(Reverse((at, _))) if *at <= coarse => (*at, true),
            _ => (coarse, false),
        }
    }

    /// Runs the alarms that are due at `until`.
    fn fire(&mut self, until: Ns) -> Result<()> {
        while let Some(&Reverse((at, token))) = self.alarms.peek() {
            if at > until {
                break;
            }
            // What came before took its time.
            let now = self.poll.now();
            self.alarms.pop();
            let slot = &mut self.slots[token];
            if slot.alarm() != Some(at) {
                continue;
            }
            match slot.stage {
                Stage::Down { then, .. } => self.open(token, then)?,
                Stage::Connecting { .. } => {
                    self.lost(token, &Fault::lost("no answer to the login in time"))?;
                }
                Stage::Sleeping { .. } => {
                    slot.stage = Stage::Busy;
                    let next = slot.client.wake(now, &mut self.record);
                    self.follow(token, next)?;
                }
                Stage::Waiting(_) => {
                    self.next(token, Ns::MIN, now, self.setup.control.end())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A client enters a stage, which ends by an alarm if nothing else ends it.
    fn enter(&mut self, token: Token, stage: Stage) {
        self.slots[token].stage = stage;
        let Some(at) = self.slots[token].alarm() else {
            return;
        };
        if self.alarms.len() > ALARMS_MOST * self.slots.len() {
            // Those of logins that succeeded: with a connection each there are many.
            let slots = &self.slots;
            self.alarms.retain(|Reverse((at, token))| slots[*token].alarm() == Some(*at));
        }
        self.alarms.push(Reverse((at, token)));
    }

    /// Gives each free client its next transaction, once.
    fn go_on(&mut self, end: Ns) -> Result<()> {
        for _ in 0..self.free.len() {
            let Some((token, since)) = self.free.pop_front() else {
                break;
            };
            // One that lost its connection meanwhile is not free any more.
            if matches!(self.slots[token].stage, Stage::Free { since: free } if free == since) {
                let now = self.poll.now();
                self.next(token, since, now, end)?;
            }
        }
        Ok(())
    }

    /// What a free client does next: starts, waits or is done.
    fn next(&mut self, token: Token, since: Ns, now: Ns, end: Ns) -> Result<()> {
        let is_closed_load = matches!(self.feed, Feed::Closed { .. });
        // What falls due in a second is not counted before it; a closed load counts what is due
        // where it starts.
        if !is_closed_load {
            self.rotate(now);
        }
        loop {
            let kept = self.slots[token].take_due();
            let Some(mut due) = kept.or_else(|| self.feed.next(token, since, end)) else {
                self.slots[token].stage = Stage::Done;
                return Ok(());
            };
            if due.at > now {
                self.enter(token, Stage::Waiting(due));
                return Ok(());
            }
            let dropped = now >= end && self.setup.backlog == Backlog::Drop;
            if is_closed_load && dropped {
                self.slots[token].stage = Stage::Done;
                return Ok(());
            }
            let too_late = now - due.at > self.setup.limits[usize::from(due.script)];
            let skipped = too_late && self.setup.policy == Policy::Skip;
            if skipped || dropped {
                let class = if skipped { Class::Skipped } else { Class::Unfinished };
                let client = self.slots[token].client.id();
                self.record.put(Outcome::unsent(due, now, client, class));
                continue;
            }
            if self.slots[token].client.state() == State::Closed {
                return self.open(token, Then::Start(due));
            }
            if is_closed_load && self.setup.connect_each {
                // It is free when it is connected.
                due.at = due.at.max(since);
                if due.at >= end {
                    self.slots[token].stage = Stage::Done;
                    return Ok(());
                }
            }
            // A client that was free in time and still is late was held up by us.
            if is_closed_load {
                count_due(&mut self.record.batch.due, due.at, due.script);
            }
            let idle = due.at > since;
            let step = self.slots[token].client.start(due, now, idle, &mut self.record);
            return match step {
                Ok(Next::Server) => self.flush(token),
                step => self.follow(token, step),
            };
        }
    }

    /// Does what a client's step asks for.
    fn follow(&mut self, token: Token, mut step: TroubleOr<Next>) -> Result<()> {
        loop {
            match step {
                Ok(Next::Clock) => {
                    let now = self.poll.now();
                    step = self.slots[token].client.wake(now, &mut self.record);
                }
                Ok(Next::Server) => return self.flush(token),
                Ok(Next::Wake(at)) => {
                    self.enter(token, Stage::Sleeping { until: at });
                    return self.flush_synced(token);
                }
                Ok(Next::Shell(shell)) => {
                    let number = self.poll.shell(token, shell.line, shell.capture);
                    self.slots[token].stage = Stage::InShell { number };
                    return self.flush_synced(token);
                }
                Ok(Next::Free(since)) => {
                    self.settle(token, since);
                    self.slots[token].stage = Stage::Free { since };
                    self.free.push_back((token, since));
                    return Ok(());
                }
                Err(Trouble::Fault(fault)) => return self.lost(token, &fault),
                Err(Trouble::Abort(error)) => return self.abort(token, *error),
            }
        }
    }

    /// Goes on with clients whose shell commands have ended.
    fn take_shells(&mut self) -> Result<()> {
        while let Some((token, number, end)) = self.poll.shell_ended() {
            // A client that lost its connection in the meantime does not wait any more.
            let slot = &mut self.slots[token];
            if matches!(slot.stage, Stage::InShell { number: awaited } if awaited == number) {
                slot.stage = Stage::Busy;
                let now = self.poll.now();
                let step = slot.client.shell_ended(&end, now, &mut self.record);
                self.follow(token, step)?;
            }
        }
        Ok(())
    }

    /// Sends what a pipeline has synced before its client waits for something else.
    fn flush_synced(&mut self, token: Token) -> Result<()> {
        if self.slots[token].client.awaits_server() { self.flush(token) } else { Ok(()) }
    }

    #[inline]
    fn flush(&mut self, token: Token) -> Result<()> {
        let Some(connection) = self.slots[token].client.connection() else {
            return Ok(());
        };
        let outgoing = match connection.outgoing() {
            Ok([]) => return Ok(()),
            Ok(bytes) => bytes,
            Err(fault) => return self.lost(token, &fault),
        };
        match self.poll.send(token, outgoing) {
            Ok(count) => {
                connection.sent(count);
                Ok(())
            }
            Err(error) => self.not_sent(token, &error),
        }
    }

    /// Nothing can be sent. What the server said last is worth more than that it is gone.
    #[cold]
    fn not_sent(&mut self, token: Token, error: &std::io::Error) -> Result<()> {
        let fault = Fault::lost(&error.to_string());
        if self.slots[token].client.state() == State::Login(0) {
            return self.lost(token, &fault);
        }
        self.read(token)?;
        match self.slots[token].client.connection() {
            Some(_) => self.lost(token, &fault),
            None => Ok(()),
        }
    }

    /// Waits, then reads and writes where something can be done.
    fn exchange(&mut self, until: Ns, precise: bool) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        self.poll.wait(until, precise, &mut ready).map_err(|e| system(&e))?;
        while let Some(token) = self.unread.pop_front() {
            // Each once: a second visit would date what follows by this clock reading.
            match ready.iter_mut().find(|found| found.token == token) {
                Some(found) => found.readable = true,
                None => ready.push(Ready { token, readable: true, writable: false }),
            }
        }
        let mut arrived = self.poll.now();
        for (nth, &Ready { token, readable, writable }) in ready.iter().enumerate() {
            // A turn in which thousands of connections are lost must not hold up what is due.
            if nth % ALARMS_EVERY == ALARMS_EVERY - 1 {
                let now = self.poll.now();
                let is_due = self.alarms.peek().is_some_and(|Reverse((at, _))| *at <= now);
                if is_due && now > arrived + TURN_NS {
                    self.fire(now)?;
                    // What a fired alarm has sent cannot be answered before.
                    arrived = self.poll.now();
                }
            }
            if writable {
                self.flush(token)?;
            }
            if readable {
                self.read_at(token, arrived)?;
            }
        }
        ready.clear();
        self.ready = ready;
        self.take_shells()
    }

    fn read(&mut self, token: Token) -> Result<()> {
        let now = self.poll.now();
        self.read_at(token, now)
    }

    /// Reads what has come on one connection; it had come at `arrived`.
    fn read_at(&mut self, token: Token, arrived: Ns) -> Result<()> {
        for turn in 0..TURN {
            let (step, more, now) = match self.poll.receive(token) {
                Received::Nothing => return Ok(()),
                Received::Closed(error) => return self.closed(token, error.as_ref()),
                Received::Bytes { bytes, more, now } => {
                    let arrived = if turn == 0 { arrived.min(now) } else { now };
                    let slot = &mut self.slots[token];
                    let at = Moment { arrived, now };
                    (slot.client.receive(bytes, at, &mut self.record), more, now)
                }
            };
            match step {
                Ok(Next::Free(since)) if self.running => {
                    // The usual case: on to the next transaction without another turn.
                    let stage = &self.slots[token].stage;
                    if matches!(stage, Stage::Connecting { .. }) || self.setup.connect_each {
                        self.settle(token, since);
                    }
                    self.next(token, since, now, self.setup.control.end())?;
                }
                step => self.follow(token, step)?,
            }
            if !more {
                return Ok(());
            }
        }
        self.unread.push_back(token);
        Ok(())
    }

    /// The other side has closed a connection, or it broke.
    #[cold]
    fn closed(&mut self, token: Token, error: Option<&std::io::Error>) -> Result<()> {
        let connection = self.slots[token].client.connection();
        let said = connection.and_then(|connection| connection.farewell());
        let reason = said.unwrap_or_else(|| match error {
            None => Fault::lost("the server closed the connection"),
            Some(error) => Fault::lost(&error.to_string()),
        });
        self.lost(token, &reason)
    }
}

fn system(error: &std::io::Error) -> Error {
    Error::new(Kind::System, "waiting-failed").with_system(error)
}
