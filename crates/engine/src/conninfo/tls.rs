//! How a connection is encrypted and what proves who the server is: modes, versions, files.
//! Looks only whether files exist; loads nothing and knows no TLS library.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::keywords::Values;
use super::session::{choice, not_one_of};
use super::{Conninfo, invalid};
use crate::error::{Error, Kind, Result};

/// How much encryption is wanted, from none to a server whose name is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Never.
    Disable,
    /// Plain first, TLS if the server refuses that.
    Allow,
    /// TLS first, plain if the server has none.
    Prefer,
    /// TLS or nothing.
    Require,
    /// TLS, with a certificate that a root we know has signed.
    VerifyCa,
    /// The same, and the certificate has the name of the host.
    VerifyFull,
}

/// How TLS begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslNegotiation {
    /// PostgreSQL's own request first: one more round trip, understood by every server.
    Postgres,
    /// The TLS handshake at once: needs PostgreSQL 17.
    Direct,
}

/// Whether to present a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslCertMode {
    /// Never.
    Disable,
    /// If the server asks for it and we have one.
    Allow,
    /// The server must ask for it.
    Require,
}

/// A version of TLS, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.0
    V1_0,
    /// TLS 1.1
    V1_1,
    /// TLS 1.2
    V1_2,
    /// TLS 1.3
    V1_3,
}

/// The roots that the server's certificate is checked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCert {
    /// Those of the operating system.
    System,
    /// Those in this file.
    File(PathBuf),
    /// There are none: nothing is checked.
    None,
}

/// What is checked about the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateCheck {
    /// Nothing.
    Nothing,
    /// That a known root has signed it.
    Chain,
    /// That, and that it has the name of the host.
    ChainAndName,
}

