//! What becomes of transactions that may be tried again: their dice, their times, their counts.

use crate::support::trial::{ONE_STATEMENT, Texts, plan, run, run_together};
use crate::support::world::{Answer, Server};
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Think};
use pgpaces_engine::plan::{Backlog, Load, Plan, Policy, Protocol, Stop};
use pgpaces_engine::record::{Class, Outcome};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const MS: Ns = 1_000_000;

/// When a statement came, its connection and its text.
type Heard = Vec<(Ns, usize, String)>;

fn closed(count: u64) -> Plan {
    Plan { stop: Stop::Count(count), ..plan(Load::Closed { think: Think::None }) }
}

fn open(rate: f64) -> Plan {
    plan(Load::Open { rate, arrivals: Arrivals::Even })
}

/// A server that fails the first `failures` statements of each transaction number that begin with
/// UPDATE, each after a millisecond, and tells what it heard.
fn stubborn(failures: u32, sqlstate: &'static str) -> (Server, Arc<Mutex<Heard>>) {
    let heard: Arc<Mutex<Heard>> = Arc::default();
    let told = Arc::clone(&heard);
    let mut left: BTreeMap<usize, u32> = BTreeMap::new();
    let server = Server::new(move |call| {
        told.lock().unwrap().push((call.at, call.connection, call.sql.to_owned()));
        if !call.sql.starts_with("UPDATE") {
            return Answer::Rows(MS);
        }
        let left = left.entry(call.connection).or_insert(failures);
        if *left == 0 {
            *left = failures;
            return Answer::Rows(MS);
        }
        *left -= 1;
        Answer::Error(sqlstate, MS)
    });
    (server, heard)
}

fn texts(heard: &Mutex<Heard>) -> Vec<String> {
    heard.lock().unwrap().iter().map(|(_, _, sql)| sql.clone()).collect()
}

#[test]
fn another_try_throws_the_same_dice_and_keeps_the_variables() {
    const SCRIPT: Texts<'_> =
        &[(1, "\\set n :n + 1\n\\set r random(1, 1000000000)\nUPDATE :n, :r;")];
    let (server, heard) = stubborn(2, "40001");
    let plan = Plan { max_tries: 0, variables: vec![("n".into(), b"0".into())], ..closed(3) };
    let plan = Plan { stop: Stop::Time(9 * MS), ..plan };
    let seen = run(&plan, SCRIPT, server);
    assert_eq!(seen.count(Class::OnTime), 3);
    let heard = texts(&heard);
    let (counts, rolls): (Vec<_>, Vec<_>) =
        heard.iter().filter_map(|sql| sql.split_once(", ")).unzip();
    assert_eq!(counts.len(), 9);
    assert!((1..=9).all(|n| counts[n - 1] == format!("UPDATE {n}")), "{counts:?}");
    for each in rolls.chunks(3) {
        assert!(each.iter().all(|roll| roll == &each[0]), "{rolls:?}");
    }
    assert!(rolls[0] != rolls[3] && rolls[3] != rolls[6], "{rolls:?}");
}

#[test]
fn what_needed_no_second_try_goes_on_throwing_as_if_there_were_no_retries() {
    const SCRIPT: Texts<'_> = &[(1, "\\set r random(1, 1000000000)\nUPDATE :r;")];
    let rolls = |failures| {
        let (server, heard) = stubborn(failures, "40P01");
        run(&Plan { max_tries: 9, ..closed(5) }, SCRIPT, server);
        let mut found = texts(&heard);
        found.dedup();
        found
    };
    assert_eq!(rolls(0), rolls(3));
}

#[test]
fn latency_and_in_flight_are_over_all_tries() {
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        let (server, heard) = stubborn(2, "40001");
        let plan = Plan { max_tries: 3, protocol, ..open(1.0) };
        let seen = run(&plan, &[(1, "BEGIN;\nUPDATE;\nCOMMIT;")], server);
        // BEGIN, UPDATE, ROLLBACK, twice; then BEGIN, UPDATE, COMMIT.
        assert_eq!(seen.latencies(), [9 * MS; 10], "{protocol:?}");
        assert!(seen.outcomes().all(|o| o.retries == 2 && o.sent == o.due));
        let in_flight: u128 = seen.intervals().iter().map(|i| i.in_flight_ns).sum();
        assert_eq!(in_flight, 90_000_000);
        let rollbacks = texts(&heard).iter().filter(|sql| *sql == "ROLLBACK").count();
        assert_eq!(rollbacks, 20);
    }
}

