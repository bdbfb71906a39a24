//! Who is served when: at most C statements at the same time, in order of arrival, each for its
//! service time. Pure: times come in and go out as values, so that queues are exact to the digit.
//!
//! A statement that had to wait starts at the very time at which the one before it was due to
//! end, not when we noticed: lateness of timers does not add up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Names a statement that is waiting or in service. Tickets ascend in order of arrival.
pub(crate) type Ticket = u64;

/// A statement whose service is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Done {
    pub(crate) at: Instant,
    pub(crate) ticket: Ticket,
    /// Whose statement it is.
    pub(crate) slot: usize,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    slot: usize,
    arrived: Instant,
    /// `None` is for ever.
    service: Option<Duration>,
}

/// The queue and the places in service.
#[derive(Debug)]
pub(crate) struct Desk {
    places: usize,
    last_ticket: Ticket,
    waiting: BTreeMap<Ticket, Waiting>,
    in_service: HashSet<Ticket>,
    /// Ends of service; those of statements that left are skipped.
    ends: BinaryHeap<Reverse<Done>>,
}

impl Desk {
    pub(crate) fn new(servers: Option<NonZeroUsize>) -> Self {
        Self {
            places: servers.map_or(usize::MAX, NonZeroUsize::get),
            last_ticket: 0,
            waiting: BTreeMap::new(),
            in_service: HashSet::new(),
            ends: BinaryHeap::new(),
        }
    }

    /// Whether a new statement is served at once.
    pub(crate) fn has_place(&self) -> bool {
        self.in_service.len() < self.places
    }

    /// Adds a statement that arrived at this time.
    pub(crate) fn enter(
        &mut self,
        slot: usize,
        arrived: Instant,
        service: Option<Duration>,
    ) -> Ticket {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let statement = Waiting { slot, arrived, service };
        if self.has_place() {
            self.serve(ticket, statement, arrived);
        } else {
            self.waiting.insert(ticket, statement);
        }
        ticket
    }

    /// Removes a statement that is not to be answered by us; its place is free from `now` on.
    pub(crate) fn leave(&mut self, ticket: Ticket, now: Instant) {
        if self.waiting.remove(&ticket).is_none() && self.in_service.remove(&ticket) {
            self.serve_next(now);
        }
    }

    /// The next statement whose service was over by `now`, in order of those ends.
    pub(crate) fn take_done(&mut self, now: Instant) -> Option<Done> {
        while self.ends.peek().is_some_and(|end| end.0.at <= now) {
            let Reverse(done) = self.ends.pop()?;
            if self.in_service.remove(&done.ticket) {
                self.serve_next(done.at);
                return Some(done);
            }
        }
        None
    }

    /// When `take_done` may have something next.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.peek().map(|end| end.0.at)
    }

    /// Statements in service and statements waiting.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.in_service.len(), self.waiting.len())
    }

    fn serve_next(&mut self, free_from: Instant) {
        if let Some((ticket, statement)) = self.waiting.pop_first() {
            self.serve(ticket, statement, free_from.max(statement.arrived));
        }
    }

    fn serve(&mut self, ticket: Ticket, statement: Waiting, start: Instant) {
        self.in_service.insert(ticket);
        let end = statement.service.and_then(|service| start.checked_add(service));
        if let Some(at) = end {
            self.ends.push(Reverse(Done { at, ticket, slot: statement.slot }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const MS: Duration = Duration::from_millis(1);

    fn desk(servers: usize) -> Desk {
        Desk::new(NonZeroUsize::new(servers))
    }

    /// Serves `arrivals` (ms) of `service` (ms) each and gives the ends in ms, by arrival.
    fn serve(servers: usize, arrivals: &[f64], service: f64) -> Vec<f64> {
        let start = Instant::now();
        let mut desk = desk(servers);
        let mut ends = vec![0.0; arrivals.len()];
        let mut note = |done: Done| ends[done.slot] = (done.at - start).as_secs_f64() * 1e3;
        for (slot, ms) in arrivals.iter().enumerate() {
            let arrived = start + Duration::from_secs_f64(ms / 1e3);
            while let Some(done) = desk.take_done(arrived) {
                note(done);
            }
            desk.enter(slot, arrived, Some(Duration::from_secs_f64(service / 1e3)));
        }
        while let Some(done) = desk.take_done(start + Duration::from_secs(1 << 30)) {
            note(done);
        }
        ends
    }

    #[test]
    fn one_server_serves_in_order_of_arrival_without_gaps() {
        assert_eq!(serve(1, &[0.0, 1.0, 2.0, 50.0], 10.0), [10.0, 20.0, 30.0, 60.0]);
    }

    #[test]
    fn two_servers_serve_two_at_a_time() {
        assert_eq!(serve(2, &[0.0, 1.0, 2.0, 3.0], 10.0), [10.0, 11.0, 20.0, 21.0]);
    }

    #[test]
    fn an_end_that_is_noticed_late_delays_nobody() {
        let start = Instant::now();
        let mut desk = desk(1);
        desk.enter(1, start, Some(10 * MS));
        desk.enter(2, start + MS, Some(10 * MS));
        let late = start + 500 * MS;
        assert_eq!(desk.take_done(late).map(|done| done.at), Some(start + 10 * MS));
        assert_eq!(desk.take_done(late).map(|done| done.at), Some(start + 20 * MS));
        assert_eq!(desk.take_done(late), None);
    }

    #[test]
    fn who_leaves_frees_the_place_and_is_never_done() {
        let start = Instant::now();
        let mut desk = desk(1);
        let hanging = desk.enter(1, start, None);
        let second = desk.enter(2, start, Some(10 * MS));
        let third = desk.enter(3, start, Some(MS));
        assert_eq!((desk.next_end(), desk.counts()), (None, (1, 2)));
        desk.leave(third, start);
        desk.leave(hanging, start + MS);
        desk.leave(hanging, start + MS);
        let done = Done { at: start + 11 * MS, ticket: second, slot: 2 };
        assert_eq!(desk.take_done(start + 99 * MS), Some(done));
        assert_eq!(desk.counts(), (0, 0));
    }

    #[test]
    fn constant_service_at_random_arrivals_waits_as_the_m_d_1_formula_says() {
        let mut random = Random::new(11);
        let mut now = 0.0;
        let arrivals: Vec<f64> = (0..400_000)
            .map(|_| {
                now += random.exponential(12.5);
                now
            })
            .collect();
        let ends = serve(1, &arrivals, 10.0);
        let latencies: Vec<f64> = ends.iter().zip(&arrivals).map(|(end, due)| end - due).collect();
        let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
        let over = latencies.iter().filter(|&&ms| ms > 50.0).count() as f64;
        let over = over / latencies.len() as f64;
        // docs/explanation/method.md, section 7: load 0.8, mean 30.0 ms, 15.4625 % over 50 ms.
        assert!((mean - 30.0).abs() < 1.0, "mean {mean}");
        assert!((over - 0.154_625).abs() < 0.008, "over 50 ms: {over}");
    }
}
