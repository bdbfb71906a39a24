//! Where branches go on.

use super::super::Action;
use super::parse;

#[test]
fn every_branch_knows_the_next_one_and_the_end() {
    let text = b"\\if 1\nA;\n\\elif 2\n\\if 3\n\\endif\n\\elif 4\n\\else\nB;\n\\endif\nC;";
    let (_, script) = parse(text).unwrap();
    let places: Vec<_> = script
        .commands
        .iter()
        .filter_map(|command| match command.action {
            Action::If { otherwise, .. } => Some((otherwise, None)),
            Action::Elif { otherwise, end, .. } => Some((otherwise, Some(end))),
            Action::Else { end } => Some((0, Some(end))),
            _ => None,
        })
        .collect();
    assert_eq!(places, [(2, None), (5, Some(8)), (4, None), (6, Some(8)), (0, Some(8))]);
}

#[test]
fn branches_that_do_not_fit_together_are_refused() {
    for (text, fault) in [
        ("\\if 1\n", "command 2: \\if without matching \\endif"),
        ("A;\n\\elif 1\n", "command 2: \\elif without matching \\if"),
        ("\\if 1\n\\else\n\\elif 1\n\\endif", "command 3: \\elif after \\else"),
        ("\\else\n", "command 1: \\else without matching \\if"),
        ("\\if 1\n\\else\n\\else\n\\endif", "command 3: \\else after \\else"),
        ("\\if 1\n\\endif\n\\endif", "command 3: \\endif without matching \\if"),
    ] {
        let expected = format!("condition error in script \"t\" {fault}");
        assert_eq!(parse(text.as_bytes()).err(), Some(expected));
    }
}

#[test]
fn branches_nest_as_deep_as_one_likes() {
    let text = format!("{}{}", "\\if 1\n".repeat(100_000), "\\endif\n".repeat(100_000));
    assert_eq!(parse(text.as_bytes()).unwrap().1.commands.len(), 200_000);
}
