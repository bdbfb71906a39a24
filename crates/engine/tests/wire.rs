//! The protocol from scripted bytes: logins, errors, rows however they are cut, and what is no
//! protocol at all.

use crate::support::backend::{
    authentication, columns, complete, error, frame, key, parameter, ready, row, welcome,
};
use crate::support::line::{feed, own, take};
use crate::support::scram::Scram;
use crate::support::trial::settings;
use pgpaces_engine::error::Kind;
use pgpaces_engine::poll::clock::thread_cpu;
use pgpaces_engine::wire::{Connection, Event, Fault, Status};
use proptest::prelude::*;
use std::sync::Arc;

fn opened(password: Option<&str>) -> Connection {
    let mut connection = Connection::open(&Arc::new(settings(password)));
    take(&mut connection);
    connection
}

/// A connection that is logged in.
fn ready_connection() -> Connection {
    let mut connection = opened(None);
    feed(&mut connection, &welcome()).expect("a login");
    connection
}

/// The body of the one message that the connection wants to send.
fn message(connection: &mut Connection, tag: u8) -> Vec<u8> {
    let bytes = take(connection);
    assert_eq!(bytes.first(), Some(&tag));
    let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap());
    assert_eq!(bytes.len(), length as usize + 1);
    bytes[5..].to_vec()
}

#[test]
fn the_first_message_names_the_user() {
    let mut connection = Connection::open(&Arc::new(settings(None)));
    let bytes = take(&mut connection);
    assert_eq!(bytes[4..8], [0, 3, 0, 0]);
    assert!(bytes.windows(10).any(|w| w == b"user\0user\0"));
}

#[test]
fn a_password_is_hashed_once_for_all_logins_with_it() {
    let settings = Arc::new(settings(Some("secret")));
    let hash = |salt: &str| {
        let mut connection = Connection::open(&settings);
        take(&mut connection);
        feed(&mut connection, &authentication(10, b"SCRAM-SHA-256\0\0")).expect("a mechanism");
        let first = String::from_utf8(message(&mut connection, b'p')).expect("ASCII");
        let (_, nonce) = first.split_once(",r=").expect("a nonce");
        let challenge = authentication(11, format!("r={nonce}s,s={salt},i=90000").as_bytes());
        let begun = thread_cpu();
        feed(&mut connection, &challenge).expect("a challenge");
        thread_cpu() - begun
    };
    let (once, again, other) = (hash("AAAA"), hash("AAAA"), hash("BBBB"));
    assert!(again * 10 < once.min(other), "{once}, {again}, {other} ns");
}

#[test]
fn trust_needs_no_password_and_tells_what_the_server_is() {
    let connection = ready_connection();
    assert!(connection.is_ready());
    assert_eq!(connection.parameter("server_version"), Some("18.1"));
    assert_eq!(connection.parameter("nothing"), None);
    assert_eq!(connection.cancel_key(), Some((4711, 42)));
    assert_eq!(connection.status(), Status::Idle);
}

#[test]
fn a_password_is_sent_as_the_server_asks_for_it() {
    // md5(md5("secret" + "user") + salt), computed with md5sum
    let md5: &[u8] = b"md5fccef98e4f1cf6cbe96b743fad4e8bd0\0";
    for (request, expected) in
        [(authentication(3, &[]), &b"secret\0"[..]), (authentication(5, &[1, 2, 3, 4]), md5)]
    {
        let mut connection = opened(Some("secret"));
        assert_eq!(feed(&mut connection, &request), Ok(vec![]));
        assert_eq!(message(&mut connection, b'p'), expected);
        assert_eq!(feed(&mut connection, &welcome()), Ok(vec![Event::Ready(Status::Idle)]));
    }
}

/// A SCRAM login up to the client's last message; the server's signature for it.
fn scram(connection: &mut Connection) -> String {
    feed(connection, &authentication(10, b"SCRAM-SHA-256\0\0")).expect("a mechanism that is known");
    let initial = message(connection, b'p');
    let first = initial.strip_prefix(b"SCRAM-SHA-256\0").expect("no TLS, no binding");
    let server = Scram::begin(std::str::from_utf8(&first[4..]).unwrap(), "secret");
    let challenge = authentication(11, server.server_first().as_bytes());
    feed(connection, &challenge).expect("a challenge");
    let last = String::from_utf8(message(connection, b'p')).unwrap();
    let (proof, signature) = server.proof_and_final(&last);
    assert_eq!(last.split_once(",p=").map(|(_, p)| p), Some(&*proof));
    signature
}

#[test]
fn scram_proves_the_password_to_the_server_and_the_server_to_us() {
    let mut connection = opened(Some("secret"));
    let signature = scram(&mut connection);
    let end = [authentication(12, signature.as_bytes()), welcome()].concat();
    assert_eq!(feed(&mut connection, &end), Ok(vec![Event::Ready(Status::Idle)]));
}

