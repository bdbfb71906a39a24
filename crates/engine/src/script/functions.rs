//! Operators and functions that depend on nothing but their arguments, with pgbench's types and
//! rules: NULL in, NULL out; integers overflow as errors; a double on either side makes the
//! result a double. Knows no variables and draws no numbers.

use super::hash::{fnv1a, murmur2, permute};
use super::value::Value;

/// Operators with two operands. `mod(a, b)` is one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

/// Functions whose value follows from their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Not,
    Is,
    Abs,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Permute,
    Pi,
    Pow,
    Sqrt,
}

/// The value of `left operator right`.
///
/// # Errors
/// An overflow, a division by zero, a type that does not fit.
#[inline]
pub(super) fn operate(operator: Operator, left: Value, right: Value) -> Result<Value, String> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => integers(operator, a, b),
        _ => mixed(operator, left, right),
    }
}

#[inline(never)]
fn mixed(operator: Operator, left: Value, right: Value) -> Result<Value, String> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Bool(a), Value::Bool(b)) if operator == Operator::Equal => Ok(Value::Bool(a == b)),
        (Value::Bool(a), Value::Bool(b)) if operator == Operator::NotEqual => {
            Ok(Value::Bool(a != b))
        }
        (Value::Double(_), _) | (_, Value::Double(_)) if takes_doubles(operator) => {
            Ok(doubles(operator, left.double()?, right.double()?))
        }
        _ => integers(operator, left.int()?, right.int()?),
    }
}

const fn takes_doubles(operator: Operator) -> bool {
    use Operator::{Add, Divide, Equal, Less, LessOrEqual, Multiply, NotEqual, Subtract};
    matches!(operator, Add | Subtract | Multiply | Divide | Equal | NotEqual | Less | LessOrEqual)
}

#[inline]
#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "shifts wrap as in C")]
fn integers(operator: Operator, a: i64, b: i64) -> Result<Value, String> {
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide => a.checked_div(b),
        Operator::Modulo if b == 0 => None,
        Operator::Modulo => Some(a.wrapping_rem(b)),
        Operator::BitAnd => Some(a & b),
        Operator::BitOr => Some(a | b),
        Operator::BitXor => Some(a ^ b),
        Operator::ShiftLeft => Some(a.wrapping_shl(b as u32)),
        Operator::ShiftRight => Some(a.wrapping_shr(b as u32)),
        Operator::Equal => return Ok(Value::Bool(a == b)),
        Operator::NotEqual => return Ok(Value::Bool(a != b)),
        Operator::Less => return Ok(Value::Bool(a < b)),
        Operator::LessOrEqual => return Ok(Value::Bool(a <= b)),
    };
    match result {
        Some(value) => Ok(Value::Int(value)),
        None => Err(no_integer(operator, b)),
    }
}

/// Why two integers have no result.
#[cold]
fn no_integer(operator: Operator, divisor: i64) -> String {
    let what = match operator {
        Operator::Add => "add",
        Operator::Subtract => "sub",
        Operator::Multiply => "mul",
        _ if divisor == 0 => return "division by zero".to_owned(),
        _ => "div",
    };
    format!("bigint {what} out of range")
}

#[expect(clippy::float_cmp, reason = "the language compares doubles exactly")]
fn doubles(operator: Operator, a: f64, b: f64) -> Value {
    match operator {
        Operator::Add => Value::Double(a + b),
        Operator::Subtract => Value::Double(a - b),
        Operator::Multiply => Value::Double(a * b),
        Operator::Divide => Value::Double(a / b),
        Operator::Equal => Value::Bool(a == b),
        Operator::NotEqual => Value::Bool(a != b),
        Operator::Less => Value::Bool(a < b),
        _ => Value::Bool(a <= b),
    }
}

/// The value of a function; `values` are as many as the grammar lets it have.
///
/// # Errors
/// A type that does not fit, or an argument out of range.
pub(super) fn call(function: Function, values: &[Value]) -> Result<Value, String> {
    if function == Function::Is {
        return Ok(Value::Bool(is(values[0], values[1])));
    }
    if values.contains(&Value::Null) {
        return Ok(Value::Null);
    }
    match function {
        Function::Not => Ok(Value::Bool(!values[0].bool()?)),
        Function::Abs => absolute(values[0]),
        Function::Double => Ok(Value::Double(values[0].double()?)),
        Function::Int => Ok(Value::Int(values[0].int()?)),
        Function::Exp => Ok(Value::Double(values[0].double()?.exp())),
        Function::Ln => Ok(Value::Double(values[0].double()?.ln())),
        Function::Sqrt => Ok(Value::Double(values[0].double()?.sqrt())),
        Function::Pi => Ok(Value::Double(std::f64::consts::PI)),
        Function::Pow => Ok(Value::Double(values[0].double()?.powf(values[1].double()?))),
        Function::Greatest | Function::Least => extreme(function, values),
        Function::HashFnv1a => Ok(Value::Int(fnv1a(values[0].int()?, values[1].int()?))),
        Function::HashMurmur2 => Ok(Value::Int(murmur2(values[0].int()?, values[1].int()?))),
        Function::Permute => permuted(values[0].int()?, values[1].int()?, values[2].int()?),
        Function::Is => unreachable!("has its value already"),
    }
}

/// `IS`: same type and same value; NULL is NULL.
fn is(left: Value, right: Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        _ => false,
    }
}

fn absolute(value: Value) -> Result<Value, String> {
    match value {
        // The sign of a zero stays, as in pgbench.
        Value::Double(value) => Ok(Value::Double(if value < 0.0 { -value } else { value })),
        other => Ok(Value::Int(other.int()?.wrapping_abs())),
    }
}

/// The smallest or largest, as a double where any of them is one.
fn extreme(function: Function, values: &[Value]) -> Result<Value, String> {
    let is_greatest = function == Function::Greatest;
    if values.iter().any(|value| matches!(value, Value::Double(_))) {
        let mut best = values[0].double()?;
        for value in &values[1..] {
            let next = value.double()?;
            // Written so that what is not a number loses to what follows it.
            let stays = if is_greatest { best > next } else { best < next };
            best = if stays { best } else { next };
        }
        return Ok(Value::Double(best));
    }
    let mut best = values[0].int()?;
    for value in &values[1..] {
        let next = value.int()?;
        best = if is_greatest { best.max(next) } else { best.min(next) };
    }
    Ok(Value::Int(best))
}

fn permuted(value: i64, size: i64, seed: i64) -> Result<Value, String> {
    if size <= 0 {
        return Err("permute size parameter must be greater than zero".to_owned());
    }
    Ok(Value::Int(permute(value, size, seed)))
}
