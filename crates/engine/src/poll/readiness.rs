//! Sockets by readiness, on mio: epoll on Linux, kqueue elsewhere. One buffer for a thread, one
//! receive for an answer: a short read means that nothing is left.

use super::shells::Shells;
use super::{Address, Backend, Poll, Ready, Received, Token, Waker};
use crate::client::ShellEnd;
use crate::conninfo::TcpSettings;
use crate::pace::Ns;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest};
use std::io::{self, Read, Write};
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
    origin: Instant,
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
            origin: Instant::now(),
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
        self.origin = origin;
    }
}

fn source(stream: &mut Stream) -> &mut dyn Source {
    match stream {
        Stream::Unix(stream) => stream,
        Stream::Tcp(stream) => stream,
    }
}

/// The time relative to `origin`, which may lie ahead.
pub(super) fn since(origin: Instant) -> Ns {
    let now = Instant::now();
    match now.checked_duration_since(origin) {
        Some(after) => Ns::try_from(after.as_nanos()).unwrap_or(Ns::MAX),
        None => -Ns::try_from((origin - now).as_nanos()).unwrap_or(Ns::MAX),
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
        self.seen = since(self.origin);
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

    fn receive(&mut self, token: Token) -> Received<'_> {
        let Some(Some(socket)) = self.sockets.get_mut(token) else {
            return Received::Nothing;
        };
        loop {
            let read = match &mut socket.stream {
                Stream::Unix(stream) => stream.read(&mut self.buffer),
                Stream::Tcp(stream) => stream.read(&mut self.buffer),
            };
            return match read {
                Ok(0) => Received::Closed(None),
                Ok(length) => Received::Bytes {
                    bytes: &self.buffer[..length],
                    more: length == BUFFER || socket.ending,
                    now: since(self.origin),
                },
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => Received::Nothing,
                    io::ErrorKind::Interrupted => continue,
                    _ => Received::Closed(Some(error)),
                },
            };
        }
    }

    fn send(&mut self, token: Token, bytes: &[u8]) -> io::Result<usize> {
        let Some(Some(socket)) = self.sockets.get_mut(token) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if !socket.connected && !stands(&mut socket.stream)? {
            return Ok(0);
        }
        let written = match &mut socket.stream {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        };
        let written = match written {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        let blocked = written < bytes.len();
        if blocked != socket.blocked || !socket.connected {
            (socket.connected, socket.blocked) = (true, blocked);
            let interest =
                if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            let registry = self.poll.registry();
            registry.reregister(source(&mut socket.stream), mio::Token(token), interest)?;
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
