//! In the steady state a transaction allocates nothing, in no protocol: neither its expressions,
//! nor its substitution, nor what is recorded of it.

use crate::support::backend::{columns, complete, ready, row, welcome};
use crate::support::trial::{plan, settings};
use allocation_counter::measure;
use pgpaces_engine::client::{Client, Moment, Next, Shared};
use pgpaces_engine::control::Control;
use pgpaces_engine::feeds::first_variables;
use pgpaces_engine::pace::{Arrivals, Choice, Due, Feed, SECOND, Schedule, Stream};
use pgpaces_engine::plan::{Load, Plan, Protocol};
use pgpaces_engine::record::Recorder;
use pgpaces_engine::script::Scripts;
use pgpaces_engine::script::random::Random;
use pgpaces_engine::shape::{Curve, Segment};
use std::sync::Arc;

const SCRIPT: &str = "\\set aid random(1, 100000 * :scale)\n\
    \\set d :aid / 3.0 + hash(:aid)\n\
    SELECT ':d', abalance FROM pgbench_accounts WHERE aid = :aid;\n\
    \\if :aid > 50000\n\
    SELECT :aid AS c \\gset\n\
    \\else\n\
    SELECT :aid, :client_id AS c \\gset\n\
    \\endif\n\
    UPDATE t SET v = :c;\n";
const TRANSACTIONS: u64 = 500;

/// What the server answers to a statement, whatever it was.
fn answer() -> Vec<u8> {
    [columns(), row(b"12345678"), complete("SELECT 1"), ready(b'I')].concat()
}

/// One client that has answers at once.
struct Alone {
    client: Client,
    record: Recorder,
    answer: Vec<u8>,
    now: i64,
}

impl Alone {
    fn new(protocol: Protocol) -> Self {
        let plan = Plan {
            protocol,
            variables: vec![("scale".into(), b"10".to_vec())],
            ..plan(Load::Closed { think: pgpaces_engine::pace::Think::None })
        };
        let mut scripts = Scripts::default();
        scripts.add("script", 1, SCRIPT.as_bytes()).expect("a script that parses");
        let automatic = [("client_id", 0), ("default_seed", 1)];
        let variables = first_variables(&mut scripts, &plan.variables, &automatic).expect("names");
        let control = Arc::new(Control::new(i64::MAX, 1));
        let shared = Arc::new(Shared::new(&plan, scripts, control));
        let mut client = Client::new(0, &shared, variables, Random::from_seed(7));
        let mut record = Recorder::new(0, 0);
        client.open(&Arc::new(settings(None)));
        let at = Moment { arrived: 0, now: 0 };
        client.receive(&welcome(), at, &mut record).expect("a login");
        Self { client, record, answer: answer(), now: 1 }
    }

    /// Runs transactions and gives the batch back to be used again, as a second's end does.
    fn run(&mut self) {
        for n in 0..TRANSACTIONS {
            let due = Due { n, at: self.now, script: 0 };
            let mut next = self.client.start(due, self.now, false, &mut self.record);
            while let Ok(Next::Server) = next {
                let connection = self.client.connection().expect("a connection");
                let sent = connection.outgoing().expect("no TLS").len();
                assert!(sent > 0);
                connection.sent(sent);
                self.now += 1000;
                let at = Moment { arrived: self.now, now: self.now };
                next = self.client.receive(&self.answer, at, &mut self.record);
            }
            assert!(matches!(next, Ok(Next::Free(_))), "{next:?}");
        }
        let batch = self.record.swap(self.now);
        assert_eq!(batch.outcomes.len() as u64, TRANSACTIONS);
        self.record.recycle(batch);
    }
}

#[test]
fn a_transaction_allocates_nothing_once_buffers_have_their_size() {
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        let mut alone = Alone::new(protocol);
        assert!(measure(|| alone.run()).count_total > 0, "the first ones make the buffers");
        (0..2).for_each(|_| alone.run());
        let found = measure(|| alone.run());
        assert_eq!(found.count_total, 0, "{protocol:?}: {found:?}");
    }
}

#[test]
fn a_schedule_with_a_shape_allocates_nothing() {
    let ramp = |start, from| Segment { start, from, to: 2.0 };
    let curve = Curve::new(&[ramp(0, 0.5), ramp(5 * SECOND, 1.0)], 0, 10 * SECOND);
    let schedule = Schedule::new(1000.0, Arrivals::Poisson, 0, Random::from_seed(1)).shaped(curve);
    let choice = Choice::new([1, 2].into(), Random::from_seed(2));
    let stream = Stream::new(schedule, choice, u64::MAX);
    let mut feed = Feed::Open { taken: Arc::default(), stream };
    let found = measure(|| while feed.next(0, 0, 10 * SECOND).is_some() {});
    assert_eq!(found.count_total, 0, "{found:?}");
}

/// The most bytes that are in use at once while a script is read, for each byte of it.
fn bytes_for_each(text: &[u8]) -> f64 {
    let found = measure(|| {
        let mut scripts = Scripts::default();
        scripts.add("script", 1, text).expect("a script that parses");
        std::hint::black_box(scripts);
    });
    found.bytes_max as f64 / text.len() as f64
}

/// A statement is kept once, however long its line is; one of 100 bytes costs about as much again.
#[test]
fn reading_a_script_takes_memory_in_proportion_to_its_size() {
    const ROWS: usize = 100_000;
    let rows = |row: &str| format!("INSERT INTO t VALUES {}(0, '');\n", row.repeat(ROWS));
    let line = "UPDATE pgbench_accounts SET abalance = abalance + :delta, filler = 'a text' WHERE";
    for (what, text, bytes_max) in [
        ("one line", rows("(1234, 'a text'), "), 1.1),
        ("one line with variables", rows("(1234, '12:30'), ") + "SELECT :a, :b;\n", 1.1),
        ("a line for each row", rows("(1234, 'a text'),\n"), 1.1),
        ("a line with a part left out", rows("(1, 'a text'), ").replacen("IN", "\\;IN", 1), 3.1),
        ("many statements", format!("{line} aid = :aid;\n").repeat(ROWS / 10), 6.0),
        ("an expression", format!("\\set x 1{}\n", " + 1234567".repeat(ROWS)), 6.0),
    ] {
        let found = bytes_for_each(text.as_bytes());
        assert!(found < bytes_max, "{what}: {found:.2} bytes for each byte");
    }
}
