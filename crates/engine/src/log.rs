//! The log of every transaction in pgbench's format, one file a thread. Written from finished batches
//! by the caller that asks for intervals, never on the hot path.
//!
//! A line is `client number latency_us script epoch_s us [lag_us] [retries]`; an aggregated one has
//! sixteen columns: interval start, transactions, sum, sum of squares, minimum and maximum of
//! latency, the same four of lag, skipped, retried, retries, and failures by kind. Formats: pgbench's
//! documentation, "Per-Transaction Logging" and "Aggregated Logging".

use crate::error::{Error, Kind, Result, without_numbers};
use crate::pace::{Ns, SECOND};
use crate::plan::{self, Load, Plan};
use crate::record::{Batch, Class, Outcome};
use crate::script::random::Random;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The log of a run.
pub struct Log {
    format: Format,
    files: Vec<Sheet>,
    /// How many transactions of each client were seen.
    counts: Vec<u64>,
}

/// What the lines of a log show.
#[derive(Debug, Clone)]
struct Format {
    plan: plan::Log,
    /// The wall clock at time 0, nanoseconds.
    epoch: i64,
    lag: bool,
    skips: bool,
    retries: bool,
}

/// One thread's file.
struct Sheet {
    path: PathBuf,
    out: BufWriter<File>,
    sample: Random,
    sums: Sums,
}

/// What one aggregated line sums up; times in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// When it began, seconds of the wall clock.
    start: i64,
    latency: Moments,
    lag: Moments,
    skipped: u64,
    retried: u64,
    retries: u64,
    serialization: u64,
    deadlock: u64,
    other: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: u64,
    sum: f64,
    square_sum: f64,
    min: f64,
    max: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = if self.count == 0 { value } else { self.max.max(value) };
        self.count += 1;
        self.sum += value;
        self.square_sum += value * value;
    }
}

impl Log {
    /// Opens a file for each thread.
    ///
    /// # Errors
    /// `Kind::System` where a file cannot be made.
    pub(crate) fn open(log: &plan::Log, plan: &Plan, samples: &[Random]) -> Result<Self> {
        let format = Format {
            plan: log.clone(),
            epoch: 0,
            lag: matches!(plan.load, Load::Open { .. } | Load::Paced { .. }),
            skips: plan.limit.is_some() || !plan.limits.is_empty(),
            retries: plan.max_tries != 1,
        };
        let files = samples.iter().enumerate();
        let files = files.map(|(thread, sample)| Sheet::open(&log.prefix, thread, sample));
        let counts = vec![0; plan.clients as usize];
        Ok(Self { format, files: files.collect::<Result<_>>()?, counts })
    }

    /// The run has its time 0 at `origin` and begins at `start`.
    pub(crate) fn begin(&mut self, origin: Instant, start: Ns) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead = origin.saturating_duration_since(Instant::now());
        let elapsed = Instant::now().saturating_duration_since(origin);
        let nanoseconds = |d: std::time::Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
        let epoch = nanoseconds(wall) + nanoseconds(ahead) - nanoseconds(elapsed);
        self.format.epoch = epoch;
        for sheet in &mut self.files {
            sheet.sums.start = (epoch + start).div_euclid(SECOND);
        }
    }

    /// Writes what one thread saw in a second.
    ///
    /// # Errors
    /// `Kind::Log` where the disk does not take it.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<()> {
        let sheet = &mut self.files[batch.worker];
        let ended = batch.outcomes.iter().filter(|o| o.class != Class::Unfinished);
        for outcome in ended {
            let count = &mut self.counts[outcome.client as usize];
            *count += 1;
            sheet.outcome(&self.format, outcome, *count).map_err(|e| sheet.wrong(&e))?;
        }
        sheet.out.flush().map_err(|e| sheet.wrong(&e))
    }

    /// Writes the last aggregated line, of an interval that is not over.
    ///
    /// # Errors
    /// As `write`.
    pub(crate) fn finish(&mut self) -> Result<()> {
        for sheet in &mut self.files {
            if self.format.plan.aggregate_s.is_some() && !sheet.sums.is_empty() {
                sheet.sums.write(&self.format, &mut sheet.out).map_err(|e| sheet.wrong(&e))?;
            }
            sheet.out.flush().map_err(|e| sheet.wrong(&e))?;
        }
        Ok(())
    }
}

