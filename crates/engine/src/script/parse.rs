//! Reads a script: splits it into commands and puts the meta commands and SQL together. Faults
//! are told in pgbench's words, with the line and a caret.

use super::meta::{self, Meta};
use super::sql::{End, Splitter};
use super::{Action, Command, Names, Script, Scripts, branches, number, substitute};
use crate::error::{Error, Kind, Result};

/// How much of the first line of an SQL command reports show, as in pgbench.
const SHOWN_MAX: usize = 127;
/// How much of a meta command they show; pgbench cuts none.
const META_SHOWN_MAX: usize = 1 << 16;

impl Scripts {
    /// Reads a script and adds it.
    ///
    /// # Errors
    /// `Kind::Script` where it does not parse or holds no command.
    pub fn add(&mut self, name: &str, weight: u32, text: &[u8]) -> Result<()> {
        let mut parser = Parser {
            name,
            text,
            at: 0,
            lines: Lines { text, counted: 0, line: 1 },
            splitter: Splitter::default(),
            names: &mut self.names,
            statements: self.statements,
            commands: Vec::new(),
        };
        if let Some(at) = memchr::memchr(0, text) {
            let line = parser.lines.at(at);
            let about = format!("{name}:{line}");
            return Err(Error { about, ..Error::new(Kind::Script, "script-has-nul") });
        }
        parser.parse()?;
        let Parser { statements, mut commands, .. } = parser;
        if commands.is_empty() {
            let message = format!("empty command list for script \"{name}\"");
            return Err(Error::new(Kind::Script, "script-empty").with("text", message));
        }
        branches::link(&mut commands).map_err(|(number, message)| {
            error(format!("condition error in script \"{name}\" command {number}: {message}"))
        })?;
        self.statements = statements;
        self.list.push(Script { name: name.to_owned(), weight, commands });
        Ok(())
    }
}

fn error(message: String) -> Error {
    Error::new(Kind::Script, "script-not-parsed").with("text", message)
}

/// Counts lines forwards only, so that long scripts stay linear.
struct Lines<'a> {
    text: &'a [u8],
    counted: usize,
    line: u32,
}

impl Lines<'_> {
    fn at(&mut self, offset: usize) -> u32 {
        if offset > self.counted {
            let passed = memchr::memchr_iter(b'\n', &self.text[self.counted..offset]).count();
            self.line = self.line.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX));
            self.counted = offset;
        }
        self.line
    }
}

struct Parser<'a> {
    name: &'a str,
    text: &'a [u8],
    at: usize,
    lines: Lines<'a>,
    splitter: Splitter,
    names: &'a mut Names,
    statements: u32,
    commands: Vec<Command>,
}

impl Parser<'_> {
    fn parse(&mut self) -> Result<()> {
        loop {
            self.skip_blank();
            match self.sql() {
                End::Semicolon => {}
                End::Backslash => self.meta()?,
                End::Script => return Ok(()),
            }
        }
    }

    /// Passes white space and comments before a command.
    fn skip_blank(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            let rest = &self.text[self.at..];
            if number::is_space(byte) {
                self.at += 1;
            } else if rest.starts_with(b"--") {
                self.at += memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    fn sql(&mut self) -> End {
        let line = self.lines.at(self.at);
        let (after, end, text) = self.splitter.command(self.text, self.at);
        self.at = after;
        if !text.is_empty() {
            let sql = substitute::sql(&text, self.statements, self.names);
            self.statements += 1;
            self.commands.push(Command { line, text: shown(&text), action: Action::Sql(sql) });
        }
        end
    }

    /// Behind the backslash of a meta command.
    fn meta(&mut self) -> Result<()> {
        let start = self.at - 1;
        let line = self.lines.at(start);
        let read = meta::read(self.text, start, self.names);
        self.at = read.after;
        let text = read.source(self.text);
        let found = read.meta.map_err(|fault| {
            let error = error(fault.message(self.name, line, text));
            match fault.place(line, text) {
                Some((line, column)) => error.with("line", line).with("column", column),
                None => error,
            }
        })?;
        match found {
            Meta::Nothing => {}
            Meta::Action(action) => {
                let text = text[..text.len().min(META_SHOWN_MAX)].into();
                self.commands.push(Command { line, text, action });
            }
            Meta::Results(results) => match self.commands.last_mut() {
                Some(Command { action: Action::Sql(sql), .. }) if sql.discards() => {
                    sql.results = results;
                }
                before => {
                    let shown = match before {
                        Some(Command { action: Action::Sql(_), .. }) | None => String::new(),
                        Some(command) => format!(" ({})", String::from_utf8_lossy(&command.text)),
                    };
                    let message = "\\gset must follow an SQL command";
                    return Err(error(format!("{}:{line}: {message}{shown}", self.name)));
                }
            },
        }
        Ok(())
    }
}

/// The first line of an SQL command, cut where pgbench cuts it.
fn shown(text: &[u8]) -> Box<[u8]> {
    let line = memchr::memchr2(b'\n', b'\r', text).unwrap_or(text.len());
    let line = &text[..line];
    if line.len() <= SHOWN_MAX {
        return line.into();
    }
    // A character in whose middle the cut falls is left out.
    let is_inside = |&at: &usize| line[at] & 0xc0 == 0x80;
    let cut = (SHOWN_MAX - 3..=SHOWN_MAX).rev().find(|at| !is_inside(at)).unwrap_or(SHOWN_MAX);
    line[..cut].into()
}
