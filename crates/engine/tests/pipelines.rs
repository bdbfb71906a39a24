//! Pipelines: what is sent when, one answer to many statements, and errors among them.

use crate::support::backend::{complete, error, frame, ready};
use crate::support::desk::Desk;
use crate::support::trial::{plan, run};
use crate::support::world::{Answer, Server};
use pgpaces_engine::client::{Next, ShellEnd, State};
use pgpaces_engine::pace::{Ns, Think};
use pgpaces_engine::plan::{Load, Plan, Protocol, Stop};
use pgpaces_engine::record::Class;
use std::sync::{Arc, Mutex};

const MS: Ns = 1_000_000;

fn with(protocol: Protocol) -> Plan {
    Plan { protocol, stop: Stop::Count(3), ..plan(Load::Closed { think: Think::None }) }
}

/// The answer to one statement, without its end.
fn answer() -> Vec<u8> {
    [frame(b'1', &[]), frame(b'2', &[]), frame(b'n', &[]), complete("SELECT 1")].concat()
}

const TWO: &str = "\\startpipeline\nSELECT 1;\nSELECT 2;\n\\endpipeline\nSELECT 3;";

#[test]
fn a_pipeline_is_sent_at_once_and_has_one_answer() {
    let mut desk = Desk::new(&with(Protocol::Extended), TWO);
    assert_eq!(desk.start().expect("a script that runs"), Next::Server);
    assert_eq!(desk.types(), "PBEPBES");
    assert_eq!(desk.receive(&answer()).expect("fits"), Next::Server);
    assert_eq!(desk.types(), "");
    desk.receive(&[answer(), ready(b'I')].concat()).expect("fits");
    assert_eq!(desk.types(), "PBES");
    assert!(matches!(desk.ready(), Ok(Next::Free(_))));
    assert_eq!(desk.record.batch.outcomes[0].class, Class::OnTime);
}

#[test]
fn what_a_pipeline_executes_is_prepared_before_it_and_once() {
    let mut desk = Desk::new(&with(Protocol::Prepared), TWO);
    desk.start().expect("a script that runs");
    assert_eq!(desk.types(), "CPCPS", "prepared first");
    desk.ready().expect("fits");
    assert_eq!(desk.types(), "BEBES");
    desk.ready().expect("fits");
    assert_eq!(desk.types(), "CPBES", "behind the pipeline when it is used");
    assert!(matches!(desk.ready(), Ok(Next::Free(_))));
    desk.start().expect("a script that runs");
    assert_eq!(desk.types(), "BEBES");
    desk.ready().expect("fits");
    assert_eq!(desk.types(), "BES");
}

#[test]
fn statements_within_conditions_are_prepared_too() {
    let script = "\\startpipeline\n\\if false\nSELECT 1;\n\\else\nSELECT 2;\n\\endif\n\
                  \\syncpipeline\nSELECT 3;\n\\endpipeline\n\\startpipeline\nSELECT 4;\n\\endpipeline";
    let mut desk = Desk::new(&with(Protocol::Prepared), script);
    desk.start().expect("a script that runs");
    assert_eq!(desk.types(), "CPCPCPS");
    desk.ready().expect("fits");
    assert_eq!(desk.types(), "BESBES");
    desk.receive(&[ready(b'I'), ready(b'I')].concat()).expect("fits");
    assert_eq!(desk.types(), "CPS", "the next pipeline is another");
}

#[test]
fn what_could_not_be_prepared_is_prepared_anew() {
    let mut desk = Desk::new(&with(Protocol::Prepared), TWO);
    desk.start().expect("a script that runs");
    desk.types();
    let refusal = [frame(b'3', &[]), error("ERROR", "42P01", "no table"), ready(b'I')].concat();
    assert!(matches!(desk.receive(&refusal), Ok(Next::Free(_))));
    let outcome = desk.record.batch.outcomes[0];
    assert_eq!((outcome.class, outcome.sqlstate), (Class::Failed, *b"42P01"));
    desk.start().expect("a script that runs");
    assert_eq!(desk.types(), "CPCPS");
}

