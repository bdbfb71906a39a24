//! Sockets by completion, on io_uring: what a thread sends is queued, and one system call submits
//! it all and waits for what comes. Bytes are received before anybody asks for them, into buffers
//! that all connections share.
//!
//! A send is tried once, while it is submitted, so that its bytes need no place of their own; what
//! a socket does not take then is copied to one, and sent as soon as it takes it. A connection that
//! is closed may have operations in flight: they bear its generation, and their ends are not
//! given to the next connection of its token.

mod buffers;
mod ring;

use super::clock::Clock;
use super::readiness::{Stream, begin, stands};
use super::shells::Shells;
use super::{Address, Backend, Poll, Ready, Received, Token, Waker};
use crate::client::ShellEnd;
use crate::conninfo::TcpSettings;
use crate::pace::Ns;
use buffers::{Part, Queue};
use ring::{Completion, Id, Ring, SEND_MAX};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sends that are submitted without waiting for the end of the turn: the servers of the first
/// connections of a turn are to begin before its last connection has been looked at.
const SENDS_TOGETHER: u32 = 8;

/// What has become of the last send of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// It is sent, unless its submission is the current one.
    In { submission: u64, start: usize, length: usize },
    /// The socket did not take it whole.
    Blocked,
    /// It failed, and nothing is sent any more.
    Failed,
}

struct Socket {
    stream: Stream,
    /// The connection stands, and we receive from it.
    connected: bool,
    /// Bytes are waited for.
    armed: bool,
    sending: Sending,
    /// Somebody waits until it takes more.
    wanted: bool,
    /// There is room again, or the connection stands.
    writable: bool,
    /// It is among those that `wait` is to report.
    listed: bool,
    received: Queue,
    /// Why nothing follows what was received.
    end: Option<Option<io::Error>>,
    /// Why a send failed.
    fault: Option<io::Error>,
}

/// The connections of a token, one after the other.
#[derive(Default)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// One thread's sockets over completions.
pub struct Uring {
    ring: Ring,
    slots: Vec<Slot>,
    /// The number of the submission that is being filled, and how many sends are in it.
    submission: u64,
    sends: u32,
    /// What the worker looks at, to be given back.
    lent: Option<Part>,
    /// Connections to report.
    listed: Vec<Token>,
    /// Connections that receive no more, for want of buffers.
    dry: Vec<Token>,
    /// Connections that wanted to send more than one submission takes.
    crowded: Vec<Token>,
    waker: Waker,
    clock: Clock,
    tcp: Option<TcpSettings>,
    /// The time when it was last looked at.
    seen: Ns,
    shells: Shells,
}

impl Uring {
    /// A poller for about this number of connections. Its clock starts now; it stays in this thread.
    ///
    /// # Errors
    /// What the operating system reports: mostly that it has no io_uring for us.
    pub fn new(connections: usize) -> io::Result<Self> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ring = Ring::new(connections, event.try_clone()?)?;
        let wake = move || {
            let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
        };
        Ok(Self {
            ring,
            slots: Vec::new(),
            submission: 1,
            sends: 0,
            lent: None,
            listed: Vec::new(),
            dry: Vec::new(),
            crowded: Vec::new(),
            waker: Waker::new(wake),
            clock: Clock::default(),
            tcp: None,
            seen: 0,
            shells: Shells::new(),
        })
    }

    fn socket(&mut self, token: Token) -> Option<&mut Socket> {
        self.slots.get_mut(token)?.socket.as_mut()
    }

    /// The connection that an operation was for, if it is still there.
    fn socket_of(&mut self, id: Id) -> Option<&mut Socket> {
        let slot = self.slots.get_mut(id.token as Token)?;
        if slot.generation == id.generation { slot.socket.as_mut() } else { None }
    }

    fn list(&mut self, token: Token) {
        if let Some(socket) = self.socket(token)
            && !std::mem::replace(&mut socket.listed, true)
        {
            self.listed.push(token);
        }
    }

    /// Receives again from connections that found no buffer, now that there are some.
    fn receive_again(&mut self) {
        while self.ring.buffers.free() > 0
            && let Some(token) = self.dry.pop()
        {
            let Self { ring, slots, .. } = self;
            if let Some(Slot { generation, socket: Some(socket) }) = slots.get_mut(token)
                && socket.connected
                && !socket.armed
                && socket.end.is_none()
            {
                socket.armed = true;
                ring.receive(socket.stream.as_fd(), id(token, *generation));
            }
        }
    }

    /// Looks at all that has completed. Behind it every send of the last submission was taken, or
    /// has a place of its own.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            while let Some(completion) = self.ring.next() {
                self.complete(completion);
            }
            if self.ring.is_quiet() {
                break;
            }
            self.ring.submit()?;
        }
        self.ring.clear_sends();
        self.submission += 1;
        self.sends = 0;
        Ok(())
    }
}

