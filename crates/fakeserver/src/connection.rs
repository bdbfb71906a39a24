//! One connection: a socket, its session, and the bytes between them. Reads, lets the session work,
//! writes, and keeps all three bounded. Knows nothing of other connections.
//!
//! Nothing is allocated for a connection that owes nothing: input that is whole is handled where it
//! was read, and output that the socket takes at once lives in a buffer that all share.

use std::io;
use std::time::{Duration, Instant};

use crate::desk::{Desk, Done, Ticket};
use crate::frames::CancelKey;
use crate::gate::Gate;
use crate::session::{Flow, Session, Turn};
use crate::socket::Stream;
use crate::state::State;

/// Bytes read at once.
const READ: usize = 64 * 1024;
/// Unhandled input beyond which nothing more is read while a statement is served or answered. A
/// message that is still incomplete may be longer.
const MOST_INPUT: usize = 64 * 1024;
/// Unwritten output beyond which no further message is handled.
const MOST_OUTPUT: usize = 64 * 1024;
/// Bytes of a long answer that are made at once.
const FILL: usize = 128 * 1024;
/// Reads or fills in one go before others have their turn.
const ROUNDS: usize = 16;

/// What all connections of a server share.
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) desk: Desk,
    pub(crate) gate: Gate,
    /// Cancel requests that are not carried out yet.
    pub(crate) cancels: Vec<CancelKey>,
    scratch: Vec<u8>,
    spare: Vec<u8>,
}

impl Core {
    pub(crate) fn new(state: State) -> Self {
        let desk = Desk::new(state.config.servers);
        let gate = Gate::new(state.config.stalls.clone());
        let scratch = vec![0; READ];
        Self { state, desk, gate, cancels: Vec::new(), scratch, spare: Vec::new() }
    }
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It handles messages as they come.
    Reading,
    /// Its statement waits or is in service.
    Serving(Ticket),
    /// It sends a long answer.
    Filling,
    /// It ends when its output is written.
    Closing,
}

/// What is to be done with a connection now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing until its socket, its statement or the gate moves.
    Waiting,
    /// It used up its turn: pump it again.
    Unfinished,
    /// It is over: drop it.
    Gone,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    slot: usize,
    stream: Stream,
    session: Session,
    stage: Stage,
    /// When bytes were read last.
    arrived: Instant,
    /// When its last served statement was due to end.
    served_until: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    is_readable: bool,
    is_hung_up: bool,
    is_full: bool,
}

impl Connection {
    pub(crate) fn new(slot: usize, stream: Stream, session: Session, now: Instant) -> Self {
        Self {
            slot,
            stream,
            session,
            stage: Stage::Reading,
            arrived: now,
            served_until: now,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            is_readable: false,
            is_hung_up: false,
            is_full: false,
        }
    }

    pub(crate) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    pub(crate) fn key(&self) -> CancelKey {
        self.session.key()
    }

    /// Whether the socket takes no more bytes for now.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Notes what the poll says of the socket.
    pub(crate) fn notice(&mut self, event: &mio::event::Event) {
        self.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.is_hung_up |= event.is_read_closed() || event.is_error();
    }

    /// Answers its statement, whose service is over.
    pub(crate) fn finish(&mut self, done: Done, core: &mut Core) {
        if self.stage == Stage::Serving(done.ticket) {
            self.served_until = done.at;
            let flow = self.with_turn(core, Session::answer);
            self.follow(flow, core);
        }
    }

    /// Ends its statement, where there is one.
    pub(crate) fn cancel(&mut self, now: Instant, core: &mut Core) {
        match self.stage {
            Stage::Closing => return,
            Stage::Serving(ticket) => {
                core.desk.leave(ticket, now);
                self.served_until = now;
            }
            Stage::Reading | Stage::Filling => {}
        }
        let flow = self.with_turn(core, Session::cancel);
        self.follow(flow, core);
    }

    /// Gives back what it holds; called once, before it is dropped.
    pub(crate) fn leave(&mut self, now: Instant, core: &mut Core) {
        if let Stage::Serving(ticket) = self.stage {
            core.desk.leave(ticket, now);
        }
        self.session.leave(&mut core.state);
    }

