//! One load: connects its clients, lets its threads begin together, with other loads if there are
//! any, and yields what they saw, one `Interval` a second (`ledger`).

use crate::cancel::cancel;
use crate::client::{Client, Shared};
use crate::control::{Control, NEVER};
use crate::destination::Destination;
use crate::error::{Error, Kind, Result};
use crate::feeds::{ClientVariables, Seeds, Streams, share, variables};
use crate::interval::Interval;
use crate::ledger::Ledger;
use crate::log::Log;
use crate::pace::{Feed, Ns, Taken};
use crate::plan::{Plan, Protocol, Stop};
use crate::poll::choice::{self, Chosen, Ring};
use crate::poll::readiness::Readiness;
use crate::poll::{Backend, Waker};
use crate::record::{Batch, Note};
use crate::route::Route;
use crate::script::Scripts;
use crate::script::random::Random;
use crate::worker::{Setup, Worker};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long after the word to begin the load begins, so that every thread is ready for it.
const HEAD_START: Duration = Duration::from_millis(10);

/// How soon after a request nothing new falls due: long enough that every thread has seen it.
const STOP_NOTICE: Ns = 100_000_000;

/// Ends a run early, from any thread.
#[derive(Clone)]
pub struct Handle {
    control: Arc<Control>,
    wakers: Arc<[Waker]>,
    /// When the measured part begins; not known before the load does.
    origin: Arc<OnceLock<Instant>>,
}

impl Handle {
    /// Lets nothing new fall due; what was due is still served within the grace period.
    pub fn stop(&self) {
        let now = self.origin.get().map_or(-NEVER, |origin| since(*origin, Instant::now()));
        self.control.end_at(now + STOP_NOTICE);
        self.wake();
    }

    /// Ends at once, when all have seen it: what is in flight is cancelled and stays unfinished.
    pub fn abort(&self) {
        // The end first: a thread that sees the abort must see no later end.
        self.stop();
        self.control.abort();
        self.wake();
    }

    /// When nothing new falls due any more, in nanoseconds from the start of the measured part.
    #[must_use]
    pub fn end(&self) -> Ns {
        self.control.end()
    }

    fn wake(&self) {
        for waker in self.wakers.iter() {
            waker.wake();
        }
    }
}

/// How long after the origin a moment is; below zero in the warm-up.
fn since(origin: Instant, moment: Instant) -> Ns {
    let ns = |span: Duration| Ns::try_from(span.as_nanos()).unwrap_or(NEVER);
    ns(moment.saturating_duration_since(origin)) - ns(origin.saturating_duration_since(moment))
}

/// A load whose clients are connected, or that is going on.
pub struct Run {
    handle: Handle,
    lines: Vec<Line>,
    /// Where its threads hear when to begin; none once they have.
    origins: Vec<Sender<Instant>>,
    warmup: Ns,
    ledger: Ledger,
    /// How much of the one schedule of an open load was taken.
    taken: Arc<Taken>,
    ended: bool,
    destination: Arc<Destination>,
    error: Option<Error>,
    /// How many statements the server may still run after the end.
    still_running: usize,
    /// How long connecting all clients took.
    pub connect_time: Duration,
    /// How its threads wait for their connections.
    pub poll: Chosen,
    log: Option<Log>,
}

/// How many statements a thread left running, and why it had to end.
type Left = (usize, Result<()>);

/// The error of a thread that the system does not start.
#[must_use]
pub fn not_started(error: &io::Error) -> Error {
    Error::new(Kind::System, "thread-not-started").with_system(error)
}

/// The error of a thread that ended by a bug.
#[must_use]
pub fn panicked() -> Error {
    Error::new(Kind::System, "engine-panicked")
}

/// What connects the run to one thread.
struct Line {
    batches: Receiver<Batch>,
    spare: Sender<Batch>,
    thread: Option<JoinHandle<Left>>,
    last: bool,
}

/// A thread's word that its clients are connected, or why not.
type Ready = Result<(Waker, Chosen)>;

