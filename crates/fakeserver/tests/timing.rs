//! When the server answers: never too early. How late it is depends on the machine, and no test
//! here asks.

use crate::client::{
    CANCEL, Client, bind, bodies, error_code, execute, frame, kinds, parse, simple, start,
    wait_until,
};
use pgpaces_fakeserver::{Config, FakeServer};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// How long `work` takes.
fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

#[test]
fn a_delay_is_never_answered_early() {
    let server = start();
    let mut client = Client::connect(&server);
    for (sql, ms) in [
        ("SELECT fake_sleep(50)", 50.0),
        ("SELECT fake_sleep(0.25)", 0.25),
        ("SELECT pg_sleep(0.02)", 20.0),
        ("UPDATE t SET a = 1 /* fake_sleep(5) */; SELECT fake_sleep(6)", 11.0),
    ] {
        let (elapsed, messages) = time(|| client.query(sql));
        assert!(elapsed.as_secs_f64() * 1e3 >= ms, "{sql}: {elapsed:?}");
        assert!(kinds(&messages).ends_with("CZ"), "{sql}");
    }
}

#[test]
fn a_delay_may_be_a_parameter() {
    let server = start();
    let mut client = Client::connect(&server);
    client.pipeline(&[parse("s", "SELECT fake_sleep($1::float8)")]);
    for ms in ["5", "12.5"] {
        let (elapsed, _) = time(|| client.pipeline(&[bind("s", &[ms]), execute()]));
        assert!(elapsed >= Duration::from_secs_f64(ms.parse::<f64>().unwrap() / 1e3));
    }
    let answers = client.pipeline(&[bind("s", &["soon"]), execute()]);
    assert_eq!(error_code(&answers), "22023");
}

#[test]
fn delays_in_a_pipeline_follow_one_another() {
    let server = start();
    let mut client = Client::connect(&server);
    let sleep = || simple("SELECT fake_sleep(10)");
    let (elapsed, _) = time(|| {
        client.send(&[sleep(), sleep(), sleep()]);
        (0..3).for_each(|_| drop(client.read_until(b'Z')));
    });
    assert!(elapsed >= 30 * MS, "{elapsed:?}");
}

#[test]
fn delays_on_different_connections_run_side_by_side() {
    let server = start();
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(&server)).collect();
    let (elapsed, ()) = time(|| {
        clients.iter_mut().for_each(|client| client.send(&[simple("SELECT fake_sleep(100)")]));
        clients.iter_mut().for_each(|client| drop(client.read_until(b'Z')));
    });
    assert!(elapsed >= 100 * MS && elapsed < 2500 * MS, "{elapsed:?}");
}

#[test]
fn one_server_serves_all_connections_one_after_the_other() {
    let config = Config { servers: NonZeroUsize::new(1), delay: 10 * MS, ..Config::default() };
    let server = FakeServer::start(config).unwrap();
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(&server)).collect();
    let (elapsed, ()) = time(|| {
        clients.iter_mut().for_each(|client| client.send(&[simple("SELECT 1")]));
        clients.iter_mut().for_each(|client| drop(client.read_until(b'Z')));
    });
    assert!(elapsed >= 50 * MS, "{elapsed:?}");
}

#[test]
fn whoever_leaves_gives_up_the_place() {
    let config = Config { servers: NonZeroUsize::new(1), ..Config::default() };
    let server = FakeServer::start(config).unwrap();
    let mut hanging = Client::connect(&server);
    let mut waiting = Client::connect(&server);
    hanging.send(&[simple("SELECT fake_hang()")]);
    wait_until(|| server.control().stats().unwrap().in_service > 0);
    waiting.send(&[simple("SELECT 1")]);
    wait_until(|| server.control().stats().unwrap().waiting > 0);
    drop(hanging);
    assert_eq!(kinds(&waiting.read_until(b'Z')), "TDCZ");
}

