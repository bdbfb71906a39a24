//! What the fake server is asked to be: frozen values, all with defaults. Knows no sockets, no
//! command line and no SQL.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Where the server listens, or shall listen. Port 0 asks the system for a free port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP address, on loopback unless configured otherwise.
    Tcp(SocketAddr),
    /// The path of a unix socket. libpq looks for `DIRECTORY/.s.PGSQL.PORT`.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    /// `HOST PORT` or `PATH`, as the binary prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{} {}", address.ip(), address.port()),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How a client must authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auth {
    /// Everybody comes in.
    #[default]
    Trust,
    /// The password in clear text.
    Password,
    /// PostgreSQL's md5 challenge.
    Md5,
    /// SCRAM-SHA-256 without channel binding.
    ScramSha256,
    /// Nobody comes in: 28000.
    Reject,
}

/// Everything that can be asked of a server. `Config::default()` listens on a free port of
/// 127.0.0.1, trusts everybody and answers at once.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub listen: Address,
    /// How clients log in.
    pub auth: Auth,
    /// The only user there is; every user where `None`.
    pub user: Option<String>,
    /// The password of every user.
    pub password: String,
    /// The only database there is; every database where `None`.
    pub database: Option<String>,
    /// What the server says its version is.
    pub server_version: String,
    /// Sessions beyond this number are refused with 53300.
    pub max_connections: Option<usize>,
    /// Service time that every statement has, on top of what its text asks for.
    pub delay: Duration,
    /// Statements in service at the same time, over all connections; the rest waits in order of
    /// arrival. No limit where `None`.
    pub servers: Option<NonZeroUsize>,
    /// Windows, counted from the first query, in which nothing is written to any client.
    pub stalls: Vec<Range<Duration>>,
    /// A file to which every message with SQL in it is appended, one line of JSON each.
    pub record: Option<PathBuf>,
    /// Where the server's random numbers start.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            auth: Auth::Trust,
            user: None,
            password: String::new(),
            database: None,
            server_version: "18.0 (fake)".to_owned(),
            max_connections: None,
            delay: Duration::ZERO,
            servers: None,
            stalls: Vec::new(),
            record: None,
            seed: 1,
        }
    }
}
