//! How a run is ended: by its plan, by request, or at once. Shared by its threads and its owner.

use crate::error::Error;
use crate::pace::Ns;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

/// The end of a run that ends by count.
pub const NEVER: Ns = Ns::MAX / 2;

/// What the owner of a run may change while it goes on.
#[derive(Debug)]
pub struct Control {
    end: AtomicI64,
    aborted: AtomicBool,
    clients: AtomicU32,
    hopeless: OnceLock<Error>,
}

impl Control {
    /// Nothing new falls due at `end` or later; `clients` clients take part.
    #[must_use]
    pub fn new(end: Ns, clients: u32) -> Self {
        let (end, aborted) = (AtomicI64::new(end), AtomicBool::new(false));
        let hopeless = OnceLock::new();
        Self { end, aborted, clients: AtomicU32::new(clients), hopeless }
    }

    /// When nothing new falls due any more.
    pub fn end(&self) -> Ns {
        self.end.load(Ordering::Acquire)
    }

    /// Ends earlier; never later.
    pub fn end_at(&self, end: Ns) {
        self.end.fetch_min(end, Ordering::AcqRel);
    }

    /// So many clients, at least one, take no part any more at `now`: they gave up, or are through.
    /// When none is left, nothing falls due any more.
    pub fn clients_gone(&self, count: u32, now: Ns) {
        if self.clients.fetch_sub(count, Ordering::AcqRel) == count {
            self.end_at(now);
        }
    }

    /// Ends at once with this error, the first time.
    pub fn give_up(&self, now: Ns, error: Error) {
        let _ = self.hopeless.set(error);
        // The end first: a thread that sees the abort must see no later end.
        self.end_at(now);
        self.abort();
    }

    /// Why going on makes no sense, if so.
    pub fn hopeless(&self) -> Option<&Error> {
        self.hopeless.get()
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