#[test]
fn each_sync_has_its_answer_and_the_pipeline_ends_with_the_last() {
    let script = "\\startpipeline\nSELECT 1;\n\\syncpipeline\nSELECT 2;\n\\syncpipeline\n\
                  \\endpipeline";
    let mut desk = Desk::new(&with(Protocol::Extended), script);
    desk.start().expect("a script that runs");
    assert_eq!(desk.types(), "PBESPBESS");
    for _ in 0..2 {
        assert_eq!(desk.ready().expect("fits"), Next::Server);
        assert_eq!(desk.client.state(), State::Busy);
    }
    assert!(matches!(desk.ready(), Ok(Next::Free(_))));
}

#[test]
fn an_error_in_the_middle_fails_the_transaction_when_all_is_answered() {
    let script = "\\startpipeline\nSELECT 1;\nSELECT 2;\n\\syncpipeline\nSELECT 3;\n\
                  \\endpipeline\nSELECT 4;";
    let mut desk = Desk::new(&with(Protocol::Extended), script);
    desk.start().expect("a script that runs");
    desk.types();
    let first = [answer(), error("ERROR", "23505", "twice"), ready(b'I')].concat();
    assert_eq!(desk.receive(&first).expect("fits"), Next::Server);
    let second = [answer(), ready(b'I')].concat();
    assert!(matches!(desk.receive(&second), Ok(Next::Free(_))));
    assert_eq!(desk.types(), "", "nothing more of the script");
    let outcomes = &desk.record.batch.outcomes;
    assert_eq!((outcomes.len(), outcomes[0].sqlstate), (1, *b"23505"));
    desk.start().expect("a new transaction");
    assert_eq!(desk.types(), "PBEPBESPBES");
}

#[test]
fn what_is_answered_while_the_client_sleeps_in_its_pipeline_is_taken() {
    let script = "\\startpipeline\nSELECT 1;\n\\syncpipeline\n\\sleep 5 ms\nSELECT 2;\n\
                  \\endpipeline";
    for fails in [false, true] {
        let mut desk = Desk::new(&with(Protocol::Extended), script);
        assert_eq!(desk.start().expect("a script that runs"), Next::Wake(5 * MS));
        assert!(desk.client.awaits_server());
        assert_eq!(desk.types(), "PBES");
        let failure = if fails { error("ERROR", "22012", "zero") } else { answer() };
        let first = [failure, ready(b'I')].concat();
        assert_eq!(desk.receive(&first).expect("fits"), Next::Server);
        assert!(!desk.client.awaits_server());
        desk.now = 5 * MS;
        assert_eq!(desk.wake().expect("a script that runs"), Next::Server);
        assert_eq!(desk.types(), "PBES");
        assert!(matches!(desk.ready(), Ok(Next::Free(_))));
        let class = desk.record.batch.outcomes[0].class;
        assert_eq!(class, if fails { Class::Failed } else { Class::OnTime });
    }
}

#[test]
fn what_is_synced_is_sent_before_the_client_sleeps() {
    for wait in ["\\sleep 20 ms", "\\shell slow"] {
        let script =
            format!("\\startpipeline\nSELECT 1;\n\\syncpipeline\n{wait}\nSELECT 2;\n\\endpipeline");
        let heard: Arc<Mutex<Vec<Ns>>> = Arc::default();
        let told = Arc::clone(&heard);
        let mut server = Server::new(move |call| {
            told.lock().unwrap().push(call.at);
            Answer::Rows(MS)
        });
        server.shells = Box::new(|_| (20 * MS, ShellEnd { succeeded: true, line: None }));
        let seen = run(&with(Protocol::Extended), &[(1, &script)], server);
        assert_eq!(seen.latencies(), [21 * MS; 3]);
        let expected = [0, 20, 21, 41, 42, 62].map(|at| at * MS);
        assert_eq!(*heard.lock().unwrap(), expected, "{wait}");
    }
}

