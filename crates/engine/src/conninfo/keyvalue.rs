//! The keyword/value form of a connection string: `host=pi4 dbname='my db'`. Text in, pairs out;
//! knows nothing of defaults, and never quotes what may be a piece of a password.

use std::iter::Peekable;
use std::str::Chars;

use super::keywords::{self, Keyword};
use super::{invalid, is_space};
use crate::error::{Error, Result};

type Source<'a> = Peekable<Chars<'a>>;

/// The pairs of the string in their order; a keyword may come twice. Errors: a word without `=`,
/// a quote without its end, an unknown keyword.
pub(super) fn parse(text: &str) -> Result<Vec<(&'static Keyword, String)>> {
    let mut source = text.chars().peekable();
    let mut pairs: Vec<(&'static Keyword, String)> = Vec::new();
    loop {
        skip_spaces(&mut source);
        if source.peek().is_none() {
            return Ok(pairs);
        }
        let after_secret = pairs.last().filter(|(keyword, _)| keyword.secret);
        let name = read_name(&mut source);
        check_name(&name)?;
        if source.next_if_eq(&'=').is_none() {
            return Err(conceal(after_secret, || {
                invalid("connection-keyword-without-equals").with("keyword", &*name)
            }));
        }
        skip_spaces(&mut source);
        let value = read_value(&mut source)
            .ok_or_else(|| invalid("connection-quote-not-closed").with("keyword", &*name))?;
        let pair =
            keywords::find_given(&name, value).map_err(|error| conceal(after_secret, || error))?;
        pairs.push(pair);
    }
}

fn skip_spaces(source: &mut Source) {
    while source.next_if(|c| is_space(*c)).is_some() {}
}

/// The name, and the spaces after it.
fn read_name(source: &mut Source) -> String {
    let mut name = String::new();
    while let Some(c) = source.next_if(|c| *c != '=' && !is_space(*c)) {
        name.push(c);
    }
    skip_spaces(source);
    name
}

/// The value; `None` if its closing quote is missing.
fn read_value(source: &mut Source) -> Option<String> {
    let quoted = source.next_if_eq(&'\'').is_some();
    let mut value = String::new();
    loop {
        match source.next() {
            Some('\'') if quoted => return Some(value),
            Some(c) if !quoted && is_space(c) => return Some(value),
            Some('\\') => value.extend(source.next()),
            Some(c) => value.push(c),
            None if quoted => return None,
            None => return Some(value),
        }
    }
}

/// A word with an `@` is rather a URI without its scheme, password and all.
fn check_name(name: &str) -> Result<()> {
    if name.contains('@') {
        return Err(invalid("connection-keyword-has-at"));
    }
    Ok(())
}

/// A stray word after a password is most likely the rest of that password.
fn conceal(
    after_secret: Option<&(&'static Keyword, String)>,
    otherwise: impl FnOnce() -> Error,
) -> Error {
    match after_secret {
        None => otherwise(),
        Some((keyword, _)) => invalid("text-after-secret").with("keyword", keyword.name),
    }
}
