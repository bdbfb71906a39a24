//! What the one thing costs that threads share in the hot path: the number of the next transaction
//! of a schedule. Prints nanoseconds a transaction for 1, 2, 4, ... threads up to the argument.

use pgpaces_engine::pace::{Arrivals, Choice, Feed, Schedule, Stream, Taken};
use pgpaces_engine::script::random::Random;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const TRANSACTIONS: u32 = 4_000_000;

/// Nanoseconds of one thread for each transaction that it takes, all taking as fast as they can.
fn taking(threads: u32) -> f64 {
    let schedule = Schedule::new(1e6, Arrivals::Even, 0, Random::from_seed(1));
    let stream = Stream::new(schedule, Choice::new([1].into(), Random::from_seed(2)), u64::MAX);
    let taken = Arc::new(Taken::default());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let mut feed = Feed::Open { taken: Arc::clone(&taken), stream: stream.clone() };
            scope.spawn(move || {
                for _ in 0..TRANSACTIONS {
                    black_box(feed.next(0, 0, i64::MAX));
                }
            });
        }
    });
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(TRANSACTIONS)
}

fn main() {
    let most = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let mut threads = 1;
    while threads <= most {
        println!("{threads} {:.1}", taking(threads));
        threads *= 2;
    }
}
