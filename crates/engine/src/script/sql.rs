//! Finds where SQL commands end, as psql's lexer does. Knows nothing of variables in them.

use std::borrow::Cow;

use super::names::{is_name_byte, is_name_start, name_length};

/// How an SQL command in a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// At a semicolon, which is part of it.
    Semicolon,
    /// At the backslash of a meta command.
    Backslash,
    /// At the end of the script.
    Script,
}

/// Splits a script into SQL commands. What is open at the backslash of a meta command is still
/// open after it.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    parentheses: usize,
    body: Body,
}

/// Keeps account of `BEGIN ... END` in functions, whose semicolons end no command.
#[derive(Debug, Default)]
struct Body {
    /// The words so far in this command.
    words: usize,
    /// The first letters of the first words, where they are those of CREATE OR REPLACE FUNCTION
    /// or PROCEDURE.
    first: [u8; 4],
    /// How many blocks are open.
    depth: usize,
}

impl Body {
    fn word(&mut self, word: &[u8], parentheses: usize) {
        let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
        if self.words == 0 {
            self.first = [0; 4];
        }
        if let Some(first) = self.first.get_mut(self.words)
            && ["create", "or", "replace", "function", "procedure"].into_iter().any(is)
        {
            *first = word[0].to_ascii_lowercase();
        }
        self.words += 1;
        let in_definition =
            matches!(self.first, [b'c', b'f' | b'p', ..] | [b'c', b'o', b'r', b'f' | b'p']);
        if !in_definition || parentheses > 0 {
            return;
        }
        if is("begin") || (is("case") && self.depth > 0) {
            self.depth += 1;
        } else if is("end") {
            self.depth = self.depth.saturating_sub(1);
        }
    }
}

impl Splitter {
    /// Reads one command from offset `at`: the offset after it, what ended it, and what is sent
    /// of it, which is a copy only where something in it is left out.
    pub(super) fn command<'a>(
        &mut self,
        text: &'a [u8],
        mut at: usize,
    ) -> (usize, End, Cow<'a, [u8]>) {
        let (mut copied, mut out) = (at, Vec::new());
        while let Some(&byte) = text.get(at) {
            match byte {
                b';' => {
                    at += 1;
                    if self.parentheses == 0 && self.body.depth == 0 {
                        self.body.words = 0;
                        return (at, End::Semicolon, joined(out, &text[copied..at]));
                    }
                }
                b'\\' => {
                    let before = &text[copied..at];
                    at += 1;
                    match text.get(at) {
                        Some(b';') => self.body.words = 0,
                        Some(b':') => {}
                        _ => return (at, End::Backslash, joined(out, before)),
                    }
                    out.extend_from_slice(before);
                    copied = at;
                    at += 1;
                }
                b':' if let Some(length) = defined_test(&text[at..]) => {
                    // psql knows whether the variable is set; pgbench's lexer knows none.
                    out.extend_from_slice(&text[copied..at]);
                    out.extend_from_slice(b"FALSE");
                    at += length;
                    copied = at;
                }
                _ => at = self.token(text, at),
            }
        }
        (text.len(), End::Script, joined(out, &text[copied..]))
    }

    /// The offset after the quoted text, comment, word or other byte at `at`.
    fn token(&mut self, text: &[u8], at: usize) -> usize {
        match text[at] {
            b'(' => self.parentheses += 1,
            b')' => self.parentheses = self.parentheses.saturating_sub(1),
            b'\'' => return after_quote(text, at),
            b'"' => return after_pair(text, at),
            b':' if text.get(at + 1) == Some(&b':') => return at + 2,
            // A variable; a dollar after its name may begin a quote.
            b':' => return at + 1 + name_length(&text[at + 1..]),
            b'-' if text.get(at + 1) == Some(&b'-') => return after_line(text, at),
            b'/' if text.get(at + 1) == Some(&b'*') => return after_comment(text, at),
            b'$' => return after_dollar(text, at),
            byte if byte.is_ascii_digit() => return after_number(text, at),
            byte if is_name_start(byte) => return self.after_word(text, at),
            _ => {}
        }
        at + 1
    }

    fn after_word(&mut self, text: &[u8], at: usize) -> usize {
        let end = after_identifier(text, at);
        match (&text[at..end], text.get(end)) {
            (b"e" | b"E", Some(b'\'')) => return after_escaping_quotes(text, end),
            (b"b" | b"B" | b"x" | b"X" | b"n" | b"N", Some(b'\'')) => {}
            (b"u" | b"U", Some(b'&')) => {}
            (word, _) => self.body.word(word, self.parentheses),
        }
        end
    }
}

