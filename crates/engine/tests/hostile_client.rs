//! What a server that means ill does to a client that runs scripts: a fault that says what was found,
//! and never a success that was none.

use crate::support::backend::{columns, complete, error, frame, ready, row};
use crate::support::desk::Desk;
use crate::support::trial::plan;
use pgpaces_engine::client::{Next, Trouble, TroubleOr};
use pgpaces_engine::error::Kind;
use pgpaces_engine::pace::Think;
use pgpaces_engine::plan::{Load, Plan, Protocol};
use pgpaces_engine::wire::Fault;
use proptest::prelude::*;

fn client(protocol: Protocol, script: &str) -> Desk {
    let mut desk =
        Desk::new(&Plan { protocol, ..plan(Load::Closed { think: Think::None }) }, script);
    desk.start().expect("a script that runs");
    desk
}

/// The client's connection ends with this error.
fn ends(found: &TroubleOr<Next>, name: &str) {
    let Err(Trouble::Fault(fault)) = &found else { panic!("{found:?}") };
    let Fault::Own(error) = &**fault else { panic!("{found:?}") };
    assert_eq!((error.kind, error.name), (Kind::Connect, name));
}

#[test]
fn a_server_that_is_ready_before_it_has_answered_is_refused() {
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        for before in [vec![], frame(b'1', &[]), columns(), [columns(), row(b"1")].concat()] {
            let answer = [before, ready(b'I')].concat();
            let found = client(protocol, "SELECT 1;").receive(&answer);
            ends(&found, "ready-without-answer");
        }
    }
}

#[test]
fn a_server_that_is_ready_twice_is_refused() {
    let mut desk = client(Protocol::Simple, "SELECT 1;");
    assert!(matches!(desk.ready(), Ok(Next::Free(_))));
    ends(&desk.receive(&ready(b'I')), "ready-unasked");

    let mut desk = client(Protocol::Simple, "SELECT 1;");
    let twice = [complete("SELECT 0"), ready(b'I'), ready(b'I')].concat();
    ends(&desk.receive(&twice), "ready-unasked");
}

#[test]
fn what_nobody_asked_for_hurts_no_idle_client() {
    let mut desk = client(Protocol::Simple, "SELECT 1;");
    desk.ready().expect("an answer");
    let bytes = [columns(), row(b"1"), complete("SELECT 1"), error("ERROR", "XX000", "so there")];
    assert_eq!(desk.receive(&bytes.concat()).expect("no fault"), Next::Server);
    desk.start().expect("it goes on");
    assert!(matches!(desk.ready(), Ok(Next::Free(_))));
}

#[test]
fn counts_that_do_not_fit_what_they_count_are_refused() {
    let described = columns()[5..].to_vec();
    let two = [&[0, 2], &described[2..]].concat();
    let negative = [&[255, 255], &described[2..]].concat();
    let behind = [&described[..], b"more"].concat();
    let fits = b"\0\x01\0\0\0\x01x".to_vec();
    for (description, row) in [
        (&negative, fits.clone()),
        (&two, fits.clone()),
        (&behind, fits.clone()),
        (&vec![0], fits.clone()),
        (&vec![], fits.clone()),
        (&described, vec![]),
        (&described, vec![255, 255]),
        (&described, b"\xff\xff\0\0\0\x01x".to_vec()),
        (&described, b"\0\x02\0\0\0\x01x\0\0\0\x01y".to_vec()),
        (&described, b"\0\0".to_vec()),
        (&described, b"\0\x01\xff\xff\xff\xfe".to_vec()),
        (&described, b"\0\x01\x80\0\0\0".to_vec()),
        (&described, b"\0\x01\x7f\xff\xff\xff".to_vec()),
        (&described, [&fits[..], b"more"].concat()),
    ] {
        let rows = [frame(b'T', description), frame(b'D', &row), complete("SELECT 1")];
        let answer = [rows.concat(), ready(b'I')].concat();
        for command in ["gset", "aset"] {
            for cut in 0..=answer.len() {
                let mut desk =
                    client(Protocol::Simple, &format!("SELECT 1 \\{command}\nSELECT :c;"));
                let (first, second) = answer.split_at(cut);
                let found = desk.receive(first).and_then(|_| desk.receive(second));
                ends(&found, "row-malformed");
            }
        }
    }
}

/// What a server may say that has lost its mind.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let known = prop_oneof![
        4 => Just(ready(b'I')),
        2 => Just(ready(b'E')),
        2 => Just(ready(b'T')),
        3 => Just(complete("SELECT 1")),
        1 => Just(columns()),
        2 => Just(row(b"7")),
        2 => Just(frame(b'G', &[0, 0, 0])),
        1 => Just(error("ERROR", "40001", "again")),
        1 => Just(error("ERROR", "22012", "division by zero")),
        1 => Just(error("FATAL", "57P01", "the end")),
        1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(tag, body)| frame(tag, &body)),
    ];
    prop::collection::vec(known, 0..30).prop_map(|all| all.concat())
}

const SCRIPTS: [&str; 4] = [
    "BEGIN;\nSELECT 1 \\gset\nSELECT :c;\nEND;",
    "SELECT 1 \\; SELECT 2 \\aset\nCOPY t FROM STDIN;",
    "\\startpipeline\nSELECT 1;\n\\syncpipeline\nSELECT 2;\n\\endpipeline\nSELECT 3;",
    "\\sleep 1 us\n\\set a random(1, 9)\n\\if :a > 3\nSELECT :a;\n\\endif",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_server_says_no_client_panics(
        said in anything(),
        script in prop::sample::select(&SCRIPTS[..]),
        protocol in prop::sample::select(
            &[Protocol::Simple, Protocol::Extended, Protocol::Prepared][..]
        ),
        (max_tries, continue_on_error, recover) in (0u32..3, any::<bool>(), any::<bool>()),
        cut in 1usize..50,
    ) {
        let simple = plan(Load::Closed { think: Think::None });
        let plan = Plan { protocol, max_tries, continue_on_error, recover, ..simple };
        let mut desk = Desk::new(&plan, script);
        let mut step = desk.start();
        let mut chunks = said.chunks(cut);
        loop {
            step = match step {
                Err(_) => break,
                Ok(Next::Free(_)) => desk.start(),
                Ok(Next::Wake(_) | Next::Clock) => desk.wake(),
                Ok(Next::Server | Next::Shell(_)) => match chunks.next() {
                    Some(chunk) => desk.receive(chunk),
                    None => break,
                },
            };
        }
    }
}
