//! Users that others perform, in virtual time: whatever the load, however many the processes, and
//! also where one goes down, every second adds up and Little's law is an identity.

use crate::support::trial::plan as plan_of;
use pgpaces_engine::actors::{Actors, ledger};
use pgpaces_engine::interval::Interval;
use pgpaces_engine::pace::{Arrivals, Ns, SECOND, Taken, Think};
use pgpaces_engine::plan::{Load, Plan, Policy, Stop};
use pgpaces_engine::record::Batch;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const MS: Ns = 1_000_000;

/// What users do next: begin what is due, or end what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Begin,
    End,
}

/// Processes of users, and the accounts of them.
struct World {
    processes: Vec<Option<Actors>>,
    events: BinaryHeap<Reverse<(Ns, usize, usize, Next)>>,
    number: u64,
    end: Ns,
    service: Ns,
    free: BTreeMap<(usize, usize), Ns>,
}

impl World {
    fn new(plan: &Plan, weights: &[u32], service: Ns) -> Self {
        let count = plan.threads.min(plan.clients);
        let made = (0..count).map(|n| Actors::new(plan, weights, n).expect("a plan that can be"));
        let end = match plan.stop {
            Stop::Time(end) => end,
            Stop::Count(_) => Ns::MAX / 4,
        };
        let processes: Vec<_> = made.map(Some).collect();
        let mut world = Self {
            processes,
            events: BinaryHeap::new(),
            number: 0,
            end,
            service,
            free: BTreeMap::new(),
        };
        for process in 0..world.processes.len() {
            let (_, users) = world.processes[process].as_ref().expect("nobody has died").users();
            for user in 0..users {
                world.go_on(process, user, -plan.warmup);
            }
        }
        world
    }

    /// A user that has been free since then waits for what comes.
    fn go_on(&mut self, process: usize, user: usize, since: Ns) {
        let Some(actors) = &mut self.processes[process] else { return };
        let number = self.number;
        self.number += 1;
        self.free.insert((process, user), since);
        if let Some(due) = actors.next(user, since, self.end, number) {
            self.events.push(Reverse((due.at.max(since), process, user, Next::Begin)));
        }
    }

    /// Everything until then.
    fn advance(&mut self, until: Ns) {
        while let Some(&Reverse((at, process, user, next))) = self.events.peek() {
            if at > until {
                return;
            }
            self.events.pop();
            let since = self.free[&(process, user)];
            let Some(actors) = &mut self.processes[process] else { continue };
            match next {
                Next::Begin if actors.start(user, since, at) => {
                    // Now and then one takes ten times as long.
                    let long = if (at / MS) % 7 == 0 { 10 } else { 1 };
                    self.events.push(Reverse((at + self.service * long, process, user, Next::End)));
                }
                Next::Begin => self.go_on(process, user, since),
                Next::End => {
                    let failed = ((at / MS) % 5 == 0).then_some(*b"~0001");
                    actors.end(user, at, failed);
                    self.go_on(process, user, at);
                }
            }
        }
    }
}

/// The intervals of a load. dies: the first process goes down at that second.
fn run(plan: &Plan, weights: &[u32], service: Ns, dies: Option<Ns>) -> Vec<Interval> {
    let mut world = World::new(plan, weights, service);
    let mut accounts = ledger(plan, weights).expect("a plan that can be");
    let mut intervals = Vec::new();
    let mut second = -plan.warmup / SECOND;
    loop {
        let boundary = (second + 1) * SECOND;
        world.advance(boundary - 1);
        if dies == Some(second) {
            world.processes[0] = None;
        }
        let over = boundary >= world.end + plan.grace || world.events.is_empty();
        let mut batches = Vec::new();
        for actors in world.processes.iter_mut().flatten() {
            let told = if over {
                let now = if world.end > boundary { boundary - 1 } else { boundary };
                actors.abandon(now, world.end);
                actors.fetch_last(now, 0)
            } else {
                actors.rotate(boundary);
                actors.fetch(0)
            };
            batches.extend(told.iter().map(|b| Batch::from_bytes(&b.to_bytes()).expect("ours")));
        }
        if over {
            // What a process of several seconds tells at its end comes second by second.
            let last = batches.split_off(batches.len().saturating_sub(world.living()));
            if !batches.is_empty() {
                intervals.push(accounts.interval(&mut batches, world.end));
            }
            let (mut last, taken) = (last, Taken::until(world.number));
            let mut interval = accounts.last(&mut last, world.end, &taken);
            let before = count(&interval);
            accounts.write_off(&mut interval);
            assert!(dies.is_some() || count(&interval) == before, "nothing was to be written off");
            intervals.push(interval);
            return intervals;
        }
        intervals.push(accounts.interval(&mut batches, world.end));
        second += 1;
    }
}

