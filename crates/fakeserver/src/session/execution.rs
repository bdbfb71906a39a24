//! One statement from its beginning to its answer: effects, rows, errors, COPY, and what they do to
//! the transaction. Knows no clock: a service time is asked for, never waited for.

use super::extended::Formats;
use super::{Flow, Phase, Running, Session, Turn};
use crate::frames::Frame;
use crate::messages::{self, Report, Transaction};
use crate::rows::Rows;
use crate::sql::{Column, Outcome, Statement, Verb};
use crate::state::State;

impl Session {
    /// Answers the running statement, whose service is over.
    pub(crate) fn answer(&mut self, turn: &mut Turn<'_>) -> Flow {
        let Some(mut running) = self.running.take() else {
            return Flow::Next;
        };
        for number in 1..=running.effect.notices {
            Report::notice(format!("fake notice {number}")).write(turn.out);
        }
        match running.effect.outcome {
            Outcome::Usual => self.answer_as_usual(running, turn),
            Outcome::Disconnect => Flow::Close,
            Outcome::Failure(ref report) => {
                let report = report.clone();
                self.running = Some(running);
                self.fail(&report, turn)
            }
            Outcome::Rows { rows, bytes } => {
                if running.is_simple {
                    let columns = &running.statement().columns;
                    messages::row_description(turn.out, columns, |_| false);
                }
                running.rows = Some((Rows::new(rows, bytes), rows));
                self.running = Some(running);
                Flow::Fill
            }
        }
    }

    /// Goes on with the rows that are being sent, until `out` holds about `enough` bytes.
    pub(crate) fn fill(&mut self, enough: usize, turn: &mut Turn<'_>) -> Flow {
        let Some(mut running) = self.running.take() else {
            return Flow::Next;
        };
        let Some((rows, count)) = &mut running.rows else {
            return Flow::Next;
        };
        if !rows.fill(turn.out, enough) {
            self.running = Some(running);
            return Flow::Fill;
        }
        if let Outcome::Failure(report) = &running.effect.outcome {
            let report = report.clone();
            self.running = Some(running);
            return self.fail(&report, turn);
        }
        messages::command_complete(turn.out, &format!("SELECT {count}"));
        self.complete(running, turn)
    }

    /// Ends the running statement because another connection asked for it.
    pub(crate) fn cancel(&mut self, turn: &mut Turn<'_>) -> Flow {
        let report = Report::error("57014", "canceling statement due to user request");
        let Some(running) = &mut self.running else {
            return Flow::Next;
        };
        turn.state.journal.stats.cancelled += 1;
        match &mut running.rows {
            None => {
                if matches!(self.phase, Phase::CopyIn(_)) {
                    self.phase = Phase::Ready;
                }
                self.fail(&report, turn)
            }
            Some((rows, _)) => {
                rows.stop();
                running.effect.outcome = Outcome::Failure(report);
                Flow::Fill
            }
        }
    }

    /// Begins a statement: asks for its service time, unless it fails before.
    pub(super) fn begin(&mut self, mut running: Running, turn: &mut Turn<'_>) -> Flow {
        turn.state.journal.stats.statements += 1;
        let refusal = self.refusal(&running.query.statements[running.index..]);
        let effect = match refusal {
            Some(report) => Err(report),
            None => running.statement().effect(&running.parameters, turn.state),
        };
        let failure = match effect {
            Ok(effect) => {
                running.effect = effect;
                None
            }
            Err(report) => Some(report),
        };
        let delay = running.effect.delay;
        self.running = Some(running);
        match failure {
            Some(report) => self.fail(&report, turn),
            None => {
                let extra = turn.state.config.delay;
                Flow::Serve(delay.map(|delay| delay.saturating_add(extra)))
            }
        }
    }

    /// Why a failed transaction block does not let the first of these statements through.
    pub(super) fn refusal(&self, statements: &[Statement]) -> Option<Report> {
        let ends = statements.first().is_some_and(Statement::ends_transaction);
        (self.transaction == Transaction::Failed && !ends).then(|| {
            let message = "current transaction is aborted, commands ignored until end of \
                           transaction block";
            Report::error("25P02", message)
        })
    }

