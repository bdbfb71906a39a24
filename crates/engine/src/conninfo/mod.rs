//! Where and as whom to connect, resolved as libpq 18 does it: connection strings, URIs,
//! services, password files, PG* variables. Opens no socket, resolves no host name, and sees the
//! system only through `Environment`. The rest of the engine and Python get the answer from here.
//!
//! The sources, strongest first:
//!
//! ```text
//! overrides > dsn (keyvalue, uri) > service file (service) > PG* variables > defaults (keywords)
//!                                         |
//!                     Values: one text for each keyword, still unread
//!                                         |
//!   endpoint + passfile   tls   auth   session   startup      parse it
//!                                         |
//!                       limits: what we cannot do is refused
//! ```

mod auth;
mod endpoint;
mod environment;
mod keyvalue;
mod keywords;
mod limits;
mod passfile;
mod service;
mod session;
mod startup;
#[cfg(test)]
mod tests;
mod tls;
mod uri;

use std::fmt;
use std::path::{Path, PathBuf};

pub use auth::{AuthMethod, ChannelBinding};
pub use endpoint::{Address, Endpoint};
pub use environment::{Environment, ProcessEnvironment};
pub use session::{TargetSessionAttrs, TcpSettings};
pub use tls::{CertificateCheck, RootCert, SslCertMode, SslMode, SslNegotiation, TlsVersion};

use crate::error::{Error, Kind, Result};
use keywords::Values;
use passfile::PasswordFile;

const DEFAULT_PORT: &str = "5432";

/// Where servers put their socket: Debian's directory if there is one, else upstream's.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Everything there is to know about a connection before it is made. `Debug` shows no secrets.
#[derive(Clone)]
pub struct Conninfo {
    values: Values,
    socket_directory: &'static str,
    passwords: PasswordFile,
    session: session::Session,
    tls: tls::Tls,
    auth: auth::AuthPolicy,
    settings: Vec<(String, String)>,
    /// Settings that were ignored despite their purpose.
    pub warnings: Vec<Error>,
}

/// Resolves a connection: overrides over `dsn` over the service over variables over defaults.
///
/// `dsn` is empty, the name of a database, a keyword/value string or a URI. An empty value in it
/// keeps weaker sources out; an override with an empty value is no override. Errors name what was
/// found and what was expected, and never quote a password: an unknown keyword, a value that its
/// keyword does not take, a file that does not parse, or a demand that the engine cannot meet
/// (`Kind::Conninfo`); no roots for a server that is to be verified (`Kind::Tls`).
pub fn resolve(
    dsn: &str,
    overrides: &[(&str, &str)],
    environment: &dyn Environment,
) -> Result<Conninfo> {
    let mut values = given(dsn, overrides)?;
    service::apply(&mut values, environment)?;
    values.fill(environment)?;
    let socket_directory = socket_directory(environment);
    complete(&mut values, socket_directory, environment)?;
    session::order_hosts(&mut values, environment)?;

    let mut warnings = Vec::new();
    let conninfo = Conninfo {
        passwords: passwords(&values, environment, &mut warnings),
        session: session::Session::parse(&values)?,
        tls: tls::Tls::resolve(&values, environment, &mut warnings)?,
        auth: auth::AuthPolicy::parse(&values)?,
        settings: startup::settings(environment),
        values,
        socket_directory,
        warnings,
    };
    let endpoints = conninfo.endpoints()?;
    limits::check(&conninfo, &endpoints)?;
    if endpoints.iter().any(Endpoint::is_tcp) {
        conninfo.tls.demand_roots(environment)?;
    }
    Ok(conninfo)
}

