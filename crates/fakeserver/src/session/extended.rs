//! The extended query protocol: prepared statements, portals, and what is skipped after an error.
//! Knows nothing of how a statement is served.

use std::rc::Rc;

use super::{Flow, Running, Session, Turn};
use crate::frames::{Body, Malformed};
use crate::journal::Manner;
use crate::messages::{self, Report, Transaction};
use crate::sql::{Effect, Parameters, Query};

const TEXT_OID: u32 = 25;

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    name: Box<[u8]>,
    query: Rc<Query>,
    /// One for each parameter; text where the client did not say.
    oids: Box<[u32]>,
}

/// A prepared statement with its parameters.
#[derive(Debug)]
pub(super) struct Portal {
    prepared: Rc<Prepared>,
    parameters: Parameters,
    formats: Formats,
}

/// Which columns are wanted in binary, a bit each; the last bit speaks for all further columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Formats(u64);

impl Formats {
    pub(super) const TEXT: Self = Self(0);

    pub(super) fn is_binary(self, column: usize) -> bool {
        self.0 >> column.min(63) & 1 == 1
    }

    /// Format codes as Bind has them: none, one for all, or one for each.
    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let count = body.u16()?;
        let mut bits = 0;
        for column in 0..count {
            bits |= u64::from(body.u16()? & 1) << column.min(63);
        }
        Ok(Self(if count == 1 { bits * u64::MAX } else { bits }))
    }
}

impl Session {
    pub(super) fn parse(&mut self, body: &[u8], turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        let mut body = Body(body);
        let name = body.string()?;
        let query = turn.state.query(body.string()?);
        let given = body.u16()?;
        let mut oids = (0..given).map(|_| body.u32()).collect::<Result<Vec<u32>, _>>()?;
        oids.resize(oids.len().max(query.parameters), TEXT_OID);
        oids.iter_mut().filter(|oid| **oid == 0).for_each(|oid| *oid = TEXT_OID);
        let no_parameters = Rc::clone(&turn.state.no_parameters);
        self.note(Manner::Parse, name, &query, &no_parameters, turn);
        if let Some(report) = self.objection(name, &query) {
            return Ok(self.fail(&report, turn));
        }
        let prepared = Prepared { name: name.into(), query, oids: oids.into() };
        self.prepared.insert(name.into(), Rc::new(prepared));
        messages::bare(turn.out, b'1');
        Ok(Flow::Next)
    }

    /// Why this query cannot be prepared under this name.
    fn objection(&self, name: &[u8], query: &Query) -> Option<Report> {
        if let [first, _, ..] = query.statements.as_slice() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Some(first.defect.clone().unwrap_or(Report::error("42601", message)));
        }
        if let Some(defect) = query.statements.first().and_then(|only| only.defect.clone()) {
            return Some(defect);
        }
        if !name.is_empty() && self.prepared.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            let message = format!("prepared statement \"{name}\" already exists");
            return Some(Report::error("42P05", message));
        }
        self.refusal(&query.statements)
    }

    pub(super) fn bind(&mut self, body: &[u8], turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        let mut body = Body(body);
        let portal = body.string()?;
        let name = body.string()?;
        let Some(prepared) = self.prepared.get(name).map(Rc::clone) else {
            return Ok(self.fail(&missing("26000", "prepared statement", name), turn));
        };
        let formats = Formats::read(&mut body)?;
        let count = usize::from(body.u16()?);
        if count != prepared.oids.len() {
            let message = format!(
                "bind message supplies {count} parameters, but prepared statement \"{}\" \
                 requires {}",
                String::from_utf8_lossy(name),
                prepared.oids.len()
            );
            return Ok(self.fail(&Report::error("08P01", message), turn));
        }
        let parameters = match count {
            0 => Rc::clone(&turn.state.no_parameters),
            _ => read_parameters(&mut body, &prepared.oids, formats)?,
        };
        let formats = Formats::read(&mut body)?;
        if let Some(report) = self.refusal(&prepared.query.statements) {
            return Ok(self.fail(&report, turn));
        }
        self.portals.insert(portal.into(), Portal { prepared, parameters, formats });
        messages::bare(turn.out, b'2');
        Ok(Flow::Next)
    }

    pub(super) fn describe(&mut self, body: &[u8], turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        let mut body = Body(body);
        let kind = body.u8()?;
        let name = body.string()?;
        let (query, formats) = if kind == b'S' {
            let Some(prepared) = self.prepared.get(name) else {
                return Ok(self.fail(&missing("26000", "prepared statement", name), turn));
            };
            messages::parameter_description(turn.out, &prepared.oids);
            (&prepared.query, Formats::TEXT)
        } else {
            let Some(portal) = self.portals.get(name) else {
                return Ok(self.fail(&missing("34000", "portal", name), turn));
            };
            (&portal.prepared.query, portal.formats)
        };
        let columns = query.statements.first().map_or(&[][..], |only| &only.columns);
        if columns.is_empty() {
            messages::bare(turn.out, b'n');
        } else {
            messages::row_description(turn.out, columns, |column| formats.is_binary(column));
        }
        Ok(Flow::Next)
    }

    /// Executes a portal. The row limit is ignored: all rows come.
    pub(super) fn execute(&mut self, body: &[u8], turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        let name = Body(body).string()?;
        let Some(portal) = self.portals.get(name) else {
            return Ok(self.fail(&missing("34000", "portal", name), turn));
        };
        let running = Running {
            query: Rc::clone(&portal.prepared.query),
            index: 0,
            is_simple: false,
            parameters: Rc::clone(&portal.parameters),
            formats: portal.formats,
            effect: Effect::NONE,
            rows: None,
        };
        let prepared = Rc::clone(&portal.prepared);
        self.note(Manner::Execute, &prepared.name, &running.query, &running.parameters, turn);
        if running.query.statements.is_empty() {
            messages::bare(turn.out, b'I');
            return Ok(Flow::Next);
        }
        Ok(self.begin(running, turn))
    }

    pub(super) fn close(&mut self, body: &[u8], turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        let mut body = Body(body);
        if body.u8()? == b'S' {
            self.prepared.remove(body.string()?);
        } else {
            self.portals.remove(body.string()?);
        }
        messages::bare(turn.out, b'3');
        Ok(Flow::Next)
    }

    pub(super) fn sync(&mut self, turn: &mut Turn<'_>) -> Flow {
        self.is_skipping = false;
        if self.transaction == Transaction::Idle {
            self.portals.clear();
        }
        messages::ready_for_query(turn.out, self.transaction);
        Flow::Next
    }
}

