//! What a client tells of its steps where that is asked for: pgbench's `--debug`, and notices of
//! the server. Who calls this has looked at `Shared` first, so that it costs nothing else.

use super::commands::words_of;
use super::{Preparing, Runner, State, Turn, words};
use crate::pace::Due;
use crate::plan::Protocol;
use crate::record::{Level, Recorder};
use crate::request::StatementName;
use crate::script::{Action, Command, Sql};
use crate::wire::ServerError;

impl Runner {
    #[cold]
    fn say_doing(&self, what: &str, record: &mut Recorder) {
        record.say(Level::Info, format!("client {} {what}", self.id));
    }

    /// A transaction begins.
    #[cold]
    pub(super) fn say_begun(&self, due: Due, turn: &mut Turn<'_>) {
        let script = &turn.shared.scripts.list[usize::from(due.script)];
        self.say_doing(&format!("executing script \"{}\"", script.name), turn.record);
    }

    /// A command begins.
    #[cold]
    pub(super) fn say_step(&self, command: &Command, turn: &mut Turn<'_>) {
        let falling = self.transaction.as_ref().is_some_and(|transaction| transaction.falling);
        let names = &turn.shared.scripts.names;
        let text = match &command.action {
            Action::Sql(sql) => return self.say_sending(sql, turn),
            // Reached because a condition failed: pgbench passes over them.
            Action::Else { .. } | Action::EndIf if falling => return,
            Action::Set { variable, .. } | Action::Misnamed { variable, .. } => {
                format!("\\set {}", String::from_utf8_lossy(names.name(*variable)))
            }
            action @ (Action::If { .. } | Action::Elif { .. }) => format!("\\{}", words_of(action)),
            _ => String::from_utf8_lossy(&command.text).into_owned(),
        };
        self.say_doing(&format!("executing {text}"), turn.record);
    }

    fn say_sending(&self, sql: &Sql, turn: &mut Turn<'_>) {
        let transaction = self.transaction.as_ref().expect("a command belongs to one");
        let name = StatementName::new(sql.id);
        let prepared = turn.shared.protocol == Protocol::Prepared;
        if prepared && !self.prepared[sql.id as usize] {
            self.say_doing(&format!("preparing {}", name.text()), turn.record);
        }
        let text = self.query_text(transaction, turn.shared, false);
        let text = text.unwrap_or_else(|| name.text().to_owned());
        self.say_doing(&format!("sending {text}"), turn.record);
    }

    /// Bytes have come from the server.
    #[cold]
    pub(super) fn say_received(&self, record: &mut Recorder) {
        if matches!(self.state, State::Busy | State::RollingBack) {
            self.say_doing("receiving", record);
        }
    }

    /// The server has come to a synchronization point.
    #[cold]
    pub(super) fn say_synced(&self, record: &mut Recorder) {
        let Some(transaction) = self.transaction.as_ref().filter(|t| t.pipelined) else {
            return;
        };
        if !matches!(transaction.preparing, Preparing::Pipeline(_)) {
            let syncs = self.awaited + 1;
            self.say_doing(&format!("pipeline ending, ongoing syncs: {syncs}"), record);
        }
    }

    /// The server has a notice or a warning: shown as libpq shows it, which is without its context.
    #[cold]
    pub(super) fn say_notice(&self, notice: &ServerError, turn: &mut Turn<'_>) {
        let transaction = self.transaction.as_ref();
        let query = transaction.and_then(|t| self.query_text(t, turn.shared, false));
        let notice = ServerError { context: None, ..notice.clone() };
        turn.record.say(Level::Plain, words::server_error(&notice, query.as_deref()));
    }
}
