//! A small seeded generator of random numbers (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
//! Knows no clock: the same seed gives the same numbers on every machine.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// One stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Sixty-four random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// An exponentially distributed number with this mean: -mean ln(u), u uniform in (0, 1].
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        let uniform = ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -mean * uniform.ln()
    }

    /// Printable text of this number of characters, for nonces.
    pub(crate) fn text(&mut self, characters: usize) -> String {
        (0..characters).map(|_| char::from(b'a' + (self.bits() % 26) as u8)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn exponential_numbers_have_the_mean_and_the_spread_that_theory_says() {
        let mut random = Random::new(7);
        let numbers: Vec<f64> = (0..200_000).map(|_| random.exponential(10.0)).collect();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let late = numbers.iter().filter(|&&number| number > 20.0).count() as f64;
        assert!((mean - 10.0).abs() < 0.1, "mean {mean}");
        assert!((late / numbers.len() as f64 - (-2.0_f64).exp()).abs() < 0.003);
        assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0));
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits()]
        };
        assert_eq!(numbers(3), numbers(3));
        assert_ne!(numbers(3), numbers(4));
    }
}
