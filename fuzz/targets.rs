//! What is fed with bytes, by the fuzzer and on every test run with the corpus
//! (crates/engine/tests/corpus.rs): whatever they are, nothing panics and nothing takes more than
//! its share of memory and time.

#![allow(dead_code, reason = "no fuzz target uses all of it")]

use pgpaces_engine::conninfo::{AuthMethod, ChannelBinding};
use pgpaces_engine::script::eval::{Program, Scope, Value, Variable, Variables};
use pgpaces_engine::script::random::Random;
use pgpaces_engine::script::{Action, Command, Part, Scripts};
use pgpaces_engine::stored;
use pgpaces_engine::wire::{Connection, Credentials, Event, Fault, Keys, Settings};
use std::sync::Arc;

/// Any bytes are a script or an error; what a script computes is a value or an error.
pub fn script(text: &[u8]) {
    let mut scripts = Scripts::default();
    if scripts.add("fuzz", 1, text).is_ok() {
        let _ = scripts.check_parameters();
        run(&scripts);
    }
}

/// Bytes from a server give the same events and the same fault however they are cut. The first byte
/// says how far the connection is and whether it keeps rows, the second how the rest is cut.
pub fn wire(bytes: &[u8]) {
    let [place, cut, said @ ..] = bytes else { return };
    let whole = heard(*place, std::iter::once(said));
    assert_eq!(heard(*place, said.chunks(usize::from(*cut) + 1)), whole);
}

/// Any bytes are a histogram or an error; merged, it counts what it said and has a value at each
/// rank.
pub fn stored(bytes: &[u8]) {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let mut merged = stored::empty();
    for part in [bytes, one, other, bytes] {
        let before = merged.len();
        match (stored::count(part), stored::add(part, &mut merged)) {
            (Ok(count), Ok(())) => assert_eq!(merged.len(), before + count),
            (_, Err(_)) => assert_eq!(merged.len(), before),
            (Err(why), Ok(())) => panic!("{why}, and it was added"),
        }
    }
    assert_eq!(stored::value_at_rank(&merged, 0), None);
    for rank in [1, merged.len() / 2, merged.len()] {
        let found = stored::value_at_rank(&merged, rank);
        assert_eq!(found.is_some(), (1..=merged.len()).contains(&rank));
    }
    assert_eq!(stored::value_at_rank(&merged, merged.len() + 1), None);
}

/// What a connection makes of what the server says: events with what is kept of them, and what
/// ended it.
fn heard<'a>(place: u8, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut connection = connection(place);
    let mut seen = Vec::new();
    for chunk in chunks {
        let ended = connection.receive(chunk, |connection, event| {
            let kept = match event {
                Event::Columns | Event::Row => connection.content().escape_ascii().to_string(),
                _ => String::new(),
            };
            seen.push(format!("{event:?} {kept}"));
            Ok::<(), Fault>(())
        });
        let outgoing = connection.outgoing().expect("no TLS").len();
        assert!(outgoing < 4096, "nothing makes us talk");
        if let Err(fault) = ended {
            let said = match &fault {
                Fault::Server(error) => &*error.message,
                Fault::Own(error) => error.name,
            };
            assert!(!said.is_empty());
            seen.push(format!("{fault:?}"));
            break;
        }
    }
    seen
}

fn connection(place: u8) -> Connection {
    let credentials = Credentials {
        user: "user".into(),
        password: Some("secret".into()),
        allowed: vec![
            AuthMethod::None,
            AuthMethod::Password,
            AuthMethod::Md5,
            AuthMethod::ScramSha256,
        ],
        binding: ChannelBinding::Prefer,
        keys: Keys::default(),
    };
    let startup = vec![("user".into(), "user".into())];
    let mut connection = Connection::open(&Arc::new(Settings { credentials, startup, tls: None }));
    let before: &[u8] = match place & 3 {
        0 => b"",
        1 => b"R\0\0\0\x08\0\0\0\0",
        2 => b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0",
        _ => b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I",
    };
    connection.receive(before, |_, _| Ok::<(), Fault>(())).expect("a login");
    connection.keep_rows(place & 4 != 0);
    let count = connection.outgoing().expect("no TLS").len();
    connection.sent(count);
    connection
}

/// Runs every command once, whatever the branches say.
fn run(scripts: &Scripts) {
    let mut variables = Variables(vec![Variable::Unset; scripts.names.len()]);
    let mut random = Random::from_seed(5432);
    let commands = &scripts.list[0].commands;
    for command in commands {
        assert!(!command.text.contains(&b'\n') || !matches!(command.action, Action::Sql(_)));
        match &command.action {
            Action::Set { variable, value } => {
                if let Some(value) = eval(scripts, &variables, &mut random, value) {
                    variables.set(*variable, value);
                } else {
                    variables.set_text(*variable, &command.text);
                }
            }
            Action::If { condition, otherwise } => {
                eval(scripts, &variables, &mut random, condition);
                assert!(is_branch(&commands[*otherwise as usize]));
            }
            Action::Elif { condition, otherwise, end } => {
                eval(scripts, &variables, &mut random, condition);
                assert!(is_branch(&commands[*otherwise as usize]));
                assert!(matches!(commands[*end as usize].action, Action::EndIf));
            }
            Action::Sql(sql) => {
                let mut out = Vec::new();
                for part in sql.parts() {
                    if let Part::Variable(slot) = part {
                        variables.write(slot, &mut out);
                    }
                }
                let parameters = sql.parts().filter(|part| matches!(part, Part::Variable(_)));
                assert_eq!(parameters.count(), sql.parameters.len());
                assert!(sql.id < scripts.statements);
            }
            _ => {}
        }
    }
}

fn is_branch(command: &Command) -> bool {
    matches!(command.action, Action::Elif { .. } | Action::Else { .. } | Action::EndIf)
}

fn eval(
    scripts: &Scripts,
    variables: &Variables,
    random: &mut Random,
    program: &Program,
) -> Option<Value> {
    let mut debug = Vec::new();
    let mut scope = Scope { variables, names: &scripts.names, random, debug: &mut debug };
    scope.eval(program).ok()
}
