//! What clients say, in pgbench's words, and errors of the server as libpq shows them.

use super::Transaction;
use crate::script::eval::Value;
use crate::wire::ServerError;
use std::fmt::Write as _;

/// How much of a line of SQL is shown with an error, and how much of it at least after the place.
const SHOWN: usize = 60;
const SHOWN_AFTER: usize = 10;

/// An error of the server, or that a row could not be stored.
pub(super) fn in_query(client: u32, at: &Transaction, query: u32, message: &str) -> String {
    let (script, command) = (at.due.script, at.command);
    format!("client {client} script {script} command {command} query {query}: {message}")
}

/// The client gives up because of an error of the server.
pub(super) fn aborted_in_query(client: u32, at: &Transaction, query: u32, message: &str) -> String {
    let (script, command) = (at.due.script, at.command);
    format!("client {client} script {script} aborted in command {command} query {query}: {message}")
}

/// The client gives up because of a meta command.
pub(super) fn aborted_in_command(client: u32, at: &Transaction, name: &str, what: &str) -> String {
    let (script, command) = (at.due.script, at.command);
    format!("client {client} aborted in command {command} ({name}) of script {script}; {what}")
}

/// A statement failed, and its transaction may be tried again.
pub(super) fn failed(client: u32, at: &Transaction, message: &str) -> String {
    let (script, command) = (at.due.script, at.command);
    format!("client {client} got an error in command {command} (SQL) of script {script}; {message}")
}

/// What becomes of a failed transaction: `used` is the share of the limit that has passed, in %.
pub(super) fn verdict(client: u32, again: bool, tries: u32, max: u32, used: Option<f64>) -> String {
    let what = if again {
        "repeats the transaction after the error"
    } else {
        "ends the failed transaction"
    };
    let mut text = format!("client {client} {what} (try {tries}");
    if max > 0 {
        let _ = write!(text, "/{max}");
    }
    if let Some(used) = used {
        let _ = write!(text, ", {used:.3}% of the maximum time of tries was used");
    }
    text.push(')');
    text
}

/// What `debug()` prints of a value.
pub(super) fn debug(at: &Transaction, value: Value) -> String {
    let mut text = Vec::new();
    value.write(&mut text);
    let text = String::from_utf8_lossy(&text);
    let shown = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => format!("boolean {text}"),
        Value::Int(_) => format!("int {text}"),
        Value::Double(_) => format!("double {text}"),
    };
    format!("debug(script={},command={}): {shown}", at.due.script, at.command + 1)
}

/// An error with its place in the query and what else the server says of it.
pub(super) fn server_error(error: &ServerError, query: Option<&str>) -> String {
    let mut text = if error.severity.is_empty() {
        error.message.clone()
    } else {
        format!("{}:  {}", error.severity, error.message)
    };
    let internal = (error.internal_position, error.internal_query.as_deref());
    match if error.position.is_some() { (error.position, query) } else { internal } {
        (Some(position), Some(query)) => text.extend(place(query, position)),
        (Some(position), None) => {
            let _ = write!(text, " at character {position}");
        }
        _ => {}
    }
    for (label, value) in [
        ("DETAIL", &error.detail),
        ("HINT", &error.hint),
        ("QUERY", &error.internal_query),
        ("CONTEXT", &error.context),
    ] {
        if let Some(value) = value {
            let _ = write!(text, "\n{label}:  {value}");
        }
    }
    text
}

/// The line of a query that holds character `position` (from 1), with a caret below it.
fn place(query: &str, position: usize) -> Option<String> {
    let characters: Vec<char> = query.chars().collect();
    let at = position.checked_sub(1).filter(|at| *at <= characters.len())?;
    let is_end = |c: &char| matches!(c, '\n' | '\r');
    let mut begin = characters[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let line = 1 + characters[..at].iter().filter(|c| **c == '\n').count();
    let mut end =
        characters[at..].iter().position(is_end).map_or(characters.len(), |length| at + length);
    let (mut before, mut after) = ("", "");
    if end - begin > SHOWN {
        if begin + SHOWN >= at + SHOWN_AFTER {
            (end, after) = (begin + SHOWN, "...");
        } else {
            if at + SHOWN_AFTER < end {
                (end, after) = (at + SHOWN_AFTER, "...");
            }
            if end - begin > SHOWN {
                (begin, before) = (end - SHOWN, "...");
            }
        }
    }
    let head = format!("LINE {line}: {before}");
    let shown: String =
        characters[begin..end].iter().map(|c| if *c == '\t' { ' ' } else { *c }).collect();
    let caret = " ".repeat(head.chars().count() + at - begin);
    Some(format!("\n{head}{shown}{after}\n{caret}^"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_a_function_is_shown_with_the_query_of_the_function() {
        let error = ServerError {
            message: "no column x".into(),
            severity: "ERROR".into(),
            hint: Some("look".into()),
            internal_position: Some(8),
            internal_query: Some("SELECT x".into()),
            context: Some("function f()".into()),
            ..ServerError::default()
        };
        let more = "\nHINT:  look\nQUERY:  SELECT x\nCONTEXT:  function f()";
        let at = "\nLINE 1: SELECT x\n               ^";
        assert_eq!(server_error(&error, Some("f()")), format!("ERROR:  no column x{at}{more}"));
        let outer = ServerError { position: Some(1), ..error };
        let at = "\nLINE 1: f()\n        ^";
        assert_eq!(server_error(&outer, Some("f()")), format!("ERROR:  no column x{at}{more}"));
    }

    #[test]
    fn an_error_is_shown_with_its_line_and_a_caret() {
        for (query, position, shown) in [
            ("SELECT x", 8, "\nLINE 1: SELECT x\n               ^"),
            ("SELECT 1,\n\tx;", 12, "\nLINE 2:  x;\n         ^"),
            ("", 1, "\nLINE 1: \n        ^"),
        ] {
            assert_eq!(place(query, position).as_deref(), Some(shown), "{query}");
        }
        let long = format!("SELECT {} x", "1 + ".repeat(30));
        let shown = place(&long, long.chars().count()).expect("a place");
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[1].starts_with("LINE 1: ...") && lines[1].ends_with(" x"), "{shown}");
        assert_eq!(lines[2].len(), lines[1].len());
        assert_eq!(place("SELECT", 99), None);
    }
}
