//! One session: client messages in, server messages out. Pure: it reads no clock and touches no
//! socket; how long a statement takes and when bytes are written is decided by its caller.
//!
//! ```text
//! Opening -> LoggingIn -> Ready <-> CopyIn
//! ```
//! In Ready at most one statement is running. `Flow` says what the session needs next.

mod execution;
mod extended;
mod startup;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::frames::{self, CancelKey, Frame, Malformed};
use crate::journal::{Entry, Manner};
use crate::messages::{self, Report, Transaction};
use crate::rows::Rows;
use crate::sql::{Effect, Parameters, Query, Statement};
use crate::state::State;
use extended::{Formats, Portal, Prepared};
use startup::Applicant;

/// What a session needs next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next message.
    Next,
    /// So much service time (`None`: for ever), and then `answer`.
    Serve(Option<Duration>),
    /// `fill`, as soon as there is room for more bytes.
    Fill,
    /// Another session's statement to end, and then to be closed.
    Cancel(CancelKey),
    /// To be closed once everything is written.
    Close,
}

/// What a session works with while it is called.
pub(crate) struct Turn<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) out: &'a mut Vec<u8>,
    /// When the message arrived.
    pub(crate) now: Instant,
}

#[derive(Debug)]
enum Phase {
    Opening,
    LoggingIn(Box<Applicant>),
    Ready,
    /// Data for COPY FROM STDIN comes in; rows so far.
    CopyIn(u64),
}

/// The statement that is waiting, in service or being answered.
#[derive(Debug)]
struct Running {
    query: Rc<Query>,
    /// Which of the query's statements.
    index: usize,
    is_simple: bool,
    parameters: Parameters,
    formats: Formats,
    effect: Effect,
    /// Rows that are being sent, and how many they are.
    rows: Option<(Rows, u64)>,
}

impl Running {
    fn statement(&self) -> &Statement {
        &self.query.statements[self.index]
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    number: u64,
    key: CancelKey,
    phase: Phase,
    transaction: Transaction,
    prepared: HashMap<Box<[u8]>, Rc<Prepared>>,
    portals: HashMap<Box<[u8]>, Portal>,
    /// After an error, until the next Sync.
    is_skipping: bool,
    /// Whether it counts against the number of connections.
    is_counted: bool,
    running: Option<Running>,
}

impl Session {
    /// The session of connection `number`, before its first byte.
    pub(crate) fn new(number: u64, key: CancelKey) -> Self {
        Self {
            number,
            key,
            phase: Phase::Opening,
            transaction: Transaction::Idle,
            prepared: HashMap::new(),
            portals: HashMap::new(),
            is_skipping: false,
            is_counted: false,
            running: None,
        }
    }

    pub(crate) fn key(&self) -> CancelKey {
        self.key
    }

    /// Handles the first message in `bytes`: how many bytes it took and what is needed next.
    /// `None` where the message is not complete.
    pub(crate) fn receive(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Option<(usize, Flow)> {
        let received = match self.phase {
            Phase::Opening => self.receive_opening(bytes, turn),
            _ => self.receive_frame(bytes, turn),
        };
        received.unwrap_or_else(|Malformed(why)| {
            let flow = self.fail(&Report::fatal("08P01", why), turn);
            Some((bytes.len(), flow))
        })
    }

    /// Gives back what it holds of the shared state; called once, when the connection is gone.
    pub(crate) fn leave(&mut self, state: &mut State) {
        state.sessions -= usize::from(std::mem::take(&mut self.is_counted));
    }

    fn receive_frame(
        &mut self,
        bytes: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<Option<(usize, Flow)>, Malformed> {
        let Some((frame, length)) = frames::frame(bytes)? else {
            return Ok(None);
        };
        turn.state.journal.count_message(frame.kind);
        let flow = match &self.phase {
            Phase::LoggingIn(_) => self.log_in(frame, turn)?,
            Phase::CopyIn(rows) => {
                let rows = *rows;
                self.copy_in(frame, rows, turn)
            }
            _ => self.handle(frame, turn)?,
        };
        Ok(Some((length, flow)))
    }

    fn handle(&mut self, frame: Frame<'_>, turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        if self.is_skipping && !matches!(frame.kind, b'S' | b'X') {
            return Ok(Flow::Next);
        }
        match frame.kind {
            b'Q' => self.simple_query(frame.body, turn),
            b'P' => self.parse(frame.body, turn),
            b'B' => self.bind(frame.body, turn),
            b'D' => self.describe(frame.body, turn),
            b'E' => self.execute(frame.body, turn),
            b'C' => self.close(frame.body, turn),
            b'S' => Ok(self.sync(turn)),
            b'X' => Ok(Flow::Close),
            // Flush: we never hold anything back. Copy messages after a failed COPY are void.
            b'H' | b'd' | b'c' | b'f' => Ok(Flow::Next),
            b'F' => {
                let report = Report::error("0A000", "function calls are not supported");
                let flow = self.fail(&report, turn);
                self.sync(turn);
                Ok(flow)
            }
            _ => Err(Malformed("invalid frontend message type")),
        }
    }

    fn simple_query(&mut self, body: &[u8], turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        let query = turn.state.query(frames::Body(body).string()?);
        let parameters = Rc::clone(&turn.state.no_parameters);
        self.note(Manner::Simple, b"", &query, &parameters, turn);
        if query.statements.is_empty() {
            messages::bare(turn.out, b'I');
            messages::ready_for_query(turn.out, self.transaction);
            return Ok(Flow::Next);
        }
        let formats = Formats::TEXT;
        let effect = Effect::NONE;
        let running =
            Running { query, index: 0, is_simple: true, parameters, formats, effect, rows: None };
        Ok(self.begin(running, turn))
    }

    fn note(
        &self,
        manner: Manner,
        statement: &[u8],
        query: &Rc<Query>,
        parameters: &Parameters,
        turn: &mut Turn<'_>,
    ) {
        if manner != Manner::Parse {
            query.executed.set(query.executed.get() + 1);
            turn.state.executed += 1;
        }
        let entry = Entry { connection: self.number, manner, statement, query, parameters };
        turn.state.journal.note(entry, turn.now);
    }
}
