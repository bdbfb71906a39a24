//! Latency limits of scripts: each transaction is late, skipped and tried again by the limit of the
//! script that is due, and what cannot be together is refused.

use crate::support::trial::{Texts, plan, run};
use crate::support::world::{Answer, Server};
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Think};
use pgpaces_engine::plan::{Load, NO_LIMIT, Plan, Policy, Stop};
use pgpaces_engine::record::Class;
use pgpaces_engine::shape::Segment;

const MS: Ns = 1_000_000;
/// The first script has the limit of all, the second one of its own.
const TWO: Texts<'static> = &[(1, "SELECT 1;"), (1, "SELECT 2;")];

fn open(rate: f64) -> Load {
    Load::Open { rate, arrivals: Arrivals::Even }
}

fn limited(load: Load) -> Plan {
    Plan { clients: 4, limit: Some(50 * MS), limits: vec![(1, 10 * MS)], ..plan(load) }
}

#[test]
fn a_transaction_is_late_by_the_limit_of_its_script() {
    let seen = run(&limited(open(10.0)), TWO, Server::new(|_| Answer::Rows(20 * MS)));
    let of = |script| seen.outcomes().filter(move |outcome| outcome.script == script);
    assert!(of(0).count() > 10 && of(0).all(|outcome| outcome.class == Class::OnTime));
    assert!(of(1).count() > 10 && of(1).all(|outcome| outcome.class == Class::Late));
}

#[test]
fn a_transaction_is_skipped_by_the_limit_of_its_script() {
    let plan = Plan { clients: 1, policy: Policy::Skip, ..limited(open(100.0)) };
    let seen = run(&plan, TWO, Server::new(|_| Answer::Rows(20 * MS)));
    let skipped_after = |script| {
        let skipped = seen.outcomes().filter(|o| o.class == Class::Skipped && o.script == script);
        skipped.map(|outcome| outcome.done - outcome.due).min().expect("an overload")
    };
    assert!((10 * MS..50 * MS).contains(&skipped_after(1)), "{}", skipped_after(1));
    assert!(skipped_after(0) > 50 * MS);
}

#[test]
fn a_transaction_is_tried_again_within_the_limit_of_its_script() {
    let plan = Plan { max_tries: 0, ..limited(open(1.0)) };
    let seen = run(&plan, TWO, Server::new(|_| Answer::Error("40001", 3 * MS)));
    let tries = |script| {
        let own = seen.outcomes().filter(move |outcome| outcome.script == script);
        own.map(|outcome| outcome.retries + 1).max().expect("one")
    };
    // Those that begin within the limit: at 0, 3, 6 and 9 ms, and so on.
    assert_eq!((tries(0), tries(1)), (17, 4));
}

#[test]
fn scripts_have_their_own_limit_or_that_of_all() {
    let plan = limited(open(1.0));
    assert_eq!(*plan.limits(3), [50 * MS, 10 * MS, 50 * MS]);
    assert_eq!(*Plan { limit: None, ..plan }.limits(2), [NO_LIMIT, 10 * MS]);
}

#[test]
fn a_limit_that_something_needs_must_be_there_for_every_script() {
    let skipping = Plan { policy: Policy::Skip, ..limited(open(1.0)) };
    let partly = Plan { limit: None, ..skipping.clone() };
    let both = Plan { limits: vec![(0, MS), (1, MS)], ..partly.clone() };
    let endless =
        Plan { max_tries: 0, stop: Stop::Count(5), policy: Policy::Run, ..partly.clone() };
    for (plan, scripts, fits) in [
        (&skipping, 2, true),
        (&skipping, 1, false),
        (&partly, 2, false),
        (&both, 2, true),
        (&both, 3, false),
        (&endless, 2, false),
        (&Plan { stop: Stop::Time(1), ..endless.clone() }, 2, true),
    ] {
        assert_eq!(plan.check_limits(scripts).is_ok(), fits, "{plan:?}");
    }
    let nothing = Plan { limits: vec![(0, 0)], ..plan(open(1.0)) };
    assert!(nothing.check().is_err());
}

#[test]
fn a_shape_that_cannot_be_is_refused() {
    let part = |start, from, to| Segment { start, from, to };
    let good = vec![part(0, 0.0, 2.0), part(10 * SECOND, 1.0, 1.0)];
    let shaped = |load, shape: &[Segment]| Plan { shape: shape.into(), ..plan(load) };
    shaped(open(1.0), &good).check().expect("a plan that can be");
    let closed = Load::Closed { think: Think::None };
    for refused in [
        shaped(closed, &good),
        Plan { stop: Stop::Count(5), ..shaped(open(1.0), &good) },
        shaped(open(1.0), &[part(1, 1.0, 1.0)]),
        shaped(open(1.0), &[part(0, 1.0, 1.0), part(2, 1.0, 1.0), part(1, 1.0, 1.0)]),
        shaped(open(1.0), &[part(0, 1.0, 1.0), part(11 * SECOND, 1.0, 1.0)]),
        shaped(open(1.0), &[part(0, 1.0, -1.0)]),
        shaped(open(1.0), &[part(0, 1.0, f64::NAN)]),
        shaped(open(1.0), &[part(0, 0.0, 0.0)]),
        shaped(open(1e6), &[part(0, 1.0, 11.0)]),
    ] {
        assert!(refused.check().is_err(), "{refused:?}");
    }
}
