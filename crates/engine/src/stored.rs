//! Histograms as they are stored. Reading does not trust the file: damage is an error before
//! anything is allocated for it; intact ones are merged and read by rank.

use crate::times;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use std::sync::LazyLock;

/// Cookie, length of the payload, offset, digits, bounds, ratio.
const HEADER: usize = 40;
/// The length of the payload is the only part of the header that differs.
const LENGTH: std::ops::Range<usize> = 4..8;

/// What every stored histogram begins with, and how many counts one has.
static SHAPE: LazyLock<([u8; HEADER], usize)> = LazyLock::new(|| {
    let empty = empty();
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&empty, &mut bytes).expect("memory takes everything");
    let header = bytes[..HEADER].try_into().expect("a whole header");
    (header, empty.distinct_values())
});

/// A histogram of times without any; of the shape of `times::histogram`, with room for many
/// seconds of them.
///
/// # Panics
/// Never: the bounds are constants.
#[must_use]
pub fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds")
}

/// How many times an encoded histogram counts; empty bytes count none. Allocates nothing.
///
/// # Errors
/// What is wrong with it, if it is not a stored histogram.
pub fn count(encoded: &[u8]) -> Result<u64, String> {
    let mut sum = 0u64;
    each(encoded, |_, count| {
        sum = sum
            .checked_add(count)
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or("it counts more than there can be")?;
        Ok(())
    })?;
    Ok(sum)
}

/// How many times of an encoded histogram are at most as long as each of these, to 3 digits.
///
/// # Errors
/// As `count`.
pub fn counts_at_most(encoded: &[u8], values_ns: &[u64]) -> Result<Vec<u64>, String> {
    count(encoded)?;
    let last = SHAPE.1 - 1;
    let bins: Vec<usize> = values_ns.iter().map(|&ns| times::bin(ns).min(last)).collect();
    let mut sums = vec![0; bins.len()];
    each(encoded, |place, count| {
        for (sum, _) in sums.iter_mut().zip(&bins).filter(|(_, bin)| place <= **bin) {
            *sum += count;
        }
        Ok(())
    })?;
    Ok(sums)
}

/// Adds an encoded histogram to another; empty bytes add nothing.
///
/// # Errors
/// As `count`, and where both together count more than there can be.
pub fn add(encoded: &[u8], to: &mut Histogram<u64>) -> Result<(), String> {
    let sum = to.len().checked_add(count(encoded)?);
    if sum.is_none_or(|sum| i64::try_from(sum).is_err()) {
        return Err("together they count more than there can be".into());
    }
    each(encoded, |place, count| to.record_n(times::least(place), count).map_err(|e| e.to_string()))
}

/// Takes each place of an encoded histogram that counts something, with its count, in order.
fn each(
    encoded: &[u8],
    mut take: impl FnMut(usize, u64) -> Result<(), String>,
) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let (header, counts) = &*SHAPE;
    let Some((found, mut payload)) = encoded.split_at_checked(HEADER) else {
        return Err(format!("{} bytes are too few for a header", encoded.len()));
    };
    if found[..LENGTH.start] != header[..LENGTH.start]
        || found[LENGTH.end..] != header[LENGTH.end..]
    {
        return Err("its header is not that of a histogram of pgpaces".into());
    }
    let length = u32::from_be_bytes(found[LENGTH].try_into().expect("four bytes"));
    if length as usize != payload.len() {
        return Err(format!("it is {} bytes long and says {length}", payload.len()));
    }
    let mut place = 0usize;
    while !payload.is_empty() {
        let number = signed(varint(&mut payload).ok_or("it ends within a number")?);
        // A negative number is that many counts of zero.
        let zeros = if number < 0 { number.unsigned_abs() } else { 1 };
        let next = usize::try_from(zeros).map_or(usize::MAX, |zeros| place.saturating_add(zeros));
        if next > *counts {
            return Err(format!("it has more than {counts} counts"));
        }
        if let Ok(count @ 1..) = u64::try_from(number) {
            take(place, count)?;
        }
        place = next;
    }
    Ok(())
}

/// The time at `rank`, from 1 for the smallest; none beyond the count.
#[must_use]
pub fn value_at_rank(histogram: &Histogram<u64>, rank: u64) -> Option<u64> {
    if rank == 0 || rank > histogram.len() {
        return None;
    }
    let mut passed = 0u64;
    for step in histogram.iter_recorded() {
        passed += step.count_since_last_iteration();
        if passed >= rank {
            return Some(step.value_iterated_to());
        }
    }
    None
}

/// The next number of HdrHistogram's encoding: LEB128, at most nine bytes, the ninth whole.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..9 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if at == 8 {
            return Some(value | u64::from(byte) << 56);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The zigzag encoding undone.
fn signed(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    fn encoded(histogram: &Histogram<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(histogram, &mut bytes).expect("memory takes everything");
        bytes
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_hdrhistogram_reads(
            series in prop::collection::vec(
                prop::collection::vec((0u32..50, any::<u64>()).prop_map(|(bits, v)| v >> bits), 0..40), 1..4
            ),
            values in prop::collection::vec((0u32..50, any::<u64>()).prop_map(|(bits, v)| v >> bits), 0..8),
        ) {
            let (mut all, mut merged) = (empty(), empty());
            for times in series {
                let mut one = empty();
                times.iter().for_each(|ns| one.saturating_record(*ns));
                let bytes = encoded(&one);
                add(&bytes, &mut merged).unwrap();
                let read: Histogram<u64> = Deserializer::new().deserialize(&mut &*bytes).unwrap();
                all.add(&read).unwrap();
                let counts: Vec<u64> = values.iter().map(|ns| read.count_between(0, *ns)).collect();
                prop_assert_eq!(counts_at_most(&bytes, &values).unwrap(), counts);
                prop_assert_eq!(count(&bytes).unwrap(), read.len());
            }
            prop_assert_eq!(encoded(&merged), encoded(&all));
        }
    }
}
