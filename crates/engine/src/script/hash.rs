//! pgbench's hash functions and its pseudorandom permutation, bit for bit. Knows only integers.

use super::random::Random;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
const MURMUR_FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const MURMUR_SHIFT: u32 = 47;
/// How often `permute` mixes.
const ROUNDS: usize = 6;

/// FNV-1a of the eight bytes of `value`, lowest first; the seed is xored into the offset.
pub(super) fn fnv1a(value: i64, seed: i64) -> i64 {
    let start = FNV_OFFSET ^ seed.cast_unsigned();
    let hash = value
        .to_le_bytes()
        .iter()
        .fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    hash.cast_signed()
}

/// `MurmurHash64A` of one block of eight bytes.
pub(super) fn murmur2(value: i64, seed: i64) -> i64 {
    let mut block = value.cast_unsigned().wrapping_mul(MURMUR_FACTOR);
    block = (block ^ (block >> MURMUR_SHIFT)).wrapping_mul(MURMUR_FACTOR);
    let mut hash = seed.cast_unsigned() ^ MURMUR_FACTOR.wrapping_mul(8);
    hash = (hash ^ block).wrapping_mul(MURMUR_FACTOR);
    hash = (hash ^ (hash >> MURMUR_SHIFT)).wrapping_mul(MURMUR_FACTOR);
    (hash ^ (hash >> MURMUR_SHIFT)).cast_signed()
}

/// Where `value` (modulo `size`) goes in the permutation of `0..size` that belongs to the seed.
///
/// Each round maps the largest power of two at the lower end of the range onto itself (multiply
/// by an odd number, xor, rotate), then the one at its upper end, then shifts everything: each
/// step can be undone, so no two values meet.
pub(super) fn permute(value: i64, size: i64, seed: i64) -> i64 {
    if size < 2 {
        return 0;
    }
    let mut random = Random::from_seed(seed.cast_unsigned());
    let size = size.cast_unsigned();
    let bits = size.ilog2();
    let mut place = value.cast_unsigned() % size;
    for _ in 0..ROUNDS {
        place = mixed(place, bits, &mut random);
        place = size - 1 - mixed(size - 1 - place, bits, &mut random);
        // Both are below 2^63.
        place = (place + random.up_to(size - 1)) % size;
    }
    place.cast_signed()
}

/// Takes two numbers from `random` in any case; changes only a place below 2^`bits`.
fn mixed(place: u64, bits: u32, random: &mut Random) -> u64 {
    let mask = (1 << bits) - 1;
    let factor = (random.bits() & mask) | 1;
    let pattern = random.bits() & mask;
    if place > mask {
        return place;
    }
    let mixed = (place.wrapping_mul(factor) ^ pattern) & mask;
    ((mixed << 1) & mask) | (mixed >> (bits - 1))
}
