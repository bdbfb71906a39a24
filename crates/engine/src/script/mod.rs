//! The syntax tree of scripts in pgbench's language: SQL with meta commands. `parse` makes it,
//! `eval` computes its expressions, `random` draws their numbers. No clock, no socket.
//!
//! Variable names are resolved to slots when a script is parsed, over all scripts of a run, so
//! that running a script looks nothing up by name.

pub mod eval;
mod expr;
mod lex;
pub mod parse;
pub mod random;
mod sql;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

/// The slot of a variable in a client's `Variables`.
pub type Slot = u32;

/// All scripts of a run, with the names of their variables.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// In the order given; an outcome names its script by its place here.
    pub list: Vec<Script>,
    /// Every variable that any of them mentions.
    pub names: Names,
    /// How many SQL commands they hold together; `Sql::id` is below this.
    pub statements: u32,
}

/// One script.
#[derive(Debug, Clone)]
pub struct Script {
    /// What reports call it: a file's name or a builtin's.
    pub name: String,
    /// How often it is chosen, relative to the others.
    pub weight: u32,
    /// Its commands in order, at least one.
    pub commands: Vec<Command>,
}

/// One command of a script.
#[derive(Debug, Clone)]
pub struct Command {
    /// The line it begins on, from 1.
    pub line: u32,
    /// Its first line, as reports show it.
    pub text: String,
    /// What it does.
    pub action: Action,
}

/// What a command does.
#[derive(Debug, Clone)]
pub enum Action {
    /// Sends SQL and waits for its end.
    Sql(Sql),
    /// `\set`: assigns an expression's value.
    Set {
        /// The variable assigned to.
        variable: Slot,
        /// The value.
        value: Expr,
    },
    /// `\sleep`: the client does nothing for a while.
    Sleep {
        /// How many units.
        amount: Amount,
        /// A unit in nanoseconds.
        unit_ns: i64,
    },
}

/// How long a `\sleep` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// As many units as written.
    Constant(i64),
    /// As many as the variable says.
    Variable(Slot),
}

/// An SQL command, ready for both ways of sending it.
#[derive(Debug, Clone)]
pub struct Sql {
    /// Its number over all scripts of the run; prepared statements are called after it.
    pub id: u32,
    /// Text and variables in turn, for the simple protocol.
    pub pieces: Vec<Piece>,
    /// The text with `$1`, `$2`, ... for the extended and prepared protocols.
    pub numbered: String,
    /// The variable of each parameter.
    pub parameters: Vec<Slot>,
}

/// A part of an SQL command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// A variable's value, or `:name` itself where the variable is not set.
    Variable(Slot),
}

/// An expression of `\set`.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A constant.
    Constant(eval::Value),
    /// A variable's value.
    Variable(Slot),
    /// A function or operator with its arguments.
    Call(Function, Vec<Expr>),
    /// `CASE WHEN .. THEN .. ELSE .. END`: conditions with values, and the rest.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
}

/// The functions and operators of expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as they are written in a script")]
pub enum Function {
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
    And,
    Or,
    Not,
    Is,
    Abs,
    Double,
    Exp,
    Greatest,
    Int,
    Least,
    Ln,
    Pi,
    Pow,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
}

/// The names of variables and their slots.
#[derive(Debug, Clone, Default)]
pub struct Names {
    slots: HashMap<String, Slot>,
    names: Vec<String>,
}

impl Names {
    /// The slot of `name`, a new one if it has none yet.
    pub fn slot(&mut self, name: &str) -> Slot {
        if let Some(&slot) = self.slots.get(name) {
            return slot;
        }
        let slot = Slot::try_from(self.names.len()).expect("fewer than 2^32 variables");
        self.slots.insert(name.to_owned(), slot);
        self.names.push(name.to_owned());
        slot
    }

    /// The name of a slot.
    #[must_use]
    pub fn name(&self, slot: Slot) -> &str {
        &self.names[slot as usize]
    }

    /// How many slots there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if no variable is mentioned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// True if `name` can be a variable: letters, digits, underscores and bytes above 127, not
/// starting with a digit.
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| is_name_byte(b) && !b.is_ascii_digit()) && bytes.all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}
