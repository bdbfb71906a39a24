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
//! `commands` runs the commands of a script, `results` stores rows in variables, `ending` decides
//! what a failure means, `words` says it.

mod commands;
mod ending;
mod results;
mod words;

use crate::control::Control;
use crate::error::{Error, Kind};
use crate::pace::{Due, Ns};
use crate::plan::{Plan, Protocol};
use crate::record::{Class, End, Level, Outcome, Recorder, SqlState, Timing};
use crate::script::Scripts;
use crate::script::eval::{Value, Variables};
use crate::script::random::Random;
use crate::wire::{Connection, Event, Fault, Settings};
use postgres_protocol::message::frontend;
use results::Rows;
use std::sync::Arc;

/// What all clients of a run share.
#[derive(Debug)]
pub struct Shared {
    /// How connections are opened.
    pub settings: Arc<Settings>,
    /// What is run.
    pub scripts: Scripts,
    /// How SQL is sent.
    pub protocol: Protocol,
    /// Whether results are described in the extended protocols.
    pub describe: bool,
    /// SQL that every connection runs first.
    pub on_connect: Vec<String>,
    /// The latency above which a transaction is late.
    pub limit: Option<Ns>,
    /// How often a transaction is tried; 0: without end. See `plan`.
    pub max_tries: u32,
    /// Whether a failed statement fails its transaction only, or aborts its client.
    pub continue_on_error: bool,
    /// Whether a block left open is rolled back, or aborts its client.
    pub recover: bool,
    /// Whether meta commands are timed as well.
    pub time_commands: bool,
    /// Whether every failure and retry is told.
    pub verbose: bool,
    /// When the run ends: nothing is tried again after that.
    pub control: Arc<Control>,
}

impl Shared {
    /// What the clients of a trial share.
    #[must_use]
    pub fn new(
        plan: &Plan,
        scripts: Scripts,
        settings: Arc<Settings>,
        control: Arc<Control>,
    ) -> Self {
        Self {
            settings,
            scripts,
            protocol: plan.protocol,
            describe: plan.describe,
            on_connect: plan.on_connect.clone(),
            limit: plan.limit,
            max_tries: plan.max_tries,
            continue_on_error: plan.continue_on_error,
            recover: plan.recover,
            time_commands: plan.time_commands,
            verbose: plan.verbose,
            control,
        }
    }
}

/// What a client does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has no connection.
    Closed,
    /// It is logging in, or running what every connection runs first; so many of those are done.
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
    Shell {
        /// The command line.
        line: Vec<u8>,
        /// Whether its first line of output is wanted.
        capture: bool,
    },
    /// It is free, since this time.
    Free(Ns),
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
    Fault(Fault),
    /// It gives up; it has said why. The error is for a run that ends with it.
    Abort(Error),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
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

/// Why a transaction fails.
#[derive(Debug, Clone, Copy)]
struct Failure {
    sqlstate: SqlState,
    /// Its client gives up.
    aborts: bool,
}

/// What is being prepared, and is not if this fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preparing {
    Nothing,
    /// The statement with this number.
    Statement(u32),
    /// All statements of the pipeline that begins at this command.
    Pipeline(usize),
}

/// The transaction that is going on.
#[derive(Debug, Clone)]
struct Transaction {
    due: Due,
    sent: Ns,
    idle: bool,
    /// The place of the command that is going on, and of the one that comes then.
    command: usize,
    next: usize,
    /// When the command that is going on began.
    began: Ns,
    preparing: Preparing,
    failure: Option<Failure>,
    tries: u32,
    /// The client's dice at the beginning: another try throws the same.
    random: Random,
    /// A condition failed: the next command is another branch, or the end.
    falling: bool,
    /// Between `\startpipeline` and `\endpipeline`.
    pipelined: bool,
}

/// One client.
pub struct Client {
    /// Its number in the run.
    pub id: u32,
    /// What it does now.
    pub state: State,
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// How often the server has still to say that it is ready.
    awaited: u32,
    variables: Variables,
    random: Random,
    prepared: Vec<bool>,
    rows: Rows,
    /// What expressions printed, until it is said.
    debug: Vec<Value>,
    transaction: Option<Transaction>,
    outcome: Option<Outcome>,
    warned: bool,
}

