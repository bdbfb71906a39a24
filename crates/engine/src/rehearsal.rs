//! What a script would send, without a server: the SQL of one execution with its variables in it.
//! Knows no client and no connection. What only a server or a shell could tell is not known here,
//! and what depends on it is left out.

use crate::error::{Error, Kind, Result};
use crate::feeds::{automatic, first_variables};
use crate::request::simple;
use crate::script::eval::{Program, Scope, Variable, Variables};
use crate::script::random::Random;
use crate::script::{Action, Command, Names, Part, Results, Scripts, Slot, Sql, misnamed};
use bytes::BytesMut;

/// The SQL commands of one execution of a script by the first client of a run with this seed: the
/// place of each in the script, and its text as the simple protocol would send it.
///
/// Left out is what uses a variable that `\gset`, `\aset` or `\setshell` would have set, or that
/// follows from one; and all branches of an `\if` whose condition does. The statement that `\gset`
/// belongs to is there. `\sleep`, `\shell` and pipelines do nothing.
///
/// # Errors
/// `Kind::Script` where the script does not parse or its client would give up; `Kind::Plan` for a
/// name that cannot be a variable.
pub fn rehearse(
    name: &str,
    text: &[u8],
    variables: &[(Vec<u8>, Vec<u8>)],
    seed: u64,
) -> Result<Vec<(usize, Vec<u8>)>> {
    let mut scripts = Scripts::default();
    scripts.add(name, 1, text)?;
    // As `feeds::Seeds` deals them out, to one client.
    let mut base = Random::from_seed(seed);
    let random = base.split();
    let automatic = automatic(seed, base.bits().cast_signed());
    let variables = first_variables(&mut scripts, variables, &automatic)?;
    let script = &scripts.list[0];
    let mut rehearsal = Rehearsal {
        unknown: vec![false; scripts.names.len()],
        names: &scripts.names,
        commands: &script.commands,
        variables,
        random,
        found: Vec::new(),
    };
    rehearsal.run().map_err(|(place, reason)| {
        let line = script.commands[place].line;
        let message = format!("{name}:{line}: {reason}");
        Error::new(Kind::Script, "script-gives-up").with("text", message)
    })?;
    Ok(rehearsal.found)
}

/// One execution that is going on.
struct Rehearsal<'a> {
    names: &'a Names,
    commands: &'a [Command],
    variables: Variables,
    /// Whether only a server or a shell could tell its value, by slot.
    unknown: Vec<bool>,
    random: Random,
    found: Vec<(usize, Vec<u8>)>,
}

