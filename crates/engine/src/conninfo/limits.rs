//! What libpq can do and this engine cannot. Demanding it is an error, so that no user relies
//! on a missing feature. To lift a limit, delete its lines here.

use super::endpoint::Endpoint;
use super::keywords::Values;
use super::session::{LoadBalanceHosts, choice};
use super::tls::{SslCertMode, SslMode, TlsVersion};
use super::{Conninfo, invalid};
use crate::error::{Error, Result};

const GSS_MODES: &[(&str, bool)] = &[("disable", false), ("prefer", false), ("require", true)];

/// Versions of the wire protocol as libpq 18 writes them, and what they stand for.
const PROTOCOLS: &[(&str, u32)] = &[("3.0", 300), ("3.2", 302), ("latest", 302)];

/// The protocol that the engine speaks.
const PROTOCOL: u32 = 300;

/// Errors: a value that libpq refuses too, or one that asks for what we lack.
pub(super) fn check(conninfo: &Conninfo, endpoints: &[Endpoint]) -> Result<()> {
    check_encryption(&conninfo.values)?;
    check_protocol(&conninfo.values)?;
    check_replication(&conninfo.values)?;
    check_secrets(&conninfo.values)?;
    if !endpoints.iter().all(Endpoint::is_tcp) {
        check_peer(&conninfo.values)?;
    }
    if endpoints.iter().any(Endpoint::is_tcp) {
        check_tls_version(conninfo)?;
        check_certificate(conninfo)?;
    }
    if endpoints.len() > 1 {
        check_balance(conninfo)?;
    }
    Ok(())
}

fn unsupported(what: &str, hint: &str) -> Error {
    invalid(format!("{what} is not supported by pgpaces")).with_hint(hint)
}

fn check_encryption(values: &Values) -> Result<()> {
    if choice(values, "gssencmode", GSS_MODES)? {
        return Err(unsupported("gssencmode=require", "encrypt with TLS: sslmode=require"));
    }
    Ok(())
}

fn check_protocol(values: &Values) -> Result<()> {
    choice(values, "max_protocol_version", PROTOCOLS)?;
    if choice(values, "min_protocol_version", PROTOCOLS)? > PROTOCOL {
        return Err(unsupported("min_protocol_version above 3.0", "leave it out"));
    }
    Ok(())
}

/// The server reads `replication` as a boolean, or the word `database`.
fn check_replication(values: &Values) -> Result<()> {
    match values.get("replication") {
        None | Some("false" | "off" | "no" | "0") => Ok(()),
        Some(_) => Err(unsupported(
            "a replication connection",
            "leave replication out: a load runs in ordinary sessions",
        )),
    }
}

fn check_secrets(values: &Values) -> Result<()> {
    for name in ["scram_client_key", "scram_server_key"] {
        if values.get(name).is_some() {
            return Err(unsupported(name, "give a password instead"));
        }
    }
    Ok(())
}

fn check_peer(values: &Values) -> Result<()> {
    if values.get("requirepeer").is_some() {
        return Err(unsupported(
            "requirepeer on a Unix socket",
            "leave it out, or connect by TCP and sslmode=verify-full to know the server",
        ));
    }
    Ok(())
}

/// Whether the server asked for a certificate is not known to us.
fn check_certificate(conninfo: &Conninfo) -> Result<()> {
    if conninfo.ssl_cert_mode() == SslCertMode::Require && conninfo.ssl_mode() != SslMode::Disable {
        return Err(unsupported(
            "sslcertmode=require",
            "leave it out: the certificate is shown where the server asks for one",
        ));
    }
    Ok(())
}

/// A load goes to one server, and so must every session that prepares and observes it.
fn check_balance(conninfo: &Conninfo) -> Result<()> {
    if conninfo.load_balance_hosts() == LoadBalanceHosts::Random {
        return Err(unsupported(
            "load_balance_hosts=random for several hosts",
            "name one host, or set it to disable: the first that answers has the load",
        ));
    }
    Ok(())
}

fn check_tls_version(conninfo: &Conninfo) -> Result<()> {
    let too_old = conninfo.tls_max().is_some_and(|max| max < TlsVersion::V1_2);
    if too_old && conninfo.ssl_mode() != SslMode::Disable {
        return Err(unsupported("TLS older than 1.2", "leave ssl_max_protocol_version out"));
    }
    Ok(())
}
