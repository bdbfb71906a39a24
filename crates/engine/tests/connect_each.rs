//! A connection for every transaction: when it is made, what it costs, and what becomes of a
//! transaction whose connection does not come about.

use crate::support::trial::{ONE_STATEMENT, Seen, plan, run, run_together};
use crate::support::world::{Answer, Server};
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Think};
use pgpaces_engine::plan::{Load, Plan, Policy, Protocol, Stop};
use pgpaces_engine::record::{Class, Outcome};
use std::sync::{Arc, Mutex};

const MS: Ns = 1_000_000;
const LOGIN: Ns = 3 * MS;

fn open(rate: f64, clients: u32) -> Plan {
    let load = Load::Open { rate, arrivals: Arrivals::Even };
    Plan { clients, connect_each: true, ..plan(load) }
}

fn closed(think: Ns, clients: u32) -> Plan {
    let think = if think == 0 { Think::None } else { Think::Fixed(think) };
    Plan { clients, connect_each: true, ..plan(Load::Closed { think }) }
}

/// When each login came, and by which connection.
type Logins = Arc<Mutex<Vec<(Ns, usize)>>>;

/// A server that lets everybody in after `LOGIN` and answers after a millisecond.
fn slow_to_let_in() -> (Server, Logins) {
    let logins: Logins = Arc::default();
    let told = Arc::clone(&logins);
    let mut server = Server::new(|_| Answer::Rows(MS));
    server.logins = Box::new(move |call| {
        told.lock().unwrap().push((call.at, call.connection));
        Answer::Rows(LOGIN)
    });
    (server, logins)
}

fn connect_ns(seen: &Seen) -> u64 {
    seen.sum(|batch| batch.connect_ns)
}

#[test]
fn each_transaction_of_a_closed_load_has_one_login_which_is_not_in_its_latency() {
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        for clients in [1, 3] {
            let (server, logins) = slow_to_let_in();
            let plan = Plan { stop: Stop::Count(10), protocol, ..closed(0, clients) };
            let seen = run(&plan, ONE_STATEMENT, server);
            let count = 10 * clients as usize;
            assert_eq!(seen.latencies(), vec![MS; count]);
            assert_eq!(logins.lock().unwrap().len(), count);
            assert_eq!(connect_ns(&seen), (count as u64) * LOGIN as u64);
            assert!(seen.outcomes().all(|o| o.due == o.sent));
            let mut own: Vec<Outcome> =
                seen.in_order().into_iter().filter(|o| o.client == 0).collect();
            own.sort_by_key(|o| o.due);
            let dues: Vec<_> = own.iter().map(|o| o.due).collect();
            let expected: Vec<Ns> = (0..10).map(|n| n * (LOGIN + MS) + LOGIN).collect();
            assert_eq!(dues, expected, "due when connected");
        }
    }
}

#[test]
fn a_closed_client_thinks_without_a_connection() {
    let (server, logins) = slow_to_let_in();
    let plan = Plan { stop: Stop::Count(3), ..closed(10 * MS, 1) };
    let seen = run(&plan, ONE_STATEMENT, server);
    let begun: Vec<_> = logins.lock().unwrap().iter().map(|(at, _)| *at).collect();
    assert_eq!(begun, [10 * MS, 24 * MS, 38 * MS]);
    assert_eq!(seen.latencies(), [MS; 3]);
}

#[test]
fn an_open_loads_transactions_are_due_by_schedule_and_their_lag_contains_connecting() {
    let (server, logins) = slow_to_let_in();
    let seen = run(&open(10.0, 2), ONE_STATEMENT, server);
    let all = seen.in_order();
    assert_eq!(all.len(), 100);
    for (n, outcome) in all.iter().enumerate() {
        let due = n as Ns * 100 * MS;
        assert_eq!((outcome.due, outcome.sent), (due, due + LOGIN));
        assert_eq!((outcome.done, outcome.class), (due + LOGIN + MS, Class::OnTime));
        assert!(!outcome.idle, "connecting is no lag of the generator's");
    }
    assert_eq!(logins.lock().unwrap().len(), 100);
    assert_eq!(connect_ns(&seen), 100 * LOGIN as u64);
}

#[test]
fn a_paced_users_connection_is_made_when_its_transaction_is_due() {
    let load = Load::Paced { rate: 10.0, arrivals: Arrivals::Even };
    let (server, logins) = slow_to_let_in();
    let plan = Plan { clients: 3, connect_each: true, stop: Stop::Count(5), ..plan(load) };
    let seen = run(&plan, ONE_STATEMENT, server);
    let mut dues: Vec<_> = seen.outcomes().map(|o| o.due).collect();
    dues.sort_unstable();
    let begun: Vec<_> = logins.lock().unwrap().iter().map(|(at, _)| *at).collect();
    assert_eq!(begun, dues);
    assert!(seen.outcomes().all(|o| o.sent == o.due + LOGIN));
}

