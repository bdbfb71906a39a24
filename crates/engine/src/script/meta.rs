//! Reads one meta command: its words, its arguments, its expression.

use super::eval::Program;
use super::lex::{self, Lexer};
use super::{Action, Amount, Names, Results, expr, is_variable_name, substitute};

/// How many words a command has at most, its name among them, as in pgbench.
const WORDS_MAX: usize = 256;

/// What a meta command comes to.
pub(super) enum Meta {
    /// A backslash by itself does nothing.
    Nothing,
    Action(Action),
    /// `\gset` and `\aset`: for the SQL command before.
    Results(Results),
}

/// A meta command that was read.
pub(super) struct Read {
    start: usize,
    /// The offset after its line.
    pub(super) after: usize,
    pub(super) meta: Result<Meta, MetaError>,
}

impl Read {
    /// The command as it was written, without the end of its line.
    pub(super) fn source<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let source = &text[self.start..self.after];
        let kept = source.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
        &source[..kept.map_or(0, |last| last + 1)]
    }
}

/// What is wrong with a meta command.
pub(super) struct MetaError {
    what: String,
    /// The command's name as it was written.
    command: String,
    place: Place,
}

/// What is shown of a command that is wrong.
enum Place {
    /// Nothing.
    Nowhere,
    /// The line.
    Line,
    /// The line, and a caret under the byte that is so far from its beginning.
    Column(usize),
}

impl MetaError {
    /// Where the caret is, as a line of the script and a column of it, both from 1.
    pub(super) fn place(&self, line: u32, text: &[u8]) -> Option<(usize, usize)> {
        let Place::Column(column) = self.place else {
            return None;
        };
        let before = text.get(..column).unwrap_or(text);
        let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let line = line as usize + before.iter().filter(|byte| **byte == b'\n').count();
        Some((line, column - begin + 1))
    }

    /// The message as pgbench has it; `text` is the command as it was written.
    pub(super) fn message(&self, script: &str, line: u32, text: &[u8]) -> String {
        let Self { what, command, place } = self;
        let message = format!("{script}:{line}: {what} in command \"{command}\"");
        let text = String::from_utf8_lossy(text);
        match place {
            Place::Nowhere => message,
            Place::Line => format!("{message}\n{text}"),
            Place::Column(column) => {
                // Not by a width: lines may be longer than the widest that `format!` knows.
                format!("{message}\n{text}\n{}^ error found here", " ".repeat(*column))
            }
        }
    }
}

/// Reads the meta command whose backslash is at `start`.
pub(super) fn read(text: &[u8], start: usize, names: &mut Names) -> Read {
    let mut lexer = Lexer::new(text, start + 1);
    let meta = match lexer.word() {
        None => Ok(Meta::Nothing),
        Some((_, name)) => {
            let mut reader = Reader { lexer: &mut lexer, names, start };
            reader.command(name).map_err(|(what, place)| MetaError {
                what,
                command: String::from_utf8_lossy(name).into_owned(),
                place,
            })
        }
    };
    Read { start, after: lexer.at, meta }
}

type Result<T, E = (String, Place)> = std::result::Result<T, E>;

struct Reader<'a, 'l> {
    lexer: &'l mut Lexer<'a>,
    names: &'l mut Names,
    start: usize,
}

/// A word with its offset.
type Word<'a> = (usize, &'a [u8]);

