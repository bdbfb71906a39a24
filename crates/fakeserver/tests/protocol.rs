//! What the server says: simple and extended queries, transactions, pipelines and errors.

use crate::client::{
    Client, SSL, bind, bodies, describe_portal, error_code, execute, frame, kinds, parse, simple,
    start, wait_until,
};
use std::io::Read;

#[test]
fn a_session_starts_as_libpq_expects_it() {
    let server = start();
    let mut client = Client::raw(&server);
    client.opening(SSL, &[]);
    let mut refusal = [0];
    client.stream.read_exact(&mut refusal).unwrap();
    assert_eq!(refusal, *b"N");
    client.startup("anna");
    let messages = client.read_until(b'Z');
    let settings = bodies(&messages, b'S');
    assert!(settings.contains(&"server_version.18.0 (fake).".to_owned()), "{settings:?}");
    assert!(settings.contains(&"session_authorization.anna.".to_owned()), "{settings:?}");
    assert_eq!(bodies(&messages, b'Z'), ["I"]);
}

#[test]
fn the_startup_message_may_come_byte_by_byte() {
    let server = start();
    let mut client = Client::raw(&server);
    let bytes = b"\0\0\0\x14\0\x03\0\0user\0anna\0\0\0";
    let bytes = [&(bytes.len() as u32).to_be_bytes(), &bytes[4..]].concat();
    bytes.iter().for_each(|byte| client.write(&[*byte]));
    assert_eq!(client.read_until(b'Z').last().map(|last| last.kind), Some(b'Z'));
}

#[test]
fn a_newer_protocol_is_negotiated_down() {
    let server = start();
    let mut client = Client::raw(&server);
    client.opening(crate::client::VERSION + 2, b"user\0anna\0_pq_.new\0on\0\0");
    let messages = client.read_until(b'Z');
    // Version 3.0, and one option that it does not know.
    assert_eq!(bodies(&messages, b'v'), ["........_pq_.new."]);
}

#[test]
fn simple_queries_are_answered_by_their_first_word() {
    let server = start();
    let mut client = Client::connect(&server);
    for (sql, expected, tag) in [
        ("SELECT 1", "TDCZ", "SELECT 1."),
        ("select abalance from accounts where aid = 7", "TDCZ", "SELECT 1."),
        ("INSERT INTO t VALUES (1)", "CZ", "INSERT 0 1."),
        ("UPDATE t SET a = 1", "CZ", "UPDATE 1."),
        ("UPDATE t SET a = 1 RETURNING a", "TDCZ", "UPDATE 1."),
        ("SET x = 1", "CZ", "SET."),
        ("VACUUM", "CZ", "VACUUM."),
        ("SELECT fake_notice(2)", "NNTDCZ", "SELECT 1."),
        ("SELECT fake_rows(3, 2)", "TDDDCZ", "SELECT 3."),
        ("SELECT 1; SELECT 2;", "TDCTDCZ", "SELECT 1."),
        ("COPY t TO STDOUT", "HdcCZ", "COPY 1."),
    ] {
        let messages = client.query(sql);
        assert_eq!(kinds(&messages), expected, "{sql}");
        assert_eq!(bodies(&messages, b'C')[0], tag, "{sql}");
    }
    assert_eq!(kinds(&client.query(" -- nothing")), "IZ");
}

#[test]
fn values_come_back_as_they_are_and_the_rest_is_one() {
    let server = start();
    let mut client = Client::connect(&server);
    let messages = client.query("SELECT 42 AS answer, 'text', NULL, count(*) FROM t");
    assert_eq!(bodies(&messages, b'D'), ["......42....text........1"]);
    let columns = &bodies(&messages, b'T')[0];
    assert!(columns.contains("answer") && columns.contains("count"), "{columns}");
}

