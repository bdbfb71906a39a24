//! How a run is ended: by its plan, by request, or at once. Shared by its threads and its owner.

use crate::pace::Ns;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The end of a run that ends by count.
pub const NEVER: Ns = Ns::MAX / 2;

/// What the owner of a run may change while it goes on.
#[derive(Debug)]
pub struct Control {
    end: AtomicI64,
    aborted: AtomicBool,
}

impl Control {
    /// Nothing new falls due at `end` or later.
    #[must_use]
    pub fn new(end: Ns) -> Self {
        Self { end: AtomicI64::new(end), aborted: AtomicBool::new(false) }
    }

    /// When nothing new falls due any more.
    pub fn end(&self) -> Ns {
        self.end.load(Ordering::Acquire)
    }

    /// Ends earlier; never later.
    pub fn end_at(&self, end: Ns) {
        self.end.fetch_min(end, Ordering::AcqRel);
    }

    /// Ends without grace.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    /// Whether it is to end without grace.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }
}
