//! What the end of a script and a failure mean: an outcome, another try, or that the client gives
//! up.

use super::commands::{Reason, words_of};
use super::{
    Failure, Next, Preparing, Runner, Shared, State, Transaction, Trouble, TroubleOr, Turn, words,
};
use crate::error::{Error, Kind};
use crate::pace::Ns;
use crate::plan::{NO_LIMIT, Protocol};
use crate::record::{Class, End, Level, Note, Outcome, Recorder, SqlState};
use crate::request::{StatementName, simple};
use crate::script::{Action, Command};
use crate::wire::{Fault, ServerError, Status};

/// What a transaction fails with whose meta command failed: SQLSTATE 38000, external routine
/// exception, for the standard knows no better.
pub(super) const META_COMMAND_FAILED: SqlState = *b"38000";

/// Learns whether a script works, and ends the run if none will.
#[cold]
fn learn(outcome: &Outcome, turn: &Turn<'_>) {
    let Some(proof) = &turn.shared.proof else { return };
    if outcome.class != Class::Failed {
        proof.succeeded(outcome.script);
    } else if proof.failed(outcome.script, outcome.sqlstate) {
        let messages = &turn.record.batch.messages;
        let said = messages.iter().find(|message| message.0 == outcome.sqlstate);
        let name = &turn.shared.scripts.list[usize::from(outcome.script)].name;
        let why = said.map_or("", |message| &*message.1);
        let error = Error::new(Kind::Hopeless, "script-fails").with("script", &**name);
        let error = error.with("why", why).with_sqlstate(outcome.sqlstate);
        turn.shared.control.give_up(turn.at.arrived, error);
    }
}

/// Serialization failure and deadlock: another try may succeed.
fn may_pass(sqlstate: SqlState) -> bool {
    matches!(&sqlstate, b"40001" | b"40P01")
}

impl Runner {
    /// The server reports an error; the transaction goes on failing until it is ready again.
    #[inline(never)]
    pub(super) fn failed(&mut self, turn: &mut Turn<'_>, error: &ServerError) {
        let shared = turn.shared;
        let unparsed = turn.connection.take_parsing();
        turn.record.message(error.sqlstate, &error.message);
        let Some(transaction) = self.transaction.as_ref().filter(|t| t.failure.is_none()) else {
            return;
        };
        if self.state == State::RollingBack {
            return;
        }
        let aborts = !may_pass(error.sqlstate) && !shared.continue_on_error;
        if aborts || shared.verbose {
            let text = self.query_text(transaction, shared, unparsed);
            let mut message = words::server_error(error, text.as_deref());
            if let (true, true, Preparing::Statement(id)) =
                (aborts, unparsed, transaction.preparing)
            {
                // As pgbench, which executes what it could not prepare.
                turn.record.say(Level::Error, message);
                let name = StatementName::new(id);
                message = format!("prepared statement \"{}\" does not exist", name.text());
            }
            let query = turn.connection.results();
            turn.record.say(
                if aborts { Level::Error } else { Level::Info },
                match aborts {
                    true => words::aborted_in_query(self.id, transaction, query, &message),
                    false => words::failed(self.id, transaction, &message),
                },
            );
        }
        let failure = Failure { sqlstate: error.sqlstate, aborts };
        self.transaction.as_mut().expect("seen above").failure = Some(failure);
    }