#[test]
fn an_error_ends_a_query_of_several_statements() {
    let server = start();
    let mut client = Client::connect(&server);
    let messages = client.query("SELECT 1; SELECT fake_error('40P01', 'deadlock'); SELECT 2");
    assert_eq!((kinds(&messages).as_str(), error_code(&messages).as_str()), ("TDCEZ", "40P01"));
    assert!(bodies(&messages, b'E')[0].contains("Mdeadlock"));
}

#[test]
fn the_transaction_status_follows_the_statements() {
    let server = start();
    let mut client = Client::connect(&server);
    for (sql, status, tag_or_code) in [
        ("BEGIN", "T", "BEGIN."),
        ("SELECT fake_error('40001')", "E", "40001"),
        ("SELECT 1", "E", "25P02"),
        ("ROLLBACK TO s", "T", "ROLLBACK."),
        ("SELECT fake_error('40001')", "E", "40001"),
        ("COMMIT", "I", "ROLLBACK."),
        ("START TRANSACTION", "T", "START TRANSACTION."),
        ("END", "I", "COMMIT."),
        ("SELECT fake_error('40001')", "I", "40001"),
        ("SELEKT", "I", "42601"),
        ("SELECT fake_nonsense(1)", "I", "42883"),
    ] {
        let messages = client.query(sql);
        assert_eq!(bodies(&messages, b'Z'), [status], "{sql}");
        let tag = bodies(&messages, b'C').pop();
        assert_eq!(tag.unwrap_or_else(|| error_code(&messages)), tag_or_code, "{sql}");
    }
}

#[test]
fn a_statement_is_prepared_once_and_executed_often() {
    let server = start();
    let mut client = Client::connect(&server);
    let describe = frame(b'D', b"Ss\0");
    let messages = client.pipeline(&[parse("s", "SELECT $1, $2 AS b"), describe]);
    assert_eq!(kinds(&messages), "1tTZ");
    for value in ["a", "b"] {
        let messages = client.pipeline(&[bind("s", &[value, "z"]), describe_portal(), execute()]);
        assert_eq!(kinds(&messages), "2TDCZ");
        assert_eq!(bodies(&messages, b'D'), [format!("......{value}....z")]);
    }
    let messages = client.pipeline(&[frame(b'C', b"Ss\0"), bind("s", &["a", "b"])]);
    assert_eq!((kinds(&messages).as_str(), error_code(&messages).as_str()), ("3EZ", "26000"));
}

#[test]
fn binary_results_are_given_where_they_are_asked_for() {
    let server = start();
    let mut client = Client::connect(&server);
    let bind = frame(b'B', b"\0\0\0\0\0\0\0\x01\0\x01");
    let messages = client.pipeline(&[parse("", "SELECT 258"), bind, execute()]);
    assert_eq!(messages[2].body, [0, 1, 0, 0, 0, 4, 0, 0, 1, 2]);
}

#[test]
fn a_pipeline_is_answered_in_order_and_skipped_after_an_error_until_sync() {
    let server = start();
    let mut client = Client::connect(&server);
    let sync = || frame(b'S', &[]);
    let select = |sql| [parse("", sql), bind("", &[]), execute()].concat();
    client.send(&[
        select("SELECT 1"),
        select("SELECT fake_sleep(1)"),
        select("SELECT fake_error('22012')"),
        select("SELECT 3"),
        sync(),
        select("SELECT 4"),
        sync(),
    ]);
    assert_eq!(kinds(&client.read_until(b'Z')), "12DC12DC12EZ");
    let messages = client.read_until(b'Z');
    assert_eq!(bodies(&messages, b'D'), ["......4"]);
}

