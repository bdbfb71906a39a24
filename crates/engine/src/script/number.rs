//! Numbers from text and to text as C's `strtod` and `%.15g` have them. Knows no variables.

use bytes::BufMut;
use std::fmt::Write as _;

/// Significant digits of a double that is written.
const DIGITS: usize = 15;

/// True for C's `isspace`.
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The double that the whole of `text` is to `strtod`: blanks before it, decimal or hexadecimal,
/// `inf`, `nan`. Nothing where it is none, or out of range on either side.
pub(super) fn double_of_text(text: &[u8]) -> Option<f64> {
    let text = trim_start(text);
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let magnitude = match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits)?,
        [b'0'..=b'9' | b'.', ..] => decimal(text)?,
        _ => named(text)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// The text after blanks; `trim_ascii_start` does not know vertical tabs.
fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&byte| is_space(byte)).count();
    &text[blanks..]
}

fn named(text: &[u8]) -> Option<f64> {
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        return Some(f64::INFINITY);
    }
    let (word, rest) = text.split_at_checked(3)?;
    let payload = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let whole = match rest {
        [] => true,
        [b'(', payloads @ .., b')'] => payloads.iter().all(payload),
        _ => false,
    };
    (word.eq_ignore_ascii_case(b"nan") && whole).then_some(f64::NAN)
}

/// `12`, `1.5`, `.5`, `5.`, `1e-3`; Rust's own grammar without its words.
fn decimal(text: &[u8]) -> Option<f64> {
    if !text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let mantissa = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_zero = mantissa.into_iter().all(|byte| matches!(byte, b'0' | b'.'));
    (value.is_normal() || (value == 0.0 && is_zero)).then_some(value)
}

/// What follows `0x`: digits with a point and a binary exponent.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let mut mantissa = 0u64;
    let (mut exponent, mut digits, mut point, mut at) = (0i64, 0usize, false, 0);
    while let Some(&byte) = text.get(at) {
        if byte == b'.' && !point {
            point = true;
        } else if let Some(digit) = char::from(byte).to_digit(16) {
            digits += 1;
            if mantissa >> 60 == 0 {
                mantissa = mantissa << 4 | u64::from(digit);
                exponent -= if point { 4 } else { 0 };
            } else {
                mantissa |= u64::from(digit != 0);
                exponent += if point { 0 } else { 4 };
            }
        } else {
            break;
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    match &text[at..] {
        [] => {}
        [b'p' | b'P', rest @ ..] => {
            let binary: i64 = std::str::from_utf8(rest).ok()?.parse().ok()?;
            exponent = exponent.saturating_add(binary);
        }
        _ => return None,
    }
    scaled(mantissa, exponent)
}

/// `mantissa * 2^exponent`, unless that overflows or loses digits to underflow.
#[expect(clippy::cast_precision_loss, reason = "strtod rounds too")]
fn scaled(mantissa: u64, exponent: i64) -> Option<f64> {
    let exponent = i32::try_from(exponent.clamp(-2400, 2400)).expect("clamped");
    let (half, rest) = (exponent / 2, exponent - exponent / 2);
    let value = mantissa as f64 * 2f64.powi(half) * 2f64.powi(rest);
    let exact = value / 2f64.powi(rest) / 2f64.powi(half) == mantissa as f64;
    (value.is_normal() || (value.is_finite() && exact)).then_some(value)
}

/// Text of bounded length on the stack.
struct Buffer {
    bytes: [u8; 32],
    length: usize,
}

impl std::fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Appends a double with 15 significant digits, as C's `%.15g`.
pub(super) fn write_double(value: f64, out: &mut impl BufMut) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_sign_negative() {
        out.put_u8(b'-');
    }
    if value.is_infinite() {
        return out.put_slice(b"Infinity");
    }
    let mut buffer = Buffer { bytes: [0; 32], length: 0 };
    write!(buffer, "{:.*e}", DIGITS - 1, value.abs()).expect("at most 21 bytes");
    let text = &buffer.bytes[..buffer.length];
    let exponent = exponent_of(&text[DIGITS + 2..]);
    // The point after the first digit is in the way of layout.
    let mut digits = [0; DIGITS];
    digits[0] = text[0];
    digits[1..].copy_from_slice(&text[2..=DIGITS]);
    let significant = DIGITS - digits.iter().rev().take_while(|&&digit| digit == b'0').count();
    lay_out(&digits, significant.max(1), exponent, out);
}

/// A small integer from its text.
fn exponent_of(text: &[u8]) -> i32 {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        _ => (1, text),
    };
    sign * digits.iter().fold(0, |value, &digit| value * 10 + i32::from(digit - b'0'))
}

fn lay_out(digits: &[u8; DIGITS], significant: usize, exponent: i32, out: &mut impl BufMut) {
    match usize::try_from(exponent) {
        Ok(exponent) if exponent < DIGITS => {
            out.put_slice(&digits[..=exponent]);
            if significant > exponent + 1 {
                out.put_u8(b'.');
                out.put_slice(&digits[exponent + 1..significant]);
            }
        }
        Err(_) if exponent >= -4 => {
            out.put_slice(&b"0.0000"[..1 + usize::try_from(-exponent).expect("up to 4")]);
            out.put_slice(&digits[..significant]);
        }
        _ => {
            out.put_u8(digits[0]);
            if significant > 1 {
                out.put_u8(b'.');
                out.put_slice(&digits[1..significant]);
            }
            out.put_slice(if exponent < 0 { b"e-" } else { b"e+" });
            if exponent.abs() < 10 {
                out.put_u8(b'0');
            }
            out.put_slice(itoa::Buffer::new().format(exponent.abs()).as_bytes());
        }
    }
}

/// A double as C's `%f` in PostgreSQL's messages.
pub(super) fn fixed(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        format!("{}Infinity", if value < 0.0 { "-" } else { "" })
    } else {
        format!("{value:.6}")
    }
}
