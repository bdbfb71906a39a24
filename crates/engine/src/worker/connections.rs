//! Connections come about, end and are made again.

use super::{BACKOFF, CONNECTING_MAX, Outage, SEARCHED_EVERY, Slot, Stage, Then, Worker};
use crate::client::State;
use crate::control::NEVER;
use crate::destination::Loss;
use crate::error::{Error, Kind, Result};
use crate::pace::{Due, Feed, Ns};
use crate::poll::{Poll, Token};
use crate::record::Note;
use crate::route::shown;
use crate::wire::Fault;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

impl<P: Poll> Worker<P> {
    /// Connects all clients, a bounded number at a time. The time-out is for the next of them.
    ///
    /// # Errors
    /// Why the first connection that failed did.
    pub fn connect(&mut self) -> Result<()> {
        let mut deadline = self.poll.now().saturating_add(self.setup.connect_timeout);
        let (mut opened, mut let_in) = (0, 0);
        if self.setup.connect_each {
            self.free = (0..self.slots.len()).map(|token| (token, 0)).collect();
        }
        loop {
            while self.free.len() < self.slots.len()
                && opened < self.slots.len()
                && opened - self.free.len() < CONNECTING_MAX
            {
                self.open(opened, Then::Ask)?;
                opened += 1;
            }
            if self.free.len() == self.slots.len() || self.setup.control.is_aborted() {
                return Ok(());
            }
            let now = self.poll.now();
            if self.free.len() > let_in {
                let_in = self.free.len();
                deadline = now.saturating_add(self.setup.connect_timeout);
            }
            if now >= deadline {
                return Err(Error::new(Kind::Connect, "clients-not-let-in"));
            }
            self.fire(now)?;
            let until = match self.alarms.peek() {
                _ if !self.unread.is_empty() => now,
                Some(Reverse((at, _))) => deadline.min(*at),
                None => deadline,
            };
            self.exchange(until, false)?;
        }
    }

    /// A client is free since `since`: it has a connection again if it had none, and where every
    /// transaction has its own, that of the last one ends.
    pub(super) fn settle(&mut self, token: Token, since: Ns) {
        let slot = &mut self.slots[token];
        let opened = slot.opened.take();
        if std::mem::take(&mut slot.attempts) > 0 {
            self.record.batch.connects += 1;
        } else if opened.is_none() {
            if self.setup.connect_each {
                self.hang_up(token);
            }
            return;
        }
        if let Some(outage) = slot.outage.take() {
            self.record.up(outage.since, since);
        }
        let took = opened.map_or(0, |opened| since - opened);
        self.record.batch.connect_ns += u64::try_from(took).unwrap_or(0);
    }

    /// Ends a connection.
    pub(super) fn hang_up(&mut self, token: Token) {
        let client = &mut self.slots[token].client;
        client.hang_up();
        if let Some(connection) = client.connection()
            && let Ok(bytes) = connection.outgoing()
        {
            let _ = self.poll.send(token, bytes);
        }
        client.forget();
        self.poll.close(token);
    }

    /// Begins a connection, and says what its client does then.
    pub(super) fn open(&mut self, token: Token, then: Then) -> Result<()> {
        if self.setup.connect_each && self.slots[token].opened.is_none() {
            self.slots[token].opened = Some(self.poll.now());
        }
        let place = match self.setup.destination.place() {
            Ok(place) => place,
            Err(why) => return self.wait_for_search(token, then, why),
        };
        let slot = &mut self.slots[token];
        slot.stage = Stage::Connecting { until: None, then };
        slot.place = Some(Arc::clone(&place));
        slot.client.open(&place.settings);
        if place.number > self.newest_place {
            self.newest_place = place.number;
            self.record.batch.notes.extend(place.moved.then(|| Note::Moved(shown(&place.address))));
        }
        match self.poll.connect(token, &place.address) {
            Ok(()) => {
                if self.running {
                    let deadline = self.poll.now().saturating_add(self.setup.connect_timeout);
                    self.enter(token, Stage::Connecting { until: Some(deadline), then });
                }
                self.flush(token)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                // The server's backlog is full: it will have room in a moment.
                self.poll.close(token);
                self.retry(token, then);
                Ok(())
            }
            // EMFILE, ENFILE: it is not the server that is in the way.
            Err(error) if !self.running && matches!(error.raw_os_error(), Some(23 | 24)) => {
                Err(Error::new(Kind::System, "too-many-open-files").with_system(&error))
            }
            Err(error) => self.lost(token, &Fault::lost(&error.to_string())),
        }
    }

