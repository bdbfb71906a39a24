//! When the server is frozen: by windows that count from the first query, or by hand. Pure: the
//! time is an argument.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Between the server and its clients; while it is shut nothing is written to any of them.
#[derive(Debug)]
pub(crate) struct Gate {
    windows: Vec<Range<Duration>>,
    first_query: Option<Instant>,
    by_hand: bool,
    shut: bool,
}

impl Gate {
    pub(crate) fn new(windows: Vec<Range<Duration>>) -> Self {
        Self { windows, first_query: None, by_hand: false, shut: false }
    }

    /// Whether it was shut at the last time.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Tells it the time; true where it has just opened.
    pub(crate) fn tell_time(&mut self, now: Instant) -> bool {
        let was_shut = self.shut;
        let elapsed = self.first_query.map(|first| now.saturating_duration_since(first));
        self.shut = self.by_hand
            || elapsed.is_some_and(|elapsed| self.windows.iter().any(|w| w.contains(&elapsed)));
        was_shut && !self.shut
    }

    /// Tells it that a query came in at `now`; the first one starts the windows' clock.
    pub(crate) fn tell_query(&mut self, now: Instant) {
        if self.first_query.is_none() {
            self.first_query = Some(now);
            self.tell_time(now);
        }
    }

    /// Shuts it until it is opened by hand, or no longer does.
    pub(crate) fn set_by_hand(&mut self, shut: bool) {
        self.by_hand = shut;
    }

    /// When a window begins or ends next.
    pub(crate) fn next_change(&self, now: Instant) -> Option<Instant> {
        let first = self.first_query?;
        self.windows
            .iter()
            .flat_map(|window| [first + window.start, first + window.end])
            .filter(|&change| change > now)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn windows_count_from_the_first_query() {
        let start = Instant::now();
        let mut gate = Gate::new(vec![2 * S..3 * S]);
        assert_eq!(gate.next_change(start), None);
        gate.tell_query(start + 10 * S);
        gate.tell_query(start + 11 * S);
        let mut told = |at| (gate.tell_time(start + at), gate.is_shut());
        assert_eq!(told(11 * S), (false, false));
        assert_eq!(told(12 * S), (false, true));
        assert_eq!(told(13 * S), (true, false));
        assert_eq!(gate.next_change(start + 11 * S), Some(start + 12 * S));
        assert_eq!(gate.next_change(start + 12 * S), Some(start + 13 * S));
        assert_eq!(gate.next_change(start + 13 * S), None);
    }

    #[test]
    fn a_window_from_zero_shuts_before_the_first_answer() {
        let now = Instant::now();
        let mut gate = Gate::new(vec![Duration::ZERO..S]);
        gate.tell_query(now);
        assert!(gate.is_shut());
    }

    #[test]
    fn a_hand_keeps_it_shut_beyond_a_window() {
        let now = Instant::now();
        let mut gate = Gate::new(vec![Duration::ZERO..S]);
        gate.tell_query(now);
        gate.set_by_hand(true);
        assert!(!gate.tell_time(now + 2 * S));
        gate.set_by_hand(false);
        assert!(gate.tell_time(now + 3 * S));
    }
}