#[test]
fn a_server_that_cannot_prove_itself_is_refused() {
    let forged = "v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let mut connection = opened(Some("secret"));
    scram(&mut connection);
    let end = feed(&mut connection, &authentication(12, forged.as_bytes()));
    assert_eq!(own(&end.expect_err("forged")).0, Kind::Auth);

    let mut connection = opened(Some("secret"));
    scram(&mut connection);
    let end = feed(&mut connection, &welcome());
    assert_eq!(own(&end.expect_err("no proof at all")).0, Kind::Connect);
}

#[test]
fn a_login_that_cannot_be_says_why() {
    let unknown = authentication(7, &[]);
    for (password, bytes, sqlstate, words) in [
        (None, authentication(3, &[]), b"28000", "password-required"),
        (None, authentication(5, &[1, 2, 3, 4]), b"28000", "password-required"),
        (None, authentication(10, b"SCRAM-SHA-256\0\0"), b"28000", "password-required"),
        (
            Some("p"),
            authentication(10, b"OAUTHBEARER\0\0"),
            b"28000",
            "login-methods-unsupported methods=OAUTHBEARER",
        ),
        (Some("p"), unknown, b"28000", "login-method-unsupported"),
        (Some("p"), error("FATAL", "28P01", "password authentication failed"), b"28P01", "failed"),
        (Some("p"), error("FATAL", "53300", "too many clients"), b"53300", "too many"),
    ] {
        let fault = feed(&mut opened(password), &bytes).expect_err(words);
        assert_eq!(&fault.sqlstate(), sqlstate, "{fault:?}");
        match &fault {
            Fault::Server(error) => assert!(error.message.contains(words), "{fault:?}"),
            Fault::Own(error) => assert_eq!(error.to_string(), words),
        }
    }
}

