//! What is due and not done, over time: the generator's check of its own counting. Pure.

use crate::pace::Ns;

/// What is due and not done, from the schedule's times and from the outcomes' apart. Its integral
/// over a trial is the sum of what every transaction waited: Little's law, as an identity, which a
/// record that is lost or told twice would break.
#[derive(Debug, Clone, Copy)]
pub struct Backlog {
    pending: i64,
    counted_to: Ns,
}

impl Backlog {
    /// Nothing is due before `start`.
    #[must_use]
    pub fn new(start: Ns) -> Self {
        Self { pending: 0, counted_to: start }
    }

    /// The integral from where the last one ended until `end`, with what fell `due` and what was
    /// `done` in between. What is reported late counts from its beginning on.
    pub fn integral(&mut self, due: Moments, done: Moments, end: Ns) -> Ns {
        let begin = std::mem::replace(&mut self.counted_to, end);
        let before = self.pending.saturating_mul(end - begin);
        self.pending += due.count - done.count;
        let since = due.until(end) - done.until(end);
        Ns::try_from(i128::from(before) + since).unwrap_or(Ns::MAX)
    }
}

/// How many things happened, and the sum of when.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moments {
    count: i64,
    sum: i128,
}

impl Moments {
    /// One more.
    #[inline]
    pub fn add(&mut self, at: Ns) {
        self.count += 1;
        self.sum += i128::from(at);
    }

    /// The sum of when.
    #[must_use]
    pub fn sum(self) -> i128 {
        self.sum
    }

    /// The sum of how long ago they are at `end`.
    #[must_use]
    pub fn until(self, end: Ns) -> i128 {
        i128::from(self.count) * i128::from(end) - self.sum
    }
}

impl FromIterator<Ns> for Moments {
    fn from_iter<T: IntoIterator<Item = Ns>>(times: T) -> Self {
        let mut moments = Self::default();
        times.into_iter().for_each(|at| moments.add(at));
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_and_not_done_adds_up_to_what_was_waited_however_it_is_told() {
        let transactions = [(0, 5), (1, 9), (4, 4), (7, 30), (12, 13), (12, 29)];
        let mut backlog = Backlog::new(-3);
        let mut sum = 0;
        for (begin, end) in [(-3, 5), (5, 10), (10, 20), (20, 30)] {
            let within = |at: &Ns| (begin..end).contains(at) || (*at == 30 && end == 30);
            let due = transactions.iter().map(|(due, _)| *due).filter(within);
            let done = transactions.iter().map(|(_, done)| *done).filter(within);
            sum += backlog.integral(due.collect(), done.collect(), end);
        }
        assert_eq!(sum, transactions.iter().map(|(due, done)| done - due).sum::<Ns>());
        assert_eq!(backlog.pending, 0);
    }
}
