//! Sockets by readiness, on mio: epoll on Linux, kqueue elsewhere. One buffer for a thread, one
//! receive for an answer: a short read means that nothing is left.

use super::clock::Clock;
use super::shells::Shells;
use super::{Address, Backend, Poll, Ready, Received, Token, Waker};
use crate::client::ShellEnd;
use crate::conninfo::TcpSettings;
use crate::pace::Ns;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

const BUFFER: usize = 64 * 1024;
const WAKER: mio::Token = mio::Token(usize::MAX);
#[cfg(target_os = "linux")]
const TIMER: mio::Token = mio::Token(usize::MAX - 1);

/// A socket that never blocks.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

struct Socket {
    stream: Stream,
    /// The connection stands; before that only `writable` means anything.
    connected: bool,
    /// We wait for room to write.
    blocked: bool,
    /// The other side will send no more: its end must be read, for no event will tell again.
    ending: bool,
}

/// One thread's sockets over readiness events.
pub struct Readiness {
    poll: mio::Poll,
    events: Events,
    waker: Waker,
    timer: Timer,
    clock: Clock,
    tcp: Option<TcpSettings>,
    /// The time when it was last looked at.
    seen: Ns,
    sockets: Vec<Option<Socket>>,
    buffer: Box<[u8]>,
    shells: Shells,
}

impl Readiness {
    /// A poller whose clock starts now.
    ///
    /// # Errors
    /// What the operating system reports.
    pub fn new() -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?;
        Ok(Self {
            events: Events::with_capacity(1024),
            waker: Waker::new(move || drop(waker.wake())),
            timer: Timer::new(poll.registry())?,
            poll,
            clock: Clock::default(),
            tcp: None,
            seen: 0,
            sockets: Vec::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            shells: Shells::new(),
        })
    }
}

impl Backend for Readiness {
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

fn source(stream: &mut Stream) -> &mut dyn Source {
    match stream {
        Stream::Unix(stream) => stream,
        Stream::Tcp(stream) => stream,
    }
}

impl Readiness {
    /// From now on waits for room to write as well, or not.
    #[cold]
    fn watch_for(&mut self, token: Token, room: bool) -> io::Result<()> {
        let Some(Some(socket)) = self.sockets.get_mut(token) else {
            return Ok(());
        };
        (socket.connected, socket.blocked) = (true, room);
        let interest =
            if room { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let registry = self.poll.registry();
        registry.reregister(source(&mut socket.stream), mio::Token(token), interest)
    }
}

impl Poll for Readiness {
    fn shell(&mut self, token: Token, line: Vec<u8>, capture: bool) -> u64 {
        self.shells.start(token, line, capture, &self.waker)
    }

    fn shell_ended(&mut self) -> Option<(Token, u64, ShellEnd)> {
        self.shells.ended()
    }

    fn now(&mut self) -> Ns {
        self.seen = self.clock.now();
        self.seen
    }

    fn wait(&mut self, until: Ns, precise: bool, ready: &mut Vec<Ready>) -> io::Result<()> {
        // A coarse wait does not need another look at the clock.
        let now = if precise { self.now() } else { self.seen };
        let left = Duration::from_nanos(u64::try_from(until - now).unwrap_or(0));
        if precise && !left.is_zero() {
            self.timer.arm(until, left)?;
        }
        match self.poll.poll(&mut self.events, Some(left)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            let token = event.token();
            if let Some(Some(socket)) = self.sockets.get_mut(token.0) {
                socket.ending |= event.is_read_closed() || event.is_error();
                let readable = event.is_readable() || event.is_read_closed() || event.is_error();
                let writable = event.is_writable() && (!socket.connected || socket.blocked);
                ready.push(Ready { token: token.0, readable, writable });
            }
        }
        Ok(())
    }

