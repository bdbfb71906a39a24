//! A server that means ill, byte for byte: each is refused with what was found and what was
//! expected, however its bytes are cut, in bounded memory and time.

use crate::support::backend::{
    authentication, columns, complete, error, frame, key, parameter, ready, row, welcome,
};
use crate::support::line::{feed, own, take};
use crate::support::trial::settings;
use pgpaces_engine::conninfo::{self, AuthMethod, ChannelBinding, ProcessEnvironment};
use pgpaces_engine::error::Kind;
use pgpaces_engine::wire::{Connection, Event, Fault, Settings, Status, tls};
use std::sync::Arc;

/// Where a connection is when something hostile comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Login,
    LetIn,
    Open,
    Keeping,
}

use Place::{Keeping, LetIn, Login, Open};

const EVERYWHERE: [Place; 4] = [Login, LetIn, Open, Keeping];

fn connection(place: Place) -> Connection {
    let mut connection = Connection::open(&Arc::new(settings(Some("secret"))));
    let before = match place {
        Login => Vec::new(),
        LetIn => authentication(0, &[]),
        Open | Keeping => welcome(),
    };
    feed(&mut connection, &before).expect("a login");
    connection.keep_rows(place == Keeping);
    connection
}

/// The one fault that these bytes lead to, in one piece and cut in two at any byte.
fn fault_of(make: impl Fn() -> Connection, bytes: &[u8]) -> Fault {
    let whole = feed(&mut make(), bytes);
    let Err(fault) = whole else { panic!("{}: {whole:?}", bytes.escape_ascii()) };
    let cuts = (0..=bytes.len()).step_by(1 + bytes.len() / 400);
    for cut in cuts {
        let mut connection = make();
        let (first, second) = bytes.split_at(cut);
        let found = feed(&mut connection, first).and_then(|_| feed(&mut connection, second));
        assert_eq!(found.err().as_ref(), Some(&fault), "cut at {cut}");
    }
    fault
}

/// Refused as no protocol, by an error whose name and values begin like this.
fn refused(place: Place, bytes: &[u8], words: &str) {
    let (kind, said) = own(&fault_of(|| connection(place), bytes));
    assert_eq!(kind, Kind::Connect, "{said}");
    assert!(said.starts_with(words), "{place:?}: {said} lacks: {words}");
}

fn with_length(tag: u8, length: i32) -> Vec<u8> {
    [&[tag][..], &length.to_be_bytes(), b"and more"].concat()
}

#[test]
fn a_length_that_cannot_be_is_refused_with_what_was_expected() {
    for (tag, places) in [
        (b'R', &[Login, LetIn][..]),
        (b'K', &[Login, LetIn]),
        (b'v', &[Login, LetIn]),
        (b'S', &EVERYWHERE),
        (b'E', &EVERYWHERE),
        (b'Z', &EVERYWHERE),
        (b'G', &[Open, Keeping]),
        (b'T', &[Keeping]),
        (b'D', &[Keeping]),
        (b'C', &[Keeping]),
        (b'I', &[Keeping]),
    ] {
        let too_long = if tag == b'D' { (64 << 20) + 1 } else { (1 << 20) + 1 };
        for place in places {
            for length in [0, 1, 2, 3, -1, i32::MIN, i32::MAX, too_long] {
                let (shown, most) = (char::from(tag), too_long - 1);
                let said = format!("message-length-wrong type={shown} bytes={length} most={most}");
                refused(*place, &with_length(tag, length), &said);
            }
        }
    }
    for tag in *b"NTDC123nstIAdcH" {
        for length in [0, 1, 2, 3, -1, i32::MIN] {
            let shown = char::from(tag);
            let said = format!("message-length-wrong type={shown} bytes={length} most=2147483647");
            refused(Open, &with_length(tag, length), &said);
        }
    }
}

#[test]
fn a_message_that_has_no_place_is_refused_by_its_first_bytes() {
    // Among them: CopyBothResponse, FunctionCallResponse, and what only clients send.
    for tag in *b"WV?QBFXpqb\0\xff" {
        for place in EVERYWHERE {
            let words = format!("message-out-of-place type={} place=", [tag].escape_ascii());
            refused(place, &with_length(tag, i32::MAX), &words);
        }
    }
    for tag in *b"TDC123nstIAdcHGWV" {
        let words = format!("message-out-of-place type={} place=login", char::from(tag));
        refused(Login, &frame(tag, &[0; 8]), &words);
        refused(LetIn, &frame(tag, &[0; 8]), &words);
    }
    for tag in *b"RKv" {
        let words = format!("message-out-of-place type={} place=session", char::from(tag));
        refused(Open, &frame(tag, &[0; 8]), &words);
        refused(Keeping, &frame(tag, &[0; 8]), &words);
    }
    for other in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"SSH-2.0-x\r\n", b"220 mail ESMTP\r\n"] {
        refused(Login, other, "message-");
    }
}

