//! Distributions of times: exact sums, and a histogram in the standard encoding.

use crate::pace::Ns;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};

/// A distribution of times: exact sums and a histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub sum_ns: u128,
    /// The sum of their squares, square nanoseconds.
    pub square_sum: f64,
    /// The largest, nanoseconds.
    pub max_ns: u64,
    /// The histogram in HdrHistogram's V2 encoding; empty where `count` is 0.
    pub histogram: Vec<u8>,
}

/// The longest time that a histogram tells from others, nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// The histogram of all times: 3 significant digits up to an hour, in nanoseconds.
///
/// # Panics
/// Never: the bounds are constants.
#[must_use]
pub fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds")
}

/// Makes distributions one after the other, in the same memory.
///
/// Times are counted by their leading 11 bits, which is what a histogram of 3 digits keeps of them:
/// a few instructions for each time, where the histogram itself takes many.
pub struct Collector {
    bins: Vec<u32>,
    histogram: Histogram<u32>,
    serializer: V2Serializer,
}

/// The bin of a time, which is its place among the counts of a histogram.
#[inline]
pub(crate) fn bin(time: u64) -> usize {
    let shift = 53 - (time | 0x7ff).leading_zeros();
    #[expect(clippy::cast_possible_truncation, reason = "11 bits, and at most 53 times 2^10")]
    let bin = (time >> shift) as usize;
    bin + ((shift as usize) << 10)
}

/// The least time of a bin.
pub(crate) fn least(bin: usize) -> u64 {
    let shift = (bin >> 10).saturating_sub(1);
    ((bin - (shift << 10)) as u64) << shift
}

impl Default for Collector {
    fn default() -> Self {
        let histogram = histogram();
        let bins = vec![0; histogram.distinct_values()];
        Self { bins, histogram, serializer: V2Serializer::new() }
    }
}

impl Collector {
    /// The distribution of these times; negative ones count as 0.
    #[expect(clippy::cast_precision_loss, reason = "a sum of squares for a deviation")]
    pub fn times(&mut self, values: impl Iterator<Item = Ns>) -> Times {
        let (mut count, mut sum, mut square_sum) = (0, 0, 0.0);
        let (mut first, mut last) = (usize::MAX, 0);
        let mut longest = 0;
        let room = self.bins.len();
        values.for_each(|value| {
            let value = value.max(0);
            square_sum += (value as f64).powi(2);
            let value = value.cast_unsigned();
            count += 1;
            sum += u128::from(value);
            longest = longest.max(value);
            let bin = if bin(value) < room { bin(value) } else { bin(LONGEST) };
            (first, last) = (first.min(bin), last.max(bin));
            self.bins[bin] += 1;
        });
        let mut times =
            Times { count, sum_ns: sum, square_sum, max_ns: longest, histogram: vec![] };
        if count > 0 {
            self.encode(first, last, &mut times.histogram);
        }
        times
    }

    /// Empties the bins from `first` to `last` into a histogram.
    fn encode(&mut self, first: usize, last: usize, out: &mut Vec<u8>) {
        for (bin, count) in (first..=last).zip(&mut self.bins[first..=last]) {
            if *count > 0 {
                self.histogram.saturating_record_n(least(bin), std::mem::take(count));
            }
        }
        self.serializer.serialize(&self.histogram, out).expect("a vector takes all bytes");
        self.histogram.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_distribution_is_what_the_histogram_makes_of_each_time(
            series in prop::collection::vec(
                prop::collection::vec((0u32..50, any::<i64>()).prop_map(|(bits, v)| v >> bits), 0..40), 1..4
            )
        ) {
            let mut collector = Collector::default();
            for values in series {
                let mut expected = histogram();
                let mut encoded = Vec::new();
                for value in &values {
                    expected.saturating_record(u64::try_from(*value).unwrap_or(0));
                }
                if !values.is_empty() {
                    V2Serializer::new().serialize(&expected, &mut encoded).unwrap();
                }
                let found = collector.times(values.iter().copied());
                prop_assert_eq!(found.histogram, encoded);
                prop_assert_eq!(found.count, values.len() as u64);
                let sum: u128 = values.iter().map(|v| u128::try_from(*v).unwrap_or(0)).sum();
                prop_assert_eq!(found.sum_ns, sum);
            }
        }

        #[test]
        fn a_bin_begins_at_its_least_time(time in 0..=LONGEST) {
            prop_assert!(least(bin(time)) <= time && time < least(bin(time) + 1));
        }
    }
}
