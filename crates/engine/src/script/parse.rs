//! Reads a script: splits it into commands and reads the meta commands. An error names file,
//! line and column and shows the place with a caret.

use super::sql::{End, command_length, compile};
use super::{Action, Amount, Command, Expr, Names, Script, Scripts, expr, is_variable_name};
use crate::error::{Error, Kind, Result};

impl Scripts {
    /// Reads a script and adds it.
    ///
    /// # Errors
    /// `Kind::Script` where it does not parse or holds no command.
    pub fn add(&mut self, name: &str, weight: u32, text: &str) -> Result<()> {
        if let Some(at) = memchr::memchr(0, text.as_bytes()) {
            let line = text[..at].matches('\n').count() + 1;
            return Err(Error::new(
                Kind::Script,
                format!("{name}:{line}: a script cannot hold a NUL byte"),
            ));
        }
        let mut parser = Parser {
            name,
            text,
            at: 0,
            lines: Lines { text, counted: 0, line: 1 },
            names: &mut self.names,
            statements: self.statements,
        };
        let commands = parser.commands()?;
        self.statements = parser.statements;
        if commands.is_empty() {
            let message = format!("empty command list for script \"{name}\"");
            return Err(Error::new(Kind::Script, message)
                .with_hint("a script needs at least one SQL command or meta command"));
        }
        self.list.push(Script { name: name.to_owned(), weight, commands });
        Ok(())
    }
}

/// Counts lines forwards only, so that long scripts stay linear.
struct Lines<'a> {
    text: &'a str,
    counted: usize,
    line: u32,
}

impl Lines<'_> {
    fn at(&mut self, offset: usize) -> u32 {
        if offset > self.counted {
            let passed = memchr::memchr_iter(b'\n', &self.text.as_bytes()[self.counted..offset]);
            self.line += u32::try_from(passed.count()).unwrap_or(u32::MAX);
            self.counted = offset;
        }
        self.line
    }
}

struct Parser<'a> {
    name: &'a str,
    text: &'a str,
    at: usize,
    lines: Lines<'a>,
    names: &'a mut Names,
    statements: u32,
}

