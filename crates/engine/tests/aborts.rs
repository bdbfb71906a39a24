//! What becomes of the load when clients give up: because a statement or a meta command failed,
//! or because a connection is gone and is not to come back.

use crate::support::trial::{ONE_STATEMENT, Seen, Texts, attempt, plan, run, run_together};
use crate::support::world::{Answer, Server};
use pgpaces_engine::client::ShellEnd;
use pgpaces_engine::error::Kind;
use pgpaces_engine::interval::Interval;
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Think};
use pgpaces_engine::plan::{Load, Plan, Protocol, Stop};
use pgpaces_engine::record::Class;

const MS: Ns = 1_000_000;

/// Failures abort clients, and the run goes on without them.
fn strict(load: Load) -> Plan {
    Plan { continue_on_error: false, exit_on_abort: false, recover: false, ..plan(load) }
}

fn open(rate: f64, clients: u32) -> Plan {
    Plan { clients, ..strict(Load::Open { rate, arrivals: Arrivals::Even }) }
}

fn closed(think: Ns, clients: u32) -> Plan {
    Plan { clients, ..strict(Load::Closed { think: Think::Fixed(think) }) }
}

/// A server whose connection number `victim` fails what begins at `from` or later.
fn failing(victim: usize, from: Ns, sqlstate: &'static str) -> Server {
    Server::new(move |call| {
        if call.connection == victim && call.at >= from {
            Answer::Error(sqlstate, MS)
        } else {
            Answer::Rows(MS)
        }
    })
}

fn adds_up(seen: &Seen) {
    let intervals = seen.intervals();
    let sum = |of: fn(&Interval) -> u64| intervals.iter().map(of).sum::<u64>();
    let due = sum(|i| i.tallies.iter().map(|t| t.due).sum());
    let ended = sum(|i| {
        let of = |t: &pgpaces_engine::interval::Tally| {
            t.on_time + t.late + t.skipped + t.failed.values().sum::<u64>() + t.unfinished
        };
        i.tallies.iter().map(of).sum()
    });
    assert_eq!(due, ended);
}

#[test]
fn an_aborted_clients_transaction_failed_and_it_takes_nothing_more() {
    let seen = run(&closed(9 * MS, 3), ONE_STATEMENT, failing(1, 4 * SECOND, "23505"));
    adds_up(&seen);
    let own: Vec<_> = seen.in_order().into_iter().filter(|o| o.client == 1).collect();
    let (last, before) = own.split_last().expect("some");
    assert!(before.iter().all(|o| o.class == Class::OnTime && o.done <= 4 * SECOND));
    assert_eq!((last.class, last.sqlstate), (Class::Failed, *b"23505"));
    assert_eq!(seen.count(Class::OnTime), 2 * 1000 + 400);
    assert_eq!(seen.sum(|batch| u64::from(batch.aborted)), 1);
    assert_eq!(seen.lines(), ["client 1 script 0 aborted in command 0 query 0: ERROR:  as asked"]);
    let failed: u64 = seen.intervals().iter().flat_map(|i| &i.statements).map(|s| s.failed).sum();
    assert_eq!(failed, 1);
}

#[test]
fn the_others_serve_an_open_loads_arrivals_when_one_is_aborted() {
    for workers in [1, 2] {
        let mut servers = vec![failing(1, 4 * SECOND, "23505")];
        servers.extend((1..workers).map(|_| Server::new(|_| Answer::Rows(MS))));
        let seen = run_together(&open(10.0, 4), ONE_STATEMENT, servers);
        adds_up(&seen);
        assert_eq!((seen.count(Class::OnTime), seen.count(Class::Failed)), (99, 1));
        assert!(seen.outcomes().all(|o| o.sent == o.due), "{workers} workers");
    }
}

#[test]
fn the_others_serve_what_a_lost_client_was_waiting_for() {
    for clients in [2, 3, 5] {
        let mut server = Server::new(|_| Answer::Rows(MS));
        server.cuts = vec![(999 * MS, 0), (1999 * MS, 1)];
        server.cuts.truncate(clients as usize - 1);
        let seen = run(&open(1.0, clients), ONE_STATEMENT, server);
        adds_up(&seen);
        assert_eq!(seen.count(Class::OnTime), 10, "{clients}");
        assert!(seen.outcomes().all(|o| o.sent == o.due));
        assert_eq!(seen.sum(|batch| u64::from(batch.aborted)), (clients as u64 - 1).min(2));
    }
}

