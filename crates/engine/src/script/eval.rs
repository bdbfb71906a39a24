//! Computes expressions with pgbench's types and rules: NULL in, NULL out; integers overflow
//! as errors; a double on either side makes the result a double.

use super::random::Random;
use super::{Expr, Function, Slot};
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
    /// Text from the command line; becomes a typed value when an expression reads it.
    Text(Box<str>),
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
            Variable::Text(text) => out.put_slice(text.as_bytes()),
            Variable::Value(value) => value.write(out),
        }
        true
    }

    /// True where the variable is not set or NULL.
    #[must_use]
    pub fn is_null(&self, slot: Slot) -> bool {
        matches!(self.0[slot as usize], Variable::Unset | Variable::Value(Value::Null))
    }
}

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

    fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// As an integer; doubles round to the nearest even.
    pub(crate) fn int(self) -> Result<i64, String> {
        match self {
            Self::Int(value) => Ok(value),
            Self::Double(value) => {
                let rounded = value.round_ties_even();
                if rounded.is_nan() || !(-TWO_63..TWO_63).contains(&rounded) {
                    return Err(format!("double to int overflow for {value}"));
                }
                #[expect(clippy::cast_possible_truncation, reason = "range checked")]
                Ok(rounded as i64)
            }
            other => Err(format!("cannot coerce {} to int", other.type_name())),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "as pgbench does")]
    fn double(self) -> Result<f64, String> {
        match self {
            Self::Int(value) => Ok(value as f64),
            Self::Double(value) => Ok(value),
            other => Err(format!("cannot coerce {} to double", other.type_name())),
        }
    }

    fn bool(self) -> Result<bool, String> {
        match self {
            Self::Bool(value) => Ok(value),
            other => Err(format!("cannot coerce {} to boolean", other.type_name())),
        }
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

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// Appends a double with 15 significant digits, as C's `%.15g`.
fn write_double(value: f64, out: &mut impl BufMut) {
    if !value.is_finite() {
        let text = if value.is_nan() { "NaN" } else { "Infinity" };
        out.put_slice(if value < 0.0 { b"-" } else { b"" });
        out.put_slice(text.as_bytes());
        return;
    }
    let scientific = format!("{value:.14e}");
    let (digits, exponent) = scientific.split_once('e').expect("scientific notation");
    let exponent: i32 = exponent.parse().expect("an exponent");
    if (-4..15).contains(&exponent) {
        let decimals = usize::try_from(14 - exponent).expect("not negative");
        let text = format!("{value:.decimals$}");
        out.put_slice(without_trailing_zeros(&text).as_bytes());
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let digits = without_trailing_zeros(digits);
        out.put_slice(format!("{digits}e{sign}{:02}", exponent.abs()).as_bytes());
    }
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The typed value of a text, as pgbench guesses it.
///
/// # Errors
/// Text that is neither a number, a boolean nor null.
pub fn value_of_text(text: &str) -> Result<Value, String> {
    let trimmed = text.trim();
    let lower = trimmed.to_ascii_lowercase();
    let starts = |word: &str| !lower.is_empty() && word.starts_with(&lower);
    if lower == "null" {
        Ok(Value::Null)
    } else if starts("true") || starts("yes") || lower == "on" {
        Ok(Value::Bool(true))
    } else if starts("false") || starts("no") || lower == "off" || lower == "of" {
        Ok(Value::Bool(false))
    } else if let Ok(value) = trimmed.parse() {
        Ok(Value::Int(value))
    } else {
        let looks_numeric = lower.bytes().all(|b| b"0123456789.+-e".contains(&b));
        match trimmed.parse() {
            Ok(value) if looks_numeric => Ok(Value::Double(value)),
            _ => Err(text.to_owned()),
        }
    }
}

/// What an expression may read and change.
pub struct Scope<'a> {
    /// The client's variables.
    pub variables: &'a Variables,
    /// The client's stream for random functions.
    pub random: &'a mut Random,
}

impl Scope<'_> {
    /// The value of `expr`.
    ///
    /// # Errors
    /// What pgbench would abort the client with, as a sentence: a division by zero, an
    /// overflow, a type that does not fit, a variable that was never set.
    pub fn eval(&mut self, expr: &Expr) -> Result<Value, String> {
        match expr {
            Expr::Constant(value) => Ok(*value),
            Expr::Variable(slot) => self.variable(*slot),
            Expr::Case(branches, otherwise) => {
                for (condition, value) in branches {
                    if self.eval(condition)?.is_true() {
                        return self.eval(value);
                    }
                }
                self.eval(otherwise)
            }
            Expr::Call(function, arguments) => self.call(*function, arguments),
        }
    }

    fn variable(&self, slot: Slot) -> Result<Value, String> {
        match &self.variables.0[slot as usize] {
            Variable::Unset => Err("undefined variable".to_owned()),
            Variable::Value(value) => Ok(*value),
            Variable::Text(text) => {
                value_of_text(text).map_err(|text| format!("malformed variable value: \"{text}\""))
            }
        }
    }

    fn call(&mut self, function: Function, arguments: &[Expr]) -> Result<Value, String> {
        match function {
            Function::And | Function::Or => return self.logic(function, arguments),
            Function::Is => {
                let (left, right) = (self.eval(&arguments[0])?, self.eval(&arguments[1])?);
                return Ok(Value::Bool(is(left, right)));
            }
            Function::Greatest | Function::Least => return self.extreme(function, arguments),
            _ => {}
        }
        let mut values = [Value::Null; 3];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = self.eval(argument)?;
            if *value == Value::Null {
                return Ok(Value::Null);
            }
        }
        let [a, b, c] = values;
        match function {
            Function::Random
            | Function::RandomExponential
            | Function::RandomGaussian
            | Function::RandomZipfian => self.draw(function, a, b, c),
            Function::Not => Ok(Value::Bool(!a.bool()?)),
            Function::Abs | Function::Double | Function::Int => convert(function, a),
            Function::Exp | Function::Ln | Function::Sqrt | Function::Pow | Function::Pi => {
                real(function, a, b)
            }
            Function::Modulo
            | Function::BitAnd
            | Function::BitOr
            | Function::BitXor
            | Function::ShiftLeft
            | Function::ShiftRight => bits(function, a.int()?, b.int()?),
            _ => arithmetic(function, a, b),
        }
    }

    fn logic(&mut self, function: Function, arguments: &[Expr]) -> Result<Value, String> {
        let left = self.eval(&arguments[0])?;
        if left == Value::Null {
            return Ok(Value::Null);
        }
        let decided = function == Function::Or;
        if left.bool()? == decided {
            return Ok(Value::Bool(decided));
        }
        match self.eval(&arguments[1])? {
            Value::Null => Ok(Value::Null),
            right => Ok(Value::Bool(right.bool()?)),
        }
    }

    fn extreme(&mut self, function: Function, arguments: &[Expr]) -> Result<Value, String> {
        let mut best = self.eval(&arguments[0])?;
        for argument in &arguments[1..] {
            let next = self.eval(argument)?;
            if best == Value::Null || next == Value::Null {
                best = Value::Null;
                continue;
            }
            let (low, high) = match function {
                Function::Greatest => (best, next),
                _ => (next, best),
            };
            best = promoted(best, next, arithmetic(Function::Less, low, high)?.is_true())?;
        }
        Ok(best)
    }

    fn draw(&mut self, function: Function, a: Value, b: Value, c: Value) -> Result<Value, String> {
        let (low, high) = (a.int()?, b.int()?);
        if low > high {
            return Err("empty range given to random".to_owned());
        }
        if high.checked_sub(low).and_then(|span| span.checked_add(1)).is_none() {
            return Err("random range is too large".to_owned());
        }
        if function == Function::Random {
            return Ok(Value::Int(self.random.uniform(low, high)));
        }
        let shape = c.double()?;
        Ok(Value::Int(match function {
            Function::RandomExponential if shape > 0.0 => self.random.exponential(low, high, shape),
            Function::RandomGaussian if shape >= 2.0 => self.random.gaussian(low, high, shape),
            Function::RandomZipfian if (1.001..=1000.0).contains(&shape) => {
                self.random.zipfian(low, high, shape)
            }
            _ => return Err(shape_error(function, shape)),
        }))
    }
}

