//! The lines of the log, to the byte.

use super::*;
use crate::pace::{Arrivals, Think};
use crate::plan::{Backlog, Policy, Polling, Protocol, Stop};
use crate::record::SqlState;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

const MS: Ns = 1_000_000;
/// Seconds of the wall clock at time 0, and the nanoseconds of its fraction.
const EPOCH: i64 = 1_700_000_000;
const BEHIND: i64 = 250 * MS;

fn plan(load: Load) -> Plan {
    Plan {
        part: None,
        clients: 3,
        threads: 2,
        protocol: Protocol::Simple,
        describe: false,
        load,
        shape: Vec::new(),
        policy: Policy::Run,
        limit: None,
        limits: Vec::new(),
        stop: Stop::Time(SECOND),
        start_every: 0,
        warmup: 0,
        grace: 0,
        seed: 1,
        variables: Vec::new(),
        on_connect: Vec::new(),
        backlog: Backlog::Drop,
        max_tries: 1,
        continue_on_error: true,
        exit_on_abort: false,
        keep_going: true,
        recover: false,
        connect_each: false,
        time_commands: false,
        verbose: false,
        notices: false,
        debug: false,
        poll: Polling::Auto,
        log: None,
    }
}

fn closed() -> Plan {
    plan(Load::Closed { think: Think::None })
}

fn open() -> Plan {
    plan(Load::Open { rate: 1.0, arrivals: Arrivals::Even })
}