#[test]
fn another_workers_client_serves_what_a_workers_last_client_was_waiting_for() {
    let mut lost = Server::new(|_| Answer::Rows(MS));
    lost.cuts = vec![(3500 * MS, 0)];
    let servers = vec![lost, Server::new(|_| Answer::Rows(MS))];
    let seen = run_together(&open(1.0, 2), ONE_STATEMENT, servers);
    adds_up(&seen);
    assert_eq!((seen.count(Class::OnTime), seen.sum(|batch| u64::from(batch.aborted))), (10, 1));
}

#[test]
fn a_paced_clients_arrivals_go_on_being_counted_when_it_is_aborted() {
    let load = Load::Paced { rate: 10.0, arrivals: Arrivals::Even };
    let plan = Plan { clients: 2, ..strict(load) };
    let seen = run(&plan, ONE_STATEMENT, failing(1, 5 * SECOND, "23505"));
    adds_up(&seen);
    let own: Vec<_> = seen.in_order().into_iter().filter(|o| o.client == 1).collect();
    let count = |class| own.iter().filter(|o| o.class == class).count();
    assert_eq!(own.len(), 100);
    assert_eq!((count(Class::Failed), count(Class::OnTime) + count(Class::Unfinished)), (1, 99));
    assert!((49..=50).contains(&count(Class::OnTime)), "{}", count(Class::OnTime));
    assert_eq!(seen.count(Class::OnTime), count(Class::OnTime) + 100);
}

#[test]
fn when_the_last_client_is_gone_the_run_ends_at_once_and_counts_only_what_was_due_until_then() {
    let loads = [
        Load::Open { rate: 40.0, arrivals: Arrivals::Even },
        Load::Paced { rate: 10.0, arrivals: Arrivals::Even },
        Load::Closed { think: Think::Fixed(90 * MS) },
    ];
    for load in loads {
        for workers in [1, 2, 4] {
            let each = 4 / workers;
            let server = |number: usize| {
                Server::new(move |call| {
                    // Client n fails from second n + 1 on.
                    let from = (number * each + call.connection + 1) as Ns * SECOND;
                    match call.at >= from {
                        true => Answer::Error("23505", MS),
                        false => Answer::Rows(MS),
                    }
                })
            };
            let servers = (0..workers).map(server).collect();
            let plan = Plan { clients: 4, ..strict(load) };
            let seen = run_together(&plan, ONE_STATEMENT, servers);
            adds_up(&seen);
            assert_eq!(seen.count(Class::Failed), 4, "{load:?}");
            let last = seen.outcomes().filter(|o| o.class == Class::Failed).map(|o| o.done).max();
            assert_eq!(Some(seen.end), last, "{load:?}");
            assert!(seen.end < 5 * SECOND);
            assert!(seen.outcomes().all(|o| o.due < seen.end));
            assert!(seen.untaken.iter().all(|due| due.at < seen.end));
            assert_eq!(seen.ends().last(), last.as_ref(), "the worker of the last ends with it");
            assert!(seen.ends().iter().all(|end| *end <= 5 * SECOND), "the others see it soon");
        }
    }
}

#[test]
fn a_client_that_gives_up_at_its_start_can_be_the_last_too() {
    let texts: Texts<'_> = &[(1, "\\set x 1 / 0\nSELECT 1;")];
    for plan in [open(1.0, 3), closed(1234 * MS, 3)] {
        let seen = run(&plan, texts, Server::new(|_| Answer::Rows(MS)));
        adds_up(&seen);
        assert_eq!(seen.count(Class::Failed), 3);
        let last = seen.outcomes().map(|o| o.done).max().expect("three");
        assert_eq!((seen.end, seen.ends()), (last, vec![last]));
    }
}

#[test]
fn a_run_that_ends_by_count_does_not_wait_for_those_who_gave_up() {
    for load in
        [Load::Open { rate: 100.0, arrivals: Arrivals::Even }, Load::Closed { think: Think::None }]
    {
        let plan = Plan { clients: 2, stop: Stop::Count(50), ..strict(load) };
        let seen = run(&plan, ONE_STATEMENT, failing(0, 20 * MS, "23505"));
        adds_up(&seen);
        assert_eq!(seen.count(Class::Failed), 1);
        let expected = if matches!(load, Load::Open { .. }) { 99 } else { 70 };
        assert_eq!(seen.count(Class::OnTime), expected, "{load:?}");
    }
}

