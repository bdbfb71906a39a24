//! When transaction n is due and which script it runs: pure functions of n and a seed. No
//! clock: times are nanoseconds relative to the start of the measured part of a trial.
//!
//! A schedule is a value that can be copied. Every worker holds a copy and only the number of
//! the next transaction is shared, so the client that serves it cannot change its due time.
//!
//! ```text
//! n  number of a transaction, from 0          r  rate, 1/ns             s  start of the load, ns
//! e  unit exponentials, of mean 1             v  time at a constant rate, ns since s
//! m  multiplier of the rate at a time         M  integral of m from s, ns
//!
//!   Poisson:  v(n) = (e(0) + ... + e(n)) / r      Even:  v(n) = n / r
//!   due(n) = s + v(n)                     where the rate does not change
//!   due(n) = t with M(t) = v(n)           where it has a shape
//! ```
//!
//! In any time from a to b, r (M(b) - M(a)) transactions fall due: as the mean of Poisson arrivals,
//! to less than one of even ones. `shape.rs` has M and its inverse.

use crate::script::random::Random;
use crate::shape::Curve;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Nanoseconds on the monotonic clock, relative to the start of the measured part.
pub type Ns = i64;

/// A second in nanoseconds.
pub const SECOND: Ns = 1_000_000_000;

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Independent exponential gaps, as of many independent users.
    Poisson,
    /// Equal gaps.
    Even,
}

/// The due times of one stream of transactions.
#[derive(Debug, Clone)]
pub struct Schedule {
    random: Random,
    spacing: Spacing,
    gap_ns: f64,
    start: Ns,
    passed: u64,
    elapsed: f64,
}

/// How the arrivals of a schedule are spaced. One with a shape is a case of its own, so that the
/// others do not ask whether there is one.
#[derive(Debug, Clone)]
enum Spacing {
    Poisson,
    Even,
    Shaped(Box<Shaped>),
}

/// What a schedule with a shape has besides.
#[derive(Debug, Clone)]
struct Shaped {
    arrivals: Arrivals,
    curve: Curve,
    /// How much later the first one is, in time at a constant rate, nanoseconds.
    lead: f64,
}

impl Schedule {
    /// Transactions from `start` on at `rate` per second (positive, finite).
    #[must_use]
    pub fn new(rate: f64, arrivals: Arrivals, start: Ns, random: Random) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "10^9 is exact")]
        let gap_ns = SECOND as f64 / rate;
        let spacing = match arrivals {
            Arrivals::Poisson => Spacing::Poisson,
            Arrivals::Even => Spacing::Even,
        };
        Self { random, spacing, gap_ns, start, passed: 0, elapsed: 0.0 }
    }

    /// The same with a rate that changes by a curve that begins where it does, if there is one.
    #[must_use]
    pub fn shaped(mut self, curve: Option<Curve>) -> Self {
        let arrivals = match &self.spacing {
            Spacing::Poisson => Arrivals::Poisson,
            Spacing::Even => Arrivals::Even,
            Spacing::Shaped(shaped) => shaped.arrivals,
        };
        if let Some(curve) = curve {
            self.spacing = Spacing::Shaped(Box::new(Shaped { arrivals, curve, lead: 0.0 }));
        }
        self
    }

    /// The same with its beginning shifted by a random part of one gap, so that many evenly
    /// paced users do not act in step.
    #[must_use]
    pub fn shifted(mut self) -> Self {
        match &mut self.spacing {
            Spacing::Even => {
                self.start = self.start.saturating_add(whole(self.random.unit() * self.gap_ns));
            }
            Spacing::Shaped(shaped) if shaped.arrivals == Arrivals::Even => {
                shaped.lead = self.random.unit() * self.gap_ns;
            }
            Spacing::Poisson | Spacing::Shaped(_) => {}
        }
        self
    }

    /// When transaction `n` (from 0) is due. `n` must not fall from call to call.
    #[expect(clippy::cast_precision_loss, reason = "n below 2^53")]
    pub fn due(&mut self, n: u64) -> Ns {
        match self.spacing {
            Spacing::Even => self.elapsed = n as f64 * self.gap_ns,
            Spacing::Poisson => self.draw_to(n),
            Spacing::Shaped(_) => return self.due_by_shape(n),
        }
        self.start.saturating_add(whole(self.elapsed))
    }

    #[inline]
    fn draw_to(&mut self, n: u64) {
        while self.passed <= n {
            self.elapsed += self.random.exponential_unit() * self.gap_ns;
            self.passed += 1;
        }
    }

    #[inline(never)]
    #[expect(clippy::cast_precision_loss, reason = "n below 2^53")]
    fn due_by_shape(&mut self, n: u64) -> Ns {
        let Spacing::Shaped(shaped) = &self.spacing else { unreachable!("asked for by `due`") };
        match shaped.arrivals {
            Arrivals::Even => self.elapsed = n as f64 * self.gap_ns,
            Arrivals::Poisson => self.draw_to(n),
        }
        let Spacing::Shaped(shaped) = &mut self.spacing else { unreachable!("asked for by `due`") };
        self.start.saturating_add(whole(shaped.curve.when(shaped.lead + self.elapsed)))
    }
}

