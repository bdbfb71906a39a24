//! The protocol behind the link: frames in, events out. Frames that carry rows, notices and
//! completions are passed over without being held.

use super::auth::Login;
use super::{Fault, Settings};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::{ErrorFields, Message};
use postgres_protocol::message::frontend;

/// The longest frame that is held at all; errors and login messages are far below.
const HELD_MAX: usize = 1 << 20;

/// The longest row, or row description, that is kept for variables.
const KEPT_MAX: usize = 64 << 20;

/// The longest notice that is looked into.
const NOTICE_MAX: usize = 1024;

/// The server's transaction status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// Not in a transaction block.
    #[default]
    Idle,
    /// In one.
    InBlock,
    /// In one that has failed.
    Failed,
}

/// What the session tells its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Everything sent so far has been answered.
    Ready(Status),
    /// The server wants rows to copy; it must be told that there are none.
    CopyIn,
    /// The server reports an error; `Ready` follows unless it is fatal.
    Failed(Box<ServerError>),
    /// While rows are kept: a result begins. Its row description is in `Connection::content`.
    Columns,
    /// While rows are kept: a row, which is in `Connection::content`.
    Row,
    /// While rows are kept: a result is complete.
    Complete,
}

/// An error in the server's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerError {
    /// Five characters.
    pub sqlstate: [u8; 5],
    /// The primary message.
    pub message: String,
    /// FATAL or PANIC: the connection is gone.
    pub fatal: bool,
    /// ERROR, FATAL or PANIC, perhaps translated; empty where the connection just broke.
    pub severity: String,
    /// More about it.
    pub detail: Option<String>,
    /// What the server proposes to do.
    pub hint: Option<String>,
    /// Where in the query, in characters from 1.
    pub position: Option<usize>,
    /// Where in functions.
    pub context: Option<String>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Closed,
    Login(Box<Login>),
    Open,
}

/// One session.
#[derive(Default)]
pub(super) struct Session {
    phase: Phase,
    /// A frame of which the beginning has come.
    held: Vec<u8>,
    /// Bytes of a frame that is being passed over.
    skip: usize,
    pub(super) status: Status,
    /// Whether rows are kept for the owner.
    pub(super) keeping: bool,
    /// The row description or row of the last event.
    pub(super) content: Vec<u8>,
    /// How many results were complete since the owner last set it to 0.
    pub(super) results: u32,
    pub(super) cancel_key: Option<(i32, i32)>,
    /// What the server said of its end. A crash and an immediate shutdown are told in a warning,
    /// behind which the connection just closes.
    pub(super) farewell: Option<Box<ServerError>>,
    pub(super) parameters: Vec<(String, String)>,
}