impl Client {
    /// A client without a connection.
    #[must_use]
    pub fn new(id: u32, shared: &Arc<Shared>, variables: Variables, random: Random) -> Self {
        Self {
            id,
            state: State::Closed,
            prepared: vec![false; shared.scripts.statements as usize],
            shared: Arc::clone(shared),
            connection: None,
            awaited: 0,
            variables,
            random,
            rows: Rows::default(),
            debug: Vec::new(),
            transaction: None,
            outcome: None,
            warned: false,
        }
    }

    /// Begins a new connection; its first bytes are outgoing.
    pub fn open(&mut self) {
        self.connection = Some(Connection::open(&self.shared.settings));
        self.prepared.fill(false);
        self.awaited = 1;
        self.state = State::Login(0);
    }

    /// Says goodbye; what that takes is outgoing until `forget` is called.
    pub fn hang_up(&mut self) {
        if let Some(connection) = &mut self.connection {
            frontend::terminate(connection.buffer());
        }
        self.state = State::Closed;
    }

    /// The connection, while there is one.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// True while a transaction is going on.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some() || self.outcome.is_some()
    }

    /// True while the server owes an answer to something that was, or is to be, sent.
    #[must_use]
    pub fn awaits_server(&self) -> bool {
        self.awaited > 0
    }

    /// Starts a transaction; the client must be free.
    ///
    /// # Errors
    /// `Trouble::Abort` where the script cannot run as written.
    pub fn start(
        &mut self,
        due: Due,
        now: Ns,
        idle: bool,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        debug_assert_eq!(self.state, State::Free);
        record.begin(now);
        self.transaction = Some(Transaction {
            due,
            sent: now,
            idle,
            command: 0,
            next: 0,
            began: now,
            preparing: Preparing::Nothing,
            failure: None,
            tries: 1,
            random: self.random.clone(),
            falling: false,
            pipelined: false,
        });
        self.go_on(Moment { arrived: now, now }, record)
    }

    /// Goes on after `Next::Wake` and `Next::Clock`.
    ///
    /// # Errors
    /// As `start`.
    pub fn wake(&mut self, now: Ns, record: &mut Recorder) -> TroubleOr<Next> {
        if self.shared.time_commands {
            self.timed(End::Done, now, record);
        }
        self.go_on(Moment { arrived: now, now }, record)
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
        self.take_answer(end, record)?;
        self.wake(now, record)
    }

    /// Takes bytes from the server.
    ///
    /// # Errors
    /// `Trouble::Fault` where the connection ends, `Trouble::Abort` where the client gives up.
    pub fn receive(&mut self, bytes: &[u8], at: Moment, record: &mut Recorder) -> TroubleOr<Next> {
        let Some(mut connection) = self.connection.take() else {
            return Ok(Next::Server);
        };
        let mut next = Next::Server;
        let mut abort = None;
        let received = connection.receive(bytes, |connection, event| {
            if abort.is_some() {
                return Ok(());
            }
            match self.event(connection, event, at, record) {
                Ok(found) => next = found,
                Err(Trouble::Fault(fault)) => return Err(fault),
                Err(Trouble::Abort(error)) => abort = Some(error),
            }
            Ok(())
        });
        self.connection = Some(connection);
        if let Some(error) = abort {
            return Err(Trouble::Abort(error));
        }
        received?;
        Ok(next)
    }

    fn event(
        &mut self,
        connection: &mut Connection,
        event: Event,
        at: Moment,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        match event {
            Event::Failed(error) => {
                if error.fatal || matches!(self.state, State::Login(_)) {
                    return Err(Fault::Server(error).into());
                }
                self.failed(connection, &error, record);
                return Ok(Next::Server);
            }
            Event::CopyIn => {
                self.refuse_copy(connection, record)?;
                return Ok(Next::Server);
            }
            Event::Columns | Event::Row | Event::Complete => {
                self.keep(connection, &event, record)?;
                return Ok(Next::Server);
            }
            Event::Ready(_) => {}
        }
        self.awaited = self.awaited.checked_sub(1).ok_or_else(|| {
            Fault::Protocol("the server says it is ready though nothing was asked of it".into())
        })?;
        match self.state {
            State::Login(done) => Ok(self.logged_in(connection, done, at)),
            State::Busy if self.awaited == 0 => self.answered(connection, at, record),
            State::RollingBack => self.rolled_back(connection, at, record),
            // Within a pipeline that goes on.
            State::Busy | State::Away => Ok(Next::Server),
            State::Closed | State::Free => unreachable!("nothing is awaited"),
        }
    }

    /// Nothing can be copied from a script. In the extended protocols the server has swallowed
    /// the Sync that was sent with the statement.
    fn refuse_copy(&self, connection: &mut Connection, record: &mut Recorder) -> TroubleOr<()> {
        if self.transaction.is_some() && !self.shared.continue_on_error {
            let message = "COPY is not supported in pgbench, aborting".to_owned();
            record.say(Level::Error, message.clone());
            return Err(Trouble::Abort(Error::new(Kind::Aborted, message)));
        }
        let reason = "COPY FROM STDIN has nothing to read in a script";
        frontend::copy_fail(reason, connection.buffer()).expect("no NUL");
        if self.state == State::Busy && self.shared.protocol != Protocol::Simple {
            frontend::sync(connection.buffer());
        }
        Ok(())
    }

    fn logged_in(&mut self, connection: &mut Connection, done: usize, at: Moment) -> Next {
        let shared = Arc::clone(&self.shared);
        if let Some(sql) = shared.on_connect.get(done) {
            self.query(connection, sql);
            self.state = State::Login(done + 1);
            return Next::Server;
        }
        self.state = State::Free;
        Next::Free(at.arrived)
    }

    /// A statement was answered.
    fn answered(
        &mut self,
        connection: &mut Connection,
        at: Moment,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        let transaction = self.transaction.as_mut().expect("a busy client has a transaction");
        let preparing = std::mem::replace(&mut transaction.preparing, Preparing::Nothing);
        if let Some(failure) = transaction.failure {
            self.forget_prepared(preparing);
            return self.failure(connection, failure, at, record);
        }
        if matches!(preparing, Preparing::Pipeline(_)) {
            if self.shared.time_commands {
                self.timed(End::Done, at.arrived, record);
            }
            return self.advance(connection, at, record);
        }
        transaction.pipelined = false;
        if connection.results() == 0 && self.wanted(&self.shared.scripts).is_some() {
            return Err(Fault::Protocol(
                "the server says it is ready, but it has not answered the statement".into(),
            )
            .into());
        }
        self.store_row(connection, record)?;
        self.timed(End::Done, at.arrived, record);
        self.advance(connection, at, record)
    }

    /// Records how long the command that has just ended took.
    fn timed(&mut self, end: End, now: Ns, record: &mut Recorder) {
        let transaction = self.transaction.as_ref().expect("a command belongs to a transaction");
        record.batch.timings.push(Timing {
            script: transaction.due.script,
            command: u16::try_from(transaction.command).unwrap_or(u16::MAX),
            end,
            ns: now - transaction.began,
        });
    }

    fn go_on(&mut self, at: Moment, record: &mut Recorder) -> TroubleOr<Next> {
        let mut connection = self.connection.take().expect("a working client has a connection");
        let next = self.advance(&mut connection, at, record);
        self.connection = Some(connection);
        next
    }

    /// Sends a simple query of our own, or one that `Plan::check` has seen.
    fn query(&mut self, connection: &mut Connection, sql: &str) {
        frontend::query(sql, connection.buffer()).expect("checked for NUL");
        connection.keep_rows(false);
        self.awaited = 1;
    }

    /// The connection is gone; a transaction in flight has failed with `sqlstate`.
    pub fn lost(&mut self, now: Ns, sqlstate: SqlState, message: &str, record: &mut Recorder) {
        self.end_with(now, Class::Failed, sqlstate, record);
        record.message(sqlstate, message);
        self.forget();
    }

    /// The client gave up: a transaction in flight has failed.
    pub fn aborted(&mut self, now: Ns, record: &mut Recorder) {
        let failure = self.transaction.as_ref().and_then(|t| t.failure);
        let sqlstate = failure.map_or(ending::META_COMMAND_FAILED, |failure| failure.sqlstate);
        self.end_with(now, Class::Failed, sqlstate, record);
    }

    /// The grace period is over: a transaction in flight stays unfinished.
    pub fn abandon(&mut self, now: Ns, record: &mut Recorder) {
        self.end_with(now, Class::Unfinished, *b"00000", record);
        self.state = State::Closed;
    }

    /// There is no connection any more.
    pub fn forget(&mut self) {
        self.connection = None;
        self.awaited = 0;
        self.state = State::Closed;
    }
}