impl Rehearsal<'_> {
    /// Runs all commands; the place of the one that fails, and why.
    fn run(&mut self) -> std::result::Result<(), (usize, String)> {
        // `falling` as in `client`: a condition failed, the next command is another branch.
        let (mut place, mut falling) = (0, false);
        while let Some(command) = self.commands.get(place) {
            let fell = std::mem::take(&mut falling);
            let next = place + 1;
            let step = match &command.action {
                Action::Sql(sql) => self.sql(place, sql).map(|()| next),
                Action::Set { variable, value } => self.set(*variable, value).map(|()| next),
                Action::Misnamed { variable, value } => {
                    let name = self.names.name(*variable);
                    self.set(*variable, value).and_then(|()| Err(misnamed("set", name)))
                }
                Action::Shell { variable, .. } => {
                    variable.iter().for_each(|slot| self.unknown[*slot as usize] = true);
                    Ok(next)
                }
                Action::Elif { end, .. } | Action::Else { end } if !fell => Ok(*end as usize),
                Action::If { condition, otherwise } | Action::Elif { condition, otherwise, .. } => {
                    self.holds(condition).map(|holds| match holds {
                        Some(true) => next,
                        Some(false) => {
                            falling = true;
                            *otherwise as usize
                        }
                        None => self.pass_over(next, *otherwise as usize),
                    })
                }
                Action::Else { .. }
                | Action::EndIf
                | Action::Sleep { .. }
                | Action::StartPipeline
                | Action::SyncPipeline
                | Action::EndPipeline => Ok(next),
            };
            place = step.map_err(|reason| (place, reason))?;
        }
        Ok(())
    }

    fn is_unknown(&self, slot: Slot) -> bool {
        self.unknown[slot as usize]
    }

    fn sql(&mut self, place: usize, sql: &Sql) -> std::result::Result<(), String> {
        if !sql.parameters.iter().any(|slot| self.is_unknown(*slot)) {
            let mut out = BytesMut::new();
            simple(&mut out, sql, &self.variables, self.names).map_err(|e| e.to_string())?;
            // Behind the message's tag and length, without the NUL.
            self.found.push((place, out[5..out.len() - 1].to_vec()));
        }
        self.store(sql);
        Ok(())
    }

    fn set(&mut self, variable: Slot, value: &Program) -> std::result::Result<(), String> {
        let unknown = value.variables().any(|slot| self.is_unknown(slot));
        self.unknown[variable as usize] = unknown;
        if !unknown {
            self.variables.0[variable as usize] = Variable::Value(self.eval(value)?);
        }
        Ok(())
    }

    /// Whether a condition holds; none where that cannot be known.
    fn holds(&mut self, condition: &Program) -> std::result::Result<Option<bool>, String> {
        if condition.variables().any(|slot| self.is_unknown(slot)) {
            return Ok(None);
        }
        Ok(Some(self.eval(condition)?.is_true()))
    }

    fn eval(
        &mut self,
        program: &Program,
    ) -> std::result::Result<crate::script::eval::Value, String> {
        let (variables, names) = (&self.variables, self.names);
        let debug = &mut Vec::new();
        Scope { variables, names, random: &mut self.random, debug }.eval(program)
    }

    /// Nobody knows which branch is taken: the place of the `\endif`. What any of the branches
    /// assigns is not known either.
    fn pass_over(&mut self, from: usize, otherwise: usize) -> usize {
        let end = match self.commands[otherwise].action {
            Action::Elif { end, .. } | Action::Else { end } => end as usize,
            _ => otherwise,
        };
        for command in &self.commands[from..end] {
            match &command.action {
                Action::Set { variable, .. } | Action::Shell { variable: Some(variable), .. } => {
                    self.unknown[*variable as usize] = true;
                }
                Action::Sql(sql) => self.store(sql),
                _ => {}
            }
        }
        end
    }

    /// What `\gset` and `\aset` would set: columns have the names that a server gives them. A variable
    /// with the prefix counts as one of them where nothing else has set it, or the text says AS.
    fn store(&mut self, sql: &Sql) {
        let (Results::Gset(prefix) | Results::Aset(prefix)) = &sql.results else {
            return;
        };
        for (slot, variable) in self.variables.0.iter().enumerate() {
            let name = self.names.name(Slot::try_from(slot).expect("a slot"));
            if let Some(column) = name.strip_prefix(&prefix[..])
                && !column.is_empty()
                && (matches!(variable, Variable::Unset) || is_alias(sql, column))
            {
                self.unknown[slot] = true;
            }
        }
    }
}

