//! Finds which server the load goes to and how: tries the hosts and TLS modes of a conninfo in
//! libpq's order over blocking sockets, logs in, and keeps the way that worked. Every client then
//! takes that way, until `destination` has to find another.

use crate::conninfo::Address as Named;
use crate::conninfo::{
    AuthMethod, Conninfo, Endpoint, SslMode, SslNegotiation, TargetSessionAttrs, TcpSettings,
};
use crate::error::{Error, Kind, Result};
use crate::poll::Address;
use crate::wire::{Connection, Credentials, Event, Fault, Keys, Settings, protocol, tls};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The way to a server.
#[derive(Debug, Clone)]
pub struct Route {
    /// Where.
    pub address: Address,
    /// How.
    pub settings: Arc<Settings>,
    /// The server's version as it reports it.
    pub server_version: String,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// What it was found with.
    pub conninfo: Arc<Conninfo>,
    /// How a connection over TCP finds out that the other side is gone.
    pub tcp: TcpSettings,
    /// Why the connection is not encrypted, if it was to be where possible.
    pub unencrypted: Option<Error>,
}

/// The default timeout of connecting.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may take to close a connection.
const GOODBYE: Duration = Duration::from_secs(1);

/// Asks a server which part it plays.
const PART: &str = "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'standby ' ELSE \
    'primary ' END || pg_catalog.current_setting('transaction_read_only')";

/// The name of a refusal of TLS, which may not be the last word.
const NO_TLS: &str = "server-refuses-tls";

const METHODS: [AuthMethod; 4] =
    [AuthMethod::None, AuthMethod::Password, AuthMethod::Md5, AuthMethod::ScramSha256];

/// Finds the way to the server that `conninfo` names.
///
/// # Errors
/// Why the last host that was tried cannot be used; a refused login ends the search at once.
pub fn find(conninfo: &Conninfo) -> Result<Route> {
    find_within(conninfo, Duration::MAX)
}

/// The same, but no address has longer than this.
///
/// # Errors
/// As `find`.
pub fn find_within(conninfo: &Conninfo, most: Duration) -> Result<Route> {
    let timeout = conninfo.connect_timeout().unwrap_or(TIMEOUT).min(most);
    let parameters = conninfo.startup_parameters();
    if let Some((keyword, _)) =
        parameters.iter().find(|(k, v)| k.contains('\0') || v.contains('\0'))
    {
        let error = Error::new(Kind::Conninfo, "connection-value-has-nul");
        return Err(error.with("keyword", &**keyword));
    }
    let wanted = conninfo.target_session_attrs();
    if wanted != TargetSessionAttrs::PreferStandby {
        return find_one(conninfo, wanted, timeout);
    }
    match find_one(conninfo, TargetSessionAttrs::Standby, timeout) {
        Err(error) if error.kind == Kind::Connect => {
            find_one(conninfo, TargetSessionAttrs::Any, timeout)
        }
        other => other,
    }
}

/// The first host that plays the part.
fn find_one(conninfo: &Conninfo, wanted: TargetSessionAttrs, timeout: Duration) -> Result<Route> {
    let mut last = None;
    for endpoint in conninfo.endpoints()? {
        let found = match addresses(&endpoint) {
            Ok(found) => found,
            Err(error) => {
                last = Some(error);
                continue;
            }
        };
        for address in found {
            match try_modes(conninfo, &endpoint, &address, (wanted, timeout)) {
                Ok(route) => return Ok(route),
                Err(error) if error.kind == Kind::Connect => last = Some(error),
                Err(error) => return Err(error),
            }
        }
    }
    Err(last.expect("a host has an address or an error"))
}

fn addresses(endpoint: &Endpoint) -> Result<Vec<Address>> {
    match &endpoint.address {
        Named::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
        Named::Tcp { host } => {
            let unknown = || Error::new(Kind::Connect, "host-unknown").with("host", &**host);
            let found: Vec<_> = (host.as_str(), endpoint.port)
                .to_socket_addrs()
                .map_err(|e| unknown().because(e))?
                .map(Address::Tcp)
                .collect();
            if found.is_empty() { Err(unknown()) } else { Ok(found) }
        }
    }
}

/// The TLS settings to try in turn, as sslmode says, and why TLS that was wished for is not among
/// them; a local socket never uses TLS.
fn modes(
    conninfo: &Conninfo,
    endpoint: &Endpoint,
) -> Result<(Vec<Option<tls::Settings>>, Option<Error>)> {
    if matches!(endpoint.address, Named::Unix(_)) {
        return Ok((vec![None], None));
    }
    let secure = || tls::Settings::load(conninfo, &endpoint.host).map(Some);
    Ok(match conninfo.ssl_mode() {
        SslMode::Disable => (vec![None], None),
        // Where TLS is only a wish, files that cannot be used are no reason to give up.
        SslMode::Allow => (std::iter::once(None).chain(secure().ok()).collect(), None),
        SslMode::Prefer => match secure() {
            Ok(settings) => (vec![settings, None], None),
            Err(error) => (vec![None], Some(error)),
        },
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (vec![secure()?], None),
    })
}

