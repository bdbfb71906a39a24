//! Errors of scripts have pgbench's messages.

use super::parse;

#[test]
fn a_fault_names_the_line_and_points_at_the_end_of_what_was_read() {
    for (script, shown) in [
        (
            "select 1;\n\\set x 1 +\n",
            "t:2: syntax error in command \"set\"\n\\set x 1 +\n          ^ error found here",
        ),
        (
            "\\set x foo(1)",
            "t:1: unexpected function name (foo) in command \"set\"\n\\set x foo(1)\n         ^ error found here",
        ),
        (
            "\\set x 1 < 2 < 3",
            "t:1: syntax error in command \"set\"\n\\set x 1 < 2 < 3\n             ^ error found here",
        ),
        (
            "\\set x 1 2 ; 3 @ 4\n",
            "t:1: unexpected character (@) in command \"set\"\n\\set x 1 2 ; 3 @ 4\n               ^ error found here",
        ),
        (
            "\\set x (1 + \\\n 2 3)\n",
            "t:1: syntax error in command \"set\"\n\\set x (1 + \\\n 2 3)\n                 ^ error found here",
        ),
        (
            "\\sleep 1 h",
            "t:1: unrecognized time unit, must be us, ms or s (h) in command \"sleep\"\n\\sleep 1 h\n         ^ error found here",
        ),
        (
            "\\set x 99999999999999999999",
            "t:1: bigint constant overflow (99999999999999999999) in command \"set\"\n\\set x 99999999999999999999\n                          ^ error found here",
        ),
        ("\n\\NoSuch x ", "t:2: invalid command in command \"NoSuch\"\n\\NoSuch x "),
        ("\\set", "t:1: missing argument in command \"set\""),
        ("-- nothing\n", "empty command list for script \"t\""),
        ("select 1;\n\0", "t:2: script-has-nul"),
        ("\\set x 1\n\\gset", "t:2: \\gset must follow an SQL command (\\set x 1)"),
    ] {
        assert_eq!(parse(script.as_bytes()).err().as_deref(), Some(shown), "{script}");
    }
}

#[test]
fn bytes_that_are_no_text_are_shown_as_far_as_they_can_be() {
    let fault = parse(b"\\set x \xff(1)").map(|_| ()).expect_err("no function");
    assert!(fault.starts_with("t:1: unexpected function name (\u{fffd})"), "{fault}");
}

#[test]
fn an_expression_may_nest_only_so_deep() {
    assert!(parse(format!("\\set x {}1{}", "(".repeat(9999), ")".repeat(9999)).as_bytes()).is_ok());
    for part in ["(", "-", "not ", "abs(", "case when ", "1 + ("] {
        let fault = parse(format!("\\set x {}", part.repeat(200_000)).as_bytes()).err();
        assert!(fault.expect("it has no end").contains("nests too deeply"), "{part}");
    }
}

#[test]
fn a_statement_has_no_more_parameters_than_the_protocol_takes() {
    let (scripts, _) = parse(format!("SELECT {};", [":a"; 255].join(",")).as_bytes()).unwrap();
    assert!(scripts.check_parameters().is_ok());
    let (scripts, _) = parse(format!("SELECT {};", [":a"; 256].join(",")).as_bytes()).unwrap();
    let fault = scripts.check_parameters().unwrap_err();
    let begin = "statement-has-many-variables \
        text=statement has too many arguments (maximum is 255): SELECT :a,:a";
    assert!(fault.to_string().starts_with(begin), "{fault}");
}
