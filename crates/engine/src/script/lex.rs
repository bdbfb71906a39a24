//! Words and tokens of meta commands. Knows where they end, nothing of grammar.

use super::functions::Operator;
use super::names::{is_name_start, name_length};
use super::number::double_of_text;

/// A token of an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    /// The end of the line or of the script.
    End,
    /// An integer constant.
    Int(i64),
    /// 2^63, which only a minus can make an integer.
    TwoTo63,
    /// A constant with a point or an exponent.
    Double(f64),
    /// `:name`.
    Variable(&'a [u8]),
    /// A name that is no keyword.
    Function(&'a [u8]),
    /// A keyword.
    Keyword(Keyword),
    /// An operator between two operands, or a sign.
    Operator(Operator),
    /// `>`, which is `<` from the right to the left.
    Greater,
    /// `>=`, likewise.
    GreaterOrEqual,
    /// `~`.
    Tilde,
    /// `(`.
    Open,
    /// `)`.
    Close,
    /// `,`.
    Comma,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    And,
    Case,
    Else,
    End,
    False,
    Is,
    IsNull,
    Not,
    NotNull,
    Null,
    Or,
    Then,
    True,
    When,
}

const KEYWORDS: [(&[u8], Keyword); 14] = [
    (b"and", Keyword::And),
    (b"case", Keyword::Case),
    (b"else", Keyword::Else),
    (b"end", Keyword::End),
    (b"false", Keyword::False),
    (b"is", Keyword::Is),
    (b"isnull", Keyword::IsNull),
    (b"not", Keyword::Not),
    (b"notnull", Keyword::NotNull),
    (b"null", Keyword::Null),
    (b"or", Keyword::Or),
    (b"then", Keyword::Then),
    (b"true", Keyword::True),
    (b"when", Keyword::When),
];

/// What is wrong, and the offset of the byte that a caret points at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) at: usize,
    pub(super) message: String,
}

/// Reads the line of a meta command.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    /// The offset of what comes next; after the newline once the end was reported.
    pub(super) at: usize,
    ended: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at, ended: false }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// Passes blanks and continued line ends; true at the end of the command, which it passes
    /// too. A carriage return is a blank.
    fn at_end(&mut self) -> bool {
        while !self.ended {
            let continued = continuation(self.rest());
            match self.rest().first() {
                None => self.ended = true,
                Some(b'\n') => {
                    self.at += 1;
                    self.ended = true;
                }
                Some(b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c') => self.at += 1,
                _ if continued > 0 => self.at += continued,
                Some(_) => break,
            }
        }
        self.ended
    }

    /// The next word with its offset: what stands between blanks.
    pub(super) fn word(&mut self) -> Option<(usize, &'a [u8])> {
        if self.at_end() {
            return None;
        }
        let start = self.at;
        while let Some(&byte) = self.rest().first() {
            let ends = matches!(byte, b' ' | b'\t'..=b'\r')
                || (byte == b'\\' && continuation(self.rest()) > 0);
            if ends {
                break;
            }
            self.at += 1;
        }
        Some((start, &self.text[start..self.at]))
    }

    /// The next token of an expression.
    pub(super) fn token(&mut self) -> Result<Token<'a>, SyntaxError> {
        if self.at_end() {
            return Ok(Token::End);
        }
        let rest = self.rest();
        let (length, token) = match rest[0] {
            b'0'..=b'9' => return self.number(),
            b'.' if rest.get(1).is_some_and(u8::is_ascii_digit) => return self.number(),
            b':' if name_length(&rest[1..]) > 0 => {
                let length = 1 + name_length(&rest[1..]);
                (length, Token::Variable(&rest[1..length]))
            }
            byte if is_name_start(byte) => {
                let length = name_length(rest);
                (length, name(&rest[..length]))
            }
            byte => match symbol(rest) {
                Some(found) => found,
                None => {
                    self.at += 1;
                    let shown = String::from_utf8_lossy(&[byte]).into_owned();
                    return Err(self.fault(format!("unexpected character ({shown})")));
                }
            },
        };
        self.at += length;
        Ok(token)
    }

    fn number(&mut self) -> Result<Token<'a>, SyntaxError> {
        let length = number_length(self.rest());
        let text = &self.rest()[..length];
        self.at += length;
        let shown = std::str::from_utf8(text).expect("ASCII");
        if !text.iter().all(u8::is_ascii_digit) {
            return double_of_text(text)
                .map(Token::Double)
                .ok_or_else(|| self.fault(format!("double constant overflow ({shown})")));
        }
        if shown == "9223372036854775808" {
            return Ok(Token::TwoTo63);
        }
        shown
            .parse()
            .map(Token::Int)
            .map_err(|_| self.fault(format!("bigint constant overflow ({shown})")))
    }

    /// Something is wrong with what was read last.
    pub(super) fn fault(&self, message: String) -> SyntaxError {
        SyntaxError { at: self.at.saturating_sub(1), message }
    }
}

/// How long the backslash and line end are that `text` begins with, if it does.
fn continuation(text: &[u8]) -> usize {
    match text {
        [b'\\', b'\n', ..] => 2,
        [b'\\', b'\r', b'\n', ..] => 3,
        _ => 0,
    }
}

fn name(word: &[u8]) -> Token<'_> {
    let keyword = KEYWORDS.iter().find(|(spelled, _)| word.eq_ignore_ascii_case(spelled));
    keyword.map_or(Token::Function(word), |&(_, keyword)| Token::Keyword(keyword))
}

fn symbol(text: &[u8]) -> Option<(usize, Token<'static>)> {
    let two = match text {
        [b'<', b'<', ..] => Some(Token::Operator(Operator::ShiftLeft)),
        [b'>', b'>', ..] => Some(Token::Operator(Operator::ShiftRight)),
        [b'<', b'=', ..] => Some(Token::Operator(Operator::LessOrEqual)),
        [b'>', b'=', ..] => Some(Token::GreaterOrEqual),
        [b'<', b'>', ..] | [b'!', b'=', ..] => Some(Token::Operator(Operator::NotEqual)),
        _ => None,
    };
    if let Some(token) = two {
        return Some((2, token));
    }
    let token = match text.first()? {
        b'+' => Token::Operator(Operator::Add),
        b'-' => Token::Operator(Operator::Subtract),
        b'*' => Token::Operator(Operator::Multiply),
        b'/' => Token::Operator(Operator::Divide),
        b'%' => Token::Operator(Operator::Modulo),
        b'=' => Token::Operator(Operator::Equal),
        b'<' => Token::Operator(Operator::Less),
        b'>' => Token::Greater,
        b'|' => Token::Operator(Operator::BitOr),
        b'#' => Token::Operator(Operator::BitXor),
        b'&' => Token::Operator(Operator::BitAnd),
        b'~' => Token::Tilde,
        b'(' => Token::Open,
        b')' => Token::Close,
        b',' => Token::Comma,
        _ => return None,
    };
    Some((1, token))
}

/// The length of `12`, `1.`, `.5`, `1e3`, `1.5E-2`.
fn number_length(text: &[u8]) -> usize {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let mut length = digits(0);
    if text.get(length) == Some(&b'.') {
        length = digits(length + 1);
    }
    if let Some(b'e' | b'E') = text.get(length) {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'+' | b'-')));
        let start = length + 1 + sign;
        if digits(start) > start {
            length = digits(start);
        }
    }
    length
}