/// A folder of a test's own, which is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pgpaces-log-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a folder for the test");
        Self(path)
    }

    fn prefix(&self) -> String {
        self.0.join("l").display().to_string()
    }

    fn read(&self, ending: &str) -> String {
        let path = format!("{}.{}{ending}", self.prefix(), std::process::id());
        std::fs::read_to_string(Path::new(&path)).expect("a log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn asked(aggregate_s: Option<u32>) -> plan::Log {
    plan::Log { prefix: OsString::new(), sampling: 1.0, aggregate_s, detailed: false }
}

/// Succeeded: due, a millisecond of lag, and two of service.
fn good(client: u32, due: Ns) -> Outcome {
    Outcome {
        due,
        sent: due + MS,
        done: due + 3 * MS,
        client,
        script: 4,
        class: Class::OnTime,
        idle: false,
        sqlstate: *b"00000",
        retries: 0,
        pid: 0,
    }
}

fn failed(client: u32, due: Ns, sqlstate: &SqlState) -> Outcome {
    Outcome { class: Class::Failed, sqlstate: *sqlstate, ..good(client, due) }
}

fn ended(class: Class, client: u32, due: Ns) -> Outcome {
    Outcome { class, sent: due + 5 * MS, done: due + 5 * MS, ..good(client, due) }
}

/// What is logged of these batches, each a worker's number and outcomes.
fn logged(plan: &Plan, log: &plan::Log, batches: &[(usize, Vec<Outcome>)]) -> Folder {
    let folder = Folder::new();
    let wanted = plan::Log { prefix: folder.prefix().into(), ..log.clone() };
    let samples: Vec<_> = (1..=u64::from(plan.threads)).map(Random::from_seed).collect();
    let mut log = Log::open(&wanted, plan, &samples).expect("a log that can be written");
    log.begin(Instant::now(), 0);
    log.format.epoch = EPOCH * SECOND + BEHIND;
    for sheet in &mut log.files {
        sheet.sums.start = EPOCH;
    }
    for (worker, outcomes) in batches {
        let batch = Batch { worker: *worker, outcomes: outcomes.clone(), ..Batch::default() };
        log.write(&batch).expect("room on the disk");
    }
    log.finish().expect("room on the disk");
    folder
}

#[test]
fn a_line_tells_client_number_latency_script_and_when_it_was_done() {
    let outcomes = vec![good(0, 0), good(2, 10 * MS), good(0, 997 * MS + 1_500)];
    let folder = logged(&closed(), &asked(None), &[(0, outcomes)]);
    assert_eq!(
        folder.read(""),
        "0 1 3000 4 1700000000 253000\n2 1 3000 4 1700000000 263000\n0 2 3000 4 1700000001 250001\n"
    );
}

#[test]
fn lag_is_told_under_a_schedule_and_retries_where_there_may_be_some() {
    let outcomes = vec![
        Outcome { retries: 3, ..good(0, 0) },
        Outcome { retries: 1, ..failed(0, MS, b"40001") },
        ended(Class::Skipped, 0, 2 * MS),
    ];
    for (plan, max_tries, lines) in [
        (closed(), 1, ["0 1 3000 4 T 253000", "0 2 failed 4 T 254000", "0 3 skipped 4 T 257000"]),
        (
            closed(),
            0,
            ["0 1 3000 4 T 253000 3", "0 2 failed 4 T 254000 1", "0 3 skipped 4 T 257000 0"],
        ),
        (
            open(),
            1,
            ["0 1 3000 4 T 253000 1000", "0 2 failed 4 T 254000 0", "0 3 skipped 4 T 257000 0"],
        ),
        (
            open(),
            5,
            [
                "0 1 3000 4 T 253000 1000 3",
                "0 2 failed 4 T 254000 0 1",
                "0 3 skipped 4 T 257000 0 0",
            ],
        ),
    ] {
        let plan = Plan { max_tries, ..plan };
        let folder = logged(&plan, &asked(None), &[(0, outcomes.clone())]);
        let expected: String = lines.map(|line| line.replace('T', "1700000000") + "\n").concat();
        assert_eq!(folder.read(""), expected);
    }
}

#[test]
fn failures_are_named_by_their_kind_where_that_is_asked_for() {
    let outcomes: Vec<_> =
        [b"40001", b"40P01", b"23505", b"08006"].map(|sqlstate| failed(1, 0, sqlstate)).into();
    for (detailed, names) in
        [(false, ["failed"; 4]), (true, ["serialization", "deadlock", "other", "other"])]
    {
        let log = plan::Log { detailed, ..asked(None) };
        let folder = logged(&closed(), &log, &[(0, outcomes.clone())]);
        let lines = folder.read("");
        let found: Vec<_> =
            lines.lines().map(|line| line.split(' ').nth(2).expect("a time")).collect();
        assert_eq!(found, names);
    }
}

#[test]
fn what_never_ended_is_not_told_and_not_numbered() {
    let outcomes = vec![good(0, 0), ended(Class::Unfinished, 0, 0), good(0, 0)];
    let folder = logged(&closed(), &asked(None), &[(0, outcomes)]);
    let numbers: Vec<_> =
        folder.read("").lines().map(|l| l.split(' ').nth(1).map(str::to_owned)).collect();
    assert_eq!(numbers, [Some("1".to_owned()), Some("2".to_owned())]);
}

#[test]
fn each_thread_has_a_file_and_each_client_its_own_numbers() {
    let batches = [
        (0, vec![good(0, 0), good(1, 0)]),
        (1, vec![good(2, 0)]),
        (0, vec![good(1, MS)]),
        (1, vec![]),
    ];
    let folder = logged(&closed(), &asked(None), &batches);
    let begins = |text: String| -> Vec<String> {
        text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(begins(folder.read("")), ["0 1", "1 1", "1 2"]);
    assert_eq!(begins(folder.read(".1")), ["2 1"]);
    assert_eq!(std::fs::read_dir(&folder.0).expect("a folder").count(), 2);
}

#[test]
fn a_sample_is_about_as_large_as_asked_and_leaves_the_numbers_as_they_are() {
    let log = plan::Log { sampling: 0.25, ..asked(None) };
    let outcomes: Vec<_> = (0..8000).map(|n| good(0, n)).collect();
    let folder = logged(&closed(), &log, &[(0, outcomes)]);
    let text = folder.read("");
    let numbers: Vec<u32> = text
        .lines()
        .map(|line| line.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number"))
        .collect();
    assert!((1850..2150).contains(&numbers.len()), "{}", numbers.len());
    assert!(numbers.is_sorted() && *numbers.last().expect("some") > 7900);
}

#[test]
fn a_sum_has_a_line_for_every_interval_also_an_empty_one_and_the_last() {
    let outcomes = vec![good(0, 0), good(1, 100 * MS), good(0, 2900 * MS)];
    let folder = logged(&open(), &asked(Some(1)), &[(0, outcomes)]);
    let none = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
    let two = "2 6000 18000000 3000 3000 2000 2000000 1000 1000 0 0 0 0 0 0";
    let one = "1 3000 9000000 3000 3000 1000 1000000 1000 1000 0 0 0 0 0 0";
    // 2.903 s after an epoch of .25 is in the fourth second.
    let expected =
        format!("1700000000 {two}\n1700000001 {none}\n1700000002 {none}\n1700000003 {one}\n");
    assert_eq!(folder.read(""), expected);
    assert_eq!(folder.read(".1"), "", "a thread that did nothing has nothing to say");
}

#[test]
fn sums_are_over_as_many_seconds_as_asked_from_a_whole_one_on() {
    let dues = [0, 4 * SECOND + 740 * MS, 4 * SECOND + 748 * MS, 9 * SECOND];
    let outcomes = dues.map(|due| good(0, due)).into();
    let folder = logged(&closed(), &asked(Some(5)), &[(0, outcomes)]);
    let found: Vec<String> = folder
        .read("")
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    // The third is done at 5.001 s of the wall clock, the fourth at 9.253.
    assert_eq!(found, ["1700000000 2", "1700000005 2"]);
}

#[test]
fn what_failed_or_was_skipped_is_in_the_sums_but_not_in_their_times() {
    let outcomes = vec![
        good(0, 0),
        ended(Class::Skipped, 0, 0),
        ended(Class::Skipped, 0, 0),
        Outcome { retries: 2, ..failed(0, 0, b"40001") },
        Outcome { retries: 1, ..failed(0, 0, b"40P01") },
        failed(0, 0, b"40P01"),
        failed(0, 0, b"23505"),
        ended(Class::Unfinished, 0, 0),
    ];
    let all = Plan { limit: Some(SECOND), max_tries: 3, ..open() };
    let times = "1700000000 1 3000 9000000 3000 3000 1000 1000000 1000 1000";
    for (plan, detailed, counts) in [
        (&all, true, "2 2 3 1 2 1"),
        (&all, false, "2 2 3 0 0 0"),
        (&Plan { max_tries: 1, ..all.clone() }, true, "2 0 0 1 2 1"),
        (&Plan { limit: None, ..all.clone() }, true, "0 2 3 1 2 1"),
    ] {
        let log = plan::Log { detailed, ..asked(Some(1)) };
        let folder = logged(plan, &log, &[(0, outcomes.clone())]);
        assert_eq!(folder.read(""), format!("{times} {counts}\n"));
    }
    let folder = logged(&closed(), &asked(Some(1)), &[(0, outcomes)]);
    assert_eq!(folder.read(""), "1700000000 1 3000 9000000 3000 3000 0 0 0 0 0 0 0 0 0 0\n");
}

#[test]
fn an_interval_of_failures_alone_is_not_an_empty_one() {
    let folder = logged(&closed(), &asked(Some(1)), &[(0, vec![failed(0, 0, b"23505")])]);
    assert_eq!(folder.read("").lines().count(), 1);
}

#[test]
fn minimum_and_maximum_begin_anew_with_every_interval() {
    let slow = Outcome { done: 700 * MS, ..good(0, 0) };
    let fast = Outcome { done: SECOND + MS, ..good(0, SECOND) };
    let folder = logged(&closed(), &asked(Some(1)), &[(0, vec![slow, fast])]);
    let text = folder.read("");
    let found: Vec<Vec<&str>> =
        text.lines().map(|line| line.split(' ').skip(4).take(2).collect()).collect();
    assert_eq!(found, [["700000", "700000"], ["1000", "1000"]]);
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_with_its_name() {
    let log = plan::Log { prefix: "/nowhere/at/all".into(), ..asked(None) };
    let error = Log::open(&log, &closed(), &[Random::from_seed(1)]).err().expect("no such folder");
    assert_eq!(error.kind, Kind::System);
    let expected = format!(
        "could not open logfile \"/nowhere/at/all.{}\": No such file or directory",
        std::process::id()
    );
    assert_eq!((error.name, error.value("text")), ("log-not-opened", Some(&expected.into())));
}

#[test]
fn the_first_interval_begins_with_the_whole_second_in_which_the_run_does() {
    let folder = Folder::new();
    let wanted = plan::Log { prefix: folder.prefix().into(), ..asked(Some(1)) };
    let mut log = Log::open(&wanted, &closed(), &[Random::from_seed(1)]).expect("a log");
    log.begin(Instant::now(), -3 * SECOND);
    let begins = log.format.epoch - 3 * SECOND;
    assert!((0..SECOND).contains(&(begins - log.files[0].sums.start * SECOND)));
}
