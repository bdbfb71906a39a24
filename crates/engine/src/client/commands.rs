//! Runs the commands of a script until one must be waited for.

use super::{
    Next, Preparing, Runner, ShellCommand, ShellEnd, State, Transaction, Trouble, TroubleOr, Turn,
};
use crate::error::{Error, Kind};
use crate::plan::Protocol;
use crate::request::{StatementName, parse, prepare, simple};
use crate::script::eval::{Program, Scope, Value, Variable, Variables};
use crate::script::{
    Action, Amount, Command, Names, Piece, Results, Script, Scripts, Sql, is_variable_name,
    misnamed,
};
use postgres_protocol::message::frontend;

/// The longest command line of a shell command, as in pgbench.
const SHELL_LINE_MAX: usize = 254;

/// Why a meta command failed.
pub(super) type MetaFailure = Box<Reason>;

/// A sentence of its own, and what it means for the command.
pub(super) struct Reason {
    pub(super) reason: Option<String>,
    pub(super) what: &'static str,
}

impl Reason {
    #[cold]
    fn only(what: &'static str) -> MetaFailure {
        Box::new(Self { reason: None, what })
    }

    #[cold]
    fn of(reason: String, what: &'static str) -> MetaFailure {
        Box::new(Self { reason: Some(reason), what })
    }
}

/// What a command leaves to be done.
enum Step {
    /// The next command, or where there is none the end of the script.
    On,
    /// What the owner of the client does.
    Wait(Next),
}

