//! The event loop: one thread, all connections, all clock reading but the stamp of a read. Knows
//! what happened to which connection; what it means is the connection's business.

use std::io;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use mio::event::Event;
use mio::{Events, Interest, Poll, Token};

use crate::alarm::Alarm;
use crate::config::Address;
use crate::connection::{Connection, Core, Status};
use crate::control::{Command, Reply, Request};
use crate::frames::CancelKey;
use crate::session::Session;
use crate::socket::{Listener, Stream};
use crate::state::State;

const LISTENER: Token = Token(0);
pub(crate) const WAKER: Token = Token(1);
const ALARM: Token = Token(2);
const FIRST_SLOT: usize = 3;

/// The server as its thread sees it.
pub(crate) struct Reactor {
    poll: Poll,
    alarm: Alarm,
    address: Address,
    /// `None` while connections are refused.
    listener: Option<Listener>,
    requests: Receiver<Request>,
    core: Core,
    connections: Vec<Option<Box<Connection>>>,
    open: usize,
    free: Vec<usize>,
    /// Connections that used up their turn.
    unfinished: Vec<usize>,
    /// Whether a client waits to be accepted until a connection closes.
    is_short_of_files: bool,
    is_running: bool,
}

impl Reactor {
    /// Listens at the address of the configuration in `state`.
    pub(crate) fn new(poll: Poll, requests: Receiver<Request>, state: State) -> io::Result<Self> {
        let alarm = Alarm::new(poll.registry(), ALARM)?;
        let asked = state.config.listen.clone();
        let listener = Listener::bind(&asked)?;
        let address = listener.address(&asked)?;
        let mut reactor = Self {
            poll,
            alarm,
            address,
            listener: None,
            requests,
            core: Core::new(state),
            connections: Vec::new(),
            open: 0,
            free: Vec::new(),
            unfinished: Vec::new(),
            is_short_of_files: false,
            is_running: true,
        };
        reactor.listen(listener)?;
        Ok(reactor)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Serves until it is stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while self.is_running {
            self.wait(&mut events)?;
            self.tell_time();
            for event in &events {
                self.dispatch(event)?;
            }
            for slot in std::mem::take(&mut self.unfinished) {
                self.pump(slot);
            }
        }
        self.core.state.journal.flush();
        self.refuse();
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        self.core.state.journal.flush();
        let now = Instant::now();
        let next =
            [self.core.desk.next_end(), self.core.gate.next_change(now)].into_iter().flatten();
        let next = if self.unfinished.is_empty() { next.min() } else { Some(now) };
        let timeout = self.alarm.set(next, now)?;
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            polled => polled,
        }
    }

    /// Opens or shuts the gate and answers every statement whose service is over.
    fn tell_time(&mut self) {
        let now = Instant::now();
        if self.core.gate.tell_time(now) {
            (0..self.connections.len()).for_each(|slot| self.pump(slot));
        }
        while let Some(done) = self.core.desk.take_done(now) {
            if let Some(connection) = &mut self.connections[done.slot] {
                connection.finish(done, &mut self.core);
            }
            self.pump(done.slot);
        }
    }

    fn dispatch(&mut self, event: &Event) -> io::Result<()> {
        match event.token() {
            LISTENER => self.accept(),
            WAKER => self.obey(),
            ALARM => {}
            Token(number) => {
                let slot = number - FIRST_SLOT;
                if let Some(connection) = &mut self.connections[slot] {
                    connection.notice(event);
                    self.pump(slot);
                }
            }
        }
        Ok(())
    }

    /// Lets a connection do what it can, and carries out what it asks for.
    fn pump(&mut self, slot: usize) {
        let Some(connection) = &mut self.connections[slot] else {
            return;
        };
        let was_full = connection.is_full();
        match connection.pump(&mut self.core) {
            Status::Gone => self.close(slot),
            status => {
                let is_full = connection.is_full();
                let token = Token(slot + FIRST_SLOT);
                let registry = self.poll.registry();
                if was_full != is_full
                    && connection.stream().reregister(registry, token, is_full).is_err()
                {
                    self.close(slot);
                } else if status == Status::Unfinished {
                    self.unfinished.push(slot);
                }
            }
        }
        while let Some(key) = self.core.cancels.pop() {
            self.cancel(key);
        }
    }

    fn close(&mut self, slot: usize) {
        let Some(mut connection) = self.connections[slot].take() else {
            return;
        };
        connection.leave(Instant::now(), &mut self.core);
        drop(connection);
        self.open -= 1;
        self.free.push(slot);
        if std::mem::take(&mut self.is_short_of_files) {
            self.accept();
        }
    }

    fn cancel(&mut self, key: CancelKey) {
        let slot = (key.process_id as usize).wrapping_sub(1);
        if let Some(Some(connection)) = self.connections.get_mut(slot)
            && connection.key() == key
        {
            connection.cancel(Instant::now(), &mut self.core);
            self.pump(slot);
        }
    }

    /// Accepts waiting clients. Without a free file descriptor they wait until one is free.
    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok(stream) => self.admit(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => {
                    self.is_short_of_files = true;
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut stream: Stream) {
        let slot = self.free.pop().unwrap_or(self.connections.len());
        if slot == self.connections.len() {
            self.connections.push(None);
        }
        if stream.register(self.poll.registry(), Token(slot + FIRST_SLOT)).is_err() {
            self.free.push(slot);
            return;
        }
        self.open += 1;
        let state = &mut self.core.state;
        state.journal.stats.accepted += 1;
        let secret = state.secrets.bits() as u32;
        let key = CancelKey { process_id: slot as u32 + 1, secret };
        let session = Session::new(state.journal.stats.accepted, key);
        let connection = Connection::new(slot, stream, session, Instant::now());
        self.connections[slot] = Some(Box::new(connection));
    }

    fn listen(&mut self, mut listener: Listener) -> io::Result<()> {
        self.poll.registry().register(listener.source(), LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    fn refuse(&mut self) {
        self.listener = None;
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Carries out what the controls ask for.
    fn obey(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            let reply = self.carry_out(request.command);
            // Who asked may be gone.
            let _ = request.reply_to.send(reply);
        }
    }

    fn carry_out(&mut self, command: Command) -> io::Result<Reply> {
        match command {
            Command::Stall => self.core.gate.set_by_hand(true),
            Command::Thaw => self.core.gate.set_by_hand(false),
            Command::Delay(delay) => self.core.state.config.delay = delay,
            Command::Refuse => self.refuse(),
            Command::Accept if self.listener.is_none() => {
                let listener = Listener::bind(&self.address)?;
                self.listen(listener)?;
            }
            Command::Accept => {}
            Command::DropAll => (0..self.connections.len()).for_each(|slot| self.close(slot)),
            Command::Stop => self.is_running = false,
            Command::Log => return Ok(Reply::Log(self.core.state.journal.log())),
            Command::Stats => {
                let (in_service, waiting) = self.core.desk.counts();
                let mut stats = self.core.state.stats();
                (stats.open, stats.in_service, stats.waiting) = (self.open, in_service, waiting);
                return Ok(Reply::Stats(Box::new(stats)));
            }
        }
        self.tell_time();
        Ok(Reply::Done)
    }
}

/// Whether accepting failed because of the client, so that the next one may be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
