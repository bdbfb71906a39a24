//! What holds for every trial, whatever the load, the server and the line to it do: each due
//! transaction ends in exactly one class, and all sums fit together.

use crate::support::trial::{Seen, Texts, attempt, plan};
use crate::support::world::{Answer, Server, Workforce};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use pgpaces_engine::client::ShellEnd;
use pgpaces_engine::interval::{Interval, Tally};
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Think};
use pgpaces_engine::plan::{Backlog, Load, Plan, Policy, Protocol, Stop};
use pgpaces_engine::record::Class;
use pgpaces_engine::script::random::Random;
use pgpaces_engine::shape::Segment;
use pgpaces_engine::times::Times;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: Ns = 1_000_000;

const TEXTS: &[Texts<'static>] = &[
    &[(1, "SELECT 1;")],
    &[(3, "SELECT 1;"), (1, "BEGIN;\nUPDATE t SET a = 1;\nSELECT 2;\nCOMMIT;")],
    &[(1, "\\sleep 3 ms\nSELECT 1;\n\\sleep 2 ms"), (1, "BEGIN;\nSELECT 1;")],
    &[(1, "\\set x 1"), (2, "SELECT :x;\nSELECT :x + 1;")],
    &[(1, "\\if random(1, 40) = 1\n\\set x 1 / 0\n\\endif\nBEGIN;\nSELECT 1;\nEND;")],
    &[(1, "\\startpipeline\nBEGIN;\nSELECT 1;\n\\syncpipeline\n\\sleep 2 ms\nEND;\n\\endpipeline")],
    &[(1, "\\shell a\nSELECT 1 AS x \\gset\n\\setshell y b\nSELECT :x, :y;")],
];

/// What the server and the line do.
#[derive(Debug, Clone)]
struct Weather {
    work: Ns,
    exponential: bool,
    shared: bool,
    /// One statement in so many fails in a way that may pass, and one in ten times as many in
    /// another way; one in ten times as many loses its connection.
    failing: u64,
    login: Ns,
    cuts: Vec<(Ns, usize)>,
    freezes: Vec<(Ns, Ns)>,
    outages: Vec<(Ns, Ns)>,
    receive_max: usize,
    send_max: usize,
    tick: Ns,
}

#[derive(Debug, Clone)]
struct Case {
    plan: Plan,
    texts: usize,
    workers: usize,
    weather: Weather,
}

fn load() -> impl Strategy<Value = Load> {
    let arrivals = || prop_oneof![Just(Arrivals::Poisson), Just(Arrivals::Even)];
    let think = prop_oneof![
        Just(Think::None),
        (1..200 * MS).prop_map(Think::Fixed),
        (1..200 * MS).prop_map(Think::Exponential),
    ];
    prop_oneof![
        (0.5..200.0, arrivals()).prop_map(|(rate, arrivals)| Load::Open { rate, arrivals }),
        (0.5..40.0, arrivals()).prop_map(|(rate, arrivals)| Load::Paced { rate, arrivals }),
        think.prop_map(|think| Load::Closed { think }),
    ]
}

/// Multipliers of the rate, in any number of parts of a trial that lasts so long.
fn shapes() -> impl Strategy<Value = Vec<(f64, f64, f64)>> {
    let multiplier = || prop_oneof![1 => Just(0.0), 4 => 0.1..3.0f64];
    let part = (0.0..1.0f64, multiplier(), multiplier());
    prop_oneof![Just(Vec::new()), prop::collection::vec(part, 1..5)]
}

/// The shape with these parts in a trial that can have one.
fn shape(parts: &[(f64, f64, f64)], load: Load, stop: Stop) -> Vec<Segment> {
    let Stop::Time(duration) = stop else { return Vec::new() };
    if matches!(load, Load::Closed { .. }) || parts.iter().all(|part| part.1 + part.2 == 0.0) {
        return Vec::new();
    }
    let mut starts: Vec<_> = parts.iter().map(|part| (part.0 * duration as f64) as Ns).collect();
    starts.sort_unstable();
    starts[0] = 0;
    let segments = starts.into_iter().zip(parts);
    segments.map(|(start, (_, from, to))| Segment { start, from: *from, to: *to }).collect()
}

