//! What becomes of transactions when connections come and go.

use crate::support::trial::{ONE_STATEMENT, plan, run};
use crate::support::world::{Answer, Server};
use pgpaces_engine::interval::Interval;
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Think};
use pgpaces_engine::plan::{Load, Plan, Stop};
use pgpaces_engine::record::{Class, Outcome};

const MS: Ns = 1_000_000;

fn open(rate: f64, clients: u32) -> Plan {
    let load = Load::Open { rate, arrivals: Arrivals::Even };
    Plan { clients, ..plan(load) }
}

fn serving(work: Ns) -> Server {
    Server::new(move |_| Answer::Rows(work))
}

#[test]
fn what_a_lost_client_was_waiting_for_is_started_in_time_by_an_idle_one() {
    // A millisecond before it is due: too short to connect again.
    for (clients, cuts) in [
        (2, vec![(999 * MS, 1)]),
        (3, vec![(999 * MS, 1), (999 * MS, 2)]),
        (5, vec![(1999 * MS, 0), (1999 * MS, 2), (3999 * MS, 4)]),
        // Near the end, where some clients have nothing left to do.
        (8, vec![(6999 * MS, 7), (7999 * MS, 0), (8999 * MS, 1)]),
    ] {
        let mut server = serving(MS);
        server.cuts = cuts;
        let all = run(&open(1.0, clients), ONE_STATEMENT, server).in_order();
        assert_eq!(all.len(), 10);
        let in_time =
            |o: &&Outcome| o.class == Class::OnTime && o.sent == o.due && o.done == o.due + MS;
        let late: Vec<_> = all.iter().filter(|o| !in_time(o)).collect();
        assert!(late.is_empty(), "{clients} clients: {late:?}");
    }
}

#[test]
fn a_connection_timeout_is_for_the_next_client_and_not_for_all_of_them() {
    // Half of them may log in at a time, in 2 s each; the time-out is 3 s.
    let mut server = serving(MS);
    server.logins = Box::new(|_| Answer::Rows(2 * SECOND));
    let plan = Plan { warmup: 60 * SECOND, ..open(1.0, 64) };
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!(seen.count(Class::OnTime), 70);
}

#[test]
fn losing_all_clients_at_once_near_the_end_loses_no_transaction() {
    for (clients, at) in [(2, 8500), (4, 8500), (20, 8500), (20, 9500), (20, 500)] {
        let mut server = serving(MS);
        server.outages = vec![(at * MS, (at + 1) * MS)];
        let plan = Plan { grace: 60 * SECOND, ..open(1.0, clients) };
        let all = run(&plan, ONE_STATEMENT, server).in_order();
        let ends: Vec<_> = all.iter().map(|o| o.class).collect();
        assert_eq!(ends, [Class::OnTime; 10], "{clients} clients at {at} ms");
    }
}

#[test]
fn an_outage_is_a_queue_of_transactions_and_each_is_counted() {
    let mut server = serving(MS);
    server.outages = vec![(2 * SECOND + 1, 5 * SECOND)];
    let plan = Plan { limit: Some(50 * MS), ..open(100.0, 4) };
    let seen = run(&plan, ONE_STATEMENT, server);
    let intervals = seen.intervals();
    let count = |class| seen.outcomes().filter(|o| o.class == class).count();
    assert_eq!(count(Class::Failed), 1, "the one in flight");
    assert!(seen.outcomes().all(|o| o.class != Class::Failed || o.sqlstate == *b"08006"));
    // Due in the three seconds, and what waited behind them.
    assert!((295..400).contains(&count(Class::Late)), "{}", count(Class::Late));
    let sum = |of: fn(&Interval) -> u32| intervals.iter().map(of).sum::<u32>();
    assert_eq!((sum(|i| i.disconnects), sum(|i| i.connects)), (4, 4));
    assert!(intervals.iter().any(|i| i.messages.iter().any(|(state, _)| state == b"08006")));
}

#[test]
fn a_freeze_across_the_end_leaves_unfinished_what_was_due_and_nothing_else() {
    let mut server = serving(MS);
    server.freezes = vec![(9 * SECOND, 99 * SECOND)];
    let seen = run(&open(10.0, 3), ONE_STATEMENT, server);
    let count = |class| seen.outcomes().filter(|o| o.class == class).count();
    assert_eq!((count(Class::OnTime), count(Class::Unfinished)), (90, 3));
    assert_eq!(seen.untaken.len(), 7);
    assert_eq!(seen.keys, [(4711, 42); 3], "what the server still runs can be cancelled");
}

#[test]
fn a_freeze_that_ends_within_the_grace_period_leaves_nothing_unfinished() {
    let mut server = serving(MS);
    server.freezes = vec![(9 * SECOND, 14 * SECOND)];
    let seen = run(&open(10.0, 3), ONE_STATEMENT, server);
    assert_eq!(seen.latencies().len(), 100);
    assert_eq!(seen.latencies().last(), Some(&(5 * SECOND)));
    assert!(seen.keys.is_empty());
}

#[test]
fn a_failure_in_a_block_is_rolled_back_and_its_time_ends_with_the_failed_statement() {
    let server = Server::new(|call| match call.sql {
        "UPDATE;" => Answer::Error("40P01", 2 * MS),
        _ => Answer::Rows(MS),
    });
    let text = &[(1, "BEGIN;\nUPDATE;\nCOMMIT;")][..];
    let seen = run(&open(1.0, 1), text, server);
    let all = seen.in_order();
    assert_eq!(all.len(), 10);
    for outcome in all {
        assert_eq!((outcome.class, &outcome.sqlstate), (Class::Failed, b"40P01"));
        assert_eq!(outcome.done - outcome.sent, 3 * MS);
    }
    let in_flight: u128 = seen.intervals().iter().map(|i| i.in_flight_ns).sum();
    assert_eq!(in_flight, 30_000_000, "as long as their service, without the rollback");
}

#[test]
fn a_client_is_free_after_its_rollback_so_what_falls_due_meanwhile_is_no_lag_of_the_generator() {
    let server = || {
        Server::new(|call| match call.sql {
            "UPDATE;" => Answer::Error("40P01", MS),
            "ROLLBACK" => Answer::Rows(60 * MS),
            _ => Answer::Rows(MS),
        })
    };
    let text = &[(1, "BEGIN;\nUPDATE;\nCOMMIT;")][..];
    let seen = run(&open(20.0, 1), text, server());
    assert!(seen.outcomes().any(|o| o.sent - o.due > 10 * MS), "some wait for the rollback");
    for outcome in seen.outcomes().filter(|o| o.idle) {
        assert!(outcome.sent - outcome.due < MS, "{outcome:?}");
    }
    let closed = Plan { stop: Stop::Count(3), ..plan(Load::Closed { think: Think::None }) };
    let seen = run(&closed, text, server());
    let took: Vec<_> = seen.in_order().iter().map(|o| o.done - o.due).collect();
    assert_eq!(took, [2 * MS; 3], "the next is due when the client is free");
}

#[test]
fn a_closed_client_that_lost_its_connection_goes_on_where_it_was() {
    let mut server = serving(MS);
    server.cuts = vec![(4500 * MS, 0), (7000 * MS - MS / 2, 0)];
    let load = Load::Closed { think: Think::Fixed(SECOND - MS) };
    let plan = Plan { stop: Stop::Count(9), ..plan(load) };
    let all = run(&plan, ONE_STATEMENT, server).in_order();
    let ends: Vec<_> = all.iter().map(|o| o.class == Class::OnTime).collect();
    assert_eq!(ends, [true, true, true, true, true, true, false, true, true]);
}
