//! What clients tell of their steps where that is asked for, and notices of the server: every one
//! of them, as libpq shows it, in bounded memory.

use crate::support::backend::{complete, error, frame, ready};
use crate::support::desk::Desk;
use crate::support::trial::plan;
use pgpaces_engine::client::{Next, Trouble};
use pgpaces_engine::pace::Think;
use pgpaces_engine::plan::{Load, Plan, Protocol};

fn asked(protocol: Protocol) -> Plan {
    Plan { protocol, debug: true, notices: true, ..plan(Load::Closed { think: Think::None }) }
}

fn lines(desk: &Desk) -> Vec<&str> {
    desk.record.batch.lines.iter().map(|(_, text)| text.as_str()).collect()
}

fn warning(message: &str) -> Vec<u8> {
    let body = format!("SWARNING\0VWARNING\0C25P01\0M{message}\0Hdo not\0Win f()\0\0");
    frame(b'N', body.as_bytes())
}

#[test]
fn every_step_is_told_with_what_is_sent() {
    let script = "\\set x 1 + 1\n\\if false\nSELECT 0;\n\\else\n\\endif\nSELECT :x;";
    for (protocol, sending) in [
        (Protocol::Simple, &["sending SELECT 2;"][..]),
        (Protocol::Extended, &["sending SELECT $1;"]),
        (Protocol::Prepared, &["preparing P_1", "sending P_1"]),
    ] {
        let mut desk = Desk::new(&asked(protocol), script);
        desk.start().expect("a script that runs");
        desk.ready().expect("an answer");
        let before = [
            "executing script \"script\"",
            "executing \\set x",
            "executing \\if",
            // The branch was taken, so that its end is a step.
            "executing \\endif",
        ];
        let expected = [&before[..], sending, &["receiving"]].concat();
        let expected: Vec<String> =
            expected.iter().map(|step| format!("client 0 {step}")).collect();
        assert_eq!(lines(&desk), expected);
    }
}

#[test]
fn the_end_of_a_pipeline_is_told() {
    let script = "\\startpipeline\nSELECT 1;\n\\syncpipeline\nSELECT 2;\n\\endpipeline";
    let mut desk = Desk::new(&asked(Protocol::Extended), script);
    desk.start().expect("a script that runs");
    desk.receive(&[ready(b'I'), ready(b'I')].concat()).expect("an answer");
    let ends: Vec<_> = lines(&desk).into_iter().filter(|line| line.contains("syncs")).collect();
    let expected = [2, 1].map(|n| format!("client 0 pipeline ending, ongoing syncs: {n}"));
    assert_eq!(ends, expected);
}

#[test]
fn nothing_is_told_where_nobody_asked() {
    let mut desk = Desk::new(&plan(Load::Closed { think: Think::None }), "\\set x 1\nSELECT 1;");
    desk.start().expect("a script that runs");
    let answer = [warning("careful"), complete("SELECT 0"), ready(b'I')].concat();
    desk.receive(&answer).expect("an answer");
    assert_eq!(lines(&desk), [""; 0]);
}

#[test]
fn a_warning_is_told_as_libpq_shows_it_and_changes_nothing() {
    let plan = Plan { debug: false, ..asked(Protocol::Extended) };
    let mut desk = Desk::new(&plan, "SELECT 1;");
    desk.start().expect("a script that runs");
    // One before the end of the answer, one behind it: the client is free all the same.
    let answer = [warning("careful"), complete("SELECT 0"), ready(b'I'), warning("late")].concat();
    assert!(matches!(desk.receive(&answer), Ok(Next::Free(_))));
    let expected = ["careful", "late"].map(|said| format!("WARNING:  {said}\nHINT:  do not"));
    assert_eq!(lines(&desk), expected);
}

#[test]
fn a_flood_of_notices_is_cut_off_in_every_second_anew() {
    let plan = Plan { debug: false, ..asked(Protocol::Simple) };
    let mut desk = Desk::new(&plan, "SELECT 1;");
    desk.start().expect("a script that runs");
    let flood = warning(&"x".repeat(8000)).repeat(100);
    for second in 0..2 {
        (0..40).for_each(|_| assert!(desk.receive(&flood).is_ok()));
        let batch = desk.record.swap(second);
        let bytes: usize = batch.lines.iter().map(|(_, text)| text.len()).sum();
        assert!((15 << 20..17 << 20).contains(&bytes), "{bytes}");
        assert_eq!(batch.lines.last().unwrap().1, "more lines in this second were left out");
    }
}

#[test]
fn a_statement_that_cannot_be_prepared_is_told_as_pgbench_tells_it() {
    let refused = [error("ERROR", "42601", "syntax error"), ready(b'I')].concat();
    let prepared = [frame(b'3', &[]), frame(b'1', &[])].concat();
    let missing = "prepared statement \"P_0\" does not exist";
    let begin = "client 0 script 0 aborted in command 0 query 0: ";
    let executed = format!("{begin}ERROR:  syntax error");
    for (answer, expected) in [
        (refused.clone(), vec!["ERROR:  syntax error".to_owned(), format!("{begin}{missing}")]),
        // The same error in another place is what executing it gave.
        ([prepared, refused].concat(), vec![executed]),
    ] {
        let plan = Plan {
            debug: false,
            continue_on_error: false,
            recover: false,
            ..asked(Protocol::Prepared)
        };
        for cut in [0, 3, answer.len() / 2] {
            let mut desk = Desk::new(&plan, "SELECT;");
            desk.start().expect("a script that runs");
            desk.receive(&answer[..cut]).expect("more is to come");
            assert!(matches!(desk.receive(&answer[cut..]), Err(Trouble::Abort(_))));
            assert_eq!(lines(&desk), expected);
        }
    }
}
