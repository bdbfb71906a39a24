//! The keywords of libpq 18: their variables, their defaults, which of them are secret, and the
//! values that a connection string, a service or the environment gave them. Knows nothing of
//! what a value means.

use std::collections::BTreeMap;

use super::environment::Environment;
use super::invalid;
use crate::error::Result;

/// One keyword of libpq.
pub(super) struct Keyword {
    /// The name in connection strings.
    pub(super) name: &'static str,
    /// The environment variable that stands in for it; empty if there is none.
    variable: &'static str,
    /// The default value; empty if there is none.
    default: &'static str,
    /// Never to be shown.
    pub(super) secret: bool,
}

const fn plain(name: &'static str, variable: &'static str, default: &'static str) -> Keyword {
    Keyword { name, variable, default, secret: false }
}

const fn secret(name: &'static str, variable: &'static str) -> Keyword {
    Keyword { name, variable, default: "", secret: true }
}

/// All keywords. `user`, `dbname`, `host` and `passfile` get their defaults in `mod.rs`, because
/// these come from the system.
#[rustfmt::skip]
const KEYWORDS: &[Keyword] = &[
    plain("service", "PGSERVICE", ""),
    plain("servicefile", "PGSERVICEFILE", ""),
    plain("user", "PGUSER", ""),
    secret("password", "PGPASSWORD"),
    plain("passfile", "PGPASSFILE", ""),
    plain("channel_binding", "PGCHANNELBINDING", "prefer"),
    plain("connect_timeout", "PGCONNECT_TIMEOUT", ""),
    plain("dbname", "PGDATABASE", ""),
    plain("host", "PGHOST", ""),
    plain("hostaddr", "PGHOSTADDR", ""),
    plain("port", "PGPORT", super::DEFAULT_PORT),
    plain("client_encoding", "PGCLIENTENCODING", ""),
    plain("options", "PGOPTIONS", ""),
    plain("application_name", "PGAPPNAME", ""),
    plain("fallback_application_name", "", ""),
    plain("keepalives", "", ""),
    plain("keepalives_idle", "", ""),
    plain("keepalives_interval", "", ""),
    plain("keepalives_count", "", ""),
    plain("tcp_user_timeout", "", ""),
    plain("sslmode", "PGSSLMODE", "prefer"),
    plain("sslnegotiation", "PGSSLNEGOTIATION", "postgres"),
    plain("sslcompression", "PGSSLCOMPRESSION", "0"),
    plain("sslcert", "PGSSLCERT", ""),
    plain("sslkey", "PGSSLKEY", ""),
    plain("sslcertmode", "PGSSLCERTMODE", ""),
    secret("sslpassword", ""),
    plain("sslrootcert", "PGSSLROOTCERT", ""),
    plain("sslcrl", "PGSSLCRL", ""),
    plain("sslcrldir", "PGSSLCRLDIR", ""),
    plain("sslsni", "PGSSLSNI", "1"),
    plain("requirepeer", "PGREQUIREPEER", ""),
    plain("require_auth", "PGREQUIREAUTH", ""),
    plain("min_protocol_version", "PGMINPROTOCOLVERSION", ""),
    plain("max_protocol_version", "PGMAXPROTOCOLVERSION", ""),
    plain("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", "TLSv1.2"),
    plain("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", ""),
    plain("gssencmode", "PGGSSENCMODE", "disable"),
    plain("krbsrvname", "PGKRBSRVNAME", "postgres"),
    plain("gsslib", "PGGSSLIB", ""),
    plain("gssdelegation", "PGGSSDELEGATION", "0"),
    plain("replication", "", ""),
    plain("target_session_attrs", "PGTARGETSESSIONATTRS", "any"),
    plain("load_balance_hosts", "PGLOADBALANCEHOSTS", "disable"),
    secret("scram_client_key", ""),
    secret("scram_server_key", ""),
    plain("oauth_issuer", "", ""),
    plain("oauth_client_id", "", ""),
    secret("oauth_client_secret", ""),
    plain("oauth_scope", "", ""),
    plain("sslkeylogfile", "", ""),
];

/// Names that other drivers use for the same thing: too far from ours for spelling to tell.
const FOREIGN: &[(&str, &str)] = &[
    ("database", "dbname"),
    ("db", "dbname"),
    ("hostname", "host"),
    ("pass", "password"),
    ("requiressl", "sslmode"),
    ("ssl", "sslmode"),
    ("timeout", "connect_timeout"),
    ("username", "user"),
];

