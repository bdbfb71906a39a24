//! Finds where SQL commands end, as psql's lexer does, and where variables stand in them.

use super::{Names, Piece, Sql, is_name_byte};

/// The most parameters an SQL command may have in the extended protocols, as in pgbench.
const PARAMETERS_MAX: usize = 255;

/// How an SQL command in a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// At a semicolon, which is not part of it.
    Semicolon,
    /// At the backslash of a meta command.
    Backslash,
    /// At the end of the script.
    Script,
}

/// The length of the SQL command that `text` starts with, and what ended it.
pub(super) fn command_length(text: &str) -> (usize, End) {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut parentheses = 0usize;
    while at < bytes.len() {
        match bytes[at] {
            b';' if parentheses == 0 => return (at, End::Semicolon),
            b'\\' if bytes.get(at + 1) == Some(&b';') => at += 2,
            b'\\' => return (at, End::Backslash),
            b'(' => {
                parentheses += 1;
                at += 1;
            }
            b')' => {
                parentheses = parentheses.saturating_sub(1);
                at += 1;
            }
            _ => at = after_token(bytes, at),
        }
    }
    (bytes.len(), End::Script)
}

/// The offset behind the quoted text, comment, word or single byte at `at`.
fn after_token(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        b'\'' => {
            let escapes = at > 0
                && matches!(bytes[at - 1], b'e' | b'E')
                && (at < 2 || !is_name_byte(bytes[at - 2]));
            after_quote(bytes, at, escapes)
        }
        b'"' => after_quote(bytes, at, false),
        b'-' if bytes.get(at + 1) == Some(&b'-') => {
            memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length)
        }
        b'/' if bytes.get(at + 1) == Some(&b'*') => after_comment(bytes, at),
        b'$' if at == 0 || !is_name_byte(bytes[at - 1]) => after_dollar_quote(bytes, at),
        _ => at + 1,
    }
}

fn after_quote(bytes: &[u8], start: usize, escapes: bool) -> usize {
    let quote = bytes[start];
    let mut at = start + 1;
    while at < bytes.len() {
        if escapes && bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at] == quote {
            return at + 1;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn after_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Behind `$tag$ ... $tag$`; behind the dollar alone where no tag stands.
fn after_dollar_quote(bytes: &[u8], start: usize) -> usize {
    let tag = bytes[start + 1..].iter().take_while(|&&b| is_name_byte(b)).count();
    let end = start + 1 + tag;
    let starts_with_digit = bytes.get(start + 1).is_some_and(u8::is_ascii_digit);
    if bytes.get(end) != Some(&b'$') || (tag > 0 && starts_with_digit) {
        return start + 1;
    }
    let delimiter = &bytes[start..=end];
    memchr::memmem::find(&bytes[end + 1..], delimiter)
        .map_or(bytes.len(), |length| end + 1 + length + delimiter.len())
}

/// Compiles the text of an SQL command: every `:name`, also inside quotes and comments, as
/// pgbench has it. Runs of colons that no name follows are left alone, so `::int` is safe.
pub(super) fn compile(text: &str, id: u32, names: &mut Names) -> Result<Sql, String> {
    let mut pieces = Vec::new();
    let mut numbered = String::with_capacity(text.len());
    let mut parameters = Vec::new();
    let (mut literal, mut at) = (String::new(), 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        let colons = bytes[at..].iter().take_while(|&&b| b == b':').count();
        let name_start = at + colons;
        let named = colons == 1
            && bytes.get(name_start).is_some_and(|&b| is_name_byte(b) && !b.is_ascii_digit());
        if named {
            let rest = bytes[name_start..].iter().take_while(|&&b| is_name_byte(b)).count();
            let slot = names.slot(&text[name_start..name_start + rest]);
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Variable(slot));
            parameters.push(slot);
            numbered.push_str(&format!("${}", parameters.len()));
            at = name_start + rest;
        } else {
            let step = if colons > 0 { colons } else { next_colon(&bytes[at..]) };
            literal.push_str(&text[at..at + step]);
            numbered.push_str(&text[at..at + step]);
            at += step;
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    if parameters.len() > PARAMETERS_MAX {
        let first = text.lines().next().unwrap_or("");
        return Err(format!(
            "statement has too many arguments (maximum is {PARAMETERS_MAX}): {first}"
        ));
    }
    Ok(Sql { id, pieces, numbered, parameters })
}

fn next_colon(bytes: &[u8]) -> usize {
    memchr::memchr(b':', bytes).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_ends_a_command_only_outside_quotes_comments_and_parentheses() {
        for (text, command) in [
            ("select 1; select 2", "select 1"),
            ("select ';'; x", "select ';'"),
            ("select 'a''b;'; x", "select 'a''b;'"),
            (r"select E'a\';b'; x", r"select E'a\';b'"),
            (r"select 'a\'; x", r"select 'a\'"),
            ("select \"a;b\"; x", "select \"a;b\""),
            ("select $$a;b$$; x", "select $$a;b$$"),
            ("select $t$a;$$;b$t$; x", "select $t$a;$$;b$t$"),
            ("select a$1;b", "select a$1"),
            ("select 1 -- a;b\n; x", "select 1 -- a;b\n"),
            ("select /* ; /* ; */ ; */ 1; x", "select /* ; /* ; */ ; */ 1"),
            ("create rule r do (a; b); x", "create rule r do (a; b)"),
            ("select 'unterminated; x", "select 'unterminated; x"),
        ] {
            let (length, _) = command_length(text);
            assert_eq!(&text[..length], command, "in {text}");
        }
    }

    #[test]
    fn variables_become_pieces_and_numbered_parameters() {
        let mut names = Names::default();
        let sql = compile("a :x::int ':y' b::c :9 :x", 0, &mut names).unwrap();
        assert_eq!(sql.numbered, "a $1::int '$2' b::c :9 $3");
        assert_eq!(sql.parameters, vec![0, 1, 0]);
        assert_eq!(sql.pieces[0], Piece::Text("a ".into()));
        assert_eq!(sql.pieces[1], Piece::Variable(0));
    }
}
