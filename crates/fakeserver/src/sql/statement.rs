//! A statement taken apart once: its verb, tag, columns and calls, and its answer where that never
//! changes. Knows SQL's first words, and nothing of sessions.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use super::call::{self, Call, Dice};
use super::columns::{self, Column, Value};
use super::lexer;
use super::{Effect, Parameters};
use crate::messages::{self, Report};

/// What a statement means to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Begin,
    Commit,
    Rollback,
    /// ROLLBACK TO SAVEPOINT.
    RollbackTo,
    CopyIn,
    CopyOut,
    /// DEALLOCATE ALL or DISCARD ALL: prepared statements are forgotten.
    DeallocateAll,
    /// SHOW: its row holds a setting.
    Show,
    /// Everything else that is known.
    Other,
}

/// One statement.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) verb: Verb,
    pub(crate) tag: Cow<'static, str>,
    /// Empty where the statement returns no row.
    pub(crate) columns: Vec<Column>,
    calls: Vec<Call>,
    /// Why it cannot be executed, whatever its parameters are.
    pub(crate) defect: Option<Report>,
    /// DataRow and CommandComplete in text format, where no parameter is in them.
    pub(crate) answer: Option<Vec<u8>>,
}

/// What one Query or Parse message says.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) text: Box<str>,
    pub(crate) statements: Vec<Statement>,
    /// The highest `$n` in the text.
    pub(crate) parameters: usize,
    /// How often it was executed.
    pub(crate) executed: Cell<u64>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Rc<Self> {
        let statements = lexer::split(text, ';').into_iter().filter_map(Statement::parse).collect();
        let parameters = lexer::tokens(text)
            .filter_map(|token| token.text.strip_prefix('$')?.parse().ok())
            .max()
            .unwrap_or(0);
        Rc::new(Self { text: text.into(), statements, parameters, executed: Cell::new(0) })
    }
}

impl Statement {
    /// `None` where there is nothing but white space and comments.
    fn parse(text: &str) -> Option<Self> {
        let first = lexer::tokens(text).next()?;
        let (verb, tag) = classify(text);
        let (calls, defect) = match (tag.is_empty(), call::find_calls(text)) {
            (true, _) => (Vec::new(), Some(syntax_error(first.text))),
            (false, Err(defect)) => (Vec::new(), Some(defect)),
            (false, Ok(calls)) => (calls, None),
        };
        let columns = match calls.iter().any(Call::makes_rows) {
            true => vec![Column { name: "fake_rows".into(), value: Value::Text("".into()) }],
            false => returned_columns(text, verb, &tag),
        };
        let mut statement = Self { verb, tag, columns, calls, defect, answer: None };
        statement.answer = statement.constant_answer();
        Some(statement)
    }

    /// What this execution does, or why it cannot be done.
    pub(crate) fn effect(
        &self,
        parameters: &Parameters,
        dice: &mut dyn Dice,
    ) -> Result<Effect, Report> {
        match &self.defect {
            Some(defect) => Err(defect.clone()),
            None if self.calls.is_empty() => Ok(Effect::NONE),
            None => call::evaluate(&self.calls, parameters, dice),
        }
    }

    /// Whether a failed transaction block lets it through.
    pub(crate) fn ends_transaction(&self) -> bool {
        matches!(self.verb, Verb::Commit | Verb::Rollback | Verb::RollbackTo)
    }

    fn constant_answer(&self) -> Option<Vec<u8>> {
        let varies = |column: &Column| matches!(column.value, Value::Parameter(_));
        if self.verb != Verb::Other || self.columns.iter().any(varies) {
            return None;
        }
        let mut answer = Vec::new();
        if !self.columns.is_empty() {
            let values: Vec<_> = self.columns.iter().map(|c| c.encode(&[], false)).collect();
            messages::data_row(&mut answer, &values);
        }
        messages::command_complete(&mut answer, &self.tag);
        Some(answer)
    }
}

fn syntax_error(word: &str) -> Report {
    Report::error("42601", format!("syntax error at or near \"{word}\""))
}