/// Whether a column of this statement is called so by AS, in whatever case.
fn is_alias(sql: &Sql, column: &[u8]) -> bool {
    let mut texts = sql.parts().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        Part::Variable(_) => None,
    });
    texts.any(|text| {
        let split = |byte: &u8| !(byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80);
        let words: Vec<_> = text.split(split).filter(|word| !word.is_empty()).collect();
        let mut pairs = words.windows(2);
        pairs
            .any(|pair| pair[0].eq_ignore_ascii_case(b"as") && pair[1].eq_ignore_ascii_case(column))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(script: &str, variables: &[(&str, &str)]) -> Vec<(usize, String)> {
        let pairs = variables.iter().map(|(name, text)| ((*name).into(), text.as_bytes().to_vec()));
        let variables: Vec<_> = pairs.collect();
        let found = rehearse("a.sql", script.as_bytes(), &variables, 1).expect("a good script");
        found.into_iter().map(|(at, text)| (at, String::from_utf8(text).expect("UTF-8"))).collect()
    }

    /// The texts alone.
    fn texts(script: &str) -> Vec<String> {
        sent(script, &[]).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn variables_stand_in_the_text_and_commands_have_their_places() {
        let script = "\\set a :n * 2\nBEGIN;\n\\sleep 1 s\nSELECT :a, :client_id, :b;\nEND;";
        let expected = [(1, "BEGIN"), (3, "SELECT 14, 0, :b"), (4, "END")];
        let found = sent(script, &[("n", "7")]);
        assert_eq!(found, expected.map(|(at, text)| (at, text.to_owned() + ";")));
    }

    #[test]
    fn conditions_decide_what_is_sent() {
        for (n, expected) in [(1, "one"), (2, "two"), (3, "many")] {
            let script = format!(
                "\\set n {n}\n\\if :n = 1\nSELECT one;\n\\elif :n = 2\nSELECT two;\n\
                 \\else\nSELECT many;\n\\endif\nSELECT last;"
            );
            assert_eq!(texts(&script), [format!("SELECT {expected};"), "SELECT last;".into()]);
        }
    }

    #[test]
    fn what_a_server_or_a_shell_would_have_set_leaves_out_what_depends_on_it() {
        let cases: &[(&str, &[&str])] = &[
            ("SELECT 1 AS x \\gset\nSELECT :x;\nSELECT 2;", &["SELECT 1 AS x ", "SELECT 2;"]),
            (
                "SELECT 1 AS x \\gset p_\nSELECT :p_x;\nSELECT :x;",
                &["SELECT 1 AS x ", "SELECT :x;"],
            ),
            (
                "SELECT 1 AS x\\; SELECT 2 AS y \\aset\nSELECT :y;",
                &["SELECT 1 AS x; SELECT 2 AS y "],
            ),
            ("SELECT 1 AS x \\gset\n\\set y :x + 1\n\\set z :y\nSELECT :z;", &["SELECT 1 AS x "]),
            ("\\setshell x date\nSELECT :x;\n\\set x 1\nSELECT :x;", &["SELECT 1;"]),
            ("\\shell date\nSELECT 1;", &["SELECT 1;"]),
            (
                "\\setshell x date\n\\set y 1\n\\if :x\nSELECT 1;\n\\set y 2\n\\if :x\n\\endif\n\
                 \\elif true\nSELECT 2;\n\\else\nSELECT 3;\n\\endif\nSELECT :y;\nSELECT 4;",
                &["SELECT 4;"],
            ),
            (
                "\\setshell x date\n\\if false\nSELECT 1;\n\\elif :x\nSELECT 2;\n\\endif\nSELECT 3;",
                &["SELECT 3;"],
            ),
            (
                "\\setshell x date\n\\if true\nSELECT 1;\n\\elif :x\nSELECT 2;\n\\endif\nSELECT 3;",
                &["SELECT 1;", "SELECT 3;"],
            ),
        ];
        for (script, expected) in cases {
            assert_eq!(texts(script), *expected, "{script}");
        }
    }

    #[test]
    fn what_the_script_has_set_stays_unless_a_column_is_called_so() {
        let script = |column| {
            format!("\\set aid 5\nSELECT {column} FROM t WHERE aid = :aid \\gset\nSELECT :aid;")
        };
        assert_eq!(texts(&script("abalance")).len(), 2);
        assert_eq!(texts(&script("max(aid) as Aid")).len(), 1);
    }

    #[test]
    fn the_same_seed_gives_the_same_text() {
        let of = |seed| rehearse("a", b"\\set a random(1, 1000000000)\nSELECT :a;", &[], seed);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn a_client_that_would_give_up_says_where_and_why() {
        let error = rehearse("a.sql", b"SELECT 1;\n\\set a 1 / 0", &[], 1).unwrap_err();
        assert_eq!((error.kind, error.name), (Kind::Script, "script-gives-up"));
        assert_eq!(error.value("text"), Some(&"a.sql:2: division by zero".into()));
        let error = rehearse("a.sql", b"\\if", &[], 1).unwrap_err();
        assert_eq!(error.kind, Kind::Script);
        let error = rehearse("a", b"SELECT 1;", &[("1x".into(), Vec::new())], 1).unwrap_err();
        assert_eq!(error.kind, Kind::Plan);
    }
}