    fn answer_as_usual(&mut self, running: Running, turn: &mut Turn<'_>) -> Flow {
        match running.statement().verb {
            Verb::CopyIn => {
                messages::copy_response(turn.out, b'G');
                self.running = Some(running);
                self.phase = Phase::CopyIn(0);
                return Flow::Next;
            }
            Verb::CopyOut => {
                messages::copy_response(turn.out, b'H');
                messages::message(turn.out, b'd', |out| out.extend_from_slice(b"1\n"));
                messages::bare(turn.out, b'c');
                messages::command_complete(turn.out, "COPY 1");
            }
            Verb::Commit if self.transaction == Transaction::Failed => {
                messages::command_complete(turn.out, "ROLLBACK");
            }
            _ => write_answer(&running, turn),
        }
        self.complete(running, turn)
    }

    /// Ends a statement that succeeded: the next one of its query, or the next message.
    fn complete(&mut self, mut running: Running, turn: &mut Turn<'_>) -> Flow {
        if running.statement().verb == Verb::DeallocateAll {
            self.prepared.clear();
        }
        self.transaction = match running.statement().verb {
            Verb::Begin => Transaction::Open,
            Verb::Commit | Verb::Rollback => Transaction::Idle,
            Verb::RollbackTo if self.transaction == Transaction::Failed => Transaction::Open,
            _ => self.transaction,
        };
        running.index += 1;
        if running.is_simple && running.index < running.query.statements.len() {
            running.rows = None;
            return self.begin(running, turn);
        }
        if running.is_simple {
            messages::ready_for_query(turn.out, self.transaction);
        }
        Flow::Next
    }

    /// Sends an error and drops the running statement with the rest of its query or pipeline.
    pub(super) fn fail(&mut self, report: &Report, turn: &mut Turn<'_>) -> Flow {
        report.write(turn.out);
        turn.state.journal.stats.errors += 1;
        let is_simple = self.running.take().is_some_and(|running| running.is_simple);
        if report.severity == "FATAL" {
            return Flow::Close;
        }
        if self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
        self.is_skipping = !is_simple;
        if is_simple {
            messages::ready_for_query(turn.out, self.transaction);
        }
        Flow::Next
    }

    pub(super) fn copy_in(&mut self, frame: Frame<'_>, rows: u64, turn: &mut Turn<'_>) -> Flow {
        let ended = |session: &mut Self| {
            session.phase = Phase::Ready;
            session.running.take()
        };
        match frame.kind {
            b'd' => {
                let lines = frame.body.iter().filter(|&&byte| byte == b'\n').count();
                self.phase = Phase::CopyIn(rows + lines as u64);
                Flow::Next
            }
            b'c' => {
                let Some(running) = ended(self) else {
                    return Flow::Next;
                };
                messages::command_complete(turn.out, &format!("COPY {rows}"));
                self.complete(running, turn)
            }
            b'X' => Flow::Close,
            b'S' | b'H' => Flow::Next,
            kind => {
                self.phase = Phase::Ready;
                let why = if kind == b'f' { "57014" } else { "08P01" };
                self.fail(&Report::error(why, "COPY from stdin failed"), turn)
            }
        }
    }
}

/// The row of a statement, where it returns one, and its tag.
fn write_answer(running: &Running, turn: &mut Turn<'_>) {
    let statement = running.statement();
    let binary = |column| running.formats.is_binary(column);
    if running.is_simple && !statement.columns.is_empty() {
        messages::row_description(turn.out, &statement.columns, binary);
    }
    match &statement.answer {
        Some(answer) if running.formats == Formats::TEXT => turn.out.extend_from_slice(answer),
        _ => {
            if !statement.columns.is_empty() {
                messages::data_row(turn.out, &row_values(running, turn.state));
            }
            messages::command_complete(turn.out, &statement.tag);
        }
    }
}

fn row_values(running: &Running, state: &State) -> Vec<Option<Vec<u8>>> {
    let columns = &running.statement().columns;
    if running.statement().verb == Verb::Show {
        let setting = state.settings().into_iter();
        let value = setting.filter(|(name, _)| columns[0].name.eq_ignore_ascii_case(name));
        return vec![Some(value.map(|(_, value)| value).collect::<String>().into_bytes())];
    }
    let encode = |(number, column): (usize, &Column)| {
        column.encode(&running.parameters, running.formats.is_binary(number))
    };
    columns.iter().enumerate().map(encode).collect()
}
