//! How the rate of a load changes over a trial: a curve of multipliers, its integral, and the
//! inverse of that. Pure: no clock, no random numbers.
//!
//! ```text
//! m(t)  multiplier of the rate at time t, no unit      M(t)  its integral from s to t, ns
//! s     start of the load (warm-up included), ns       v     a time of the load at 1x, ns since s
//!
//!  m(t)                     m(t) is linear between the knots of the plan; before time 0, that is
//!   2 |          ____       in the warm-up, it is m(0), and after the end m(end).
//!     |         |    |
//!   1 |    _____|    |      In a piece that begins at b with multiplier a and slope k:
//!     |___/                   M(t) = M(b) + a (t - b) + k (t - b)^2 / 2
//!   0 +--------------- t      t = b + 2 y / (a + sqrt(a^2 + 2 k y)),  y = v - M(b)
//!     s   0        end      The root is written so that nothing cancels where k is near 0.
//! ```
//!
//! What is due at v in a load whose rate does not change is due at the t with M(t) = v in one with
//! this shape. For Poisson arrivals that is the inversion of the cumulative intensity (Cinlar,
//! Introduction to Stochastic Processes, 1975), for even ones it keeps rate x M apart by 1.

use crate::pace::Ns;
use std::sync::Arc;

/// A part of a shape: from `start` on, up to the start of the next one or the end of the trial, the
/// multiplier goes in a line from `from` to `to`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Nanoseconds from the beginning of the measured part; 0 for the first segment.
    pub start: Ns,
    /// The multiplier of the rate where it begins.
    pub from: f64,
    /// The multiplier where it ends.
    pub to: f64,
}

/// A segment with what came before it.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Nanoseconds since the start of the load.
    begin: f64,
    /// The integral up to there, nanoseconds.
    passed: f64,
    multiplier: f64,
    /// Change of the multiplier in a nanosecond.
    slope: f64,
}

/// A shape that is walked along once, from its beginning. Copies share its pieces.
#[derive(Debug, Clone)]
pub struct Curve {
    pieces: Arc<[Piece]>,
    at: usize,
}

impl Curve {
    /// The curve of `segments` (checked by `Plan::check`) in a load that begins at `start`, not
    /// after 0, and ends at `end`. None where there are no segments: the rate does not change.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a year in nanoseconds to 4 ns")]
    pub fn new(segments: &[Segment], start: Ns, end: Ns) -> Option<Self> {
        let (first, last) = (segments.first()?, segments.last()?);
        let warmup = Segment { start, from: first.from, to: first.from };
        let after = Segment { start: end, from: last.to, to: last.to };
        let all: Vec<Segment> = [&[warmup], segments, &[after]]
            .concat()
            .into_iter()
            .filter(|s| s.start <= end)
            .collect();
        let (mut pieces, mut passed) = (Vec::with_capacity(all.len()), 0.0);
        for (at, segment) in all.iter().enumerate() {
            let length = all.get(at + 1).map_or(0.0, |next| (next.start - segment.start) as f64);
            let slope = if length > 0.0 { (segment.to - segment.from) / length } else { 0.0 };
            let begin = (segment.start - start) as f64;
            pieces.push(Piece { begin, passed, multiplier: segment.from, slope });
            passed += (segment.from + segment.to) / 2.0 * length;
        }
        Some(Self { pieces: pieces.into(), at: 0 })
    }

