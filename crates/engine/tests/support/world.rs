//! `Poll` in virtual time, with a server behind it whose every answer is planned. Waiting sets
//! the clock to the next event; nothing sleeps and nothing depends on the machine.

use super::backend::{Backend, Part, Request, error, welcome};
use super::turns::Turn;
use pgpaces_engine::client::ShellEnd;
use pgpaces_engine::pace::{Ns, SECOND};
use pgpaces_engine::poll::{Address, Poll, Ready, Received, Token};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::sync::mpsc::Sender;

/// How many waits in a row may leave the clock and all connections as they are.
const IDLE_WAITS_MAX: u32 = 1000;

/// No test lasts longer.
const CLOCK_MAX: Ns = 10_000 * SECOND;

/// A statement that has reached the server.
#[derive(Debug)]
pub struct Call<'a> {
    pub at: Ns,
    pub connection: Token,
    pub sql: &'a str,
}

/// What becomes of a statement, after how much work.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    Rows(Ns),
    Error(&'static str, Ns),
    /// The connection is closed.
    Vanish(Ns),
    /// The server wants rows to copy.
    Copy(Ns),
}

/// How long a shell command takes, and how it ends.
pub type Shell = (Ns, ShellEnd);

/// Who does the work.
#[derive(Debug, Clone)]
pub enum Workforce {
    /// Each connection has a server of its own.
    PerConnection,
    /// So many servers work for all, first come, first served; when each will be free.
    Shared(BinaryHeap<Reverse<Ns>>),
}

impl Workforce {
    pub fn shared(servers: usize) -> Self {
        Self::Shared((0..servers).map(|_| Reverse(Ns::MIN)).collect())
    }

    fn done(&mut self, now: Ns, work: Ns) -> Ns {
        match self {
            Self::PerConnection => now + work,
            Self::Shared(free) => {
                let Reverse(at) = free.pop().expect("at least one server");
                let done = at.max(now) + work;
                free.push(Reverse(done));
                done
            }
        }
    }
}

