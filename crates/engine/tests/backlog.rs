//! What becomes at the end of what was due and has not begun.

use crate::support::trial::{ONE_STATEMENT, Seen, plan, run, run_together};
use crate::support::world::{Answer, Server};
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Think};
use pgpaces_engine::plan::{Backlog, Load, Plan, Policy};
use pgpaces_engine::record::{Class, Outcome};

const MS: Ns = 1_000_000;
const END: Ns = 10 * SECOND;

fn dropping(load: Load, clients: u32) -> Plan {
    Plan { clients, backlog: Backlog::Drop, ..plan(load) }
}

fn even(rate: f64) -> Load {
    Load::Open { rate, arrivals: Arrivals::Even }
}

fn overloaded() -> Server {
    Server::new(|_| Answer::Rows(95 * MS))
}

fn has_run(outcome: &&Outcome) -> bool {
    matches!(outcome.class, Class::OnTime | Class::Late)
}

fn started(seen: &Seen) -> usize {
    seen.count(Class::OnTime) + seen.count(Class::Late)
}

#[test]
fn what_has_not_begun_at_the_end_is_unfinished_and_what_is_in_flight_runs_on() {
    for workers in [1, 2] {
        let servers = (0..workers).map(|_| overloaded()).collect();
        let plan = dropping(even(100.0), 4);
        let seen = run_together(&plan, ONE_STATEMENT, servers);
        // Of four clients three do 106; the last of each began before the end.
        assert_eq!(started(&seen), 423);
        assert_eq!(seen.count(Class::Unfinished) + seen.untaken.len(), 1000 - 423);
        assert!(seen.outcomes().filter(has_run).all(|o| o.sent < END));
        assert!(seen.outcomes().any(|o| o.done > END && o.class == Class::OnTime));
        assert!(seen.ends().iter().all(|end| *end < END + 95 * MS + 1), "no grace is needed");
    }
}

#[test]
fn under_policy_skip_what_is_too_late_by_then_is_skipped() {
    let plan = Plan { policy: Policy::Skip, limit: Some(200 * MS), ..dropping(even(100.0), 1) };
    let seen = run(&plan, ONE_STATEMENT, overloaded());
    assert_eq!(seen.outcomes().count(), 1000);
    let unfinished: Vec<_> =
        seen.outcomes().filter(|o| o.class == Class::Unfinished).copied().collect();
    assert!(!unfinished.is_empty());
    assert!(unfinished.iter().all(|o| o.done - o.due <= 200 * MS && o.sent == o.done));
    let skipped = seen.outcomes().filter(|o| o.class == Class::Skipped);
    let lates: Vec<_> = skipped.map(|o| o.done - o.due).collect();
    assert!(lates.len() > 500 && lates.iter().all(|late| *late > 200 * MS));
}

#[test]
fn a_paced_users_backlog_is_dropped_too() {
    let load = Load::Paced { rate: 50.0, arrivals: Arrivals::Even };
    let seen = run(&dropping(load, 2), ONE_STATEMENT, overloaded());
    assert_eq!(started(&seen), 2 * 106);
    assert_eq!(seen.count(Class::Unfinished), 1000 - 2 * 106);
    assert!(seen.outcomes().filter(has_run).all(|o| o.sent < END));
    assert!(seen.ends()[0] < END + 95 * MS + 1);
}

#[test]
fn a_closed_load_has_no_backlog() {
    let load = Load::Closed { think: Think::Fixed(5 * MS) };
    for backlog in [Backlog::Serve, Backlog::Drop] {
        let seen = run(&Plan { backlog, ..plan(load) }, ONE_STATEMENT, overloaded());
        assert_eq!((started(&seen), seen.outcomes().count()), (100, 100));
    }
}

#[test]
fn what_is_served_where_nothing_is_dropped_makes_the_difference() {
    let seen = run(
        &Plan { clients: 4, grace: 99 * SECOND, ..plan(even(100.0)) },
        ONE_STATEMENT,
        overloaded(),
    );
    assert_eq!(started(&seen), 1000);
}

#[test]
fn a_client_that_comes_back_behind_the_end_starts_nothing() {
    let mut server = Server::new(|_| Answer::Rows(MS));
    server.outages = vec![(9 * SECOND, END + SECOND)];
    let seen = run(&dropping(even(10.0), 2), ONE_STATEMENT, server);
    assert!(seen.outcomes().filter(has_run).all(|o| o.sent < END));
    assert_eq!(started(&seen) + seen.count(Class::Failed), 90);
    assert_eq!(seen.count(Class::Unfinished) + seen.untaken.len(), 10);
}

#[test]
fn with_a_connection_for_each_transaction_nothing_begins_behind_the_end() {
    for load in [even(10.0), Load::Closed { think: Think::None }] {
        let mut server = Server::new(|_| Answer::Rows(30 * MS));
        server.logins = Box::new(|_| Answer::Rows(150 * MS));
        let plan = Plan { connect_each: true, ..dropping(load, 1) };
        let seen = run(&plan, ONE_STATEMENT, server);
        assert!(seen.outcomes().filter(has_run).all(|o| o.sent < END), "{load:?}");
        let left = seen.count(Class::Unfinished) + seen.untaken.len();
        assert_eq!(left > 0, matches!(load, Load::Open { .. }));
    }
}