    /// When the integral is `v` nanoseconds: nanoseconds since the start of the load, infinite
    /// where it never is. `v` must not fall from call to call.
    pub fn when(&mut self, v: f64) -> f64 {
        // Pieces in which nothing falls due end where they begin, and are passed over.
        while self.pieces.get(self.at + 1).is_some_and(|next| next.passed <= v) {
            self.at += 1;
        }
        let Piece { begin, passed, multiplier, slope } = self.pieces[self.at];
        let left = v - passed;
        if left <= 0.0 {
            return begin;
        }
        let root = (multiplier * multiplier + 2.0 * slope * left).max(0.0).sqrt();
        let when = begin + 2.0 * left / (multiplier + root);
        // What rounding puts after the end of its piece would precede the next one.
        self.pieces.get(self.at + 1).map_or(when, |next| when.min(next.begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Arrivals, SECOND, Schedule};
    use crate::script::random::Random;
    use proptest::prelude::*;

    const END: Ns = 20 * SECOND;

    /// The integral of the multipliers from the start of the load to `t`, by the trapezoids between
    /// the knots: what `Curve::when` is the inverse of, the other way round.
    fn integral(segments: &[Segment], warmup: Ns, t: Ns) -> f64 {
        let mut sum = segments[0].from * (warmup + t.min(0)) as f64;
        for (at, segment) in segments.iter().enumerate() {
            let end = segments.get(at + 1).map_or(END, |next| next.start);
            let (whole, part) = ((end - segment.start) as f64, (t.min(end) - segment.start) as f64);
            if part > 0.0 {
                let reached = segment.from + (segment.to - segment.from) * part / whole;
                sum += (segment.from + reached) / 2.0 * part;
            }
        }
        sum + segments.last().expect("one").to * (t - END).max(0) as f64
    }

    fn multiplier() -> impl Strategy<Value = f64> {
        prop_oneof![1 => Just(0.0), 4 => 0.01..8.0f64]
    }

    prop_compose! {
        fn shapes()(
            from in 0.01..4.0f64,
            to in multiplier(),
            later in prop::collection::vec((1..END, multiplier(), multiplier()), 0..8),
        ) -> Vec<Segment> {
            let mut found = vec![Segment { start: 0, from, to }];
            found.extend(later.into_iter().map(|(start, from, to)| Segment { start, from, to }));
            found.sort_by_key(|segment| segment.start);
            found
        }
    }

    fn even(rate: f64, segments: &[Segment], warmup: Ns) -> Schedule {
        Schedule::new(rate, Arrivals::Even, -warmup, Random::from_seed(1))
            .shaped(Curve::new(segments, -warmup, END))
    }

    fn poisson(rate: f64, seed: u64, start: Ns) -> Schedule {
        Schedule::new(rate, Arrivals::Poisson, start, Random::from_seed(seed))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn so_many_fall_due_before_any_time_as_the_integral_says(
            segments in shapes(),
            warmup in prop_oneof![Just(0), 1..3 * SECOND],
            rate in 1.0..200.0f64,
            ends in prop::collection::vec(-3 * SECOND..END, 1..6),
        ) {
            for end in ends.into_iter().filter(|end| *end > -warmup) {
                let mut schedule = even(rate, &segments, warmup);
                let count = (0..).take_while(|&n| schedule.due(n) < end).count() as f64;
                let expected = integral(&segments, warmup, end) * rate / SECOND as f64;
                prop_assert!((count - expected).abs() <= 1.0 + 1e-6, "{} {}", count, expected);
            }
        }

        #[test]
        fn arrivals_with_a_shape_are_those_without_at_the_times_of_the_integral(
            segments in shapes(), warmup in 0..3 * SECOND, rate in 1.0..200.0f64, seed: u64,
        ) {
            let mut flat = poisson(rate, seed, 0);
            let curve = Curve::new(&segments, -warmup, END);
            let mut shaped = poisson(rate, seed, -warmup).shaped(curve);
            for n in 0..500 {
                let (v, due) = (flat.due(n) as f64, shaped.due(n));
                if due > END {
                    break;
                }
                // Half a nanosecond of either, at the highest multiplier, and what f64 cannot hold.
                let found = integral(&segments, warmup, due);
                prop_assert!((found - v).abs() < 8.0 + 1e-12 * v, "{} {}", found, v);
            }
        }

        #[test]
        fn due_times_do_not_fall_and_the_load_begins_at_its_start(
            segments in shapes(), warmup in 0..3 * SECOND, rate in 1.0..200.0f64, seed: u64,
        ) {
            let mut shaped =
                poisson(rate, seed, -warmup).shaped(Curve::new(&segments, -warmup, END));
            let mut last = -warmup;
            for n in 0..2000 {
                let due = shaped.due(n);
                prop_assert!(due >= last);
                last = due;
            }
        }

        #[test]
        fn a_copy_that_skips_numbers_agrees_with_one_that_does_not(
            segments in shapes(), rate in 1.0..200.0f64, seed: u64, step in 1u64..50,
        ) {
            let all = poisson(rate, seed, 0).shaped(Curve::new(&segments, 0, END));
            let (mut all, mut some) = (all.clone(), all);
            for n in 0..1000 {
                let due = all.due(n);
                if n % step == 0 {
                    prop_assert_eq!(some.due(n), due);
                }
            }
        }

        #[test]
        fn a_shape_that_is_1_all_the_time_changes_nothing(
            warmup in 0..3 * SECOND, knot in 1..END, rate in 1.0..200.0f64, seed: u64,
        ) {
            let once = |start| Segment { start, from: 1.0, to: 1.0 };
            let curve = Curve::new(&[once(0), once(knot)], -warmup, END);
            let mut shaped = poisson(rate, seed, -warmup).shaped(curve);
            let mut flat = poisson(rate, seed, -warmup);
            for n in 0..1000 {
                // Sums of parts are rounded once more than the whole.
                prop_assert!((shaped.due(n) - flat.due(n)).abs() <= 1);
            }
        }
    }

    #[test]
    fn nothing_falls_due_while_the_multiplier_is_0() {
        let pause = |start, from| Segment { start, from, to: from };
        let segments = [pause(0, 1.0), pause(5 * SECOND, 0.0), pause(10 * SECOND, 1.0)];
        let mut schedule = even(1.0, &segments, 0);
        let dues: Vec<_> = (0..8).map(|n| schedule.due(n) / SECOND).collect();
        assert_eq!(dues, [0, 1, 2, 3, 4, 10, 11, 12]);
    }

    #[test]
    fn a_load_that_ends_at_0_has_no_transaction_behind_its_end() {
        let mut schedule = even(1.0, &[Segment { start: 0, from: 2.0, to: 0.0 }], 0);
        assert_eq!(schedule.due(0), 0);
        assert!(schedule.due(19) < END);
        assert_eq!(schedule.due(21), Ns::MAX);
    }
}
