//! Finds the variables in the text of SQL commands and of a shell's command lines. Purely
//! textual, as in pgbench: quotes and comments hide nothing.

use super::names::{is_name_start, name_length};
use super::{Names, Part, Piece, Results, Scripts, Sql};
use crate::error::{Error, Kind, Result};

/// The most parameters an SQL command may have in the extended protocols, as in pgbench.
const PARAMETERS_MAX: usize = 255;

/// Compiles the text of an SQL command. Runs of colons that no name follows, or that are longer
/// than one, are left alone, so `::int` is safe.
pub(super) fn sql(text: &[u8], id: u32, names: &mut Names) -> Sql {
    let mut numbered = Vec::with_capacity(text.len());
    let (mut parameters, mut places) = (Vec::new(), Vec::new());
    let (mut literal, mut at) = (0, 0);
    while let Some(length) = memchr::memchr(b':', &text[at..]) {
        let colon = at + length;
        let colons = text[colon..].iter().take_while(|&&byte| byte == b':').count();
        at = colon + colons;
        if colons > 1 || !text.get(at).is_some_and(|&byte| is_name_start(byte)) {
            continue;
        }
        let name = &text[at..at + name_length(&text[at..])];
        let slot = names.slot(name);
        numbered.extend_from_slice(&text[literal..colon]);
        parameters.push(slot);
        let place = numbered.len();
        numbered.push(b'$');
        numbered.extend_from_slice(itoa::Buffer::new().format(parameters.len()).as_bytes());
        places.push(place..numbered.len());
        at += name.len();
        literal = at;
    }
    numbered.extend_from_slice(&text[literal..]);
    Sql { id, numbered, parameters, places, results: Results::Discard }
}

/// Joins the words of a shell's command line. A word that begins with one colon is a variable;
/// of several colons the first is left out.
pub(super) fn shell<'a>(words: impl Iterator<Item = &'a [u8]>, names: &mut Names) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    for (number, word) in words.enumerate() {
        if number > 0 {
            literal.push(b' ');
        }
        match word {
            [b':', rest @ ..] if rest.first() != Some(&b':') => {
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
                }
                pieces.push(Piece::Variable(names.slot(rest)));
            }
            [b':', rest @ ..] => literal.extend_from_slice(rest),
            _ => literal.extend_from_slice(word),
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal.into()));
    }
    pieces
}

impl Sql {
    /// True where nothing becomes of its results.
    #[must_use]
    pub fn discards(&self) -> bool {
        self.results == Results::Discard
    }

    /// Text and variables in turn, for the simple protocol.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let mut at = 0;
        let before = self.parameters.iter().zip(&self.places).flat_map(move |(slot, place)| {
            let text = &self.numbered[at..place.start];
            at = place.end;
            [Part::Text(text), Part::Variable(*slot)]
        });
        let end = self.places.last().map_or(0, |place| place.end);
        before.chain(std::iter::once(Part::Text(&self.numbered[end..])))
    }

    /// The text as it was written.
    #[must_use]
    pub fn source(&self, names: &Names) -> Vec<u8> {
        let mut text = Vec::new();
        for part in self.parts() {
            match part {
                Part::Text(literal) => text.extend_from_slice(literal),
                Part::Variable(slot) => {
                    text.push(b':');
                    text.extend_from_slice(names.name(slot));
                }
            }
        }
        text
    }
}

impl Scripts {
    /// Checks that every SQL command can be sent with parameters; the simple protocol has none.
    ///
    /// # Errors
    /// `Kind::Script` where a command has more variables than pgbench allows.
    pub fn check_parameters(&self) -> Result<()> {
        let Some(sql) = self.sql().find(|sql| sql.parameters.len() > PARAMETERS_MAX) else {
            return Ok(());
        };
        let text = sql.source(&self.names);
        let message = format!(
            "statement has too many arguments (maximum is {PARAMETERS_MAX}): {}",
            String::from_utf8_lossy(&text)
        );
        Err(Error::new(Kind::Script, "statement-has-many-variables").with("text", message))
    }
}