    /// The server is searched: the client looks again soon, if the run can wait for it.
    fn wait_for_search(&mut self, token: Token, then: Then, why: Option<Error>) -> Result<()> {
        let now = self.poll.now();
        self.begin_outage(token, now);
        let slot = &mut self.slots[token];
        slot.attempts = slot.attempts.max(1);
        match why.map(Fault::from) {
            Some(fault) if self.gives_up(token, &fault, now) => self.lock_out(token, then, fault),
            _ => {
                let until = now + SEARCHED_EVERY / 2 + self.setup.random.uniform(0, SEARCHED_EVERY);
                self.enter(token, Stage::Down { until, then });
            }
        }
        Ok(())
    }

    fn begin_outage(&mut self, token: Token, now: Ns) {
        self.slots[token].outage.get_or_insert_with(|| {
            self.record.down(now);
            Outage { since: now, refused_since: None }
        });
    }

    /// Whether a client without a connection stops trying for this reason. What refuses it during a
    /// failover may let it in after it; a run that ends by count would wait for it for ever.
    fn gives_up(&mut self, token: Token, fault: &Fault, now: Ns) -> bool {
        let Some(outage) = &mut self.slots[token].outage else {
            return false;
        };
        if is_refusal(fault) {
            outage.refused_since.get_or_insert(now);
        } else {
            outage.refused_since = None;
        }
        let waited = |since: Ns| now - since > self.setup.connect_timeout;
        outage.refused_since.is_some_and(waited)
            || (waited(outage.since) && self.setup.control.end() >= NEVER)
    }

    /// A connection is gone.
    pub(super) fn lost(&mut self, token: Token, fault: &Fault) -> Result<()> {
        self.poll.close(token);
        let now = self.poll.now();
        let slot = &mut self.slots[token];
        if !self.running {
            return Err(crate::route::error_of(fault));
        }
        let logging_in = matches!(slot.client.state(), State::Login(_));
        let was_open = !logging_in && slot.client.state() != State::Closed;
        let how = match was_open {
            true => Loss::Session,
            false if logging_in && is_refusal(fault) => Loss::Refusal,
            false => Loss::Connection,
        };
        if self.setup.recover
            && let Some(place) = &slot.place
        {
            self.setup.destination.lost(place.number, how);
        }
        self.record.batch.disconnects += u32::from(was_open);
        let then = slot.then();
        // One that has done its part loses nothing.
        let aborts = !self.setup.recover && !slot.is_done();
        self.begin_outage(token, now);
        let slot = &mut self.slots[token];
        if aborts {
            slot.client.say_lost(fault, &mut self.record);
        }
        slot.client.lost(now, fault, &mut self.record);
        if aborts {
            let error = Error::new(Kind::Aborted, "client-lost-connection");
            let error = error.with("client", slot.client.id());
            return self.gone(token, now, error);
        }
        if !self.setup.recover {
            self.slots[token].stage = Stage::Done;
        } else if self.gives_up(token, fault, now) {
            self.lock_out(token, then, fault.clone());
        } else {
            let then = self.leave_to_others(then);
            self.retry(token, then);
        }
        Ok(())
    }

    /// A client takes no part any more, because it cannot connect.
    fn lock_out(&mut self, token: Token, then: Then, fault: Fault) {
        let missed = self.missed(then);
        self.slots[token].stage = Stage::LockedOut(missed);
        self.record.batch.notes.push(Note::LockedOut(fault));
    }

