//! What holds of every script.

use super::super::eval::{Program, Value, Variable, value_of_text};
use super::super::random::Random;
use super::super::sql::{End, Splitter};
use super::super::{Action, Scripts};
use super::reference::trees;
use super::{Client, parse, run};
use proptest::prelude::*;

/// The only `\set` of a script, compiled.
fn program(expression: &str) -> Result<(Client, Program), String> {
    let (client, script) = Client::new(&format!("\\set x {expression}"))?;
    match script.commands.into_iter().next().map(|command| command.action) {
        Some(Action::Set { value, .. }) => Ok((client, value)),
        other => Err(format!("no \\set: {other:?}")),
    }
}

/// Scripts of the bytes that mean something to one of the lexers.
fn scripts() -> impl Strategy<Value = Vec<u8>> {
    let parts = [
        "'",
        "''",
        "\"",
        "$$",
        "$a$",
        "$1",
        "E'",
        "U&'",
        "\\",
        "\\;",
        ";",
        "(",
        ")",
        "--",
        "/*",
        "*/",
        "\n",
        "\r\n",
        "\\\n",
        " ",
        "a",
        "create function",
        "begin",
        "end",
        ":x",
        "::",
        ":",
        "1",
        "\\set x ",
        "\\if ",
        "\\else\n",
        "\\endif\n",
        "\\gset\n",
        "\\sleep ",
        "\\shell ",
        "+",
        "<",
        "case when ",
        " then ",
        "random(",
        ",",
        ":{?x}",
        "\u{e9}",
        "\u{b}",
        "1e5",
        ".5",
    ];
    let part = prop_oneof![
        9 => proptest::sample::select(parts.to_vec()).prop_map(|part| part.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&text);
    }

    #[test]
    fn no_script_makes_the_parser_panic(text in scripts()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_expression_makes_the_parser_panic(text in "[0-9a-z:+*/()<>=|&~., -]{0,60}") {
        let _ = run(&format!("\\set x {text}"));
    }

    #[test]
    fn splitting_loses_no_byte(text in scripts()) {
        let text: Vec<u8> = text.into_iter().filter(|byte| !b"\\{".contains(byte)).collect();
        let mut splitter = Splitter::default();
        let (mut out, mut at) = (Vec::new(), 0);
        loop {
            let (after, end, sent) = splitter.command(&text, at);
            out.extend_from_slice(&sent);
            prop_assert!(after > at || end == End::Script);
            at = after;
            if end == End::Script {
                break;
            }
        }
        prop_assert_eq!(out, text);
    }

    #[test]
    fn the_pieces_of_a_command_are_its_text(text in scripts()) {
        let text: Vec<u8> = text.into_iter().filter(|byte| !b"\\{\0".contains(byte)).collect();
        let mut scripts = Scripts::default();
        if scripts.add("t", 1, &text).is_ok() {
            let mut found = Vec::new();
            for command in &scripts.list[0].commands {
                let Action::Sql(sql) = &command.action else { unreachable!("no backslash") };
                found.extend(sql.source(&scripts.names));
            }
            // What is missing is white space and comments before commands.
            let mut rest = found.as_slice();
            for byte in &text {
                rest = rest.strip_prefix(std::slice::from_ref(byte)).unwrap_or(rest);
            }
            prop_assert!(rest.is_empty() || text.windows(2).any(|two| two == b"--"));
        }
    }

    #[test]
    fn a_printed_expression_is_read_as_the_same_program(tree in trees()) {
        let (full, sparse) = (program(&tree.full()), program(&tree.sparse()));
        let (full, sparse) = (full.map(|p| p.1), sparse.map(|p| p.1));
        prop_assert_eq!(format!("{full:?}"), format!("{sparse:?}"), "{}", tree.sparse());
    }

    #[test]
    fn a_program_has_the_value_of_its_tree(tree in trees(), seed in any::<u64>()) {
        let (mut client, program) = program(&tree.full()).map_err(TestCaseError::fail)?;
        let mut random = Random::from_seed(seed);
        client.random = random.clone();
        let (found, expected) = (client.eval(&program), tree.value(&mut random));
        prop_assert_eq!(format!("{:?}", found.as_ref().ok()), format!("{:?}", expected.as_ref()));
        if found.is_ok() {
            prop_assert_eq!(client.random, random, "as many draws");
        }
    }

    #[test]
    fn what_is_computed_beforehand_changes_no_value_and_no_draw(
        tree in trees(), seed in any::<u64>()
    ) {
        let (mut client, program) = program(&tree.full()).map_err(TestCaseError::fail)?;
        let values = client.variables.clone();
        let settled = program.with(&|slot| match &values.0[slot as usize] {
            Variable::Text(text) => value_of_text(text).ok(),
            _ => None,
        });
        let mut evaluate = |program| {
            client.random = Random::from_seed(seed);
            (client.eval(program), client.random.clone())
        };
        prop_assert_eq!(format!("{:?}", evaluate(&program)), format!("{:?}", evaluate(&settled)));
    }

    #[test]
    fn doubles_are_written_as_c_writes_them(value in any::<f64>()) {
        let mut out = Vec::new();
        Value::Double(value).write(&mut out);
        let text = String::from_utf8(out).unwrap();
        let back: f64 = text.parse().unwrap();
        let near = (back - value).abs() <= value.abs() * 1e-14;
        prop_assert!(near || back == value || (back.is_nan() && value.is_nan()) || !value.is_normal());
        prop_assert!(text.len() <= 22 && !text.ends_with('.'));
    }
}
