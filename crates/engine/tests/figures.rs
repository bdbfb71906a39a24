//! The figures from outside that ours must reproduce (docs/explanation/method.md, section 7), in
//! virtual time, and the table of them in docs/internals/figures.md, which each test holds
//! against what it found.

use crate::support::trial::{ONE_STATEMENT, plan, run, run_together};
use crate::support::world::{Answer, Server};
use pgpaces_engine::pace::{Arrivals, Due, Ns, SECOND, Think};
use pgpaces_engine::plan::{Load, Plan, Policy, Stop};
use pgpaces_engine::record::{Class, Outcome};
use pgpaces_engine::script::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};

const MS: Ns = 1_000_000;
const LIMIT: Ns = 50 * MS;

/// Leaves what a case gave where `make docs` finds it, and holds the page against it. `rows`: what is
/// measured, theory, measured, tolerance. The seeds are fixed, so that the page is always the same.
fn publish(place: u32, case: &str, rows: &[[String; 4]]) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let line = |[what, theory, found, within]: &[String; 4]| {
        format!("  {what:<14} {theory:>9}  {found:>19}  {within:>9}\n")
    };
    let lines: String = rows.iter().map(line).collect();
    let lines = format!("{case}\n{lines}");
    let folder = root.join("target/figures");
    std::fs::create_dir_all(&folder).expect("a folder for figures");
    std::fs::write(folder.join(format!("{place}.md")), &lines).expect("a file of figures");
    let page = root.join("docs/internals/figures.md");
    let page = std::fs::read_to_string(page).expect("the page of figures");
    assert!(page.contains(&lines), "the page of figures is out of date (make docs):\n{lines}");
}

/// A row of figures that must be met to the digit.
fn exact(what: &str, value: impl std::fmt::Display) -> [String; 4] {
    [what.into(), value.to_string(), value.to_string(), "exact".into()]
}

/// Tene's stall: a millisecond of work a statement, 100 s good, 100 s frozen; what waited is
/// answered in no time.
fn stalling() -> Server {
    let work = |at: Ns| if at < 200 * SECOND { MS } else { 0 };
    let mut server = Server::new(move |call| Answer::Rows(work(call.at)));
    server.freezes = vec![(100 * SECOND, 200 * SECOND)];
    server
}

fn mean(latencies: &[Ns]) -> f64 {
    latencies.iter().sum::<Ns>() as f64 / latencies.len() as f64
}

/// The lower order statistic.
fn quantile(latencies: &[Ns], q: f64) -> Ns {
    let rank = (q * latencies.len() as f64).ceil() as usize;
    latencies[rank.max(1) - 1]
}

#[test]
fn tenes_stall_is_seen_whole_under_an_open_load() {
    for clients in [1, 7, 100] {
        let load = Load::Open { rate: 100.0, arrivals: Arrivals::Even };
        let plan = Plan { clients, stop: Stop::Time(200 * SECOND), ..plan(load) };
        let latencies = run(&plan, ONE_STATEMENT, stalling()).latencies();
        assert_eq!(latencies.len(), 20_000);
        assert_eq!(mean(&latencies) / 1e9, 25.003);
        let found = [0.5, 0.75, 0.99, 1.0].map(|q| quantile(&latencies, q));
        assert_eq!(found, [MS, 50 * SECOND, 98 * SECOND, 100 * SECOND], "{clients} clients");
    }
    let rows = [
        exact("transactions", 20_000),
        exact("mean", "25.003 s"),
        exact("p50", "1 ms"),
        exact("p75", "50 s"),
        exact("p99", "98 s"),
        exact("maximum", "100 s"),
    ];
    publish(1, "Tene's stall, open, 1, 7 and 100 clients", &rows);
}

#[test]
fn tenes_stall_is_one_slow_transaction_to_a_closed_client() {
    let load = Load::Closed { think: Think::Fixed(9 * MS) };
    let plan = Plan { stop: Stop::Time(200 * SECOND), ..plan(load) };
    let latencies = run(&plan, ONE_STATEMENT, stalling()).latencies();
    assert_eq!(latencies.len(), 10_001);
    assert!((mean(&latencies) / 1e6 - 11.0).abs() < 0.01, "{}", mean(&latencies));
    assert_eq!(quantile(&latencies, 0.9999), MS);
    let mean = format!("{:.4} ms", mean(&latencies) / 1e6);
    let rows = [
        exact("transactions", 10_001),
        ["mean".into(), "11 ms".into(), mean, "0.01 ms".into()],
        exact("p99.99", "1 ms"),
    ];
    publish(2, "Tene's stall, closed, one client", &rows);
}

