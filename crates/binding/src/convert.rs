//! Values from Python to the engine and back. The shapes are documented in `_engine.pyi`.

use crate::errors::{exception, sentence};
use pgpaces_engine::error::{Error, Kind};
use pgpaces_engine::pace::{Arrivals, Think};
use pgpaces_engine::plan::{Backlog, Load, Log, Part, Plan, Policy, Polling, Protocol, Stop};
use pgpaces_engine::shape::Segment;
use pgpaces_engine::wire::Fault;
use pgpaces_engine::{interval, record, times};
use pyo3::prelude::*;
use std::ffi::OsString;

/// A plan as Python gives it: an object with these attributes.
#[derive(FromPyObject)]
pub struct PlanIn {
    clients: u32,
    part: Option<(u32, u32)>,
    threads: u32,
    protocol: String,
    describe: bool,
    load: String,
    rate: f64,
    arrivals: String,
    shape: Vec<(i64, f64, f64)>,
    think: String,
    think_ns: i64,
    policy: String,
    limit_ns: Option<i64>,
    limits: Vec<(u16, i64)>,
    duration_ns: Option<i64>,
    transactions: Option<u64>,
    start_every_ns: i64,
    warmup_ns: i64,
    grace_ns: i64,
    seed: u64,
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    on_connect: Vec<String>,
    backlog: String,
    max_tries: u32,
    continue_on_error: bool,
    exit_on_abort: bool,
    recover: bool,
    keep_going: bool,
    connect_each: bool,
    time_commands: bool,
    verbose: bool,
    notices: bool,
    debug: bool,
    poll: String,
    log: Option<LogIn>,
}

/// A log as Python asks for it.
#[derive(FromPyObject)]
struct LogIn {
    prefix: OsString,
    sampling: f64,
    aggregate_s: Option<u32>,
    detailed: bool,
}

impl From<LogIn> for Log {
    fn from(log: LogIn) -> Self {
        let LogIn { prefix, sampling, aggregate_s, detailed } = log;
        Self { prefix, sampling, aggregate_s, detailed }
    }
}

fn unknown(key: &str) -> PyErr {
    exception(&Error::new(Kind::Plan, "impossible-plan").with("key", key))
}

fn protocol(name: &str) -> PyResult<Protocol> {
    match name {
        "simple" => Ok(Protocol::Simple),
        "extended" => Ok(Protocol::Extended),
        "prepared" => Ok(Protocol::Prepared),
        _ => Err(unknown("protocol")),
    }
}

impl PlanIn {
    /// The engine's plan.
    pub fn plan(self) -> PyResult<Plan> {
        let arrivals = match self.arrivals.as_str() {
            "poisson" => Arrivals::Poisson,
            "even" => Arrivals::Even,
            _ => return Err(unknown("arrivals")),
        };
        let think = match self.think.as_str() {
            "none" => Think::None,
            "fixed" => Think::Fixed(self.think_ns),
            "exponential" => Think::Exponential(self.think_ns),
            _ => return Err(unknown("think")),
        };
        let load = match self.load.as_str() {
            "open" => Load::Open { rate: self.rate, arrivals },
            "paced" => Load::Paced { rate: self.rate, arrivals },
            "closed" => Load::Closed { think },
            _ => return Err(unknown("load")),
        };
        let policy = match self.policy.as_str() {
            "run" => Policy::Run,
            "skip" => Policy::Skip,
            _ => return Err(unknown("policy")),
        };
        let backlog = match self.backlog.as_str() {
            "serve" => Backlog::Serve,
            "drop" => Backlog::Drop,
            _ => return Err(unknown("backlog")),
        };
        let stop = match (self.duration_ns, self.transactions) {
            (_, Some(count)) => Stop::Count(count),
            (duration, None) => Stop::Time(duration.unwrap_or(0)),
        };
        Ok(Plan {
            clients: self.clients,
            part: self.part.map(|(first, of)| Part { first, of }),
            threads: self.threads,
            protocol: protocol(&self.protocol)?,
            describe: self.describe,
            load,
            shape: segments(self.shape),
            policy,
            limit: self.limit_ns,
            limits: self.limits,
            stop,
            start_every: self.start_every_ns,
            warmup: self.warmup_ns,
            grace: self.grace_ns,
            seed: self.seed,
            variables: self.variables,
            on_connect: self.on_connect,
            backlog,
            max_tries: self.max_tries,
            continue_on_error: self.continue_on_error,
            exit_on_abort: self.exit_on_abort,
            recover: self.recover,
            keep_going: self.keep_going,
            connect_each: self.connect_each,
            time_commands: self.time_commands,
            verbose: self.verbose,
            notices: self.notices,
            debug: self.debug,
            poll: polling(&self.poll)?,
            log: self.log.map(Log::from),
        })
    }
}

