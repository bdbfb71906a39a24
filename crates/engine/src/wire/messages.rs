//! Single messages of a server that is not to be trusted: how long one may be, which has a place
//! where, and what is in it. Whatever does not fit is a fault that says what was found and what was
//! expected.

use super::session::Stage;
use super::{Fault, ServerError, protocol};
use crate::error::Error;
use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::Message;

/// The longest message that is held; errors and login messages are far below.
const HELD_MAX: usize = 1 << 20;
/// The longest row that is held, for a script that stores it. It is in memory several times while
/// that is done, for each client.
const ROW_MAX: usize = 64 << 20;
/// The longest message that the protocol knows; what is passed over is never held.
const PASSED_MAX: usize = 0x7fff_ffff;
/// Texts of errors are cut here: they are kept for every second of a run.
const TEXT_MAX: usize = 8192;

/// Rows, row descriptions, completions, notices, notifications, COPY data; not what is kept.
pub(super) const fn is_passed_over(tag: u8, stage: Stage) -> bool {
    match tag {
        b'N' => true,
        _ if matches!(stage, Stage::Login) => false,
        b'T' | b'D' | b'C' | b'I' => matches!(stage, Stage::Open),
        b'1' | b'2' | b'3' | b'n' | b't' | b's' | b'A' | b'd' | b'c' | b'H' => true,
        _ => false,
    }
}

/// How long a message may be with its length field; none where it has no place. Before the session
/// is open most have none: what speaks another protocol is found out by its first bytes.
fn length_max(tag: u8, stage: Stage) -> Option<usize> {
    match (tag, stage) {
        _ if is_passed_over(tag, stage) => Some(PASSED_MAX),
        (b'D', Stage::Keeping) => Some(ROW_MAX),
        (b'T' | b'C' | b'I', Stage::Keeping) | (b'Z' | b'E' | b'S', _) => Some(HELD_MAX),
        (b'R' | b'K' | b'v', Stage::Login) => Some(HELD_MAX),
        (b'G', Stage::Open | Stage::Keeping) => Some(HELD_MAX),
        _ => None,
    }
}

/// A message's type, and its length with the header of five bytes that `bytes` begins with.
pub(super) fn header(bytes: &[u8], stage: Stage) -> Result<(u8, usize), Fault> {
    let tag = bytes[0];
    let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    let Some(length_max) = length_max(tag, stage) else {
        return Err(out_of_place(tag, if stage == Stage::Login { "login" } else { "session" }));
    };
    if !(4..=length_max).contains(&(length as usize)) {
        let error = protocol("message-length-wrong").with("type", shown(tag));
        let error = error.with("bytes", i64::from(length.cast_signed()));
        return Err(error.with("most", length_max).into());
    }
    Ok((tag, length as usize + 1))
}

fn shown(tag: u8) -> String {
    tag.escape_ascii().to_string()
}

/// A message of this type has no place in a login, or in a session.
pub(super) fn out_of_place(tag: u8, place: &str) -> Fault {
    protocol("message-out-of-place").with("type", shown(tag)).with("place", place).into()
}

fn malformed(tag: u8) -> Error {
    protocol("message-malformed").with("type", shown(tag))
}

/// A message that is whole.
pub(super) fn parse(frame: &[u8]) -> Result<Message, Fault> {
    match Message::parse(&mut BytesMut::from(frame)) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(malformed(frame[0]).into()),
        Err(error) => Err(malformed(frame[0]).because(error).into()),
    }
}

/// `ParameterStatus`: name and value, which may be in the encoding of the database.
pub(super) fn read_parameter(frame: &[u8]) -> Result<(String, String), Fault> {
    let mut parts = frame[5..].split(|byte| *byte == 0);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(value), Some([]), None) => {
            let [name, value] = [name, value].map(String::from_utf8_lossy);
            Ok((name.into_owned(), value.into_owned()))
        }
        _ => Err(malformed(b'S').into()),
    }
}

/// `BackendKeyData`: process and secret. Secrets of other lengths belong to protocol 3.2.
pub(super) fn read_key(frame: &[u8]) -> Result<(i32, i32), Fault> {
    let (process, secret) = frame[5..].split_at_checked(4).unwrap_or_default();
    match (<[u8; 4]>::try_from(process), <[u8; 4]>::try_from(secret)) {
        (Ok(process), Ok(secret)) => Ok((i32::from_be_bytes(process), i32::from_be_bytes(secret))),
        _ => Err(protocol("cancel-key-length-wrong").with("bytes", frame.len() - 5).into()),
    }
}

/// `NegotiateProtocolVersion`: all right where it confirms what we asked for.
pub(super) fn negotiation(frame: &[u8]) -> Result<(), Fault> {
    match &frame[5..] {
        [0, 3 | 0, 0, 0, 0, 0, 0, 0] => Ok(()),
        [a, b, c, d, 0, 0, 0, 0] => {
            let (major, minor) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            let version = format!("{major}.{minor}");
            Err(protocol("protocol-version-unsupported").with("version", version).into())
        }
        _ => Err(malformed(b'v').into()),
    }
}

/// `ErrorResponse`.
pub(super) fn read_error(frame: &[u8]) -> Result<ServerError, Fault> {
    let Message::ErrorResponse(body) = parse(frame)? else {
        return Err(malformed(frame[0]).into());
    };
    let mut fields = body.fields();
    let mut error = ServerError { sqlstate: *b"XX000", ..ServerError::default() };
    let wrong = |_| Fault::from(malformed(b'E'));
    while let Some(field) = fields.next().map_err(wrong)? {
        let text = text(field.value_bytes());
        match field.type_() {
            b'C' => {
                if let Ok(state) = <[u8; 5]>::try_from(text.as_bytes()) {
                    error.sqlstate =
                        state.map(|b| if b.is_ascii_alphanumeric() { b } else { b'?' });
                }
            }
            b'M' => error.message = text,
            b'V' => error.fatal |= matches!(&*text, "FATAL" | "PANIC"),
            b'S' => {
                error.fatal |= matches!(&*text, "FATAL" | "PANIC");
                error.severity = text;
            }
            b'D' => error.detail = Some(text),
            b'H' => error.hint = Some(text),
            b'P' => error.position = text.parse().ok(),
            b'p' => error.internal_position = text.parse().ok(),
            b'q' => error.internal_query = Some(text),
            b'W' => error.context = Some(text),
            b'R' => error.routine = Some(text),
            _ => {}
        }
    }
    if error.message.is_empty() {
        error.message = "an error without a message".into();
    }
    Ok(error)
}

/// What the server wrote, cut where it is longer than anybody reads.
fn text(bytes: &[u8]) -> String {
    let Some(kept) = bytes.get(..TEXT_MAX).filter(|_| bytes.len() > TEXT_MAX) else {
        return String::from_utf8_lossy(bytes).into_owned();
    };
    String::from_utf8_lossy(kept).into_owned() + "..."
}
