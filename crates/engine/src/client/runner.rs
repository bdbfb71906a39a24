//! What runs scripts: everything of a client but its connection.

use super::results::Rows;
use super::{Next, State, Trouble, TroubleOr, Turn};
use crate::error::{Error, Kind};
use crate::pace::{Due, Ns};
use crate::plan::Protocol;
use crate::record::{End, Level, Outcome, SqlState, Timing};
use crate::script::Results;
use crate::script::eval::{Value, Variables};
use crate::script::random::Random;
use crate::wire::{Connection, Event, Fault, protocol};
use postgres_protocol::message::frontend;

/// Why a transaction fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) sqlstate: SqlState,
    /// Its client gives up.
    pub(super) aborts: bool,
}

/// What is being prepared, and is not if this fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preparing {
    Nothing,
    /// The statement with this number.
    Statement(u32),
    /// All statements of the pipeline that begins at this command.
    Pipeline(usize),
}

/// The transaction that is going on.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    pub(super) due: Due,
    pub(super) sent: Ns,
    pub(super) idle: bool,
    /// The place of the command that is going on, and of the one that comes then.
    pub(super) command: usize,
    pub(super) next: usize,
    /// When the command that is going on began.
    pub(super) began: Ns,
    pub(super) preparing: Preparing,
    pub(super) failure: Option<Failure>,
    pub(super) tries: u32,
    /// The client's dice at the beginning: another try throws the same.
    pub(super) random: Random,
    /// A condition failed: the next command is another branch, or the end.
    pub(super) falling: bool,
    /// Between `\startpipeline` and `\endpipeline`.
    pub(super) pipelined: bool,
}

/// Runs the scripts of one client.
pub(super) struct Runner {
    pub(super) id: u32,
    pub(super) state: State,
    /// How often the server has still to say that it is ready.
    pub(super) awaited: u32,
    pub(super) variables: Variables,
    pub(super) random: Random,
    pub(super) prepared: Vec<bool>,
    pub(super) rows: Rows,
    /// What expressions printed, until it is reported.
    pub(super) debug: Vec<Value>,
    pub(super) transaction: Option<Transaction>,
    pub(super) outcome: Option<Outcome>,
    /// The server's process; 0 where it is unknown.
    pub(super) pid: i32,
    pub(super) warned: bool,
}

impl Runner {
    pub(super) fn new(id: u32, statements: u32, variables: Variables, random: Random) -> Self {
        Self {
            id,
            state: State::Closed,
            prepared: vec![false; statements as usize],
            awaited: 0,
            variables,
            random,
            rows: Rows::default(),
            debug: Vec::new(),
            transaction: None,
            outcome: None,
            pid: 0,
            warned: false,
        }
    }

    pub(super) fn open(&mut self) {
        self.prepared.fill(false);
        self.awaited = 1;
        self.state = State::Login(0);
    }

    pub(super) fn forget(&mut self) {
        self.awaited = 0;
        self.state = State::Closed;
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.is_some() || self.outcome.is_some()
    }

    pub(super) fn awaits_server(&self) -> bool {
        self.awaited > 0
    }

    /// What the transaction has failed with so far.
    pub(super) fn failed_with(&self) -> Option<SqlState> {
        Some(self.transaction.as_ref()?.failure?.sqlstate)
    }

    #[inline(always)]
    pub(super) fn start(&mut self, due: Due, idle: bool, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        debug_assert_eq!(self.state, State::Free);
        let now = turn.at.now;
        if turn.shared.debug {
            self.say_begun(due, turn);
        }
        turn.record.begin(now);
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
        self.advance(turn)
    }

    pub(super) fn wake(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        if turn.shared.time_commands {
            self.timed(End::Done, turn);
        }
        self.advance(turn)
    }

    pub(super) fn event(&mut self, event: Event, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        match event {
            Event::Ready(_) => self.ready(turn),
            Event::Failed(error) => {
                if error.fatal || matches!(self.state, State::Login(_)) {
                    return Err(Fault::Server(error).into());
                }
                self.failed(turn, &error);
                Ok(Next::Server)
            }
            Event::Notice(_) => Ok(Next::Server),
            Event::CopyIn => self.refuse_copy(turn).map(|()| Next::Server),
            Event::Columns | Event::Row | Event::Complete => {
                self.keep(turn, &event).map(|()| Next::Server)
            }
        }
    }