prop_compose! {
    fn plans()(
        load in load(),
        (clients, seed) in (1u32..9, any::<u64>()),
        skips: bool,
        (limit, own) in (prop::option::of(1..100 * MS), prop::option::of(1..100 * MS)),
        parts in shapes(),
        stop in prop_oneof![
            (1..4 * SECOND).prop_map(Stop::Time), (1u64..40).prop_map(Stop::Count)
        ],
        warmup in prop_oneof![Just(0), 1..2 * SECOND],
        grace in prop_oneof![Just(0), 1..SECOND],
        protocol in prop_oneof![
            Just(Protocol::Simple), Just(Protocol::Extended), Just(Protocol::Prepared)
        ],
        rules in rules(),
    ) -> Plan {
        let can_skip = limit.is_some() && !matches!(load, Load::Closed { .. });
        let policy = if skips && can_skip { Policy::Skip } else { Policy::Run };
        let shape = shape(&parts, load, stop);
        let limits = own.map(|limit| (0, limit)).into_iter().collect();
        let Rules { mut max_tries, drops, lenient, exit_on_abort, connect_each, time_commands } = rules;
        if limit.is_none() && matches!(stop, Stop::Count(_)) {
            max_tries = max_tries.max(1);
        }
        let (continue_on_error, recover) = lenient;
        let backlog = if drops { Backlog::Drop } else { Backlog::Serve };
        Plan {
            clients, limit, limits, shape, policy, stop, warmup, grace, protocol, seed: seed >> 1, backlog, max_tries,
            continue_on_error, exit_on_abort, recover, connect_each, time_commands, verbose: drops,
            ..plan(load)
        }
    }
}

/// What a failure means.
#[derive(Debug, Clone)]
struct Rules {
    max_tries: u32,
    drops: bool,
    /// Whether errors, and lost connections, are data.
    lenient: (bool, bool),
    exit_on_abort: bool,
    connect_each: bool,
    time_commands: bool,
}

prop_compose! {
    fn rules()(
        max_tries in 0u32..5,
        (drops, connect_each, time_commands) in any::<(bool, bool, bool)>(),
        lenient in any::<(bool, bool)>(),
        exit_on_abort in prop::bool::weighted(0.2),
    ) -> Rules {
        Rules { max_tries, drops, lenient, exit_on_abort, connect_each, time_commands }
    }
}

/// Begin and end of something that lasts, within the trial or across its end.
fn spans(count: usize) -> impl Strategy<Value = Vec<(Ns, Ns)>> {
    let span = (-SECOND..5 * SECOND, 1..SECOND).prop_map(|(from, length)| (from, from + length));
    prop::collection::vec(span, 0..=count)
}