#[test]
fn a_cancel_request_ends_the_statement_at_once() {
    let server = start();
    let mut client = Client::connect(&server);
    for sql in ["SELECT fake_hang()", "SELECT fake_sleep(1e9)"] {
        client.query("BEGIN");
        client.send(&[simple(sql)]);
        wait_until(|| server.control().stats().unwrap().in_service > 0);
        let mut wrong = client.key.clone();
        wrong[7] ^= 1;
        for key in [&wrong, &client.key] {
            let mut canceller = Client::raw(&server);
            canceller.opening(CANCEL, key);
            assert_eq!(canceller.read(), None);
        }
        let messages = client.read_until(b'Z');
        assert_eq!(
            (error_code(&messages), bodies(&messages, b'Z')),
            ("57014".to_owned(), vec!["E".to_owned()])
        );
        client.query("ROLLBACK");
    }
    let mut canceller = Client::raw(&server);
    canceller.opening(CANCEL, &client.key);
    assert_eq!(canceller.read(), None);
    assert_eq!(kinds(&client.query("SELECT 1")), "TDCZ");
    assert_eq!(server.control().stats().unwrap().cancelled, 2);
}

#[test]
fn in_a_stall_window_nothing_is_answered() {
    let stalls = vec![Duration::ZERO..100 * MS];
    let server = FakeServer::start(Config { stalls, ..Config::default() }).unwrap();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    let (elapsed, ()) = time(|| {
        clients.iter_mut().for_each(|client| client.send(&[simple("SELECT 1")]));
        clients.iter_mut().for_each(|client| drop(client.read_until(b'Z')));
    });
    assert!(elapsed >= 100 * MS, "{elapsed:?}");
    assert_eq!(kinds(&clients[0].query("SELECT 1")), "TDCZ");
}

#[test]
fn a_server_stalled_by_hand_holds_everything_until_it_thaws() {
    let server = start();
    let mut client = Client::connect(&server);
    server.control().stall().unwrap();
    client.send(&[simple("SELECT 1"), simple("SELECT fake_sleep(1)"), simple("SELECT 3")]);
    let mut stranger = Client::raw(&server);
    stranger.startup("user");
    wait_until(|| server.control().stats().unwrap().statements == 3);
    client.stream.set_nonblocking(true).unwrap();
    let peeked = client.stream.peek(&mut [0]);
    assert_eq!(peeked.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    client.stream.set_nonblocking(false).unwrap();
    server.control().thaw().unwrap();
    (0..3).for_each(|_| assert_eq!(kinds(&client.read_until(b'Z')), "TDCZ"));
    assert_eq!(stranger.read_until(b'Z').last().map(|last| last.kind), Some(b'Z'));
}

#[test]
fn connections_are_refused_accepted_and_dropped_by_hand() {
    let server = start();
    let mut client = Client::connect(&server);
    server.control().refuse().unwrap();
    let refused = std::net::TcpStream::connect(("127.0.0.1", server.port()));
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(kinds(&client.query("SELECT 1")), "TDCZ");
    server.control().accept().unwrap();
    let mut second = Client::connect(&server);
    server.control().drop_all().unwrap();
    assert_eq!((client.read(), second.read()), (None, None));
    assert_eq!(kinds(&Client::connect(&server).query("SELECT 1")), "TDCZ");
}

#[test]
fn the_log_and_the_counts_say_what_came_in() {
    let server = start();
    let mut client = Client::connect(&server);
    client.query("SELECT 1; SELECT 2");
    client.pipeline(&[parse("p", "SELECT $1"), bind("p", &["x"]), execute(), frame(b'H', &[])]);
    let log = server.control().log().unwrap();
    let seen: Vec<_> = log
        .iter()
        .map(|entry| (entry.statement.as_str(), entry.sql.as_str(), entry.parameters.len()))
        .collect();
    assert_eq!(seen, [("", "SELECT 1; SELECT 2", 0), ("p", "SELECT $1", 0), ("p", "SELECT $1", 1)]);
    let stats = server.control().stats().unwrap();
    assert_eq!((stats.open, stats.accepted, stats.statements), (1, 1, 3));
    assert_eq!((stats.messages[&'Q'], stats.messages[&'P'], stats.messages[&'E']), (1, 1, 1));
    assert_eq!(stats.queries["SELECT $1"], 1);
}
