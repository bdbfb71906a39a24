//! A connection to a server as a pure state machine: bytes in, events out, bytes to send in
//! `outgoing`. TLS and the login are part of it; sockets and clocks are the caller's.
//!
//! Results are read and discarded: only the frames that decide something are ever held, and
//! those are small, so memory stays bounded whatever the server sends.

mod auth;
mod messages;
mod scram;
mod session;
pub mod tls;

pub use auth::Credentials;
pub use scram::Keys;
pub use session::{Event, ServerError, Status};

use crate::error::{Error, Kind, without_numbers};
use bytes::BytesMut;
use session::Session;
use std::sync::Arc;

/// How to open connections to one server: the same for all clients of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who we are.
    pub credentials: Credentials,
    /// Parameters of the startup message: user, database, options, ...
    pub startup: Vec<(String, String)>,
    /// TLS, where the connection uses it.
    pub tls: Option<tls::Settings>,
}

/// What goes wrong in a connection: it cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server refused the login or ended the session, in its own words.
    Server(Box<ServerError>),
    /// We refuse what the server does: `Kind::Auth`, `Kind::Tls`, or else it is not the protocol.
    Own(Box<Error>),
}

impl Fault {
    /// The connection is gone: SQLSTATE 08006, connection_failure.
    #[must_use]
    pub fn lost(message: &str) -> Self {
        let message = without_numbers(message.to_owned());
        let sqlstate = *b"08006";
        Self::Server(Box::new(ServerError { sqlstate, message, fatal: true, ..Default::default() }))
    }

    /// The SQLSTATE that a transaction fails with when this ends its connection.
    #[must_use]
    pub fn sqlstate(&self) -> [u8; 5] {
        match self {
            Self::Server(error) => error.sqlstate,
            Self::Own(error) => match error.kind {
                Kind::Auth => *b"28000",
                Kind::Tls => *b"08001",
                _ => *b"08P01",
            },
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Own(Box::new(error))
    }
}

/// What the server sends is not the protocol.
pub(crate) fn protocol(name: &'static str) -> Error {
    Error::new(Kind::Connect, name)
}

/// How far the layers below the session are.
enum Link {
    Plain,
    /// An `SSLRequest` was sent; one byte answers it.
    Asked,
    Tls(Box<tls::Tunnel>),
}

/// One connection.
pub struct Connection {
    settings: Arc<Settings>,
    link: Link,
    session: Session,
    /// Plain bytes that the session wants to send.
    pending: BytesMut,
    /// Bytes for the socket.
    sealed: Vec<u8>,
    plain: Vec<u8>,
}

impl Connection {
    /// A connection whose first bytes are ready in `outgoing`.
    #[must_use]
    pub fn open(settings: &Arc<Settings>) -> Self {
        let mut connection = Self {
            settings: Arc::clone(settings),
            link: Link::Plain,
            session: Session::default(),
            pending: BytesMut::new(),
            sealed: Vec::new(),
            plain: Vec::new(),
        };
        match &settings.tls {
            None => connection.login(None),
            Some(tls) if tls.direct => connection.handshake(),
            Some(_) => {
                postgres_protocol::message::frontend::ssl_request(&mut connection.pending);
                connection.link = Link::Asked;
            }
        }
        connection
    }

    fn login(&mut self, binding: Option<Vec<u8>>) {
        self.session.login(&self.settings, binding, &mut self.pending);
    }

    fn handshake(&mut self) {
        let settings = self.settings.tls.as_ref().expect("TLS was asked for");
        self.link = Link::Tls(Box::new(tls::Tunnel::new(settings)));
    }