/// What was copied with what follows it.
fn joined(mut copied: Vec<u8>, rest: &[u8]) -> Cow<'_, [u8]> {
    if copied.is_empty() {
        return Cow::Borrowed(rest);
    }
    copied.extend_from_slice(rest);
    Cow::Owned(copied)
}

/// The length of `:{?name}`.
fn defined_test(text: &[u8]) -> Option<usize> {
    let name = name_length(text.strip_prefix(b":{?")?);
    (name > 0 && text.get(3 + name) == Some(&b'}')).then_some(name + 4)
}

fn after_identifier(text: &[u8], at: usize) -> usize {
    let rest = &text[at..];
    let length = rest.iter().position(|&byte| !is_name_byte(byte) && byte != b'$');
    length.map_or(text.len(), |length| at + length)
}

/// The offset after digits, and the letters that follow them without a space.
fn after_number(text: &[u8], at: usize) -> usize {
    let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    match text.get(at + digits) {
        Some(&byte) if is_name_start(byte) => after_identifier(text, at + digits),
        _ => at + digits,
    }
}

/// Behind the quote that ends what a quote begins.
fn after_quote(text: &[u8], start: usize) -> usize {
    memchr::memchr(b'\'', &text[start + 1..]).map_or(text.len(), |length| start + length + 2)
}

fn after_pair(text: &[u8], start: usize) -> usize {
    memchr::memchr(b'"', &text[start + 1..]).map_or(text.len(), |length| start + length + 2)
}

fn after_line(text: &[u8], start: usize) -> usize {
    memchr::memchr2(b'\n', b'\r', &text[start..]).map_or(text.len(), |length| start + length)
}

/// Behind `'...'` in which a backslash escapes, and the strings that continue it on further
/// lines: backslashes escape in these too.
fn after_escaping_quotes(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(length) = memchr::memchr2(b'\'', b'\\', &text[at.min(text.len())..]) {
        at += length + 1;
        if text[at - 1] == b'\\' {
            at += 1;
        } else if let Some(next) = continued_at(text, at) {
            at = next + 1;
        } else {
            return at;
        }
    }
    text.len()
}

/// The offset of a quote that continues the string which ends at `at`: at once (then it was a
/// doubled quote), or after white space with a line end in it.
fn continued_at(text: &[u8], mut at: usize) -> Option<usize> {
    if text.get(at) == Some(&b'\'') {
        return Some(at);
    }
    let mut has_line_end = false;
    loop {
        match text.get(at)? {
            b'\n' | b'\r' => {
                has_line_end = true;
                at += 1;
            }
            b' ' | b'\t' | b'\x0b' | b'\x0c' => at += 1,
            b'-' if text.get(at + 1) == Some(&b'-') => at = after_line(text, at),
            b'\'' if has_line_end => return Some(at),
            _ => return None,
        }
    }
}

fn after_comment(text: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while let Some(length) = memchr::memchr2(b'*', b'/', &text[at..]) {
        at += length;
        match text[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// The offset after `$tag$ ... $tag$`; after the dollar alone where there is no tag, with the
/// digits and letters after it where it is a parameter.
fn after_dollar(text: &[u8], start: usize) -> usize {
    let rest = &text[start + 1..];
    if rest.first().is_some_and(u8::is_ascii_digit) {
        return after_number(text, start + 1);
    }
    let end = start + 1 + name_length(rest);
    if text.get(end) != Some(&b'$') {
        return start + 1;
    }
    let delimiter = &text[start..=end];
    memchr::memmem::find(&text[end + 1..], delimiter)
        .map_or(text.len(), |length| end + 1 + length + delimiter.len())
}
