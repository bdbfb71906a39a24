//! What scripts mean, as tables.

use super::eval::{Scope, Value, Variable, Variables, value_of_text};
use super::random::Random;
use super::{Action, Scripts};
use proptest::prelude::*;

/// The text of variable `x` after running the script's `\set` lines.
fn run(text: &str) -> Result<String, String> {
    let mut scripts = Scripts::default();
    scripts.add("t", 1, text).map_err(|e| e.to_string())?;
    let mut variables = Variables(vec![Variable::Unset; scripts.names.len()]);
    let mut random = Random::from_seed(1);
    for command in &scripts.list[0].commands {
        if let Action::Set { variable, value } = &command.action {
            let value = Scope { variables: &variables, random: &mut random }.eval(value)?;
            variables.0[*variable as usize] = Variable::Value(value);
        }
    }
    let mut out = Vec::new();
    variables.write(scripts.names.slot("x"), &mut out);
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn expressions_have_pgbenchs_values() {
    for (expression, value) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7 / 2.0", "3.5"),
        ("1.0 / 3", "0.333333333333333"),
        ("1e3", "1000"),
        ("1e20", "1e+20"),
        ("1.5E-7", "1.5e-07"),
        (".5 + 1.", "1.5"),
        ("- - 3", "3"),
        ("2 - 3 - 4", "-5"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("~5", "-6"),
        ("6 & 3 | 8", "10"),
        ("5 # 3", "6"),
        ("1 << 4 >> 1", "8"),
        ("1 < 2 and not 3 >= 4", "true"),
        ("1 = 1.0", "true"),
        ("1 is null or false", "false"),
        ("null isnull", "true"),
        ("1 notnull", "true"),
        ("null is not null", "false"),
        ("null + 1", "NULL"),
        ("null and true", "NULL"),
        ("false and null", "false"),
        ("true or null", "true"),
        ("case when 1 > 2 then 3 when true then 4 else 5 end", "4"),
        ("case when null then 1 end", "NULL"),
        ("abs(-3)", "3"),
        ("int(2.5) + int(3.5)", "6"),
        ("double(3)", "3"),
        ("greatest(1, 3, 2)", "3"),
        ("least(1, 3, 2.5)", "1"),
        ("mod(7, 4)", "3"),
        ("pow(2, 10)", "1024"),
        ("power(4, 0.5)", "2"),
        ("sqrt(2)", "1.4142135623731"),
        ("ln(exp(2))", "2"),
        ("pi()", "3.14159265358979"),
    ] {
        assert_eq!(run(&format!("\\set x {expression}")).as_deref(), Ok(value), "{expression}");
    }
}

#[test]
fn what_cannot_be_computed_says_why() {
    for (expression, message) in [
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "bigint add out of range"),
        ("-9223372036854775808 - 1", "bigint sub out of range"),
        ("9223372036854775807 * 2", "bigint mul out of range"),
        ("-9223372036854775808 / -1", "bigint div out of range"),
        ("not 1", "cannot coerce int to boolean"),
        ("true + 1", "cannot coerce boolean to int"),
        ("int(1e30)", "double to int overflow for 1000000000000000000000000000000"),
        ("random(2, 1)", "empty range given to random"),
        ("random(-9223372036854775808, 0)", "random range is too large"),
        ("random_gaussian(1, 2, 1)", "gaussian parameter must be at least 2.000000 (not 1.000000)"),
        (
            "random_zipfian(1, 2, 1)",
            "zipfian parameter must be in range [1.001, 1000] (not 1.000000)",
        ),
        (":nowhere", "undefined variable"),
    ] {
        assert_eq!(run(&format!("\\set x {expression}")), Err(message.into()), "{expression}");
    }
}

#[test]
fn a_syntax_error_names_line_and_column_and_points_at_the_place() {
    for (script, shown) in [
        (
            "select 1;\n\\set x 1 +\n",
            "t:2:11: syntax error in command \"set\"\n\\set x 1 +\n          ^ error found here",
        ),
        (
            "\\set x foo(1)",
            "t:1:8: unexpected function name (foo) in command \"set\"\n\\set x foo(1)\n       ^ error found here",
        ),
        (
            "\\set x 1 < 2 < 3",
            "t:1:14: syntax error in command \"set\"\n\\set x 1 < 2 < 3\n             ^ error found here",
        ),
        (
            "\\set 1x 1",
            "t:1:6: invalid variable name (1x) in command \"set\"\n\\set 1x 1\n     ^ error found here",
        ),
        ("\\nosuch", "t:1:1: invalid command in command \"nosuch\"\n\\nosuch\n^ error found here"),
        (
            "\\sleep 1 h",
            "t:1:10: unrecognized time unit, must be us, ms or s (h) in command \"sleep\"\n\\sleep 1 h\n         ^ error found here",
        ),
        (
            "\\set x 9223372036854775808",
            "t:1:8: bigint constant overflow (9223372036854775808) in command \"set\"\n\\set x 9223372036854775808\n       ^ error found here",
        ),
        ("-- nothing\n", "empty command list for script \"t\""),
    ] {
        assert_eq!(run(script), Err(shown.into()), "{script}");
    }
}

#[test]
fn a_script_is_split_into_its_commands() {
    let mut scripts = Scripts::default();
    let text = "-- hello\n\\SET a random(1, \\\n  10)\nBEGIN;\nselect :a\n\\sleep 10 ms\nselect ';';\\set b 1\nEND";
    scripts.add("t", 1, text).unwrap();
    let shown: Vec<_> =
        scripts.list[0].commands.iter().map(|c| (c.line, c.text.as_str())).collect();
    assert_eq!(
        shown,
        [
            (2, "\\SET a random(1,     10)"),
            (4, "BEGIN"),
            (5, "select :a"),
            (6, "\\sleep 10 ms"),
            (7, "select ';'"),
            (7, "\\set b 1"),
            (8, "END"),
        ]
    );
    assert_eq!(scripts.statements, 4);
}

#[test]
fn text_from_the_command_line_becomes_the_type_it_looks_like() {
    for (text, value) in [
        ("12", Value::Int(12)),
        (" -3 ", Value::Int(-3)),
        ("1.5", Value::Double(1.5)),
        ("Yes", Value::Bool(true)),
        ("of", Value::Bool(false)),
        ("null", Value::Null),
    ] {
        assert_eq!(value_of_text(text), Ok(value), "{text}");
    }
    assert!(value_of_text("twelve").is_err() && value_of_text("inf").is_err());
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[ -~\\n\\\\]{0,80}") {
        let _ = Scripts::default().add("t", 1, &text);
    }

    #[test]
    fn no_expression_makes_the_parser_panic(text in "[0-9a-z:+*/()<>=|&~., -]{0,60}") {
        let _ = run(&format!("\\set x {text}"));
    }

    #[test]
    fn doubles_are_written_as_c_writes_them(value in proptest::num::f64::NORMAL) {
        let mut out = Vec::new();
        Value::Double(value).write(&mut out);
        let back: f64 = std::str::from_utf8(&out).unwrap().parse().unwrap();
        prop_assert!(((back - value) / value).abs() < 1e-14);
    }
}