    /// Takes bytes from the socket and reports each event to `each`.
    ///
    /// # Errors
    /// A `Fault`, or what `each` says, ends the connection.
    #[inline(always)]
    pub fn receive<E: From<Fault>>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&mut Self, Event) -> Result<(), E>,
    ) -> Result<(), E> {
        match &mut self.link {
            Link::Plain => self.consume(bytes, &mut each),
            Link::Asked => Ok(self.answered(bytes)?),
            Link::Tls(_) => self.decrypt(bytes, &mut each),
        }
    }

    #[inline(always)]
    fn consume<E: From<Fault>>(
        &mut self,
        mut bytes: &[u8],
        each: &mut impl FnMut(&mut Self, Event) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty()
            && let Some(event) = self.session.advance(&mut bytes, &mut self.pending)?
        {
            each(self, event)?;
        }
        Ok(())
    }

    fn answered(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match bytes {
            [] => Ok(()),
            b"S" => {
                self.handshake();
                Ok(())
            }
            b"N" => Err(Error::new(Kind::Tls, "server-refuses-tls").into()),
            [b'E', ..] => Err(protocol("ssl-request-failed").into()),
            [other] => {
                let answer = other.escape_ascii().to_string();
                Err(protocol("ssl-request-answer-unknown").with("answer", answer).into())
            }
            // Its author is unknown: it came before the encryption.
            _ => Err(Error::new(Kind::Tls, "ssl-request-answer-too-long").into()),
        }
    }

    #[inline(never)]
    fn decrypt<E: From<Fault>>(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(&mut Self, Event) -> Result<(), E>,
    ) -> Result<(), E> {
        let Link::Tls(tunnel) = &mut self.link else {
            return Ok(());
        };
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let up_before = tunnel.is_up();
        tunnel.decrypt(bytes, &mut plain)?;
        if !up_before && tunnel.is_up() {
            tunnel.check_protocol()?;
            let binding = tunnel.server_end_point();
            self.login(binding);
        }
        let done = self.consume(&plain, each);
        self.plain = plain;
        done
    }

    /// Bytes for the socket; `sent` says how many of them were taken.
    ///
    /// # Errors
    /// A `Fault` where TLS cannot encrypt them.
    #[inline]
    pub fn outgoing(&mut self) -> Result<&[u8], Fault> {
        match &mut self.link {
            Link::Tls(tunnel) => {
                tunnel.encrypt(&self.pending, &mut self.sealed)?;
                self.pending.clear();
                Ok(&self.sealed)
            }
            Link::Plain | Link::Asked => Ok(&self.pending),
        }
    }

    /// The first `count` bytes of `outgoing` were taken.
    #[inline]
    pub fn sent(&mut self, count: usize) {
        match &self.link {
            Link::Plain | Link::Asked if count == self.pending.len() => self.pending.clear(),
            Link::Plain | Link::Asked => bytes::Buf::advance(&mut self.pending, count),
            Link::Tls(_) => drop(self.sealed.drain(..count)),
        }
    }

    /// Where messages to the server are written.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.pending
    }

    /// The transaction status of the last `ReadyForQuery`.
    #[must_use]
    pub fn status(&self) -> Status {
        self.session.status
    }

    /// From now on rows are kept, or not; the count of results begins anew.
    pub fn keep_rows(&mut self, keep: bool) {
        self.session.keeping = keep;
        self.session.results = 0;
    }

    /// Notices are events from now on.
    pub fn tell_notices(&mut self) {
        self.session.notices = true;
    }

    /// A statement was written that is parsed before anything else.
    pub fn begin_parsing(&mut self) {
        self.session.parsing = true;
    }

    /// True where the server refused to parse it: what failed is not its execution. Told once.
    pub fn take_parsing(&mut self) -> bool {
        std::mem::take(&mut self.session.parsing)
    }

    /// The row description or row of the last event, without its header.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.session.content
    }

    /// How many results were complete since `keep_rows`.
    #[must_use]
    pub fn results(&self) -> u32 {
        self.session.results
    }

    /// True once the login is done.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.session.is_ready()
    }

    /// Why the server closed the connection, if it said so.
    #[must_use]
    pub fn farewell(&self) -> Option<Fault> {
        let said = self.session.farewell.as_ref()?;
        let severity = String::new();
        Some(Fault::Server(Box::new(ServerError { fatal: true, severity, ..(**said).clone() })))
    }

    /// What a cancel request needs: process id and secret.
    #[must_use]
    pub fn cancel_key(&self) -> Option<(i32, i32)> {
        self.session.cancel_key
    }

    /// What the server reported of itself at login and since.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.session.parameters.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}