impl<'a> Reader<'a, '_> {
    fn command(&mut self, name: &[u8]) -> Result<Meta> {
        let name = name.to_ascii_lowercase();
        match name.as_slice() {
            b"set" => return self.set().map(Meta::Action),
            b"if" => {
                let condition = self.expression()?;
                return Ok(Meta::Action(Action::If { condition, otherwise: 0 }));
            }
            b"elif" => {
                let condition = self.expression()?;
                return Ok(Meta::Action(Action::Elif { condition, otherwise: 0, end: 0 }));
            }
            _ => {}
        }
        let words = self.words()?;
        match name.as_slice() {
            b"gset" => prefix(&words).map(|prefix| Meta::Results(Results::Gset(prefix))),
            b"aset" => prefix(&words).map(|prefix| Meta::Results(Results::Aset(prefix))),
            b"sleep" => self.sleep(&words).map(Meta::Action),
            b"shell" => self.shell(&words).map(Meta::Action),
            b"setshell" => self.set_shell(&words).map(Meta::Action),
            b"else" => alone(&words, Action::Else { end: 0 }),
            b"endif" => alone(&words, Action::EndIf),
            b"startpipeline" => alone(&words, Action::StartPipeline),
            b"syncpipeline" => alone(&words, Action::SyncPipeline),
            b"endpipeline" => alone(&words, Action::EndPipeline),
            _ => Err(("invalid command".to_owned(), Place::Line)),
        }
    }

    /// The words that are left.
    fn words(&mut self) -> Result<Vec<Word<'a>>> {
        let mut words = Vec::new();
        while let Some(word) = self.lexer.word() {
            if words.len() + 1 >= WORDS_MAX {
                return Err(("too many arguments".to_owned(), Place::Nowhere));
            }
            words.push(word);
        }
        Ok(words)
    }

    fn column(&self, at: usize) -> Place {
        Place::Column(at - self.start)
    }

    fn expression(&mut self) -> Result<Program> {
        expr::expression(self.lexer, self.names)
            .map_err(|lex::SyntaxError { at, message }| (message, self.column(at)))
    }

    fn set(&mut self) -> Result<Action> {
        let Some((_, name)) = self.lexer.word() else {
            return Err(("missing argument".to_owned(), Place::Nowhere));
        };
        let value = self.expression()?;
        let variable = self.names.slot(name);
        // pgbench finds out when it runs the command whether that can be a name.
        Ok(if is_variable_name(name) {
            Action::Set { variable, value }
        } else {
            Action::Misnamed { variable, value }
        })
    }

    fn shell(&mut self, words: &[Word<'_>]) -> Result<Action> {
        if words.is_empty() {
            return Err(("missing command".to_owned(), Place::Line));
        }
        let line = substitute::shell(words.iter().map(|(_, word)| *word), self.names);
        Ok(Action::Shell { line, variable: None })
    }

    fn set_shell(&mut self, words: &[Word<'_>]) -> Result<Action> {
        let [(_, name), line @ ..] = words else {
            return Err(("missing argument".to_owned(), Place::Line));
        };
        if line.is_empty() {
            return Err(("missing argument".to_owned(), Place::Line));
        }
        let variable = Some(self.names.slot(name));
        let line = substitute::shell(line.iter().map(|(_, word)| *word), self.names);
        Ok(Action::Shell { line, variable })
    }

    fn sleep(&mut self, words: &[Word<'_>]) -> Result<Action> {
        let Some(&(at, amount)) = words.first() else {
            return Err(("missing argument".to_owned(), Place::Line));
        };
        if let Some(&(at, _)) = words.get(2) {
            return Err(("too many arguments".to_owned(), self.column(at)));
        }
        let mut unit = words.get(1).copied();
        if let [b':', name @ ..] = amount {
            let unit_ns = self.unit(unit)?;
            return Ok(Action::Sleep { amount: Amount::Variable(self.names.slot(name)), unit_ns });
        }
        let sign = usize::from(matches!(amount.first(), Some(b'+' | b'-')));
        let digits = amount[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, suffix) = amount.split_at(sign + digits);
        if !suffix.is_empty() {
            if digits == 0 || unit.is_some() {
                let amount = String::from_utf8_lossy(amount);
                let what = format!("invalid sleep time, must be an integer ({amount})");
                return Err((what, self.column(at)));
            }
            unit = Some((at + number.len(), suffix));
        }
        let unit_ns = self.unit(unit)?;
        Ok(Action::Sleep { amount: Amount::Constant(integer(number)), unit_ns })
    }

    /// A unit of time in nanoseconds.
    fn unit(&self, word: Option<Word<'_>>) -> Result<i64> {
        let Some((at, unit)) = word else {
            return Ok(1_000_000_000);
        };
        match unit.to_ascii_lowercase().as_slice() {
            b"us" => Ok(1_000),
            b"ms" => Ok(1_000_000),
            b"s" => Ok(1_000_000_000),
            _ => {
                let unit = String::from_utf8_lossy(unit);
                let what = format!("unrecognized time unit, must be us, ms or s ({unit})");
                Err((what, self.column(at)))
            }
        }
    }
}

/// The integer that a sign and digits are; at the end of its range where they say more, and 0
/// where there are no digits.
fn integer(text: &[u8]) -> i64 {
    let digits = text.strip_prefix(b"+").or_else(|| text.strip_prefix(b"-")).unwrap_or(text);
    let magnitude = digits.iter().fold(0i64, |value, &digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    });
    if text.starts_with(b"-") { -magnitude } else { magnitude }
}

/// A command that takes no arguments.
fn alone(words: &[Word<'_>], action: Action) -> Result<Meta> {
    if words.is_empty() {
        return Ok(Meta::Action(action));
    }
    Err(("unexpected argument".to_owned(), Place::Line))
}

/// What `\gset` and `\aset` put before the names of columns.
fn prefix(words: &[Word<'_>]) -> Result<Box<[u8]>> {
    match words {
        [] => Ok(Box::default()),
        [(_, prefix)] => Ok((*prefix).into()),
        _ => Err(("too many arguments".to_owned(), Place::Line)),
    }
}