impl Runner {
    /// Runs commands until one must be waited for.
    #[inline]
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        let transaction = self.transaction.as_ref().expect("a working client has one");
        let script = &turn.shared.scripts.list[usize::from(transaction.due.script)];
        if transaction.next >= script.commands.len() {
            return self.end_of_script(turn);
        }
        self.run(script, turn)
    }

    #[inline(never)]
    fn run(&mut self, script: &Script, turn: &mut Turn<'_>) -> TroubleOr<Next> {
        loop {
            let transaction = self.transaction.as_mut().expect("a working client has one");
            let Some(command) = script.commands.get(transaction.next) else {
                return self.end_of_script(turn);
            };
            transaction.command = transaction.next;
            transaction.next += 1;
            transaction.began = turn.at.now;
            if turn.shared.debug {
                self.say_step(command, turn);
            }
            let step = match &command.action {
                Action::Sql(sql) => self.sql(turn, sql, command)?,
                action => match self.meta(turn, action) {
                    Ok(step) => step,
                    Err(failure) => {
                        self.say_debug(turn.record);
                        return Err(self.meta_failed(command, *failure, turn));
                    }
                },
            };
            if !self.debug.is_empty() {
                self.say_debug(turn.record);
            }
            match step {
                Step::Wait(next) => return Ok(next),
                Step::On if turn.shared.time_commands => {
                    self.state = State::Away;
                    return Ok(Next::Clock);
                }
                Step::On => {}
            }
        }
    }

    #[inline]
    fn meta(&mut self, turn: &mut Turn<'_>, action: &Action) -> Result<Step, MetaFailure> {
        let Action::Set { variable, value } = action else {
            return self.control(turn, action);
        };
        let value = self.eval(value, &turn.shared.scripts.names)?;
        self.variables.0[*variable as usize] = Variable::Value(value);
        Ok(Step::On)
    }

    /// The meta commands that decide how it goes on.
    #[inline(never)]
    fn control(&mut self, turn: &mut Turn<'_>, action: &Action) -> Result<Step, MetaFailure> {
        let names = &turn.shared.scripts.names;
        let transaction = self.transaction.as_mut().expect("a working client has one");
        let falling = std::mem::take(&mut transaction.falling);
        match action {
            Action::If { condition, otherwise } => self.branch(condition, *otherwise, names)?,
            Action::Elif { condition, otherwise, .. } if falling => {
                self.branch(condition, *otherwise, names)?;
            }
            Action::Elif { end, .. } => transaction.next = *end as usize,
            Action::Else { end } if !falling => transaction.next = *end as usize,
            Action::Else { .. } | Action::EndIf => {}
            Action::Sleep { amount, unit_ns } => {
                let count = amount_of(*amount, &self.variables, names)?;
                self.state = State::Away;
                let pause = count.saturating_mul(*unit_ns);
                return Ok(Step::Wait(Next::Wake(turn.at.now.saturating_add(pause))));
            }
            Action::Shell { line, variable } => {
                let line = shell_line(line, &self.variables, names)?;
                self.state = State::Away;
                let shell = ShellCommand { line, capture: variable.is_some() };
                return Ok(Step::Wait(Next::Shell(Box::new(shell))));
            }
            Action::StartPipeline | Action::SyncPipeline | Action::EndPipeline => {
                return self.pipeline(turn, action);
            }
            Action::Misnamed { variable, value } => {
                self.eval(value, names)?;
                let reason = misnamed("set", names.name(*variable));
                return Err(Reason::of(reason, "assignment of meta-command failed"));
            }
            Action::Sql(_) | Action::Set { .. } => unreachable!("done where they are met"),
        }
        Ok(Step::On)
    }

    fn eval(&mut self, program: &Program, names: &Names) -> Result<Value, MetaFailure> {
        let mut scope = Scope {
            variables: &self.variables,
            names,
            random: &mut self.random,
            debug: &mut self.debug,
        };
        let value = scope.eval(program);
        value.map_err(|reason| Reason::of(reason, "evaluation of meta-command failed"))
    }

    /// Continues after a condition that holds, else at its next branch.
    fn branch(
        &mut self,
        condition: &Program,
        otherwise: u32,
        names: &Names,
    ) -> Result<(), MetaFailure> {
        if !self.eval(condition, names)?.is_true() {
            let transaction = self.transaction.as_mut().expect("a working client has one");
            transaction.next = otherwise as usize;
            transaction.falling = true;
        }
        Ok(())
    }

    fn pipeline(&mut self, turn: &mut Turn<'_>, action: &Action) -> Result<Step, MetaFailure> {
        let wrong = |what| Err(Reason::only(what));
        let transaction = self.transaction.as_mut().expect("a working client has one");
        match (action, transaction.pipelined) {
            (Action::StartPipeline, _) if turn.shared.protocol == Protocol::Simple => {
                wrong("cannot use pipeline mode with the simple query protocol")
            }
            (Action::StartPipeline, true) => wrong("already in pipeline mode"),
            (Action::StartPipeline, false) => {
                transaction.pipelined = true;
                turn.connection.keep_rows(false);
                Ok(self.prepare_pipeline(turn))
            }
            (_, false) => wrong("not in pipeline mode"),
            (action, true) => {
                frontend::sync(turn.connection.buffer());
                self.awaited += 1;
                if matches!(action, Action::SyncPipeline) {
                    return Ok(Step::On);
                }
                self.state = State::Busy;
                Ok(Step::Wait(Next::Server))
            }
        }
    }

    /// Prepares what the pipeline that begins here will execute, before it begins.
    fn prepare_pipeline(&mut self, turn: &mut Turn<'_>) -> Step {
        let shared = turn.shared;
        if shared.protocol != Protocol::Prepared {
            return Step::On;
        }
        let transaction = self.transaction.as_mut().expect("a working client has one");
        let mut any = false;
        for sql in statements_of_pipeline(&shared.scripts, transaction, transaction.next) {
            if !std::mem::replace(&mut self.prepared[sql.id as usize], true) {
                let name = StatementName::new(sql.id);
                prepare(turn.connection.buffer(), name.text(), sql).expect("a script was read");
                any = true;
            }
        }
        if !any {
            return Step::On;
        }
        transaction.preparing = Preparing::Pipeline(transaction.next);
        frontend::sync(turn.connection.buffer());
        self.awaited += 1;
        self.state = State::Busy;
        Step::Wait(Next::Server)
    }

    /// What was being prepared is not.
    pub(super) fn forget_prepared(&mut self, preparing: Preparing, scripts: &Scripts) {
        match preparing {
            Preparing::Nothing => {}
            Preparing::Statement(id) => self.prepared[id as usize] = false,
            Preparing::Pipeline(from) => {
                let transaction = self.transaction.as_ref().expect("a working client has one");
                for sql in statements_of_pipeline(scripts, transaction, from) {
                    self.prepared[sql.id as usize] = false;
                }
            }
        }
    }

    /// Sends one SQL command, or within a pipeline adds it.
    fn sql(&mut self, turn: &mut Turn<'_>, sql: &Sql, command: &Command) -> TroubleOr<Step> {
        let transaction = self.transaction.as_ref().expect("a working client has one");
        let pipelined = transaction.pipelined;
        match &sql.results {
            Results::Gset(_) if pipelined => {
                let what = "\\gset is not allowed in pipeline mode";
                return Err(self.meta_failed(command, Reason { reason: None, what }, turn));
            }
            Results::Aset(_) if pipelined => {
                let what = "\\aset is not allowed in pipeline mode";
                return Err(self.meta_failed(command, Reason { reason: None, what }, turn));
            }
            Results::Discard if !pipelined => turn.connection.keep_rows(false),
            Results::Discard => {}
            Results::Gset(_) | Results::Aset(_) => {
                turn.connection.keep_rows(true);
                self.rows.begin();
            }
        }
        if let Err(error) = self.write(turn, sql, !pipelined) {
            return Err(not_written(command, &error));
        }
        if pipelined {
            return Ok(Step::On);
        }
        self.awaited = 1;
        self.state = State::Busy;
        Ok(Step::Wait(Next::Server))
    }

    /// Writes one SQL command in the protocol of the run, and that it is to be answered.
    #[inline(always)]
    fn write(&mut self, turn: &mut Turn<'_>, sql: &Sql, sync: bool) -> std::io::Result<()> {
        let shared = turn.shared;
        let out = turn.connection.buffer();
        match shared.protocol {
            Protocol::Simple => return simple(out, sql, &self.variables, &shared.scripts.names),
            Protocol::Extended => parse(out, "", sql)?,
            Protocol::Prepared if self.prepared[sql.id as usize] => {}
            Protocol::Prepared => self.prepare(turn, sql)?,
        }
        let out = turn.connection.buffer();
        shared.executions[sql.id as usize].write(out, sql, &self.variables, sync)
    }

    #[cold]
    fn prepare(&mut self, turn: &mut Turn<'_>, sql: &Sql) -> std::io::Result<()> {
        self.prepared[sql.id as usize] = true;
        if let Some(transaction) = &mut self.transaction {
            transaction.preparing = Preparing::Statement(sql.id);
        }
        turn.connection.begin_parsing();
        prepare(turn.connection.buffer(), StatementName::new(sql.id).text(), sql)
    }

    /// Takes what a shell command answered.
    pub(super) fn take_answer(&mut self, end: &ShellEnd, turn: &mut Turn<'_>) -> TroubleOr<()> {
        let shared = turn.shared;
        let transaction = self.transaction.as_ref().expect("a shell command belongs to one");
        let script = &shared.scripts.list[usize::from(transaction.due.script)];
        let command = &script.commands[transaction.command];
        let Action::Shell { line, variable } = &command.action else {
            return Ok(());
        };
        let name = first_word(line);
        let wrong = match (variable, &end.line) {
            (None, _) if end.succeeded => return Ok(()),
            (None, _) => format!("{name}: could not launch shell command"),
            (Some(_), _) if !end.succeeded => format!("{name}: could not launch shell command"),
            (Some(_), None) => format!("{name}: could not read result of shell command"),
            (Some(slot), Some(line)) => match integer(line) {
                Some(_) if !is_variable_name(shared.scripts.names.name(*slot)) => {
                    misnamed("setshell", shared.scripts.names.name(*slot))
                }
                Some(value) => {
                    self.variables.0[*slot as usize] = Variable::Value(Value::Int(value));
                    return Ok(());
                }
                None => {
                    let found = String::from_utf8_lossy(line);
                    format!("{name}: shell command must return an integer (not \"{found}\")")
                }
            },
        };
        Err(self.meta_failed(command, *not_executed(wrong), turn))
    }
}

