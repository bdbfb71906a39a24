//! Runs compiled expressions on a stack of values. No clock, no socket; what `debug` notes is
//! the caller's to print.

pub use super::program::Program;
pub use super::value::{Malformed, Value, Variable, Variables, value_of_text};

use super::expr::ARGUMENTS_MAX;
use super::functions::{call, operate};
use super::number::fixed;
use super::program::{Draw, Op, bounds};
use super::random::Random;
use super::{Names, Slot};

/// Programs that need no more values than this find room on the machine's stack.
const SHALLOW: usize = 8;

/// What an expression may read and change.
pub struct Scope<'a> {
    /// The client's variables.
    pub variables: &'a Variables,
    /// What they are called, for messages.
    pub names: &'a Names,
    /// The client's stream for random functions.
    pub random: &'a mut Random,
    /// Takes what `debug` is given.
    pub debug: &'a mut Vec<Value>,
}

impl Scope<'_> {
    /// The value of an expression.
    ///
    /// # Errors
    /// What pgbench would abort the client with, as a sentence: a division by zero, an
    /// overflow, a type that does not fit, a variable that was never set.
    pub fn eval(&mut self, program: &Program) -> Result<Value, String> {
        if let [Op::Between(low, high)] = *program.ops {
            Ok(Value::Int(self.random.uniform(low, high)))
        } else if program.depth <= SHALLOW {
            self.run(&program.ops, &mut [Value::Null; SHALLOW])
        } else {
            self.run(&program.ops, &mut vec![Value::Null; program.depth])
        }
    }

    fn run(&mut self, ops: &[Op], stack: &mut [Value]) -> Result<Value, String> {
        let (mut at, mut top) = (0, 0);
        while let Some(op) = ops.get(at) {
            at += 1;
            match *op {
                Op::Constant(value) => {
                    stack[top] = value;
                    top += 1;
                }
                Op::Variable(slot) => {
                    stack[top] = self.variable(slot)?;
                    top += 1;
                }
                Op::Operate(operator) => {
                    top -= 1;
                    stack[top - 1] = operate(operator, stack[top - 1], stack[top])?;
                }
                Op::Call(function, count) => {
                    let start = top - usize::from(count);
                    stack[start] = call(function, &stack[start..top])?;
                    top = start + 1;
                }
                Op::TooMany(_) => {
                    let most = ARGUMENTS_MAX;
                    return Err(format!("too many function arguments, maximum is {most}"));
                }
                Op::Draw(Draw::Uniform) => {
                    top -= 1;
                    stack[top - 1] = self.uniform(stack[top - 1], stack[top])?;
                }
                Op::Between(low, high) => {
                    stack[top] = Value::Int(self.random.uniform(low, high));
                    top += 1;
                }
                Op::Draw(draw) => {
                    let start = top - draw.arguments();
                    stack[start] = self.draw(draw, &stack[start..top])?;
                    top = start + 1;
                }
                Op::Debug => self.debug.push(stack[top - 1]),
                Op::And(jump) => (at, top) = decide(false, stack, (at, top), jump)?,
                Op::Or(jump) => (at, top) = decide(true, stack, (at, top), jump)?,
                Op::Check => {
                    if stack[top - 1] != Value::Null {
                        stack[top - 1].bool()?;
                    }
                }
                Op::Branch(jump) => {
                    top -= 1;
                    at += if stack[top].is_true() { 0 } else { jump as usize };
                }
                Op::Jump(jump) => at += jump as usize,
            }
        }
        Ok(stack[0])
    }

    #[inline]
    fn variable(&self, slot: Slot) -> Result<Value, String> {
        match &self.variables.0[slot as usize] {
            Variable::Value(value) | Variable::Typed(_, value) => Ok(*value),
            Variable::Text(text) => {
                value_of_text(text).map_err(|error| error.message(self.names.name(slot), text))
            }
            Variable::Unset => Err(self.undefined(slot)),
        }
    }

    #[cold]
    fn undefined(&self, slot: Slot) -> String {
        format!("undefined variable \"{}\"", String::from_utf8_lossy(self.names.name(slot)))
    }

    #[inline]
    fn uniform(&mut self, low: Value, high: Value) -> Result<Value, String> {
        if low == Value::Null || high == Value::Null {
            return Ok(Value::Null);
        }
        let (low, high) = (low.int()?, high.int()?);
        bounds(low, high)?;
        Ok(Value::Int(self.random.uniform(low, high)))
    }

    /// Draws from a distribution with a shape.
    #[inline(never)]
    fn draw(&mut self, draw: Draw, values: &[Value]) -> Result<Value, String> {
        if values.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        let (low, high) = (values[0].int()?, values[1].int()?);
        bounds(low, high)?;
        let shape = values[2].double()?;
        Ok(Value::Int(match draw {
            Draw::Exponential if shape > 0.0 => self.random.exponential(low, high, shape),
            Draw::Gaussian if shape >= 2.0 => self.random.gaussian(low, high, shape),
            Draw::Zipfian if (1.001..=1000.0).contains(&shape) => {
                self.random.zipfian(low, high, shape)
            }
            _ => return Err(shape_error(draw, shape)),
        }))
    }
}

/// AND and OR after their left side: where it decides, or is NULL, it is the value and the right
/// side is skipped.
fn decide(
    deciding: bool,
    stack: &[Value],
    (at, top): (usize, usize),
    jump: u32,
) -> Result<(usize, usize), String> {
    let left = stack[top - 1];
    if left == Value::Null || left.bool()? == deciding {
        return Ok((at + jump as usize, top));
    }
    Ok((at, top - 1))
}

#[cold]
fn shape_error(draw: Draw, shape: f64) -> String {
    let expected = match draw {
        Draw::Exponential => "exponential parameter must be greater than zero",
        Draw::Gaussian => "gaussian parameter must be at least 2.000000",
        _ => "zipfian parameter must be in range [1.001, 1000]",
    };
    format!("{expected} (not {})", fixed(shape))
}
