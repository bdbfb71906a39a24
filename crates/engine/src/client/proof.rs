//! Whether the scripts of a run work at all. A script with a typo, without its table or without a
//! right to it fails every time: the run ends before the server's log is full of it.

use crate::record::SqlState;
use std::sync::atomic::{AtomicI64, Ordering};

/// So many transactions of scripts that never succeeded may fail.
pub const HOPELESS_AFTER: i64 = 50;
/// The count of a script that has succeeded: far below what failures could add to it.
const SUCCEEDED: i64 = i64::MIN / 2;

/// What all threads know of it: the failures of each script that has not succeeded yet.
#[derive(Debug)]
pub struct Proof {
    scripts: Box<[AtomicI64]>,
}

/// Whether a failure will come again: bad values, logins, names, rights and syntax.
fn comes_again(sqlstate: SqlState) -> bool {
    matches!(&sqlstate[..2], b"22" | b"28" | b"3D" | b"3F" | b"42")
}

impl Proof {
    /// Nothing is known yet about any of the scripts.
    #[must_use]
    pub fn new(scripts: usize) -> Self {
        Self { scripts: (0..scripts).map(|_| AtomicI64::new(0)).collect() }
    }

    /// Whether a script has not succeeded yet.
    #[inline]
    pub fn lacks(&self, script: u16) -> bool {
        self.scripts[usize::from(script)].load(Ordering::Relaxed) >= 0
    }

    /// A transaction of a script succeeded.
    pub fn succeeded(&self, script: u16) {
        self.scripts[usize::from(script)].store(SUCCEEDED, Ordering::Relaxed);
    }

    /// A transaction of a script failed. Whether that is enough: the first 50 transactions of all
    /// scripts that never succeeded have failed in a way that comes again.
    pub fn failed(&self, script: u16, sqlstate: SqlState) -> bool {
        let counter = &self.scripts[usize::from(script)];
        if counter.load(Ordering::Relaxed) < 0 || !comes_again(sqlstate) {
            return false;
        }
        counter.fetch_add(1, Ordering::Relaxed);
        let counts = self.scripts.iter().map(|each| each.load(Ordering::Relaxed).max(0));
        counts.sum::<i64>() >= HOPELESS_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_never_succeeds_is_hopeless_after_50_failures_that_come_again() {
        let proof = Proof::new(2);
        proof.succeeded(1);
        for _ in 0..1000 {
            assert!(!proof.failed(0, *b"40001"));
            assert!(!proof.failed(1, *b"42P01"));
        }
        let enough = |_| proof.failed(0, *b"42P01");
        assert_eq!((1..=50).map(enough).position(|is| is), Some(49));
        proof.succeeded(0);
        assert!(!proof.failed(0, *b"42P01"));
    }

    #[test]
    fn scripts_that_never_succeed_count_together() {
        let proof = Proof::new(2);
        let states = [*b"22012", *b"28000", *b"3D000", *b"3F000", *b"42501"];
        let enough = |n: usize| proof.failed(u16::from(n.is_multiple_of(2)), states[n % 5]);
        assert_eq!((0..50).map(enough).position(|is| is), Some(49));
    }
}
