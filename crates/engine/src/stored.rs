//! Histograms as they are stored. Reading does not trust the file: damage is an error before
//! anything is allocated for it; intact ones are merged and read by rank.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
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
    if encoded.is_empty() {
        return Ok(0);
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
    let (mut place, mut sum) = (0u64, 0u64);
    while !payload.is_empty() {
        let number = signed(varint(&mut payload).ok_or("it ends within a number")?);
        // A negative number is that many counts of zero.
        place = place.saturating_add(if number < 0 { number.unsigned_abs() } else { 1 });
        if place > *counts as u64 {
            return Err(format!("it has more than {counts} counts"));
        }
        sum = sum
            .checked_add(u64::try_from(number).unwrap_or(0))
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or("it counts more than there can be")?;
    }
    Ok(sum)
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
    if encoded.is_empty() {
        return Ok(());
    }
    let mut bytes = encoded;
    let other: Histogram<u64> =
        Deserializer::new().deserialize(&mut bytes).map_err(|e| e.to_string())?;
    to.add(&other).map_err(|e| e.to_string())
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