impl Parser<'_> {
    fn commands(&mut self) -> Result<Vec<Command>> {
        let mut commands = Vec::new();
        loop {
            self.skip_blank();
            if self.at >= self.text.len() {
                return Ok(commands);
            }
            let command =
                if self.text[self.at..].starts_with('\\') { self.meta()? } else { self.sql()? };
            commands.extend(command);
        }
    }

    /// Passes white space and comments before a command.
    fn skip_blank(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("--") {
                return;
            }
            self.at += memchr::memchr(b'\n', trimmed.as_bytes()).unwrap_or(trimmed.len());
        }
    }

    fn sql(&mut self) -> Result<Option<Command>> {
        let start = self.at;
        let (length, end) = command_length(&self.text[start..]);
        self.at = start + length + usize::from(end == End::Semicolon);
        let line = self.lines.at(start);
        let text = self.text[start..start + length].trim_end().replace("\\;", ";");
        if text.is_empty() {
            return Ok(None);
        }
        let sql = compile(&text, self.statements, self.names).map_err(|message| {
            Error::new(Kind::Script, format!("{}:{line}: {message}", self.name))
        })?;
        self.statements += 1;
        let first = text.lines().next().unwrap_or("").to_owned();
        Ok(Some(Command { line, text: first, action: Action::Sql(sql) }))
    }

    /// A backslash command: to the end of its line, or on where that ends in a backslash.
    fn meta(&mut self) -> Result<Option<Command>> {
        let start = self.at;
        let line = self.lines.at(start);
        let mut end = start;
        loop {
            let rest = &self.text.as_bytes()[end..];
            end += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let continued = self.text[start..end].trim_end_matches('\r').ends_with('\\');
            if !continued || end >= self.text.len() {
                break;
            }
            end += 1;
        }
        self.at = end;
        let joined = self.text[start..end].replace("\\\r\n", "  ").replace("\\\n", "  ");
        let source = joined.trim_end();
        let action = self.action(source).map_err(|(at, message, word)| {
            let before = self.text[..start].rsplit('\n').next().unwrap_or("").chars().count();
            let place = Place { file: self.name, line, before, at, source, command: &word };
            place.error(&message)
        })?;
        Ok(Some(Command { line, text: source.to_owned(), action }))
    }

    fn action(&mut self, source: &str) -> std::result::Result<Action, (usize, String, String)> {
        let words = words(source.get(1..).unwrap_or(""), 1);
        let Some(&(_, word)) = words.first() else {
            return Err((0, "invalid command".into(), String::new()));
        };
        let name = word.to_ascii_lowercase();
        let fail = |at: usize, message: &str| (at, message.to_owned(), name.clone());
        match name.as_str() {
            "set" => {
                let Some(&(at, variable)) = words.get(1) else {
                    return Err(fail(source.len(), "missing argument"));
                };
                if !is_variable_name(variable) {
                    return Err(fail(at, &format!("invalid variable name ({variable})")));
                }
                let offset = at + variable.len();
                if words.len() < 3 {
                    return Err(fail(source.len(), "missing expression"));
                }
                let value = self.expression(source, offset).map_err(|(at, m)| fail(at, &m))?;
                Ok(Action::Set { variable: self.names.slot(variable), value })
            }
            "sleep" => self.sleep(&words, source.len()).map_err(|(at, m)| fail(at, &m)),
            _ => Err(fail(0, "invalid command")),
        }
    }

    fn expression(
        &mut self,
        source: &str,
        offset: usize,
    ) -> std::result::Result<Expr, (usize, String)> {
        expr::expression(&source[offset..], self.names)
            .map_err(|fault| (offset + fault.at, fault.message))
    }

    fn sleep(
        &mut self,
        words: &[(usize, &str)],
        end: usize,
    ) -> std::result::Result<Action, (usize, String)> {
        let Some(&(at, amount)) = words.get(1) else {
            return Err((end, "missing argument".into()));
        };
        if let Some(&(at, _)) = words.get(3) {
            return Err((at, "too many arguments".into()));
        }
        if let Some(name) = amount.strip_prefix(':').filter(|name| is_variable_name(name)) {
            let unit_ns = unit(words.get(2).copied())?;
            return Ok(Action::Sleep { amount: Amount::Variable(self.names.slot(name)), unit_ns });
        }
        let digits = amount.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = amount.split_at(digits);
        let bad = || (at, "invalid sleep time, must be an integer".to_owned());
        let count: i64 = number.parse().map_err(|_| bad())?;
        let unit_ns = match (suffix, words.get(2)) {
            ("", given) => unit(given.copied())?,
            (suffix, None) => unit(Some((at + digits, suffix)))?,
            _ => return Err(bad()),
        };
        Ok(Action::Sleep { amount: Amount::Constant(count), unit_ns })
    }
}

fn unit(word: Option<(usize, &str)>) -> std::result::Result<i64, (usize, String)> {
    let Some((at, text)) = word else {
        return Ok(1_000_000_000);
    };
    match text.to_ascii_lowercase().as_str() {
        "us" => Ok(1_000),
        "ms" => Ok(1_000_000),
        "s" => Ok(1_000_000_000),
        _ => Err((at, format!("unrecognized time unit, must be us, ms or s ({text})"))),
    }
}

/// The words of `text` with their offsets, `base` added.
fn words(text: &str, base: usize) -> Vec<(usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split_ascii_whitespace().map(|w| (w.as_ptr() as usize - start + base, w)).collect()
}

/// Where in a script something is wrong.
struct Place<'a> {
    file: &'a str,
    line: u32,
    /// Characters before the command on its line.
    before: usize,
    at: usize,
    source: &'a str,
    command: &'a str,
}

impl Place<'_> {
    fn error(&self, message: &str) -> Error {
        let column = self.source[..self.at.min(self.source.len())].chars().count();
        let Self { file, line, source, command, .. } = self;
        let place =
            if command.is_empty() { String::new() } else { format!(" in command \"{command}\"") };
        Error::new(
            Kind::Script,
            format!(
                "{file}:{line}:{}: {message}{place}\n{source}\n{:>width$} error found here",
                self.before + column + 1,
                "^",
                width = column + 1
            ),
        )
    }
}