impl Run {
    /// Connects all clients; the load begins when `begin` is called.
    ///
    /// # Errors
    /// What cannot be: a plan, a script, a connection; with its hint.
    pub fn connect(plan: &Plan, mut scripts: Scripts, route: Route) -> Result<Self> {
        plan.check_limits(scripts.list.len())?;
        plan.check()?;
        if scripts.list.iter().all(|script| script.weight == 0) {
            return Err(Error::new(Kind::Plan, "script-weights-zero"));
        }
        if plan.protocol != Protocol::Simple {
            scripts.check_parameters()?;
        }
        let threads = plan.threads.min(plan.clients);
        let ring = choice::choose(plan, plan.clients.div_ceil(threads) as usize);
        let begun = Instant::now();
        let start = -plan.warmup;
        let end = match plan.stop {
            Stop::Time(duration) => duration,
            Stop::Count(_) => NEVER,
        };
        let control = Arc::new(Control::new(end, plan.clients));
        let taken = Arc::new(Taken::default());
        let mut seeds = Seeds::new(plan);
        let variables = variables(plan, &mut scripts, &mut seeds)?;
        let weights = scripts.list.iter().map(|script| script.weight).collect();
        let streams = Streams::new(plan, weights, &mut seeds, start);
        let log = plan.log.as_ref().map(|log| Log::open(log, plan, &seeds.sample));
        let log = log.transpose()?;
        let shared = Arc::new(Shared::new(plan, scripts, Arc::clone(&control)));
        let destination = Destination::new(&route);
        let mut starter = Starter {
            plan,
            ring,
            route: &route,
            destination: &destination,
            control: &control,
            shared,
            lines: Vec::new(),
            origins: Vec::new(),
            ready: channel(),
        };
        let mut first = 0;
        for number in 0..threads {
            let count = share(plan.clients, threads, number);
            let own = first..first + count;
            first += count;
            let feed = streams.feed(own.clone(), &taken);
            let clients = own.map(|at| {
                (plan.first() + at, variables.clone(), seeds.functions[at as usize].clone())
            });
            let clients = clients.collect();
            let started = starter.thread(number as usize, clients, feed, seeds.extra.split());
            started.inspect_err(|_| starter.give_up())?;
        }
        let connected = starter.connected();
        let (wakers, poll) = connected.inspect_err(|_| starter.give_up())?;
        let Starter { lines, origins, .. } = starter;
        Ok(Self {
            handle: Handle { control, wakers: wakers.into(), origin: Arc::default() },
            lines,
            origins,
            warmup: plan.warmup,
            ledger: Ledger::new(plan.clients, start, streams),
            taken,
            ended: false,
            destination,
            error: None,
            still_running: 0,
            connect_time: begun.elapsed(),
            poll,
            log,
        })
    }

    /// Lets the load begin `ahead` from now, but not before every thread can be ready for it. Loads
    /// whose `ahead` names the same moment begin together. It begins once.
    pub fn begin(&mut self, ahead: Duration) {
        if self.origins.is_empty() {
            return;
        }
        let warmup = Duration::from_nanos(u64::try_from(self.warmup).unwrap_or(0));
        let origin = Instant::now() + ahead.max(HEAD_START) + warmup;
        let _ = self.handle.origin.set(origin);
        if let Some(log) = &mut self.log {
            log.begin(origin, -self.warmup);
        }
        for sender in self.origins.drain(..) {
            let _ = sender.send(origin);
        }
    }

    /// What became known in the next second; waits for it. None when the trial is over.
    ///
    /// # Errors
    /// Why the run had to end early; every interval before has been given.
    pub fn next_interval(&mut self) -> Result<Option<Interval>> {
        self.begin(HEAD_START);
        if self.ended {
            return self.error.take().map_or(Ok(None), Err);
        }
        let (mut batches, mut from) = (Vec::with_capacity(self.lines.len()), Vec::new());
        for at in 0..self.lines.len() {
            if self.lines[at].last {
                continue;
            }
            match self.lines[at].batches.recv() {
                Ok(batch) => {
                    self.lines[at].last = batch.last;
                    batches.push(batch);
                    from.push(at);
                }
                Err(_) => self.lines[at].last = true,
            }
            if self.lines[at].last {
                self.join(at);
            }
        }
        self.ended = self.lines.iter().all(|line| line.last);
        if self.ended {
            self.destination.end();
        }
        let logged = self.log.as_mut().map_or(Ok(()), |log| {
            batches.iter().try_for_each(|batch| log.write(batch))?;
            if self.ended { log.finish() } else { Ok(()) }
        });
        let end = self.handle.end();
        let interval = if self.ended {
            let mut last = self.ledger.last(&mut batches, end, &self.taken);
            if self.still_running > 0 {
                last.notes.push(Note::StillRunning(self.still_running));
            }
            last
        } else {
            self.ledger.pass(&self.taken);
            self.ledger.interval(&mut batches, end)
        };
        for (at, batch) in from.into_iter().zip(batches) {
            let _ = self.lines[at].spare.send(batch);
        }
        if let Err(error) = logged {
            // What is measured goes on being counted; only its log is at an end.
            self.log = None;
            self.error.get_or_insert(error);
        }
        Ok(Some(interval))
    }

    fn join(&mut self, at: usize) {
        let Some(thread) = self.lines[at].thread.take() else {
            return;
        };
        match thread.join() {
            Ok((running, ended)) => {
                self.still_running += running;
                if let Err(error) = ended {
                    self.fail(error);
                }
            }
            Err(_) => self.fail(panicked()),
        }
    }

    fn fail(&mut self, error: Error) {
        if self.error.as_ref().is_none_or(|first| first.kind == Kind::Log) {
            self.error = Some(error);
        }
        self.handle.abort();
    }

