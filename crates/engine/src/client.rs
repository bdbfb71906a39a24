//! One client: a connection that runs scripts one after the other. A pure state machine: due
//! transactions, bytes and times come in, bytes and what to wait for come out.
//!
//! ```text
//!              open            on_connect done          start
//!   Closed ----------> Login ------------------> Free ----------> Busy <----> Sleeping
//!     ^                                           ^                 |
//!     |   any fault                               |   end, error    v
//!     +---------------------------------------    +------------ RollingBack
//! ```

use crate::error::{Error, Kind};
use crate::pace::{Due, Ns};
use crate::plan::Protocol;
use crate::record::{Class, Outcome, Recorder, SqlState, Timing};
use crate::request::{StatementName, execute, prepare, simple};
use crate::script::eval::{Scope, Variable, Variables};
use crate::script::random::Random;
use crate::script::{Action, Amount, Scripts, Sql};
use crate::wire::{Connection, Event, Fault, Settings, Status};
use postgres_protocol::message::frontend;
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
    /// A statement was sent.
    Busy,
    /// A `\sleep` goes on.
    Sleeping,
    /// The outcome is known and stands in the record when the rollback is answered.
    RollingBack,
}

/// What its owner should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send what is outgoing, if anything, and wait for the server.
    Server,
    /// Wake it at this time.
    Wake(Ns),
    /// It is free, since this time.
    Free(Ns),
}

/// Why a client could not go on.
#[derive(Debug)]
pub enum Trouble {
    /// Its connection cannot be used any more.
    Fault(Fault),
    /// The run must end: a script cannot run as written.
    Error(Error),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The times at which something is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// When what is looked at had happened.
    pub arrived: Ns,
    /// The time now.
    pub now: Ns,
}

/// The transaction that is going on.
#[derive(Debug, Clone, Copy)]
struct Transaction {
    due: Due,
    sent: Ns,
    idle: bool,
    command: usize,
    statement_sent: Ns,
    /// The statement that is being prepared by its first use.
    preparing: Option<u32>,
    failure: Option<SqlState>,
}