impl Session {
    pub(super) fn login(
        &mut self,
        settings: &Settings,
        binding: Option<Vec<u8>>,
        out: &mut BytesMut,
    ) {
        let parameters = settings.startup.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        frontend::startup_message(parameters, out).expect("startup parameters hold no NUL");
        let login = Login::new(settings.credentials.clone(), binding);
        self.phase = Phase::Login(Box::new(login));
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// The next event in `input`, which is shortened by what was read. None: need more bytes.
    pub(super) fn advance(
        &mut self,
        input: &mut &[u8],
        out: &mut BytesMut,
    ) -> Result<Option<Event>, Fault> {
        loop {
            if self.skip > 0 {
                let passed = self.skip.min(input.len());
                *input = &input[passed..];
                self.skip -= passed;
            }
            if input.is_empty() {
                return Ok(None);
            }
            if !self.held.is_empty() {
                match self.complete(input)? {
                    None => return Ok(None),
                    Some(frame) => {
                        let event = self.frame(&frame, out)?;
                        if event.is_some() {
                            return Ok(event);
                        }
                        continue;
                    }
                }
            }
            if input.len() < 5 {
                self.held.extend_from_slice(input);
                *input = &[];
                return Ok(None);
            }
            let (tag, total) = header(input, self.is_ready())?;
            if self.passes_over(tag, total)? {
                if tag == b'N' && total <= NOTICE_MAX.min(input.len()) {
                    self.heed(&input[..total]);
                }
                self.skip = total;
            } else if input.len() >= total {
                let (frame, rest) = input.split_at(total);
                *input = rest;
                let event = self.frame(frame, out)?;
                if event.is_some() {
                    return Ok(event);
                }
            } else {
                self.held.extend_from_slice(input);
                *input = &[];
            }
        }
    }

    /// Adds to the held frame; the frame once it is complete. A frame to be passed over is
    /// let go as soon as its header is known.
    fn complete(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        if self.held.len() < 5 {
            take(&mut self.held, input, 5);
            if self.held.len() < 5 {
                return Ok(None);
            }
        }
        let (tag, total) = header(&self.held, self.is_ready())?;
        if self.passes_over(tag, total)? {
            self.skip = total - self.held.len();
            self.held.clear();
            return Ok(Some(Vec::new()));
        }
        take(&mut self.held, input, total);
        Ok((self.held.len() == total).then(|| std::mem::take(&mut self.held)))
    }

    /// Keeps a notice of class 57P, operator intervention: the server's last words, perhaps.
    fn heed(&mut self, notice: &[u8]) {
        if memchr::memmem::find(notice, b"\0C57P").is_some()
            && let Ok(Message::NoticeResponse(body)) = parse(notice)
        {
            self.farewell = Some(Box::new(read_error(body.fields())));
        }
    }

    /// Whether a frame is let go unread; counts results on the way.
    fn passes_over(&mut self, tag: u8, total: usize) -> Result<bool, Fault> {
        let kept = self.keeping && matches!(tag, b'T' | b'D' | b'C' | b'I');
        if kept && total > KEPT_MAX {
            return Err(Fault::Protocol(format!(
                "the server sent a row of {total} bytes, too long to be kept in variables"
            )));
        }
        let passed = is_passed_over(tag) && !kept;
        self.results += u32::from(passed && matches!(tag, b'C' | b'I'));
        Ok(passed)
    }

    /// One whole frame that decides something; an empty one is a frame that was passed over.
    fn frame(&mut self, frame: &[u8], out: &mut BytesMut) -> Result<Option<Event>, Fault> {
        match (frame.first().copied(), &mut self.phase) {
            (None, _) => Ok(None),
            (Some(b'Z'), Phase::Open) => self.ready(frame).map(Some),
            (Some(b'E'), Phase::Open) => Ok(Some(Event::Failed(error(frame)?))),
            (Some(b'G'), Phase::Open) => Ok(Some(Event::CopyIn)),
            (Some(tag @ (b'T' | b'D')), Phase::Open) => {
                self.content.clear();
                self.content.extend_from_slice(&frame[5..]);
                Ok(Some(if tag == b'T' { Event::Columns } else { Event::Row }))
            }
            (Some(b'C' | b'I'), Phase::Open) => {
                self.results += 1;
                Ok(Some(Event::Complete))
            }
            (Some(b'S'), _) => {
                self.parameter(frame)?;
                Ok(None)
            }
            (Some(tag), Phase::Login(_)) => self.login_frame(tag, frame, out),
            (Some(tag), _) => Err(unexpected(tag, "a message that has no place here")),
        }
    }

    fn ready(&mut self, frame: &[u8]) -> Result<Event, Fault> {
        self.farewell = None;
        self.status = match frame {
            [_, 0, 0, 0, 5, b'I'] => Status::Idle,
            [_, 0, 0, 0, 5, b'T'] => Status::InBlock,
            [_, 0, 0, 0, 5, b'E'] => Status::Failed,
            _ => return Err(unexpected(b'Z', "a malformed message")),
        };
        Ok(Event::Ready(self.status))
    }

    fn login_frame(
        &mut self,
        tag: u8,
        frame: &[u8],
        out: &mut BytesMut,
    ) -> Result<Option<Event>, Fault> {
        let Phase::Login(login) = &mut self.phase else {
            return Ok(None);
        };
        match tag {
            b'R' => login.answer(parse(frame)?, out).map(|()| None),
            b'E' => Err(Fault::Server(error(frame)?)),
            b'K' => {
                if let Message::BackendKeyData(key) = parse(frame)? {
                    self.cancel_key = Some((key.process_id(), key.secret_key()));
                }
                Ok(None)
            }
            b'Z' if login.is_done() => {
                self.phase = Phase::Open;
                self.ready(frame).map(Some)
            }
            tag => Err(unexpected(tag, "a message that has no place in a login")),
        }
    }

    fn parameter(&mut self, frame: &[u8]) -> Result<(), Fault> {
        let Message::ParameterStatus(body) = parse(frame)? else {
            return Ok(());
        };
        let malformed = |_| unexpected(b'S', "a malformed message");
        let name = body.name().map_err(malformed)?.to_owned();
        let value = body.value().map_err(malformed)?.to_owned();
        match self.parameters.iter().position(|(n, _)| *n == name) {
            Some(at) => self.parameters[at].1 = value,
            None if self.parameters.len() < 100 => self.parameters.push((name, value)),
            None => {}
        }
        Ok(())
    }
}

/// Rows, row descriptions, completions, notices, notifications, COPY data.
fn is_passed_over(tag: u8) -> bool {
    matches!(
        tag,
        b'D' | b'T'
            | b'C'
            | b'1'
            | b'2'
            | b'3'
            | b'n'
            | b't'
            | b's'
            | b'I'
            | b'N'
            | b'A'
            | b'd'
            | b'c'
            | b'H'
            | b'v'
    )
}

/// A frame's tag and its length with the header. Before the session is open most have no place:
/// what speaks another protocol is found out by its first bytes.
fn header(bytes: &[u8], is_open: bool) -> Result<(u8, usize), Fault> {
    let tag = bytes[0];
    let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    let (known, length_max) = match is_passed_over(tag) {
        true => (is_open || b"Nv".contains(&tag), 0x7fff_ffff),
        false => (b"ZESRKGW".contains(&tag), HELD_MAX),
    };
    if !known || !(4..=length_max).contains(&(length as usize)) {
        return Err(unexpected(tag, &format!("a message of {length} bytes")));
    }
    Ok((tag, length as usize + 1))
}

fn take(held: &mut Vec<u8>, input: &mut &[u8], wanted: usize) {
    let count = (wanted - held.len()).min(input.len());
    held.extend_from_slice(&input[..count]);
    *input = &input[count..];
}

fn unexpected(tag: u8, what: &str) -> Fault {
    Fault::Protocol(format!(
        "the server sent {what} (type '{}'); it does not speak the PostgreSQL protocol as we do",
        tag.escape_ascii()
    ))
}

fn parse(frame: &[u8]) -> Result<Message, Fault> {
    match Message::parse(&mut BytesMut::from(frame)) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(unexpected(frame[0], "an incomplete message")),
        Err(error) => Err(unexpected(frame[0], &format!("a malformed message: {error}"))),
    }
}