fn segments(shape: Vec<(i64, f64, f64)>) -> Vec<Segment> {
    shape.into_iter().map(|(start, from, to)| Segment { start, from, to }).collect()
}

fn polling(poll: &str) -> PyResult<Polling> {
    match poll {
        "auto" => Ok(Polling::Auto),
        "epoll" => Ok(Polling::Epoll),
        "io_uring" => Ok(Polling::IoUring),
        _ => Err(unknown("poll")),
    }
}

/// A distribution of times.
#[pyclass(frozen, get_all, module = "pgpaces._engine")]
pub struct Times {
    count: u64,
    sum_ns: u128,
    square_sum: f64,
    max_ns: u64,
    histogram: Py<pyo3::types::PyBytes>,
}

fn times(py: Python<'_>, times: &times::Times) -> PyResult<Py<Times>> {
    let histogram = pyo3::types::PyBytes::new(py, &times.histogram).unbind();
    let times::Times { count, sum_ns, square_sum, max_ns, .. } = *times;
    Py::new(py, Times { count, sum_ns, square_sum, max_ns, histogram })
}

/// Counts of one due second and script.
#[pyclass(frozen, get_all, module = "pgpaces._engine")]
pub struct Tally {
    due_second: i64,
    script: u16,
    due: u64,
    on_time: u64,
    late: u64,
    skipped: u64,
    failed: Vec<(String, u64)>,
    unfinished: u64,
    latency: Py<Times>,
    lag: Py<Times>,
    service: Py<Times>,
    retried: u64,
    retries: u64,
}

/// Times of one statement of a script.
#[pyclass(frozen, get_all, module = "pgpaces._engine")]
pub struct StatementTally {
    script: u16,
    command: u16,
    failed: u64,
    retries: u64,
    times: Py<Times>,
}

/// What became known in one second.
#[pyclass(frozen, get_all, module = "pgpaces._engine")]
pub struct Interval {
    second: i64,
    tallies: Vec<Py<Tally>>,
    statements: Vec<Py<StatementTally>>,
    messages: Vec<(String, String)>,
    cpu_ns: Vec<u64>,
    dispatch: Py<Times>,
    in_flight_ns: u128,
    pending_ns: i64,
    waited_ns: i64,
    ended_ns: i64,
    connects: u32,
    disconnects: u32,
    outages: u32,
    outage_ns_max: u64,
    down: u32,
    some_down_ns: u64,
    all_down_ns: u64,
    notes: Vec<(&'static str, &'static str, String)>,
    connect_ns: u64,
    aborted: Vec<usize>,
    lines: Vec<(&'static str, String)>,
    missed: Missed,
}

/// Outcomes, which become Python's only where it asks for them.
struct Missed(Vec<record::Outcome>);

impl<'py> IntoPyObject<'py> for &Missed {
    type Target = pyo3::types::PyList;
    type Output = Bound<'py, Self::Target>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        pyo3::types::PyList::new(py, self.0.iter().map(outcome))
    }
}

