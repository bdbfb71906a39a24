//! A fake PostgreSQL server with exact service times.
//!
//! It speaks PostgreSQL's protocol 3.0 on loopback, on one thread for all connections. The text of
//! a statement says what it does and how long it takes, so that tests and benchmarks know the
//! truth beforehand. It holds no data.
//!
//! ```no_run
//! use pgpaces_fakeserver::{Config, FakeServer};
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! let delay = Duration::from_millis(10);
//! let server = FakeServer::start(Config { delay, ..Config::default() })?;
//! println!("postgresql://user@127.0.0.1:{}/database", server.port());
//! server.control().stall()?;
//! server.control().thaw()?;
//! println!("{}", server.control().stats()?.statements);
//! # Ok(())
//! # } // dropping the server ends it
//! ```
//! The same server as a program, with everything it understands:
//! ```text
#![doc = include_str!("help.txt")]
//! ```
#![cfg(unix)]

mod alarm;
mod auth;
mod config;
mod connection;
mod control;
mod desk;
mod frames;
mod gate;
mod journal;
mod json;
mod messages;
mod random;
mod reactor;
mod rows;
mod server;
mod session;
mod socket;
mod sql;
mod state;

pub use config::{Address, Auth, Config};
pub use control::{Control, parse_ms};
pub use journal::{LogEntry, Manner, Stats};
pub use server::FakeServer;
