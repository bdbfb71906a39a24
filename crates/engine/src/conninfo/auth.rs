//! Which ways of authentication are allowed: `require_auth` and `channel_binding`. Knows the
//! names; the exchange itself is in `wire`.

use super::keywords::Values;
use super::session::choice;
use super::{Conninfo, invalid};
use crate::error::Result;

/// A way of authentication that this engine can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMethod {
    /// The server asks for nothing (`trust`, `peer`, `cert`).
    None,
    /// The password in clear.
    Password,
    /// The password's salted MD5.
    Md5,
    /// SCRAM, with or without channel binding.
    ScramSha256,
}

impl AuthMethod {
    /// As in `require_auth`.
    #[must_use]
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == Some(self)).map_or("", |(name, _)| name)
    }
}

/// Whether SCRAM is to be tied to the TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// Whenever the server offers it over TLS.
    Prefer,
    /// No session without it; every other method is then refused too.
    Require,
}

/// The names of `require_auth` and what they are here; `None` is one that only libpq does.
const METHODS: &[(&str, Option<AuthMethod>)] = &[
    ("none", Some(AuthMethod::None)),
    ("password", Some(AuthMethod::Password)),
    ("md5", Some(AuthMethod::Md5)),
    ("scram-sha-256", Some(AuthMethod::ScramSha256)),
    ("gss", None),
    ("sspi", None),
    ("oauth", None),
];

const BINDINGS: &[(&str, ChannelBinding)] = &[
    ("disable", ChannelBinding::Disable),
    ("prefer", ChannelBinding::Prefer),
    ("require", ChannelBinding::Require),
];

/// The parsed values of this file's keywords.
#[derive(Clone)]
pub(super) struct AuthPolicy {
    binding: ChannelBinding,
    allowed: Vec<AuthMethod>,
}

impl AuthPolicy {
    /// Errors: a name that libpq does not know, one given twice, negated and plain names mixed,
    /// or nothing left that this engine can do.
    pub(super) fn parse(values: &Values) -> Result<Self> {
        let binding = choice(values, "channel_binding", BINDINGS)?;
        let Some(list) = values.get("require_auth") else {
            let allowed = METHODS.iter().filter_map(|(_, method)| *method).collect();
            return Ok(Self { binding, allowed });
        };
        let negated = list.starts_with('!');
        let named = names(list, negated)?;
        let allowed: Vec<AuthMethod> = METHODS
            .iter()
            .filter(|(name, _)| named.contains(name) != negated)
            .filter_map(|(_, method)| *method)
            .collect();
        if allowed.is_empty() {
            return Err(invalid("require-auth-unsupported").with("value", list));
        }
        Ok(Self { binding, allowed })
    }
}

/// The names of the list without their exclamation marks.
fn names(list: &str, negated: bool) -> Result<Vec<&str>> {
    let mut names = Vec::new();
    for part in list.split(',') {
        let name = part.strip_prefix('!');
        if name.is_some() != negated {
            return Err(invalid("require-auth-mixed").with("value", list));
        }
        let name = name.unwrap_or(part);
        if !METHODS.iter().any(|(known, _)| *known == name) {
            let known: Vec<&str> = METHODS.iter().map(|(known, _)| *known).collect();
            let error = invalid("require-auth-unknown").with("method", name);
            return Err(error.with("known", known));
        }
        if names.contains(&name) {
            let error = invalid("require-auth-twice").with("value", list);
            return Err(error.with("method", name));
        }
        names.push(name);
    }
    Ok(names)
}

impl Conninfo {
    /// Whether SCRAM is to be tied to the TLS connection.
    pub fn channel_binding(&self) -> ChannelBinding {
        self.auth.binding
    }

    /// True if `require_auth` lets the server use this method.
    pub fn auth_allowed(&self, method: AuthMethod) -> bool {
        self.auth.allowed.contains(&method)
    }
}