impl World {
    fn living(&self) -> usize {
        self.processes.iter().flatten().count()
    }
}

fn count(interval: &Interval) -> u64 {
    interval.tallies.iter().map(|tally| tally.unfinished).sum()
}

/// What fell due less what ended, by due second and task: nothing is left over.
fn owed(intervals: &[Interval]) -> BTreeMap<(i64, u16), i64> {
    let mut owed = BTreeMap::new();
    for tally in intervals.iter().flat_map(|interval| &interval.tallies) {
        let failed: u64 = tally.failed.values().sum();
        let ended = tally.on_time + tally.late + tally.skipped + failed + tally.unfinished;
        *owed.entry((tally.due_second, tally.script)).or_insert(0) +=
            tally.due.cast_signed() - ended.cast_signed();
    }
    owed.retain(|_, count| *count != 0);
    owed
}

fn due(intervals: &[Interval]) -> BTreeMap<(i64, u16), u64> {
    let mut found = BTreeMap::new();
    for tally in intervals.iter().flat_map(|interval| &interval.tallies) {
        *found.entry((tally.due_second, tally.script)).or_insert(0) += tally.due;
    }
    found.retain(|_, count| *count > 0);
    found
}

fn loads() -> impl Strategy<Value = Load> {
    let arrivals = prop_oneof![Just(Arrivals::Poisson), Just(Arrivals::Even)];
    prop_oneof![
        (1.0..300.0, arrivals.clone()).prop_map(|(rate, arrivals)| Load::Open { rate, arrivals }),
        (0.5..40.0, arrivals).prop_map(|(rate, arrivals)| Load::Paced { rate, arrivals }),
        (5..200_i64).prop_map(|ms| Load::Closed { think: Think::Exponential(ms * MS) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_load_of_users_adds_up(
        load in loads(),
        clients in 1..12_u32,
        processes in 1..4_u32,
        service in 1..150_i64,
        (limit, skip) in (1..300_i64, any::<bool>()),
        (stop, every) in (prop_oneof![(1..4_i64).prop_map(|s| Stop::Time(s * SECOND)),
                                      (1..20_u64).prop_map(Stop::Count)], 0..100_i64),
        dies in prop::option::of(0..3_i64),
        seed in any::<u64>(),
    ) {
        let closed = matches!(load, Load::Closed { .. });
        let open = matches!(load, Load::Open { .. });
        let plan = Plan {
            clients,
            threads: processes,
            policy: if skip && !closed { Policy::Skip } else { Policy::Run },
            limit: Some(limit * MS),
            stop,
            start_every: if open { 0 } else { every * MS },
            warmup: if matches!(stop, Stop::Time(_)) { SECOND } else { 0 },
            grace: 2 * SECOND,
            seed,
            ..plan_of(load)
        };
        let dies = dies.filter(|_| processes.min(clients) > 1);
        let intervals = run(&plan, &[3, 0, 1], service * MS, dies);
        prop_assert_eq!(owed(&intervals), BTreeMap::new());
        let pending: i64 = intervals.iter().map(|interval| interval.pending_ns).sum();
        let waited: i64 = intervals.iter().map(|interval| interval.waited_ns).sum();
        prop_assert_eq!(pending, waited, "Little's law");
        prop_assert!(intervals.iter().flat_map(|i| &i.tallies).all(|t| t.script != 1));
    }

    #[test]
    fn what_is_due_does_not_depend_on_the_number_of_processes(
        load in loads().prop_filter("with a schedule", |l| !matches!(l, Load::Closed { .. })),
        clients in 3..12_u32,
        seed in any::<u64>(),
    ) {
        let of = |threads| {
            let stop = Stop::Time(3 * SECOND);
            let plan = Plan { clients, threads, stop, seed, grace: SECOND, ..plan_of(load) };
            due(&run(&plan, &[1, 2], MS, None))
        };
        prop_assert_eq!(of(1), of(3));
    }
}

#[test]
fn users_come_one_after_another() {
    let plan = Plan {
        clients: 4,
        start_every: SECOND,
        stop: Stop::Count(1),
        ..plan_of(Load::Closed { think: Think::None })
    };
    let seconds: Vec<i64> = due(&run(&plan, &[1], MS, None)).keys().map(|(s, _)| *s).collect();
    assert_eq!(seconds, [0, 1, 2, 3]);
}

#[test]
fn bytes_that_are_no_batch_are_refused() {
    for bytes in [&b""[..], b"\x93", &[0xff; 40]] {
        assert!(Batch::from_bytes(bytes).is_err());
    }
}