#[cold]
fn not_written(command: &Command, error: &std::io::Error) -> Trouble {
    let unsent = Error::new(Kind::Script, "statement-not-sent");
    Trouble::abort(unsent.with("command", words_of(&command.action)).with_system(error))
}

/// A meta command's name.
pub(super) fn words_of(action: &Action) -> &'static str {
    match action {
        Action::Sql(sql) => match sql.results {
            Results::Discard => "SQL",
            Results::Gset(_) => "gset",
            Results::Aset(_) => "aset",
        },
        Action::Set { .. } | Action::Misnamed { .. } => "set",
        Action::Sleep { .. } => "sleep",
        Action::Shell { variable: None, .. } => "shell",
        Action::Shell { variable: Some(_), .. } => "setshell",
        Action::If { .. } => "if",
        Action::Elif { .. } => "elif",
        Action::Else { .. } => "else",
        Action::EndIf => "endif",
        Action::StartPipeline => "startpipeline",
        Action::SyncPipeline => "syncpipeline",
        Action::EndPipeline => "endpipeline",
    }
}

/// The SQL commands from the command at `from` to the end of the pipeline.
fn statements_of_pipeline<'a>(
    scripts: &'a Scripts,
    transaction: &Transaction,
    from: usize,
) -> impl Iterator<Item = &'a Sql> + use<'a> {
    let script = &scripts.list[usize::from(transaction.due.script)];
    let commands = script.commands[from..].iter();
    let until = commands.take_while(|c| !matches!(c.action, Action::EndPipeline));
    until.filter_map(|command| match &command.action {
        Action::Sql(sql) => Some(sql),
        _ => None,
    })
}

