//! The system's clocks: the monotonic one with a zero of the run's own, and a thread's CPU time.

use crate::pace::Ns;
use nix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// One thread's view of the clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Ns,
}

impl Default for Clock {
    /// A clock that shows 0 now.
    fn default() -> Self {
        Self { origin: monotonic() }
    }
}

impl Clock {
    /// Makes `origin`, which may lie ahead, the time 0.
    pub fn set_origin(&mut self, origin: Instant) {
        let (here, now) = (monotonic(), Instant::now());
        let ns =
            |duration: std::time::Duration| Ns::try_from(duration.as_nanos()).unwrap_or(Ns::MAX);
        let ahead = origin.checked_duration_since(now).map_or_else(|| -ns(now - origin), ns);
        self.origin = here.saturating_add(ahead);
    }

    /// The time.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Ns {
        monotonic() - self.origin
    }
}

/// CPU time of this thread, nanoseconds.
#[must_use]
pub fn thread_cpu() -> Ns {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
fn monotonic() -> Ns {
    read(ClockId::CLOCK_MONOTONIC)
}

#[inline]
fn read(clock: ClockId) -> Ns {
    let time = clock_gettime(clock).expect("every system has this clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}
