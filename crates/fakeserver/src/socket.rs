//! TCP and unix sockets under one roof. Knows no protocol.

use std::io::{self, Read, Write};
use std::path::Path;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};

use crate::config::Address;

/// Connections that may wait to be accepted; the system caps it. Beyond it a client's first packet
/// is dropped and sent again a second later, which would look like a slow server.
const BACKLOG: i32 = 65_535;

/// Takes connections at an address.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// One connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Listens at `address`. The path of a unix socket without a listener is taken over.
    pub(crate) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(*address)?;
                rustix::net::listen(&listener, BACKLOG)?;
                Ok(Self::Tcp(listener))
            }
            Address::Unix(path) => {
                remove_abandoned(path);
                let listener = UnixListener::bind(path)?;
                rustix::net::listen(&listener, BACKLOG)?;
                Ok(Self::Unix(listener))
            }
        }
    }

    /// Where it listens, with the port that the system chose.
    pub(crate) fn address(&self, asked: &Address) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_) => Ok(asked.clone()),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener) => listener,
        }
    }
}

/// Removes a socket without a listener.
pub(crate) fn remove_abandoned(path: &Path) {
    let refused = std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if refused {
        let _ = std::fs::remove_file(path);
    }
}

impl Stream {
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE)
    }

    /// Requests events of room for writing too, or no longer.
    pub(crate) fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        writable: bool,
    ) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        let interest = if writable { both } else { Interest::READABLE };
        registry.reregister(self.source(), token, interest)
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }
}
