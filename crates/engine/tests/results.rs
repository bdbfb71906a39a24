//! `\gset` and `\aset` from the server's bytes, however they are cut.

use crate::support::backend::{complete, error, frame, ready};
use crate::support::desk::Desk;
use crate::support::trial::plan;
use pgpaces_engine::client::{Next, Trouble, TroubleOr};
use pgpaces_engine::error::Error;
use pgpaces_engine::pace::Think;
use pgpaces_engine::plan::{Load, Plan, Protocol};
use pgpaces_engine::wire::Fault;
use proptest::prelude::*;

fn simple() -> Plan {
    plan(Load::Closed { think: Think::None })
}

/// The description of columns of text.
fn described(names: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(names.len()).unwrap().to_be_bytes().to_vec();
    for name in names {
        body.extend(name.as_bytes());
        body.push(0);
        body.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0]);
    }
    frame(b'T', &body)
}

fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        match value {
            None => body.extend((-1i32).to_be_bytes()),
            Some(text) => {
                body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                body.extend(*text);
            }
        }
    }
    frame(b'D', &body)
}

/// A result of one row.
fn result(names: &[&str], values: &[Option<&[u8]>]) -> Vec<u8> {
    [described(names), row(values), complete("SELECT 1")].concat()
}

fn end() -> Vec<u8> {
    ready(b'I')
}

/// The answer to a command, and what the client sends next: a query with what it stored.
fn stored(script: &str, chunks: &[&[u8]]) -> String {
    let mut desk = Desk::new(&simple(), script);
    desk.start().expect("a script that runs");
    desk.query();
    for chunk in chunks {
        desk.receive(chunk).expect("an answer that fits");
    }
    desk.query()
}

/// What the client says when it gives up.
fn refused(script: &str, answer: &[u8]) -> (Error, Vec<String>) {
    let mut desk = Desk::new(&simple(), script);
    desk.start().expect("a script that runs");
    let given_up: TroubleOr<Next> = desk.receive(answer);
    let Err(Trouble::Abort(error)) = given_up else { panic!("an abort: {given_up:?}") };
    (*error, desk.record.batch.lines.into_iter().map(|(_, line)| line).collect())
}

#[test]
fn an_answer_cut_in_two_at_any_byte_is_stored() {
    let script = "SELECT \\gset p_\nSELECT :p_a, :p_b, :p_c;";
    let values: [Option<&[u8]>; 3] = [Some(b"one"), None, Some(b"")];
    let answer = [result(&["a", "b", "c"], &values), end()].concat();
    for at in 0..=answer.len() {
        let (first, second) = answer.split_at(at);
        assert_eq!(stored(script, &[first, second]), "SELECT one, NULL, ;", "cut at {at}");
    }
    let each: Vec<_> = answer.chunks(1).collect();
    assert_eq!(stored(script, &each), "SELECT one, NULL, ;");
}

#[test]
fn gset_stores_the_last_result_and_aset_every_one_that_has_rows() {
    let answer = [
        result(&["a"], &[Some(b"1")]),
        complete("UPDATE 3"),
        [described(&["b"]), row(&[Some(b"2")]), row(&[Some(b"3")]), complete("SELECT 2")].concat(),
        [described(&["a"]), complete("SELECT 0")].concat(),
        result(&["c"], &[Some(b"4")]),
        end(),
    ]
    .concat();
    for (command, expected) in [("gset", "SELECT :a, :b, 4;"), ("aset", "SELECT 1, 3, 4;")] {
        let script = format!("SELECT \\{command}\nSELECT :a, :b, :c;");
        for at in 0..=answer.len() {
            let (first, second) = answer.split_at(at);
            assert_eq!(stored(&script, &[first, second]), expected, "cut at {at}");
        }
    }
}

#[test]
fn what_no_script_mentions_is_not_stored_and_hurts_nobody() {
    let values: [Option<&[u8]>; 3] = [Some(b"1"), Some(b"2"), None];
    let answer = [result(&["x", "a", "y"], &values), end()].concat();
    assert_eq!(stored("SELECT \\gset\nSELECT :a;", &[&answer]), "SELECT 2;");
}

#[test]
fn of_two_columns_with_one_name_the_last_counts() {
    let answer = [result(&["a", "a"], &[Some(b"1"), Some(b"2")]), end()].concat();
    assert_eq!(stored("SELECT \\gset\nSELECT :a;", &[&answer]), "SELECT 2;");
}

#[test]
fn a_result_without_columns_is_a_row_of_nothing() {
    let answer = [result(&[], &[]), end()].concat();
    assert_eq!(stored("SELECT \\gset\nSELECT :a;", &[&answer]), "SELECT :a;");
}

#[test]
fn a_null_is_a_null_in_expressions_and_parameters() {
    let script = "SELECT \\gset\n\\set b CASE WHEN :a IS NULL THEN 1 ELSE 0 END\nSELECT :a, :b;";
    let answer = [result(&["a"], &[None]), end()].concat();
    assert_eq!(stored(script, &[&answer]), "SELECT NULL, 1;");
    let mut desk = Desk::new(&Plan { protocol: Protocol::Extended, ..simple() }, script);
    desk.start().expect("a script that runs");
    desk.sent();
    desk.receive(&answer).expect("an answer that fits");
    let bind = desk.sent().into_iter().find(|(tag, _)| *tag == 'B').expect("a bind").1;
    // No name, no statement, no formats; two parameters: NULL, and 1.
    let expected = [0, 0, 0, 0, 0, 2, 255, 255, 255, 255, 0, 0, 0, 1, b'1', 0, 0];
    assert_eq!(bind, expected);
}