    fn connect(&mut self, token: Token, address: &Address) -> io::Result<()> {
        let mut stream = begin(address, self.tcp.as_ref())?;
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(source(&mut stream), mio::Token(token), both)?;
        if self.sockets.len() <= token {
            self.sockets.resize_with(token + 1, || None);
        }
        self.sockets[token] =
            Some(Socket { stream, connected: false, blocked: false, ending: false });
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, token: Token) -> Received<'_> {
        let Some(Some(socket)) = self.sockets.get_mut(token) else {
            return Received::Nothing;
        };
        loop {
            return match recv(socket.stream.as_fd(), &mut *self.buffer, RecvFlags::empty()) {
                Ok((_, 0)) => Received::Closed(None),
                Ok((_, length)) => Received::Bytes {
                    bytes: &self.buffer[..length],
                    more: length == BUFFER || socket.ending,
                    now: self.clock.now(),
                },
                Err(Errno::AGAIN | Errno::NOTCONN) => Received::Nothing,
                Err(Errno::INTR) => continue,
                Err(error) => Received::Closed(Some(error.into())),
            };
        }
    }

    #[inline(always)]
    fn send(&mut self, token: Token, bytes: &[u8]) -> io::Result<usize> {
        let Some(Some(socket)) = self.sockets.get_mut(token) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if !socket.connected && !stands(&mut socket.stream)? {
            return Ok(0);
        }
        let written = match send(socket.stream.as_fd(), bytes, SendFlags::NOSIGNAL) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let blocked = written < bytes.len();
        if blocked != socket.blocked || !socket.connected {
            self.watch_for(token, blocked)?;
        }
        Ok(written)
    }

    fn close(&mut self, token: Token) {
        if let Some(Some(mut socket)) = self.sockets.get_mut(token).map(Option::take) {
            let _ = self.poll.registry().deregister(source(&mut socket.stream));
        }
    }
}

/// Begins to connect.
pub(super) fn begin(address: &Address, settings: Option<&TcpSettings>) -> io::Result<Stream> {
    Ok(match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(*address)?;
            if let Some(settings) = settings {
                watch(&stream, settings)?;
            }
            Stream::Tcp(stream)
        }
        Address::Unix(path) => {
            let address = std::os::unix::net::SocketAddr::from_pathname(path)?;
            Stream::Unix(UnixStream::connect_addr(&address)?)
        }
    })
}

/// Lets the system find out that the other side is gone, as libpq does.
fn watch(stream: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    use rustix::net::sockopt;
    #[cfg(target_os = "linux")]
    if let Some(timeout) = settings.user_timeout {
        let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, ms)?;
    }
    if !settings.keepalives {
        return Ok(());
    }
    sockopt::set_socket_keepalive(stream, true)?;
    if let Some(idle) = settings.idle {
        sockopt::set_tcp_keepidle(stream, idle)?;
    }
    if let Some(interval) = settings.interval {
        sockopt::set_tcp_keepintvl(stream, interval)?;
    }
    if let Some(count) = settings.count {
        sockopt::set_tcp_keepcnt(stream, count)?;
    }
    Ok(())
}

/// Whether a connection stands; an error if it will not.
pub(super) fn stands(stream: &mut Stream) -> io::Result<bool> {
    let (error, peer) = match stream {
        Stream::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        Stream::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
    };
    if let Some(error) = error {
        return Err(error);
    }
    match peer {
        Ok(()) => {
            if let Stream::Tcp(stream) = stream {
                stream.set_nodelay(true)?;
            }
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Wakes a wait to the microsecond; epoll's own time-out counts milliseconds and has slack.
#[cfg(target_os = "linux")]
struct Timer {
    fd: std::os::fd::OwnedFd,
    armed_for: Ns,
}

#[cfg(target_os = "linux")]
impl Timer {
    fn new(registry: &mio::Registry) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd as _;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let raw = fd.as_raw_fd();
        registry.register(&mut mio::unix::SourceFd(&raw), TIMER, Interest::READABLE)?;
        Ok(Self { fd, armed_for: Ns::MIN })
    }

    fn arm(&mut self, until: Ns, left: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if self.armed_for == until {
            return Ok(());
        }
        let value = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
        self.armed_for = until;
        Ok(())
    }
}

/// kqueue's time-out counts nanoseconds.
#[cfg(not(target_os = "linux"))]
struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    fn new(_: &mio::Registry) -> io::Result<Self> {
        Ok(Self)
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on Linux")]
    fn arm(&mut self, _: Ns, _: Duration) -> io::Result<()> {
        Ok(())
    }
}