#[test]
fn what_is_skipped_does_not_connect() {
    let (server, logins) = slow_to_let_in();
    let plan = Plan { policy: Policy::Skip, limit: Some(20 * MS), ..open(500.0, 1) };
    let seen = run(&plan, ONE_STATEMENT, server);
    let skipped = seen.count(Class::Skipped);
    assert_eq!(seen.outcomes().count(), 5000);
    assert!(skipped > 2000, "{skipped}");
    // Some were in time before they connected, and not when they had.
    let started = 5000 - skipped;
    let logins = logins.lock().unwrap().len();
    assert!((started..=started + 1).contains(&logins), "{logins} logins, {started} started");
}

#[test]
fn what_is_too_late_when_it_is_connected_is_skipped_and_the_connection_serves_the_next() {
    let (mut server, logins) = slow_to_let_in();
    let told = Arc::clone(&logins);
    server.logins = Box::new(move |call| {
        told.lock().unwrap().push((call.at, call.connection));
        Answer::Rows(if call.at < SECOND { 250 * MS } else { MS })
    });
    let plan = Plan { policy: Policy::Skip, limit: Some(120 * MS), ..open(10.0, 1) };
    let seen = run(&plan, ONE_STATEMENT, server);
    let all = seen.in_order();
    let first: Vec<_> = all[..3].iter().map(|o| (o.class, o.sent)).collect();
    // Connected at 250 ms: what was due at 0 and 100 is too late, at 200 not.
    let at = 250 * MS;
    assert_eq!(first, [(Class::Skipped, at), (Class::Skipped, at), (Class::OnTime, at)]);
    assert_eq!(all.len(), 100);
}

#[test]
fn a_retried_transaction_stays_on_its_connection() {
    let (mut server, logins) = slow_to_let_in();
    let mut calls = 0;
    server.service = Box::new(move |_| {
        calls += 1;
        if calls % 3 == 0 { Answer::Rows(MS) } else { Answer::Error("40001", MS) }
    });
    let plan = Plan { stop: Stop::Count(5), max_tries: 3, ..closed(0, 1) };
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!(seen.latencies(), [3 * MS; 5]);
    assert_eq!(logins.lock().unwrap().len(), 5);
}

#[test]
fn no_transaction_is_due_when_its_connection_comes_about_behind_the_end() {
    for (stop, expected) in [(9 * MS, 2), (11 * MS, 2), (11 * MS + 1, 3), (12 * MS, 3)] {
        let (server, _) = slow_to_let_in();
        let plan = Plan { stop: Stop::Time(stop), ..closed(0, 1) };
        let seen = run(&plan, ONE_STATEMENT, server);
        // Connected, and due, at 3, 7 and 11 ms.
        assert_eq!(seen.outcomes().count(), expected, "the end is at {stop}");
        assert!(seen.outcomes().all(|o| o.due < stop && o.class == Class::OnTime));
    }
}

#[test]
fn what_is_connecting_at_the_end_of_an_open_load_is_served_in_the_grace_period() {
    let (server, _) = slow_to_let_in();
    let plan = Plan { stop: Stop::Time(900 * MS + 1), ..open(10.0, 4) };
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!(seen.latencies(), [LOGIN + MS; 10]);
    let plan = Plan { grace: 0, ..plan };
    let seen = run(&plan, ONE_STATEMENT, slow_to_let_in().0);
    assert_eq!((seen.count(Class::OnTime), seen.count(Class::Unfinished)), (9, 1));
}

/// A server that loses the connections whose logins begin in this time.
fn losing(from: Ns, to: Ns) -> Server {
    let (mut server, _) = slow_to_let_in();
    server.logins = Box::new(move |call| match (from..to).contains(&call.at) {
        true => Answer::Vanish(MS),
        false => Answer::Rows(LOGIN),
    });
    server
}

#[test]
fn a_connection_lost_while_it_is_made_is_made_again_where_it_recovers() {
    let server = losing(SECOND, SECOND + 500 * MS);
    let plan = Plan { stop: Stop::Count(300), ..closed(0, 2) };
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!(seen.latencies(), [MS; 600], "it is no failure, for nothing was due");

    let seen = run(&open(10.0, 2), ONE_STATEMENT, losing(SECOND, SECOND + 500 * MS));
    assert_eq!(seen.count(Class::OnTime), 100);
    let late: Vec<_> = seen.outcomes().filter(|o| o.sent - o.due > LOGIN).collect();
    assert!(!late.is_empty() && late.iter().all(|o| (0..2 * SECOND).contains(&o.due)));
}

