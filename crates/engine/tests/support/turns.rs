//! Several workers in one virtual time: each says until when it could go on and goes on when no
//! other is behind it. One at a time, in the order of time, so that a run can be repeated.

use pgpaces_engine::pace::Ns;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Where each worker wants to go on; what has ended stands at `Ns::MAX`.
#[derive(Debug, Default)]
struct Board {
    times: Mutex<Vec<Ns>>,
    changed: Condvar,
}

/// One worker's place. Dropping it lets the others go on without it.
#[derive(Debug)]
pub struct Turn {
    board: Arc<Board>,
    place: usize,
}

/// Turns for `count` workers; none goes on before `start`, and the first is on turn.
pub fn turns(count: usize, start: Ns) -> Vec<Turn> {
    let board = Arc::new(Board { times: Mutex::new(vec![start; count]), ..Board::default() });
    (0..count).map(|place| Turn { board: Arc::clone(&board), place }).collect()
}

impl Turn {
    /// Blocks until nobody is before `at`; of those who wait for the same time, the first goes.
    pub fn wait_for(&self, at: Ns) {
        let mut times = self.set(at);
        while !self.is_first(&times) {
            times = self.board.changed.wait(times).expect("no panic on the board");
        }
    }

    fn set(&self, at: Ns) -> MutexGuard<'_, Vec<Ns>> {
        let mut times = self.board.times.lock().expect("no panic on the board");
        times[self.place] = at;
        self.board.changed.notify_all();
        times
    }

    fn is_first(&self, times: &[Ns]) -> bool {
        let first = times.iter().enumerate().min_by_key(|(place, at)| (**at, *place));
        first.is_some_and(|(place, _)| place == self.place)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.set(Ns::MAX));
    }
}