/// When it was due, sent and done, its script, process and class, and its SQLSTATE.
fn outcome(from: &record::Outcome) -> (i64, i64, i64, u16, i32, &'static str, String) {
    let class = match from.class {
        record::Class::OnTime => "on_time",
        record::Class::Late => "late",
        record::Class::Skipped => "skipped",
        record::Class::Failed => "failed",
        record::Class::Unfinished => "unfinished",
    };
    (from.due, from.sent, from.done, from.script, from.pid, class, state(from.sqlstate))
}

fn level(level: record::Level) -> &'static str {
    match level {
        record::Level::Plain => "plain",
        record::Level::Info => "info",
        record::Level::Warning => "warning",
        record::Level::Error => "error",
    }
}

fn state(sqlstate: record::SqlState) -> String {
    String::from_utf8_lossy(&sqlstate).into_owned()
}

fn note(py: Python<'_>, note: &record::Note) -> PyResult<(&'static str, &'static str, String)> {
    let (key, text) = match note {
        record::Note::LeftOpen(script) => ("script", script.clone()),
        record::Note::LockedOut(Fault::Server(error)) => ("error", error.message.clone()),
        record::Note::LockedOut(Fault::Own(error)) => ("error", sentence(py, error)?),
        record::Note::Moved(address) => ("address", address.clone()),
        record::Note::StillRunning(statements) => ("statements", statements.to_string()),
    };
    Ok((note.name(), key, text))
}

fn tally(py: Python<'_>, tally: &interval::Tally) -> PyResult<Py<Tally>> {
    let made = Tally {
        due_second: tally.due_second,
        script: tally.script,
        due: tally.due,
        on_time: tally.on_time,
        late: tally.late,
        skipped: tally.skipped,
        failed: tally.failed.iter().map(|(s, n)| (state(*s), *n)).collect(),
        unfinished: tally.unfinished,
        latency: times(py, &tally.latency)?,
        lag: times(py, &tally.lag)?,
        service: times(py, &tally.service)?,
        retried: tally.retried,
        retries: tally.retries,
    };
    Py::new(py, made)
}

fn statement(py: Python<'_>, tally: &interval::StatementTally) -> PyResult<Py<StatementTally>> {
    let interval::StatementTally { script, command, failed, retries, .. } = *tally;
    let times = times(py, &tally.times)?;
    Py::new(py, StatementTally { script, command, failed, retries, times })
}

impl Interval {
    /// The Python form of an engine interval.
    pub fn new(py: Python<'_>, from: interval::Interval) -> PyResult<Self> {
        let said = from.messages.into_iter().map(|(s, text)| Ok((state(s), text)));
        let own = from.faults.iter().map(|(s, error)| Ok((state(*s), sentence(py, error)?)));
        Ok(Self {
            second: from.second,
            tallies: from.tallies.iter().map(|t| tally(py, t)).collect::<PyResult<_>>()?,
            statements: from
                .statements
                .iter()
                .map(|s| statement(py, s))
                .collect::<PyResult<_>>()?,
            messages: said.chain(own).collect::<PyResult<_>>()?,
            cpu_ns: from.cpu_ns,
            dispatch: times(py, &from.dispatch)?,
            in_flight_ns: from.in_flight_ns,
            pending_ns: from.pending_ns,
            waited_ns: from.waited_ns,
            ended_ns: from.ended,
            connects: from.connects,
            disconnects: from.disconnects,
            outages: from.outages,
            outage_ns_max: from.outage_ns_max,
            down: from.down,
            some_down_ns: from.some_down_ns,
            all_down_ns: from.all_down_ns,
            notes: from.notes.iter().map(|each| note(py, each)).collect::<PyResult<_>>()?,
            connect_ns: from.connect_ns,
            aborted: from.aborted,
            missed: Missed(from.missed),
            lines: from.lines.into_iter().map(|(l, text)| (level(l), text)).collect(),
        })
    }
}