#[test]
fn ready_before_its_time_is_refused() {
    refused(Login, &ready(b'I'), "message-out-of-place type=Z place=login");
    refused(
        Login,
        &[parameter("a", "b"), ready(b'I')].concat(),
        "message-out-of-place type=S place=login",
    );
    refused(Login, &key(1, 2), "message-out-of-place type=K place=login");
    for (status, words) in [
        (&b""[..], "transaction-status-unknown status="),
        (b"X", "transaction-status-unknown status=X"),
    ] {
        refused(Open, &frame(b'Z', status), words);
        refused(LetIn, &frame(b'Z', status), words);
    }
    refused(Open, &frame(b'Z', &[b'I'; 900]), "transaction-status-unknown status=IIIIIIIIIIIIIIII");
}

#[test]
fn an_error_whose_fields_do_not_end_is_refused() {
    for body in [&b""[..], b"SERROR", b"SERROR\0", b"SERROR\0Mx\0", b"\0more", b"Mx\0\0\0"] {
        for place in EVERYWHERE {
            refused(place, &frame(b'E', body), "message-malformed type=E");
        }
    }
}

#[test]
fn an_error_without_a_message_still_says_something() {
    for body in [&b"\0"[..], b"SERROR\0\0", b"M\0\0", b"Cxy\0\0", b"C40001too long\0\0"] {
        let events = feed(&mut connection(Open), &frame(b'E', body)).expect("an event");
        let [Event::Failed(found)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((&found.sqlstate, &*found.message), (b"XX000", "an error without a message"));
    }
    let fault = fault_of(|| connection(Login), &frame(b'E', b"\0"));
    assert!(matches!(&fault, Fault::Server(said) if said.message == "an error without a message"));
}

#[test]
fn an_error_of_a_megabyte_is_cut() {
    let bytes = error("ERROR", "22000", &"x".repeat(1_000_000));
    let events = feed(&mut connection(Open), &bytes).expect("an event");
    let [Event::Failed(found)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(found.message.len(), 8192 + 3);
}

#[test]
fn a_cancel_key_of_another_length_is_refused() {
    let lengths = (0..8).chain(9..14).chain([4 + 32, 4 + 256, 1000]);
    for length in lengths {
        let words = format!("cancel-key-length-wrong bytes={length}");
        refused(LetIn, &frame(b'K', &vec![1; length]), &words);
    }
}

#[test]
fn only_the_protocol_that_was_asked_for_is_spoken() {
    let offer = |version: u32, rest: &[u8]| frame(b'v', &[&version.to_be_bytes(), rest].concat());
    for version in [0, 3 << 16] {
        assert_eq!(feed(&mut connection(Login), &offer(version, &[0; 4])), Ok(vec![]));
    }
    refused(Login, &offer(3 << 16 | 2, &[0; 4]), "protocol-version-unsupported version=3.2");
    refused(Login, &offer(u32::MAX, &[0; 4]), "protocol-version-unsupported version=65535.65535");
    refused(Login, &offer(3 << 16, b"\0\0\0\x01_pq_.x\0"), "message-malformed type=v");
    refused(Login, &offer(3 << 16, b"\xff\xff\xff\xff"), "message-malformed type=v");
    refused(Login, &frame(b'v', &[]), "message-malformed type=v");
}

#[test]
fn thousands_of_parameters_and_giant_ones_take_bounded_memory() {
    let mut flooded = connection(LetIn);
    let giant = "g".repeat(1 << 19);
    let used = allocation_counter::measure(|| {
        for number in 0..20_000 {
            let bytes = parameter(&format!("p{number}"), &"v".repeat(900));
            assert_eq!(feed(&mut flooded, &bytes), Ok(vec![]));
        }
        for number in 0..20 {
            let bytes = parameter(&format!("g{number}"), &giant);
            assert_eq!(feed(&mut flooded, &bytes), Ok(vec![]));
        }
    });
    assert!(used.bytes_max < 8 << 20, "{} bytes", used.bytes_max);
    assert!(used.bytes_current < 1 << 20, "{} bytes are kept", used.bytes_current);
    assert_eq!(flooded.parameter("p0"), Some(&*"v".repeat(900)));
    assert_eq!(flooded.parameter("p19999"), None);
    assert_eq!(flooded.parameter("g0"), None);
}

#[test]
fn a_parameter_that_grows_too_long_is_known_no_more() {
    let mut connection = connection(Open);
    assert_eq!(connection.parameter("server_version"), Some("18.1"));
    feed(&mut connection, &parameter("server_version", &"9".repeat(5000))).expect("no fault");
    assert_eq!(connection.parameter("server_version"), None);
}

#[test]
fn a_parameter_without_an_end_is_refused() {
    for body in [&b""[..], b"name", b"name\0", b"name\0value", b"n\0v\0more"] {
        refused(Open, &frame(b'S', body), "message-malformed type=S");
        refused(LetIn, &frame(b'S', body), "message-malformed type=S");
    }
}

#[test]
fn a_parameter_in_another_encoding_is_kept_as_far_as_it_can_be_read() {
    for place in [Open, LetIn] {
        let mut connection = connection(place);
        let told = frame(b'S', b"search_path\0caf\xe9\0");
        assert_eq!(feed(&mut connection, &told), Ok(vec![]));
        assert_eq!(connection.parameter("search_path"), Some("caf\u{fffd}"));
    }
}

#[test]
fn floods_of_what_nobody_asked_for_take_no_memory() {
    let notice = frame(b'N', &[b"SNOTICE\0M".as_slice(), &[b'x'; 5000], b"\0\0"].concat());
    let notification = frame(b'A', b"\0\0\0\x01channel\0payload\0");
    let copied = [frame(b'H', &[0, 0, 0]), frame(b'd', &[b'x'; 5000]), frame(b'c', &[])].concat();
    let rows = [columns(), row(&[b'r'; 5000]), complete("SELECT 1")].concat();
    for (place, bytes) in [
        (Login, &notice),
        (LetIn, &notice),
        (Keeping, &notice),
        (Open, &notification),
        (Open, &copied),
        (Open, &rows),
    ] {
        let mut flooded = connection(place);
        let used = allocation_counter::measure(|| {
            for _ in 0..20_000 {
                assert_eq!(feed(&mut flooded, bytes), Ok(vec![]));
            }
        });
        assert!(used.bytes_max < 64 * 1024, "{place:?}: {} bytes", used.bytes_max);
    }
    refused(Login, &notification, "message-out-of-place type=A place=login");
}

#[test]
fn rows_that_are_kept_one_after_the_other_take_the_memory_of_one() {
    let mut kept = connection(Keeping);
    let bytes = row(&[b'r'; 100_000]);
    let used = allocation_counter::measure(|| {
        for _ in 0..2000 {
            assert_eq!(feed(&mut kept, &bytes), Ok(vec![Event::Row]));
        }
    });
    assert!(used.bytes_max < 1 << 20, "{} bytes", used.bytes_max);
}

#[test]
fn rows_to_copy_are_asked_for_once() {
    let ask = frame(b'G', &[0, 0, 0]);
    refused(Open, &[ask.clone(), ask.clone()].concat(), "copy-asked-twice");
    let mut connection = connection(Open);
    for end in [ready(b'I'), error("ERROR", "57014", "as asked")] {
        assert_eq!(feed(&mut connection, &ask), Ok(vec![Event::CopyIn]));
        feed(&mut connection, &end).expect("an end");
    }
}

// Logins

/// A login under these rules.
fn login(allowed: &[AuthMethod], binding: ChannelBinding) -> Connection {
    let mut settings = settings(Some("secret"));
    settings.credentials.allowed = allowed.to_vec();
    settings.credentials.binding = binding;
    let mut connection = Connection::open(&Arc::new(settings));
    take(&mut connection);
    connection
}

#[test]
fn a_downgrade_of_the_login_is_refused_and_no_password_leaves_us() {
    use AuthMethod::{Md5, None as Nothing, Password, ScramSha256};
    let every = [Nothing, Password, Md5, ScramSha256];
    let (clear, md5) = (authentication(3, &[]), authentication(5, &[1, 2, 3, 4]));
    let scram = authentication(10, b"SCRAM-SHA-256\0\0");
    let plus = authentication(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    let (demanded, prefer) = (ChannelBinding::Require, ChannelBinding::Prefer);
    for (allowed, binding, request, words) in [
        (&[ScramSha256][..], prefer, &clear, "login-method-not-allowed method=password"),
        (&[ScramSha256], prefer, &md5, "login-method-not-allowed method=md5"),
        (&[ScramSha256], prefer, &welcome(), "login-method-not-allowed method=none"),
        (&[Password], prefer, &scram, "login-method-not-allowed method=scram-sha-256"),
        (&every, demanded, &clear, "channel-binding-needs-scram method=password"),
        (&every, demanded, &md5, "channel-binding-needs-scram method=md5"),
        (&every, demanded, &welcome(), "channel-binding-needs-scram method=none"),
        (&every, demanded, &scram, "channel-binding-needs-tls"),
        (&every, demanded, &plus, "channel-binding-without-tls"),
        (&every, prefer, &plus, "channel-binding-without-tls"),
        (&every, prefer, &authentication(10, b"\0"), "login-methods-unsupported methods="),
        (&every, prefer, &authentication(10, b""), "login-message-malformed why="),
        (&every, prefer, &authentication(10, b"SCRAM-SHA-256"), "login-message-malformed why="),
        (&every, prefer, &authentication(7, &[]), "login-method-unsupported"),
    ] {
        let fault = fault_of(|| login(allowed, binding), request);
        let (kind, said) = own(&fault);
        assert!(kind == Kind::Auth && said.starts_with(words), "{said} lacks: {words}");
        let mut connection = login(allowed, binding);
        let _ = feed(&mut connection, request);
        assert_eq!(take(&mut connection), b"", "nothing is said");
    }
}

#[test]
fn a_downgrade_in_the_middle_of_scram_is_refused() {
    for next in [
        authentication(0, &[]),
        authentication(3, &[]),
        authentication(5, &[1, 2, 3, 4]),
        authentication(10, b"SCRAM-SHA-256\0\0"),
    ] {
        let begun = || {
            let mut connection = login(
                &[AuthMethod::Password, AuthMethod::Md5, AuthMethod::ScramSha256],
                ChannelBinding::Prefer,
            );
            feed(&mut connection, &authentication(10, b"SCRAM-SHA-256\0\0")).expect("a beginning");
            take(&mut connection);
            connection
        };
        let fault = fault_of(begun, &next);
        assert_eq!(own(&fault), (Kind::Connect, "login-message-out-of-turn".to_owned()));
    }
}

#[test]
fn a_request_that_is_none_is_refused() {
    for (request, words) in [
        (frame(b'R', &[]), "message-malformed type=R"),
        (frame(b'R', &[0, 0]), "message-malformed type=R"),
        (authentication(99, &[]), "message-malformed type=R why=unknown authentication tag `99`"),
        (authentication(0, &[1]), "message-malformed type=R"),
        (authentication(5, &[1, 2, 3]), "message-malformed type=R"),
        (authentication(5, &[1, 2, 3, 4, 5]), "message-malformed type=R"),
    ] {
        refused(Login, &request, words);
    }
}

/// What comes of a challenge whose part behind the nonce is this.
fn challenged(rest: &str) -> Result<Vec<Event>, Fault> {
    let mut connection = login(&[AuthMethod::ScramSha256], ChannelBinding::Prefer);
    feed(&mut connection, &authentication(10, b"SCRAM-SHA-256\0\0")).expect("a beginning");
    let initial = take(&mut connection);
    // A nonce may hold `=` itself: what stands behind the first `r=` is all of it.
    let begins = initial.windows(3).position(|bytes| bytes == b",r=").expect("r=<nonce>") + 3;
    let nonce = std::str::from_utf8(&initial[begins..]).expect("ASCII");
    let challenge = format!("r={nonce}server,{rest}");
    feed(&mut connection, &authentication(11, challenge.as_bytes()))
}

#[test]
fn scram_rounds_without_measure_are_refused_before_the_first() {
    for rounds in ["0", "100001", "2147483648", "4294967295", "4294967296", "99999999999999999999"]
    {
        let found = challenged(&format!("s=c2FsdA==,i={rounds}"));
        let said = format!("scram-iterations-out-of-range iterations={rounds} most=100000");
        assert_eq!(own(&found.expect_err("too many")), (Kind::Auth, said));
    }
    assert_eq!(challenged("s=c2FsdA==,i=4096"), Ok(vec![]));
}

#[test]
fn a_second_challenge_is_refused() {
    let mut connection = login(&[AuthMethod::ScramSha256], ChannelBinding::Prefer);
    feed(&mut connection, &authentication(10, b"SCRAM-SHA-256\0\0")).expect("a beginning");
    let initial = String::from_utf8(take(&mut connection)).expect("ASCII");
    let (_, nonce) = initial.split_once(",r=").expect("r=<nonce>");
    let challenge = authentication(11, format!("r={nonce}server,s=c2FsdA==,i=4096").as_bytes());
    assert_eq!(feed(&mut connection, &challenge), Ok(vec![]));
    let found = feed(&mut connection, &challenge).expect_err("a second challenge");
    assert_eq!(own(&found).0, Kind::Auth);
}

#[test]
fn a_challenge_that_is_none_is_refused() {
    for rest in [
        "",
        "s=c2FsdA==",
        "s=c2FsdA==,i=",
        "s=c2FsdA==,i=-1",
        "s=c2FsdA==,i=+4294967295",
        "s=!,i=4096",
        "i=4096,s=c2FsdA==",
    ] {
        let found = challenged(rest);
        assert_eq!(own(&found.expect_err(rest)).0, Kind::Auth);
    }
    let mut connection = login(&[AuthMethod::ScramSha256], ChannelBinding::Prefer);
    feed(&mut connection, &authentication(10, b"SCRAM-SHA-256\0\0")).expect("a beginning");
    let replayed = authentication(11, b"r=somebody else's,s=c2FsdA==,i=4096");
    assert_eq!(own(&feed(&mut connection, &replayed).expect_err("a replay")).0, Kind::Auth);
}

// TLS

/// A connection that has asked for TLS.
fn asking() -> Connection {
    let overrides = [("host", "localhost"), ("user", "u"), ("sslmode", "require")];
    let conninfo = conninfo::resolve("", &overrides, &ProcessEnvironment).expect("good words");
    let tls = tls::Settings::load(&conninfo, "localhost").expect("no files");
    let mut connection = Connection::open(&Arc::new(Settings { tls: Some(tls), ..settings(None) }));
    take(&mut connection);
    connection
}

#[test]
fn what_stands_behind_the_answer_to_an_ssl_request_is_refused() {
    for (bytes, words) in [
        (&b"SS"[..], "ssl-request-answer-too-long"),
        (b"N\0", "ssl-request-answer-too-long"),
        (&[&b"S"[..], &welcome()].concat(), "ssl-request-answer-too-long"),
        (b"X", "ssl-request-answer-unknown answer=X"),
        (&error("FATAL", "08P01", "no"), "ssl-request-failed"),
    ] {
        let found = feed(&mut asking(), bytes);
        let Err(fault) = found else { panic!("{found:?}") };
        assert_eq!(own(&fault).1, words);
        assert!(!asking().is_ready());
    }
}

#[test]
fn a_session_in_clear_behind_the_answer_to_an_ssl_request_is_no_tls() {
    let mut connection = asking();
    assert_eq!(feed(&mut connection, b"S"), Ok(vec![]));
    let found = feed(&mut connection, &welcome());
    assert_eq!(own(&found.expect_err("no TLS")).0, Kind::Tls);
}

#[test]
fn a_tls_alert_in_the_handshake_is_named() {
    // A record of the type alert: fatal, handshake_failure.
    let alert = [21, 3, 3, 0, 2, 2, 40];
    let shaken = || {
        let mut connection = asking();
        feed(&mut connection, b"S").expect("TLS begins");
        take(&mut connection);
        connection
    };
    let fault = fault_of(shaken, &alert);
    let (kind, said) = own(&fault);
    assert!(kind == Kind::Tls && said.contains("HandshakeFailure"), "{said}");
}

#[test]
fn a_tls_record_that_is_too_long_is_refused() {
    let shaken = || {
        let mut connection = asking();
        feed(&mut connection, b"S").expect("TLS begins");
        take(&mut connection);
        connection
    };
    let record = [&[22, 3, 3, 255, 255][..], &[0; 100]].concat();
    assert_eq!(own(&fault_of(shaken, &record)).0, Kind::Tls);
}

#[test]
fn what_is_allowed_still_comes_through() {
    let mut connection = connection(Open);
    let bytes = [columns(), row(b"1"), complete("SELECT 1"), ready(b'T')].concat();
    assert_eq!(feed(&mut connection, &bytes), Ok(vec![Event::Ready(Status::InBlock)]));
}
