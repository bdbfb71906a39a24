//! What a statement is and does, decided by its text alone. Knows no protocol and no clock.

mod call;
mod columns;
mod lexer;
mod statement;

pub(crate) use call::{Dice, Effect, Outcome};
pub(crate) use columns::Column;
pub(crate) use statement::{Query, Statement, Verb};

/// The parameters of one execution as text; `None` is NULL.
pub(crate) type Parameters = std::rc::Rc<[Option<String>]>;