/// Verb and tag by the first words; an empty tag where they are not known.
fn classify(text: &str) -> (Verb, Cow<'static, str>) {
    let mut words = lexer::tokens(text).map(|token| token.text.to_ascii_uppercase());
    let mut word = || words.next().unwrap_or_default();
    let first = word();
    let (verb, tag) = match first.as_str() {
        "SELECT" | "WITH" | "VALUES" | "TABLE" | "(" => (Verb::Other, "SELECT 1"),
        "INSERT" => (Verb::Other, "INSERT 0 1"),
        "UPDATE" => (Verb::Other, "UPDATE 1"),
        "DELETE" => (Verb::Other, "DELETE 1"),
        "MERGE" => (Verb::Other, "MERGE 1"),
        "FETCH" => (Verb::Other, "FETCH 1"),
        "SHOW" => (Verb::Show, "SHOW"),
        "BEGIN" => (Verb::Begin, "BEGIN"),
        "START" => (Verb::Begin, "START TRANSACTION"),
        "COMMIT" | "END" => (Verb::Commit, "COMMIT"),
        "ROLLBACK" | "ABORT" => {
            let to_savepoint = word() == "TO" || word() == "TO";
            (if to_savepoint { Verb::RollbackTo } else { Verb::Rollback }, "ROLLBACK")
        }
        "COPY" => {
            let into_table = words.any(|word| word == "STDIN");
            (if into_table { Verb::CopyIn } else { Verb::CopyOut }, "COPY")
        }
        "TRUNCATE" => (Verb::Other, "TRUNCATE TABLE"),
        "LOCK" => (Verb::Other, "LOCK TABLE"),
        "DISCARD" => (Verb::DeallocateAll, "DISCARD ALL"),
        "DEALLOCATE" if word() == "ALL" => (Verb::DeallocateAll, "DEALLOCATE ALL"),
        "CREATE" | "DROP" | "ALTER" => {
            return (Verb::Other, format!("{first} {}", word()).into());
        }
        "SET" | "RESET" | "SAVEPOINT" | "RELEASE" | "VACUUM" | "ANALYZE" | "CHECKPOINT"
        | "DEALLOCATE" | "PREPARE" | "LISTEN" | "UNLISTEN" | "NOTIFY" | "GRANT" | "REVOKE"
        | "COMMENT" | "CLUSTER" | "REINDEX" | "CALL" | "DO" | "LOAD" | "DECLARE" | "CLOSE"
        | "EXPLAIN" => return (Verb::Other, first.into()),
        _ => (Verb::Other, ""),
    };
    (verb, Cow::Borrowed(tag))
}

fn returned_columns(text: &str, verb: Verb, tag: &str) -> Vec<Column> {
    let list = match tag {
        "SELECT 1" => "SELECT",
        "INSERT 0 1" | "UPDATE 1" | "DELETE 1" | "MERGE 1" => "RETURNING",
        "FETCH 1" | "EXPLAIN" => return vec![Column::one()],
        _ if verb == Verb::Show => {
            let setting = lexer::tokens(text).nth(1).map_or("", |token| token.text);
            return vec![Column { name: setting.into(), value: Value::Text("".into()) }];
        }
        _ => return Vec::new(),
    };
    match lexer::tokens(text).find(|token| token.is_keyword(list)) {
        Some(keyword) => columns::parse_list(&text[keyword.end()..]),
        None if list == "SELECT" => vec![Column::one()],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(sql: &str) -> Statement {
        let query = Rc::into_inner(Query::parse(sql)).unwrap();
        assert_eq!(query.statements.len(), 1, "{sql}");
        query.statements.into_iter().next().unwrap()
    }

    #[test]
    fn the_first_words_decide_the_tag() {
        for (sql, tag) in [
            ("select 1", "SELECT 1"),
            ("/* c */ INSERT INTO t VALUES (1)", "INSERT 0 1"),
            ("update t set a = 1", "UPDATE 1"),
            ("end", "COMMIT"),
            ("START TRANSACTION", "START TRANSACTION"),
            ("create table t (a int)", "CREATE TABLE"),
            ("vacuum analyze t", "VACUUM"),
            ("truncate t", "TRUNCATE TABLE"),
            ("set a = 1", "SET"),
        ] {
            assert_eq!(only(sql).tag, tag, "{sql}");
        }
    }

    #[test]
    fn the_first_words_decide_the_verb() {
        for (sql, verb) in [
            ("BEGIN", Verb::Begin),
            ("rollback", Verb::Rollback),
            ("ROLLBACK TO s", Verb::RollbackTo),
            ("DEALLOCATE ALL", Verb::DeallocateAll),
            ("DEALLOCATE p", Verb::Other),
            ("rollback work to savepoint s", Verb::RollbackTo),
            ("COPY t FROM STDIN", Verb::CopyIn),
            ("COPY t TO STDOUT", Verb::CopyOut),
        ] {
            assert_eq!(only(sql).verb, verb, "{sql}");
        }
    }

    #[test]
    fn rows_come_from_select_and_from_returning() {
        assert_eq!(only("SELECT 1 AS a, 2").columns.len(), 2);
        assert_eq!(only("WITH x AS (SELECT 1, 2) SELECT 3").columns.len(), 1);
        assert_eq!(only("UPDATE t SET a = 1 RETURNING a, b").columns.len(), 2);
        assert!(only("UPDATE t SET a = 1").columns.is_empty());
        assert!(only("BEGIN").columns.is_empty());
    }

    #[test]
    fn a_message_may_hold_several_statements_or_none() {
        assert_eq!(Query::parse("BEGIN; SELECT ';'; END;").statements.len(), 3);
        assert_eq!(Query::parse(" ; -- nothing\n").statements.len(), 0);
        assert_eq!(Query::parse("SELECT $1, $12, '$99'").parameters, 12);
    }

    #[test]
    fn an_unknown_word_is_a_syntax_error() {
        struct NoDice;
        impl Dice for NoDice {
            fn random(&mut self, _seed: Option<u64>) -> &mut crate::random::Random {
                unreachable!()
            }
        }
        let none: Parameters = Rc::new([]);
        let error = only("SELEKT 1").effect(&none, &mut NoDice).unwrap_err();
        assert_eq!((&*error.code, error.message.contains("SELEKT")), ("42601", true));
    }
}
