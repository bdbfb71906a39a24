//! The URI form of a connection string: `postgresql://user:password@host:port,host/dbname?k=v`.
//! Text in, pairs out; knows nothing of defaults. Error texts name the part and never quote it,
//! because a badly encoded password may end up in any of them.

use super::endpoint::port_number;
use super::invalid;
use super::keywords::{self, Keyword};
use crate::error::Result;

/// What follows `postgresql://`, or `None` if the text is not a URI.
pub(super) fn body(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"))
}

/// The pairs of the URI without its scheme, in the order in which later ones win. Errors: a
/// wrong encoding, an unfinished IPv6 address, a bad port, an unknown parameter.
pub(super) fn parse(body: &str) -> Result<Vec<(&'static Keyword, String)>> {
    let mut pairs = Vec::new();
    let (credentials, rest) = split_credentials(body);
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (user, password),
        None => (credentials, ""),
    };
    add(&mut pairs, "user", user)?;
    add(&mut pairs, "password", password)?;

    let hosts = Hosts::split(rest)?;
    if hosts.names.contains('@') && !hosts.names.starts_with('@') {
        return Err(invalid("uri-host-has-at"));
    }
    add(&mut pairs, "host", &hosts.names)?;
    check_ports(&hosts.ports)?;
    add(&mut pairs, "port", &hosts.ports)?;

    let (path, query) = hosts.rest.split_once('?').unwrap_or((hosts.rest, ""));
    add(&mut pairs, "dbname", path.strip_prefix('/').unwrap_or(path))?;
    if !query.is_empty() {
        let query = query.strip_suffix('&').unwrap_or(query);
        for parameter in query.split('&') {
            pairs.push(parse_parameter(parameter)?);
        }
    }
    Ok(pairs)
}

/// An empty part counts as not given at all.
fn add(
    pairs: &mut Vec<(&'static Keyword, String)>,
    name: &'static str,
    encoded: &str,
) -> Result<()> {
    if !encoded.is_empty() {
        pairs.push((keywords::find(name)?, decode(name, encoded)?));
    }
    Ok(())
}

/// The credentials end at the first `@`, if no `/` stands before it.
fn split_credentials(body: &str) -> (&str, &str) {
    match body.find(['@', '/']) {
        Some(at) if body[at..].starts_with('@') => (&body[..at], &body[at + 1..]),
        _ => ("", body),
    }
}

/// The hosts of a URI and their ports as two lists with commas, and what follows them.
struct Hosts<'a> {
    names: String,
    ports: String,
    rest: &'a str,
}

impl<'a> Hosts<'a> {
    fn split(text: &'a str) -> Result<Self> {
        let mut hosts = Self { names: String::new(), ports: String::new(), rest: text };
        loop {
            let (name, rest) = split_host(hosts.rest)?;
            hosts.names.push_str(name);
            hosts.rest = rest;
            if let Some(rest) = hosts.rest.strip_prefix(':') {
                let (port, rest) = split_before(rest, &['/', '?', ',']);
                hosts.ports.push_str(port);
                hosts.rest = rest;
            }
            let Some(rest) = hosts.rest.strip_prefix(',') else {
                return Ok(hosts);
            };
            hosts.names.push(',');
            hosts.ports.push(',');
            hosts.rest = rest;
        }
    }
}

/// One host, without the brackets of an IPv6 address, and what follows it.
fn split_host(text: &str) -> Result<(&str, &str)> {
    let Some(bracketed) = text.strip_prefix('[') else {
        return Ok(split_before(text, &[':', '/', '?', ',']));
    };
    let (address, rest) =
        bracketed.split_once(']').ok_or_else(|| invalid("uri-bracket-not-closed"))?;
    if address.is_empty() {
        return Err(invalid("uri-brackets-empty"));
    }
    if !rest.is_empty() && !rest.starts_with([':', '/', '?', ',']) {
        return Err(invalid("uri-text-after-bracket"));
    }
    Ok((address, rest))
}

fn split_before<'t>(text: &'t str, ends: &[char]) -> (&'t str, &'t str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Checked here and not only with the endpoints, so that a piece of a password that was taken
/// for a port is not quoted.
fn check_ports(encoded: &str) -> Result<()> {
    for port in decode("port", encoded)?.split(',').filter(|port| !port.is_empty()) {
        if port_number(port).is_none() {
            return Err(invalid("uri-port-out-of-range"));
        }
    }
    Ok(())
}

fn parse_parameter(parameter: &str) -> Result<(&'static Keyword, String)> {
    let (name, value) =
        parameter.split_once('=').ok_or_else(|| invalid("uri-parameter-without-equals"))?;
    if value.contains('=') {
        return Err(invalid("uri-parameter-second-equals"));
    }
    let name = decode("parameter", name)?;
    let value = decode(&name, value)?;
    if name == "ssl" && value == "true" {
        return keywords::find_given("sslmode", "require".to_owned());
    }
    keywords::find_given(&name, value)
}

/// Replaces each `%xy`. Spaces at both ends fall away; a space within is an error.
fn decode(part: &str, encoded: &str) -> Result<String> {
    let broken = |name| invalid(name).with("part", part);
    let encoded = encoded.trim_matches(' ');
    if encoded.contains(' ') {
        return Err(broken("uri-has-space"));
    }
    let mut pieces = encoded.split('%');
    let mut bytes = pieces.next().unwrap_or("").as_bytes().to_vec();
    for piece in pieces {
        match hex_pair(piece.as_bytes()) {
            None => return Err(broken("uri-percent-without-digits")),
            Some(0) => return Err(broken("uri-has-nul")),
            Some(byte) => bytes.push(byte),
        }
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| broken("uri-not-utf-8"))
}

fn hex_pair(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}