#[test]
fn a_connection_lost_while_it_is_made_aborts_its_client_where_it_does_not_recover() {
    for load in [open(10.0, 2), closed(96 * MS, 2)] {
        let plan = Plan { recover: false, exit_on_abort: false, ..load };
        let seen = run(&plan, ONE_STATEMENT, losing(SECOND, SECOND + 100 * MS));
        let aborted = seen.sum(|batch| u64::from(batch.aborted));
        let lines = seen.lines();
        if matches!(plan.load, Load::Open { .. }) {
            // The other one takes its transaction, and fails too: the run is over.
            assert_eq!(aborted, 2);
            assert_eq!(seen.end, SECOND + 2 * MS);
            assert_eq!(seen.count(Class::OnTime), 10);
            assert_eq!(seen.outcomes().count() + seen.untaken.len(), 11);
        } else {
            assert_eq!((aborted, seen.count(Class::Failed)), (2, 0));
        }
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("the server closed the connection"), "{lines:?}");
        assert!(lines[1].contains("aborted while establishing connection"), "{lines:?}");
    }
}

#[test]
fn a_client_that_is_refused_tries_again_ever_more_rarely_and_then_leaves() {
    let logins = Arc::new(Mutex::new([0; 2]));
    for load in [open(10.0, 2), closed(96 * MS, 2)] {
        let told = Arc::clone(&logins);
        *told.lock().unwrap() = [0; 2];
        let (mut server, _) = slow_to_let_in();
        server.logins = Box::new(move |call| {
            told.lock().unwrap()[call.connection] += 1;
            match call.connection {
                1 if call.at >= SECOND => Answer::Error("28P01", MS),
                _ => Answer::Rows(LOGIN),
            }
        });
        let seen = run(&load, ONE_STATEMENT, server);
        let [other, refused] = *logins.lock().unwrap();
        assert!(other > 80 && refused <= 24, "{other} and {refused} logins");
        let notes: usize = seen.intervals().iter().map(|i| i.notes.len()).sum();
        assert_eq!(notes, 1);
        assert_eq!(seen.count(Class::Failed) + seen.count(Class::Unfinished), 0);
        if matches!(load.load, Load::Open { .. }) {
            assert_eq!(seen.count(Class::OnTime), 100, "the other one serves everything");
        }
    }
}

#[test]
fn when_everybody_is_refused_what_is_due_stays_unfinished() {
    let (mut server, _) = slow_to_let_in();
    let count = Arc::new(Mutex::new(0));
    let told = Arc::clone(&count);
    server.logins = Box::new(move |call| {
        *told.lock().unwrap() += 1;
        match call.at < SECOND {
            true => Answer::Rows(LOGIN),
            false => Answer::Error("28000", MS),
        }
    });
    let seen = run(&open(10.0, 3), ONE_STATEMENT, server);
    assert_eq!(seen.count(Class::OnTime), 10);
    assert_eq!(seen.count(Class::Unfinished) + seen.untaken.len(), 90);
    assert!(*count.lock().unwrap() <= 10 + 3 * 12, "{}", count.lock().unwrap());
}

#[test]
fn several_workers_share_the_arrivals() {
    let servers = (0..3).map(|_| slow_to_let_in().0).collect();
    let seen = run_together(&open(300.0, 6), ONE_STATEMENT, servers);
    assert_eq!(seen.count(Class::OnTime), 3000);
    assert!(seen.outcomes().all(|o| o.sent == o.due + LOGIN));
    assert_eq!(connect_ns(&seen), 3000 * LOGIN as u64);
}

#[test]
fn everything_prepared_is_prepared_again_on_each_connection() {
    // The backend in virtual time panics where a statement is bound that it does not know.
    let (server, _) = slow_to_let_in();
    let plan = Plan { stop: Stop::Count(4), protocol: Protocol::Prepared, ..closed(0, 2) };
    let texts = &[(1, "SELECT 1;\n\\startpipeline\nSELECT 2;\nSELECT 3;\n\\endpipeline")];
    let seen = run(&plan, texts, server);
    assert_eq!(seen.count(Class::OnTime), 8);
}

#[test]
fn what_every_connection_runs_first_is_run_on_each_and_is_not_in_the_latency() {
    let (mut server, _) = slow_to_let_in();
    let heard = Arc::new(Mutex::new(0));
    let told = Arc::clone(&heard);
    server.service = Box::new(move |call| {
        *told.lock().unwrap() += u32::from(call.sql == "SET x = 1");
        Answer::Rows(MS)
    });
    let on_connect = vec!["SET x = 1".to_owned()];
    let plan = Plan { stop: Stop::Count(5), on_connect, ..closed(0, 1) };
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!((*heard.lock().unwrap(), seen.latencies()), (5, vec![MS; 5]));
    assert_eq!(connect_ns(&seen), 5 * (LOGIN + MS) as u64);
}
