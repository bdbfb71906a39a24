//! How scripts are split, and what is sent of them.

use super::super::{Action, Amount, Part, Piece, Results};
use super::parse;

/// The SQL of a script as it was written.
fn sql(text: &str) -> Vec<String> {
    let Ok((scripts, script)) = parse(text.as_bytes()) else {
        return Vec::new();
    };
    let commands = script.commands.iter().filter_map(|command| match &command.action {
        Action::Sql(sql) => Some(String::from_utf8(sql.source(&scripts.names)).unwrap()),
        _ => None,
    });
    commands.collect()
}

#[test]
fn a_semicolon_ends_a_command_only_outside_quotes_comments_parentheses_and_bodies() {
    for (text, command) in [
        ("select 1; select 2", "select 1;"),
        ("select ';'; x", "select ';';"),
        ("select 'a''b;'; x", "select 'a''b;';"),
        (r"select E'a\';b'; x", r"select E'a\';b';"),
        ("select E'a'\n'\\';'; x", "select E'a'\n'\\';';"),
        (r"select 'a\'; x", r"select 'a\';"),
        ("select \"a;b\"; x", "select \"a;b\";"),
        ("select $$a;b$$; x", "select $$a;b$$;"),
        ("select $t$a;$$;b$t$; x", "select $t$a;$$;b$t$;"),
        ("select a$1;b$1", "select a$1;"),
        ("select :v$a$;$a$; x", "select :v$a$;$a$;"),
        ("select 1 -- a;b\n; x", "select 1 -- a;b\n;"),
        ("select /* ; /* ; */ ; */ 1; x", "select /* ; /* ; */ ; */ 1;"),
        ("create rule r do (a; b); x", "create rule r do (a; b);"),
        (
            "create function f() begin atomic a; case x end; end; x",
            "create function f() begin atomic a; case x end; end;",
        ),
        (
            "create or replace procedure p() BEGIN a; END; x",
            "create or replace procedure p() BEGIN a; END;",
        ),
        ("begin; a; end;", "begin;"),
        ("select 'unterminated; x", "select 'unterminated; x"),
        ("select 1 \\; select 2; x", "select 1 ; select 2;"),
        (";;", ";"),
        (" -- c\n\t/* d */ ; x", "/* d */ ;"),
        ("select :{?v}; x", "select FALSE;"),
    ] {
        assert_eq!(sql(text)[0], command, "in {text}");
    }
}

#[test]
fn a_script_is_split_into_its_commands() {
    let text = b"-- hello\n\\SET a random(1, \\\n  10)\nBEGIN;\n\\\nselect :a\n\\sleep 10 ms \nselect ';';\\set b 1\nEND";
    let (scripts, script) = parse(text).unwrap();
    let shown: Vec<_> =
        script.commands.iter().map(|c| (c.line, str::from_utf8(&c.text).unwrap())).collect();
    assert_eq!(
        shown,
        [
            (2, "\\SET a random(1, \\\n  10)"),
            (4, "BEGIN;"),
            (6, "select :a"),
            (7, "\\sleep 10 ms "),
            (8, "select ';';"),
            (8, "\\set b 1"),
            (9, "END"),
        ]
    );
    assert_eq!(scripts.statements, 4);
}

#[test]
fn bytes_of_any_encoding_are_sent_as_they_are() {
    let (scripts, script) = parse(b"SELECT '\xff\x80' :\xe4\xf6 \xfe").unwrap();
    let Action::Sql(sql) = &script.commands[0].action else { unreachable!() };
    assert_eq!(sql.numbered, b"SELECT '\xff\x80' $1 \xfe");
    assert_eq!(scripts.names.name(sql.parameters[0]), b"\xe4\xf6");
}

#[test]
fn variables_become_pieces_and_numbered_parameters() {
    let (_, script) = parse(b"a :x::int ':y' b::c :9 :x:::x :").unwrap();
    let Action::Sql(sql) = &script.commands[0].action else { unreachable!() };
    assert_eq!(sql.numbered, b"a $1::int '$2' b::c :9 $3:::x :");
    assert_eq!(sql.parameters, [0, 1, 0]);
    let parts: Vec<_> = sql.parts().collect();
    assert_eq!(parts[..2], [Part::Text(b"a "), Part::Variable(0)]);
    assert_eq!(parts.last(), Some(&Part::Text(b":::x :")));
}

#[test]
fn gset_and_aset_belong_to_the_command_before() {
    let (_, script) = parse(b"SELECT 1 AS a \\gset p_\nSELECT 2;\n\\aset\nSELECT 3;").unwrap();
    let results: Vec<_> = script
        .commands
        .iter()
        .map(|command| match &command.action {
            Action::Sql(sql) => sql.results.clone(),
            _ => unreachable!("there is only SQL"),
        })
        .collect();
    let prefix = b"p_"[..].into();
    assert_eq!(results, [Results::Gset(prefix), Results::Aset([].into()), Results::Discard]);
}

#[test]
fn sleep_takes_a_number_or_a_variable_and_a_unit() {
    for (text, amount, unit_ns) in [
        ("\\sleep 5", Amount::Constant(5), 1_000_000_000),
        ("\\sleep 5 US", Amount::Constant(5), 1_000),
        ("\\sleep 5ms", Amount::Constant(5), 1_000_000),
        ("\\sleep -5 s", Amount::Constant(-5), 1_000_000_000),
        ("\\sleep +", Amount::Constant(0), 1_000_000_000),
        ("\\sleep 99999999999999999999 us", Amount::Constant(i64::MAX), 1_000),
        ("\\sleep :v ms", Amount::Variable(0), 1_000_000),
    ] {
        let (_, script) = parse(text.as_bytes()).unwrap();
        let Action::Sleep { amount: found, unit_ns: unit } = script.commands[0].action else {
            unreachable!()
        };
        assert_eq!((found, unit), (amount, unit_ns), "{text}");
    }
}

#[test]
fn the_words_of_a_shell_are_joined_and_colons_name_variables() {
    let (scripts, script) = parse(b"\\setshell v  echo \\\n :a ::b b:c :::d :").unwrap();
    let Action::Shell { line, variable } = &script.commands[0].action else { unreachable!() };
    assert_eq!(scripts.names.name(variable.unwrap()), b"v");
    let shown: Vec<_> = line
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Piece::Variable(slot) => {
                format!("<{}>", String::from_utf8_lossy(scripts.names.name(*slot)))
            }
        })
        .collect();
    assert_eq!(shown, ["echo ", "<a>", " :b b:c ::d ", "<>"]);
}