/// What the caller said.
fn given(dsn: &str, overrides: &[(&str, &str)]) -> Result<Values> {
    let pairs = match uri::body(dsn) {
        Some(body) => uri::parse(body)?,
        None if has_scheme(dsn) => return Err(invalid("uri-of-other-program")),
        None if dsn.contains('=') => keyvalue::parse(dsn)?,
        None if dsn.is_empty() => Vec::new(),
        None => vec![(keywords::find("dbname")?, dsn.to_owned())],
    };
    let mut values = Values::default();
    for (keyword, value) in pairs {
        values.set(keyword, value)?;
    }
    for (name, value) in overrides {
        let keyword = keywords::find(name)?;
        if !value.is_empty() {
            values.set(keyword, (*value).to_owned())?;
        }
    }
    Ok(values)
}

/// A misspelt URI would be taken for a database name, and shown with its password.
fn has_scheme(dsn: &str) -> bool {
    dsn.split_once("://")
        .is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+'))
}

fn socket_directory(environment: &dyn Environment) -> &'static str {
    let [debian, upstream] = SOCKET_DIRECTORIES;
    if environment.exists(Path::new(debian)) { debian } else { upstream }
}

/// The defaults that the system knows, for keywords that are absent or empty.
fn complete(values: &mut Values, directory: &str, environment: &dyn Environment) -> Result<()> {
    if values.get("user").is_none() {
        let name = environment.user_name().ok_or_else(|| invalid("no-user-name"))?;
        values.put("user", name);
    }
    if values.get("dbname").is_none() {
        values.put("dbname", values.get("user").unwrap_or_default().to_owned());
    }
    if values.get("port").is_none() {
        values.put("port", DEFAULT_PORT.to_owned());
    }
    endpoint::fill_hosts(values, directory)?;
    let no_password = values.get("password").is_none() && values.get("passfile").is_none();
    if let (true, Some(home)) = (no_password, environment.home()) {
        values.put("passfile", home.join(".pgpass").to_string_lossy().into_owned());
    }
    startup::name_encoding(values, environment);
    Ok(())
}

/// The password file, which is not even looked at when a password was given.
fn passwords(
    values: &Values,
    environment: &dyn Environment,
    warnings: &mut Vec<Error>,
) -> PasswordFile {
    match (values.get("password"), values.get("passfile").map(PathBuf::from)) {
        (None, Some(path)) => PasswordFile::read(&path, environment, warnings),
        _ => PasswordFile::default(),
    }
}

impl Conninfo {
    /// The value of a keyword, unless it is absent or empty.
    pub fn get(&self, keyword: &str) -> Option<&str> {
        self.values.get(keyword)
    }

    /// All keywords that have a value, by name, secrets included. Empty values are among them:
    /// given to libpq again, they keep its variables out.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter()
    }

    /// The servers to try, in the order of the string, each with its password. Errors: those of
    /// `resolve`, which has been through this once.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>> {
        endpoint::endpoints(&self.values, self.socket_directory, &self.passwords)
    }

    /// The role to connect as.
    pub fn user(&self) -> &str {
        self.get("user").unwrap_or_default()
    }

    /// The database.
    pub fn dbname(&self) -> &str {
        self.get("dbname").unwrap_or_default()
    }

    /// Command-line options for the server process.
    pub fn options(&self) -> Option<&str> {
        self.get("options")
    }

    /// The name under which the server lists us: `application_name`, else the fallback. As in
    /// libpq, an empty `application_name` is none at all and keeps the fallback out.
    pub fn application_name(&self) -> Option<&str> {
        let given = self.values.raw("application_name");
        given.or_else(|| self.get("fallback_application_name")).filter(|name| !name.is_empty())
    }
}

impl fmt::Debug for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value)| (name, if keywords::is_secret(name) { "***" } else { value });
        f.write_str("Conninfo ")?;
        f.debug_map().entries(self.iter().map(shown)).finish()
    }
}

fn invalid(name: &'static str) -> Error {
    Error::new(Kind::Conninfo, name)
}

/// White space as C's `isspace` has it.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// An integer of 32 bits with or without spaces around it.
fn integer(text: &str) -> Option<i32> {
    text.trim_matches(is_space).parse().ok()
}