fn shape_error(function: Function, shape: f64) -> String {
    match function {
        Function::RandomExponential => {
            format!("exponential parameter must be greater than zero (not {shape:.6})")
        }
        Function::RandomGaussian => {
            format!("gaussian parameter must be at least 2.000000 (not {shape:.6})")
        }
        _ => format!("zipfian parameter must be in range [1.001, 1000] (not {shape:.6})"),
    }
}

/// `IS`: same type and same value; NULL is NULL.
fn is(left: Value, right: Value) -> bool {
    match (left, right) {
        (Value::Int(_), Value::Double(_)) | (Value::Double(_), Value::Int(_)) => false,
        _ => left == right,
    }
}

/// The better of two, as a double where either is one.
fn promoted(best: Value, next: Value, take_next: bool) -> Result<Value, String> {
    let chosen = if take_next { next } else { best };
    match (best, next) {
        (Value::Double(_), _) | (_, Value::Double(_)) => Ok(Value::Double(chosen.double()?)),
        _ => Ok(chosen),
    }
}

fn convert(function: Function, a: Value) -> Result<Value, String> {
    Ok(match (function, a) {
        (Function::Abs, Value::Double(value)) => Value::Double(value.abs()),
        (Function::Abs, _) => Value::Int(a.int()?.wrapping_abs()),
        (Function::Double, _) => Value::Double(a.double()?),
        _ => Value::Int(a.int()?),
    })
}