/// What completions mean.
impl Uring {
    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Received { id, part, error, armed } => {
                self.received(id, part, error, armed);
            }
            Completion::Refused { id, result } => self.refused(id, result),
            Completion::Short { id, place } => {
                let generation = self.slots[id.token as Token].generation;
                match self.slots[id.token as Token].socket.as_ref() {
                    Some(socket) if generation == id.generation => {
                        self.ring.resume(socket.stream.as_fd(), place);
                    }
                    _ => self.ring.give_up(place),
                }
            }
            Completion::Sent { id, error } => {
                let Some(socket) = self.socket_of(id) else { return };
                match error {
                    Some(error) => socket.fail(error),
                    None => {
                        socket.sending = Sending::NONE;
                        socket.writable |= std::mem::take(&mut socket.wanted);
                        self.list(id.token as Token);
                    }
                }
            }
            Completion::Connected(id) => {
                if let Some(socket) = self.socket_of(id) {
                    socket.writable = true;
                    self.list(id.token as Token);
                }
            }
            Completion::Woken | Completion::Other => {}
        }
    }

    fn received(&mut self, id: Id, part: Option<Part>, error: Option<Errno>, armed: bool) {
        let Self { ring, slots, dry, .. } = self;
        let slot = slots.get_mut(id.token as Token).filter(|slot| slot.generation == id.generation);
        let Some(socket) = slot.and_then(|slot| slot.socket.as_mut()) else {
            part.into_iter().for_each(|part| ring.buffers.give_back(part));
            return;
        };
        socket.armed = armed;
        match (part, error) {
            (_, Some(Errno::NOBUFS | Errno::INTR | Errno::AGAIN)) => {}
            (_, Some(error)) => socket.end = Some(Some(error.into())),
            (Some(part), None) if !part.is_empty() => {
                ring.buffers.push(&mut socket.received, part);
            }
            (part, None) => {
                part.into_iter().for_each(|part| ring.buffers.give_back(part));
                socket.end = Some(None);
            }
        }
        if !armed && socket.end.is_none() {
            dry.push(id.token as Token);
        }
        self.list(id.token as Token);
    }

    /// A socket did not take a send whole while it was submitted.
    fn refused(&mut self, id: Id, result: Result<usize, Errno>) {
        let Self { ring, slots, submission, .. } = self;
        let slot = slots.get_mut(id.token as Token).filter(|slot| slot.generation == id.generation);
        let Some(socket) = slot.and_then(|slot| slot.socket.as_mut()) else { return };
        let Sending::In { submission: at, start, length } = socket.sending else { return };
        debug_assert_eq!(at, *submission, "a refusal is known when its submission is");
        match result {
            Ok(_) | Err(Errno::AGAIN) => {
                let sent = result.unwrap_or(0);
                socket.sending = Sending::Blocked;
                ring.send_rest(socket.stream.as_fd(), id, start + sent..start + length);
            }
            Err(error) => socket.fail(error),
        }
    }

    /// Tells the worker what it can do.
    fn report(&mut self, ready: &mut Vec<Ready>) {
        let Self { slots, listed, crowded, submission, .. } = self;
        for token in crowded.drain(..) {
            let socket = slots.get_mut(token).and_then(|slot| slot.socket.as_mut());
            if let Some(socket) = socket.filter(|s| s.wanted && s.sending.is_free(*submission)) {
                socket.wanted = false;
                socket.writable = true;
                if !std::mem::replace(&mut socket.listed, true) {
                    listed.push(token);
                }
            }
        }
        for token in listed.drain(..) {
            let Some(socket) = slots.get_mut(token).and_then(|slot| slot.socket.as_mut()) else {
                continue;
            };
            socket.listed = false;
            let readable = !socket.received.is_empty() || socket.end.is_some();
            let writable = std::mem::take(&mut socket.writable);
            if readable || writable {
                ready.push(Ready { token, readable, writable });
            }
        }
    }
}

impl Sending {
    /// No send is under way.
    const NONE: Self = Self::In { submission: 0, start: 0, length: 0 };

    /// Whether another send may follow in this submission.
    fn is_free(self, current: u64) -> bool {
        matches!(self, Self::In { submission, .. } if submission != current)
    }
}

impl Socket {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            connected: false,
            armed: false,
            sending: Sending::NONE,
            wanted: false,
            writable: false,
            listed: false,
            received: Queue::default(),
            end: None,
            fault: None,
        }
    }

    /// A send has failed: what has come is still to be received, and nothing more comes then.
    fn fail(&mut self, error: Errno) {
        self.sending = Sending::Failed;
        self.fault.get_or_insert(error.into());
        let _ = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Both);
    }

    /// Why nothing more comes, once.
    fn take_end(&mut self) -> Option<Option<io::Error>> {
        let end = self.end.take()?;
        // That a pipe is broken says less than the end that the other side made.
        let fault = self.fault.take().filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
        Some(end.or(fault))
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Unix(stream) => stream.into(),
            Stream::Tcp(stream) => stream.into(),
        }
    }
}

