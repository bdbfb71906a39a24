//! One thread that drives many clients: all input and output and all clock reading is here,
//! through `Poll`. It decides nothing about transactions: `pace` says when they are due, `client`
//! what they do, `record` what they count as.

use crate::client::{Client, Moment, Next, State, Trouble, TroubleOr};
use crate::control::{Control, NEVER};
use crate::error::{Error, Kind, Result};
use crate::pace::{Due, Feed, Ns, SECOND};
use crate::plan::Policy;
use crate::poll::{Address, Poll, Ready, Received, Token};
use crate::record::{Batch, Class, Outcome, Recorder, count_due};
use crate::script::random::Random;
use crate::wire::Fault;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// How many connections a thread opens at the same time.
const CONNECTING_MAX: usize = 32;
/// How many buffers in a row one connection may fill before the others have their turn.
const TURN: usize = 16;
/// Waits between attempts to connect again: doubled from the first to the last.
const BACKOFF: (Ns, Ns) = (10_000_000, SECOND);

/// What a worker is made of.
pub struct Setup {
    /// Its number.
    pub number: usize,
    /// Where their connections go.
    pub address: Address,
    /// What happens to transactions that are too late to start.
    pub policy: Policy,
    /// The latency limit.
    pub limit: Option<Ns>,
    /// How long what was due before the end may still take.
    pub grace: Ns,
    /// How long all connections may take to come about.
    pub connect_timeout: Ns,
    /// For the jitter of reconnecting.
    pub random: Random,
    /// Shared with the owner of the run.
    pub control: Arc<Control>,
    /// Where finished seconds go.
    pub batches: Sender<Batch>,
    /// Where their memory comes back.
    pub spare: Receiver<Batch>,
}

/// Why a timer was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alarm {
    Due,
    Wake,
    Reconnect,
    /// A login takes too long.
    Login,
}

/// A client and what its thread knows about it.
struct Seat {
    client: Client,
    /// What it will start when it is due.
    waiting: Option<Due>,
    alarm: Option<(Ns, Alarm)>,
    attempts: u32,
    /// Since when it has had no connection.
    down_since: Option<Ns>,
    /// Nothing more will fall due for it.
    done: bool,
}

/// One thread's clients.
pub struct Worker<P> {
    poll: P,
    seats: Vec<Seat>,
    setup: Setup,
    feed: Feed,
    record: Recorder,
    alarms: BinaryHeap<Reverse<(Ns, Token)>>,
    /// Free clients that go on in the next turn, since when.
    free: VecDeque<(Token, Ns)>,
    /// Connections that may have more for us.
    unread: VecDeque<Token>,
    ready: Vec<Ready>,
    cpu_before: u64,
    /// Between `connect` and the end: a lost connection is data now.
    running: bool,
}

impl<P: Poll> Worker<P> {
    /// A worker whose clients get their transactions from `feed`.
    pub fn new(poll: P, setup: Setup, clients: Vec<Client>, feed: Feed) -> Self {
        let seats = clients.into_iter().map(|client| Seat {
            client,
            waiting: None,
            alarm: None,
            attempts: 0,
            down_since: None,
            done: false,
        });
        Self {
            poll,
            seats: seats.collect(),
            record: Recorder::new(setup.number, 0),
            setup,
            feed,
            alarms: BinaryHeap::new(),
            free: VecDeque::new(),
            unread: VecDeque::new(),
            ready: Vec::new(),
            cpu_before: 0,
            running: false,
        }
    }

    /// The poller, to set its clock between `connect` and `run`.
    pub fn poll(&mut self) -> &mut P {
        &mut self.poll
    }

    /// Connects all clients, a bounded number at a time.
    ///
    /// # Errors
    /// Why the first connection that failed did.
    pub fn connect(&mut self) -> Result<()> {
        let deadline = self.poll.now().saturating_add(self.setup.connect_timeout);
        let mut opened = 0;
        loop {
            while opened < self.seats.len() && opened - self.free.len() < CONNECTING_MAX {
                self.open(opened)?;
                opened += 1;
            }
            if self.free.len() == self.seats.len() || self.setup.control.is_aborted() {
                return Ok(());
            }
            let now = self.poll.now();
            if now >= deadline {
                return Err(Error::new(
                    Kind::Connect,
                    "the server did not let all clients in within the connection time-out",
                )
                .with_hint("raise connect_timeout, or use fewer clients"));
            }
            self.fire(now)?;
            let until = match self.alarms.peek() {
                _ if !self.unread.is_empty() => now,
                Some(Reverse((at, _))) => deadline.min(*at),
                None => deadline,
            };
            self.exchange(until, false)?;
        }
    }