fn error(frame: &[u8]) -> Result<Box<ServerError>, Fault> {
    let Message::ErrorResponse(body) = parse(frame)? else {
        return Err(unexpected(frame[0], "a malformed error"));
    };
    Ok(Box::new(read_error(body.fields())))
}

fn read_error(mut fields: ErrorFields<'_>) -> ServerError {
    let mut error = ServerError { sqlstate: *b"XX000", ..ServerError::default() };
    while let Ok(Some(field)) = fields.next() {
        let text = String::from_utf8_lossy(field.value_bytes());
        match field.type_() {
            b'C' => {
                if let Ok(state) = <[u8; 5]>::try_from(text.as_bytes()) {
                    error.sqlstate =
                        state.map(|b| if b.is_ascii_alphanumeric() { b } else { b'?' });
                }
            }
            b'M' => error.message = text.into_owned(),
            b'V' => error.fatal |= matches!(&*text, "FATAL" | "PANIC"),
            b'S' => {
                error.fatal |= matches!(&*text, "FATAL" | "PANIC");
                error.severity = text.into_owned();
            }
            b'D' => error.detail = Some(text.into_owned()),
            b'H' => error.hint = Some(text.into_owned()),
            b'P' => error.position = text.parse().ok(),
            b'W' => error.context = Some(text.into_owned()),
            _ => {}
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_row_is_never_held() {
        let mut session = Session { phase: Phase::Open, ..Session::default() };
        let mut out = BytesMut::new();
        let row = [&b"D\x40\0\0\0"[..], &[b'E'; 64 * 1024]].concat();
        for split in 0..10 {
            for mut chunk in [&row[..split], &row[split..]] {
                assert_eq!(session.advance(&mut chunk, &mut out), Ok(None));
                assert!(session.held.capacity() <= 64, "{}", session.held.capacity());
            }
            assert_eq!(session.skip, 0x4000_0000 - 4 - 64 * 1024);
            session.skip = 0;
        }
    }
}