    /// The server has answered everything up to a synchronization point.
    fn ready(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        self.awaited = self.awaited.checked_sub(1).ok_or_else(unasked)?;
        if turn.shared.debug {
            self.say_synced(turn.record);
        }
        match self.state {
            State::Busy if self.awaited == 0 => self.answered(turn),
            State::Login(done) => Ok(self.logged_in(done, turn)),
            State::RollingBack => self.rolled_back(turn),
            // Within a pipeline that goes on.
            State::Busy | State::Away => Ok(Next::Server),
            State::Closed | State::Free => unreachable!("nothing is awaited"),
        }
    }

    /// Nothing can be copied from a script. In the extended protocols the server has swallowed
    /// the Sync that was sent with the statement; of several, or of one that is still to come, it
    /// cannot be known which, and only a new connection is in step again.
    #[cold]
    fn refuse_copy(&self, turn: &mut Turn<'_>) -> TroubleOr<()> {
        if self.transaction.is_some() && !turn.shared.continue_on_error {
            let message = "COPY is not supported in pgbench, aborting".to_owned();
            turn.record.say(Level::Error, message.clone());
            let error = Error::new(Kind::Aborted, "script-gives-up").with("text", message);
            return Err(Trouble::abort(error));
        }
        let reason = "COPY FROM STDIN has nothing to read in a script";
        let extended = turn.shared.protocol != Protocol::Simple;
        let working = matches!(self.state, State::Busy | State::Away);
        if extended && working && (self.state, self.awaited) != (State::Busy, 1) {
            return Err(Fault::lost(reason).into());
        }
        frontend::copy_fail(reason, turn.connection.buffer()).expect("no NUL");
        if extended && working {
            frontend::sync(turn.connection.buffer());
        }
        Ok(())
    }

    #[cold]
    fn logged_in(&mut self, done: usize, turn: &mut Turn<'_>) -> Next {
        if let Some(sql) = turn.shared.on_connect.get(done) {
            self.query(turn.connection, sql);
            self.state = State::Login(done + 1);
            return Next::Server;
        }
        self.pid = turn.connection.cancel_key().map_or(0, |(pid, _)| pid);
        self.state = State::Free;
        Next::Free(turn.at.arrived)
    }

    /// What was sent last is answered.
    fn answered(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        let transaction = self.transaction.as_mut().expect("a busy client has a transaction");
        let preparing = std::mem::replace(&mut transaction.preparing, Preparing::Nothing);
        if let Some(failure) = transaction.failure {
            self.forget_prepared(preparing, &turn.shared.scripts);
            return self.failure(turn, failure);
        }
        if matches!(preparing, Preparing::Pipeline(_)) {
            return self.wake(turn);
        }
        transaction.pipelined = false;
        match self.wanted(&turn.shared.scripts) {
            Some(_) if turn.connection.results() == 0 => return Err(unanswered().into()),
            Some(Results::Gset(_)) => self.store_row(turn)?,
            _ => {}
        }
        self.timed(End::Done, turn);
        self.advance(turn)
    }

    /// Records how long the command that has just ended took.
    pub(super) fn timed(&mut self, end: End, turn: &mut Turn<'_>) {
        let transaction = self.transaction.as_ref().expect("a command belongs to a transaction");
        turn.record.batch.timings.push(Timing {
            script: transaction.due.script,
            command: u16::try_from(transaction.command).unwrap_or(u16::MAX),
            end,
            ns: turn.at.arrived - transaction.began,
        });
    }

    /// Sends a simple query of the engine, or one that `Plan::check` has seen.
    pub(super) fn query(&mut self, connection: &mut Connection, sql: &str) {
        frontend::query(sql, connection.buffer()).expect("checked for NUL");
        connection.keep_rows(false);
        self.awaited = 1;
    }
}

#[cold]
fn unasked() -> Fault {
    protocol("ready-unasked").into()
}

#[cold]
fn unanswered() -> Fault {
    protocol("ready-without-answer").into()
}
