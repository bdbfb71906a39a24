//! Writes SQL commands in each protocol. Knows variables and messages, no state.

use crate::script::eval::Variables;
use crate::script::{Names, Piece, Sql};
use bytes::{BufMut as _, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use std::io::Result;

/// Writes a simple query with the variables' text in it; `:name` where one is not set. Scripts
/// and variables hold no NUL: `Scripts::add`, `feeds` and the protocol itself refuse it.
pub(crate) fn simple(
    out: &mut BytesMut,
    sql: &Sql,
    variables: &Variables,
    names: &Names,
) -> Result<()> {
    message(out, b'Q', |out| {
        for piece in &sql.pieces {
            match piece {
                Piece::Text(literal) => out.extend_from_slice(literal),
                Piece::Variable(slot) => {
                    if !variables.write(*slot, out) {
                        out.put_u8(b':');
                        out.extend_from_slice(names.name(*slot));
                    }
                }
            }
        }
        out.put_u8(0);
    })
}

/// Writes what prepares a statement, also where a first try left it half done: closing a
/// statement that does not exist is no error.
pub(crate) fn prepare(out: &mut BytesMut, name: &str, sql: &Sql) -> Result<()> {
    frontend::close(b'S', name, out)?;
    parse(out, name, sql)
}

/// Writes what parses a statement under a name.
pub(crate) fn parse(out: &mut BytesMut, name: &str, sql: &Sql) -> Result<()> {
    message(out, b'P', |out| {
        out.extend_from_slice(name.as_bytes());
        out.put_u8(0);
        out.extend_from_slice(&sql.numbered);
        out.put_u8(0);
        out.put_u16(0);
    })
}

/// Writes bind, perhaps describe, and execute; variables that are not set are NULL.
pub(crate) fn execute(
    out: &mut BytesMut,
    name: &str,
    sql: &Sql,
    variables: &Variables,
    describe: bool,
) -> Result<()> {
    let bound = frontend::bind(
        "",
        name,
        std::iter::empty(),
        sql.parameters.iter(),
        |slot, out| {
            if variables.is_null(*slot) {
                return Ok(IsNull::Yes);
            }
            variables.write(*slot, out);
            Ok(IsNull::No)
        },
        std::iter::empty(),
        out,
    );
    bound.map_err(|_| std::io::Error::other("its parameters are too long"))?;
    if describe {
        frontend::describe(b'P', "", out)?;
    }
    frontend::execute("", 0, out)
}

/// A message of type `tag` whose body `write` appends.
fn message(out: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) -> Result<()> {
    let start = out.len();
    out.put_u8(tag);
    out.put_i32(0);
    write(out);
    let length = i32::try_from(out.len() - start - 1).map_err(std::io::Error::other)?;
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// `P_n` without an allocation.
pub(crate) struct StatementName {
    bytes: [u8; 12],
    length: usize,
}

impl StatementName {
    pub(crate) fn new(id: u32) -> Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(id).as_bytes();
        let mut bytes = [0; 12];
        bytes[..2].copy_from_slice(b"P_");
        bytes[2..2 + digits.len()].copy_from_slice(digits);
        Self { bytes, length: 2 + digits.len() }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("ASCII")
    }
}
