//! Cuts SQL text into tokens, just well enough to find its statements, words and commas. Knows
//! quotes, comments and brackets, and no grammar.

/// A piece of SQL that is neither white space nor comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// Where it starts in the text.
    pub(crate) start: usize,
    /// A word, number, `$1`, quoted text with its quotes, or one other character.
    pub(crate) text: &'a str,
    /// In how many brackets it stands.
    pub(crate) depth: usize,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Whether it is this word, in any case, outside all brackets.
    pub(crate) fn is_keyword(&self, word: &str) -> bool {
        self.depth == 0 && self.text.eq_ignore_ascii_case(word)
    }
}

/// The tokens of `sql`, in order.
pub(crate) fn tokens(sql: &str) -> Tokens<'_> {
    Tokens { sql, at: 0, depth: 0 }
}

/// Iterates over tokens.
#[derive(Debug, Clone)]
pub(crate) struct Tokens<'a> {
    sql: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.at = skip_blank(self.sql.as_bytes(), self.at);
        let first = *self.sql.as_bytes().get(self.at)?;
        let start = self.at;
        self.at = token_end(self.sql, start);
        if first == b')' {
            self.depth = self.depth.saturating_sub(1);
        }
        let token = Token { start, text: &self.sql[start..self.at], depth: self.depth };
        if first == b'(' {
            self.depth += 1;
        }
        Some(token)
    }
}

/// The parts of `sql` between separators that stand outside quotes, comments and brackets.
pub(crate) fn split(sql: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for token in tokens(sql) {
        if token.depth == 0 && token.text.starts_with(separator) {
            parts.push(&sql[start..token.start]);
            start = token.end();
        }
    }
    parts.push(&sql[start..]);
    parts
}

/// Whether a byte may stand in a word. Bytes beyond ASCII may.
pub(crate) fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn skip_blank(sql: &[u8], mut at: usize) -> usize {
    loop {
        match &sql[at..] {
            [b' ' | b'\t' | b'\r' | b'\n' | 0x0c, ..] => at += 1,
            [b'-', b'-', rest @ ..] => {
                let line = rest.iter().position(|&byte| byte == b'\n');
                at = line.map_or(sql.len(), |length| at + 2 + length);
            }
            [b'/', b'*', ..] => at = comment_end(sql, at),
            _ => return at,
        }
    }
}

/// Where the comment that starts at `at` ends; comments nest.
fn comment_end(sql: &[u8], mut at: usize) -> usize {
    let mut level = 0;
    while at < sql.len() {
        let step = match &sql[at..] {
            [b'/', b'*', ..] => {
                level += 1;
                2
            }
            [b'*', b'/', ..] => {
                level -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if level == 0 {
            break;
        }
    }
    at
}

fn token_end(sql: &str, start: usize) -> usize {
    let rest = &sql[start..];
    let bytes = rest.as_bytes();
    let length = match bytes[0] {
        quote @ (b'\'' | b'"') => {
            bytes[1..].iter().position(|&byte| byte == quote).map(|length| length + 2)
        }
        b'$' => Some(dollar_length(rest)),
        byte if is_word_byte(byte) => Some(word_length(bytes)),
        _ => Some(1),
    };
    start + length.unwrap_or(rest.len())
}

fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| !is_word_byte(byte)).unwrap_or(bytes.len())
}

/// The length of a parameter (`$1`) or of text in dollar quotes (`$tag$...$tag$`).
fn dollar_length(rest: &str) -> usize {
    let word = 1 + word_length(&rest.as_bytes()[1..]);
    let is_parameter = rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if is_parameter || rest.as_bytes().get(word) != Some(&b'$') {
        return word;
    }
    let quote = &rest[..=word];
    rest[quote.len()..].find(quote).map_or(rest.len(), |length| length + 2 * quote.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<&str> {
        tokens(sql).map(|token| token.text).collect()
    }

    #[test]
    fn words_quotes_parameters_and_signs_are_tokens() {
        for (sql, expected) in [
            ("select a.b, -1", vec!["select", "a", ".", "b", ",", "-", "1"]),
            ("'it''s' \"x y\"", vec!["'it'", "'s'", "\"x y\""]),
            ("$1+$2::int", vec!["$1", "+", "$2", ":", ":", "int"]),
            ("$$a;b$$ $t$ $$ $t$", vec!["$$a;b$$", "$t$ $$ $t$"]),
            ("a -- b\n /* c /* d */ e */ f", vec!["a", "f"]),
            ("'open", vec!["'open"]),
            ("/* open", vec![]),
            ("größe é", vec!["größe", "é"]),
            ("", vec![]),
        ] {
            assert_eq!(texts(sql), expected, "{sql}");
        }
    }

    #[test]
    fn only_separators_outside_quotes_comments_and_brackets_split() {
        assert_eq!(split("a;b", ';'), ["a", "b"]);
        assert_eq!(split("';' /*;*/ (;) $$;$$; --;\n", ';').len(), 2);
        assert_eq!(split("f(1, 2), 3", ','), ["f(1, 2)", " 3"]);
    }
}