prop_compose! {
    fn weathers()(
        (work, login) in (MS..100 * MS, prop_oneof![Just(0), 1..50 * MS]),
        (exponential, shared) in any::<(bool, bool)>(),
        failing in prop_oneof![Just(u64::MAX / 16), 3u64..50],
        cuts in prop::collection::vec((-SECOND..5 * SECOND, 0usize..8), 0..6),
        (freezes, outages) in (spans(2), prop_oneof![Just(Vec::new()), spans(1)]),
        receive_max in prop_oneof![Just(usize::MAX), 1usize..40],
        send_max in prop_oneof![Just(usize::MAX), 1usize..40],
        tick in prop_oneof![Just(0), 1..2000i64],
    ) -> Weather {
        Weather {
            work, login, exponential, shared, failing, cuts, freezes, outages, receive_max, send_max, tick,
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    (plans(), 0..TEXTS.len(), 1usize..4, weathers()).prop_map(|(plan, texts, workers, weather)| {
        let workers = workers.min(plan.clients as usize);
        Case { plan, texts, workers, weather }
    })
}

/// The server of one worker, whose clients are so many.
fn server(case: &Case, number: usize) -> Server {
    let weather = case.weather.clone();
    let clients = case.plan.clients as usize;
    let own = clients * (number + 1) / case.workers - clients * number / case.workers;
    let mut random = Random::from_seed(case.plan.seed + number as u64);
    let (work, exponential, failing) = (weather.work, weather.exponential, weather.failing);
    let mut server = Server::new(move |call| {
        let units = if exponential { random.exponential_unit() } else { 1.0 };
        let work = (units * work as f64) as Ns;
        match random.up_to(10 * failing) {
            0 => Answer::Vanish(work),
            1..=10 if call.sql != "ROLLBACK" => Answer::Error("40001", work),
            11 if call.sql != "ROLLBACK" => Answer::Error("23505", work),
            _ => Answer::Rows(work),
        }
    });
    let (login, mut shells) = (weather.login, Random::from_seed(case.plan.seed));
    // All are let in before the start.
    let start = -case.plan.warmup;
    server.logins = Box::new(move |call| Answer::Rows(if call.at < start { 0 } else { login }));
    server.shells = Box::new(move |_| {
        (shells.uniform(0, 9) * MS, ShellEnd { succeeded: true, line: Some(b"7".to_vec()) })
    });
    if weather.shared {
        server.workforce = Workforce::shared(2);
    }
    let runs = |(from, _): &(Ns, Ns)| *from >= -case.plan.warmup;
    let cuts = weather.cuts.into_iter();
    server.cuts = cuts.filter(|(at, token)| runs(&(*at, 0)) && *token < own).collect();
    server.freezes = weather.freezes.into_iter().filter(runs).collect();
    server.outages = weather.outages.into_iter().filter(runs).collect();
    server.receive_max = weather.receive_max;
    server.send_max = weather.send_max;
    server.tick = weather.tick;
    server
}

fn trial(case: &Case) -> Seen {
    let servers = (0..case.workers).map(|number| server(case, number)).collect();
    attempt(&case.plan, TEXTS[case.texts], servers)
}

/// All intervals' tallies by due second and script.
fn by_second(intervals: &[Interval]) -> BTreeMap<(i64, u16), Vec<&Tally>> {
    let mut found: BTreeMap<_, Vec<&Tally>> = BTreeMap::new();
    for tally in intervals.iter().flat_map(|interval| &interval.tallies) {
        found.entry((tally.due_second, tally.script)).or_default().push(tally);
    }
    found
}

fn ended(tally: &Tally) -> u64 {
    let failed: u64 = tally.failed.values().sum();
    tally.on_time + tally.late + tally.skipped + failed + tally.unfinished
}

fn in_histogram(times: &Times) -> u64 {
    if times.histogram.is_empty() {
        return 0;
    }
    let found: Histogram<u64> =
        Deserializer::new().deserialize(&mut &times.histogram[..]).expect("HdrHistogram's V2");
    found.len()
}

fn each_due_transaction_ends_in_one_class(intervals: &[Interval]) -> Result<(), TestCaseError> {
    for (key, tallies) in by_second(intervals) {
        let due: u64 = tallies.iter().map(|t| t.due).sum();
        let ended: u64 = tallies.iter().map(|tally| ended(tally)).sum();
        prop_assert_eq!(due, ended, "due second and script {:?}", key);
    }
    Ok(())
}

fn what_the_schedule_says_is_what_ends(seen: &Seen) -> Result<(), TestCaseError> {
    let Some(scheduled) = &seen.scheduled else {
        return Ok(());
    };
    // What was started before its worker saw that the end was brought forward was due.
    let after = seen.outcomes().filter(|o| o.due >= seen.end).map(|o| (o.due, o.script));
    let mut expected: Vec<_> =
        scheduled.iter().map(|due| (due.at, due.script)).chain(after).collect();
    let untaken = seen.untaken.iter().map(|due| (due.at, due.script));
    let mut found: Vec<_> = seen.outcomes().map(|o| (o.due, o.script)).chain(untaken).collect();
    expected.sort_unstable();
    found.sort_unstable();
    prop_assert_eq!(found, expected);
    Ok(())
}

fn nothing_ends_in_a_second_before_it_was_due(seen: &Seen) -> Result<(), TestCaseError> {
    for batch in seen.batches.iter().flatten() {
        for outcome in &batch.outcomes {
            prop_assert!(outcome.due < (batch.second + 1) * SECOND, "{:?}", outcome);
        }
    }
    Ok(())
}

fn each_outcome_fits_its_times(seen: &Seen, plan: &Plan) -> Result<(), TestCaseError> {
    for outcome in seen.outcomes() {
        prop_assert!(outcome.due <= outcome.sent && outcome.sent <= outcome.done, "{:?}", outcome);
        prop_assert!(outcome.due >= -plan.warmup, "{:?}", outcome);
        if let Stop::Time(end) = plan.stop {
            prop_assert!(outcome.due < end, "{:?}", outcome);
        }
        let own = plan.limits.iter().find(|(script, _)| *script == outcome.script);
        let limit = own.map(|(_, limit)| *limit).or(plan.limit);
        let is_late = limit.is_some_and(|limit| outcome.done - outcome.due > limit);
        match outcome.class {
            Class::OnTime => prop_assert!(!is_late, "{:?}", outcome),
            Class::Late => prop_assert!(is_late, "{:?}", outcome),
            Class::Skipped => prop_assert!(is_late && outcome.sent == outcome.done),
            Class::Failed => prop_assert!(outcome.sqlstate != *b"00000", "{:?}", outcome),
            Class::Unfinished => {}
        }
    }
    Ok(())
}

fn tries_are_counted(seen: &Seen, plan: &Plan) -> Result<(), TestCaseError> {
    for outcome in seen.outcomes() {
        let tries = outcome.retries + 1;
        prop_assert!(plan.max_tries == 0 || tries <= plan.max_tries, "{:?}", outcome);
        if matches!(outcome.class, Class::Skipped | Class::Unfinished) {
            prop_assert_eq!(outcome.retries, 0);
        }
    }
    let of_tallies = |of: fn(&Tally) -> u64| -> u64 {
        seen.intervals().iter().flat_map(|i| &i.tallies).map(of).sum()
    };
    let retried = seen.outcomes().filter(|o| o.retries > 0).count() as u64;
    let retries: u64 = seen.outcomes().map(|o| u64::from(o.retries)).sum();
    prop_assert_eq!((of_tallies(|t| t.retried), of_tallies(|t| t.retries)), (retried, retries));
    Ok(())
}

fn an_abort_ends_the_run_where_it_is_to(seen: &Seen, plan: &Plan) -> Result<(), TestCaseError> {
    let aborted = seen.sum(|batch| u64::from(batch.aborted));
    prop_assert!(aborted <= u64::from(plan.clients));
    prop_assert_eq!(seen.errors.is_empty(), !plan.exit_on_abort || aborted == 0);
    if aborted == u64::from(plan.clients) && !plan.exit_on_abort {
        prop_assert!(seen.outcomes().all(|o| o.done <= seen.end + plan.grace + SECOND));
    }
    Ok(())
}

fn nothing_begins_behind_the_end_where_the_backlog_is_dropped(
    seen: &Seen,
    case: &Case,
) -> Result<(), TestCaseError> {
    if case.plan.backlog == Backlog::Drop && case.weather.tick == 0 {
        let has_begun = |class| !matches!(class, Class::Skipped | Class::Unfinished);
        for outcome in seen.outcomes().filter(|o| has_begun(o.class)) {
            prop_assert!(outcome.sent <= seen.end, "{:?} {}", outcome, seen.end);
        }
    }
    Ok(())
}

fn distributions_fit_together(intervals: &[Interval]) -> Result<(), TestCaseError> {
    for tally in intervals.iter().flat_map(|interval| &interval.tallies) {
        let succeeded = tally.on_time + tally.late;
        for times in [&tally.latency, &tally.lag, &tally.service] {
            prop_assert_eq!(times.count, succeeded);
            prop_assert_eq!(in_histogram(times), succeeded);
        }
        prop_assert_eq!(tally.latency.sum_ns, tally.lag.sum_ns + tally.service.sum_ns);
    }
    Ok(())
}

fn what_is_in_flight_pairs_with_service(
    seen: &Seen,
    intervals: &[Interval],
) -> Result<(), TestCaseError> {
    let in_flight: u128 = intervals.iter().map(|interval| interval.in_flight_ns).sum();
    let service: Ns = seen.outcomes().map(|o| o.done - o.sent).sum();
    prop_assert_eq!(in_flight, u128::try_from(service).unwrap());
    Ok(())
}

fn connections_are_made_again_only_where_they_were_lost(
    intervals: &[Interval],
) -> Result<(), TestCaseError> {
    let (mut made, mut lost) = (0, 0);
    for interval in intervals {
        made += interval.connects;
        lost += interval.disconnects;
        prop_assert!(made <= lost, "{} made, {} lost", made, lost);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_trial_adds_up(case in cases()) {
        let seen = trial(&case);
        let intervals = seen.intervals();
        each_due_transaction_ends_in_one_class(&intervals)?;
        what_the_schedule_says_is_what_ends(&seen)?;
        nothing_ends_in_a_second_before_it_was_due(&seen)?;
        each_outcome_fits_its_times(&seen, &case.plan)?;
        distributions_fit_together(&intervals)?;
        what_is_in_flight_pairs_with_service(&seen, &intervals)?;
        tries_are_counted(&seen, &case.plan)?;
        an_abort_ends_the_run_where_it_is_to(&seen, &case.plan)?;
        nothing_begins_behind_the_end_where_the_backlog_is_dropped(&seen, &case)?;
        if !case.plan.connect_each {
            connections_are_made_again_only_where_they_were_lost(&intervals)?;
        }
    }
}