    /// The text of the command that is going on, where the server has it from us now.
    pub(super) fn query_text(
        &self,
        transaction: &Transaction,
        shared: &Shared,
        parsing: bool,
    ) -> Option<String> {
        let script = &shared.scripts.list[usize::from(transaction.due.script)];
        let Action::Sql(sql) = &script.commands[transaction.command].action else {
            return None;
        };
        let bytes = match shared.protocol {
            Protocol::Simple => {
                let mut out = bytes::BytesMut::new();
                simple(&mut out, sql, &self.variables, &shared.scripts.names).ok()?;
                out[5..out.len() - 1].to_vec()
            }
            Protocol::Prepared if !parsing => return None,
            Protocol::Extended | Protocol::Prepared => sql.numbered.clone(),
        };
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Everything is answered, and the transaction has failed.
    #[inline(never)]
    pub(super) fn failure(&mut self, turn: &mut Turn<'_>, failure: Failure) -> TroubleOr<Next> {
        let transaction = self.transaction.as_mut().expect("a failure belongs to one");
        transaction.pipelined = false;
        if failure.aborts {
            self.timed(End::Failed, turn);
            let error = Error::new(Kind::Aborted, "client-gave-up").with("client", self.id);
            return Err(Trouble::abort(error));
        }
        let again = may_pass(failure.sqlstate) && self.may_try_again(turn);
        if again && turn.connection.status() != Status::Idle {
            // The limit or the end may come before the rollback is done: decided then.
            self.state = State::RollingBack;
            self.query(turn.connection, "ROLLBACK");
            return Ok(Next::Server);
        }
        self.decide(again, turn)
    }

    /// The failed transaction is tried again, or ends.
    fn decide(&mut self, again: bool, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        if turn.shared.verbose {
            self.say_verdict(again, turn);
        }
        self.timed(if again { End::Retried } else { End::Failed }, turn);
        if again { self.retry(turn) } else { self.finish(turn) }
    }

    fn may_try_again(&self, turn: &Turn<'_>) -> bool {
        let (shared, now) = (turn.shared, turn.at.now);
        let transaction = self.transaction.as_ref().expect("a failure belongs to one");
        (shared.max_tries == 0 || transaction.tries < shared.max_tries)
            && now - transaction.due.at <= shared.limits[usize::from(transaction.due.script)]
            && now < shared.control.end()
    }

    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    fn say_verdict(&self, again: bool, turn: &mut Turn<'_>) {
        let transaction = self.transaction.as_ref().expect("a failure belongs to one");
        let passed = turn.at.now - transaction.due.at;
        let limit = turn.shared.limits[usize::from(transaction.due.script)];
        let used = (limit != NO_LIMIT).then(|| 100.0 * passed as f64 / limit as f64);
        let text = words::verdict(self.id, again, transaction.tries, turn.shared.max_tries, used);
        turn.record.say(Level::Info, text);
    }

    /// Runs the script again from its beginning, with the same random numbers. Variables stay.
    fn retry(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        let transaction = self.transaction.as_mut().expect("what is tried again has begun");
        transaction.next = 0;
        transaction.failure = None;
        transaction.falling = false;
        transaction.tries += 1;
        self.random = transaction.random.clone();
        self.advance(turn)
    }

    /// No command is left.
    #[inline]
    pub(super) fn end_of_script(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        let transaction = self.transaction.as_ref().expect("what ends has begun");
        if transaction.pipelined {
            return Err(self.gives_up("end of script reached with pipeline open", turn));
        }
        self.finish(turn)
    }

    /// The script is at its end, or has failed for good.
    #[inline(always)]
    fn finish(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        let transaction = self.transaction.as_ref().expect("what ends has begun");
        let outcome = self.outcome(transaction, turn.at.arrived, turn.shared);
        let failed = transaction.failure.is_some();
        self.transaction = None;
        if failed || turn.shared.proof.as_ref().is_some_and(|proof| proof.lacks(outcome.script)) {
            learn(&outcome, turn);
        }
        if turn.connection.status() == Status::Idle {
            self.state = State::Free;
            turn.record.end(outcome);
            return Ok(Next::Free(turn.at.arrived));
        }
        self.left_open(outcome, failed, turn)
    }

    /// The script is at its end within a transaction block.
    #[cold]
    fn left_open(
        &mut self,
        outcome: Outcome,
        failed: bool,
        turn: &mut Turn<'_>,
    ) -> TroubleOr<Next> {
        if !failed {
            if !turn.shared.recover {
                turn.record.end(outcome);
                let what = "end of script reached without completing the last transaction";
                return Err(self.gives_up(what, turn));
            }
            self.warn(outcome.script, turn);
        }
        turn.record.leave(outcome.done);
        self.outcome = Some(outcome);
        self.state = State::RollingBack;
        self.query(turn.connection, "ROLLBACK");
        Ok(Next::Server)
    }

    fn gives_up(&self, what: &str, turn: &mut Turn<'_>) -> Trouble {
        let message = format!("client {} aborted: {what}", self.id);
        turn.record.say(Level::Error, message.clone());
        Trouble::abort(Error::new(Kind::Script, "script-gives-up").with("text", message))
    }

    fn warn(&mut self, script: u16, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.warned, true) {
            let script = &turn.shared.scripts.list[usize::from(script)].name;
            turn.record.batch.notes.push(Note::LeftOpen(script.clone()));
        }
    }

