//! One thread's ring: what is queued for the kernel, and all memory that the kernel reads and
//! writes for it. Knows sockets by number and connections by `Id`; what a completion means is
//! said in `mod`. The only unsafe code of the engine is here: the memory belongs to `Ring`, which
//! gives it up only when no operation is left that could still use it.

#![allow(unsafe_code)]

use super::buffers::{Buffers, Part};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::time::Duration;

/// Requests between two submissions; more submit earlier.
const REQUESTS: u32 = 256;
/// Bytes of sends between two submissions, and of one send.
const SENDS: usize = 256 * 1024;
pub(super) const SEND_MAX: usize = 64 * 1024;
/// How often and how long the end of a ring waits for what is in flight.
const REAPS: u32 = 200;
const REAP: Duration = Duration::from_millis(10);

/// Whose request it is: a token, and which of the connections that had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    pub token: u32,
    pub generation: u32,
}

const NOBODY: Id = Id { token: 0, generation: 0 };

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Receive,
    Send,
    Rest,
    Connect,
    Wake,
    Silent,
}

const KINDS: [Kind; 6] =
    [Kind::Receive, Kind::Send, Kind::Rest, Kind::Connect, Kind::Wake, Kind::Silent];

/// Tokens go into the bits that kind and generation leave.
const TOKEN_BITS: u32 = 28;

/// The mark of a request, which comes back with its completion.
fn mark(kind: Kind, id: Id) -> u64 {
    debug_assert!(id.token < 1 << TOKEN_BITS);
    u64::from(kind as u8) << 60 | u64::from(id.token) << 32 | u64::from(id.generation)
}

fn kind_of(mark: u64) -> Kind {
    *KINDS.get((mark >> 60) as usize).unwrap_or(&Kind::Silent)
}

fn id_of(mark: u64) -> Id {
    let token = (mark >> 32) as u32 & ((1 << TOKEN_BITS) - 1);
    Id { token, generation: mark as u32 }
}

/// What has completed.
#[derive(Debug)]
pub(super) enum Completion {
    /// Bytes came, or their end (none), or an error; `armed`: more will come without asking.
    Received { id: Id, part: Option<Part>, error: Option<Errno>, armed: bool },
    /// The socket did not take the whole send: the bytes that it took, or an error.
    Refused { id: Id, result: Result<usize, Errno> },
    /// What was left of a refused send is sent, or an error.
    Sent { id: Id, error: Option<Errno> },
    /// A part of it is sent, and the rest wants `resume` or `give_up`.
    Short { id: Id, place: usize },
    /// A connection stands, or will not.
    Connected(Id),
    /// Somebody woke us.
    Woken,
    /// Nothing that matters to anybody.
    Other,
}

/// What is left of a send that a socket did not take at once; stays put until it is sent.
#[derive(Default)]
struct Rest {
    bytes: Vec<u8>,
    id: Option<Id>,
}

pub(super) struct Ring {
    io: IoUring,
    pub buffers: Buffers,
    /// The sends between two submissions. Each is tried during its submission and never later, so
    /// that all of it is free again afterwards.
    sends: Vec<u8>,
    rests: Vec<Rest>,
    /// Operations that the kernel still has, and that will tell of their end.
    in_flight: usize,
    waker: OwnedFd,
}

impl Ring {
    /// A ring for about this number of connections; `waker` is an eventfd.
    pub(super) fn new(connections: usize, waker: OwnedFd) -> io::Result<Self> {
        let completions = u32::try_from(connections.saturating_mul(4)).unwrap_or(u32::MAX);
        let io = IoUring::builder()
            .setup_cqsize(completions.clamp(2 * REQUESTS, 16 * 1024).next_power_of_two())
            .setup_clamp()
            .setup_submit_all()
            // What completes is made known when we ask for it, in our thread, and never
            // interrupts us in between.
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(REQUESTS)?;
        let parameters = io.params();
        if !(parameters.is_feature_ext_arg()
            && parameters.is_feature_nodrop()
            && parameters.is_feature_skip_cqe_on_success())
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let buffers = Buffers::new(connections);
        // SAFETY: the entries are page-aligned and as many as said. They are given up only by
        // `Drop`, when nothing is in flight and after the ring.
        unsafe {
            let (address, count) = buffers.entries();
            io.submitter().register_buf_ring_with_flags(address, count, 0, 0)?;
        }
        let sends = Vec::with_capacity(SENDS);
        let mut ring = Self { io, buffers, sends, rests: Vec::new(), in_flight: 0, waker };
        ring.listen();
        Ok(ring)
    }