#[test]
fn a_run_that_ends_with_an_abort_says_why_and_keeps_everything_measured() {
    for workers in [1, 2] {
        let plan = Plan { exit_on_abort: true, ..open(100.0, 4) };
        let mut servers: Vec<_> = (1..workers).map(|_| Server::new(|_| Answer::Rows(MS))).collect();
        servers.push(failing(0, 2 * SECOND + 345 * MS, "23505"));
        let seen = attempt(&plan, ONE_STATEMENT, servers);
        adds_up(&seen);
        let [error] = &seen.errors[..] else { panic!("one error: {:?}", seen.errors) };
        assert_eq!(error.kind, Kind::Aborted);
        assert_eq!(error.name, "client-gave-up");
        assert_eq!(seen.count(Class::Failed), 1);
        assert!(seen.count(Class::OnTime) >= 230);
        assert!(seen.ends().iter().all(|end| *end <= 3 * SECOND), "{:?}", seen.ends());
        assert_eq!(seen.lines().len(), 1);
    }
}

#[test]
fn a_run_that_ends_with_an_abort_cancels_what_the_server_still_runs() {
    let server = Server::new(|call| match call.connection {
        0 => Answer::Error("23505", 500 * MS),
        _ => Answer::Rows(3600 * SECOND),
    });
    let plan = Plan { exit_on_abort: true, ..closed(0, 4) };
    let seen = attempt(&plan, ONE_STATEMENT, vec![server]);
    assert_eq!(seen.errors.len(), 1);
    assert_eq!((seen.count(Class::Unfinished), seen.keys.len()), (3, 3));
}

#[test]
fn a_lost_connection_is_an_abort_only_where_it_does_not_recover() {
    for recover in [true, false] {
        let mut server = Server::new(|_| Answer::Rows(10 * MS));
        server.cuts = vec![(3 * SECOND + 95 * MS, 0)];
        let plan = Plan { recover, ..closed(90 * MS, 2) };
        let seen = run(&plan, ONE_STATEMENT, server);
        adds_up(&seen);
        assert_eq!(seen.count(Class::Failed), 1);
        assert!(seen.outcomes().all(|o| o.class != Class::Failed || o.sqlstate == *b"08006"));
        assert_eq!(seen.sum(|batch| u64::from(batch.aborted)), u64::from(!recover));
        let after = seen.outcomes().filter(|o| o.client == 0 && o.due > 4 * SECOND).count();
        assert_eq!(after > 0, recover);
        let lines = seen.lines();
        let expected = "client 0 script 0 aborted in command 0 query 0: \
                        the server closed the connection";
        assert_eq!(lines, if recover { vec![] } else { vec![expected] });
    }
}

#[test]
fn a_connection_lost_between_transactions_is_an_abort_without_a_failure() {
    let mut server = Server::new(|_| Answer::Rows(10 * MS));
    server.cuts = vec![(3 * SECOND + 50 * MS, 0)];
    let seen = run(&closed(90 * MS, 1), ONE_STATEMENT, server);
    adds_up(&seen);
    assert_eq!((seen.count(Class::OnTime), seen.count(Class::Failed)), (30, 0));
    assert_eq!(seen.sum(|batch| u64::from(batch.aborted)), 1);
    assert_eq!(seen.end, 3 * SECOND + 50 * MS);
}

#[test]
fn a_client_that_has_done_its_part_is_not_aborted_when_its_connection_goes() {
    let mut server = Server::new(|call| Answer::Rows((1 + call.connection as Ns) * 10 * MS));
    server.cuts = vec![(150 * MS, 0)];
    let plan = Plan { stop: Stop::Count(10), exit_on_abort: true, ..closed(0, 2) };
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!(seen.count(Class::OnTime), 20);
    assert_eq!(seen.sum(|batch| u64::from(batch.aborted)), 0);
    assert_eq!(seen.lines(), [""; 0]);
}

#[test]
fn a_block_left_open_is_an_abort_only_where_it_does_not_recover() {
    let texts: Texts<'_> = &[(1, "BEGIN;\nSELECT 1;")];
    for recover in [true, false] {
        let plan = Plan { recover, stop: Stop::Count(5), ..closed(0, 1) };
        let seen = run(&plan, texts, Server::new(|_| Answer::Rows(MS)));
        adds_up(&seen);
        // The transaction itself was done, as pgbench counts it.
        assert_eq!(seen.count(Class::OnTime), if recover { 5 } else { 1 });
        let text =
            "client 0 aborted: end of script reached without completing the last transaction";
        assert_eq!(seen.lines(), if recover { vec![] } else { vec![text] });
        let notes: usize = seen.intervals().iter().map(|i| i.notes.len()).sum();
        assert_eq!(notes, usize::from(recover));
    }
}

