//! The protocol above the link: frames in, events out. Frames with rows, notices and
//! completions are skipped without a copy.

use super::auth::Login;
use super::messages::{header, negotiation, parse, read_error, read_key, read_parameter};
use super::messages::{is_passed_over, out_of_place};
use super::{Fault, Settings, protocol};
use bytes::BytesMut;
use postgres_protocol::message::frontend;

/// How many of the server's parameters are kept, and how long name and value of one may be: a
/// server has a dozen or two, none longer than a path. What is beyond is not kept.
const PARAMETERS_MAX: usize = 100;
const PARAMETER_LENGTH_MAX: usize = 1024;

/// The longest notice that is parsed, and the longest that is reported.
const NOTICE_MAX: usize = 1024;
const NOTICE_TOLD_MAX: usize = 64 << 10;

/// By type of message: what an open session lets go unread, and whether it completes a result.
const USUAL: [Option<bool>; 256] = {
    let mut usual = [None; 256];
    let mut tag = 0;
    while tag < usual.len() {
        #[expect(clippy::cast_possible_truncation, reason = "there are 256 of them")]
        let byte = tag as u8;
        // Notices may be the server's last words.
        if byte != b'N' && is_passed_over(byte, Stage::Open) {
            usual[tag] = Some(matches!(byte, b'C' | b'I'));
        }
        tag += 1;
    }
    usual
};

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
    /// The server wants rows to copy; the answer is that there are none.
    CopyIn,
    /// The server reports an error; `Ready` follows unless it is fatal.
    Failed(Box<ServerError>),
    /// Where notices are reported: a warning or a notice, which has the form of an error.
    Notice(Box<ServerError>),
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
    /// Where in the query of a function.
    pub internal_position: Option<usize>,
    /// The query of a function.
    pub internal_query: Option<String>,
    /// Where in functions.
    pub context: Option<String>,
    /// The function of the server that reports it.
    pub routine: Option<String>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Closed,
    Login(Box<Login>),
    Open,
}

