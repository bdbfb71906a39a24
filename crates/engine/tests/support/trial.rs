//! A whole trial in virtual time: real workers on virtual worlds, and their batches made into
//! intervals as `run` does it, with what fell due counted from copies of the streams.

use super::turns::turns;
use super::world::{Server, World};
use pgpaces_engine::client::{Client, Shared};
use pgpaces_engine::conninfo::TcpSettings;
use pgpaces_engine::control::Control;
use pgpaces_engine::destination::Destination;
use pgpaces_engine::error::Error;
use pgpaces_engine::feeds::first_variables;
use pgpaces_engine::interval::{Interval, Summary};
use pgpaces_engine::pace::{Choice, Due, Feed, Ns, SECOND, Schedule, Stream, Taken, Thinker};
use pgpaces_engine::plan::{Backlog, Load, Plan, Policy, Polling, Protocol, Stop};
use pgpaces_engine::poll::Address;
use pgpaces_engine::record::{Batch, Class, DueCount, Outcome, count_due};
use pgpaces_engine::script::eval::{Value, Variable, Variables};
use pgpaces_engine::script::random::Random;
use pgpaces_engine::script::{Scripts, Slot};
use pgpaces_engine::shape::Curve;
use pgpaces_engine::wire::{Credentials, Keys, Settings};
use pgpaces_engine::worker::{Setup, Worker};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// A trial of ten seconds with one client.
pub fn plan(load: Load) -> Plan {
    Plan {
        clients: 1,
        part: None,
        threads: 1,
        protocol: Protocol::Simple,
        describe: false,
        load,
        shape: Vec::new(),
        policy: Policy::Run,
        limit: None,
        limits: Vec::new(),
        stop: Stop::Time(10 * SECOND),
        start_every: 0,
        warmup: 0,
        grace: 5 * SECOND,
        seed: 1,
        variables: Vec::new(),
        on_connect: Vec::new(),
        backlog: Backlog::Serve,
        max_tries: 1,
        continue_on_error: true,
        exit_on_abort: true,
        recover: true,
        keep_going: true,
        connect_each: false,
        time_commands: false,
        verbose: false,
        notices: false,
        debug: false,
        poll: Polling::Auto,
        log: None,
    }
}