    /// What a client without a connection was to start another may take; under the other loads it
    /// waits for its own.
    fn leave_to_others(&mut self, then: Then) -> Then {
        match then {
            Then::Start(due) if matches!(self.feed, Feed::Open { .. }) => {
                self.orphans.push(due);
                Then::Ask
            }
            _ => then,
        }
    }

    /// What nobody starts if this client does not.
    fn missed(&mut self, then: Then) -> Option<Due> {
        match self.leave_to_others(then) {
            Then::Start(due) => Some(due),
            Then::Ask | Then::Nothing => None,
        }
    }

    /// A client gives up; it has said why.
    pub(super) fn abort(&mut self, token: Token, error: Error) -> Result<()> {
        let now = self.poll.now();
        self.slots[token].client.aborted(now, &mut self.record);
        self.hang_up(token);
        self.gone(token, now, error)
    }

    /// A client that gave up takes nothing more; the run ends with it, or without the last.
    fn gone(&mut self, token: Token, now: Ns, error: Error) -> Result<()> {
        let missed = self.missed(self.slots[token].then());
        self.slots[token].stage = Stage::Aborted(missed);
        self.record.batch.aborted += 1;
        if self.setup.exit_on_abort {
            // All threads: the owner of the run hears of it only at the end of a second. The end
            // first: a thread that sees the abort must see no later end.
            self.setup.control.end_at(now);
            self.setup.control.abort();
            return Err(error);
        }
        self.setup.control.clients_gone(1, now);
        Ok(())
    }

    fn retry(&mut self, token: Token, then: Then) {
        let slot = &mut self.slots[token];
        let pause = BACKOFF.1.min(BACKOFF.0 << slot.attempts.min(20));
        slot.attempts += 1;
        let jittered = pause / 2 + self.setup.random.uniform(0, pause);
        let until = self.poll.now() + jittered;
        self.enter(token, Stage::Down { until, then });
    }

    /// Passes on what lost clients were to start: to the idle clients that have nothing to do or
    /// what is due last, and what those were to start, or where there are none, to the next free of
    /// any worker. All of a turn at once: thousands may be lost in it.
    pub(super) fn pass_on_orphans(&mut self) {
        if self.orphans.is_empty() {
            return;
        }
        let between = |s: &Slot| match s.client.state() {
            State::Free => true,
            State::Closed => self.setup.connect_each && s.attempts == 0,
            _ => false,
        };
        let idle_until = |s: &Slot| match s.stage {
            Stage::Waiting(due) if between(s) => Some(due.at),
            Stage::Done if between(s) => Some(Ns::MAX),
            _ => None,
        };
        let all = self.slots.iter().enumerate();
        let mut last: BinaryHeap<_> =
            all.filter_map(|(token, slot)| Some((idle_until(slot)?, token))).collect();
        let mut orphans = std::mem::take(&mut self.orphans);
        for due in orphans.drain(..) {
            let place = last.peek_mut().filter(|place| place.0 > due.at);
            let left = if let Some(mut place) = place {
                let token = place.1;
                place.0 = due.at;
                drop(place);
                let left = self.slots[token].take_due();
                self.enter(token, Stage::Waiting(due));
                left
            } else {
                Some(due)
            };
            if let (Feed::Open { taken, .. }, Some(left)) = (&self.feed, left) {
                taken.give_back(left);
            }
        }
        self.orphans = orphans;
    }
}

/// Whether a server rejects a login, or TLS, rather than not being there.
fn is_refusal(fault: &Fault) -> bool {
    match fault {
        Fault::Own(error) if error.name == "server-refuses-tls" => false,
        Fault::Own(error) => matches!(error.kind, Kind::Auth | Kind::Tls),
        Fault::Server(error) => error.sqlstate.starts_with(b"28"),
    }
}
