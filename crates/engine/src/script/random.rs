//! Random numbers bit for bit as pgbench draws them (xoroshiro128** seeded by splitmix64), so
//! that the same seed gives the same SQL. Knows nothing of expressions and clients.
//!
//! Facts from pgbench's documentation and behaviour; `tests/conformance` holds them against the
//! installed pgbench.

use rand_xoshiro::Xoroshiro128StarStar;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A stream of random numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random(Xoroshiro128StarStar);

impl Random {
    /// The stream that belongs to a 64-bit seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(Xoroshiro128StarStar::seed_from_u64(seed))
    }

    /// A new stream seeded by this one's next number.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self::from_seed(self.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1), 52 bits.
    #[expect(clippy::cast_precision_loss, reason = "52 bits fit")]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 12) as f64 * (1.0 / (1u64 << 52) as f64)
    }

    /// Uniform in 0..=`span`, by rejection under the smallest covering power of two.
    pub fn up_to(&mut self, span: u64) -> u64 {
        if span == 0 {
            return 0;
        }
        let shift = span.leading_zeros();
        loop {
            let value = self.bits() >> shift;
            if value <= span {
                return value;
            }
        }
    }

    /// Exponential with mean 1; never infinite.
    pub fn exponential_unit(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Uniform in `low..=high`; needs `low <= high`.
    pub fn uniform(&mut self, low: i64, high: i64) -> i64 {
        low.wrapping_add_unsigned(self.up_to(high.wrapping_sub(low).cast_unsigned()))
    }

    /// Truncated exponential over `low..=high`; `shape` > 0, larger is steeper.
    pub fn exponential(&mut self, low: i64, high: i64, shape: f64) -> i64 {
        let cut = (-shape).exp();
        let uniform = 1.0 - self.unit();
        let fraction = -(cut + (1.0 - cut) * uniform).ln() / shape;
        scaled(low, high, fraction)
    }

    /// Gaussian cut at `shape` standard deviations around the middle of `low..=high`;
    /// `shape` >= 2. Box-Muller, repeated until inside.
    pub fn gaussian(&mut self, low: i64, high: i64, shape: f64) -> i64 {
        loop {
            let first = 1.0 - self.unit();
            let second = 1.0 - self.unit();
            let z = (-2.0 * first.ln()).sqrt() * (2.0 * std::f64::consts::PI * second).sin();
            if z >= -shape && z < shape {
                return scaled(low, high, (z + shape) / (shape * 2.0));
            }
        }
    }

    /// Zipfian over `low..=high` with exponent `s` in [1.001, 1000], by Devroye's rejection
    /// ("Non-Uniform Random Variate Generation", p. 550-551).
    #[expect(clippy::cast_precision_loss, reason = "pgbench computes in double")]
    #[expect(clippy::cast_possible_truncation, reason = "x <= n was checked")]
    pub fn zipfian(&mut self, low: i64, high: i64, s: f64) -> i64 {
        let n = high.wrapping_sub(low).wrapping_add(1);
        if n <= 1 {
            return low;
        }
        let b = 2f64.powf(s - 1.0);
        loop {
            let u = self.unit();
            let v = self.unit();
            let x = u.powf(-1.0 / (s - 1.0)).floor();
            let t = (1.0 + 1.0 / x).powf(s - 1.0);
            if v * x * (t - 1.0) / (b - 1.0) <= t / b && x <= n as f64 {
                return low - 1 + x as i64;
            }
        }
    }
}

/// The integer at `fraction` of `low..=high`, truncated as C does.
#[expect(clippy::cast_precision_loss, reason = "pgbench computes in double")]
#[expect(clippy::cast_possible_truncation, reason = "pgbench truncates")]
fn scaled(low: i64, high: i64, fraction: f64) -> i64 {
    let span = high.wrapping_sub(low).wrapping_add(1) as f64;
    low.wrapping_add((span * fraction) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's function stream as pgbench derives it: base stream, then one draw.
    fn first_client(seed: u64) -> Random {
        Random::from_seed(seed).split()
    }

    #[test]
    fn one_seed_gives_the_numbers_that_pgbench_draws() {
        let mut random = first_client(5432);
        assert_eq!(random.uniform(10, 19), 17);
        assert_eq!(random.exponential(100, 199, 10.0), 104);
        assert_eq!(random.gaussian(1000, 1999, 10.0), 1498);
        assert_eq!(random.zipfian(1, 9, 1.3), 3);
    }

    #[test]
    fn every_draw_stays_in_its_range() {
        let mut random = Random::from_seed(7);
        for _ in 0..10_000 {
            assert!((3..=5).contains(&random.uniform(3, 5)));
            assert!((1..=50).contains(&random.exponential(1, 50, 0.1)));
            assert!((1..=50).contains(&random.gaussian(1, 50, 2.0)));
            assert!((1..=50).contains(&random.zipfian(1, 50, 1.001)));
        }
        assert_eq!(random.uniform(4, 4), 4);
        random.uniform(i64::MIN, i64::MAX);
    }
}