/// Weight and text of each script.
pub type Texts<'a> = &'a [(u32, &'a str)];

pub const ONE_STATEMENT: Texts<'static> = &[(1, "SELECT 1;")];

/// A trial behind us.
pub struct Seen {
    /// How many clients took part.
    clients: u32,
    /// What each worker saw, second by second.
    pub batches: Vec<Vec<Batch>>,
    /// Due before the end, and taken by no worker.
    pub untaken: Vec<Due>,
    /// All that fell due, where the schedule knows it (not under a closed load).
    pub scheduled: Option<Vec<Due>>,
    /// The workers' cancel keys.
    pub keys: Vec<(i32, i32)>,
    /// Why workers ended early.
    pub errors: Vec<Error>,
    /// When nothing fell due any more.
    pub end: Ns,
}

/// A trial with one worker.
pub fn run(plan: &Plan, texts: Texts<'_>, server: Server) -> Seen {
    run_together(plan, texts, vec![server])
}

/// A trial with as many workers as servers, each of which has its part of the clients.
pub fn run_together(plan: &Plan, texts: Texts<'_>, servers: Vec<Server>) -> Seen {
    let seen = attempt(plan, texts, servers);
    assert_eq!(seen.errors, [], "no script goes wrong");
    seen
}

/// As `run_together`, for a trial that may end early.
pub fn attempt(plan: &Plan, texts: Texts<'_>, servers: Vec<Server>) -> Seen {
    plan.check().and_then(|()| plan.check_limits(texts.len())).expect("a plan that can be");
    let start = -plan.warmup;
    let streams = Streams::new(plan, texts, start);
    let crew = Crew::new(plan, texts);
    let count = servers.len();
    let clock = start - 1_000_000;
    let (mut batches, mut keys, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let turns = turns(count, clock);
        let workers = servers.into_iter().zip(turns).enumerate().map(|(number, (server, turn))| {
            let clients = plan.clients as usize;
            let ids = clients * number / count..clients * (number + 1) / count;
            let world = World::new(server, ids.len(), clock);
            let (crew, feed) = (&crew, streams.feed(ids.clone(), &crew.taken));
            scope.spawn(move || {
                let (mut worker, received) = crew.worker(plan, number, ids, (world, feed));
                worker.connect().expect("all are let in");
                worker.poll().take_turns(turn);
                let ended = worker.run(start);
                worker.close();
                drop(worker);
                (received.into_iter().collect::<Vec<_>>(), ended)
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            let (own, ended) = worker.join().expect("a worker that does not panic");
            batches.push(own);
            let (left, ended) = ended;
            keys.extend(left.into_iter().map(|left| left.key));
            errors.extend(ended.err());
        }
    });
    let end = crew.control.end();
    let untaken = streams.untaken(&crew.taken, end);
    let scheduled = streams.scheduled(end);
    Seen { clients: plan.clients, batches, untaken, scheduled, keys, errors, end }
}

impl Seen {
    /// How every transaction that a worker took ended.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.batches.iter().flatten().flat_map(|batch| &batch.outcomes)
    }

    /// How many transactions ended so; those that no worker took are not among them.
    pub fn count(&self, class: Class) -> usize {
        self.outcomes().filter(|o| o.class == class).count()
    }

    /// All outcomes by due time.
    pub fn in_order(&self) -> Vec<Outcome> {
        let mut all: Vec<_> = self.outcomes().copied().collect();
        all.sort_by_key(|outcome| outcome.due);
        all
    }

    /// What clients said, without the levels.
    pub fn lines(&self) -> Vec<&str> {
        let batches = self.batches.iter().flatten();
        batches.flat_map(|batch| &batch.lines).map(|(_, line)| line.as_str()).collect()
    }

    /// A sum over all batches.
    pub fn sum(&self, of: impl Fn(&Batch) -> u64) -> u64 {
        self.batches.iter().flatten().map(of).sum()
    }

    /// When each worker ended.
    pub fn ends(&self) -> Vec<Ns> {
        self.batches.iter().map(|own| own.last().expect("a last batch").ended).collect()
    }

    /// Latencies of what succeeded, in ascending order.
    pub fn latencies(&self) -> Vec<Ns> {
        let succeeded = |o: &&Outcome| matches!(o.class, Class::OnTime | Class::Late);
        let mut all: Vec<Ns> = self.outcomes().filter(succeeded).map(|o| o.done - o.due).collect();
        all.sort_unstable();
        all
    }

    /// The intervals, as `run` makes them. Every worker sent its seconds in order, none left out.
    pub fn intervals(&self) -> Vec<Interval> {
        let first = self.batches.iter().map(|own| own[0].second).min().expect("a worker");
        let count = self.batches.iter().map(Vec::len).max().expect("a worker");
        let mut coming = self.scheduled.iter().flatten().peekable();
        let mut summary = Summary::new(self.clients, first * SECOND);
        let mut intervals = Vec::new();
        for (at, second) in (first..).take(count).enumerate() {
            let of_second = self.batches.iter().filter_map(|own| own.get(at));
            let mut of_second: Vec<Batch> = of_second.cloned().collect();
            assert!(of_second.iter().all(|b| b.second == second), "no second is left out");
            let mut due: Vec<DueCount> = Vec::new();
            let is_last = at + 1 == count;
            while let Some(next) = coming.next_if(|d| is_last || d.at < (second + 1) * SECOND) {
                count_due(&mut due, next.at, next.script);
            }
            if self.scheduled.is_some() {
                // Started before its worker saw that the end was brought forward.
                let all = of_second.iter().flat_map(|batch| &batch.outcomes);
                all.filter(|o| o.due >= self.end)
                    .for_each(|o| count_due(&mut due, o.due, o.script));
            }
            intervals.push(summary.interval(second, &mut of_second, &due));
        }
        for due in &self.untaken {
            let interval = intervals.last_mut().expect("at least one");
            interval.tally(due.at.div_euclid(SECOND), due.script).unfinished += 1;
        }
        intervals
    }
}

/// What all workers share.
struct Crew {
    shared: Arc<Shared>,
    variables: Variables,
    client_id: Slot,
    control: Arc<Control>,
    taken: Arc<Taken>,
}

impl Crew {
    fn new(plan: &Plan, texts: Texts<'_>) -> Self {
        let mut scripts = Scripts::default();
        for (number, (weight, text)) in texts.iter().enumerate() {
            scripts
                .add(&format!("script {number}"), *weight, text.as_bytes())
                .expect("a script that parses");
        }
        let automatic = &[("client_id", 0)];
        let variables =
            first_variables(&mut scripts, &plan.variables, automatic).expect("good names");
        let client_id = scripts.names.slot(b"client_id");
        let end = match plan.stop {
            Stop::Time(duration) => duration,
            Stop::Count(_) => Ns::MAX / 2,
        };
        let control = Arc::new(Control::new(end, plan.clients));
        let shared = Arc::new(Shared::new(plan, scripts, Arc::clone(&control)));
        Self { shared, variables, client_id, control, taken: Arc::default() }
    }

    fn worker(
        &self,
        plan: &Plan,
        number: usize,
        ids: Range<usize>,
        (world, feed): (World, Feed),
    ) -> (Worker<World>, Receiver<Batch>) {
        let (batches, received) = channel();
        let (_, spare) = channel();
        let setup = Setup {
            number,
            destination: Destination::at(Address::Unix("virtual".into()), Arc::new(settings(None))),
            policy: plan.policy,
            backlog: plan.backlog,
            connect_each: plan.connect_each,
            recover: plan.recover,
            exit_on_abort: plan.exit_on_abort,
            limits: self.shared.limits.clone(),
            grace: plan.grace,
            connect_timeout: 3 * SECOND,
            tcp: TcpSettings::default(),
            random: random(plan, 1 << 40 | number),
            control: Arc::clone(&self.control),
            batches,
            spare,
        };
        let client = |id: usize| {
            let number = u32::try_from(id).expect("few clients");
            let random = random(plan, 2 << 40 | id);
            let mut variables = self.variables.clone();
            variables.0[self.client_id as usize] = Variable::Value(Value::Int(i64::from(number)));
            Client::new(number, &self.shared, variables, random)
        };
        (Worker::new(world, setup, ids.map(client).collect(), feed), received)
    }
}

/// How to log in, with this password if with any.
pub fn settings(password: Option<&str>) -> Settings {
    use pgpaces_engine::conninfo::{AuthMethod, ChannelBinding};
    Settings {
        credentials: Credentials {
            user: "user".into(),
            password: password.map(str::to_owned),
            allowed: vec![
                AuthMethod::None,
                AuthMethod::Password,
                AuthMethod::Md5,
                AuthMethod::ScramSha256,
            ],
            binding: ChannelBinding::Prefer,
            keys: Keys::default(),
        },
        startup: vec![("user".into(), "user".into())],
        tls: None,
    }
}

/// A stream of random numbers of its own for each purpose.
fn random(plan: &Plan, purpose: usize) -> Random {
    let mut base = Random::from_seed(plan.seed ^ (purpose as u64) << 16);
    base.split()
}

enum Streams {
    Open(Stream),
    Paced(Vec<Stream>),
    Closed(Feed),
}

impl Streams {
    fn new(plan: &Plan, texts: Texts<'_>, start: Ns) -> Self {
        let weights: Arc<[u32]> = texts.iter().map(|(weight, _)| *weight).collect();
        let each = match plan.stop {
            Stop::Time(_) => u64::MAX,
            Stop::Count(count) => count,
        };
        let curve = match plan.stop {
            Stop::Time(end) => Curve::new(&plan.shape, start, end),
            Stop::Count(_) => None,
        };
        let ids = || 0..plan.clients as usize;
        let choice = |id| Choice::new(Arc::clone(&weights), random(plan, 3 << 40 | id));
        match plan.load {
            Load::Open { rate, arrivals } => {
                let schedule = Schedule::new(rate, arrivals, start, random(plan, 4 << 40));
                let schedule = schedule.shaped(curve);
                let all = each.saturating_mul(u64::from(plan.clients));
                Self::Open(Stream::new(schedule, choice(0), all))
            }
            Load::Paced { rate, arrivals } => {
                let schedule = |id| {
                    Schedule::new(rate, arrivals, start, random(plan, 4 << 40 | id))
                        .shaped(curve.clone())
                };
                let stream = |id| Stream::new(schedule(id).shifted(), choice(id), each);
                Self::Paced(ids().map(stream).collect())
            }
            Load::Closed { think } => Self::Closed(Feed::Closed {
                think,
                clients: ids()
                    .map(|id| Thinker::new(choice(id), random(plan, 4 << 40 | id), -plan.warmup))
                    .collect(),
                count_max: each,
            }),
        }
    }

    /// The feed of the worker that has the clients `ids`.
    fn feed(&self, ids: Range<usize>, taken: &Arc<Taken>) -> Feed {
        match self {
            Self::Open(stream) => Feed::Open { taken: Arc::clone(taken), stream: stream.clone() },
            Self::Paced(streams) => Feed::Paced(streams[ids].to_vec()),
            Self::Closed(Feed::Closed { think, clients, count_max }) => Feed::Closed {
                think: *think,
                clients: clients[ids].to_vec(),
                count_max: *count_max,
            },
            Self::Closed(_) => unreachable!("made from a closed load"),
        }
    }

    fn scheduled(&self, end: Ns) -> Option<Vec<Due>> {
        let streams = match self {
            Self::Open(stream) => std::slice::from_ref(stream),
            Self::Paced(streams) => streams,
            Self::Closed(_) => return None,
        };
        let mut all = Vec::new();
        for stream in streams {
            stream.clone().until(end, |due| all.push(due));
        }
        all.sort_by_key(|due| due.at);
        Some(all)
    }

    fn untaken(&self, taken: &Taken, end: Ns) -> Vec<Due> {
        let mut left = Vec::new();
        if let Self::Open(stream) = self {
            stream.clone().from(taken.number()).until(end, |due| left.push(due));
            left.extend(std::iter::from_fn(|| taken.take_back()).filter(|due| due.at < end));
        }
        left
    }
}
