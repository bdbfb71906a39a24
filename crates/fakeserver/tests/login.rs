//! Who is let in. That the SCRAM proofs are right is tested where they are computed, against the
//! figures of RFC 7677; here is who is turned away, and with which code.

use crate::client::{Client, bodies, error_code, frame, kinds, wait_until};
use pgpaces_fakeserver::{Auth, Config, FakeServer};

fn server(config: Config) -> FakeServer {
    let config = Config { password: "secret".to_owned(), user: Some("user".to_owned()), ..config };
    FakeServer::start(config).unwrap()
}

fn asking_for(auth: Auth) -> FakeServer {
    server(Config { auth, ..Config::default() })
}

#[test]
fn the_right_password_comes_in_and_a_wrong_one_gets_28p01() {
    let server = asking_for(Auth::Password);
    for (user, password, expected) in
        [("user", "secret", 'Z'), ("user", "wrong", 'E'), ("other", "secret", 'E')]
    {
        let mut client = Client::raw(&server);
        client.startup(user);
        assert_eq!(client.read().unwrap().body, [0, 0, 0, 3]);
        client.send(&[frame(b'p', format!("{password}\0").as_bytes())]);
        let messages = client.read_until(b'Z');
        assert!(kinds(&messages).ends_with(expected), "{user} {password}");
        assert!(expected == 'Z' || error_code(&messages) == "28P01");
    }
}

#[test]
fn a_challenge_is_new_each_time() {
    let server = asking_for(Auth::Md5);
    let challenge = || {
        let mut client = Client::raw(&server);
        client.startup("user");
        client.read().unwrap().body
    };
    let (first, second) = (challenge(), challenge());
    assert_eq!((&first[..4], first.len()), (&[0, 0, 0, 5][..], 8));
    assert_ne!(first, second);
}

#[test]
fn scram_offers_its_mechanism_and_answers_with_a_longer_nonce() {
    let server = asking_for(Auth::ScramSha256);
    let mut client = Client::raw(&server);
    client.startup("user");
    assert_eq!(client.read().unwrap().body, b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    client.send(&[frame(b'p', b"SCRAM-SHA-256\0\0\0\0\x0cn,,n=,r=abcd")]);
    let challenge = client.read().unwrap().body;
    assert!(challenge.starts_with(b"\0\0\0\x0br=abcd"));
    let text = String::from_utf8(challenge[4..].to_vec()).unwrap();
    let nonce = text.split(',').next().unwrap();
    let proof = format!("c=biws,{nonce},p={}=", "A".repeat(43));
    client.send(&[frame(b'p', proof.as_bytes())]);
    assert_eq!(error_code(&client.read_until(b'Z')), "28P01");
}

#[test]
fn those_who_cannot_come_in_learn_why() {
    let limited = Config { max_connections: Some(0), ..Config::default() };
    let elsewhere = Config { database: Some("elsewhere".to_owned()), ..Config::default() };
    for (config, user, code) in [
        (Config { auth: Auth::Reject, ..Config::default() }, "user", "28000"),
        (Config::default(), "other", "28000"),
        (limited, "user", "53300"),
        (elsewhere, "user", "3D000"),
    ] {
        let server = server(config);
        let mut client = Client::raw(&server);
        client.startup(user);
        assert_eq!(error_code(&client.read_until(b'Z')), code);
        assert_eq!(client.read(), None);
    }
}

#[test]
fn a_connection_that_ends_makes_room_for_another() {
    let server = server(Config { max_connections: Some(1), ..Config::default() });
    let first = Client::connect(&server);
    let mut second = Client::raw(&server);
    second.startup("user");
    assert_eq!(error_code(&second.read_until(b'Z')), "53300");
    drop(first);
    wait_until(|| server.control().stats().unwrap().open == 0);
    assert_eq!(bodies(&Client::connect(&server).query("SELECT 7"), b'D'), ["......7"]);
}
