//! `\gset` and `\aset`: rows become variables. NULL stays NULL.

use super::{Runner, Trouble, TroubleOr, Turn, words};
use crate::error::{Error, Kind};
use crate::record::Level;
use crate::script::eval::{Value, Variable};
use crate::script::{Action, Names, Results, Slot, is_variable_name};
use crate::wire::{Event, Fault, protocol};

/// What is known of the result that comes in. Its memory is used again.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Where each column goes; none where no script mentions the variable.
    columns: Vec<Option<Slot>>,
    /// A column whose name cannot be a variable's.
    misnamed: Option<String>,
    /// The last row.
    row: Vec<u8>,
    /// How many rows came, none where the result has no columns.
    count: Option<u64>,
    /// How many rows the last complete result had.
    complete: u64,
    name: Vec<u8>,
}

impl Rows {
    /// A command was sent.
    pub(super) fn begin(&mut self) {
        self.count = None;
        self.complete = 0;
        self.misnamed = None;
    }

    fn describe(&mut self, content: &[u8], prefix: &[u8], names: &Names) -> Option<()> {
        self.columns.clear();
        self.misnamed = None;
        self.count = Some(0);
        let (count, mut rest) = content.split_at_checked(2)?;
        for _ in 0..u16::from_be_bytes(count.try_into().ok()?) {
            let end = memchr::memchr(0, rest)?;
            self.name.clear();
            self.name.extend_from_slice(prefix);
            self.name.extend_from_slice(&rest[..end]);
            rest = rest.get(end + 1 + 18..)?;
            if !is_variable_name(&self.name) && self.misnamed.is_none() {
                self.misnamed = Some(String::from_utf8_lossy(&self.name).into_owned());
            }
            self.columns.push(names.find(&self.name));
        }
        rest.is_empty().then_some(())
    }
}

impl Runner {
    /// A part of a result has come.
    #[inline(never)]
    pub(super) fn keep(&mut self, turn: &mut Turn<'_>, event: &Event) -> TroubleOr<()> {
        let shared = turn.shared;
        let (prefix, aset) = match self.wanted(&shared.scripts) {
            Some(Results::Gset(prefix)) => (prefix, false),
            Some(Results::Aset(prefix)) => (prefix, true),
            _ => return Ok(()),
        };
        let content = turn.connection.content();
        match event {
            Event::Columns => {
                self.rows.describe(content, prefix, &shared.scripts.names).ok_or_else(malformed)?
            }
            Event::Row => {
                self.rows.row.clear();
                self.rows.row.extend_from_slice(content);
                self.rows.count = self.rows.count.map(|count| count + 1);
            }
            _ => {
                self.rows.complete = self.rows.count.take().unwrap_or(0);
                if aset && self.rows.complete > 0 {
                    self.assign(turn.connection.results() - 1, turn)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn wanted<'a>(&self, scripts: &'a crate::script::Scripts) -> Option<&'a Results> {
        let transaction = self.transaction.as_ref()?;
        let script = &scripts.list[usize::from(transaction.due.script)];
        match &script.commands.get(transaction.command)?.action {
            Action::Sql(sql) => Some(&sql.results),
            _ => None,
        }
    }

    /// `\gset`: the last result has one row, and it is stored.
    #[inline(never)]
    pub(super) fn store_row(&mut self, turn: &mut Turn<'_>) -> TroubleOr<()> {
        let query = turn.connection.results().saturating_sub(1);
        if self.rows.complete != 1 {
            let reason = format!("expected one row, got {}", self.rows.complete);
            return Err(self.not_stored(query, &reason, turn));
        }
        self.assign(query, turn)
    }

    fn assign(&mut self, query: u32, turn: &mut Turn<'_>) -> TroubleOr<()> {
        if let Some(name) = self.rows.misnamed.take() {
            let reason = format!("error storing into variable {name}");
            return Err(self.not_stored(query, &reason, turn));
        }
        let (count, mut rest) = self.rows.row.split_at_checked(2).ok_or_else(malformed)?;
        if usize::from(u16::from_be_bytes([count[0], count[1]])) != self.rows.columns.len() {
            return Err(malformed().into());
        }
        for column in &self.rows.columns {
            let (length, tail) = rest.split_at_checked(4).ok_or_else(malformed)?;
            let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
            let text = match usize::try_from(length) {
                Ok(length) => {
                    let (text, tail) = tail.split_at_checked(length).ok_or_else(malformed)?;
                    rest = tail;
                    Some(text)
                }
                Err(_) if length == -1 => {
                    rest = tail;
                    None
                }
                Err(_) => return Err(malformed().into()),
            };
            match (*column, text) {
                (None, _) => {}
                (Some(slot), Some(text)) => self.variables.set_text(slot, text),
                (Some(slot), None) => {
                    self.variables.0[slot as usize] = Variable::Value(Value::Null);
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(malformed().into()) }
    }

    fn not_stored(&self, query: u32, reason: &str, turn: &mut Turn<'_>) -> Trouble {
        let transaction = self.transaction.as_ref().expect("a result belongs to one");
        let text = words::in_query(self.id, transaction, query, reason);
        turn.record.say(Level::Error, text);
        let script = &turn.shared.scripts.list[usize::from(transaction.due.script)];
        let line = script.commands[transaction.command].line;
        let message = format!("{}:{line}: {reason}", script.name);
        Trouble::abort(Error::new(Kind::Script, "script-gives-up").with("text", message))
    }
}

fn malformed() -> Fault {
    protocol("row-malformed").into()
}