#[test]
fn what_does_not_belong_where_it_comes_is_a_fault() {
    let ok = authentication(0, &[]);
    let in_login: &[&[u8]] = &[
        &ready(b'I'),
        &[ok.clone(), ok.clone()].concat(),
        &authentication(11, b"r=x"),
        &authentication(12, b"v=x"),
        &[authentication(3, &[]), authentication(3, &[])].concat(),
        &frame(b'G', &[0, 0, 0]),
        b"HTTP/1.1 400 Bad Request\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ];
    for bytes in in_login {
        let found = feed(&mut opened(Some("p")), bytes);
        assert!(found.is_err(), "{}: {found:?}", bytes.escape_ascii());
    }
    let in_session: &[&[u8]] = &[
        &ok,
        &key(1, 2),
        &ready(b'?'),
        &frame(b'Z', &[]),
        &frame(b'Z', b"II"),
        &frame(b'W', &[0, 0, 0]),
        &frame(b'?', &[]),
        &[0; 5],
        &[b'D', 0, 0, 0, 3],
        &[b'D', 255, 255, 255, 255],
        &[b'Z', 0, 0, 0, 0],
        &[b'E', 0x7f, 255, 255, 255],
    ];
    for bytes in in_session {
        let found = feed(&mut ready_connection(), bytes);
        let fault = found.expect_err("no place here");
        assert_eq!(own(&fault).0, Kind::Connect, "{}", bytes.escape_ascii());
    }
}

#[test]
fn an_error_is_an_event_and_says_whether_the_session_is_over() {
    for (severity, sqlstate, fatal) in
        [("ERROR", "40001", false), ("FATAL", "57P01", true), ("PANIC", "XX000", true)]
    {
        let bytes = error(severity, sqlstate, "in its own words");
        let events = feed(&mut ready_connection(), &bytes).expect("an event");
        let [Event::Failed(found)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(found.sqlstate, sqlstate.as_bytes());
        assert_eq!((&*found.message, found.fatal), ("in its own words", fatal));
    }
}

#[test]
fn an_error_in_a_function_comes_with_the_query_of_the_function() {
    let bytes = frame(b'E', b"SERROR\0C42703\0Mno column x\0p8\0qSELECT x\0\0");
    let events = feed(&mut ready_connection(), &bytes).expect("an event");
    let [Event::Failed(found)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(found.internal_position, Some(8));
    assert_eq!(found.internal_query.as_deref(), Some("SELECT x"));
}

#[test]
fn copy_from_stdin_is_an_event_and_the_session_goes_on() {
    let mut connection = ready_connection();
    assert_eq!(feed(&mut connection, &frame(b'G', &[0, 0, 0])), Ok(vec![Event::CopyIn]));
    assert_eq!(feed(&mut connection, &ready(b'T')), Ok(vec![Event::Ready(Status::InBlock)]));
}

/// A login and two statements, with all that a server may say between.
fn conversation() -> (Vec<u8>, Vec<Event>) {
    let bytes = [
        welcome(),
        columns(),
        row(b"one"),
        row(&[b'Z'; 300]),
        frame(b'N', b"SNOTICE\0\0"),
        complete("SELECT 2"),
        ready(b'T'),
        frame(b'1', &[]),
        frame(b'2', &[]),
        parameter("TimeZone", "UTC"),
        frame(b'A', &[0, 0, 0, 1, b'c', 0, 0]),
        error("ERROR", "40001", "could not serialize"),
        ready(b'E'),
        frame(b'I', &[]),
        ready(b'I'),
    ];
    let failed = feed(&mut ready_connection(), &bytes[11]).unwrap().remove(0);
    let events = vec![
        Event::Ready(Status::Idle),
        Event::Ready(Status::InBlock),
        failed,
        Event::Ready(Status::Failed),
        Event::Ready(Status::Idle),
    ];
    (bytes.concat(), events)
}

#[test]
fn a_conversation_cut_in_two_at_any_byte_is_the_same() {
    let (bytes, expected) = conversation();
    for cut in 0..=bytes.len() {
        let mut connection = opened(None);
        let mut events = feed(&mut connection, &bytes[..cut]).expect("no fault");
        events.extend(feed(&mut connection, &bytes[cut..]).expect("no fault"));
        assert_eq!(events, expected, "cut at {cut}");
        assert_eq!(connection.parameter("TimeZone"), Some("UTC"));
    }
}

#[test]
fn a_row_of_a_gigabyte_is_passed_over() {
    let mut connection = ready_connection();
    let length: u32 = 1 << 30;
    feed(&mut connection, &[&b"D"[..], &length.to_be_bytes()].concat()).expect("a long row");
    let chunk = vec![b'E'; 64 * 1024];
    let mut left = length as usize - 4;
    while left > 0 {
        let next = left.min(chunk.len());
        assert_eq!(feed(&mut connection, &chunk[..next]), Ok(vec![]));
        left -= next;
    }
    assert_eq!(feed(&mut connection, &ready(b'I')), Ok(vec![Event::Ready(Status::Idle)]));
}

#[test]
fn an_error_too_long_to_be_held_is_a_fault_however_it_comes() {
    let bytes = error("ERROR", "22000", &"long ".repeat(300_000));
    for size in [1 << 10, 1 << 16, bytes.len()] {
        let mut connection = ready_connection();
        let found: Result<Vec<_>, _> =
            bytes.chunks(size).map(|chunk| feed(&mut connection, chunk)).collect();
        assert_eq!(own(&found.expect_err("no protocol")).0, Kind::Connect, "in chunks of {size}");
    }
}

/// Bytes that begin as a message would.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop::sample::select(&b"ZESRKGWDTC123nNAIdcHv?"[..]);
    let body = prop::collection::vec(any::<u8>(), 0..60);
    let code = prop_oneof![Just(None), (0u32..14).prop_map(Some)];
    let one = (tag, code, body).prop_map(|(tag, code, body)| match code {
        Some(code) => frame(tag, &[&code.to_be_bytes()[..], &body].concat()),
        None => frame(tag, &body),
    });
    prop::collection::vec(one, 0..6).prop_map(|all| all.concat())
}

/// Events and the fault that ended them, in chunks of these sizes.
fn in_chunks(
    connection: &mut Connection,
    bytes: &[u8],
    sizes: &[usize],
) -> (Vec<Event>, Option<Fault>) {
    let mut events = Vec::new();
    let mut left = bytes;
    for size in sizes.iter().cycle() {
        if left.is_empty() {
            break;
        }
        let (chunk, rest) = left.split_at((*size).min(left.len()));
        left = rest;
        let seen = connection.receive(chunk, |_, event| {
            events.push(event);
            Ok::<(), Fault>(())
        });
        if let Err(fault) = seen {
            return (events, Some(fault));
        }
    }
    (events, None)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_chunks_give_the_same_events(sizes in prop::collection::vec(1usize..40, 1..20)) {
        let (bytes, expected) = conversation();
        prop_assert_eq!(in_chunks(&mut opened(None), &bytes, &sizes), (expected, None));
    }

    #[test]
    fn whatever_comes_any_chunks_give_the_same_and_nothing_panics(
        bytes in prop_oneof![frames(), prop::collection::vec(any::<u8>(), 0..200)],
        begins in 0usize..3,
        sizes in prop::collection::vec(1usize..40, 1..20),
    ) {
        let connection = || match begins {
            0 => opened(Some("secret")),
            1 => ready_connection(),
            _ => {
                let mut connection = opened(Some("secret"));
                scram(&mut connection);
                connection
            }
        };
        let whole = in_chunks(&mut connection(), &bytes, &[usize::MAX]);
        prop_assert_eq!(in_chunks(&mut connection(), &bytes, &sizes), whole);
    }
}