/// Rounds to whole nanoseconds; saturates far beyond any run.
#[expect(clippy::cast_possible_truncation, reason = "float to int casts saturate")]
fn whole(ns: f64) -> Ns {
    ns.round() as Ns
}

/// Which script transaction n runs: a weighted draw, none where there is one script only.
#[derive(Debug, Clone)]
pub struct Choice {
    weights: Arc<[u32]>,
    total: u64,
    random: Random,
    passed: u64,
    last: u16,
}

impl Choice {
    /// Draws in proportion to `weights`, of which at least one is positive.
    #[must_use]
    pub fn new(weights: Arc<[u32]>, random: Random) -> Self {
        let total = weights.iter().map(|&w| u64::from(w)).sum();
        Self { weights, total, random, passed: 0, last: 0 }
    }

    /// The script of transaction `n`; `n` must not fall from call to call.
    #[inline]
    pub fn script(&mut self, n: u64) -> u16 {
        if self.weights.len() > 1 {
            self.draw_to(n);
        }
        self.last
    }

    fn draw_to(&mut self, n: u64) {
        while self.passed <= n {
            self.last = self.draw();
            self.passed += 1;
        }
    }

    fn draw(&mut self) -> u16 {
        let mut left = self.random.up_to(self.total - 1);
        for (script, &weight) in self.weights.iter().enumerate() {
            if left < u64::from(weight) {
                return u16::try_from(script).expect("fewer than 2^16 scripts");
            }
            left -= u64::from(weight);
        }
        unreachable!("the draw is below the sum of the weights")
    }
}

/// A transaction that is to start at `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Its number in its stream, from 0.
    pub n: u64,
    /// When it is due.
    pub at: Ns,
    /// The script it runs.
    pub script: u16,
}

/// Which transactions of an open load are those of one generator: each is addressed to a client, by its
/// number and the seed alone, and so is that of the generator that has this client.
#[derive(Debug, Clone, Copy)]
pub struct Deal {
    seed: u64,
    first: u32,
    clients: u32,
    of: u32,
}

impl Deal {
    /// That of the generator with `clients` clients from `first` on, of `of` in all.
    #[must_use]
    pub fn new(seed: u64, first: u32, clients: u32, of: u32) -> Self {
        Self { seed, first, clients, of }
    }

    /// Whether transaction `n` is this generator's.
    #[must_use]
    pub fn owns(&self, n: u64) -> bool {
        let client = mixed(self.seed, n) % u64::from(self.of);
        client.checked_sub(u64::from(self.first)).is_some_and(|at| at < u64::from(self.clients))
    }
}