    /// Reads, handles and writes whatever can be.
    pub(crate) fn pump(&mut self, core: &mut Core) -> Status {
        if self.output.capacity() == 0 {
            std::mem::swap(&mut self.output, &mut core.spare);
        }
        let status = self.run_rounds(core).unwrap_or(Status::Gone);
        if self.output.is_empty() {
            let drained = std::mem::take(&mut self.output);
            if drained.capacity() > core.spare.capacity() {
                core.spare = drained;
            }
        }
        status
    }

    fn run_rounds(&mut self, core: &mut Core) -> io::Result<Status> {
        for _ in 0..ROUNDS {
            self.flush(core)?;
            let has_advanced = self.advance(core);
            if has_advanced {
                self.flush(core)?;
            }
            let has_room = self.output.len() < MOST_OUTPUT;
            let wants_more = self.stage == Stage::Reading || self.input.len() < MOST_INPUT;
            match self.stage {
                Stage::Closing if self.output.is_empty() => return Ok(Status::Gone),
                Stage::Closing => return Ok(Status::Waiting),
                _ if has_advanced && has_room => {}
                _ if self.is_readable && has_room && wants_more => {
                    self.read(core)?;
                }
                _ => return Ok(Status::Waiting),
            }
        }
        Ok(Status::Unfinished)
    }

    /// Makes output from what is already here; whether there was anything to do.
    fn advance(&mut self, core: &mut Core) -> bool {
        match self.stage {
            Stage::Filling if self.output.is_empty() => {
                let flow = self.with_turn(core, |session, turn| session.fill(FILL, turn));
                self.follow(flow, core);
                true
            }
            Stage::Reading if !self.input.is_empty() => {
                let mut input = std::mem::take(&mut self.input);
                let used = self.handle(&input, core);
                if used < input.len() {
                    input.drain(..used);
                    self.input = input;
                }
                used > 0
            }
            _ => false,
        }
    }

    fn read(&mut self, core: &mut Core) -> io::Result<()> {
        let mut scratch = std::mem::take(&mut core.scratch);
        let read = self.stream.read(&mut scratch);
        let result = match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.arrived = Instant::now();
                self.is_readable = self.is_hung_up || count == scratch.len();
                core.state.journal.stats.bytes_received += count as u64;
                self.take_in(&scratch[..count], core);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        };
        core.scratch = scratch;
        result
    }

    fn take_in(&mut self, bytes: &[u8], core: &mut Core) {
        let used = if self.input.is_empty() { self.handle(bytes, core) } else { 0 };
        self.input.extend_from_slice(&bytes[used..]);
    }

    /// Lets the session handle whole messages; how many bytes they took.
    fn handle(&mut self, bytes: &[u8], core: &mut Core) -> usize {
        let mut used = 0;
        while self.stage == Stage::Reading && self.output.len() < MOST_OUTPUT {
            let received =
                self.with_turn(core, |session, turn| session.receive(&bytes[used..], turn));
            let Some((count, flow)) = received else { break };
            used += count;
            self.follow(flow, core);
        }
        used
    }

    /// Does what the session needs next.
    fn follow(&mut self, mut flow: Flow, core: &mut Core) {
        while let Flow::Serve(service) = flow {
            core.gate.tell_query(self.arrived);
            if service != Some(Duration::ZERO) || !core.desk.has_place() {
                let start = self.arrived.max(self.served_until);
                self.stage = Stage::Serving(core.desk.enter(self.slot, start, service));
                return;
            }
            flow = self.with_turn(core, Session::answer);
        }
        self.stage = match flow {
            Flow::Next | Flow::Serve(_) => Stage::Reading,
            Flow::Fill => Stage::Filling,
            Flow::Close => Stage::Closing,
            Flow::Cancel(key) => {
                core.cancels.push(key);
                Stage::Closing
            }
        };
    }

    fn with_turn<T>(
        &mut self,
        core: &mut Core,
        work: impl FnOnce(&mut Session, &mut Turn<'_>) -> T,
    ) -> T {
        let mut turn = Turn { state: &mut core.state, out: &mut self.output, now: self.arrived };
        work(&mut self.session, &mut turn)
    }

    /// Writes what the socket takes, unless the server is frozen.
    fn flush(&mut self, core: &mut Core) -> io::Result<()> {
        if core.gate.is_shut() {
            return Ok(());
        }
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    core.state.journal.stats.bytes_sent += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.is_full = false;
        self.output.clear();
        self.written = 0;
        Ok(())
    }
}