    /// Waits for the eventfd. Nobody reads it: each write wakes.
    fn listen(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.waker.as_raw_fd()), events(PollFlags::IN));
        self.begin(&poll.multi(true).build(), Kind::Wake, NOBODY);
    }

    /// Queues an operation that will tell of its end.
    fn begin(&mut self, entry: &Entry, kind: Kind, id: Id) {
        self.in_flight += 1;
        self.push(&entry.clone().user_data(mark(kind, id)));
    }

    fn push(&mut self, entry: &Entry) {
        loop {
            // SAFETY: whatever an entry points to belongs to this ring (`sends`, `rests`), has its
            // place on the heap, and is given up only by `Drop`, when nothing is in flight.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return;
            }
            // A full queue. The kernel takes it all, or is out of memory for a moment.
            let _ = self.io.submit();
        }
    }

    /// Receives from a socket from now on.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, id: Id) {
        let receive = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), 0).build();
        self.begin(&receive, Kind::Receive, id);
    }

    /// Tells when a connection stands.
    pub(super) fn connected(&mut self, socket: BorrowedFd<'_>, id: Id) {
        let poll = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events(PollFlags::OUT));
        self.begin(&poll.build(), Kind::Connect, id);
    }

    /// Whether a send of this length needs a submission before it.
    pub(super) fn is_full(&self, length: usize) -> bool {
        self.sends.len() + length > SENDS
    }

    /// Queues a send, which must not be full, and says where its bytes are until the next
    /// submission. Only one that the socket does not take whole is heard of.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, id: Id, bytes: &[u8]) -> usize {
        let start = self.sends.len();
        // Beyond its capacity it would move.
        assert!(bytes.len() <= SENDS - start, "room for a send");
        self.sends.extend_from_slice(bytes);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let entry = send(socket, &self.sends[start..], flags).flags(Flags::SKIP_SUCCESS);
        self.push(&entry.user_data(mark(Kind::Send, id)));
        start
    }

    /// Sends what a socket did not take of a send, from its place, as soon as it takes it.
    pub(super) fn send_rest(&mut self, socket: BorrowedFd<'_>, id: Id, place: Range<usize>) {
        let free = self.rests.iter().position(|rest| rest.id.is_none());
        let number = free.unwrap_or_else(|| {
            self.rests.push(Rest::default());
            self.rests.len() - 1
        });
        let rest = &mut self.rests[number];
        rest.id = Some(id);
        rest.bytes.clear();
        rest.bytes.extend_from_slice(&self.sends[place]);
        self.resume(socket, number);
    }

    /// Sends what is left of a rest.
    pub(super) fn resume(&mut self, socket: BorrowedFd<'_>, place: usize) {
        let entry = send(socket, &self.rests[place].bytes, SendFlags::NOSIGNAL);
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        self.begin(&entry, Kind::Rest, Id { token: place, generation: 0 });
    }

    /// What is left of a rest is not wanted any more.
    pub(super) fn give_up(&mut self, place: usize) {
        self.rests[place].id = None;
    }

    /// Cancels what is in flight on a socket and closes it, after what is queued.
    pub(super) fn close(&mut self, socket: OwnedFd) {
        let socket = Fd(socket.into_raw_fd());
        let silent = mark(Kind::Silent, NOBODY);
        for entry in [
            opcode::AsyncCancel2::new(CancelBuilder::fd(socket).all()).build(),
            opcode::Close::new(socket).build(),
        ] {
            self.push(&entry.flags(Flags::SKIP_SUCCESS).user_data(silent));
        }
    }

    /// Gives the kernel what is queued, without waiting for anything.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.taken(self.io.submit())
    }

    /// Submits what is queued and waits for a completion, at most until the timeout.
    pub(super) fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let time = Timespec::from(at_most);
        let arguments = SubmitArgs::new().timespec(&time);
        self.taken(self.io.submitter().submit_with_args(1, &arguments))
    }

    /// Not an error: the time is over, a signal came, or completions must be taken first.
    fn taken(&self, result: io::Result<usize>) -> io::Result<()> {
        match result.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) | Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => {
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Whether the kernel has taken everything and told of it all, so that no send will be heard of
    /// any more but by `Sent`. To be asked when every completion was taken.
    pub(super) fn is_quiet(&mut self) -> bool {
        let queue = self.io.submission();
        queue.is_empty() && !queue.cq_overflow()
    }

    /// Gives the room of the sends free; only when all is quiet.
    pub(super) fn clear_sends(&mut self) {
        self.sends.clear();
    }

    /// The next completion that is known.
    pub(super) fn next(&mut self) -> Option<Completion> {
        let entry = self.io.completion().next()?;
        let (kind, id) = (kind_of(entry.user_data()), id_of(entry.user_data()));
        let armed = cqueue::more(entry.flags());
        if !armed && !matches!(kind, Kind::Send | Kind::Silent) {
            self.in_flight -= 1;
        }
        let result = match usize::try_from(entry.result()) {
            Ok(count) => Ok(count),
            Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
        };
        Some(match kind {
            Kind::Receive => {
                let buffer = cqueue::buffer_select(entry.flags());
                let part = buffer.map(|number| self.buffers.filled(number, result.unwrap_or(0)));
                Completion::Received { id, part, error: result.err(), armed }
            }
            Kind::Send => Completion::Refused { id, result },
            Kind::Rest => self.next_of_rest(id.token as usize, result),
            Kind::Connect => Completion::Connected(id),
            Kind::Wake => {
                // An error is the cancellation by `Drop`.
                if !armed && result.is_ok() {
                    self.listen();
                }
                Completion::Woken
            }
            Kind::Silent => Completion::Other,
        })
    }

    fn next_of_rest(&mut self, place: usize, result: Result<usize, Errno>) -> Completion {
        let rest = &mut self.rests[place];
        let Some(id) = rest.id else { return Completion::Other };
        match result {
            Ok(count) if count < rest.bytes.len() => {
                rest.bytes.drain(..count);
                Completion::Short { id, place }
            }
            other => {
                rest.id = None;
                Completion::Sent { id, error: other.err() }
            }
        }
    }
}

fn events(flags: PollFlags) -> u32 {
    u32::from(flags.bits())
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], flags: SendFlags) -> Entry {
    // A send is short only where the socket takes no more.
    let flags = (flags.bits() | RecvFlags::WAITALL.bits()).cast_signed();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), length).flags(flags).build()
}

impl Drop for Ring {
    fn drop(&mut self) {
        let silent = mark(Kind::Silent, NOBODY);
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        self.push(&cancel.user_data(silent));
        for _ in 0..REAPS {
            if self.in_flight == 0 {
                return;
            }
            let _ = self.wait(REAP);
            while self.next().is_some() {}
        }
        debug_assert_eq!(self.in_flight, 0, "all that is cancelled ends");
        // What the kernel may still use is left to it.
        std::mem::forget(std::mem::take(&mut self.rests));
        self.buffers.leave();
    }
}