    #[inline(never)]
    pub(super) fn rolled_back(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        let Some(outcome) = self.outcome.take() else {
            return self.decide(self.may_try_again(turn), turn);
        };
        self.state = State::Free;
        turn.record.put(outcome);
        // The transaction was over before, but the client was not free.
        Ok(Next::Free(turn.at.arrived))
    }

    fn outcome(&self, transaction: &Transaction, done: Ns, shared: &Shared) -> Outcome {
        let late = done - transaction.due.at > shared.limits[usize::from(transaction.due.script)];
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
            sqlstate: transaction.failure.map_or(*b"00000", |failure| failure.sqlstate),
            retries: transaction.tries - 1,
            pid: self.pid,
        }
    }

    pub(super) fn end_with(
        &mut self,
        now: Ns,
        (class, sqlstate): (Class, SqlState),
        shared: &Shared,
        record: &mut Recorder,
    ) {
        if let Some(outcome) = self.outcome.take() {
            record.put(outcome);
        } else if let Some(transaction) = self.transaction.take() {
            let outcome = self.outcome(&transaction, now, shared);
            let retries = if class == Class::Failed { outcome.retries } else { 0 };
            record.end(Outcome { class, sqlstate, retries, ..outcome });
        }
    }

    /// A meta command failed: the client gives up.
    #[cold]
    pub(super) fn meta_failed(
        &self,
        command: &Command,
        failure: Reason,
        turn: &mut Turn<'_>,
    ) -> Trouble {
        let record = &mut *turn.record;
        let transaction = self.transaction.as_ref().expect("a command belongs to one");
        let name = words_of(&command.action);
        let Reason { reason, what } = failure;
        let reason = reason.unwrap_or_else(|| what.to_owned());
        if reason != what {
            record.say(Level::Error, reason.clone());
        }
        record.message(META_COMMAND_FAILED, &reason);
        let text = words::aborted_in_command(self.id, transaction, name, what);
        record.say(Level::Error, text);
        let script = &turn.shared.scripts.list[usize::from(transaction.due.script)].name;
        let message = format!("{script}:{}: {reason}", command.line);
        Trouble::abort(Error::new(Kind::Script, "script-gives-up").with("text", message))
    }

    /// Says what `debug()` was called with.
    #[inline(never)]
    pub(super) fn say_debug(&mut self, record: &mut Recorder) {
        let transaction = self.transaction.as_ref().expect("a command belongs to one");
        for value in self.debug.drain(..) {
            record.say(Level::Plain, words::debug(transaction, value));
        }
    }

    /// What the client says when it gives up because its connection is gone.
    pub(super) fn say_lost(&self, fault: &Fault, queries: u32, record: &mut Recorder) {
        let message = match fault {
            Fault::Server(error) => words::server_error(error, None),
            Fault::Own(error) => error.to_string(),
        };
        let text = match (&self.transaction, self.state) {
            (_, State::Login(_) | State::Closed) => {
                record.say(Level::Error, message);
                format!("client {} aborted while establishing connection", self.id)
            }
            (Some(transaction), _) => {
                words::aborted_in_query(self.id, transaction, queries, &message)
            }
            _ => format!("client {} aborted: {message}", self.id),
        };
        record.say(Level::Error, text);
    }
}