/// How long a statement takes.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Exponential,
    Constant,
}

/// A queue: Poisson arrivals at `rate` a second, and `clients` servers that do `mu` a second each.
#[derive(Clone, Copy)]
struct Queue {
    policy: Policy,
    rate: f64,
    clients: u32,
    mu: f64,
    work: Work,
}

/// The true percentage of all that is due, and how far ours may be from it: about four standard
/// errors of `SEEDS` seeds.
struct Truth {
    class: Class,
    percent: f64,
    within: f64,
}

fn truth(class: Class, percent: f64, within: f64) -> Truth {
    Truth { class, percent, within }
}

const SEEDS: u64 = 12;
const TRANSACTIONS: f64 = 40_000.0;

/// The outcomes of one seed: ten seconds to settle, then `TRANSACTIONS`.
fn outcomes(queue: Queue, seed: u64) -> Vec<Outcome> {
    let mut work = work(queue, seed);
    let server = Server::new(move |_| Answer::Rows(work()));
    let seen = run(&trial(queue, seed), ONE_STATEMENT, server);
    seen.outcomes().filter(|o| o.due >= 0).copied().collect()
}

fn work(queue: Queue, seed: u64) -> impl FnMut() -> Ns + Send + 'static {
    let mut random = Random::from_seed(seed + 1_000_000);
    move || {
        let units = match queue.work {
            Work::Exponential => random.exponential_unit(),
            Work::Constant => 1.0,
        };
        (units * 1e9 / queue.mu).round() as Ns
    }
}

fn trial(queue: Queue, seed: u64) -> Plan {
    let load = Load::Open { rate: queue.rate, arrivals: Arrivals::Poisson };
    Plan {
        clients: queue.clients,
        policy: queue.policy,
        limit: Some(LIMIT),
        warmup: 10 * SECOND,
        stop: Stop::Time((TRANSACTIONS / queue.rate * 1e9) as Ns),
        seed,
        ..plan(load)
    }
}

fn percent(outcomes: &[Outcome], class: Class) -> f64 {
    let count = outcomes.iter().filter(|o| o.class == class).count();
    count as f64 * 100.0 / outcomes.len() as f64
}