/// The server and the line to it.
pub struct Server {
    pub service: Box<dyn FnMut(&Call<'_>) -> Answer + Send>,
    /// What becomes of a login; an error refuses it.
    pub logins: Box<dyn FnMut(&Call<'_>) -> Answer + Send>,
    /// Not the server's, but beside it: what becomes of a shell command.
    pub shells: Box<dyn FnMut(&str) -> Shell + Send>,
    pub workforce: Workforce,
    /// Between these times, both excluded, nothing is answered; at the second, everything.
    pub freezes: Vec<(Ns, Ns)>,
    /// When which connection is cut.
    pub cuts: Vec<(Ns, Token)>,
    /// Between these times there is no server: all connections are cut at the first.
    pub outages: Vec<(Ns, Ns)>,
    /// Hears when which connection was asked for.
    pub attempts: Option<Sender<(Ns, Token)>>,
    /// How many bytes one receive gives at most.
    pub receive_max: usize,
    /// How many bytes one send takes at most.
    pub send_max: usize,
    /// How long each look at the clock takes, once the load runs.
    pub tick: Ns,
}

impl Server {
    pub fn new(service: impl FnMut(&Call<'_>) -> Answer + Send + 'static) -> Self {
        Self {
            service: Box::new(service),
            logins: Box::new(|_| Answer::Rows(0)),
            shells: Box::new(|_| (0, ShellEnd { succeeded: true, line: Some(b"7".to_vec()) })),
            workforce: Workforce::PerConnection,
            freezes: Vec::new(),
            cuts: Vec::new(),
            outages: Vec::new(),
            attempts: None,
            receive_max: usize::MAX,
            send_max: usize::MAX,
            tick: 0,
        }
    }

    fn thawed(&self, at: Ns) -> Ns {
        let frozen = |(from, to): &&(Ns, Ns)| (*from + 1..*to).contains(&at);
        self.freezes.iter().find(frozen).map_or(at, |(_, to)| *to)
    }

    fn is_out(&self, at: Ns) -> bool {
        self.outages.iter().any(|(from, to)| (*from..*to).contains(&at))
    }
}

#[derive(Debug)]
enum Event {
    Writable,
    Bytes(Vec<u8>),
    Cut,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Closed,
    Connecting,
    Standing,
    Cut,
}

#[derive(Debug)]
struct Connection {
    line: Line,
    /// How many connections this token has had; events of an old one are void.
    epoch: u64,
    backend: Backend,
    /// On their way to the client and there already.
    inbox: Vec<u8>,
}

/// One worker's world.
pub struct World {
    clock: Ns,
    server: Server,
    connections: Vec<Connection>,
    /// By time and order; void where the epoch is an old one, for all epochs where there is none.
    events: BTreeMap<(Ns, u64), (Token, Option<u64>, Event)>,
    planned: u64,
    received: Vec<u8>,
    turn: Option<Turn>,
    idle_waits: u32,
    /// Shell commands that have been begun, by their ends and numbers.
    shells: BTreeMap<(Ns, u64), (Token, ShellEnd)>,
    shells_begun: u64,
}

impl World {
    /// A world for `clients` connections whose clock shows `clock`.
    pub fn new(server: Server, clients: usize, clock: Ns) -> Self {
        let connection = |_| Connection {
            line: Line::Closed,
            epoch: 0,
            backend: Backend::default(),
            inbox: Vec::new(),
        };
        let mut world = Self {
            clock,
            connections: (0..clients).map(connection).collect(),
            events: BTreeMap::new(),
            planned: 0,
            received: Vec::new(),
            turn: None,
            idle_waits: 0,
            shells: BTreeMap::new(),
            shells_begun: 0,
            server,
        };
        let outages = world.server.outages.iter();
        let all = outages.flat_map(|(from, _)| (0..clients).map(|token| (*from, token)));
        for (at, token) in world.server.cuts.iter().copied().chain(all).collect::<Vec<_>>() {
            world.plan(at, token, None, Event::Cut);
        }
        world
    }

    /// From now on other workers go on in the same time.
    pub fn take_turns(&mut self, turn: Turn) {
        turn.wait_for(self.clock);
        self.turn = Some(turn);
    }

    fn plan(&mut self, at: Ns, token: Token, epoch: Option<u64>, event: Event) {
        self.events.insert((at, self.planned), (token, epoch, event));
        self.planned += 1;
    }

    /// Lets an event happen; what can be done on its connection now.
    fn happen(&mut self, token: Token, epoch: Option<u64>, event: Event) -> Option<Ready> {
        let connection = &mut self.connections[token];
        let is_void = epoch.is_some_and(|epoch| epoch != connection.epoch);
        if is_void || matches!(connection.line, Line::Closed | Line::Cut) {
            return None;
        }
        let (readable, writable) = match event {
            Event::Writable => {
                connection.line = Line::Standing;
                (false, true)
            }
            Event::Bytes(bytes) => {
                connection.inbox.extend(bytes);
                (true, false)
            }
            Event::Cut => {
                connection.line = Line::Cut;
                (true, true)
            }
        };
        Some(Ready { token, readable, writable })
    }

    /// The server reads a request.
    fn serve(&mut self, token: Token, request: &Request) {
        let epoch = Some(self.connections[token].epoch);
        let (at, event) = match request {
            Request::Startup => self.let_in(token),
            Request::Terminate => return,
            Request::Work(parts) => self.work(token, parts),
            Request::CopyFail => {
                (self.clock, Event::Bytes(self.connections[token].backend.copy_failed()))
            }
        };
        self.plan(self.server.thawed(at), token, epoch, event);
    }

    fn let_in(&mut self, token: Token) -> (Ns, Event) {
        let call = Call { at: self.clock, connection: token, sql: "" };
        match (self.server.logins)(&call) {
            Answer::Rows(work) | Answer::Copy(work) => (self.clock + work, Event::Bytes(welcome())),
            Answer::Vanish(work) => (self.clock + work, Event::Cut),
            Answer::Error(sqlstate, work) => {
                let words = error("FATAL", sqlstate, "not you");
                (self.clock + work, Event::Bytes(words))
            }
        }
    }

    /// Each statement is done when the one before it is; all are answered at once.
    fn work(&mut self, token: Token, parts: &[Part]) -> (Ns, Event) {
        let mut at = self.clock;
        let statements = parts.iter().filter_map(|part| match part {
            Part::Statement(sql) => Some(sql),
            Part::Done(_) => None,
        });
        let mut failing = None;
        for (number, sql) in statements.enumerate() {
            let answer = (self.server.service)(&Call { at, connection: token, sql });
            let (Answer::Rows(work)
            | Answer::Error(_, work)
            | Answer::Vanish(work)
            | Answer::Copy(work)) = answer;
            at = self.server.workforce.done(at, work);
            match answer {
                Answer::Rows(_) => {}
                Answer::Vanish(_) => return (at, Event::Cut),
                Answer::Copy(_) => {
                    let asked = self.connections[token].backend.ask_for_rows();
                    return (at, Event::Bytes(asked));
                }
                Answer::Error(sqlstate, _) => {
                    failing = Some((number, sqlstate));
                    break;
                }
            }
        }
        (at, Event::Bytes(self.connections[token].backend.answer(parts, failing)))
    }
}

impl Poll for World {
    fn shell(&mut self, token: Token, line: Vec<u8>, _: bool) -> u64 {
        let (takes, end) = (self.server.shells)(&String::from_utf8_lossy(&line));
        self.shells_begun += 1;
        self.shells.insert((self.clock + takes, self.shells_begun), (token, end));
        self.shells_begun
    }

    fn shell_ended(&mut self) -> Option<(Token, u64, ShellEnd)> {
        let first = self.shells.first_entry().filter(|entry| entry.key().0 <= self.clock)?;
        let number = first.key().1;
        let (token, end) = first.remove();
        Some((token, number, end))
    }

    fn now(&mut self) -> Ns {
        if self.turn.is_some() {
            self.clock += self.server.tick;
        }
        self.clock
    }

    fn wait(&mut self, until: Ns, _: bool, ready: &mut Vec<Ready>) -> io::Result<()> {
        let next = self.events.first_key_value().map_or(Ns::MAX, |((at, _), _)| *at);
        let shell = self.shells.first_key_value().map_or(Ns::MAX, |((at, _), _)| *at);
        let at = next.min(shell).min(until).max(self.clock);
        assert!(at < CLOCK_MAX, "the worker never ends");
        if let Some(turn) = &self.turn {
            turn.wait_for(at);
        }
        let before = std::mem::replace(&mut self.clock, at);
        while let Some(event) = self.events.first_entry().filter(|e| e.key().0 <= at) {
            let (token, epoch, event) = event.remove();
            ready.extend(self.happen(token, epoch, event));
        }
        self.idle_waits += 1;
        if at > before || !ready.is_empty() {
            self.idle_waits = 0;
        }
        assert!(self.idle_waits < IDLE_WAITS_MAX, "the worker spins at {at} ns");
        Ok(())
    }

    fn connect(&mut self, token: Token, _: &Address) -> io::Result<()> {
        let (now, epoch) = (self.clock, self.connections[token].epoch + 1);
        if let Some(attempts) = &self.server.attempts {
            let _ = attempts.send((now, token));
        }
        // A local socket refuses at once, a remote one when it is looked at.
        if self.server.is_out(now) && token % 2 == 1 {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.connections[token] = Connection {
            line: Line::Connecting,
            epoch,
            backend: Backend::default(),
            inbox: Vec::new(),
        };
        self.plan(now, token, Some(epoch), Event::Writable);
        Ok(())
    }

    fn receive(&mut self, token: Token) -> Received<'_> {
        let now = self.now();
        let connection = &mut self.connections[token];
        if connection.inbox.is_empty() {
            return match connection.line {
                Line::Cut => Received::Closed(None),
                _ => Received::Nothing,
            };
        }
        let count = connection.inbox.len().min(self.server.receive_max);
        self.received = connection.inbox.drain(..count).collect();
        self.idle_waits = 0;
        // The end behind the last bytes is told once, as by the real poller.
        let more = !connection.inbox.is_empty() || connection.line == Line::Cut;
        Received::Bytes { bytes: &self.received, more, now }
    }

    fn send(&mut self, token: Token, bytes: &[u8]) -> io::Result<usize> {
        let out = self.server.is_out(self.clock);
        let connection = &mut self.connections[token];
        match connection.line {
            Line::Connecting => return Ok(0),
            Line::Standing if !out => {}
            Line::Standing => return Err(io::ErrorKind::ConnectionRefused.into()),
            Line::Cut => return Err(io::ErrorKind::BrokenPipe.into()),
            Line::Closed => return Err(io::ErrorKind::NotConnected.into()),
        }
        let count = bytes.len().min(self.server.send_max);
        let requests = connection.backend.receive(&bytes[..count]);
        let epoch = connection.epoch;
        if count < bytes.len() {
            self.plan(self.clock, token, Some(epoch), Event::Writable);
        }
        for request in requests {
            self.serve(token, &request);
        }
        Ok(count)
    }

    fn close(&mut self, token: Token) {
        self.connections[token].line = Line::Closed;
    }
}
