//! How long clients are without a connection, and how they try to get one again.

use crate::support::trial::{ONE_STATEMENT, plan, run, run_together};
use crate::support::world::{Answer, Server};
use pgpaces_engine::interval::{Interval, Summary};
use pgpaces_engine::pace::{Arrivals, Ns, SECOND};
use pgpaces_engine::plan::{Load, Plan, Stop};
use pgpaces_engine::poll::clock::thread_cpu;
use pgpaces_engine::record::Batch;

const MS: Ns = 1_000_000;

fn open(clients: u32) -> Plan {
    Plan { clients, ..plan(Load::Open { rate: 100.0, arrivals: Arrivals::Even }) }
}

fn serving() -> Server {
    Server::new(|_| Answer::Rows(MS))
}

fn sum(intervals: &[Interval], of: fn(&Interval) -> u64) -> Ns {
    Ns::try_from(intervals.iter().map(of).sum::<u64>()).expect("a short run")
}

/// `BACKOFF`'s longest pause and its jitter: no client waits longer after the server is back.
const BACK_WITHIN: Ns = SECOND * 3 / 2;

/// The CPU time that this thread spends on a load which loses all of its idle clients at once.
fn cost_of_losing(clients: u32) -> Ns {
    let server = Server { outages: vec![(2 * SECOND, 2 * SECOND + MS)], ..serving() };
    let load = Load::Open { rate: 1000.0, arrivals: Arrivals::Even };
    let plan = Plan { clients, stop: Stop::Time(5 * SECOND), ..plan(load) };
    let begun = thread_cpu();
    let seen = run(&plan, ONE_STATEMENT, server);
    assert_eq!(seen.intervals().iter().map(|i| i.disconnects).sum::<u32>(), clients);
    thread_cpu() - begun
}

#[test]
fn losing_many_idle_clients_at_once_costs_as_much_as_there_are_of_them() {
    cost_of_losing(250);
    let (few, many) = (cost_of_losing(250), cost_of_losing(8000));
    assert!(many < 32 * 4 * few, "{few} ns for 250 clients, {many} ns for 8000");
}

#[test]
fn an_outage_of_the_server_lasts_as_long_for_its_clients_and_one_pause_longer() {
    for workers in [1, 2] {
        let (from, to) = (2 * SECOND + 500 * MS, 5 * SECOND);
        let servers = (0..workers).map(|_| Server { outages: vec![(from, to)], ..serving() });
        let seen = run_together(&open(4), ONE_STATEMENT, servers.collect());
        let intervals = seen.intervals();
        let [some, all] = [sum(&intervals, |i| i.some_down_ns), sum(&intervals, |i| i.all_down_ns)];
        let longest = intervals.iter().map(|i| i.outage_ns_max).max().expect("intervals");
        assert!(to - from <= all && all <= some && some <= to - from + BACK_WITHIN, "{all} {some}");
        assert_eq!(Ns::try_from(longest).expect("short"), some, "they began together");
        assert_eq!(intervals.iter().map(|i| i.outages).sum::<u32>(), 4);
        let down: Vec<_> = intervals.iter().take(8).map(|i| i.down).collect();
        assert_eq!(down[..5], [0, 0, 4, 4, 4]);
        assert_eq!(down[7], 0);
    }
}

#[test]
fn the_loss_of_one_connection_leaves_nobody_without_but_its_client() {
    let server = Server { cuts: vec![(3 * SECOND + MS / 2, 1)], ..serving() };
    let intervals = run(&open(4), ONE_STATEMENT, server).intervals();
    let some = sum(&intervals, |i| i.some_down_ns);
    assert!((5 * MS..=15 * MS).contains(&some), "the first pause, with its jitter: {some}");
    assert_eq!(sum(&intervals, |i| i.all_down_ns), 0);
    assert_eq!(intervals.iter().map(|i| i.outages).sum::<u32>(), 1);
}

#[test]
fn who_is_not_back_at_the_end_is_down_then_and_the_outage_lasts_until_then() {
    let server = Server { outages: vec![(9 * SECOND, 99 * SECOND)], ..serving() };
    let intervals = run(&open(3), ONE_STATEMENT, server).intervals();
    let last = intervals.last().expect("intervals");
    assert_eq!((last.down, intervals.iter().map(|i| i.outages).sum::<u32>()), (3, 0));
    let longest = Ns::try_from(last.outage_ns_max).expect("short");
    assert_eq!(longest, 6 * SECOND, "a second of the run, and the grace period");
    assert_eq!(sum(&intervals, |i| i.all_down_ns), longest);
}

#[test]
fn a_run_without_a_fault_has_no_outage() {
    for intervals in [
        run(&open(4), ONE_STATEMENT, serving()).intervals(),
        run(&Plan { connect_each: true, ..open(4) }, ONE_STATEMENT, serving()).intervals(),
    ] {
        let none = |i: &Interval| {
            i.outages == 0 && i.down == 0 && i.some_down_ns == 0 && i.all_down_ns == 0
        };
        assert!(intervals.iter().all(none));
    }
}

#[test]
fn pauses_between_attempts_grow_to_a_cap_and_are_no_beat_that_clients_share() {
    let clients = 5;
    let (tell, attempts) = std::sync::mpsc::channel();
    let outages = vec![(SECOND, 60 * SECOND)];
    let server = Server { outages, attempts: Some(tell), ..serving() };
    let plan = Plan { grace: 30 * SECOND, ..open(clients) };
    run(&plan, ONE_STATEMENT, server);
    let all: Vec<(Ns, usize)> = attempts.iter().filter(|(at, _)| *at > SECOND).collect();
    for client in 0..clients as usize {
        let mut last = SECOND;
        for (turn, (at, _)) in all.iter().filter(|(_, token)| *token == client).enumerate() {
            let pause = SECOND.min((10 * MS) << turn.min(20));
            let waited = at - last;
            assert!((pause / 2..=pause * 3 / 2).contains(&waited), "attempt {turn}: {waited}");
            last = *at;
        }
        assert!(last > 35 * SECOND, "it never gives up");
    }
    let mut instants: Vec<_> = all.iter().map(|(at, _)| at).collect();
    let tried = instants.len();
    instants.dedup();
    assert_eq!(instants.len(), tried, "no two clients at the same moment");
}

#[test]
fn changes_of_several_workers_are_counted_in_the_order_of_time() {
    let mut summary = Summary::new(2, 0);
    let batch =
        |down: &[(Ns, i32)]| Batch { ended: SECOND, down: down.to_vec(), ..Batch::default() };
    let mut batches = [batch(&[(100, 1), (500, -1)]), batch(&[(300, 1), (400, -1), (900, 1)])];
    let first = summary.interval(0, &mut batches, &[]);
    let (some, all) = (400 + u64::try_from(SECOND).expect("positive") - 900, 100);
    assert_eq!((first.some_down_ns, first.all_down_ns, first.down), (some, all, 1));
    let mut batches = [Batch { ended: 2 * SECOND, ..Batch::default() }];
    let second = summary.interval(1, &mut batches, &[]);
    assert_eq!((second.some_down_ns, second.all_down_ns), (1_000_000_000, 0));
}

#[test]
fn a_thread_that_has_ended_keeps_its_place_among_the_others() {
    let mut summary = Summary::new(2, 0);
    let mut batches = [Batch { worker: 1, cpu_ns: 333, ended: SECOND, ..Batch::default() }];
    assert_eq!(summary.interval(0, &mut batches, &[]).cpu_ns, [0, 333]);
}