#[test]
fn rows_are_described_where_they_are_stored_also_where_nothing_else_is() {
    let script = "SELECT 1;\nSELECT 2 AS a \\gset\nSELECT 3;";
    let plan = Plan { protocol: Protocol::Extended, describe: false, ..simple() };
    let mut desk = Desk::new(&plan, script);
    desk.start().expect("a script that runs");
    assert_eq!(desk.types(), "PBES");
    desk.ready().expect("an answer");
    assert_eq!(desk.types(), "PBDES");
    desk.receive(&[result(&["a"], &[Some(b"2")]), end()].concat()).expect("an answer that fits");
    assert_eq!(desk.types(), "PBES");
}

#[test]
fn a_value_of_many_megabytes_is_stored() {
    let value = vec![b'v'; 30 << 20];
    let answer = [result(&["a"], &[Some(&value)]), end()].concat();
    let chunks: Vec<_> = answer.chunks(65_536).collect();
    let query = stored("SELECT \\gset\nSELECT :a;", &chunks);
    assert_eq!(query.len(), value.len() + "SELECT ;".len());
}

#[test]
fn what_cannot_be_stored_aborts_the_client() {
    let two = [described(&["a"]), row(&[Some(b"1")]), row(&[Some(b"2")]), complete("SELECT 2")];
    for (command, answer, query, reason) in [
        ("gset", two.concat(), 0, "expected one row, got 2"),
        ("gset", [described(&["a"]), complete("SELECT 0")].concat(), 0, "expected one row, got 0"),
        ("gset", complete("UPDATE 1"), 0, "expected one row, got 0"),
        ("gset", frame(b'I', &[]), 0, "expected one row, got 0"),
        ("gset", [two.concat(), complete("SET")].concat(), 1, "expected one row, got 0"),
        ("gset", result(&["1a"], &[Some(b"1")]), 0, "error storing into variable p1a"),
        ("gset", result(&["a b"], &[Some(b"1")]), 0, "error storing into variable pa b"),
        (
            "aset",
            [complete("SET"), result(&["a", "?", "!"], &[None, None, None])].concat(),
            1,
            "error storing into variable p?",
        ),
    ] {
        let (prefix, reason) = match reason.split_once("variable p") {
            Some((_, "1a")) => ("", "error storing into variable 1a".to_owned()),
            Some(_) => (" p", reason.to_owned()),
            None => ("", reason.to_owned()),
        };
        let script = format!("SELECT \\{command}{prefix}\nSELECT :a;");
        let (error, lines) = refused(&script, &[answer, end()].concat());
        assert!(error.to_string().ends_with(&reason), "{error}");
        assert_eq!(lines, [format!("client 0 script 0 command 0 query {query}: {reason}")]);
    }
}

#[test]
fn nothing_is_stored_of_what_fails() {
    let script = "\\set a 7\nSELECT \\gset\nSELECT :a;";
    let mut desk = Desk::new(&simple(), script);
    let answer =
        [described(&["a"]), row(&[Some(b"1")]), error("ERROR", "22012", "division by zero"), end()]
            .concat();
    desk.start().expect("a script that runs");
    desk.query();
    assert!(matches!(desk.receive(&answer), Ok(Next::Free(_))));
    desk.start().expect("a script that runs");
    desk.query();
    desk.receive(&[result(&["a"], &[Some(b"2")]), end()].concat()).expect("an answer that fits");
    assert_eq!(desk.query(), "SELECT 2;");
}

#[test]
fn rows_that_do_not_fit_their_description_are_a_fault() {
    let short: [&[u8]; 5] =
        [&[0, 1], &[0, 1, 0], &[0, 1, 0, 0, 0, 9, b'x'], &[0], &[0, 1, 127, 255, 255, 255]];
    for body in short {
        let mut desk = Desk::new(&simple(), "SELECT \\gset\nSELECT :a;");
        desk.start().expect("a script that runs");
        let answer = [described(&["a"]), frame(b'D', body), complete("SELECT 1"), end()].concat();
        let found = desk.receive(&answer);
        let Err(Trouble::Fault(fault)) = &found else { panic!("{body:?}: {found:?}") };
        assert!(
            matches!(&**fault, Fault::Own(error) if error.name == "row-malformed"),
            "{fault:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_as_rows_nothing_panics(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..4),
        columns in prop::collection::vec(any::<u8>(), 0..60),
        cut in 1usize..20,
    ) {
        for command in ["gset", "aset"] {
            let mut desk = Desk::new(&simple(), &format!("SELECT \\{command}\nSELECT :a;"));
            desk.start().expect("a script that runs");
            let mut answer = frame(b'T', &columns);
            bodies.iter().for_each(|body| answer.extend(frame(b'D', body)));
            answer.extend([complete("SELECT"), end()].concat());
            for chunk in answer.chunks(cut) {
                if desk.receive(chunk).is_err() {
                    break;
                }
            }
        }
    }
}