/// The keyword of that name, or an error that names the nearest one.
pub(super) fn find(name: &str) -> Result<&'static Keyword> {
    let found = KEYWORDS.iter().find(|keyword| keyword.name == name);
    found.ok_or_else(|| {
        let error = invalid("unknown-connection-keyword").with("keyword", name);
        error.with("near", nearest(name))
    })
}

/// As `find`, for strings and URIs, where the old `requiressl` still counts: `1` is
/// `sslmode=require`, anything else `sslmode=prefer`.
pub(super) fn find_given(name: &str, value: String) -> Result<(&'static Keyword, String)> {
    if name != "requiressl" {
        return Ok((find(name)?, value));
    }
    let mode = if value.starts_with('1') { "require" } else { "prefer" };
    Ok((find("sslmode")?, mode.to_owned()))
}

fn nearest(name: &str) -> &'static str {
    let name = name.to_lowercase();
    if let Some((_, ours)) = FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
        return ours;
    }
    let mut by_distance = KEYWORDS.iter().map(|keyword| (distance(&name, keyword.name), keyword));
    let first = by_distance.next().expect("the table is not empty");
    by_distance.fold(first, |best, next| if next.0 < best.0 { next } else { best }).1.name
}

/// Levenshtein's distance: insertions, deletions and replacements between two words.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// What each keyword was set to. An empty text is a value too: it keeps later sources out.
#[derive(Clone, Default)]
pub(super) struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// Sets a value, over any earlier one. None can hold a NUL, which ends a C string of libpq.
    pub(super) fn set(&mut self, keyword: &'static Keyword, value: String) -> Result<()> {
        if value.contains('\0') {
            return Err(invalid("connection-value-has-nul").with("keyword", keyword.name));
        }
        self.put(keyword.name, value);
        Ok(())
    }

    /// Sets a value if there is none yet.
    pub(super) fn offer(&mut self, keyword: &'static Keyword, value: String) -> Result<()> {
        if self.0.contains_key(keyword.name) { Ok(()) } else { self.set(keyword, value) }
    }

    /// Sets a value that we made ourselves.
    pub(super) fn put(&mut self, name: &'static str, value: String) {
        self.0.insert(name, value);
    }

    /// The value, unless it is absent or empty: what libpq mostly means by "given".
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// The value as it was set, which may be empty.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All values that were set, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Fills what is still open: from the variables, then from the table's defaults.
    pub(super) fn fill(&mut self, environment: &dyn Environment) -> Result<()> {
        let mode_was_open = self.raw("sslmode").is_none() && environment.var("PGSSLMODE").is_none();
        for keyword in KEYWORDS.iter().filter(|keyword| !keyword.variable.is_empty()) {
            if let Some(value) = environment.var(keyword.variable) {
                self.offer(keyword, value)?;
            }
        }
        if let (true, Some(mode)) = (mode_was_open, self.implied_ssl_mode(environment)) {
            self.put("sslmode", mode.to_owned());
        }
        for keyword in KEYWORDS.iter().filter(|keyword| !keyword.default.is_empty()) {
            self.offer(keyword, keyword.default.to_owned())?;
        }
        Ok(())
    }

    /// The mode that follows from other settings: the old PGREQUIRESSL, or the system's roots,
    /// which are worth little without a check of the host name.
    fn implied_ssl_mode(&self, environment: &dyn Environment) -> Option<&'static str> {
        if environment.var("PGREQUIRESSL").is_some_and(|old| old.starts_with('1')) {
            return Some("require");
        }
        (self.get("sslrootcert") == Some("system")).then_some("verify-full")
    }
}

/// True if the value of this keyword must not be shown.
pub(super) fn is_secret(name: &str) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.secret && keyword.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        for (left, right, edits) in [
            ("", "", 0),
            ("port", "port", 0),
            ("prot", "port", 2),
            ("", "abc", 3),
            ("hst", "host", 1),
        ] {
            assert_eq!(distance(left, right), edits, "{left} {right}");
        }
    }

    #[test]
    fn an_unknown_keyword_is_answered_with_the_nearest_one() {
        for (name, expected) in [
            ("sslmod", "sslmode"),
            ("HOST", "host"),
            ("database", "dbname"),
            ("username", "user"),
            ("aplication_name", "application_name"),
            ("passwd", "password"),
            ("ssl", "sslmode"),
        ] {
            assert_eq!(nearest(name), expected);
        }
    }

    #[test]
    fn every_keyword_is_in_the_table_once() {
        for keyword in KEYWORDS {
            assert_eq!(KEYWORDS.iter().filter(|other| other.name == keyword.name).count(), 1);
        }
    }
}
