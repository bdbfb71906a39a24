//! Starts a server on a thread of its own and ends it. Knows nothing of what it serves.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use mio::{Poll, Waker};

use crate::config::{Address, Config};
use crate::control::Control;
use crate::reactor::{Reactor, WAKER};
use crate::state::State;

/// A running server; dropping it ends the server and closes its connections.
#[derive(Debug)]
pub struct FakeServer {
    address: Address,
    control: Control,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl FakeServer {
    /// Listens, and serves on a new thread. Fails where the address cannot be listened at or the
    /// record cannot be opened.
    pub fn start(config: Config) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (requests, receiver) = mpsc::channel();
        // State is not Send: it is made where it is used, and start waits for the outcome.
        let (report, outcome) = mpsc::channel();
        let thread = thread::Builder::new().name("fakeserver".to_owned()).spawn(move || {
            let reactor = State::new(config, Instant::now())
                .and_then(|state| Reactor::new(poll, receiver, state));
            let address = reactor.as_ref().map(|reactor| reactor.address().clone());
            let started = report.send(address.map_err(clone_error));
            if started.is_ok() { reactor?.run() } else { Ok(()) }
        })?;
        let address = outcome.recv().map_err(|_| io::ErrorKind::Other)??;
        Ok(Self { address, control: Control::new(requests, waker), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The TCP port it listens at; 0 for a unix socket.
    pub fn port(&self) -> u16 {
        match &self.address {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) => 0,
        }
    }

    /// Steers it while it runs.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Waits until its control stops it; fails where its thread failed.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the fake server's thread panicked")),
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to stop.
        let _ = self.control.stop();
        let _ = self.join();
    }
}

fn clone_error(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