    /// Drives the load until nothing is left to do, and sends what it saw of each second.
    ///
    /// # Errors
    /// Why the run must end: a script that cannot run as written, or the operating system.
    pub fn run(&mut self, start: Ns) -> Result<Vec<(i32, i32)>> {
        self.record = Recorder::new(self.setup.number, start);
        self.cpu_before = thread_cpu();
        self.running = true;
        for entry in &mut self.free {
            entry.1 = start;
        }
        let ended = self.drive();
        let keys = self.abandon();
        self.rotate_last();
        ended.map(|()| keys)
    }

    fn drive(&mut self) -> Result<()> {
        let mut last_end = Ns::MAX;
        loop {
            let now = self.poll.now();
            self.rotate(now);
            let end = self.setup.control.end();
            if now >= end.saturating_add(self.setup.grace) || self.setup.control.is_aborted() {
                return Ok(());
            }
            if end != last_end {
                self.forget_after(end);
                last_end = end;
            }
            self.fire(now)?;
            self.go_on(now, end)?;
            if (now >= end || end >= NEVER) && self.is_idle() {
                return Ok(());
            }
            let (until, precise) = self.deadline(now, end);
            self.exchange(until, precise)?;
        }
    }

    /// Nothing more will fall due for anybody, and nothing is in flight.
    fn is_idle(&self) -> bool {
        let idle = |seat: &Seat| seat.done && !seat.client.is_in_transaction();
        self.seats.iter().all(idle)
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

    /// What was to start at `end` or later never falls due.
    fn forget_after(&mut self, end: Ns) {
        for seat in &mut self.seats {
            if seat.waiting.is_some_and(|due| due.at >= end) {
                seat.waiting = None;
                seat.alarm = None;
                seat.done = true;
            }
        }
    }

    /// Runs the alarms that are due.
    fn fire(&mut self, now: Ns) -> Result<()> {
        while let Some(&Reverse((at, token))) = self.alarms.peek() {
            if at > now {
                break;
            }
            self.alarms.pop();
            let seat = &mut self.seats[token];
            let Some((_, alarm)) = seat.alarm.take_if(|(set_for, _)| *set_for == at) else {
                continue;
            };
            match alarm {
                Alarm::Reconnect => self.open(token)?,
                Alarm::Login => {
                    self.lost(token, &Fault::lost("no answer to the login in time"))?;
                }
                Alarm::Wake => {
                    let next = seat.client.wake(now, &mut self.record);
                    self.follow(token, next)?;
                }
                Alarm::Due => {
                    let due = seat.waiting.take().expect("an alarm for what is due");
                    self.start(token, due, true)?;
                }
            }
        }
        Ok(())
    }

    fn set_alarm(&mut self, token: Token, at: Ns, alarm: Alarm) {
        self.seats[token].alarm = Some((at, alarm));
        self.alarms.push(Reverse((at, token)));
    }

    /// Gives each free client its next transaction, once.
    fn go_on(&mut self, now: Ns, end: Ns) -> Result<()> {
        for _ in 0..self.free.len() {
            let Some((token, since)) = self.free.pop_front() else {
                break;
            };
            self.next(token, since, now, end)?;
        }
        Ok(())
    }

    /// What a free client does next: starts, waits or is done.
    fn next(&mut self, token: Token, since: Ns, now: Ns, end: Ns) -> Result<()> {
        loop {
            let kept = self.seats[token].waiting.take();
            let Some(due) = kept.or_else(|| self.feed.next(token, since, end)) else {
                self.seats[token].done = true;
                return Ok(());
            };
            if due.at > now {
                self.seats[token].waiting = Some(due);
                self.set_alarm(token, due.at, Alarm::Due);
                return Ok(());
            }
            let too_late = self.setup.limit.is_some_and(|limit| now - due.at > limit);
            if !(too_late && self.setup.policy == Policy::Skip) {
                // A client that was free in time and still is late was held up by us.
                return self.start(token, due, due.at > since);
            }
            let client = self.seats[token].client.id;
            self.record.put(Outcome::unsent(due, now, client, Class::Skipped));
        }
    }

    fn start(&mut self, token: Token, due: Due, idle: bool) -> Result<()> {
        if matches!(self.feed, Feed::Closed { .. }) {
            count_due(&mut self.record.batch.due, due.at.div_euclid(SECOND), due.script);
        }
        let now = self.poll.now();
        let next = self.seats[token].client.start(due, now, idle, &mut self.record);
        self.follow(token, next)
    }

    /// Does what a client's step asks for.
    fn follow(&mut self, token: Token, step: TroubleOr<Next>) -> Result<()> {
        match step {
            Ok(Next::Server) => self.flush(token),
            Ok(Next::Wake(at)) => {
                self.set_alarm(token, at, Alarm::Wake);
                Ok(())
            }
            Ok(Next::Free(since)) => {
                self.settle(token);
                self.free.push_back((token, since));
                Ok(())
            }
            Err(Trouble::Fault(fault)) => self.lost(token, &fault),
            Err(Trouble::Error(error)) => Err(error),
        }
    }

    /// A client is free: if it had lost its connection, it has one again.
    fn settle(&mut self, token: Token) {
        let seat = &mut self.seats[token];
        if std::mem::take(&mut seat.attempts) > 0 {
            seat.alarm = None;
            seat.down_since = None;
            self.record.batch.connects += 1;
        }
    }

    /// Begins a connection.
    fn open(&mut self, token: Token) -> Result<()> {
        let seat = &mut self.seats[token];
        seat.client.open();
        match self.poll.connect(token, &self.setup.address) {
            Ok(()) => {
                if self.running {
                    let deadline = self.poll.now().saturating_add(self.setup.connect_timeout);
                    self.set_alarm(token, deadline, Alarm::Login);
                }
                self.flush(token)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                // The server's backlog is full: it will have room in a moment.
                self.poll.close(token);
                self.retry(token);
                Ok(())
            }
            Err(error) => self.lost(token, &Fault::lost(&error.to_string())),
        }
    }

    fn flush(&mut self, token: Token) -> Result<()> {
        let Some(connection) = self.seats[token].client.connection() else {
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
            Err(error) => {
                // What the server said last is worth more than that it is gone.
                let fault = Fault::lost(&error.to_string());
                if self.seats[token].client.state == State::Login(0) {
                    return self.lost(token, &fault);
                }
                self.read(token)?;
                match self.seats[token].client.connection() {
                    Some(_) => self.lost(token, &fault),
                    None => Ok(()),
                }
            }
        }
    }

    /// Waits, then reads and writes where something can be done.
    fn exchange(&mut self, until: Ns, precise: bool) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        self.poll.wait(until, precise, &mut ready).map_err(|e| system(&e))?;
        for token in std::mem::take(&mut self.unread) {
            // Each once: a second visit would date what comes behind by this look at the clock.
            match ready.iter_mut().find(|found| found.token == token) {
                Some(found) => found.readable = true,
                None => ready.push(Ready { token, readable: true, writable: false }),
            }
        }
        let arrived = self.poll.now();
        for Ready { token, readable, writable } in ready.drain(..) {
            if writable {
                self.flush(token)?;
            }
            if readable {
                self.read_at(token, arrived)?;
            }
        }
        self.ready = ready;
        Ok(())
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
                Received::Closed(error) => {
                    let reason = error.map_or_else(
                        || Fault::lost("the server closed the connection"),
                        |error| Fault::lost(&error.to_string()),
                    );
                    return self.lost(token, &reason);
                }
                Received::Bytes { bytes, more, now } => {
                    let arrived = if turn == 0 { arrived.min(now) } else { now };
                    let seat = &mut self.seats[token];
                    let at = Moment { arrived, now };
                    (seat.client.receive(bytes, at, &mut self.record), more, now)
                }
            };
            if let (Ok(Next::Free(since)), true) = (&step, self.running) {
                // The usual case: on to the next transaction without another turn.
                let since = *since;
                self.settle(token);
                self.next(token, since, now, self.setup.control.end())?;
            } else {
                self.follow(token, step)?;
            }
            if !more {
                return Ok(());
            }
        }
        self.unread.push_back(token);
        Ok(())
    }

    /// A connection is gone.
    fn lost(&mut self, token: Token, fault: &Fault) -> Result<()> {
        self.poll.close(token);
        let now = self.poll.now();
        let seat = &mut self.seats[token];
        if !self.running {
            return Err(crate::route::error_of(fault));
        }
        let logging_in = matches!(seat.client.state, State::Login(_));
        let was_open = !logging_in && seat.client.state != State::Closed;
        self.record.batch.disconnects += u32::from(was_open);
        seat.client.lost(now, fault.sqlstate(), fault.message(), &mut self.record);
        seat.alarm = None;
        let down_since = *seat.down_since.get_or_insert(now);
        let refused = logging_in
            && (matches!(fault, Fault::Login(_) | Fault::Tls(_))
                || fault.sqlstate().starts_with(b"28"));
        // A run that ends by count would wait for this client for ever.
        let waited = now - down_since > self.setup.connect_timeout;
        if refused || (waited && self.setup.control.end() >= NEVER) {
            seat.done = true;
            let note = format!("a client cannot log in again: {}", fault.message());
            self.record.batch.notes.push(note);
        } else {
            self.retry(token);
        }
        self.free.retain(|(free, _)| *free != token);
        if matches!(self.feed, Feed::Open { .. }) {
            // Another client may take it; under the other loads it waits for its own.
            if let Some(due) = self.seats[token].waiting.take() {
                self.give_back(due);
            }
        }
        Ok(())
    }

    fn retry(&mut self, token: Token) {
        let seat = &mut self.seats[token];
        let pause = BACKOFF.1.min(BACKOFF.0 << seat.attempts.min(20));
        seat.attempts += 1;
        let jittered = pause / 2 + self.setup.random.uniform(0, pause);
        let at = self.poll.now() + jittered;
        self.set_alarm(token, at, Alarm::Reconnect);
    }

    /// Passes on what a lost client was to start: to the idle client that has nothing to do or
    /// what is due last, and what that was to start, or where there is none, to the next free.
    fn give_back(&mut self, mut due: Due) {
        let idle = |s: &Seat| s.client.state == State::Free && (s.done || s.waiting.is_some());
        let until = |s: &Seat| s.waiting.map_or(Ns::MAX, |waiting| waiting.at);
        let all = (0..self.seats.len()).filter(|&token| idle(&self.seats[token]));
        if let Some(token) = all.max_by_key(|&token| until(&self.seats[token])) {
            let seat = &mut self.seats[token];
            if until(seat) > due.at {
                seat.done = false;
                let instead = seat.waiting.replace(due);
                self.set_alarm(token, due.at, Alarm::Due);
                let Some(instead) = instead else { return };
                due = instead;
            }
        }
        if let Feed::Open { returned, .. } = &mut self.feed {
            let place = returned.partition_point(|earlier| earlier.n < due.n);
            returned.insert(place, due);
        }
    }

    /// Ends what is still going on; the cancel keys of statements that the server still runs.
    fn abandon(&mut self) -> Vec<(i32, i32)> {
        let now = self.poll.now();
        let end = self.setup.control.end();
        let mut keys = Vec::new();
        for token in 0..self.seats.len() {
            let seat = &mut self.seats[token];
            let id = seat.client.id;
            if let Some(due) = seat.waiting.take().filter(|due| due.at < end)
                && !matches!(self.feed, Feed::Closed { .. })
            {
                self.record.put(Outcome::unsent(due, now, id, Class::Unfinished));
            }
            if seat.client.is_in_transaction() {
                keys.extend(seat.client.connection().and_then(|c| c.cancel_key()));
            } else if let Some(connection) = seat.client.connection() {
                postgres_protocol::message::frontend::terminate(connection.buffer());
                if let Ok(bytes) = connection.outgoing() {
                    let _ = self.poll.send(token, bytes);
                }
            }
            seat.client.abandon(now, &mut self.record);
            self.poll.close(token);
        }
        self.leave_unfinished(now, end);
        keys
    }

    /// What was due for these clients and nobody took.
    fn leave_unfinished(&mut self, now: Ns, end: Ns) {
        let record = &mut self.record;
        match &mut self.feed {
            Feed::Open { returned, .. } => {
                for due in returned.drain(..).filter(|due| due.at < end) {
                    record.put(Outcome::unsent(due, now, 0, Class::Unfinished));
                }
            }
            Feed::Paced(streams) => {
                for (seat, stream) in self.seats.iter().zip(streams) {
                    let client = seat.client.id;
                    stream.until(end, |due| {
                        record.put(Outcome::unsent(due, now, client, Class::Unfinished));
                    });
                }
            }
            Feed::Closed { .. } => {}
        }
    }

    /// Sends every second that has passed.
    fn rotate(&mut self, now: Ns) {
        while now >= (self.record.batch.second + 1) * SECOND {
            let end = (self.record.batch.second + 1) * SECOND;
            self.send_batch(end, false);
        }
    }

    fn rotate_last(&mut self) {
        let now = self.poll.now();
        self.rotate(now);
        self.send_batch(now, true);
    }

    fn send_batch(&mut self, end: Ns, last: bool) {
        let cpu = thread_cpu();
        let mut batch = self.record.swap(end);
        batch.cpu_ns = cpu - self.cpu_before;
        batch.last = last;
        self.cpu_before = cpu;
        // An owner that went away needs no more batches.
        let _ = self.setup.batches.send(batch);
        while let Ok(batch) = self.setup.spare.try_recv() {
            self.record.recycle(batch);
        }
    }
}

fn system(error: &std::io::Error) -> Error {
    Error::new(Kind::System, format!("waiting for the server failed: {error}"))
}

/// CPU time of this thread, nanoseconds.
fn thread_cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
