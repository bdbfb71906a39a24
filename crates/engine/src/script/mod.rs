//! The compiled form of scripts in pgbench's language: SQL with meta commands. `parse` makes it,
//! `eval` computes its expressions, `random` draws their numbers. No clock, no socket.
//!
//! Scripts are bytes: SQL goes to the server as it was written, in whatever encoding. Variable
//! names are resolved to slots when a script is parsed, over all scripts of a run, so that running
//! a script looks nothing up by name; only the columns of `\gset` and `\aset` are.

mod branches;
mod constants;
pub mod eval;
mod expr;
mod functions;
mod hash;
mod lex;
mod meta;
mod names;
mod number;
pub mod parse;
mod program;
pub mod random;
mod sql;
mod substitute;
#[cfg(test)]
mod tests;

mod value;

pub(crate) use names::misnamed;
pub use names::{Names, is_variable_name};

use std::ops::Range;

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

impl Scripts {
    /// Their SQL commands, in the order of `Sql::id`.
    pub fn sql(&self) -> impl Iterator<Item = &Sql> {
        let commands = self.list.iter().flat_map(|script| &script.commands);
        commands.filter_map(|command| match &command.action {
            Action::Sql(sql) => Some(sql),
            _ => None,
        })
    }
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
    /// Its first line, as reports show it, in the script's encoding.
    pub text: Box<[u8]>,
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
        value: eval::Program,
    },
    /// `\set` of what cannot be a variable's name: fails after its expression.
    Misnamed {
        /// What it is called.
        variable: Slot,
        /// The value.
        value: eval::Program,
    },
    /// `\sleep`: the client does nothing for a while.
    Sleep {
        /// How many units.
        amount: Amount,
        /// A unit in nanoseconds.
        unit_ns: i64,
    },
    /// `\shell`, or `\setshell` with the variable that takes its answer.
    Shell {
        /// The command line: words with a space between them, variables in their places.
        line: Vec<Piece>,
        /// `\setshell`: where the integer on its first line goes.
        variable: Option<Slot>,
    },
    /// `\if`: continues after it, or where the condition fails at command `otherwise`: the
    /// `\elif`, `\else` or `\endif` that belongs to it.
    If {
        /// Whether to continue after it.
        condition: eval::Program,
        /// The place of a command in the script.
        otherwise: u32,
    },
    /// `\elif`. Reached from the command before it: goes to `end`. Reached because a condition
    /// failed: as `\if`.
    Elif {
        /// Whether to continue after it.
        condition: eval::Program,
        /// The place of the next branch.
        otherwise: u32,
        /// The place of the `\endif`.
        end: u32,
    },
    /// `\else`. Reached from the command before it: goes to `end`.
    Else {
        /// The place of the `\endif`.
        end: u32,
    },
    /// `\endif`: nothing.
    EndIf,
    /// `\startpipeline`: from here on nothing is waited for.
    StartPipeline,
    /// `\syncpipeline`: a synchronization point in a pipeline.
    SyncPipeline,
    /// `\endpipeline`: waits for everything since `\startpipeline`.
    EndPipeline,
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
    /// The text with `$1`, `$2`, ... for the extended and prepared protocols. It is kept once:
    /// scripts may be as long as the longest statement that the protocol takes.
    pub numbered: Vec<u8>,
    /// The variable of each parameter.
    pub parameters: Vec<Slot>,
    /// Where each parameter stands in the text.
    places: Vec<Range<usize>>,
    /// What becomes of its results.
    pub results: Results,
}

/// What becomes of the rows of an SQL command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Results {
    /// They are passed over.
    Discard,
    /// `\gset`: the one row of the last result is stored in variables called as its columns, with
    /// this prefix.
    Gset(Box<[u8]>),
    /// `\aset`: the last row of every result is.
    Aset(Box<[u8]>),
}

/// A part of an SQL command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Literal text, which may be empty.
    Text(&'a [u8]),
    /// A variable's value, or `:name` itself where the variable is not set.
    Variable(Slot),
}

/// A part of a shell's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(Box<[u8]>),
    /// A variable's value; that it is not set is an error.
    Variable(Slot),
}