#[test]
fn what_cannot_be_prepared_or_bound_is_an_error_with_its_code() {
    let server = start();
    let mut client = Client::connect(&server);
    for (messages, code) in [
        (vec![parse("", "SELECT 1; SELECT 2")], "42601"),
        (vec![parse("", "SELEKT")], "42601"),
        (vec![parse("p", "SELECT 1"), parse("p", "SELECT 1")], "42P05"),
        (vec![bind("nobody", &[])], "26000"),
        (vec![parse("", "SELECT $1"), bind("", &[])], "08P01"),
        (vec![execute()], "34000"),
        (vec![frame(b'F', &[0; 10])], "0A000"),
    ] {
        let answers = client.pipeline(&messages);
        assert_eq!(error_code(&answers), code);
        if messages[0][0] == b'F' {
            client.read_until(b'Z');
        }
    }
    assert_eq!(kinds(&client.query("SELECT 1")), "TDCZ");
}

#[test]
fn messages_longer_than_any_buffer_are_taken_whole_also_in_a_pipeline() {
    let server = start();
    let mut client = Client::connect(&server);
    let long = format!("SELECT '{}'", "x".repeat(1 << 20));
    client.send(&[simple("SELECT fake_sleep(5)"), simple(&long), simple("SELECT 3")]);
    assert_eq!(kinds(&client.read_until(b'Z')), "TDCZ");
    let row = client.read_until(b'Z').swap_remove(1);
    assert_eq!((row.kind, row.body.len()), (b'D', 6 + (1 << 20)));
    assert_eq!(kinds(&client.read_until(b'Z')), "TDCZ");
}

#[test]
fn whoever_sends_without_reading_is_answered_all_the_same_in_the_end() {
    let server = start();
    let mut client = Client::connect(&server);
    let mut writer = client.stream.try_clone().unwrap();
    let queries = simple("SELECT 'a few bytes more than nothing'").repeat(1000);
    let sender = std::thread::spawn(move || {
        (0..100).for_each(|_| std::io::Write::write_all(&mut writer, &queries).unwrap());
    });
    wait_until(|| server.control().stats().unwrap().statements > 10_000);
    for _ in 0..100_000 {
        assert_eq!(kinds(&client.read_until(b'Z')), "TDCZ");
    }
    sender.join().unwrap();
}

#[test]
fn copy_data_is_taken_and_counted() {
    let server = start();
    let mut client = Client::connect(&server);
    client.send(&[simple("COPY t FROM STDIN")]);
    assert_eq!(client.read().map(|message| message.kind), Some(b'G'));
    client.send(&[frame(b'd', b"1\ta\n2\tb\n"), frame(b'd', b"3\tc\n"), frame(b'c', &[])]);
    assert_eq!(bodies(&client.read_until(b'Z'), b'C'), ["COPY 3."]);
    client.send(&[simple("COPY t FROM STDIN"), frame(b'f', b"no\0")]);
    assert_eq!(error_code(&client.read_until(b'Z')), "57014");
}

#[test]
fn connections_end_as_the_text_asks_for() {
    let server = start();
    let mut client = Client::connect(&server);
    client.send(&[simple("SELECT 1"), simple("SELECT fake_disconnect()")]);
    assert_eq!(kinds(&client.read_until(b'!')), "TDCZ");
    let mut client = Client::connect(&server);
    client.send(&[simple("SELECT fake_terminate()")]);
    let messages = client.read_until(b'!');
    assert_eq!((kinds(&messages).as_str(), error_code(&messages).as_str()), ("E", "57P01"));
}

#[test]
fn bytes_that_are_not_the_protocol_end_the_connection_with_08p01() {
    let server = start();
    for bytes in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"\0\0\0\x08\0\x02\0\0"] {
        let mut client = Client::raw(&server);
        client.write(bytes);
        assert_eq!(error_code(&client.read_until(b'!')), "08P01");
    }
    for bytes in [&b"?\0\0\0\x04"[..], b"Q\0\0\0\0", b"B\0\0\0\x05\0"] {
        let mut client = Client::connect(&server);
        client.write(bytes);
        assert_eq!(error_code(&client.read_until(b'!')), "08P01");
    }
    assert_eq!(server.control().stats().unwrap().open, 0);
}