fn try_modes(
    conninfo: &Conninfo,
    endpoint: &Endpoint,
    address: &Address,
    (wanted, timeout): (TargetSessionAttrs, Duration),
) -> Result<Route> {
    let mut last: Option<Error> = None;
    let (modes, mut unencrypted) = modes(conninfo, endpoint)?;
    for tls in modes {
        let encrypted = tls.is_some();
        let settings = Arc::new(Settings {
            credentials: Credentials {
                user: conninfo.user().to_owned(),
                password: endpoint.password.clone(),
                allowed: METHODS.into_iter().filter(|m| conninfo.auth_allowed(*m)).collect(),
                binding: conninfo.channel_binding(),
                keys: Keys::default(),
            },
            startup: conninfo.startup_parameters(),
            tls,
        });
        match log_in(conninfo, address, settings, (wanted, timeout)) {
            Ok(mut route) => {
                route.unencrypted = unencrypted.filter(|_| !encrypted);
                return Ok(route);
            }
            // Wrong passwords stay wrong; pg_hba.conf may ask for the other mode.
            Err(error) if matches!(error.kind, Kind::Tls | Kind::Auth | Kind::Connect) => {
                if error.kind == Kind::Tls && error.name != NO_TLS {
                    unencrypted = Some(error.clone());
                }
                // That there is no TLS matters less than what happened without it.
                if last.as_ref().is_none_or(|before| before.name == NO_TLS) {
                    last = Some(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(last.expect("there is a way to try"))
}

/// A login over a blocking socket. All of it has until `deadline`: a server that says a word now
/// and then would hold us for ever.
struct Talk<'a> {
    conninfo: &'a Conninfo,
    address: &'a Address,
    socket: Box<dyn Socket>,
    connection: Connection,
    deadline: Instant,
}

impl Talk<'_> {
    /// Sends what there is to send, and takes what the server says next.
    fn turn(
        &mut self,
        each: impl FnMut(&mut Connection, Event) -> std::result::Result<(), Fault>,
    ) -> Result<()> {
        let mut buffer = [0; 16 * 1024];
        self.socket.wait_until(self.deadline).map_err(|e| no_answer(self.address, &e))?;
        write_all(&mut self.connection, &mut *self.socket)?;
        let count = self.socket.answer(&mut buffer).map_err(|e| no_answer(self.address, &e))?;
        if count == 0 {
            let error = match self.conninfo.ssl_negotiation() {
                SslNegotiation::Direct => Error::new(Kind::Connect, "direct-tls-closed"),
                SslNegotiation::Postgres => Error::new(Kind::Connect, "login-closed"),
            };
            return Err(error.with("address", shown(self.address)));
        }
        self.connection.receive(&buffer[..count], each).map_err(|fault| error_of(&fault))
    }

    /// Ends the session. The server closes when the place is free again, which a client of the
    /// run may need.
    fn end(mut self, within: Duration) {
        postgres_protocol::message::frontend::terminate(self.connection.buffer());
        let _ = write_all(&mut self.connection, &mut *self.socket);
        let (goodbye, mut buffer) = (Instant::now() + within, [0; 1024]);
        while self.socket.wait_until(goodbye).is_ok() {
            if !self.socket.answer(&mut buffer).is_ok_and(|count| count > 0) {
                break;
            }
        }
    }
}

fn log_in(
    conninfo: &Conninfo,
    address: &Address,
    settings: Arc<Settings>,
    (wanted, timeout): (TargetSessionAttrs, Duration),
) -> Result<Route> {
    let deadline = Instant::now() + timeout;
    let socket = connect(address, timeout)?;
    let connection = Connection::open(&settings);
    let mut talk = Talk { conninfo, address, socket, connection, deadline };
    while !talk.connection.is_ready() {
        talk.turn(|_, event| match event {
            Event::Failed(error) => Err(Fault::Server(error)),
            Event::Ready(_) => Ok(()),
            _ => Err(protocol("login-followed-by-results").into()),
        })?;
    }
    check_part(&mut talk, wanted)?;
    let version = talk.connection.parameter("server_version");
    let server_version = version.unwrap_or("unknown").to_owned();
    talk.end(timeout.min(GOODBYE));
    Ok(Route {
        address: address.clone(),
        settings,
        server_version,
        connect_timeout: conninfo.connect_timeout().unwrap_or(TIMEOUT),
        conninfo: Arc::new(conninfo.clone()),
        tcp: conninfo.tcp(),
        unencrypted: None,
    })
}

/// Whether the server plays the part that `target_session_attrs` asks for.
fn check_part(talk: &mut Talk<'_>, wanted: TargetSessionAttrs) -> Result<()> {
    if wanted == TargetSessionAttrs::Any {
        return Ok(());
    }
    let (standby, read_only) = part(talk)?;
    let fits = match wanted {
        TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => true,
        TargetSessionAttrs::ReadWrite => !read_only,
        TargetSessionAttrs::ReadOnly => read_only,
        TargetSessionAttrs::Primary => !standby,
        TargetSessionAttrs::Standby => standby,
    };
    if fits {
        return Ok(());
    }
    let wanted = talk.conninfo.get("target_session_attrs").unwrap_or_default();
    let error = Error::new(Kind::Connect, "server-plays-other-part").with("wanted", wanted);
    Err(error.with("address", shown(talk.address)))
}

/// Whether the server is a standby, and whether its transactions are read-only. From PostgreSQL 14
/// on it says so when it lets us in; earlier ones and poolers are asked.
fn part(talk: &mut Talk<'_>) -> Result<(bool, bool)> {
    let said = |name| talk.connection.parameter(name).map(|value| value == "on");
    if let (Some(standby), Some(read_only)) =
        (said("in_hot_standby"), said("default_transaction_read_only"))
    {
        return Ok((standby, standby || read_only));
    }
    talk.connection.keep_rows(true);
    postgres_protocol::message::frontend::query(PART, talk.connection.buffer())
        .expect("a statement without NUL");
    let (mut row, mut done) = (Vec::new(), false);
    while !done {
        talk.turn(|connection, event| {
            match event {
                Event::Failed(error) => return Err(Fault::Server(error)),
                Event::Row => row = connection.content().to_vec(),
                Event::Ready(_) => done = true,
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok((row.windows(7).any(|word| word == b"standby"), row.ends_with(b" on")))
}

/// A blocking connection.
pub(crate) trait Socket: Read + Write {
    /// How long one call may take from now on.
    fn limit(&self, timeout: Duration) -> io::Result<()>;

    /// Takes what has come, also where a signal came first.
    fn answer(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// No call takes longer than until then.
    fn wait_until(&self, deadline: Instant) -> io::Result<()> {
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => self.limit(left),
        }
    }
}

impl Socket for UnixStream {
    fn limit(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Socket for TcpStream {
    fn limit(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

/// Connects. No call on the connection takes longer than `timeout`.
pub(crate) fn connect(address: &Address, timeout: Duration) -> Result<Box<dyn Socket>> {
    let refused = |e: io::Error| no_answer(address, &e);
    match address {
        Address::Unix(path) => {
            let socket = connect_unix(path, timeout).map_err(refused)?;
            socket.limit(timeout).map_err(refused)?;
            Ok(Box::new(socket))
        }
        Address::Tcp(address) => {
            let socket = TcpStream::connect_timeout(address, timeout).map_err(refused)?;
            socket.limit(timeout).map_err(refused)?;
            Ok(Box::new(socket))
        }
    }
}

/// As `UnixStream::connect`, which would wait without end where no process accepts and the
/// listen queue is full.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(timeout))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(UnixStream::from(socket))
}

fn write_all(connection: &mut Connection, socket: &mut dyn Socket) -> Result<()> {
    let bytes = connection.outgoing().map_err(|fault| error_of(&fault))?;
    let count = bytes.len();
    let written = socket.write_all(bytes);
    connection.sent(count);
    // A server that refuses us may have closed already; what it said is still to be read.
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new(Kind::Connect, "sending-failed").with_system(&error))
        }
        _ => Ok(()),
    }
}

/// An address as people write it.
#[must_use]
pub fn shown(address: &Address) -> String {
    match address {
        Address::Unix(path) => path.display().to_string(),
        Address::Tcp(address) => address.to_string(),
    }
}

fn no_answer(address: &Address, error: &io::Error) -> Error {
    let answer = match error.kind() {
        io::ErrorKind::NotFound => Error::new(Kind::Connect, "no-such-socket"),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::new(Kind::Connect, "no-answer-in-time")
        }
        _ => Error::new(Kind::Connect, "no-server-answers").with_system(error),
    };
    answer.with("address", shown(address))
}

/// The error of the start of a run for a fault at login.
#[must_use]
pub fn error_of(fault: &Fault) -> Error {
    let said = match fault {
        Fault::Own(error) => return (**error).clone(),
        Fault::Server(said) => said,
    };
    let error = match &said.sqlstate {
        b"3D000" => Error::new(Kind::NoDatabase, "no-such-database"),
        b"53300" => {
            // Only the server's function tells the limits that max_connections does not raise.
            let name = match said.routine.as_deref() {
                Some("InitializeSessionUserId") => "connection-limit-of-role",
                Some("CheckMyDatabase") => "connection-limit-of-database",
                _ => "too-many-connections",
            };
            Error::new(Kind::TooManyConnections, name)
        }
        state if state.starts_with(b"28") || state == b"42501" => {
            Error::new(Kind::Auth, "login-rejected")
        }
        state if state.starts_with(b"22") || state.starts_with(b"42") => {
            Error::new(Kind::Plan, "session-rejected")
        }
        _ => Error::new(Kind::Connect, "connection-rejected"),
    };
    error.with("why", &*said.message).with_sqlstate(said.sqlstate)
}