#[test]
fn a_pipeline_that_may_pass_is_tried_again_as_a_whole() {
    for protocol in [Protocol::Extended, Protocol::Prepared] {
        let script = "\\startpipeline\nBEGIN;\nUPDATE;\nEND;\n\\endpipeline";
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&heard);
        let mut count = 0;
        let server = Server::new(move |call| {
            told.lock().unwrap().push(call.sql.to_owned());
            count += u32::from(call.sql == "UPDATE;");
            match call.sql {
                "UPDATE;" if count % 3 != 0 => Answer::Error("40001", MS),
                _ => Answer::Rows(MS),
            }
        });
        let plan = Plan { max_tries: 3, ..with(protocol) };
        let seen = run(&plan, &[(1, script)], server);
        assert_eq!(seen.count(Class::OnTime), 3);
        assert!(seen.outcomes().all(|o| o.retries == 2));
        let heard = heard.lock().unwrap();
        let once = ["BEGIN;", "UPDATE;", "ROLLBACK"];
        assert_eq!(heard[..9], [&once[..], &once, &["BEGIN;", "UPDATE;", "END;"]].concat());
    }
}

#[test]
fn a_client_that_gives_up_while_its_shell_command_runs_ignores_its_end() {
    let script = "\\startpipeline\nCOPY t FROM STDIN;\n\\syncpipeline\n\\shell slow\n\
                  \\endpipeline";
    let mut server = Server::new(|_| Answer::Copy(MS));
    server.shells = Box::new(|_| (20 * MS, ShellEnd { succeeded: true, line: None }));
    let plan = Plan {
        clients: 2,
        continue_on_error: false,
        exit_on_abort: false,
        ..with(Protocol::Extended)
    };
    // The other client keeps the run going until the shell command has ended.
    let texts = &[(1, &*format!("\\if :client_id = 1\n\\sleep 99 ms\n\\else\n{script}\n\\endif"))];
    let seen = run(&plan, texts, server);
    assert_eq!((seen.count(Class::Failed), seen.count(Class::OnTime)), (1, 3));
}

#[test]
fn a_copy_from_a_client_in_a_pipeline_fails_and_nobody_waits_for_its_syncs() {
    for pipeline in [
        "COPY t FROM STDIN;\n\\endpipeline",
        "COPY t FROM STDIN;\n\\syncpipeline\n\\endpipeline",
        "COPY t FROM STDIN;\n\\syncpipeline\n\\sleep 5 ms\n\\endpipeline",
    ] {
        for protocol in [Protocol::Extended, Protocol::Prepared] {
            let text = format!("\\startpipeline\n{pipeline}");
            let server = Server::new(|call| match call.sql.starts_with("COPY") {
                true => Answer::Copy(MS),
                false => Answer::Rows(MS),
            });
            let seen = run(&with(protocol), &[(1, &*text)], server);
            assert_eq!(seen.count(Class::Failed), 3, "{text}");
        }
    }
}

#[test]
fn what_a_server_says_behind_the_end_of_a_transaction_does_not_undo_it() {
    let mut desk = Desk::new(&with(Protocol::Extended), "SELECT 1;");
    desk.start().expect("a script that runs");
    let late = error("ERROR", "57014", "too late");
    let step = desk.receive(&[answer(), ready(b'I'), late].concat()).expect("fits");
    assert!(matches!(step, Next::Free(_)), "{step:?}");
}

#[test]
fn an_empty_pipeline_is_a_round_trip() {
    for protocol in [Protocol::Extended, Protocol::Prepared] {
        let mut desk = Desk::new(&with(protocol), "\\startpipeline\n\\endpipeline");
        desk.start().expect("a script that runs");
        assert_eq!(desk.types(), "S");
        assert!(matches!(desk.ready(), Ok(Next::Free(_))));
    }
}