#[test]
fn retried_transactions_and_their_retries_are_counted_in_the_second_they_were_due() {
    let (server, _) = stubborn(2, "40001");
    let seen = run(&Plan { max_tries: 0, ..open(2.0) }, &[(1, "UPDATE;")], server);
    let intervals = seen.intervals();
    for second in 0..10 {
        let tallies = intervals.iter().flat_map(|i| &i.tallies);
        let own: Vec<_> = tallies.filter(|t| t.due_second == second).collect();
        let sum = |of: fn(&pgpaces_engine::interval::Tally) -> u64| {
            own.iter().map(|tally| of(tally)).sum::<u64>()
        };
        assert_eq!((sum(|t| t.due), sum(|t| t.retried), sum(|t| t.retries)), (2, 2, 4));
    }
}

#[test]
fn a_transaction_fails_with_its_sqlstate_when_it_has_been_tried_often_enough() {
    for (sqlstate, max_tries) in [("40001", 1), ("40001", 4), ("40P01", 2)] {
        let (server, heard) = stubborn(u32::MAX, sqlstate);
        let seen = run(&Plan { max_tries, ..closed(5) }, &[(1, "UPDATE;")], server);
        let all = seen.in_order();
        assert_eq!(all.len(), 5);
        for outcome in all {
            assert_eq!(
                (outcome.class, &outcome.sqlstate[..]),
                (Class::Failed, sqlstate.as_bytes())
            );
            assert_eq!(outcome.retries, max_tries - 1);
        }
        assert_eq!(texts(&heard).len(), 5 * max_tries as usize);
    }
}

#[test]
fn only_serialization_failures_and_deadlocks_are_tried_again() {
    for (sqlstate, tries) in
        [("40001", 3), ("40P01", 3), ("40002", 1), ("40000", 1), ("55P03", 1), ("57014", 1)]
    {
        let (server, heard) = stubborn(u32::MAX, sqlstate);
        let seen = run(&Plan { max_tries: 3, ..closed(1) }, &[(1, "UPDATE;")], server);
        assert_eq!(seen.count(Class::Failed), 1);
        assert_eq!(texts(&heard).len(), tries, "{sqlstate}");
    }
}

#[test]
fn another_failure_in_a_second_try_is_the_one_that_counts() {
    let mut count = 0;
    let server = Server::new(move |call| {
        count += u32::from(call.sql == "UPDATE;");
        match (call.sql, count % 2) {
            ("UPDATE;", 1) => Answer::Error("40001", MS),
            ("UPDATE;", _) => Answer::Error("23505", MS),
            _ => Answer::Rows(MS),
        }
    });
    let seen = run(&Plan { max_tries: 9, ..closed(4) }, &[(1, "BEGIN;\nUPDATE;\nEND;")], server);
    let found: Vec<_> = seen.outcomes().map(|o| (o.class, o.sqlstate, o.retries)).collect();
    assert_eq!(found, [(Class::Failed, *b"23505", 1); 4]);
}

#[test]
fn tries_without_a_maximum_end_with_the_limit() {
    for limit in [MS, 10 * MS, 10 * MS + 1, 99 * MS] {
        let (server, heard) = stubborn(u32::MAX, "40001");
        let plan = Plan { max_tries: 0, limit: Some(limit), ..closed(1) };
        let seen = run(&plan, &[(1, "UPDATE;")], server);
        // A try begins where the limit has not passed; the last one ends behind it.
        let begun: Vec<_> = heard.lock().unwrap().iter().map(|(at, ..)| *at).collect();
        let expected: Vec<Ns> = (0..=limit / MS).map(|n| n * MS).collect();
        assert_eq!(begun, expected);
        let [outcome] = seen.in_order()[..] else { panic!("one transaction") };
        assert_eq!((outcome.class, outcome.sqlstate), (Class::Failed, *b"40001"));
        assert!(outcome.done > limit);
    }
}