/// A trial of one client whose script cannot run as written: its error, and what it said.
fn wrong(script: &str, protocol: Protocol) -> (String, Vec<String>) {
    let plan = Plan { exit_on_abort: true, protocol, ..closed(0, 1) };
    let mut server = Server::new(|_| Answer::Rows(MS));
    server.shells = Box::new(|line| {
        let answer = line.strip_prefix("say ").map(|word| word.as_bytes().to_vec());
        (MS, ShellEnd { succeeded: line != "false", line: answer })
    });
    let seen = attempt(&plan, &[(1, script)], vec![server]);
    adds_up(&seen);
    let [outcome] = seen.in_order()[..] else { panic!("one transaction: {script}") };
    assert_eq!((outcome.class, outcome.sqlstate), (Class::Failed, *b"38000"), "{script}");
    let [error] = &seen.errors[..] else { panic!("no error: {script}") };
    assert_eq!(error.kind, Kind::Script);
    (error.to_string(), seen.lines().iter().map(ToString::to_string).collect())
}

#[test]
fn a_meta_command_that_fails_aborts_its_client_and_says_why() {
    let failed = "execution of meta-command failed";
    for (script, reason, command, what) in [
        ("\\set x 1 / 0", "division by zero", "0 (set)", "evaluation of meta-command failed"),
        (
            "SELECT 1;\n\\if :y\n\\endif",
            "undefined variable \"y\"",
            "1 (if)",
            "evaluation of meta-command failed",
        ),
        ("\\sleep :y s", "sleep: undefined variable \"y\"", "0 (sleep)", failed),
        (
            "\\set y true\n\\sleep :y s",
            "sleep: invalid sleep time \"true\" for variable \"y\"",
            "1 (sleep)",
            failed,
        ),
        (
            "\\setshell y say seven",
            "say: shell command must return an integer (not \"seven\")",
            "0 (setshell)",
            failed,
        ),
        (
            "\\setshell y silent",
            "silent: could not read result of shell command",
            "0 (setshell)",
            failed,
        ),
        ("\\shell false", "false: could not launch shell command", "0 (shell)", failed),
        ("\\shell say :y", "say: undefined variable \":y\"", "0 (shell)", failed),
        (
            "\\set 1x 1",
            "set: invalid variable name: \"1x\"",
            "0 (set)",
            "assignment of meta-command failed",
        ),
        (
            "\\setshell a-b say 1",
            "setshell: invalid variable name: \"a-b\"",
            "0 (setshell)",
            failed,
        ),
        (
            "\\set x 1 + least(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17)",
            "too many function arguments, maximum is 16",
            "0 (set)",
            "evaluation of meta-command failed",
        ),
    ] {
        let (error, lines) = wrong(script, Protocol::Simple);
        assert!(
            error.starts_with("script-gives-up text=script 0:") && error.ends_with(reason),
            "{script}: {error}"
        );
        let last = format!("client 0 aborted in command {command} of script 0; {what}");
        assert_eq!(lines, [reason.to_owned(), last], "{script}");
    }
}

#[test]
fn what_an_expression_printed_before_it_failed_is_shown_first() {
    let (_, lines) = wrong("\\set x debug(7) / 0", Protocol::Simple);
    assert_eq!(lines[..2], ["debug(script=0,command=1): int 7", "division by zero"]);
}

#[test]
fn a_pipeline_used_wrongly_aborts_its_client_and_says_why() {
    for (script, command, what) in [
        ("\\endpipeline", "0 (endpipeline)", "not in pipeline mode"),
        ("\\syncpipeline", "0 (syncpipeline)", "not in pipeline mode"),
        (
            "\\startpipeline\nSELECT 1;\n\\startpipeline",
            "2 (startpipeline)",
            "already in pipeline mode",
        ),
        (
            "\\startpipeline\nSELECT 1 AS x \\gset",
            "1 (gset)",
            "\\gset is not allowed in pipeline mode",
        ),
        (
            "\\startpipeline\nSELECT 1 AS x \\aset",
            "1 (aset)",
            "\\aset is not allowed in pipeline mode",
        ),
    ] {
        for protocol in [Protocol::Extended, Protocol::Prepared] {
            let (error, lines) = wrong(script, protocol);
            assert!(error.ends_with(what), "{script}: {error}");
            assert_eq!(
                lines,
                [format!("client 0 aborted in command {command} of script 0; {what}")]
            );
        }
    }
    let (_, lines) = wrong("\\startpipeline\nSELECT 1;\n\\endpipeline", Protocol::Simple);
    assert!(lines[0].ends_with("cannot use pipeline mode with the simple query protocol"));
    let (_, lines) = wrong("\\startpipeline\nSELECT 1;", Protocol::Prepared);
    assert_eq!(lines, ["client 0 aborted: end of script reached with pipeline open"]);
}

