//! Values of expressions, and texts that become values.

use super::super::eval::{Malformed, Value, Variable, Variables, value_of_text};
use super::super::{Action, Scripts};
use super::{Client, run};

#[test]
fn expressions_have_pgbenchs_values() {
    for (expression, value) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7 / 2.0", "3.5"),
        ("2 - 3 - 4", "-5"),
        ("- - 3", "3"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("-9223372036854775808 % -1", "0"),
        ("~5 + 2", "-8"),
        ("~5 | 2", "-6"),
        ("6 & 3 | 8", "10"),
        ("1 << 4 >> 1", "8"),
        ("1 << 65", "2"),
        ("1 < 2 and not 3 >= 4", "true"),
        ("not false is null", "true"),
        ("1 = 1.0", "true"),
        ("1 is null or false", "false"),
        ("1 is null is null", "false"),
        ("null isnull", "true"),
        ("true is not false", "true"),
        ("null and true", "NULL"),
        ("false and null", "false"),
        ("true or 1 / 0 = 1", "true"),
        ("case when 1 > 2 then 3 when true then 4 else 5 end", "4"),
        ("case when null then 1 end", "NULL"),
        ("case when :i > 3 then 1 else 2 end + 3", "4"),
        ("case when :i < 3 then 1 else 2 end > 1", "true"),
        ("abs(-3)", "3"),
        ("abs(0.0 * -1)", "-0"),
        ("int(2.5) + int(3.5)", "6"),
        ("greatest(1, 3, 2)", "3"),
        ("least(1, 3, 2.5)", "1"),
        ("least(0.0 / 0, 1)", "1"),
        ("greatest(, 4)", "4"),
        ("mod(7, 4)", "3"),
        ("pow(2, 10)", "1024"),
        ("sqrt(2)", "1.4142135623731"),
        ("pi()", "3.14159265358979"),
        ("hash(10, 5432)", "-5817877081768721676"),
        ("hash_fnv1a(10, 5432)", "-7793829335365542153"),
        ("permute(5, 10, 5432)", "7"),
        ("debug(:i) + debug(:d)", "44.5"),
    ] {
        let found = run(&format!("\\set x {expression}"));
        assert_eq!(found.as_deref(), Ok(value), "{expression}");
    }
}