#[test]
fn tries_without_a_maximum_end_with_the_run() {
    for backlog in [Backlog::Serve, Backlog::Drop] {
        let (server, heard) = stubborn(u32::MAX, "40P01");
        let plan = Plan {
            max_tries: 0,
            stop: Stop::Time(SECOND + MS / 2),
            backlog,
            ..plan(Load::Closed { think: Think::None })
        };
        let seen = run(&plan, &[(1, "UPDATE;")], server);
        assert_eq!(seen.count(Class::Failed), 1);
        assert_eq!(texts(&heard).len(), 1001, "the last one begins before the end");
    }
}

/// The statements that begin at or behind `at`.
fn since(heard: &Mutex<Heard>, at: Ns) -> Vec<String> {
    let heard = heard.lock().unwrap();
    heard.iter().filter(|(begun, ..)| *begun >= at).map(|(_, _, sql)| sql.clone()).collect()
}

#[test]
fn no_try_begins_when_the_end_comes_during_the_rollback() {
    for protocol in [Protocol::Simple, Protocol::Prepared] {
        let (server, heard) = stubborn(u32::MAX, "40001");
        let stop = Stop::Time(2 * MS + MS / 2);
        let load = Load::Closed { think: Think::None };
        let plan = Plan { max_tries: 0, stop, protocol, verbose: true, ..plan(load) };
        let seen = run(&plan, &[(1, "BEGIN;\nUPDATE;\nEND;")], server);
        assert_eq!(texts(&heard), ["BEGIN;", "UPDATE;", "ROLLBACK"]);
        let [outcome] = seen.in_order()[..] else { panic!("one transaction") };
        let found = (outcome.class, outcome.sqlstate, outcome.retries);
        assert_eq!(found, (Class::Failed, *b"40001", 0));
        assert!(seen.lines()[1].contains("ends the failed transaction (try 1)"));
        let intervals = seen.intervals();
        let update = intervals.iter().flat_map(|i| &i.statements).find(|s| s.command == 1);
        assert_eq!(update.map(|s| (s.failed, s.retries)), Some((1, 0)));
    }
}

#[test]
fn no_try_begins_when_the_limit_passes_during_the_rollback() {
    let (server, heard) = stubborn(u32::MAX, "40001");
    let plan = Plan { max_tries: 0, limit: Some(2 * MS + MS / 2), ..closed(1) };
    let seen = run(&plan, &[(1, "BEGIN;\nUPDATE;\nEND;")], server);
    assert_eq!(since(&heard, 2 * MS), ["ROLLBACK"]);
    assert_eq!((seen.count(Class::Failed), seen.in_order()[0].retries), (1, 0));
}

#[test]
fn a_transaction_due_before_the_end_and_begun_in_the_grace_period_is_tried_once() {
    let (server, heard) = stubborn(1, "40001");
    let mut server = server;
    server.freezes = vec![(9 * SECOND, 12 * SECOND)];
    let seen = run(&Plan { max_tries: 0, ..open(10.0) }, &[(1, "UPDATE;")], server);
    let behind: Vec<_> = seen.in_order().into_iter().filter(|o| o.done >= 12 * SECOND).collect();
    assert_eq!(behind.len(), 10);
    assert!(behind.iter().all(|o| o.retries == 0), "{behind:?}");
    assert_eq!(texts(&heard).len(), 190);
}