/// One client.
pub struct Client {
    /// Its number in the run.
    pub id: u32,
    /// What it does now.
    pub state: State,
    shared: Arc<Shared>,
    connection: Option<Connection>,
    variables: Variables,
    random: Random,
    prepared: Vec<bool>,
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
            variables,
            random,
            transaction: None,
            outcome: None,
            warned: false,
        }
    }

    /// Begins a new connection; its first bytes are outgoing.
    pub fn open(&mut self) {
        self.connection = Some(Connection::open(&self.shared.settings));
        self.prepared.fill(false);
        self.state = State::Login(0);
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

    /// Starts a transaction; the client must be free.
    ///
    /// # Errors
    /// `Trouble::Error` where the script cannot run as written.
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
            statement_sent: now,
            preparing: None,
            failure: None,
        });
        self.go_on(Moment { arrived: now, now }, record)
    }

    /// Goes on after a `\sleep`.
    ///
    /// # Errors
    /// As `start`.
    pub fn wake(&mut self, now: Ns, record: &mut Recorder) -> TroubleOr<Next> {
        self.go_on(Moment { arrived: now, now }, record)
    }

    /// Takes bytes from the server.
    ///
    /// # Errors
    /// `Trouble::Fault` where the connection ends, `Trouble::Error` where the run must.
    pub fn receive(&mut self, bytes: &[u8], at: Moment, record: &mut Recorder) -> TroubleOr<Next> {
        let Some(mut connection) = self.connection.take() else {
            return Ok(Next::Server);
        };
        let mut next = Next::Server;
        let mut error = None;
        let received = connection.receive(bytes, |connection, event| {
            match self.event(connection, event, at, record) {
                Ok(found) => next = found,
                Err(Trouble::Fault(fault)) => return Err(fault),
                Err(Trouble::Error(found)) => error = Some(found),
            }
            Ok(())
        });
        self.connection = Some(connection);
        received?;
        error.map_or(Ok(next), |error| Err(Trouble::Error(error)))
    }

    fn event(
        &mut self,
        connection: &mut Connection,
        event: Event,
        at: Moment,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        let status = match event {
            Event::Failed(error) => {
                if error.fatal || matches!(self.state, State::Login(_)) {
                    return Err(Fault::Server(error).into());
                }
                self.failed(error.sqlstate, &error.message, record);
                return Ok(Next::Server);
            }
            Event::CopyIn => {
                self.refuse_copy(connection);
                return Ok(Next::Server);
            }
            Event::Ready(status) => status,
        };
        match self.state {
            State::Login(done) => Ok(self.logged_in(connection, done, at)),
            State::Busy => self.answered(connection, status, at, record),
            State::RollingBack => Ok(self.rolled_back(record)),
            State::Closed | State::Free | State::Sleeping => Err(Fault::Protocol(
                "the server says it is ready though nothing was asked of it".into(),
            )
            .into()),
        }
    }

    /// Nothing can be copied from a script. In the extended protocols the server has swallowed
    /// the Sync that was sent with the statement.
    fn refuse_copy(&self, connection: &mut Connection) {
        let reason = "COPY FROM STDIN has nothing to read in a script";
        frontend::copy_fail(reason, connection.buffer()).expect("no NUL");
        if self.state == State::Busy && self.shared.protocol != Protocol::Simple {
            frontend::sync(connection.buffer());
        }
    }

    fn logged_in(&mut self, connection: &mut Connection, done: usize, at: Moment) -> Next {
        if let Some(sql) = self.shared.on_connect.get(done) {
            query(connection, sql);
            self.state = State::Login(done + 1);
            return Next::Server;
        }
        self.state = State::Free;
        Next::Free(at.arrived)
    }

    fn failed(&mut self, sqlstate: SqlState, message: &str, record: &mut Recorder) {
        record.message(sqlstate, message);
        if let Some(transaction) = &mut self.transaction {
            transaction.failure.get_or_insert(sqlstate);
        }
    }

    /// A statement was answered.
    fn answered(
        &mut self,
        connection: &mut Connection,
        status: Status,
        at: Moment,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        let transaction = self.transaction.as_mut().expect("a busy client has a transaction");
        record.batch.timings.push(Timing {
            script: transaction.due.script,
            command: u16::try_from(transaction.command - 1).unwrap_or(u16::MAX),
            succeeded: transaction.failure.is_none(),
            ns: at.arrived - transaction.statement_sent,
        });
        let preparing = transaction.preparing.take();
        if transaction.failure.is_some() {
            if let Some(id) = preparing {
                self.prepared[id as usize] = false;
            }
            return Ok(self.finish(connection, status, at, record));
        }
        self.advance(connection, at, record)
    }

    fn go_on(&mut self, at: Moment, record: &mut Recorder) -> TroubleOr<Next> {
        let mut connection = self.connection.take().expect("a working client has a connection");
        let next = self.advance(&mut connection, at, record);
        self.connection = Some(connection);
        next
    }

    /// Runs commands until one must be waited for.
    fn advance(
        &mut self,
        connection: &mut Connection,
        at: Moment,
        record: &mut Recorder,
    ) -> TroubleOr<Next> {
        let shared = Arc::clone(&self.shared);
        let transaction = self.transaction.as_mut().expect("a working client has a transaction");
        let script = &shared.scripts.list[usize::from(transaction.due.script)];
        loop {
            let Some(command) = script.commands.get(transaction.command) else {
                let status = connection.status();
                return Ok(self.finish(connection, status, at, record));
            };
            transaction.command += 1;
            match &command.action {
                Action::Set { variable, value } => {
                    let mut scope = Scope { variables: &self.variables, random: &mut self.random };
                    let value = scope
                        .eval(value)
                        .map_err(|m| wrong(script.name.as_str(), command.line, &m))?;
                    self.variables.0[*variable as usize] = Variable::Value(value);
                }
                Action::Sleep { amount, unit_ns } => {
                    let count = amount_of(*amount, &self.variables)
                        .map_err(|m| wrong(script.name.as_str(), command.line, &m))?;
                    self.state = State::Sleeping;
                    return Ok(Next::Wake(at.now.saturating_add(count.saturating_mul(*unit_ns))));
                }
                Action::Sql(sql) => {
                    transaction.statement_sent = at.now;
                    self.state = State::Busy;
                    self.send(connection, sql)?;
                    return Ok(Next::Server);
                }
            }
        }
    }

    /// Writes one SQL command in the protocol of the run.
    fn send(&mut self, connection: &mut Connection, sql: &Sql) -> TroubleOr<()> {
        let shared = &self.shared;
        let out = connection.buffer();
        let written = match shared.protocol {
            Protocol::Simple => simple(out, sql, &self.variables, &shared.scripts.names),
            Protocol::Extended => frontend::parse("", &sql.numbered, std::iter::empty(), out)
                .and_then(|()| execute(out, "", sql, &self.variables, shared.describe)),
            Protocol::Prepared => {
                let name = StatementName::new(sql.id);
                let known = std::mem::replace(&mut self.prepared[sql.id as usize], true);
                let parsed = if known { Ok(()) } else { prepare(out, name.text(), sql) };
                if let Some(transaction) = &mut self.transaction {
                    transaction.preparing = (!known).then_some(sql.id);
                }
                parsed
                    .and_then(|()| execute(out, name.text(), sql, &self.variables, shared.describe))
            }
        };
        written.map_err(|e| {
            Trouble::Error(Error::new(Kind::Script, format!("a statement cannot be sent: {e}")))
        })
    }

    /// The script is at its end, or at a failed statement.
    fn finish(
        &mut self,
        connection: &mut Connection,
        status: Status,
        at: Moment,
        record: &mut Recorder,
    ) -> Next {
        let transaction = self.transaction.take().expect("what ends has begun");
        let outcome = self.outcome(&transaction, at.arrived);
        if status == Status::Idle {
            self.state = State::Free;
            record.end(outcome);
            return Next::Free(at.arrived);
        }
        if transaction.failure.is_none() && !self.warned {
            self.warned = true;
            let script = &self.shared.scripts.list[usize::from(transaction.due.script)].name;
            record.batch.notes.push(format!(
                "script {script} leaves a transaction block open; it is rolled back"
            ));
        }
        record.leave(outcome.done);
        self.outcome = Some(outcome);
        self.state = State::RollingBack;
        query(connection, "ROLLBACK");
        Next::Server
    }

    fn rolled_back(&mut self, record: &mut Recorder) -> Next {
        let outcome = self.outcome.take().expect("a rollback has an outcome");
        self.state = State::Free;
        let free = outcome.done;
        record.put(outcome);
        Next::Free(free)
    }

    fn outcome(&self, transaction: &Transaction, done: Ns) -> Outcome {
        let late = self.shared.limit.is_some_and(|limit| done - transaction.due.at > limit);
        let class = match transaction.failure {
            Some(_) => Class::Failed,
            None if late => Class::Late,
            None => Class::OnTime,
        };
        Outcome {
            due: transaction.due.at,
            sent: transaction.sent,
            done,
            client: self.id,
            script: transaction.due.script,
            class,
            idle: transaction.idle,
            sqlstate: transaction.failure.unwrap_or(*b"00000"),
        }
    }

    /// The connection is gone; a transaction in flight has failed with `sqlstate`.
    pub fn lost(&mut self, now: Ns, sqlstate: SqlState, message: &str, record: &mut Recorder) {
        self.end_with(now, Class::Failed, sqlstate, record);
        record.message(sqlstate, message);
        self.connection = None;
        self.state = State::Closed;
    }

    /// The grace period is over: a transaction in flight stays unfinished.
    pub fn abandon(&mut self, now: Ns, record: &mut Recorder) {
        self.end_with(now, Class::Unfinished, *b"00000", record);
        self.state = State::Closed;
    }

    fn end_with(&mut self, now: Ns, class: Class, sqlstate: SqlState, record: &mut Recorder) {
        if let Some(outcome) = self.outcome.take() {
            record.put(outcome);
        } else if let Some(transaction) = self.transaction.take() {
            let outcome = self.outcome(&transaction, now);
            record.end(Outcome { class, sqlstate, ..outcome });
        }
    }
}

/// What a client step gives.
pub type TroubleOr<T> = std::result::Result<T, Trouble>;

fn wrong(script: &str, line: u32, message: &str) -> Trouble {
    Trouble::Error(Error::new(Kind::Script, format!("{script}:{line}: {message}")))
}

fn amount_of(amount: Amount, variables: &Variables) -> std::result::Result<i64, String> {
    match amount {
        Amount::Constant(count) => Ok(count),
        Amount::Variable(slot) => match &variables.0[slot as usize] {
            Variable::Unset => Err("undefined variable in \\sleep".into()),
            Variable::Value(value) => value.int().map(|n| n.max(0)),
            Variable::Text(text) => text
                .trim()
                .parse::<i64>()
                .map_err(|_| format!("invalid sleep time \"{text}\", must be an integer")),
        },
    }
}

/// A simple query of our own, or one that `Plan::check` has seen.
fn query(connection: &mut Connection, sql: &str) {
    frontend::query(sql, connection.buffer()).expect("checked for NUL");
}