/// A number that looks random, from a seed and a number (the finalizer of SplitMix64, Steele, Lea and
/// Flood, 2014).
fn mixed(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of due transactions: a schedule and the scripts it runs.
#[derive(Debug, Clone)]
pub struct Stream {
    /// When.
    pub schedule: Schedule,
    /// What.
    pub choice: Choice,
    /// The next number this copy has not passed.
    pub next: u64,
    /// How many there are at most.
    pub count_max: u64,
    /// Which of them are this generator's; none where all are.
    deal: Option<Deal>,
    /// Looked at by `until` and not due yet.
    ahead: Option<Due>,
}

impl Stream {
    /// A stream of at most `count_max` transactions.
    #[must_use]
    pub fn new(schedule: Schedule, choice: Choice, count_max: u64) -> Self {
        Self { schedule, choice, next: 0, count_max, deal: None, ahead: None }
    }

    /// The part of it that one of several generators has.
    #[must_use]
    pub fn dealt(mut self, deal: Option<Deal>) -> Self {
        self.deal = deal;
        self
    }

    /// Whether transaction `n` is this generator's, or after the last of all.
    #[must_use]
    #[inline(always)]
    pub fn owns(&self, n: u64) -> bool {
        self.deal.is_none_or(|deal| n >= self.count_max || deal.owns(n))
    }

    /// The same stream from number `next` on, for a reader without its earlier part.
    ///
    /// `self` must be the stream as it was made, or have passed no number beyond `next`.
    #[must_use]
    pub fn from(mut self, next: u64) -> Self {
        self.next = next;
        self.ahead = None;
        self
    }

    /// Passes all before number `next`, unless it has.
    pub fn pass(&mut self, next: u64) {
        if next > self.next {
            self.at(next - 1);
        }
    }

    /// Transaction `n`, none after the last; `n` must not fall from call to call.
    pub fn at(&mut self, n: u64) -> Option<Due> {
        self.next = n + 1;
        (n < self.count_max).then(|| Due {
            n,
            at: self.schedule.due(n),
            script: self.choice.script(n),
        })
    }

    /// Every transaction of this generator from this copy's next number that is due before `end`, in
    /// order.
    pub fn until(&mut self, end: Ns, mut each: impl FnMut(Due)) {
        loop {
            match self.ahead.take().or_else(|| self.at(self.next)) {
                Some(due) if due.at < end => {
                    if self.owns(due.n) {
                        each(due);
                    }
                }
                later => {
                    self.ahead = later;
                    return;
                }
            }
        }
    }
}

/// How long a client of a closed load thinks before each transaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Think {
    /// Not at all.
    None,
    /// Always as long, nanoseconds.
    Fixed(Ns),
    /// Exponentially distributed with this mean, nanoseconds.
    Exponential(Ns),
}

impl Think {
    fn draw(self, random: &mut Random) -> Ns {
        match self {
            Self::None => 0,
            Self::Fixed(ns) => ns,
            #[expect(clippy::cast_precision_loss, reason = "a mean, not a time")]
            Self::Exponential(mean) => whole(random.exponential_unit() * mean as f64),
        }
    }
}

/// A client of a closed load.
#[derive(Debug, Clone)]
pub struct Thinker {
    /// What it runs.
    choice: Choice,
    /// How many it has taken.
    taken: u64,
    /// Its dice for thinking.
    random: Random,
    /// When it comes.
    begins: Ns,
}

impl Thinker {
    /// A client that comes at `begins`.
    #[must_use]
    pub fn new(choice: Choice, random: Random, begins: Ns) -> Self {
        Self { choice, taken: 0, random, begins }
    }
}

/// What of one stream was taken, by all workers together.
#[derive(Debug, Default)]
pub struct Taken {
    next: AtomicU64,
    /// Given back by clients that lost their connections before they could start, by number.
    returned: Mutex<BTreeMap<u64, Due>>,
    returned_count: AtomicUsize,
}

