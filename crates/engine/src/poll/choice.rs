//! Which way a run waits for its server.

use crate::error::{Error, Kind};
use crate::pace::Think;
use crate::plan::{Load, Plan, Polling};

/// The way that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// Readiness: epoll, or kqueue where that is what the system has.
    Epoll,
    /// Completions.
    IoUring,
    /// Threads for which there was no ring have epoll.
    Both,
}

impl Chosen {
    /// Its name, as users know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Epoll if cfg!(target_os = "linux") => "epoll",
            Self::Epoll => "kqueue",
            Self::IoUring => "io_uring",
            Self::Both => "io_uring and epoll",
        }
    }
}

/// What a thread is to do about a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// It has none.
    Without,
    /// It has one where it can.
    Preferred,
    /// It has one, or there is no run.
    Demanded,
}

/// The choice of the plan, or the cheapest one for this number of connections of a thread.
#[must_use]
pub fn choose(plan: &Plan, connections: usize) -> Ring {
    // Only clients without a pause complete together, so that a system call serves many. Where one
    // is served at a time io_uring saves nothing.
    // And a connection for every transaction costs far more than waiting.
    let is_busy = matches!(plan.load, Load::Closed { think: Think::None }) && !plan.connect_each;
    match plan.poll {
        Polling::Auto if is_busy && connections >= URING_FROM => Ring::Preferred,
        Polling::Epoll | Polling::Auto => Ring::Without,
        Polling::IoUring => Ring::Demanded,
    }
}

/// From this number of connections of a thread on, io_uring costs less. With fewer, it saves fewer
/// system calls than it loses by its wake-ups: they are not the synchronous ones of a socket's
/// readers, so the scheduler does not know that the server is about to wait, and uses another CPU.
const URING_FROM: usize = 4;

/// Why there is no ring, where one is demanded.
#[must_use]
pub fn refusal(error: &std::io::Error) -> Error {
    use rustix::io::Errno;
    let refused = match Errno::from_io_error(error) {
        Some(Errno::NOSYS | Errno::INVAL) => Error::new(Kind::System, "io-uring-unsupported"),
        Some(Errno::PERM | Errno::ACCESS) => Error::new(Kind::System, "io-uring-forbidden"),
        Some(Errno::NOMEM) => Error::new(Kind::System, "io-uring-needs-memory"),
        _ => Error::new(Kind::System, "io-uring-failed"),
    };
    refused.with_system(error)
}

impl Chosen {
    /// What all threads together have.
    #[must_use]
    pub fn of(threads: &[Self]) -> Self {
        let first = threads.first().copied().unwrap_or(Self::Epoll);
        if threads.iter().all(|&one| one == first) { first } else { Self::Both }
    }
}

#[cfg(test)]
mod tests {
    use super::Chosen::{self, Both, Epoll, IoUring};

    #[test]
    fn a_run_is_called_by_what_its_threads_have() {
        assert_eq!(Chosen::of(&[IoUring, IoUring]), IoUring);
        assert_eq!(Chosen::of(&[Epoll, Epoll]), Epoll);
        assert_eq!(Chosen::of(&[IoUring, Epoll]), Both);
        assert_eq!(Both.name(), "io_uring and epoll");
    }
}
