//! What a session is to be once connected: which server of several, how long to wait, how TCP
//! looks for a dead peer. Also how a keyword with a fixed set of values is read.

use std::time::Duration;

use super::endpoint::shuffle;
use super::environment::Environment;
use super::keywords::Values;
use super::{Conninfo, integer, invalid};
use crate::error::{Error, Result};
use crate::script::random::Random;

/// Which servers are good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    /// Any that lets us in.
    Any,
    /// Transactions are read-write by default, and it is not a standby.
    ReadWrite,
    /// Transactions are read-only by default, or it is a standby.
    ReadOnly,
    /// Not a standby.
    Primary,
    /// A standby.
    Standby,
    /// A standby if one of the hosts is one, else any.
    PreferStandby,
}

/// How TCP connections find out that the other side is gone. `None`: as the system has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpSettings {
    /// Ask the peer for signs of life at all.
    pub keepalives: bool,
    /// Quiet time before the first question.
    pub idle: Option<Duration>,
    /// Time between questions.
    pub interval: Option<Duration>,
    /// Questions without an answer until the connection counts as lost.
    pub count: Option<u32>,
    /// How long sent data may stay unacknowledged.
    pub user_timeout: Option<Duration>,
}

/// The parsed values of this file's keywords.
#[derive(Clone)]
pub(super) struct Session {
    target: TargetSessionAttrs,
    connect_timeout: Option<Duration>,
    tcp: TcpSettings,
}

const TARGETS: &[(&str, TargetSessionAttrs)] = &[
    ("any", TargetSessionAttrs::Any),
    ("read-write", TargetSessionAttrs::ReadWrite),
    ("read-only", TargetSessionAttrs::ReadOnly),
    ("primary", TargetSessionAttrs::Primary),
    ("standby", TargetSessionAttrs::Standby),
    ("prefer-standby", TargetSessionAttrs::PreferStandby),
];

/// Whether hosts are tried in random order.
const BALANCES: &[(&str, bool)] = &[("disable", false), ("random", true)];

impl Session {
    /// Errors: a value that is not one of the keyword's, or no integer.
    pub(super) fn parse(values: &Values) -> Result<Self> {
        let seconds = |name| Ok(positive(values, name)?.map(|n| Duration::from_secs(n.into())));
        let tcp = TcpSettings {
            keepalives: integer_of(values, "keepalives")? != Some(0),
            idle: seconds("keepalives_idle")?,
            interval: seconds("keepalives_interval")?,
            count: positive(values, "keepalives_count")?,
            user_timeout: positive(values, "tcp_user_timeout")?
                .map(|ms| Duration::from_millis(ms.into())),
        };
        Ok(Self {
            target: choice(values, "target_session_attrs", TARGETS)?,
            connect_timeout: seconds("connect_timeout")?,
            tcp,
        })
    }
}

impl Conninfo {
    /// Which servers are good enough.
    pub fn target_session_attrs(&self) -> TargetSessionAttrs {
        self.session.target
    }

    /// How long one attempt to connect may take, per endpoint and address; `None` is for ever.
    pub fn connect_timeout(&self) -> Option<Duration> {
        self.session.connect_timeout
    }

    /// How TCP is to look for a dead peer.
    pub fn tcp(&self) -> TcpSettings {
        self.session.tcp
    }
}

/// Puts the hosts into the order in which they are tried. A load goes to one server, and so must
/// every session that prepares and observes it: all of them get this order, and none draws again.
pub(super) fn order_hosts(values: &mut Values, environment: &dyn Environment) -> Result<()> {
    if choice(values, "load_balance_hosts", BALANCES)? {
        shuffle(values, Random::from_seed(environment.chance()))?;
        values.put("load_balance_hosts", BALANCES[0].0.to_owned());
    }
    Ok(())
}

/// The value of a keyword that has a fixed set of values. The first of them stands in for an
/// absent one, where `keywords` has no default. An empty text is not among them, as in libpq.
pub(super) fn choice<T: Copy>(values: &Values, name: &str, table: &[(&str, T)]) -> Result<T> {
    let given = values.raw(name).unwrap_or(table[0].0);
    let found = table.iter().find(|(text, _)| *text == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = table.iter().map(|(text, _)| *text).collect();
        not_one_of(name, given, known)
    })
}

pub(super) fn not_one_of(keyword: &str, value: &str, known: Vec<&str>) -> Error {
    let error = invalid("connection-value-unknown").with("keyword", keyword);
    error.with("value", value).with("known", known)
}

fn positive(values: &Values, name: &str) -> Result<Option<u32>> {
    let number = integer_of(values, name)?.and_then(|number| u32::try_from(number).ok());
    Ok(number.filter(|number| *number > 0))
}

fn integer_of(values: &Values, name: &str) -> Result<Option<i32>> {
    values.raw(name).map_or(Ok(None), |text| match integer(text) {
        Some(number) => Ok(Some(number)),
        None => {
            let error = invalid("connection-value-not-integer").with("keyword", name);
            Err(error.with("value", text))
        }
    })
}