fn id(token: Token, generation: u32) -> Id {
    Id { token: u32::try_from(token).expect("as many connections as there can be"), generation }
}

impl Backend for Uring {
    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn set_tcp(&mut self, settings: TcpSettings) {
        self.tcp = Some(settings);
    }

    fn set_origin(&mut self, origin: Instant) {
        self.clock.set_origin(origin);
    }
}

impl Poll for Uring {
    fn now(&mut self) -> Ns {
        self.seen = self.clock.now();
        self.seen
    }

    fn wait(&mut self, until: Ns, precise: bool, ready: &mut Vec<Ready>) -> io::Result<()> {
        if let Some(part) = self.lent.take() {
            self.ring.buffers.give_back(part);
        }
        self.receive_again();
        // A coarse wait does not need another look at the clock.
        let now = if precise { self.now() } else { self.seen };
        let mut left = Duration::from_nanos(u64::try_from(until - now).unwrap_or(0));
        if !(self.listed.is_empty() && self.crowded.is_empty()) {
            left = Duration::ZERO;
        }
        self.ring.wait(left)?;
        self.reap()?;
        self.report(ready);
        Ok(())
    }

    fn connect(&mut self, token: Token, address: &Address) -> io::Result<()> {
        let stream = begin(address, self.tcp.as_ref())?;
        if self.slots.len() <= token {
            self.slots.resize_with(token + 1, Slot::default);
        }
        self.close(token);
        let stands = matches!(stream, Stream::Unix(_));
        let slot = &mut self.slots[token];
        let socket = slot.socket.insert(Socket::new(stream));
        if stands {
            socket.writable = true;
            self.list(token);
        } else {
            self.ring.connected(socket.stream.as_fd(), id(token, slot.generation));
        }
        Ok(())
    }

    fn receive(&mut self, token: Token) -> Received<'_> {
        let Self { ring, slots, lent, .. } = self;
        if let Some(part) = lent.take() {
            ring.buffers.give_back(part);
        }
        let Some(socket) = slots.get_mut(token).and_then(|slot| slot.socket.as_mut()) else {
            return Received::Nothing;
        };
        let Some(part) = ring.buffers.pop(&mut socket.received) else {
            return socket.take_end().map_or(Received::Nothing, Received::Closed);
        };
        let more = !socket.received.is_empty() || socket.end.is_some();
        let bytes = ring.buffers.bytes(lent.insert(part));
        Received::Bytes { bytes, more, now: self.clock.now() }
    }

    fn send(&mut self, token: Token, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.len().min(SEND_MAX);
        if self.ring.is_full(piece) || self.sends == SENDS_TOGETHER {
            self.ring.submit()?;
            self.reap()?;
        }
        let Self { ring, slots, submission, crowded, .. } = self;
        let Some(Slot { generation, socket: Some(socket) }) = slots.get_mut(token) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let id = id(token, *generation);
        if !socket.connected {
            if !stands(&mut socket.stream)? {
                return Ok(0);
            }
            (socket.connected, socket.armed) = (true, true);
            ring.receive(socket.stream.as_fd(), id);
        }
        if !socket.sending.is_free(*submission) {
            // Blocked, it is reported when it has room; failed, when it has received its end.
            socket.wanted = true;
            if socket.sending != Sending::Blocked && socket.sending != Sending::Failed {
                crowded.push(token);
            }
            return Ok(0);
        }
        let start = ring.send(socket.stream.as_fd(), id, &bytes[..piece]);
        socket.sending = Sending::In { submission: *submission, start, length: piece };
        self.sends += 1;
        if piece < bytes.len() {
            socket.wanted = true;
            crowded.push(token);
        }
        Ok(piece)
    }

    fn close(&mut self, token: Token) {
        let Self { ring, slots, .. } = self;
        let Some(slot) = slots.get_mut(token) else { return };
        let Some(mut socket) = slot.socket.take() else { return };
        slot.generation = slot.generation.wrapping_add(1);
        while let Some(part) = ring.buffers.pop(&mut socket.received) {
            ring.buffers.give_back(part);
        }
        ring.close(socket.stream.into());
    }

    fn shell(&mut self, token: Token, line: Vec<u8>, capture: bool) -> u64 {
        self.shells.start(token, line, capture, &self.waker)
    }

    fn shell_ended(&mut self) -> Option<(Token, u64, ShellEnd)> {
        self.shells.ended()
    }
}
