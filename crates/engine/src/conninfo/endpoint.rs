//! Where to connect: lists of hosts, addresses and ports become one `Endpoint` each, in the
//! order of the string. Resolves no names and opens no sockets.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use super::keywords::Values;
use super::passfile::{Lookup, PasswordFile};
use super::{DEFAULT_PORT, integer, invalid};
use crate::error::Result;
use crate::script::random::Random;

/// The longest socket path that the kernel takes, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// One server to try.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The host as given, for messages and for the name in the server's certificate; the
    /// address, if no host was given.
    pub host: String,
    /// Where to connect.
    pub address: Address,
    /// The port, which is a part of the path of a Unix socket too.
    pub port: u16,
    /// The password given, or the one that the password file has for this endpoint.
    pub password: Option<String>,
}

/// What to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The socket DIRECTORY/.s.PGSQL.PORT; with a leading `@` in Linux's abstract namespace,
    /// where the `@` stands for a NUL byte.
    Unix(PathBuf),
    /// TCP to a host that is still to be looked up: `hostaddr` if given, else `host`.
    Tcp {
        /// A name or an address in digits.
        host: String,
    },
}

impl Endpoint {
    /// True for TCP, the only way that can be encrypted; false for a Unix socket.
    pub fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp { .. })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("host", &self.host)
            .field("address", &self.address)
            .field("port", &self.port)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish()
    }
}

/// One position of the three lists, as text; what is not given is empty.
struct Slot {
    host: String,
    hostaddr: String,
    port: String,
}

/// Writes the default socket directory wherever neither host nor address is given, so that
/// other readers of the keywords connect to the same server.
pub(super) fn fill_hosts(values: &mut Values, directory: &str) -> Result<()> {
    let mut slots = slots(values)?;
    let empty = |slot: &Slot| slot.host.is_empty() && slot.hostaddr.is_empty();
    if slots.iter().any(empty) {
        for slot in slots.iter_mut().filter(|slot| empty(slot)) {
            slot.host = directory.to_owned();
        }
        let hosts: Vec<&str> = slots.iter().map(|slot| slot.host.as_str()).collect();
        values.put("host", hosts.join(","));
    }
    Ok(())
}

/// Puts the positions of the lists into random order (Fisher and Yates).
pub(super) fn shuffle(values: &mut Values, mut random: Random) -> Result<()> {
    let mut slots = slots(values)?;
    for last in (1..slots.len()).rev() {
        let at = random.up_to(last as u64);
        slots.swap(last, usize::try_from(at).expect("at most `last`"));
    }
    for (name, of) in [
        ("host", (|slot| &slot.host) as fn(&Slot) -> &String),
        ("hostaddr", |slot| &slot.hostaddr),
        ("port", |slot| &slot.port),
    ] {
        if values.get(name).is_some() {
            let parts: Vec<_> = slots.iter().map(|slot| of(slot).as_str()).collect();
            values.put(name, parts.join(","));
        }
    }
    Ok(())
}

/// The endpoints in the order of the string. Errors: lists of different lengths, a bad port,
/// an address that is a name, a socket path that is too long.
pub(super) fn endpoints(
    values: &Values,
    directory: &str,
    file: &PasswordFile,
) -> Result<Vec<Endpoint>> {
    let slots = slots(values)?;
    slots.iter().map(|slot| endpoint(slot, values, directory, file)).collect()
}

fn endpoint(
    slot: &Slot,
    values: &Values,
    directory: &str,
    file: &PasswordFile,
) -> Result<Endpoint> {
    let given = if slot.host.is_empty() { &slot.hostaddr } else { &slot.host };
    let port = port_number(&slot.port)
        .ok_or_else(|| invalid("port-out-of-range").with("port", &*slot.port))?;
    let password = values.get("password").map(str::to_owned).or_else(|| {
        file.find(&Lookup {
            host: if given == directory { "localhost" } else { given },
            port: &slot.port,
            database: values.get("dbname").unwrap_or_default(),
            user: values.get("user").unwrap_or_default(),
        })
    });
    Ok(Endpoint { host: given.clone(), address: address(slot, port)?, port, password })
}

fn address(slot: &Slot, port: u16) -> Result<Address> {
    if !slot.hostaddr.is_empty() {
        return tcp_address(&slot.hostaddr);
    }
    if !slot.host.starts_with(['/', '@']) {
        return Ok(Address::Tcp { host: slot.host.clone() });
    }
    let path = format!("{}/.s.PGSQL.{port}", slot.host);
    if path.len() > SOCKET_PATH_BYTES_MAX {
        let error = invalid("socket-path-too-long").with("bytes", path.len());
        return Err(error.with("path", path).with("most", SOCKET_PATH_BYTES_MAX));
    }
    Ok(Address::Unix(path.into()))
}

fn tcp_address(hostaddr: &str) -> Result<Address> {
    if !is_numeric_address(hostaddr) {
        return Err(invalid("hostaddr-not-an-address").with("hostaddr", hostaddr));
    }
    Ok(Address::Tcp { host: hostaddr.to_owned() })
}

/// IPv4, IPv6 with or without a scope, and the system's short forms such as `127.1`.
fn is_numeric_address(text: &str) -> bool {
    let scoped = text.split_once('%').map(|(address, _)| address);
    text.parse::<IpAddr>().is_ok()
        || scoped.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
        || (text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | 'x' | 'X')))
}

/// A port from 1 to 65535, with or without spaces around it.
pub(super) fn port_number(text: &str) -> Option<u16> {
    integer(text).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// Splits the lists. `hostaddr` says how many there are, else `host`, else it is one. A single
/// port serves all.
fn slots(values: &Values) -> Result<Vec<Slot>> {
    let hosts = list(values, "host");
    let addresses = list(values, "hostaddr");
    let ports = list(values, "port");
    let count = addresses.len().max(if addresses.is_empty() { hosts.len().max(1) } else { 0 });
    if !hosts.is_empty() && hosts.len() != count {
        let error = invalid("hosts-differ-from-addresses").with("hosts", hosts.len());
        return Err(error.with("addresses", count));
    }
    if ports.len() > 1 && ports.len() != count {
        let error = invalid("ports-differ-from-hosts").with("ports", ports.len());
        return Err(error.with("hosts", count));
    }
    let pick = |values: &[&str], at: usize| values.get(at).copied().unwrap_or("").to_owned();
    let slot = |at: usize| {
        let port = pick(&ports, if ports.len() > 1 { at } else { 0 });
        Slot {
            host: pick(&hosts, at),
            hostaddr: pick(&addresses, at),
            port: if port.is_empty() { DEFAULT_PORT.to_owned() } else { port },
        }
    };
    Ok((0..count).map(slot).collect())
}

fn list<'a>(values: &'a Values, name: &str) -> Vec<&'a str> {
    values.get(name).map_or_else(Vec::new, |value| value.split(',').collect())
}
