//! Deals a plan out: the random streams of its clients in pgbench's order, their variables, and
//! where each thread's clients get their transactions from.

use crate::error::{Error, Kind, Result};
use crate::pace::{Choice, Deal, Feed, Ns, Schedule, Stream, Taken, Think, Thinker};
use crate::plan::{Load, Part, Plan, Stop};
use crate::script::Scripts;
use crate::script::eval::{Value, Variable, Variables, value_of_text};
use crate::script::random::Random;
use crate::shape::Curve;
use std::sync::Arc;

/// What separates the engine's streams from pgbench's.
const EXTRA: u64 = 0x7067_7061_6365_7300;

/// All random streams of a run, drawn in pgbench's order from one seed.
pub(crate) struct Seeds {
    pub(crate) functions: Vec<Random>,
    default_seed: i64,
    choose: Vec<Random>,
    throttle: Vec<Random>,
    /// For each thread, which of its transactions a log shows.
    pub(crate) sample: Vec<Random>,
    pub(crate) extra: Random,
}

impl Seeds {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut base = Random::from_seed(plan.seed);
        let all = (0..plan.clients_in_all()).map(|_| base.split());
        let functions = own(plan, all);
        let given = plan.variables.iter().any(|(name, _)| name == b"default_seed");
        let default_seed = if given { 0 } else { base.bits().cast_signed() };
        let (mut choose, mut throttle, mut sample) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.threads.min(plan.clients) {
            choose.push(base.split());
            throttle.push(base.split());
            sample.push(base.split());
        }
        // Apart from pgbench's, whose number of draws depends on the number of threads.
        let extra = Random::from_seed(plan.seed ^ EXTRA);
        Self { functions, default_seed, choose, throttle, sample, extra }
    }
}

/// Of what there is for each client of the load, that of this generator's clients. All of it is made, so
/// that the random streams of a client do not depend on who has it.
fn own<T>(plan: &Plan, all: impl Iterator<Item = T>) -> Vec<T> {
    let all: Vec<T> = all.collect();
    let (first, count) = (plan.first() as usize, plan.clients as usize);
    all.into_iter().skip(first).take(count).collect()
}

/// Every client's first variables; `client_id` is set for each.
pub(crate) fn variables(
    plan: &Plan,
    scripts: &mut Scripts,
    seeds: &mut Seeds,
) -> Result<ClientVariables> {
    let automatic = automatic(plan.seed, seeds.default_seed);
    let common = first_variables(scripts, &plan.variables, &automatic)?;
    let given = plan.variables.iter().any(|(name, _)| name == b"client_id");
    let client_id = (!given).then(|| scripts.names.slot(b"client_id"));
    scripts.settle(&common, client_id);
    Ok(ClientVariables { common, client_id })
}