#[test]
fn a_rollback_is_sent_only_where_a_block_is_open() {
    for (script, expected) in [
        ("UPDATE;", vec!["UPDATE;", "UPDATE;"]),
        ("SELECT 1;\nUPDATE;", vec!["SELECT 1;", "UPDATE;", "SELECT 1;", "UPDATE;"]),
        (
            "BEGIN;\nUPDATE;\nEND;",
            vec!["BEGIN;", "UPDATE;", "ROLLBACK", "BEGIN;", "UPDATE;", "END;"],
        ),
        ("BEGIN;\nEND;\nUPDATE;", vec!["BEGIN;", "END;", "UPDATE;", "BEGIN;", "END;", "UPDATE;"]),
    ] {
        let (server, heard) = stubborn(1, "40001");
        run(&Plan { max_tries: 2, ..closed(1) }, &[(1, script)], server);
        assert_eq!(texts(&heard), expected);
    }
}

#[test]
fn another_try_begins_with_the_first_command_and_outside_all_conditions() {
    const SCRIPT: Texts<'_> = &[(
        1,
        "\\set n :n + 1\n\\if :n = 1\n\\if true\nUPDATE one;\n\\endif\nSELECT never;\n\
         \\elif :n = 2\nSELECT two;\n\\else\nSELECT never;\n\\endif\nSELECT end;",
    )];
    let (server, heard) = stubborn(1, "40001");
    let variables = vec![("n".into(), b"0".into())];
    run(&Plan { max_tries: 2, variables, ..closed(1) }, SCRIPT, server);
    assert_eq!(texts(&heard), ["UPDATE one;", "SELECT two;", "SELECT end;"]);
}

#[test]
fn a_retry_of_one_client_takes_nothing_from_the_others() {
    let calls = Arc::new(Mutex::new(0));
    let seen_calls = Arc::clone(&calls);
    let server = Server::new(move |call| {
        if call.connection == 0 {
            *seen_calls.lock().unwrap() += 1;
            return Answer::Error("40001", MS);
        }
        Answer::Rows(MS)
    });
    let plan = Plan { clients: 3, max_tries: 0, ..open(100.0) };
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!((seen.count(Class::OnTime), seen.count(Class::Failed)), (999, 1));
    assert!(seen.outcomes().all(|o| o.class == Class::Failed || o.sent == o.due));
    assert!(*calls.lock().unwrap() > 9_000);
}

#[test]
fn a_paced_clients_transactions_wait_for_its_retries() {
    let (server, _) = stubborn(9, "40001");
    let load = Load::Paced { rate: 200.0, arrivals: Arrivals::Even };
    let plan = Plan { max_tries: 0, limit: Some(SECOND), stop: Stop::Count(10), ..plan(load) };
    let seen = run(&plan, &[(1, "UPDATE;")], server);
    let all = seen.in_order();
    assert!(all.iter().all(|o| o.class == Class::OnTime && o.done - o.sent == 10 * MS));
    assert!(all.windows(2).all(|w| w[1].sent == w[0].done && w[1].due == w[0].due + 5 * MS));
}

#[test]
fn policy_skip_skips_what_waits_behind_retries_and_ends_those_at_the_limit() {
    let server = Server::new(|_| Answer::Error("40001", 15 * MS));
    let limit = 20 * MS;
    let plan = Plan { max_tries: 0, policy: Policy::Skip, limit: Some(limit), ..open(100.0) };
    let seen = run(&plan, &[(1, "UPDATE;")], server);
    let (skipped, failed) = (seen.count(Class::Skipped), seen.count(Class::Failed));
    assert_eq!(skipped + failed, 1000);
    assert!(skipped > 100 && failed > 100, "{skipped} skipped, {failed} failed");
    for outcome in seen.outcomes() {
        let passed = outcome.done - outcome.due;
        assert!((limit + 1..=limit + 15 * MS).contains(&passed), "{outcome:?}");
    }
}

#[test]
fn statements_say_how_often_they_failed_and_how_often_that_was_tried_again() {
    let (server, _) = stubborn(3, "40001");
    // Four tries would do: each second transaction needs one, then fails anew.
    let seen = run(&Plan { max_tries: 3, ..closed(4) }, &[(1, "BEGIN;\nUPDATE;\nEND;")], server);
    let mut sums: BTreeMap<u16, (u64, u64, u64)> = BTreeMap::new();
    for statement in seen.intervals().iter().flat_map(|i| &i.statements) {
        let sum = sums.entry(statement.command).or_default();
        sum.0 += statement.times.count;
        sum.1 += statement.failed;
        sum.2 += statement.retries;
    }
    // Tries: F F F! | S | F F F! | S
    assert_eq!(seen.count(Class::OnTime), 2);
    assert_eq!(sums[&0], (8, 0, 0), "BEGIN");
    assert_eq!(sums[&1], (2, 2, 4), "UPDATE");
    assert_eq!(sums[&2], (2, 0, 0), "END");
}