const MODES: &[(&str, SslMode)] = &[
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

const NEGOTIATIONS: &[(&str, SslNegotiation)] =
    &[("postgres", SslNegotiation::Postgres), ("direct", SslNegotiation::Direct)];

const CERT_MODES: &[(&str, SslCertMode)] = &[
    ("allow", SslCertMode::Allow),
    ("disable", SslCertMode::Disable),
    ("require", SslCertMode::Require),
];

const VERSIONS: &[(&str, TlsVersion)] = &[
    ("TLSv1", TlsVersion::V1_0),
    ("TLSv1.1", TlsVersion::V1_1),
    ("TLSv1.2", TlsVersion::V1_2),
    ("TLSv1.3", TlsVersion::V1_3),
];

/// The parsed values of this file's keywords, and the files that are there.
#[derive(Clone)]
pub(super) struct Tls {
    mode: SslMode,
    negotiation: SslNegotiation,
    cert_mode: SslCertMode,
    min: Option<TlsVersion>,
    max: Option<TlsVersion>,
    root: RootCert,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    crl: Option<PathBuf>,
    crl_dir: Option<PathBuf>,
    sni: bool,
}

impl Tls {
    /// Errors: unknown values, and combinations that promise more than they keep. A file that
    /// was named, is absent and does not matter to libpq becomes a warning.
    pub(super) fn resolve(
        values: &Values,
        environment: &dyn Environment,
        warnings: &mut Vec<Error>,
    ) -> Result<Self> {
        let mode = choice(values, "sslmode", MODES)?;
        let crl_dir = values.get("sslcrldir").map(PathBuf::from);
        let crl = file(values, "sslcrl")
            .or_else(|| default_file(environment, "root.crl").filter(|_| crl_dir.is_none()));
        let tls = Self {
            mode,
            negotiation: choice(values, "sslnegotiation", NEGOTIATIONS)?,
            cert_mode: choice(values, "sslcertmode", CERT_MODES)?,
            min: version(values, "ssl_min_protocol_version")?,
            max: version(values, "ssl_max_protocol_version")?,
            root: root(values, mode, environment, warnings),
            cert: cert(values, environment, warnings),
            key: file(values, "sslkey").or_else(|| default_file(environment, "postgresql.key")),
            crl,
            crl_dir,
            sni: values.raw("sslsni").is_none_or(|sni| sni.starts_with('1')),
        };
        tls.check(values.raw("sslmode").unwrap_or_default())?;
        Ok(tls)
    }

    fn check(&self, mode: &str) -> Result<()> {
        if self.negotiation == SslNegotiation::Direct && self.mode < SslMode::Require {
            return Err(invalid("direct-tls-needs-sslmode").with("mode", mode));
        }
        if self.root == RootCert::System && self.mode != SslMode::VerifyFull {
            return Err(invalid("system-roots-need-sslmode").with("mode", mode));
        }
        match (self.min, self.max) {
            (Some(min), Some(max)) if min > max => Err(invalid("tls-versions-reversed")),
            _ => Ok(()),
        }
    }

    /// An error if the mode demands a check for which there are no roots. Only TCP has TLS, so
    /// this is no concern of Unix sockets.
    pub(super) fn demand_roots(&self, environment: &dyn Environment) -> Result<()> {
        match &self.root {
            RootCert::System => Ok(()),
            _ if self.mode < SslMode::VerifyCa => Ok(()),
            RootCert::File(path) if environment.exists(path) => Ok(()),
            RootCert::File(path) => Err(Error::new(Kind::Tls, "root-certificate-missing")
                .with("path", path.display().to_string())),
            RootCert::None => Err(Error::new(Kind::Tls, "no-root-certificate")),
        }
    }
}

/// The version as written, in any case; `None` leaves the bound to the TLS library.
fn version(values: &Values, name: &str) -> Result<Option<TlsVersion>> {
    let Some(given) = values.get(name) else {
        return Ok(None);
    };
    let found = VERSIONS.iter().find(|(text, _)| text.eq_ignore_ascii_case(given));
    found
        .map(|(_, version)| Some(*version))
        .ok_or_else(|| not_one_of(name, given, VERSIONS.iter().map(|(text, _)| *text).collect()))
}

fn root(
    values: &Values,
    mode: SslMode,
    environment: &dyn Environment,
    warnings: &mut Vec<Error>,
) -> RootCert {
    match values.get("sslrootcert") {
        Some("system") => RootCert::System,
        Some(path) if mode >= SslMode::VerifyCa || environment.exists(Path::new(path)) => {
            RootCert::File(path.into())
        }
        Some(path) => {
            warnings.push(invalid("server-not-verified").with("path", path));
            RootCert::None
        }
        None => default_file(environment, "root.crt").map_or(RootCert::None, RootCert::File),
    }
}

fn cert(
    values: &Values,
    environment: &dyn Environment,
    warnings: &mut Vec<Error>,
) -> Option<PathBuf> {
    let Some(path) = file(values, "sslcert") else {
        return default_file(environment, "postgresql.crt");
    };
    if environment.exists(&path) {
        return Some(path);
    }
    let path = path.display().to_string();
    warnings.push(invalid("client-certificate-missing").with("path", path));
    None
}

fn file(values: &Values, name: &str) -> Option<PathBuf> {
    values.get(name).map(PathBuf::from)
}

/// A file in `~/.postgresql`, if it is there.
fn default_file(environment: &dyn Environment, name: &str) -> Option<PathBuf> {
    let path = environment.home()?.join(".postgresql").join(name);
    environment.exists(&path).then_some(path)
}

impl Conninfo {
    /// How much encryption is wanted. What it means for certificates is `certificate_check`.
    pub fn ssl_mode(&self) -> SslMode {
        self.tls.mode
    }

    /// How TLS begins.
    pub fn ssl_negotiation(&self) -> SslNegotiation {
        self.tls.negotiation
    }

    /// Whether to present a client certificate.
    pub fn ssl_cert_mode(&self) -> SslCertMode {
        self.tls.cert_mode
    }

    /// The oldest version of TLS allowed: 1.2 unless told otherwise.
    pub fn tls_min(&self) -> Option<TlsVersion> {
        self.tls.min
    }

    /// The newest version of TLS allowed.
    pub fn tls_max(&self) -> Option<TlsVersion> {
        self.tls.max
    }

    /// The roots for the server's certificate: `sslrootcert`, else `~/.postgresql/root.crt` if
    /// it exists.
    pub fn ssl_root_cert(&self) -> &RootCert {
        &self.tls.root
    }

    /// What to check about the server's certificate. As in libpq, roots that exist are used in
    /// every mode: `require` with a root file checks as much as `verify-ca`.
    pub fn certificate_check(&self) -> CertificateCheck {
        match (self.tls.mode, &self.tls.root) {
            (SslMode::VerifyFull, _) => CertificateCheck::ChainAndName,
            (SslMode::VerifyCa, _) => CertificateCheck::Chain,
            (_, RootCert::None) => CertificateCheck::Nothing,
            _ => CertificateCheck::Chain,
        }
    }

    /// The certificate to show: `sslcert`, else `~/.postgresql/postgresql.crt`; `None` if the
    /// file does not exist or `sslcertmode=disable`.
    pub fn ssl_cert(&self) -> Option<&Path> {
        let shown = self.tls.cert_mode != SslCertMode::Disable;
        self.tls.cert.as_deref().filter(|_| shown)
    }

    /// The key of that certificate: `sslkey`, else `~/.postgresql/postgresql.key` if it exists.
    pub fn ssl_key(&self) -> Option<&Path> {
        self.tls.key.as_deref()
    }

    /// The password of that key.
    pub fn ssl_password(&self) -> Option<&str> {
        self.get("sslpassword")
    }

    /// Certificates that their issuers took back: `sslcrl`, else `~/.postgresql/root.crl` if it
    /// exists and there is no `sslcrldir`.
    pub fn ssl_crl(&self) -> Option<&Path> {
        self.tls.crl.as_deref()
    }

    /// A folder of the same.
    pub fn ssl_crl_dir(&self) -> Option<&Path> {
        self.tls.crl_dir.as_deref()
    }

    /// Whether to tell the server, in clear, the name we know it by.
    pub fn ssl_sni(&self) -> bool {
        self.tls.sni
    }
}
