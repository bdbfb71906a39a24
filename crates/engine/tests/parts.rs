//! One load over several generators: what each has adds up to the load that one has, to the
//! nanosecond, whatever the load and however its clients are dealt.

use crate::support::trial::plan;
use pgpaces_engine::actors::{Actors, ledger};
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Taken, Think};
use pgpaces_engine::plan::{Load, Part, Plan, Stop};
use pgpaces_engine::shape::Segment;
use proptest::prelude::*;
use std::collections::BTreeMap;

const WEIGHTS: [u32; 2] = [3, 1];
const END: Ns = 20 * SECOND;

/// A plan for each generator: `shares` of its clients, in their order.
fn dealt(whole: &Plan, shares: &[u32]) -> Vec<Plan> {
    let mut first = 0;
    let each = shares.iter().map(|&clients| {
        let part = Part { first, of: whole.clients };
        first += clients;
        Plan { clients, part: Some(part), ..whole.clone() }
    });
    each.collect()
}

/// What falls due at a generator: for each client of a paced or closed load, or for the numbers of
/// an open one, when and which script.
fn due(plan: &Plan, numbers: u64) -> BTreeMap<u64, Vec<(Ns, u16)>> {
    let mut actors = Actors::new(plan, &WEIGHTS, 0).expect("a plan that can be");
    let (first, count) = actors.users();
    let mut due: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    if matches!(plan.load, Load::Open { .. }) {
        for n in (0..numbers).filter(|&n| actors.owns(n)).collect::<Vec<_>>() {
            let next = actors.next(0, 0, Ns::MAX, n).expect("an open load has no last number");
            due.entry(n).or_default().push((next.at, next.script));
        }
        return due;
    }
    for user in 0..count {
        let client = u64::from(first) + user as u64;
        let mut since = -plan.warmup;
        for _ in 0..20 {
            let Some(next) = actors.next(user, since, END, 0) else { break };
            due.entry(client).or_default().push((next.at, next.script));
            since = next.at;
        }
    }
    due
}

fn load() -> impl Strategy<Value = Load> {
    let arrivals = prop_oneof![Just(Arrivals::Poisson), Just(Arrivals::Even)];
    let think = prop_oneof![
        Just(Think::None),
        Just(Think::Fixed(SECOND / 3)),
        Just(Think::Exponential(SECOND / 2)),
    ];
    prop_oneof![
        (1.0..50.0, arrivals.clone()).prop_map(|(rate, arrivals)| Load::Open { rate, arrivals }),
        (0.1..5.0, arrivals).prop_map(|(rate, arrivals)| Load::Paced { rate, arrivals }),
        think.prop_map(|think| Load::Closed { think }),
    ]
}

proptest! {
    #[test]
    fn the_parts_of_a_load_are_the_load(
        seed: u64,
        load in load(),
        shares in proptest::collection::vec(1..5u32, 1..5),
        shaped: bool,
        warmup in 0..2i64,
    ) {
        let mut whole = Plan { seed, warmup: warmup * SECOND, ..plan(load) };
        whole.clients = shares.iter().sum();
        whole.stop = Stop::Time(END);
        if shaped && !matches!(load, Load::Closed { .. }) {
            whole.shape = vec![
                Segment { start: 0, from: 0.5, to: 2.0 },
                Segment { start: END / 2, from: 2.0, to: 2.0 },
            ];
        }
        let all = due(&whole, 200);
        let mut parts = BTreeMap::new();
        for one in dealt(&whole, &shares) {
            for (key, list) in due(&one, 200) {
                prop_assert!(parts.insert(key, list).is_none(), "{key} is two generators'");
            }
        }
        prop_assert_eq!(parts, all);
    }

    #[test]
    fn what_falls_due_each_second_adds_up(
        seed: u64, rate in 1.0..200f64, shares in proptest::collection::vec(1..5u32, 2..5)
    ) {
        let mut whole = Plan { seed, ..plan(Load::Open { rate, arrivals: Arrivals::Poisson }) };
        whole.clients = shares.iter().sum();
        let counts = |plan: &Plan| {
            let mut accounts = ledger(plan, &WEIGHTS).expect("a plan that can be");
            let mut counts: BTreeMap<(i64, u16), u64> = BTreeMap::new();
            for _ in 0..10 {
                for tally in accounts.interval(&mut [], 10 * SECOND).tallies {
                    *counts.entry((tally.due_second, tally.script)).or_default() += tally.due;
                }
            }
            counts
        };
        let mut sum: BTreeMap<(i64, u16), u64> = BTreeMap::new();
        for one in dealt(&whole, &shares) {
            for (key, count) in counts(&one) {
                *sum.entry(key).or_default() += count;
            }
        }
        prop_assert_eq!(sum, counts(&whole));
    }

    #[test]
    fn what_was_not_taken_is_the_same_however_often_what_was_is_passed(
        seed: u64, rate in 1.0..200f64, taken in proptest::collection::vec(0..300u64, 10)
    ) {
        let plan = Plan { seed, ..plan(Load::Open { rate, arrivals: Arrivals::Poisson }) };
        let last = |passes: bool| {
            let mut accounts = ledger(&plan, &WEIGHTS).expect("a plan that can be");
            let mut number = 0;
            for more in &taken {
                number += more;
                if passes {
                    accounts.pass(&Taken::until(number));
                }
                accounts.interval(&mut [], 11 * SECOND);
            }
            let last = accounts.last(&mut [], 11 * SECOND, &Taken::until(number));
            let unfinished: u64 = last.tallies.iter().map(|tally| tally.unfinished).sum();
            (unfinished, last.waited_ns)
        };
        prop_assert_eq!(last(true), last(false));
    }
}

#[test]
fn a_generator_has_its_share_of_an_open_load() {
    let mut whole = plan(Load::Open { rate: 100.0, arrivals: Arrivals::Poisson });
    whole.clients = 10;
    let shares = [5, 3, 2];
    for (one, share) in dealt(&whole, &shares).iter().zip(shares) {
        let owned = due(one, 20_000).len() as f64 / 20_000.0;
        assert!((owned - f64::from(share) / 10.0).abs() < 0.01, "{owned} for {share} of 10");
    }
}

#[test]
fn clients_that_the_load_does_not_have_are_refused() {
    let whole = plan(Load::Closed { think: Think::None });
    let one = Plan { clients: 3, part: Some(Part { first: 8, of: 10 }), ..whole };
    assert!(ledger(&one, &WEIGHTS).is_err());
}
