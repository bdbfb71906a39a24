//! Which way a run waits for its server.

use crate::error::{Error, Kind, Result};
use crate::pace::Think;
use crate::plan::{Load, Plan, Polling};

/// The way that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// Readiness: epoll, or kqueue where that is what the system has.
    Epoll,
    /// Completions.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    IoUring,
}

impl Chosen {
    /// Its name, as users know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Epoll if cfg!(target_os = "linux") => "epoll",
            Self::Epoll => "kqueue",
            #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
            Self::IoUring => "io_uring",
        }
    }
}

/// What the plan asks for, or what costs least with so many connections of a thread.
///
/// # Errors
/// Why there is no io_uring, where it is asked for.
pub fn choose(plan: &Plan, connections: usize) -> Result<Chosen> {
    // Only clients without a pause complete together, so that a system call serves many. Where one
    // is served at a time io_uring saves nothing.
    // And a connection for every transaction costs so much that waiting is nothing beside it.
    let is_busy = matches!(plan.load, Load::Closed { think: Think::None }) && !plan.connect_each;
    match plan.poll {
        Polling::Epoll => Ok(Chosen::Epoll),
        Polling::Auto if is_busy && connections >= URING_FROM => {
            Ok(uring(connections).unwrap_or(Chosen::Epoll))
        }
        Polling::Auto => Ok(Chosen::Epoll),
        Polling::IoUring => uring(connections).map_err(|reason| {
            Error::new(Kind::System, format!("io_uring cannot be used: {reason}"))
                .with_hint("use --poll auto or epoll; io_uring needs Linux 6.1, and to be allowed")
        }),
    }
}

/// From so many connections of a thread on io_uring costs less. With fewer it has fewer system calls
/// to save than it loses by how it wakes us: not by the synchronous wake-up of a socket's readers, so
/// that the scheduler does not know that the server is about to wait, and puts us on another CPU.
const URING_FROM: usize = 4;

/// Whether a ring can be made, with all that we use. In a thread of its own: the end of a ring
/// interrupts the system calls of the thread that made it.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn uring(connections: usize) -> std::result::Result<Chosen, String> {
    use rustix::io::Errno;
    let probe = std::thread::spawn(move || super::uring::Uring::new(connections).map(drop));
    match probe.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())) {
        Ok(()) => Ok(Chosen::IoUring),
        Err(error) => Err(match Errno::from_io_error(&error) {
            Some(Errno::NOSYS) => "this kernel does not have it".into(),
            Some(Errno::INVAL) => "this kernel is too old for it".into(),
            Some(Errno::PERM | Errno::ACCESS) => {
                "this system forbids it (kernel.io_uring_disabled, or a container's seccomp)".into()
            }
            _ => error.to_string(),
        }),
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn uring(_: usize) -> std::result::Result<Chosen, String> {
    Err("this system does not have it".into())
}