impl Taken {
    /// The number of the next transaction that is not taken.
    pub fn number(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// What was taken elsewhere, up to a number.
    #[must_use]
    pub fn until(number: u64) -> Self {
        Self { next: AtomicU64::new(number), ..Self::default() }
    }

    /// Returns a transaction, for the next free client.
    pub fn give_back(&self, due: Due) {
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        returned.insert(due.n, due);
        self.returned_count.store(returned.len(), Ordering::Release);
    }

    /// What was given back, the earliest first.
    pub fn take_back(&self) -> Option<Due> {
        if self.returned_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = returned.pop_first().map(|(_, due)| due);
        self.returned_count.store(returned.len(), Ordering::Release);
        due
    }
}

/// Where a worker's clients get their next transaction from.
#[derive(Debug)]
pub enum Feed {
    /// One stream for all clients of all workers; the first free client takes the next.
    Open {
        /// Shared by all workers.
        taken: Arc<Taken>,
        /// This worker's copy of the stream.
        stream: Stream,
    },
    /// A stream for each of this worker's clients, which waits for it.
    Paced(Vec<Stream>),
    /// Each client starts when it is free and has thought.
    Closed {
        /// The pause before each transaction.
        think: Think,
        /// Its clients.
        clients: Vec<Thinker>,
        /// How many transactions a client runs at most.
        count_max: u64,
    },
}

impl Feed {
    /// What this worker's `client` does next, being free at `now`. None where nothing more is
    /// due before `end`.
    #[inline(always)]
    pub fn next(&mut self, client: usize, now: Ns, end: Ns) -> Option<Due> {
        let due = match self {
            Self::Open { taken, stream } => match taken.take_back() {
                Some(due) => Some(due),
                None => {
                    let mut n = taken.next.fetch_add(1, Ordering::Relaxed);
                    while !stream.owns(n) {
                        n = taken.next.fetch_add(1, Ordering::Relaxed);
                    }
                    stream.at(n)
                }
            },
            Self::Paced(streams) => {
                let stream = &mut streams[client];
                stream.at(stream.next)
            }
            Self::Closed { think, clients, count_max } => {
                let client = &mut clients[client];
                let n = client.taken;
                (n < *count_max).then(|| {
                    client.taken += 1;
                    let at = now.max(client.begins) + think.draw(&mut client.random);
                    Due { n, at, script: client.choice.script(n) }
                })
            }
        };
        due.filter(|due| due.at < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(rate: f64, arrivals: Arrivals, seed: u64) -> Stream {
        let schedule = Schedule::new(rate, arrivals, 0, Random::from_seed(seed));
        let choice = Choice::new([3, 1].into(), Random::from_seed(seed + 1));
        Stream::new(schedule, choice, u64::MAX)
    }

    proptest! {
        #[test]
        fn a_copy_that_skips_numbers_agrees_with_one_that_does_not(
            seed: u64, rate in 0.01..1e5f64, step in 1u64..50
        ) {
            let (mut all, mut some) = (stream(rate, Arrivals::Poisson, seed >> 1), stream(rate, Arrivals::Poisson, seed >> 1));
            for n in 0..200 {
                let due = all.at(n);
                if n % step == 0 {
                    prop_assert_eq!(some.at(n), due);
                }
            }
        }

        #[test]
        fn counting_until_an_end_finds_exactly_what_is_due_before_it(
            seed: u64, ends in proptest::collection::vec(0..5 * SECOND, 1..6)
        ) {
            let mut ends = ends;
            ends.sort_unstable();
            let mut counted = stream(50.0, Arrivals::Poisson, seed >> 1);
            let mut found = Vec::new();
            for end in &ends {
                counted.until(*end, |due| found.push(due));
            }
            let mut all = stream(50.0, Arrivals::Poisson, seed >> 1);
            let expected: Vec<_> =
                (0..).map_while(|n| all.at(n).filter(|d| d.at < *ends.last().unwrap())).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_constant_rate_is_the_running_sum_of_exponentials_to_the_bit() {
        let mut random = Random::from_seed(11);
        let gap_ns = SECOND as f64 / 333.0;
        let mut sum = 0.0;
        let mut schedule = Schedule::new(333.0, Arrivals::Poisson, -7, Random::from_seed(11));
        for n in 0..10_000 {
            sum += random.exponential_unit() * gap_ns;
            assert_eq!(schedule.due(n), -7 + sum.round() as Ns);
        }
    }

    #[test]
    fn a_poisson_schedule_keeps_its_rate_and_its_gaps_are_exponential() {
        let mut schedule = Schedule::new(1000.0, Arrivals::Poisson, 0, Random::from_seed(3));
        let dues: Vec<_> = (0..100_000).map(|n| schedule.due(n)).collect();
        let seconds = *dues.last().unwrap() as f64 / 1e9;
        assert!((seconds - 100.0).abs() < 1.5, "{seconds}");
        let long = dues.windows(2).filter(|w| w[1] - w[0] > 1_000_000).count() as f64;
        assert!((long / 1e5 - (-1f64).exp()).abs() < 0.01, "{long}");
    }

    #[test]
    fn an_even_schedule_does_not_drift() {
        let mut schedule = Schedule::new(3.0, Arrivals::Even, -SECOND, Random::from_seed(3));
        assert_eq!(schedule.due(0), -SECOND);
        assert_eq!(schedule.due(3_000_003), 1_000_000 * SECOND);
    }

    #[test]
    fn scripts_are_chosen_in_proportion_to_their_weights() {
        let mut choice = Choice::new([3, 0, 1].into(), Random::from_seed(5));
        let mut counts = [0; 3];
        for n in 0..40_000 {
            counts[usize::from(choice.script(n))] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((counts[0] - 30_000i32).abs() < 400, "{counts:?}");
    }
}
