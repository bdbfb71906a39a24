//! What libpq can do and this engine cannot. Demanding it is an error, so that no user relies
//! on a missing feature. To lift a limit, delete its lines here.

use super::endpoint::Endpoint;
use super::keywords::Values;
use super::session::choice;
use super::tls::{SslCertMode, SslMode, TlsVersion};
use super::{Conninfo, invalid};
use crate::error::Result;

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
    Ok(())
}

fn check_encryption(values: &Values) -> Result<()> {
    if choice(values, "gssencmode", GSS_MODES)? {
        return Err(invalid("gss-encryption-unsupported"));
    }
    Ok(())
}

fn check_protocol(values: &Values) -> Result<()> {
    choice(values, "max_protocol_version", PROTOCOLS)?;
    if choice(values, "min_protocol_version", PROTOCOLS)? > PROTOCOL {
        return Err(invalid("newer-protocol-unsupported"));
    }
    Ok(())
}

/// The server reads `replication` as a boolean, or the word `database`.
fn check_replication(values: &Values) -> Result<()> {
    match values.get("replication") {
        None | Some("false" | "off" | "no" | "0") => Ok(()),
        Some(_) => Err(invalid("replication-unsupported")),
    }
}

fn check_secrets(values: &Values) -> Result<()> {
    for name in ["scram_client_key", "scram_server_key"] {
        if values.get(name).is_some() {
            return Err(invalid("scram-keys-unsupported").with("keyword", name));
        }
    }
    Ok(())
}

fn check_peer(values: &Values) -> Result<()> {
    if values.get("requirepeer").is_some() {
        return Err(invalid("requirepeer-unsupported"));
    }
    Ok(())
}

/// Whether the server asked for a certificate is not known to us.
fn check_certificate(conninfo: &Conninfo) -> Result<()> {
    if conninfo.ssl_cert_mode() == SslCertMode::Require && conninfo.ssl_mode() != SslMode::Disable {
        return Err(invalid("sslcertmode-unsupported"));
    }
    Ok(())
}

fn check_tls_version(conninfo: &Conninfo) -> Result<()> {
    let too_old = conninfo.tls_max().is_some_and(|max| max < TlsVersion::V1_2);
    if too_old && conninfo.ssl_mode() != SslMode::Disable {
        return Err(invalid("old-tls-unsupported"));
    }
    Ok(())
}
