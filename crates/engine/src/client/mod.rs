//! One client: a connection that runs scripts one after the other. A pure state machine: due
//! transactions, bytes and times come in, bytes and what to wait for come out.
//!
//! ```text
//!              open            on_connect done          start
//!   Closed ----------> Login ------------------> Free ----------> Busy <----> Away
//!     ^                                           ^                |  ^
//!     |   any fault, an abort                     |   end, error   v  | retry
//!     +---------------------------------------    +------------ RollingBack
//! ```
//!
//! `runner` is all of it but the connection: `commands` runs the commands of a script, `results`
//! stores rows in variables, `ending` decides what a failure means, `words` reports it, `steps`
//! reports each step on request.

mod commands;
mod ending;
mod proof;
mod results;
mod runner;
mod steps;
mod words;

use crate::control::Control;
use crate::error::Error;
use crate::pace::{Due, Ns};
use crate::plan::{Plan, Protocol};
use crate::record::{Class, Recorder};
use crate::request::{Execution, StatementName};
use crate::script::eval::Variables;
use crate::script::random::Random;
use crate::script::{Results, Scripts, Sql};
use crate::wire::{Connection, Event, Fault, Settings};
use postgres_protocol::message::frontend;
use proof::Proof;
use runner::{Failure, Preparing, Runner, Transaction};
use std::sync::Arc;

/// What all clients of a run share.
#[derive(Debug)]
pub struct Shared {
    /// What is run.
    pub scripts: Scripts,
    /// How SQL is sent.
    pub protocol: Protocol,
    /// How the statements of the scripts are executed in the extended protocols, by `Sql::id`.
    executions: Vec<Execution>,
    /// SQL that every connection runs first.
    pub on_connect: Vec<String>,
    /// The latency above which a transaction is late, by script.
    pub limits: Box<[Ns]>,
    /// How often a transaction is tried; 0: without end. See `plan`.
    pub max_tries: u32,
    /// Whether a failed statement fails its transaction only, or aborts its client.
    pub continue_on_error: bool,
    /// Whether a block left open is rolled back, or aborts its client.
    pub recover: bool,
    /// Whether meta commands are timed as well.
    pub time_commands: bool,
    /// Whether to report every failure and retry.
    pub verbose: bool,
    /// Whether to report notices and warnings of the server.
    pub notices: bool,
    /// Whether clients tell every step that they take.
    pub debug: bool,
    /// Whether the scripts work at all; none where the run goes on all the same.
    pub proof: Option<Proof>,
    /// When the run ends: nothing is tried again after that.
    pub control: Arc<Control>,
}

impl Shared {
    /// What the clients of a trial share.
    ///
    /// # Panics
    /// Where `Scripts::check_parameters` was not asked.
    #[must_use]
    pub fn new(plan: &Plan, scripts: Scripts, control: Arc<Control>) -> Self {
        let executions = match plan.protocol {
            Protocol::Simple => Vec::new(),
            protocol => executions(&scripts, protocol, plan.describe),
        };
        let limits = plan.limits(scripts.list.len());
        let proof = (!plan.keep_going).then(|| Proof::new(scripts.list.len()));
        Self {
            executions,
            scripts,
            protocol: plan.protocol,
            on_connect: plan.on_connect.clone(),
            limits,
            max_tries: plan.max_tries,
            continue_on_error: plan.continue_on_error,
            recover: plan.recover,
            time_commands: plan.time_commands,
            verbose: plan.verbose,
            notices: plan.notices,
            debug: plan.debug,
            proof,
            control,
        }
    }
}

/// How each statement is executed; its name is empty where it is parsed each time.
fn executions(scripts: &Scripts, protocol: Protocol, describe: bool) -> Vec<Execution> {
    let execution = |sql: &Sql| {
        let name = StatementName::new(sql.id);
        let name = if protocol == Protocol::Prepared { name.text() } else { "" };
        let describe = describe || sql.results != Results::Discard;
        Execution::new(name, sql, describe).expect("the parameters were counted")
    };
    scripts.sql().map(execution).collect()
}

/// What a client does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has no connection.
    Closed,
    /// It is logging in, or running the first statements of a connection; the number of those done.
    Login(usize),
    /// It could start a transaction.
    Free,
    /// Something was sent whose answer it waits for.
    Busy,
    /// It waits for something else: the end of a `\sleep`, of a shell command, or the clock.
    Away,
    /// The transaction has failed; when the rollback is answered, its outcome stands in the record
    /// or it is tried again.
    RollingBack,
}

/// What its owner should do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Send what is outgoing, if anything, and wait for the server.
    Server,
    /// Wake it at this time.
    Wake(Ns),
    /// Wake it with the time as it is now.
    Clock,
    /// Run a shell command and tell how it ended.
    Shell(Box<ShellCommand>),
    /// It is free, since this time.
    Free(Ns),
}

/// A shell command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// The command line.
    pub line: Vec<u8>,
    /// Whether its first line of output is wanted.
    pub capture: bool,
}

/// How a shell command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellEnd {
    /// Whether it could be run, and where nothing was captured whether it succeeded.
    pub succeeded: bool,
    /// The first line of its output, where that was wanted and there was one.
    pub line: Option<Vec<u8>>,
}

/// Why a client could not go on.
#[derive(Debug)]
pub enum Trouble {
    /// Its connection cannot be used any more.
    Fault(Box<Fault>),
    /// It gives up; it has said why. The error is for a run that ends with it.
    Abort(Box<Error>),
}

