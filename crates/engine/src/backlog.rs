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
    /// `done` in between. What is told late counts from its beginning on.
    pub fn integral(
        &mut self,
        due: impl Iterator<Item = Ns>,
        done: impl Iterator<Item = Ns>,
        end: Ns,
    ) -> Ns {
        let begin = std::mem::replace(&mut self.counted_to, end);
        let mut sum = self.pending.saturating_mul(end - begin);
        for at in due {
            self.pending += 1;
            sum = sum.saturating_add(end - at.min(end));
        }
        for at in done {
            self.pending -= 1;
            sum = sum.saturating_sub(end - at.min(end));
        }
        sum
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
            sum += backlog.integral(due, done, end);
        }
        assert_eq!(sum, transactions.iter().map(|(due, done)| done - due).sum::<Ns>());
        assert_eq!(backlog.pending, 0);
    }
}