/// What may come, and what of it is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Login,
    Open,
    /// Open, and rows are kept.
    Keeping,
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
    /// The server asked for rows to copy, and has not ended that yet.
    copying: bool,
    /// Whether rows are kept for the owner.
    pub(super) keeping: bool,
    /// Whether to report notices to the owner.
    pub(super) notices: bool,
    /// A statement was sent to be parsed, and the server has not said that it did.
    pub(super) parsing: bool,
    /// The row description or row of the last event.
    pub(super) content: Vec<u8>,
    /// How many results were complete since the owner last set it to 0.
    pub(super) results: u32,
    pub(super) cancel_key: Option<(i32, i32)>,
    /// The server's message about its end. A crash and an immediate shutdown send a warning,
    /// after which the connection just closes.
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
        let login = Login::new(settings.credentials.clone(), settings.tls.is_some(), binding);
        self.phase = Phase::Login(Box::new(login));
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// The next event in `input`, which is shortened by what was read. None: need more bytes.
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        input: &mut &[u8],
        out: &mut BytesMut,
    ) -> Result<Option<Event>, Fault> {
        if let Some(status) = self.usual(input) {
            return Ok(Some(self.ready(status)));
        }
        self.look_closely(input, out)
    }

    #[inline(never)]
    fn look_closely(
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
            let (tag, total) = header(input, self.stage())?;
            if self.passes_over(tag, total) {
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

    /// What a closer look would do with the usual answer, in a few steps for each frame: lets go
    /// what decides nothing. The status, where the server is ready after that.
    #[inline(always)]
    fn usual(&mut self, input: &mut &[u8]) -> Option<Status> {
        if self.keeping || self.parsing || !matches!(self.phase, Phase::Open) {
            return None;
        }
        if self.skip > 0 || !self.held.is_empty() {
            return None;
        }
        let (mut rest, mut results) = (*input, self.results);
        while let [tag, a, b, c, d, ..] = *rest
            && let Some(counts) = USUAL[usize::from(tag)]
            && let total = u32::from_be_bytes([a, b, c, d]) as usize + 1
            && total > 4
            && let Some(tail) = rest.get(total..)
        {
            results = results.saturating_add(u32::from(counts));
            rest = tail;
        }
        (*input, self.results) = (rest, results);
        let ([b'Z', 0, 0, 0, 5, status], tail) = rest.split_first_chunk()? else {
            return None;
        };
        let status = status_of(*status)?;
        *input = tail;
        Some(status)
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
        let (tag, total) = header(&self.held, self.stage())?;
        if self.passes_over(tag, total) {
            self.skip = total - self.held.len();
            self.held.clear();
            return Ok(Some(Vec::new()));
        }
        take(&mut self.held, input, total);
        Ok((self.held.len() == total).then(|| std::mem::take(&mut self.held)))
    }

    /// Keeps a notice of class 57P, operator intervention: the server's last words, perhaps.
    fn heed(&mut self, notice: &[u8]) {
        if memchr::memmem::find(notice, b"\0C57P").is_some() {
            self.farewell = read_notice(notice);
        }
    }

    /// Whether a frame is let go unread; counts results on the way.
    fn passes_over(&mut self, tag: u8, total: usize) -> bool {
        let passed = is_passed_over(tag, self.stage());
        match tag {
            b'C' | b'I' if passed => self.results = self.results.saturating_add(1),
            b'1' => self.parsing = false,
            b'N' => return !self.notices || total > NOTICE_TOLD_MAX,
            _ => {}
        }
        passed
    }

    /// One whole frame that decides something; an empty one is a frame that was passed over.
    fn frame(&mut self, frame: &[u8], out: &mut BytesMut) -> Result<Option<Event>, Fault> {
        let Some(tag) = frame.first().copied() else {
            return Ok(None);
        };
        if tag == b'N' {
            self.heed(frame);
            return Ok(read_notice(frame).map(Event::Notice));
        }
        if let Phase::Login(_) = self.phase {
            return self.login_frame(tag, frame, out);
        }
        match tag {
            b'Z' => self.ready_frame(frame).map(Some),
            b'E' => {
                self.copying = false;
                Ok(Some(Event::Failed(Box::new(read_error(frame)?))))
            }
            // Each is answered, so a flood of them would fill our memory with answers.
            b'G' if self.copying => Err(protocol("copy-asked-twice").into()),
            b'G' => {
                self.copying = true;
                Ok(Some(Event::CopyIn))
            }
            b'T' | b'D' => {
                self.content.clear();
                self.content.extend_from_slice(&frame[5..]);
                Ok(Some(if tag == b'T' { Event::Columns } else { Event::Row }))
            }
            b'C' | b'I' => {
                self.results = self.results.saturating_add(1);
                Ok(Some(Event::Complete))
            }
            b'S' => self.parameter(frame).map(|()| None),
            tag => Err(out_of_place(tag, "session")),
        }
    }

    fn stage(&self) -> Stage {
        match (&self.phase, self.keeping) {
            (Phase::Open, true) => Stage::Keeping,
            (Phase::Open, false) => Stage::Open,
            _ => Stage::Login,
        }
    }

    #[inline]
    fn ready(&mut self, status: Status) -> Event {
        self.farewell = None;
        self.copying = false;
        self.status = status;
        Event::Ready(status)
    }

    fn ready_frame(&mut self, frame: &[u8]) -> Result<Event, Fault> {
        match &frame[5..] {
            [byte] if let Some(status) = status_of(*byte) => Ok(self.ready(status)),
            other => {
                let status = other[..other.len().min(16)].escape_ascii().to_string();
                Err(protocol("transaction-status-unknown").with("status", status).into())
            }
        }
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
        let is_done = login.is_done();
        match tag {
            b'R' => login.answer(parse(frame)?, out)?,
            b'E' => return Err(Fault::Server(Box::new(read_error(frame)?))),
            b'v' => negotiation(frame)?,
            b'K' if is_done => self.cancel_key = Some(read_key(frame)?),
            b'S' if is_done => self.parameter(frame)?,
            b'Z' if is_done => {
                self.phase = Phase::Open;
                return self.ready_frame(frame).map(Some);
            }
            tag => return Err(out_of_place(tag, "login")),
        }
        Ok(None)
    }

    fn parameter(&mut self, frame: &[u8]) -> Result<(), Fault> {
        let (name, value) = read_parameter(frame)?;
        let known = self.parameters.iter().position(|(n, _)| *n == name);
        if name.len() + value.len() > PARAMETER_LENGTH_MAX {
            // No value is better than one that is not true any more.
            known.map(|at| self.parameters.swap_remove(at));
            return Ok(());
        }
        match known {
            Some(at) => self.parameters[at].1 = value,
            None if self.parameters.len() < PARAMETERS_MAX => self.parameters.push((name, value)),
            None => {}
        }
        Ok(())
    }
}

/// A notice, unless it is malformed: nothing depends on it. It has the form of an error.
fn read_notice(frame: &[u8]) -> Option<Box<ServerError>> {
    let error = [b"E", &frame[1..]].concat();
    read_error(&error).ok().map(Box::new)
}

#[inline]
fn status_of(byte: u8) -> Option<Status> {
    match byte {
        b'I' => Some(Status::Idle),
        b'T' => Some(Status::InBlock),
        b'E' => Some(Status::Failed),
        _ => None,
    }
}

fn take(held: &mut Vec<u8>, input: &mut &[u8], wanted: usize) {
    let count = (wanted - held.len()).min(input.len());
    held.extend_from_slice(&input[..count]);
    *input = &input[count..];
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