impl Trouble {
    #[cold]
    fn abort(error: Error) -> Self {
        Self::Abort(Box::new(error))
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

/// What a client step gives.
pub type TroubleOr<T> = std::result::Result<T, Trouble>;

/// The times at which something is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// When what is looked at had happened.
    pub arrived: Ns,
    /// The time now.
    pub now: Ns,
}

/// What a client has at hand while it takes a step.
struct Turn<'a> {
    shared: &'a Shared,
    connection: &'a mut Connection,
    record: &'a mut Recorder,
    at: Moment,
}

/// One client: a connection, and what runs scripts over it.
pub struct Client {
    shared: Arc<Shared>,
    connection: Option<Box<Connection>>,
    runner: Runner,
}

impl Client {
    /// A client without a connection.
    #[must_use]
    pub fn new(id: u32, shared: &Arc<Shared>, variables: Variables, random: Random) -> Self {
        let runner = Runner::new(id, shared.scripts.statements, variables, random);
        Self { shared: Arc::clone(shared), connection: None, runner }
    }

    /// Its number in the run.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.runner.id
    }

    /// What it does now.
    #[must_use]
    pub fn state(&self) -> State {
        self.runner.state
    }

    /// Begins a new connection; its first bytes are outgoing.
    pub fn open(&mut self, settings: &Arc<Settings>) {
        let mut connection = Connection::open(settings);
        if self.shared.notices {
            connection.tell_notices();
        }
        self.connection = Some(Box::new(connection));
        self.runner.open();
    }

    /// Says goodbye; what that takes is outgoing until `forget` is called.
    pub fn hang_up(&mut self) {
        if let Some(connection) = &mut self.connection {
            frontend::terminate(connection.buffer());
        }
        self.runner.state = State::Closed;
    }

    /// The connection, while there is one.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_deref_mut()
    }

    /// True while a transaction is going on.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.runner.is_in_transaction()
    }

    /// True while the server owes an answer to something that was, or is to be, sent.
    #[must_use]
    pub fn awaits_server(&self) -> bool {
        self.runner.awaits_server()
    }

    /// What runs the scripts, and what it has at hand at `at`.
    fn turn<'a>(&'a mut self, at: Moment, record: &'a mut Recorder) -> (&'a mut Runner, Turn<'a>) {
        let connection = self.connection.as_deref_mut();
        let connection = connection.expect("a working client has a connection");
        (&mut self.runner, Turn { shared: &self.shared, connection, record, at })
    }

    /// Starts a transaction; the client must be free.
    ///
    /// # Errors
    /// `Trouble::Abort` where the script cannot run as written.
    #[inline(always)]
    pub fn start(
        &mut self,
        due: Due,
        now: Ns,
        idle: bool,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        let (runner, mut turn) = self.turn(Moment { arrived: now, now }, record);
        runner.start(due, idle, &mut turn)
    }

    /// Goes on after `Next::Wake` and `Next::Clock`.
    ///
    /// # Errors
    /// As `start`.
    pub fn wake(&mut self, now: Ns, record: &mut Recorder) -> TroubleOr<Next> {
        let (runner, mut turn) = self.turn(Moment { arrived: now, now }, record);
        runner.wake(&mut turn)
    }

    /// Goes on after `Next::Shell`.
    ///
    /// # Errors
    /// As `start`.
    pub fn shell_ended(
        &mut self,
        end: &ShellEnd,
        now: Ns,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        let (runner, mut turn) = self.turn(Moment { arrived: now, now }, record);
        runner.take_answer(end, &mut turn)?;
        runner.wake(&mut turn)
    }

    /// Takes bytes from the server.
    ///
    /// # Errors
    /// `Trouble::Fault` where the connection ends, `Trouble::Abort` where the client gives up.
    #[inline(always)]
    pub fn receive(&mut self, bytes: &[u8], at: Moment, record: &mut Recorder) -> TroubleOr<Next> {
        let Self { shared, connection: Some(connection), runner } = self else {
            return Ok(Next::Server);
        };
        if shared.debug {
            runner.say_received(record);
        }
        let mut next = Next::Server;
        connection.receive(bytes, |connection, event| {
            let mut turn = Turn { shared, connection, record, at };
            match event {
                // It may come at any time, and decides nothing.
                Event::Notice(notice) => runner.say_notice(&notice, &mut turn),
                // What follows a step in the same bytes has none of its own.
                event => match runner.event(event, &mut turn)? {
                    Next::Server => {}
                    step => next = step,
                },
            }
            Ok::<(), Trouble>(())
        })?;
        Ok(next)
    }

    /// The connection is gone, and a transaction in flight has failed.
    pub fn lost(&mut self, now: Ns, fault: &Fault, record: &mut Recorder) {
        self.runner.end_with(now, (Class::Failed, fault.sqlstate()), &self.shared, record);
        record.fault(fault);
        self.forget();
    }

    /// Says that it gives up because its connection is gone.
    pub fn say_lost(&self, fault: &Fault, record: &mut Recorder) {
        let queries = self.connection.as_ref().map_or(0, |connection| connection.results());
        self.runner.say_lost(fault, queries, record);
    }

    /// The client gave up: a transaction in flight has failed.
    pub fn aborted(&mut self, now: Ns, record: &mut Recorder) {
        let sqlstate = self.runner.failed_with().unwrap_or(ending::META_COMMAND_FAILED);
        self.runner.end_with(now, (Class::Failed, sqlstate), &self.shared, record);
    }

    /// The grace period is over: a transaction in flight stays unfinished.
    pub fn abandon(&mut self, now: Ns, record: &mut Recorder) {
        self.runner.end_with(now, (Class::Unfinished, *b"00000"), &self.shared, record);
        self.runner.state = State::Closed;
    }

    /// There is no connection any more.
    pub fn forget(&mut self) {
        self.connection = None;
        self.runner.forget();
    }
}
