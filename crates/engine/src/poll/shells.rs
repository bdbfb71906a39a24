//! Shell commands of scripts: each in its own thread, so that it delays only the client
//! that waits for it.

use super::{Token, Waker};
use crate::client::ShellEnd;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The most that is read of a line that is to be an integer: what pgbench reads.
const LINE_MAX: u64 = 63;

/// Whose command, its number, and how it ended.
type Ended = (Token, u64, ShellEnd);

/// The shell commands of one thread.
pub(super) struct Shells {
    ended: (Sender<Ended>, Receiver<Ended>),
    number: u64,
    running: u64,
}

impl Shells {
    pub(super) fn new() -> Self {
        Self { ended: channel(), number: 0, running: 0 }
    }

    /// Begins a command; `waker` is woken at its end.
    pub(super) fn start(
        &mut self,
        token: Token,
        line: Vec<u8>,
        capture: bool,
        waker: &Waker,
    ) -> u64 {
        self.number += 1;
        self.running += 1;
        let (number, sender, own) = (self.number, self.ended.0.clone(), waker.clone());
        let body = move || {
            let end = run(line, capture).unwrap_or(ShellEnd { succeeded: false, line: None });
            let _ = sender.send((token, number, end));
            own.wake();
        };
        let builder = std::thread::Builder::new().name("pgpaces-shell".into());
        if builder.spawn(body).is_err() {
            let _ = self.ended.0.send((token, number, ShellEnd { succeeded: false, line: None }));
            waker.wake();
        }
        number
    }

    pub(super) fn ended(&mut self) -> Option<Ended> {
        if self.running == 0 {
            return None;
        }
        let ended = self.ended.1.try_recv().ok()?;
        self.running -= 1;
        Some(ended)
    }
}

/// Runs a command line as `system` does, or reads its first line as `popen` lets one.
fn run(line: Vec<u8>, capture: bool) -> std::io::Result<ShellEnd> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(OsString::from_vec(line));
    if !capture {
        return Ok(ShellEnd { succeeded: command.status()?.success(), line: None });
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut line = Vec::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output.take(LINE_MAX)).read_until(b'\n', &mut line)?;
    }
    child.wait()?;
    Ok(ShellEnd { succeeded: true, line: Some(line).filter(|line| !line.is_empty()) })
}
