//! Writes SQL commands in each protocol. Knows variables and messages, no state.

use crate::script::eval::{Value, Variable, Variables};
use crate::script::{Names, Part, Sql};
use bytes::{BufMut as _, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use std::io::Result;

/// Writes a simple query with the variables' text in it; `:name` where one is not set. Scripts
/// and variables hold no NUL: `Scripts::add`, `feeds` and the protocol itself refuse it.
#[inline(never)]
pub(crate) fn simple(
    out: &mut BytesMut,
    sql: &Sql,
    variables: &Variables,
    names: &Names,
) -> Result<()> {
    message(out, b'Q', |out| {
        for part in sql.parts() {
            match part {
                Part::Text(literal) => out.extend_from_slice(literal),
                Part::Variable(slot) => {
                    if !variables.write(slot, out) {
                        out.put_u8(b':');
                        out.extend_from_slice(names.name(slot));
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
#[inline(never)]
pub(crate) fn parse(out: &mut BytesMut, name: &str, sql: &Sql) -> Result<()> {
    message(out, b'P', |out| {
        out.extend_from_slice(name.as_bytes());
        out.put_u8(0);
        out.extend_from_slice(&sql.numbered);
        out.put_u8(0);
        out.put_u16(0);
    })
}

/// Bind, perhaps describe, execute and sync for one statement: all of it but the parameters is
/// made once.
#[derive(Debug)]
pub(crate) struct Execution {
    /// Bind, up to its first parameter.
    bind: Box<[u8]>,
    /// What follows the last, without and with the sync.
    tail: Box<[u8]>,
    synced: Box<[u8]>,
}

/// The number of result formats, which ends a bind message.
const FORMATS: usize = 2;

impl Execution {
    /// # Errors
    /// More parameters than the protocol can count.
    pub(crate) fn new(name: &str, sql: &Sql, describe: bool) -> Result<Self> {
        let mut bind = BytesMut::new();
        let none = std::iter::empty;
        let parameters = sql.parameters.iter();
        frontend::bind("", name, none(), parameters, |_, _| Ok(IsNull::Yes), none(), &mut bind)
            .map_err(|_| std::io::Error::other("it has too many parameters"))?;
        // A parameter that is NULL is its length alone.
        let nulls = 4 * sql.parameters.len();
        let mut tail = bind.split_off(bind.len() - FORMATS);
        bind.truncate(bind.len() - nulls);
        if describe {
            frontend::describe(b'P', "", &mut tail)?;
        }
        frontend::execute("", 0, &mut tail)?;
        let mut synced = tail.clone();
        frontend::sync(&mut synced);
        let boxed = |bytes: BytesMut| bytes.as_ref().into();
        Ok(Self { bind: boxed(bind), tail: boxed(tail), synced: boxed(synced) })
    }

    /// Writes it with the parameters; variables that are not set are NULL.
    pub(crate) fn write(
        &self,
        out: &mut BytesMut,
        sql: &Sql,
        variables: &Variables,
        sync: bool,
    ) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&self.bind);
        for &slot in &sql.parameters {
            parameter(out, &variables.0[slot as usize])?;
        }
        set_length(out, start + 1, out.len() + FORMATS - start - 1)?;
        out.extend_from_slice(if sync { &self.synced } else { &self.tail });
        Ok(())
    }
}

/// Writes a parameter after its length.
fn parameter(out: &mut BytesMut, variable: &Variable) -> Result<()> {
    match variable {
        Variable::Unset | Variable::Value(Value::Null) => out.put_i32(-1),
        Variable::Value(Value::Int(value)) => {
            let mut digits = itoa::Buffer::new();
            text(out, digits.format(*value).as_bytes())?;
        }
        Variable::Text(bytes) | Variable::Typed(bytes, _) => text(out, bytes)?,
        Variable::Value(value) => {
            let at = out.len();
            out.put_i32(0);
            value.write(out);
            set_length(out, at, out.len() - at - 4)?;
        }
    }
    Ok(())
}

#[inline]
fn text(out: &mut BytesMut, bytes: &[u8]) -> Result<()> {
    out.put_i32(i32::try_from(bytes.len()).map_err(|_| too_long())?);
    out.extend_from_slice(bytes);
    Ok(())
}

/// Writes a length where it belongs.
fn set_length(out: &mut BytesMut, at: usize, length: usize) -> Result<()> {
    let length = i32::try_from(length).map_err(|_| too_long())?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cold]
fn too_long() -> std::io::Error {
    std::io::Error::other("it is too long for the protocol")
}

/// A message of type `tag` whose body `write` appends.
fn message(out: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) -> Result<()> {
    let start = out.len();
    out.put_u8(tag);
    out.put_i32(0);
    write(out);
    set_length(out, start + 1, out.len() - start - 1)
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