fn real(function: Function, a: Value, b: Value) -> Result<Value, String> {
    Ok(Value::Double(match function {
        Function::Pi => std::f64::consts::PI,
        Function::Pow => a.double()?.powf(b.double()?),
        Function::Exp => a.double()?.exp(),
        Function::Ln => a.double()?.ln(),
        _ => a.double()?.sqrt(),
    }))
}

#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "shifts wrap as in C")]
fn bits(function: Function, a: i64, b: i64) -> Result<Value, String> {
    Ok(Value::Int(match function {
        Function::Modulo if b == 0 => return Err("division by zero".to_owned()),
        Function::Modulo => a.wrapping_rem(b),
        Function::BitAnd => a & b,
        Function::BitOr => a | b,
        Function::BitXor => a ^ b,
        Function::ShiftLeft => a.wrapping_shl(b as u32),
        _ => a.wrapping_shr(b as u32),
    }))
}

fn arithmetic(function: Function, a: Value, b: Value) -> Result<Value, String> {
    match (a, b) {
        (Value::Double(_), _) | (_, Value::Double(_)) => reals(function, a.double()?, b.double()?),
        (Value::Bool(a), Value::Bool(b)) if function == Function::Equal => Ok(Value::Bool(a == b)),
        (Value::Bool(a), Value::Bool(b)) if function == Function::NotEqual => {
            Ok(Value::Bool(a != b))
        }
        _ => integers(function, a.int()?, b.int()?),
    }
}

#[expect(clippy::float_cmp, reason = "the language compares doubles exactly")]
fn reals(function: Function, a: f64, b: f64) -> Result<Value, String> {
    Ok(match function {
        Function::Add => Value::Double(a + b),
        Function::Subtract => Value::Double(a - b),
        Function::Multiply => Value::Double(a * b),
        Function::Divide => Value::Double(a / b),
        Function::Equal => Value::Bool(a == b),
        Function::NotEqual => Value::Bool(a != b),
        Function::Less => Value::Bool(a < b),
        Function::LessOrEqual => Value::Bool(a <= b),
        other => return Err(format!("{other:?} does not take numbers")),
    })
}

fn integers(function: Function, a: i64, b: i64) -> Result<Value, String> {
    let out_of_range = |what: &str| format!("bigint {what} out of range");
    Ok(match function {
        Function::Add => Value::Int(a.checked_add(b).ok_or_else(|| out_of_range("add"))?),
        Function::Subtract => Value::Int(a.checked_sub(b).ok_or_else(|| out_of_range("sub"))?),
        Function::Multiply => Value::Int(a.checked_mul(b).ok_or_else(|| out_of_range("mul"))?),
        Function::Divide if b == 0 => return Err("division by zero".to_owned()),
        Function::Divide => Value::Int(a.checked_div(b).ok_or_else(|| out_of_range("div"))?),
        Function::Equal => Value::Bool(a == b),
        Function::NotEqual => Value::Bool(a != b),
        Function::Less => Value::Bool(a < b),
        Function::LessOrEqual => Value::Bool(a <= b),
        other => return Err(format!("{other:?} does not take numbers")),
    })
}
