//! The load engine of pgpaces.
//!
//! It knows no Python, no terminal, no configuration file and no result store. Values go in
//! (`plan`), one `Interval` a second comes out (`run`). The middle is pure: `script`, `wire`,
//! `pace`, `shape`, `record`, `interval`, `times` and `client` never read a clock and never touch a socket; `worker` and
//! `poll` are the thin shell that does.

pub mod actors;
pub mod backlog;
pub mod cancel;
pub mod client;
pub mod conninfo;
pub mod control;
pub mod destination;
pub mod error;
pub mod feeds;
pub mod interval;
pub mod ledger;
pub mod log;
pub mod pace;
pub mod plan;
pub mod poll;
pub mod record;
pub mod rehearsal;
mod request;
pub mod route;
pub mod run;
pub mod script;
pub mod shape;
pub mod stored;
pub mod times;
pub mod wire;
pub mod worker;
