//! Steers a running server: typed for Rust, and as lines of text for everybody else. Knows what can
//! be asked, and nothing of how the server does it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use mio::Waker;

use crate::config::Address;
use crate::journal::{LogEntry, Stats};
use crate::json;
use crate::socket;

/// What the server's thread can be asked.
#[derive(Debug)]
pub(crate) enum Command {
    Stall,
    Thaw,
    Refuse,
    Accept,
    DropAll,
    Delay(Duration),
    Stats,
    Log,
    Stop,
}

/// What it answers.
#[derive(Debug)]
pub(crate) enum Reply {
    Done,
    Stats(Box<Stats>),
    Log(Vec<LogEntry>),
}

/// A command and where its reply goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) reply_to: Sender<io::Result<Reply>>,
}

/// A remote control. A call returns when the server has done what was asked; it fails where the
/// server has ended.
#[derive(Debug, Clone)]
pub struct Control {
    requests: Sender<Request>,
    waker: Arc<Waker>,
}

impl Control {
    pub(crate) fn new(requests: Sender<Request>, waker: Waker) -> Self {
        Self { requests, waker: Arc::new(waker) }
    }

    /// Freezes the server: it goes on reading and serving, and writes nothing to any client.
    pub fn stall(&self) -> io::Result<()> {
        self.command(Command::Stall)
    }

    /// Ends `stall`: everything that was held back is written at once.
    pub fn thaw(&self) -> io::Result<()> {
        self.command(Command::Thaw)
    }

    /// Stops listening: new connections are refused. Open connections stay.
    pub fn refuse(&self) -> io::Result<()> {
        self.command(Command::Refuse)
    }

    /// Listens again, at the same address.
    pub fn accept(&self) -> io::Result<()> {
        self.command(Command::Accept)
    }

    /// Closes every connection without a word.
    pub fn drop_all(&self) -> io::Result<()> {
        self.command(Command::DropAll)
    }

    /// Sets the service time of every statement in addition to that of its text.
    pub fn set_delay(&self, delay: Duration) -> io::Result<()> {
        self.command(Command::Delay(delay))
    }

    /// Ends the server.
    pub fn stop(&self) -> io::Result<()> {
        self.command(Command::Stop)
    }

    /// What the server has counted so far.
    pub fn stats(&self) -> io::Result<Stats> {
        match self.call(Command::Stats)? {
            Reply::Stats(stats) => Ok(*stats),
            _ => Err(ended()),
        }
    }

    /// The last hundred messages with SQL in them, oldest first.
    pub fn log(&self) -> io::Result<Vec<LogEntry>> {
        match self.call(Command::Log)? {
            Reply::Log(entries) => Ok(entries),
            _ => Err(ended()),
        }
    }

    /// Carries out one line of the control protocol: `ok`, one line of JSON, or `error WHY`.
    pub fn execute(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let done = |result: io::Result<()>| result.map(|()| "ok".to_owned());
        let result = match (words.next().unwrap_or_default(), words.next(), words.next()) {
            ("stall", None, None) => done(self.stall()),
            ("thaw", None, None) => done(self.thaw()),
            ("refuse", None, None) => done(self.refuse()),
            ("accept", None, None) => done(self.accept()),
            ("drop-all", None, None) => done(self.drop_all()),
            ("delay", Some(ms), None) => parse_ms(ms).and_then(|delay| done(self.set_delay(delay))),
            ("stats", None, None) => self.stats().map(|stats| stats.to_json()),
            ("log", None, None) => {
                self.log().map(|entries| json::array(entries.iter().map(LogEntry::to_json)))
            }
            _ => {
                let expected = "expected stall, thaw, refuse, accept, drop-all, delay MS, stats \
                                or log";
                Err(io::Error::new(io::ErrorKind::InvalidInput, expected))
            }
        };
        result.unwrap_or_else(|error| format!("error {error}"))
    }

    /// Takes the control protocol at `address`, on a thread for each client, until the process
    /// ends. Gives the address with the port that the system chose.
    pub fn listen(&self, address: &Address) -> io::Result<Address> {
        let control = self.clone();
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let bound = listener.local_addr()?;
                thread::spawn(move || {
                    listener.incoming().flatten().for_each(|stream| control.attend(stream));
                });
                Ok(Address::Tcp(bound))
            }
            Address::Unix(path) => {
                socket::remove_abandoned(path);
                let listener = UnixListener::bind(path)?;
                thread::spawn(move || {
                    listener.incoming().flatten().for_each(|stream| control.attend(stream));
                });
                Ok(address.clone())
            }
        }
    }

    fn attend<S>(&self, stream: S)
    where
        S: Send + 'static,
        for<'a> &'a S: Read + Write,
    {
        let control = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                // In one piece: the end of a line by itself would wait 40 ms for an acknowledgement.
                let answer = format!("{}\n", control.execute(&line));
                if (&stream).write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        });
    }

    fn command(&self, command: Command) -> io::Result<()> {
        self.call(command).map(|_| ())
    }

    fn call(&self, command: Command) -> io::Result<Reply> {
        let (reply_to, reply) = mpsc::channel();
        self.requests.send(Request { command, reply_to }).map_err(|_| ended())?;
        self.waker.wake()?;
        reply.recv().map_err(|_| ended())?
    }
}

/// Milliseconds, also broken ones, as a duration.
pub fn parse_ms(text: &str) -> io::Result<Duration> {
    text.parse::<f64>().ok().and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()).ok_or_else(
        || {
            let message = format!("{text}: expected milliseconds");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        },
    )
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the fake server has ended")
}