fn amount_of(amount: Amount, variables: &Variables, names: &Names) -> Result<i64, MetaFailure> {
    let slot = match amount {
        Amount::Constant(count) => return Ok(count),
        Amount::Variable(slot) => slot,
    };
    let name = || String::from_utf8_lossy(names.name(slot)).into_owned();
    let mut text = Vec::new();
    if !variables.write(slot, &mut text) {
        return Err(not_executed(format!("sleep: undefined variable \"{}\"", name())));
    }
    let Some((value, _)) = leading_integer(&text) else {
        let text = String::from_utf8_lossy(&text);
        return Err(not_executed(format!(
            "sleep: invalid sleep time \"{text}\" for variable \"{}\"",
            name()
        )));
    };
    Ok(value.max(0))
}

/// The integer that a text begins with, as C's `strtol` reads it, and what follows it.
fn leading_integer(text: &[u8]) -> Option<(i64, &[u8])> {
    let text = text.trim_ascii_start();
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text[sign..].iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, rest) = text.split_at(sign + digits);
    if digits == 0 {
        return None;
    }
    let furthest = if number[0] == b'-' { i64::MIN } else { i64::MAX };
    let value = std::str::from_utf8(number).ok()?.parse().unwrap_or(furthest);
    Some((value, rest))
}

/// An integer alone on a line, cut to 32 bits as pgbench does; nothing on it is 0.
#[expect(clippy::cast_possible_truncation, reason = "as pgbench does")]
fn integer(line: &[u8]) -> Option<i64> {
    if line.trim_ascii().is_empty() {
        return Some(0);
    }
    let (value, rest) = leading_integer(line)?;
    rest.trim_ascii().is_empty().then_some(i64::from(value as i32))
}

fn not_executed(reason: String) -> MetaFailure {
    Reason::of(reason, "execution of meta-command failed")
}

/// The program that a shell's command line calls.
fn first_word(line: &[Piece]) -> String {
    let Some(Piece::Text(text)) = line.first() else {
        return String::new();
    };
    let word = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    String::from_utf8_lossy(word).into_owned()
}

/// The command line for the shell.
fn shell_line(
    pieces: &[Piece],
    variables: &Variables,
    names: &Names,
) -> Result<Vec<u8>, MetaFailure> {
    let mut line = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => line.extend_from_slice(text),
            Piece::Variable(slot) => {
                if !variables.write(*slot, &mut line) {
                    let variable = String::from_utf8_lossy(names.name(*slot));
                    let name = first_word(pieces);
                    // With its colon, as pgbench has it here.
                    let reason = format!("{name}: undefined variable \":{variable}\"");
                    return Err(not_executed(reason));
                }
            }
        }
    }
    if line.len() > SHELL_LINE_MAX {
        let reason = format!("{}: shell command is too long", first_word(pieces));
        return Err(not_executed(reason));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_command_answers_is_read_as_pgbench_reads_it() {
        for (line, value) in [
            ("42\n", Some(42)),
            (" -7 \n", Some(-7)),
            ("\n", Some(0)),
            ("+3", Some(3)),
            ("4294967297\n", Some(1)),
            ("99999999999999999999\n", Some(-1)),
            ("abc\n", None),
            ("1 2\n", None),
            ("-\n", None),
        ] {
            assert_eq!(integer(line.as_bytes()), value, "{line:?}");
        }
    }
}
