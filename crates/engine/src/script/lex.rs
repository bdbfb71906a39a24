//! Tokens of expressions. Knows columns, nothing of grammar.

/// A token of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// An integer constant; -2^63 is reachable only behind a minus.
    Int(u64),
    /// A constant with a point or an exponent.
    Double(f64),
    /// `:name`.
    Variable(String),
    /// A keyword or a function's name, in lower case.
    Word(String),
    /// An operator or punctuation.
    Symbol(&'static str),
}

const SYMBOLS: [&str; 21] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%", "=", "<", ">", "|", "#", "&", "~",
    "(", ")", ",",
];

/// A failure at a byte offset of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub at: usize,
    pub message: String,
}

impl Fault {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// The tokens of `text` with their byte offsets.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte.is_ascii_whitespace() {
            at += 1;
        } else if byte.is_ascii_digit() || (byte == b'.' && digit_at(bytes, at + 1)) {
            let end = number_end(bytes, at);
            found.push((at, number(&text[at..end], at)?));
            at = end;
        } else if byte == b':' && bytes.get(at + 1).is_some_and(|&b| is_word_start(b)) {
            let end = word_end(bytes, at + 1);
            found.push((at, Token::Variable(text[at + 1..end].to_owned())));
            at = end;
        } else if byte.is_ascii_alphabetic() || byte == b'_' {
            let end = word_end(bytes, at);
            found.push((at, Token::Word(text[at..end].to_ascii_lowercase())));
            at = end;
        } else {
            let Some(symbol) = SYMBOLS.into_iter().find(|s| text[at..].starts_with(s)) else {
                let shown = text[at..].chars().next().unwrap_or('?');
                return Err(Fault::new(at, format!("unexpected character ({shown})")));
            };
            found.push((at, Token::Symbol(symbol)));
            at += symbol.len();
        }
    }
    Ok(found)
}

fn is_word_start(byte: u8) -> bool {
    super::is_name_byte(byte) && !byte.is_ascii_digit()
}

fn digit_at(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(u8::is_ascii_digit)
}

fn word_end(bytes: &[u8], start: usize) -> usize {
    let rest = bytes[start..].iter().position(|&b| !super::is_name_byte(b));
    rest.map_or(bytes.len(), |length| start + length)
}

/// The end of `12`, `1.`, `.5`, `1e3`, `1.5E-2`.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let digits = |mut at: usize| {
        while digit_at(bytes, at) {
            at += 1;
        }
        at
    };
    let mut end = digits(start);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if digit_at(bytes, end + 1 + sign) {
            end = digits(end + 1 + sign);
        }
    }
    end
}

fn number(text: &str, at: usize) -> Result<Token, Fault> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let value = text.parse::<u64>().ok().filter(|&v| v <= 1 << 63);
        return value
            .map(Token::Int)
            .ok_or_else(|| Fault::new(at, format!("bigint constant overflow ({text})")));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Token::Double(value)),
        _ => Err(Fault::new(at, format!("double constant overflow ({text})"))),
    }
}