#[test]
fn every_failure_is_told_with_what_becomes_of_it() {
    let (server, _) = stubborn(2, "40001");
    let plan = Plan { max_tries: 2, verbose: true, limit: Some(100 * MS), ..closed(1) };
    let seen = run(&plan, &[(1, "SELECT 1;\nUPDATE;")], server);
    let expected = [
        "client 0 got an error in command 1 (SQL) of script 0; ERROR:  as asked",
        "client 0 repeats the transaction after the error (try 1/2, 2.000% of the maximum time \
         of tries was used)",
        "client 0 got an error in command 1 (SQL) of script 0; ERROR:  as asked",
        "client 0 ends the failed transaction (try 2/2, 4.000% of the maximum time of tries was \
         used)",
    ];
    assert_eq!(seen.lines(), expected);
    let (server, _) = stubborn(2, "40001");
    let seen = run(&Plan { max_tries: 2, ..closed(1) }, &[(1, "UPDATE;")], server);
    assert_eq!(seen.lines(), [""; 0], "only where it was asked for");
}

#[test]
fn a_connection_lost_between_two_tries_is_what_the_transaction_fails_with() {
    let mut tries = 0;
    let server = Server::new(move |call| {
        tries += u32::from(call.sql == "UPDATE;");
        match call.sql {
            "UPDATE;" if tries < 3 => Answer::Error("40001", MS),
            "ROLLBACK" if tries == 2 => Answer::Vanish(MS),
            _ => Answer::Rows(MS),
        }
    });
    let seen = run(&Plan { max_tries: 0, ..open(1.0) }, &[(1, "BEGIN;\nUPDATE;\nEND;")], server);
    let first = seen.in_order()[0];
    assert_eq!((first.class, first.sqlstate, first.retries), (Class::Failed, *b"08006", 1));
    assert_eq!(seen.count(Class::OnTime), 9);
}

#[test]
fn a_transaction_in_its_second_try_when_grace_ends_is_unfinished() {
    let server = Server::new(|call| match call.at {
        0..SECOND => Answer::Error("40001", 400 * MS),
        _ => Answer::Rows(99 * SECOND),
    });
    let load = Load::Closed { think: Think::None };
    let plan = Plan { max_tries: 0, stop: Stop::Time(2 * SECOND), ..plan(load) };
    let seen = run(&plan, ONE_STATEMENT, server);
    let [outcome] = seen.in_order()[..] else { panic!("one transaction") };
    assert_eq!((outcome.class, outcome.due), (Class::Unfinished, 0));
    assert_eq!(seen.keys.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 64, ..ProptestConfig::default()
    })]

    #[test]
    fn many_workers_retry_as_often_as_the_server_refuses(
        clients in 1u32..7, workers in 1usize..4, failures in 0u32..5, max_tries in 1u32..5,
    ) {
        let workers = workers.min(clients as usize);
        let servers = (0..workers).map(|_| stubborn(failures, "40001").0).collect();
        let plan = Plan { clients, max_tries, ..closed(10) };
        let seen = run_together(&plan, &[(1, "BEGIN;\nUPDATE;\nEND;")], servers);
        prop_assert_eq!(seen.outcomes().count(), 10 * clients as usize);
        let retries: u32 = seen.outcomes().map(|o: &Outcome| o.retries).sum();
        let failed: usize = seen.count(Class::Failed);
        if failures < max_tries {
            prop_assert_eq!((failed, retries), (0, 10 * clients * failures));
        } else {
            prop_assert!(failed > 0);
            prop_assert!(seen.outcomes().all(|o| o.retries < max_tries));
        }
    }
}