#[test]
fn a_client_lost_during_a_sleep_or_a_shell_command_ignores_what_ends_later() {
    for (script, recover) in [
        ("\\sleep 700 ms\nSELECT 1;", true),
        ("\\sleep 700 ms\nSELECT 1;", false),
        ("\\shell slow\nSELECT 1;", true),
        ("\\shell slow\nSELECT 1;", false),
        ("\\setshell x slow\nSELECT :x;", true),
    ] {
        let mut server = Server::new(|_| Answer::Rows(MS));
        server.shells =
            Box::new(|_| (700 * MS, ShellEnd { succeeded: true, line: Some(b"7".to_vec()) }));
        server.cuts = vec![(300 * MS, 0)];
        let plan = Plan { recover, stop: Stop::Count(3), ..closed(0, 1) };
        let seen = run(&plan, &[(1, script)], server);
        adds_up(&seen);
        let all = seen.in_order();
        assert_eq!((all[0].class, all[0].done), (Class::Failed, 300 * MS), "{script}");
        let rest: Vec<_> = all[1..].iter().map(|o| (o.class, o.done - o.sent)).collect();
        let expected = [(Class::OnTime, 701 * MS); 2];
        assert_eq!(rest, if recover { &expected[..] } else { &[] }, "{script}");
    }
}

#[test]
fn a_shell_command_that_outlasts_the_grace_period_leaves_its_transaction_unfinished() {
    let mut server = Server::new(|_| Answer::Rows(MS));
    server.shells = Box::new(|_| (99 * SECOND, ShellEnd { succeeded: true, line: None }));
    let seen = run(&closed(0, 2), &[(1, "\\shell slow")], server);
    adds_up(&seen);
    assert_eq!(seen.count(Class::Unfinished), 2);
    assert_eq!(seen.ends(), [15 * SECOND]);
}

#[test]
fn copy_from_stdin_aborts_or_where_errors_are_data_fails() {
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        for continue_on_error in [true, false] {
            let server = || {
                Server::new(|call| match call.sql.starts_with("COPY") {
                    true => Answer::Copy(MS),
                    false => Answer::Rows(MS),
                })
            };
            let plan = Plan { continue_on_error, protocol, stop: Stop::Count(3), ..closed(0, 1) };
            let texts: Texts<'_> = &[(1, "SELECT 1;\nCOPY t FROM STDIN;\nSELECT 2;")];
            let seen = run(&plan, texts, server());
            adds_up(&seen);
            let found: Vec<_> = seen.outcomes().map(|o| (o.class, o.sqlstate)).collect();
            if continue_on_error {
                assert_eq!(found, [(Class::Failed, *b"57014"); 3], "{protocol:?}");
            } else {
                assert_eq!(found, [(Class::Failed, *b"38000")], "{protocol:?}");
                assert_eq!(seen.lines(), ["COPY is not supported in pgbench, aborting"]);
            }
        }
    }
}

#[test]
fn serialization_failures_abort_nobody() {
    let plan = Plan { stop: Stop::Count(9), exit_on_abort: true, ..closed(0, 1) };
    let seen = run(&plan, ONE_STATEMENT, failing(0, 0, "40001"));
    assert_eq!(seen.count(Class::Failed), 9);
    assert_eq!(seen.sum(|batch| u64::from(batch.aborted)), 0);
}

#[test]
fn a_second_error_of_the_same_answer_is_not_told_again() {
    let plan = Plan { protocol: Protocol::Extended, ..closed(0, 1) };
    let texts: Texts<'_> =
        &[(1, "\\startpipeline\nA;\n\\syncpipeline\nB;\n\\endpipeline\nSELECT 1;")];
    let server = Server::new(|_| Answer::Error("23505", MS));
    let seen = run(&plan, texts, server);
    adds_up(&seen);
    assert_eq!((seen.count(Class::Failed), seen.lines().len()), (1, 1));
}
