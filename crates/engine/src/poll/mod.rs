//! The interface of the load to the system: one thread's sockets and its clock. `readiness` is
//! the real one over epoll or kqueue, `uring` that over io_uring; tests implement it by a server in
//! virtual time. `choice` selects the real one of a run.

pub mod choice;
pub mod clock;
pub mod readiness;
mod shells;
// The architectures whose bindings the crate io-uring has, of those that we build for.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub mod uring;

use crate::client::ShellEnd;
use crate::conninfo::TcpSettings;
use crate::pace::Ns;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Names a connection within one thread.
pub type Token = usize;

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// TCP, resolved.
    Tcp(SocketAddr),
}

/// What came of a receive.
#[derive(Debug)]
pub enum Received<'a> {
    /// These bytes; `more` if there may be others already.
    Bytes {
        /// What came.
        bytes: &'a [u8],
        /// Whether to ask again before waiting.
        more: bool,
        /// The time after the receive.
        now: Ns,
    },
    /// Nothing yet.
    Nothing,
    /// The connection is closed, or it broke for this reason.
    Closed(Option<io::Error>),
}

/// A connection on which something can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The connection.
    pub token: Token,
    /// It may have bytes for us.
    pub readable: bool,
    /// It may take bytes from us.
    pub writable: bool,
}

/// One thread's sockets and clock.
pub trait Poll {
    /// The time: monotonic, relative to the start of the measured part once `origin` was set.
    fn now(&mut self) -> Ns;

    /// Waits until something is ready or it is `until`; appends to `ready`. `precise` asks for
    /// better than a millisecond.
    ///
    /// # Errors
    /// What the operating system reports.
    fn wait(&mut self, until: Ns, precise: bool, ready: &mut Vec<Ready>) -> io::Result<()>;

    /// Begins to connect. The connection is writable when it stands.
    ///
    /// # Errors
    /// What the operating system reports at once.
    fn connect(&mut self, token: Token, address: &Address) -> io::Result<()>;

    /// Takes what has come.
    fn receive(&mut self, token: Token) -> Received<'_>;

    /// Sends as much as fits now; `writable` is reported when more does.
    ///
    /// # Errors
    /// What the operating system reports; a connection that failed to come about, too.
    fn send(&mut self, token: Token, bytes: &[u8]) -> io::Result<usize>;

    /// Closes a connection.
    fn close(&mut self, token: Token);

    /// Begins a shell command and gives its number; `capture` asks for its first line of output.
    fn shell(&mut self, token: Token, line: Vec<u8>, capture: bool) -> u64;

    /// A shell command that has ended, with its number; a wait ends for it.
    fn shell_ended(&mut self) -> Option<(Token, u64, ShellEnd)>;
}

/// Operations of a real one other than those of the load.
pub trait Backend: Poll {
    /// Ends a wait from another thread.
    fn waker(&self) -> Waker;

    /// How connections over TCP find out that the other side is gone; else as the system has it.
    fn set_tcp(&mut self, settings: TcpSettings);

    /// Makes `origin` the time 0.
    fn set_origin(&mut self, origin: Instant);
}

/// Ends the wait of one thread from any other.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends a wait, or the next one.
    pub fn wake(&self) {
        (self.0)();
    }
}