/// The variables that a script has where the plan does not set them.
pub(crate) fn automatic(seed: u64, default_seed: i64) -> [(&'static str, i64); 4] {
    [
        ("scale", 1),
        ("client_id", 0),
        ("random_seed", seed.cast_signed()),
        ("default_seed", default_seed),
    ]
}

#[derive(Clone)]
pub(crate) struct ClientVariables {
    common: Variables,
    client_id: Option<u32>,
}

impl ClientVariables {
    pub(crate) fn of(&self, client: u32) -> Variables {
        let mut own = self.common.clone();
        if let Some(slot) = self.client_id {
            own.0[slot as usize] = Variable::Value(Value::Int(i64::from(client)));
        }
        own
    }
}

/// The streams of due transactions before anybody has taken one.
pub(crate) enum Streams {
    Open(Stream),
    Paced(Vec<Stream>),
    Closed(Think, Vec<Thinker>, u64),
}

impl Streams {
    /// Those of a load that begins at `start` and runs scripts of these weights.
    pub(crate) fn new(plan: &Plan, weights: Arc<[u32]>, seeds: &mut Seeds, start: Ns) -> Self {
        let begins = |id: u32| start.saturating_add(plan.start_every * Ns::from(id));
        let each = match plan.stop {
            Stop::Time(_) => u64::MAX,
            Stop::Count(count) => count,
        };
        let choose = seeds.choose[0].clone();
        let curve = match plan.stop {
            Stop::Time(end) => Curve::new(&plan.shape, start, end),
            Stop::Count(_) => None,
        };
        match plan.load {
            Load::Open { rate, arrivals } => {
                let schedule = Schedule::new(rate, arrivals, start, seeds.throttle[0].clone());
                let schedule = schedule.shaped(curve);
                let all = each.saturating_mul(u64::from(plan.clients_in_all()));
                let stream = Stream::new(schedule, Choice::new(weights, choose), all);
                let deal = |part: Part| Deal::new(plan.seed, part.first, plan.clients, part.of);
                Self::Open(stream.dealt(plan.part.map(deal)))
            }
            Load::Paced { rate, arrivals } => {
                let clients = (0..plan.clients_in_all()).map(|id| {
                    let random = seeds.extra.split();
                    let schedule = Schedule::new(rate, arrivals, begins(id), random);
                    let schedule = schedule.shaped(curve.clone()).shifted();
                    let choice = Choice::new(Arc::clone(&weights), seeds.extra.split());
                    Stream::new(schedule, choice, each)
                });
                Self::Paced(own(plan, clients))
            }
            Load::Closed { think } => {
                let clients = (0..plan.clients_in_all()).map(|id| {
                    // The first client chooses as pgbench's first thread does.
                    let random = if id == 0 { choose.clone() } else { seeds.extra.split() };
                    let choice = Choice::new(Arc::clone(&weights), random);
                    Thinker::new(choice, seeds.extra.split(), begins(id))
                });
                Self::Closed(think, own(plan, clients), each)
            }
        }
    }

    /// The feed of the worker that has these clients.
    pub(crate) fn feed(&self, ids: std::ops::Range<u32>, taken: &Arc<Taken>) -> Feed {
        let own = ids.start as usize..ids.end as usize;
        match self {
            Self::Open(stream) => Feed::Open { taken: Arc::clone(taken), stream: stream.clone() },
            Self::Paced(streams) => Feed::Paced(streams[own].to_vec()),
            Self::Closed(think, clients, count_max) => Feed::Closed {
                think: *think,
                clients: clients[own].to_vec(),
                count_max: *count_max,
            },
        }
    }

    pub(crate) fn whole(&self) -> Option<Stream> {
        match self {
            Self::Open(stream) => Some(stream.clone()),
            Self::Paced(_) | Self::Closed(..) => None,
        }
    }

    /// What falls due without anybody's doing; nothing in a closed load.
    pub(crate) fn falling(self) -> Vec<Stream> {
        match self {
            Self::Open(stream) => vec![stream],
            Self::Paced(streams) => streams,
            Self::Closed(..) => Vec::new(),
        }
    }
}

/// How many of `total` clients thread `number` of `threads` drives: as even as can be.
pub(crate) fn share(total: u32, threads: u32, number: u32) -> u32 {
    let dealt: u32 = (0..number).fold(0, |dealt, n| dealt + (total - dealt).div_ceil(threads - n));
    (total - dealt).div_ceil(threads - number)
}

/// The variables a client begins with: those of the plan, and the automatic ones that the plan
/// does not set.
///
/// # Errors
/// `Kind::Plan` for a name that cannot be a variable.
pub fn first_variables(
    scripts: &mut Scripts,
    given: &[(Vec<u8>, Vec<u8>)],
    automatic: &[(&str, i64)],
) -> Result<Variables> {
    for (name, text) in given {
        let wrong = |error: &'static str| {
            Err(Error::new(Kind::Plan, error).with("variable", &*String::from_utf8_lossy(name)))
        };
        if text.contains(&0) {
            return wrong("variable-has-nul");
        }
        if !crate::script::is_variable_name(name) {
            return wrong("bad-variable-name");
        }
    }
    let mut pairs: Vec<(u32, Variable)> = Vec::new();
    for (name, value) in automatic {
        pairs.push((scripts.names.slot(name.as_bytes()), Variable::Value(Value::Int(*value))));
    }
    for (name, text) in given {
        // What has no value is refused when an expression reads it, with the command in the words.
        let variable = match value_of_text(text) {
            Ok(value) => Variable::Typed(text.clone(), value),
            Err(_) => Variable::Text(text.clone()),
        };
        pairs.push((scripts.names.slot(name), variable));
    }
    let mut variables = Variables(vec![Variable::Unset; scripts.names.len()]);
    for (slot, value) in pairs {
        variables.0[slot as usize] = value;
    }
    Ok(variables)
}
