//! Values, what variables hold, and how text and values become each other.

use super::Slot;
use super::number::{double_of_text, fixed, is_space, write_double};
use bytes::BufMut;

/// A value of an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the four types of the language")]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
}

/// What a variable holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Variable {
    /// It was never set.
    #[default]
    Unset,
    /// Text from the command line or the server; becomes a typed value when an expression reads
    /// it.
    Text(Vec<u8>),
    /// Text that stays the same, with the value that it has.
    Typed(Vec<u8>, Value),
    /// A value set by a script.
    Value(Value),
}

/// A client's variables, by slot.
#[derive(Debug, Clone, Default)]
pub struct Variables(pub Vec<Variable>);

impl Variables {
    /// Appends the variable's text to `out`; false where it is not set.
    pub fn write(&self, slot: Slot, out: &mut impl BufMut) -> bool {
        match &self.0[slot as usize] {
            Variable::Unset => return false,
            Variable::Text(text) | Variable::Typed(text, _) => out.put_slice(text),
            Variable::Value(value) => value.write(out),
        }
        true
    }

    /// Assigns text, in the memory of the text that was there before.
    pub fn set_text(&mut self, slot: Slot, text: &[u8]) {
        match &mut self.0[slot as usize] {
            Variable::Text(old) => {
                old.clear();
                old.extend_from_slice(text);
            }
            variable => *variable = Variable::Text(text.to_vec()),
        }
    }

    /// Assigns a value.
    pub fn set(&mut self, slot: Slot, value: Value) {
        self.0[slot as usize] = Variable::Value(value);
    }
}

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

impl Value {
    /// Appends the value as pgbench prints it.
    pub fn write(self, out: &mut impl BufMut) {
        match self {
            Self::Null => out.put_slice(b"NULL"),
            Self::Bool(value) => out.put_slice(if value { b"true" } else { b"false" }),
            Self::Int(value) => out.put_slice(itoa::Buffer::new().format(value).as_bytes()),
            Self::Double(value) => write_double(value, out),
        }
    }

    const fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// As an integer; doubles round to the nearest even.
    ///
    /// # Errors
    /// A double out of range, NULL or a boolean.
    #[inline]
    pub fn int(self) -> Result<i64, String> {
        match self {
            Self::Int(value) => Ok(value),
            other => other.rounded(),
        }
    }

    #[cold]
    fn rounded(self) -> Result<i64, String> {
        let Self::Double(value) = self else {
            return Err(self.not_a("int"));
        };
        let rounded = value.round_ties_even();
        if rounded.is_nan() || !(-TWO_63..TWO_63).contains(&rounded) {
            return Err(format!("double to int overflow for {}", fixed(rounded)));
        }
        #[expect(clippy::cast_possible_truncation, reason = "range checked")]
        Ok(rounded as i64)
    }

    /// As a double.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "as pgbench does")]
    pub(super) fn double(self) -> Result<f64, String> {
        match self {
            Self::Int(value) => Ok(value as f64),
            Self::Double(value) => Ok(value),
            other => Err(other.not_a("double")),
        }
    }

    /// As a boolean; numbers are none.
    #[inline]
    pub(super) fn bool(self) -> Result<bool, String> {
        match self {
            Self::Bool(value) => Ok(value),
            other => Err(other.not_a("boolean")),
        }
    }

    #[cold]
    fn not_a(self, wanted: &str) -> String {
        format!("cannot coerce {} to {wanted}", self.type_name())
    }

    /// Whether a CASE or `\if` takes the branch: NULL and zero do not.
    #[must_use]
    pub fn is_true(self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => value,
            Self::Int(value) => value != 0,
            Self::Double(value) => value != 0.0,
        }
    }
}

/// Why a text has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It is neither a number, nor a boolean, nor null.
    NoValue,
    /// It begins as an integer does and then ends.
    NoDigits,
    /// It is an integer that 64 bits do not hold.
    OutOfRange,
}

impl Malformed {
    /// The sentence about a variable with that text.
    #[must_use]
    pub fn message(self, name: &[u8], text: &[u8]) -> String {
        let (name, text) = (String::from_utf8_lossy(name), String::from_utf8_lossy(text));
        match self {
            Self::NoValue => format!("malformed variable \"{name}\" value: \"{text}\""),
            Self::NoDigits => format!("invalid input syntax for type bigint: \"{text}\""),
            Self::OutOfRange => format!("value \"{text}\" is out of range for type bigint"),
        }
    }
}

/// The typed value of a text, as pgbench guesses it.
///
/// # Errors
/// Text that has none.
pub fn value_of_text(text: &[u8]) -> Result<Value, Malformed> {
    if text.is_empty() {
        return Err(Malformed::NoValue);
    }
    let is = |word: &[u8]| text.eq_ignore_ascii_case(word);
    let starts = |word: &[u8]| word.get(..text.len()).is_some_and(is);
    if text[0].is_ascii_alphabetic() {
        if is(b"null") {
            return Ok(Value::Null);
        }
        if starts(b"true") || starts(b"yes") || is(b"on") {
            return Ok(Value::Bool(true));
        }
        if starts(b"false") || starts(b"no") || is(b"off") || is(b"of") {
            return Ok(Value::Bool(false));
        }
    }
    match integer(text)? {
        Some(value) => Ok(Value::Int(value)),
        None => double_of_text(text).map(Value::Double).ok_or(Malformed::NoValue),
    }
}

/// Blanks, a sign and digits; nothing where something else stands among them.
fn integer(text: &[u8]) -> Result<Option<i64>, Malformed> {
    let mut rest = text;
    while let [blank, tail @ ..] = rest
        && is_space(*blank)
    {
        rest = tail;
    }
    let digits = rest.strip_prefix(b"-").or_else(|| rest.strip_prefix(b"+")).unwrap_or(rest);
    if !digits.iter().all(u8::is_ascii_digit) {
        return Ok(None);
    }
    let number = std::str::from_utf8(rest).expect("ASCII");
    if digits.is_empty() {
        return Err(Malformed::NoDigits);
    }
    number.parse().map(Some).map_err(|_| Malformed::OutOfRange)
}