/// Mean and standard error.
fn estimate(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// Holds the mean over all seeds against each truth; the seeds' outcomes, and the rows of the table.
fn check(queue: Queue, truths: &[Truth]) -> (Vec<Vec<Outcome>>, Vec<[String; 4]>) {
    let mut rows = Vec::new();
    let seeds: Vec<_> = (1..=SEEDS).map(|seed| outcomes(queue, seed)).collect();
    for Truth { class, percent: truth, within } in truths {
        let each: Vec<_> = seeds.iter().map(|found| percent(found, *class)).collect();
        let (found, error) = estimate(&each);
        println!("{class:?}: {found:.4} % (standard error {error:.4}), truth {truth} %");
        assert!((found - truth).abs() <= *within, "{class:?}: {found} {error}, truth {truth}");
        let found = format!("{found:.4}% ± {error:.4}");
        let what = format!("{class:?} of due").to_lowercase();
        rows.push([what, format!("{truth}%"), found, format!("{within}%")]);
    }
    (seeds, rows)
}

#[test]
fn one_client_under_pgbenchs_rules_is_late_and_skips_as_the_theory_says() {
    let queue =
        Queue { policy: Policy::Skip, rate: 80.0, clients: 1, mu: 100.0, work: Work::Exponential };
    let (_, rows) =
        check(queue, &[truth(Class::Late, 9.6233, 0.2), truth(Class::Skipped, 7.6987, 0.3)]);
    publish(3, "pgbench's rules, one client: 80/s, 100/s served, limit 50 ms", &rows);
}

#[test]
fn four_clients_under_pgbenchs_rules_are_late_and_skip_as_the_theory_says() {
    let queue =
        Queue { policy: Policy::Skip, rate: 120.0, clients: 4, mu: 50.0, work: Work::Exponential };
    let (_, rows) =
        check(queue, &[truth(Class::Late, 10.7675, 0.25), truth(Class::Skipped, 0.2110, 0.04)]);
    publish(4, "pgbench's rules, four clients: 120/s, 50/s served each, limit 50 ms", &rows);
}

#[test]
fn one_client_that_runs_everything_is_late_as_the_theory_says() {
    let queue =
        Queue { policy: Policy::Run, rate: 80.0, clients: 1, mu: 100.0, work: Work::Exponential };
    let (_, rows) =
        check(queue, &[truth(Class::Late, 36.788, 2.0), truth(Class::Skipped, 0.0, 0.0)]);
    publish(5, "policy run, M/M/1: 80/s, 100/s served, limit 50 ms", &rows);
}

#[test]
fn four_clients_that_run_everything_are_late_as_the_theory_says() {
    let queue =
        Queue { policy: Policy::Run, rate: 320.0, clients: 4, mu: 100.0, work: Work::Exponential };
    let (_, rows) =
        check(queue, &[truth(Class::Late, 4.1265, 0.8), truth(Class::Skipped, 0.0, 0.0)]);
    publish(6, "policy run, M/M/4: 320/s, 100/s served each, limit 50 ms", &rows);
}

#[test]
fn constant_service_waits_as_the_theory_says() {
    let queue =
        Queue { policy: Policy::Run, rate: 80.0, clients: 1, mu: 100.0, work: Work::Constant };
    let (seeds, mut rows) = check(queue, &[truth(Class::Late, 15.4625, 1.1)]);
    let means: Vec<_> = seeds
        .iter()
        .map(|found| {
            let sum: Ns = found.iter().map(|o| o.done - o.due).sum();
            sum as f64 / found.len() as f64 / 1e6
        })
        .collect();
    let (found, error) = estimate(&means);
    println!("mean: {found:.4} ms (standard error {error:.4}), truth 30.0 ms");
    assert!((found - 30.0).abs() <= 1.0, "{found}");
    let found = format!("{found:.4} ms ± {error:.4}");
    rows.push(["mean".into(), "30 ms".into(), found, "1 ms".into()]);
    publish(7, "M/D/1: 80/s, 10 ms of work, limit 50 ms", &rows);
}

/// What the schedule and the service times say of every transaction (Kiefer and Wolfowitz'
/// recursion, with pgbench's rule for skipping): due, sent, done, class.
fn computed(queue: Queue, seed: u64, dues: &[Due]) -> Vec<(Ns, Ns, Ns, Class)> {
    let mut work = work(queue, seed);
    let start = -trial(queue, seed).warmup;
    let mut free: BinaryHeap<_> = (0..queue.clients).map(|_| Reverse(start)).collect();
    let each = |due: &Due| {
        let Reverse(at) = free.pop().expect("a client");
        if queue.policy == Policy::Skip && at - due.at > LIMIT {
            free.push(Reverse(at));
            return (due.at, at, at, Class::Skipped);
        }
        let sent = at.max(due.at);
        let done = sent + work();
        free.push(Reverse(done));
        let class = if done - due.at > LIMIT { Class::Late } else { Class::OnTime };
        (due.at, sent, done, class)
    };
    dues.iter().map(each).collect()
}

#[test]
fn one_worker_two_workers_and_the_queue_on_paper_agree_to_the_nanosecond() {
    for (policy, rate, clients) in [
        (Policy::Run, 80.0, 1),
        (Policy::Skip, 95.0, 1),
        (Policy::Run, 320.0, 4),
        (Policy::Skip, 480.0, 4),
        (Policy::Run, 900.0, 9),
    ] {
        let queue = Queue { policy, rate, clients, mu: 100.0, work: Work::Exponential };
        for workers in [1, 2] {
            let shared = Arc::new(Mutex::new(work(queue, 7)));
            let server = |_| {
                let work = Arc::clone(&shared);
                Server::new(move |_| Answer::Rows(work.lock().expect("no panic")()))
            };
            let plan =
                Plan { stop: Stop::Time(60 * SECOND), grace: 60 * SECOND, ..trial(queue, 7) };
            let servers = (0..workers.min(clients)).map(server).collect();
            let seen = run_together(&plan, ONE_STATEMENT, servers);
            let mut found: Vec<_> =
                seen.outcomes().map(|o| (o.due, o.sent, o.done, o.class)).collect();
            found.sort_unstable_by_key(|o| o.0);
            let expected = computed(queue, 7, seen.scheduled.as_deref().expect("an open load"));
            let same = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            assert_eq!(found.get(same), expected.get(same), "{rate}/s, {workers}, from {same} on");
            assert_eq!(found.len(), expected.len());
        }
    }
}