impl Sheet {
    fn open(prefix: &OsStr, thread: usize, sample: &Random) -> Result<Self> {
        let pid = std::process::id();
        let mut path = prefix.to_owned();
        path.push(match thread {
            0 => format!(".{pid}"),
            _ => format!(".{pid}.{thread}"),
        });
        let path = PathBuf::from(path);
        let file = File::create(&path).map_err(|e| {
            let message = format!("could not open logfile \"{}\": {e}", path.display());
            Error::new(Kind::System, "log-not-opened").with("text", without_numbers(message))
        })?;
        let (out, sample) = (BufWriter::new(file), sample.clone());
        Ok(Self { path, out, sample, sums: Sums::default() })
    }

    fn wrong(&self, error: &std::io::Error) -> Error {
        let path = self.path.display().to_string();
        Error::new(Kind::Log, "log-ended-early").with("path", path).with_system(error)
    }

    fn outcome(&mut self, format: &Format, outcome: &Outcome, count: u64) -> std::io::Result<()> {
        if format.plan.sampling < 1.0 && self.sample.unit() > format.plan.sampling {
            return Ok(());
        }
        let Some(seconds) = format.plan.aggregate_s else {
            return self.line(format, outcome, count);
        };
        let now = format.epoch + outcome.done;
        while (self.sums.start + i64::from(seconds)) * SECOND <= now {
            self.sums.write(format, &mut self.out)?;
            self.sums = Sums { start: self.sums.start + i64::from(seconds), ..Sums::default() };
        }
        self.sums.add(outcome);
        Ok(())
    }

    fn line(&mut self, format: &Format, outcome: &Outcome, count: u64) -> std::io::Result<()> {
        let Outcome { client, script, done, .. } = *outcome;
        let detailed = format.plan.detailed;
        write!(self.out, "{client} {count} ")?;
        match outcome.class {
            Class::Skipped => write!(self.out, "skipped")?,
            Class::Failed if !detailed => write!(self.out, "failed")?,
            Class::Failed => write!(self.out, "{}", kind(outcome))?,
            _ => write!(self.out, "{:.0}", microseconds(done - outcome.due))?,
        }
        let stamp = (format.epoch + done) / 1000;
        let (seconds, rest) = (stamp.div_euclid(1_000_000), stamp.rem_euclid(1_000_000));
        write!(self.out, " {script} {seconds} {rest}")?;
        if format.lag {
            let failed = matches!(outcome.class, Class::Failed | Class::Skipped);
            let lag = if failed { 0 } else { outcome.sent - outcome.due };
            write!(self.out, " {:.0}", microseconds(lag))?;
        }
        if format.retries {
            write!(self.out, " {}", outcome.retries)?;
        }
        writeln!(self.out)
    }
}

fn kind(outcome: &Outcome) -> &'static str {
    match &outcome.sqlstate {
        b"40001" => "serialization",
        b"40P01" => "deadlock",
        _ => "other",
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time that is printed")]
fn microseconds(time: Ns) -> f64 {
    time as f64 / 1e3
}

impl Sums {
    fn is_empty(&self) -> bool {
        let failed = self.serialization + self.deadlock + self.other;
        self.latency.count + self.skipped + failed == 0
    }

    fn add(&mut self, outcome: &Outcome) {
        self.retried += u64::from(outcome.retries > 0);
        self.retries += u64::from(outcome.retries);
        match outcome.class {
            Class::Skipped => self.skipped += 1,
            Class::Failed => match kind(outcome) {
                "serialization" => self.serialization += 1,
                "deadlock" => self.deadlock += 1,
                _ => self.other += 1,
            },
            _ => {
                self.latency.add(microseconds(outcome.done - outcome.due));
                self.lag.add(microseconds(outcome.sent - outcome.due));
            }
        }
    }

    /// One line; a column of something that was not asked for is 0, as in pgbench.
    fn write(&self, format: &Format, out: &mut impl Write) -> std::io::Result<()> {
        let of = |wanted: bool, value: u64| if wanted { value } else { 0 };
        let lag = if format.lag { self.lag } else { Moments::default() };
        let detailed = format.plan.detailed;
        write!(out, "{} {}", self.start, self.latency.count)?;
        for Moments { sum, square_sum, min, max, .. } in [self.latency, lag] {
            write!(out, " {sum:.0} {square_sum:.0} {min:.0} {max:.0}")?;
        }
        let counts = [
            of(format.skips, self.skipped),
            of(format.retries, self.retried),
            of(format.retries, self.retries),
            of(detailed, self.serialization),
            of(detailed, self.deadlock),
            of(detailed, self.other),
        ];
        counts.iter().try_for_each(|count| write!(out, " {count}"))?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests;