fn missing(code: &str, what: &str, name: &[u8]) -> Report {
    let name = String::from_utf8_lossy(name);
    Report::error(code, format!("{what} \"{name}\" does not exist"))
}

fn read_parameters(
    body: &mut Body<'_>,
    oids: &[u32],
    formats: Formats,
) -> Result<Parameters, Malformed> {
    let mut read = |(number, oid): (usize, &u32)| {
        let length = body.u32()?;
        if length == u32::MAX {
            return Ok(None);
        }
        let bytes = body.bytes(length as usize)?;
        Ok(Some(match formats.is_binary(number) {
            true => text_of_binary(*oid, bytes),
            false => String::from_utf8_lossy(bytes).into_owned(),
        }))
    };
    oids.iter().enumerate().map(&mut read).collect()
}

/// A binary parameter of one of the common types as text, of any other type in hex.
fn text_of_binary(oid: u32, bytes: &[u8]) -> String {
    const INT2: u32 = 21;
    const INT4: u32 = 23;
    const INT8: u32 = 20;
    const FLOAT4: u32 = 700;
    const FLOAT8: u32 = 701;
    const TEXTS: [u32; 3] = [TEXT_OID, 1043, 705];

    match (oid, bytes) {
        (INT2, &[a, b]) => i16::from_be_bytes([a, b]).to_string(),
        (INT4, &[a, b, c, d]) => i32::from_be_bytes([a, b, c, d]).to_string(),
        (FLOAT4, &[a, b, c, d]) => f32::from_be_bytes([a, b, c, d]).to_string(),
        (INT8 | FLOAT8, bytes) if bytes.len() == 8 => {
            let bits = bytes.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
            match oid {
                INT8 => (bits as i64).to_string(),
                _ => f64::from_bits(bits).to_string(),
            }
        }
        _ if TEXTS.contains(&oid) => String::from_utf8_lossy(bytes).into_owned(),
        _ => bytes.iter().fold("\\x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_format_code_speaks_for_all_columns() {
        let read = |bytes| Formats::read(&mut Body(bytes)).unwrap();
        assert_eq!(read(b"\0\0"), Formats::TEXT);
        assert_eq!(read(b"\0\x01\0\0"), Formats::TEXT);
        assert!(read(b"\0\x01\0\x01").is_binary(100));
        let mixed = read(b"\0\x02\0\0\0\x01");
        assert_eq!((mixed.is_binary(0), mixed.is_binary(1)), (false, true));
    }

    #[test]
    fn binary_parameters_of_the_common_types_read_as_text() {
        for (oid, bytes, text) in [
            (21, &b"\xff\xff"[..], "-1"),
            (23, b"\0\0\x01\0", "256"),
            (20, b"\0\0\0\0\0\0\0\x07", "7"),
            (701, &2.5_f64.to_be_bytes(), "2.5"),
            (25, b"abc", "abc"),
            (17, b"\x01\xab", "\\x01ab"),
        ] {
            assert_eq!(text_of_binary(oid, bytes), text);
        }
    }
}
