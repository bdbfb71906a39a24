//! A compiled expression: operations in postfix order, with jumps where something may be left
//! out. Running it needs no recursion, however long or deep the expression was.

use super::Slot;
use super::functions::{Function, Operator, call, operate};
use super::value::Value;

/// One operation. Operands are taken from the top of a stack of values, the result is put there.
/// Jumps go forwards, by this number of operations after the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Op {
    /// Puts a constant.
    Constant(Value),
    /// Puts a variable's value.
    Variable(Slot),
    /// An operator on two values.
    Operate(Operator),
    /// A function of this number of values.
    Call(Function, u8),
    /// A function on more values than any may have: fails.
    TooMany(u32),
    /// Draws a number; two bounds, and for most a shape.
    Draw(Draw),
    /// Draws a number between these bounds, which are in order and not too far apart.
    Between(i64, i64),
    /// Notes a value, which stays.
    Debug,
    /// Decides AND by its left side alone and jumps, or takes it away.
    And(u32),
    /// Decides OR by its left side alone and jumps, or takes it away.
    Or(u32),
    /// The right side of AND and OR must be a boolean or NULL.
    Check,
    /// Takes a condition away and jumps where it does not hold.
    Branch(u32),
    /// Jumps; the value on top is that of the CASE.
    Jump(u32),
}

/// Functions that draw a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Draw {
    Uniform,
    Exponential,
    Gaussian,
    Zipfian,
}

impl Draw {
    /// How many arguments it takes.
    pub(super) const fn arguments(self) -> usize {
        match self {
            Self::Uniform => 2,
            Self::Exponential | Self::Gaussian | Self::Zipfian => 3,
        }
    }
}

/// A compiled expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub(super) ops: Box<[Op]>,
    /// How many values lie on the stack at most.
    pub(super) depth: usize,
}

impl Program {
    /// Every variable it may read.
    pub(crate) fn variables(&self) -> impl Iterator<Item = Slot> {
        self.ops.iter().filter_map(|op| match op {
            Op::Variable(slot) => Some(*slot),
            _ => None,
        })
    }

    /// The same where some variables are known to stay what they are.
    pub(super) fn with(&self, known: &impl Fn(Slot) -> Option<Value>) -> Self {
        let jumps = |op: &Op| matches!(op, Op::And(_) | Op::Or(_) | Op::Branch(_) | Op::Jump(_));
        // What lies between jumps must stay as long as it is.
        let folds = !self.ops.iter().any(jumps);
        let mut builder = Builder::default();
        for &op in &self.ops {
            match op {
                Op::Variable(slot) => match known(slot) {
                    Some(value) => builder.constant(value),
                    None => builder.push(op),
                },
                Op::Operate(operator) if folds => builder.operate(operator),
                Op::Call(function, count) if folds => builder.call(function, count),
                Op::Draw(draw) if folds => builder.draw(draw),
                op => builder.push(op),
            }
        }
        builder.finish()
    }
}

/// Bounds that a number can be drawn between.
///
/// # Errors
/// Why not.
#[inline]
pub(super) fn bounds(low: i64, high: i64) -> Result<(), &'static str> {
    if low > high {
        return Err("empty range given to random");
    }
    match high.checked_sub(low) {
        None | Some(i64::MAX) => Err("random range is too large"),
        Some(_) => Ok(()),
    }
}

/// Puts a program together. Operands are built in the order in which they are computed.
#[derive(Debug, Default)]
pub(super) struct Builder {
    ops: Vec<Op>,
    /// Some jump lands here: what lies before must not be folded with what comes.
    landed: usize,
}

impl Builder {
    /// The place of the next operation.
    pub(super) fn here(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    pub(super) fn constant(&mut self, value: Value) {
        self.ops.push(Op::Constant(value));
    }

    pub(super) fn operate(&mut self, operator: Operator) {
        match self.constants(2) {
            Some(&[Op::Constant(left), Op::Constant(right)]) => {
                self.fold(2, operate(operator, left, right), Op::Operate(operator));
            }
            _ => self.ops.push(Op::Operate(operator)),
        }
    }

    pub(super) fn draw(&mut self, draw: Draw) {
        match self.constants(2) {
            Some(&[Op::Constant(Value::Int(low)), Op::Constant(Value::Int(high))])
                if draw == Draw::Uniform && bounds(low, high).is_ok() =>
            {
                self.ops.truncate(self.ops.len() - 2);
                self.ops.push(Op::Between(low, high));
            }
            _ => self.ops.push(Op::Draw(draw)),
        }
    }

    /// `count` is at most the most arguments that the grammar lets a function have.
    pub(super) fn call(&mut self, function: Function, count: u8) {
        let op = Op::Call(function, count);
        let count = usize::from(count);
        let Some(constants) = self.constants(count) else {
            return self.ops.push(op);
        };
        let values: Vec<Value> = constants
            .iter()
            .map(|op| if let Op::Constant(value) = op { *value } else { Value::Null })
            .collect();
        self.fold(count, call(function, &values), op);
    }

    /// The last `count` operations, if they are constants and the operands of what comes.
    fn constants(&self, count: usize) -> Option<&[Op]> {
        let start = self.ops.len().checked_sub(count)?;
        let last = &self.ops[start..];
        let all = last.iter().all(|op| matches!(op, Op::Constant(_)));
        (start >= self.landed && all).then_some(last)
    }

    /// Puts the value in the place of the constants that it follows from. An error stays to be
    /// met, or not, when the expression is computed.
    fn fold(&mut self, count: usize, value: Result<Value, String>, op: Op) {
        if let Ok(value) = value {
            self.ops.truncate(self.ops.len() - count);
            self.ops.push(Op::Constant(value));
        } else {
            self.ops.push(op);
        }
    }

    /// Computes what is at `left..right` after what is at `right..`.
    pub(super) fn swap(&mut self, left: usize, right: usize) {
        self.ops[left..].rotate_left(right - left);
        if self.landed > left {
            self.landed = self.ops.len();
        }
    }

    /// Lets the jump at `place` land here.
    pub(super) fn land(&mut self, place: usize) {
        let here = self.ops.len();
        let distance = u32::try_from(here - place - 1).expect("fewer than 2^32 operations");
        match &mut self.ops[place] {
            Op::And(jump) | Op::Or(jump) | Op::Branch(jump) | Op::Jump(jump) => *jump = distance,
            _ => unreachable!("only jumps land"),
        }
        self.landed = here;
    }

    pub(super) fn finish(self) -> Program {
        let ops = self.ops.into_boxed_slice();
        let depth = depth(&ops);
        Program { ops, depth }
    }
}

/// How many values lie on the stack at most.
fn depth(ops: &[Op]) -> usize {
    let (mut now, mut most) = (0, 0);
    for op in ops {
        match op {
            Op::Constant(_) | Op::Variable(_) | Op::Between(..) => now += 1,
            Op::Call(_, count) => now = now + 1 - usize::from(*count),
            Op::TooMany(count) => now = now + 1 - *count as usize,
            Op::Draw(draw) => now = now + 1 - draw.arguments(),
            // Behind a jump stands another branch, which finds the stack without its value.
            Op::Operate(_) | Op::And(_) | Op::Or(_) | Op::Branch(_) | Op::Jump(_) => now -= 1,
            Op::Debug | Op::Check => {}
        }
        most = most.max(now);
    }
    most
}
