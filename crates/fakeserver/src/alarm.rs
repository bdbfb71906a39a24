//! Wakes the event loop at an instant. Linux's epoll counts in milliseconds, so a timer file
//! descriptor does it there; elsewhere (kqueue) the poll's own timeout is fine enough. Knows
//! nothing of what is due.

use std::io;
use std::time::{Duration, Instant};

use mio::{Registry, Token};

/// One alarm clock; the earlier of two times is what it is set to.
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
    #[cfg(target_os = "linux")]
    set_to: Option<Instant>,
}

#[cfg(target_os = "linux")]
impl Alarm {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;

        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let descriptor = timer.as_raw_fd();
        let mut source = mio::unix::SourceFd(&descriptor);
        registry.register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Self { timer, set_to: None })
    }

    /// Sets the alarm to `next`; the longest time that the poll itself may then wait.
    pub(crate) fn set(
        &mut self,
        next: Option<Instant>,
        now: Instant,
    ) -> io::Result<Option<Duration>> {
        let Some(next) = next else { return Ok(None) };
        if next <= now {
            return Ok(Some(Duration::ZERO));
        }
        let rings_by_then = self.set_to.is_some_and(|set_to| set_to > now && set_to <= next);
        if !rings_by_then {
            self.arm(next - now)?;
            self.set_to = Some(next);
        }
        Ok(None)
    }

    fn arm(&self, delay: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        let it_value = Timespec {
            tv_sec: delay.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: delay.subsec_nanos().into(),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval, it_value },
        )?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(crate) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
        Ok(Self {})
    }

    /// The longest time that the poll may wait so that it wakes at `next`.
    pub(crate) fn set(
        &mut self,
        next: Option<Instant>,
        now: Instant,
    ) -> io::Result<Option<Duration>> {
        Ok(next.map(|next| next.saturating_duration_since(now)))
    }
}