    /// What may be asked of this run from another thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.origins.clear();
        self.handle.abort();
        self.destination.end();
        for thread in self.lines.iter_mut().filter_map(|l| l.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Starts the threads and holds them until all are connected.
struct Starter<'a> {
    plan: &'a Plan,
    ring: Ring,
    route: &'a Route,
    destination: &'a Arc<Destination>,
    control: &'a Arc<Control>,
    shared: Arc<Shared>,
    lines: Vec<Line>,
    origins: Vec<Sender<Instant>>,
    ready: (Sender<Ready>, Receiver<Ready>),
}

impl Starter<'_> {
    fn thread(
        &mut self,
        number: usize,
        clients: Vec<(u32, ClientVariables, Random)>,
        feed: Feed,
        random: Random,
    ) -> Result<()> {
        let (batches, received) = channel();
        let (spare, returned) = channel();
        let (origin, begins) = channel();
        let setup = Setup {
            number,
            destination: Arc::clone(self.destination),
            policy: self.plan.policy,
            backlog: self.plan.backlog,
            connect_each: self.plan.connect_each,
            recover: self.plan.recover,
            exit_on_abort: self.plan.exit_on_abort,
            limits: self.shared.limits.clone(),
            grace: self.plan.grace,
            connect_timeout: Ns::try_from(self.route.connect_timeout.as_nanos()).unwrap_or(Ns::MAX),
            tcp: self.route.tcp,
            random,
            control: Arc::clone(self.control),
            batches,
            spare: returned,
        };
        let (shared, ready) = (Arc::clone(&self.shared), self.ready.0.clone());
        let (start, ring) = (-self.plan.warmup, self.ring);
        let body = move || {
            let clients = clients
                .into_iter()
                .map(|(id, variables, random)| Client::new(id, &shared, variables.of(id), random))
                .collect();
            let life = Life { setup, clients, feed, ready, begins, start };
            life.begin(ring)
        };
        let thread = std::thread::Builder::new()
            .name(format!("pgpaces-{number}"))
            .spawn(body)
            .map_err(|e| not_started(&e))?;
        self.lines.push(Line { batches: received, spare, thread: Some(thread), last: false });
        self.origins.push(origin);
        Ok(())
    }

    /// Waits until all are connected.
    fn connected(&mut self) -> Result<(Vec<Waker>, Chosen)> {
        let (mut wakers, mut ways) = (Vec::new(), Vec::new());
        // Only threads can send now: one that panics leaves no sender.
        self.ready.0 = channel().0;
        for _ in 0..self.lines.len() {
            let (waker, way) = self.ready.1.recv().map_err(|_| panicked())??;
            wakers.push(waker);
            ways.push(way);
        }
        Ok((wakers, Chosen::of(&ways)))
    }

    /// Ends the threads that were started; the first error is the one that counts.
    fn give_up(&mut self) {
        self.control.abort();
        self.origins.clear();
        for thread in self.lines.iter_mut().filter_map(|line| line.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// The whole life of a thread.
struct Life {
    setup: Setup,
    clients: Vec<Client>,
    feed: Feed,
    ready: Sender<Ready>,
    begins: Receiver<Instant>,
    start: Ns,
}

impl Life {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn begin(self, ring: Ring) -> Left {
        if ring == Ring::Without {
            return self.lead(Readiness::new(), Chosen::Epoll);
        }
        match crate::poll::uring::Uring::new(self.clients.len()) {
            Ok(uring) => self.lead(Ok(uring), Chosen::IoUring),
            Err(_) if ring == Ring::Preferred => self.lead(Readiness::new(), Chosen::Epoll),
            Err(error) => self.refuse(&error),
        }
    }

    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn begin(self, ring: Ring) -> Left {
        if ring == Ring::Demanded {
            return self.refuse(&io::ErrorKind::Unsupported.into());
        }
        self.lead(Readiness::new(), Chosen::Epoll)
    }

    fn refuse(self, error: &io::Error) -> Left {
        let _ = self.ready.send(Err(choice::refusal(error)));
        (0, Ok(()))
    }

    fn lead<B: Backend>(self, poll: io::Result<B>, way: Chosen) -> Left {
        let Self { setup, clients, feed, ready, begins, start } = self;
        let poll = poll.map_err(|e| Error::new(Kind::System, "no-event-queue").with_system(&e));
        let connected = poll.and_then(|mut poll| {
            poll.set_tcp(setup.tcp);
            let waker = poll.waker();
            let mut worker = Worker::new(poll, setup, clients, feed);
            worker.connect().map(|()| (worker, waker))
        });
        match connected {
            Err(error) => {
                let _ = ready.send(Err(error));
                (0, Ok(()))
            }
            Ok((mut worker, waker)) => {
                let _ = ready.send(Ok((waker, way)));
                match begins.recv() {
                    Err(_) => (0, Ok(())),
                    Ok(origin) => {
                        worker.poll().set_origin(origin);
                        let (keys, ended) = worker.run(start);
                        let still_running = cancel(keys);
                        worker.close();
                        (still_running, ended)
                    }
                }
            }
        }
    }
}