#[test]
fn doubles_are_written_with_fifteen_digits() {
    for (expression, value) in [
        ("1.0 / 3", "0.333333333333333"),
        ("1e3", "1000"),
        ("1e14 + 0.5", "100000000000000"),
        ("1e15", "1e+15"),
        ("1e20", "1e+20"),
        ("-1.5E-7", "-1.5e-07"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("1e300 * 1e-10", "1e+290"),
        ("1e-300 * 1e-5", "1e-305"),
        ("999999999999999.9", "1e+15"),
        ("0.0 * -1", "-0"),
        ("1.0 / 0", "Infinity"),
        ("-1.0 / 0", "-Infinity"),
        ("0.0 / 0", "NaN"),
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
        ("true and 1", "cannot coerce int to boolean"),
        ("true + 1", "cannot coerce boolean to int"),
        ("int(1e30)", "double to int overflow for 1000000000000000019884624838656.000000"),
        ("random(2, 1)", "empty range given to random"),
        ("random(-9223372036854775808, 0)", "random range is too large"),
        ("random_gaussian(1, 2, 1)", "gaussian parameter must be at least 2.000000 (not 1.000000)"),
        (
            "random_zipfian(1, 2, 1)",
            "zipfian parameter must be in range [1.001, 1000] (not 1.000000)",
        ),
        ("permute(1, 0, 0)", "permute size parameter must be greater than zero"),
        (":nowhere", "undefined variable \"nowhere\""),
        (":word", "malformed variable \"word\" value: \"twelve\""),
    ] {
        assert_eq!(run(&format!("\\set x {expression}")), Err(message.into()), "{expression}");
    }
}

#[test]
fn null_comes_out_only_when_all_arguments_were_computed() {
    let drawn = run("\\set y random(1, 1000)\n\\set x random(1, 1000)").unwrap();
    for skipping in
        ["null + random(1, 9)", "greatest(null, random(1, 9))", "mod(null, random(1, 9))"]
    {
        assert_eq!(run(&format!("\\set y {skipping}\n\\set x random(1, 1000)")), Ok(drawn.clone()));
    }
    assert_eq!(run("\\set x null + 1 / 0"), Err("division by zero".into()));
}

#[test]
fn what_debug_is_given_is_noted_in_order() {
    let (mut client, script) = Client::new("\\set x debug(1) > debug(2.5 + debug(null))").unwrap();
    let super::Action::Set { value, .. } = &script.commands[0].action else { unreachable!() };
    let value = client.eval(value);
    assert_eq!(value, Ok(Value::Null));
    assert_eq!(client.debug, [Value::Null, Value::Null, Value::Int(1)]);
}

#[test]
fn an_expression_of_any_length_and_depth_is_computed() {
    let chain = format!("\\set x 1{}", " + 1".repeat(100_000));
    assert_eq!(run(&chain), Ok("100001".into()));
    let deep = format!("\\set x {}:i{}", "1 + (".repeat(2000), ")".repeat(2000));
    assert_eq!(run(&deep), Ok("2042".into()));
    let swapped =
        format!("\\set x {}1{}", "case when 1 > (".repeat(500), ") then 1 end".repeat(500));
    assert_eq!(run(&swapped), Ok("NULL".into()));
}

#[test]
fn a_text_becomes_the_type_it_looks_like() {
    for (text, value) in [
        ("12", Value::Int(12)),
        (" -3", Value::Int(-3)),
        ("\u{b}+7", Value::Int(7)),
        ("1.5", Value::Double(1.5)),
        ("0x10", Value::Double(16.0)),
        ("-0x1.8p1", Value::Double(-3.0)),
        ("inf", Value::Double(f64::INFINITY)),
        ("Yes", Value::Bool(true)),
        ("of", Value::Bool(false)),
        ("nUll", Value::Null),
    ] {
        assert_eq!(value_of_text(text.as_bytes()), Ok(value), "{text}");
    }
    for (text, why) in [
        ("twelve", Malformed::NoValue),
        ("", Malformed::NoValue),
        (" -3 ", Malformed::NoValue),
        ("1e400", Malformed::NoValue),
        ("1e-400", Malformed::NoValue),
        ("0x1p2000", Malformed::NoValue),
        ("+", Malformed::NoDigits),
        ("9223372036854775808", Malformed::OutOfRange),
    ] {
        assert_eq!(value_of_text(text.as_bytes()), Err(why), "{text}");
    }
}

#[test]
fn text_that_is_assigned_again_keeps_its_memory() {
    let mut variables = Variables(vec![Variable::Unset]);
    variables.set_text(0, b"a long text to begin with");
    let Variable::Text(text) = &variables.0[0] else { unreachable!() };
    let (place, room) = (text.as_ptr(), text.capacity());
    variables.set_text(0, b"short");
    assert!(matches!(&variables.0[0], Variable::Text(t) if t == b"short"));
    let Variable::Text(text) = &variables.0[0] else { unreachable!() };
    assert_eq!((text.as_ptr(), text.capacity()), (place, room));
    variables.set(0, Value::Null);
    assert_eq!(variables.0[0], Variable::Value(Value::Null));
}

#[test]
fn what_no_script_assigns_is_computed_once() {
    let settled = |text: &str| {
        let mut scripts = Scripts::default();
        scripts.add("t", 1, text.as_bytes()).expect("a script that parses");
        let mut variables = Variables(vec![Variable::Unset; scripts.names.len()]);
        for (name, value) in [("scale", 7), ("client_id", 0), ("set", 1)] {
            let slot = scripts.names.find(name.as_bytes());
            slot.inspect(|slot| variables.set(*slot, Value::Int(value)));
        }
        let own = scripts.names.find(b"client_id");
        scripts.settle(&variables, own);
        let Action::Set { value, .. } = &scripts.list[0].commands[0].action else { panic!() };
        format!("{:?}", value.ops)
    };
    assert_eq!(settled("\\set aid random(1, 100000 * :scale)"), "[Between(1, 700000)]");
    assert_eq!(settled("\\set x 2 * :scale + :set\n\\set set 2").matches("Variable").count(), 1);
    assert_eq!(settled("\\set x :client_id + 1").matches("Variable").count(), 1);
    assert_eq!(settled("\\set x :scale\nSELECT 1 AS scale \\gset").matches("Variable").count(), 1);
    assert_eq!(
        settled("\\set x random(9, 2)"),
        "[Constant(Int(9)), Constant(Int(2)), Draw(Uniform)]"
    );
}
