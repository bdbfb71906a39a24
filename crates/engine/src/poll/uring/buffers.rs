//! The buffers into which a ring receives: few for many connections, as a buffer is taken only
//! when bytes come, and given back when they have been looked at.

#![allow(unsafe_code)]

use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The size of a buffer: a few pages, and a cache line more, or all would begin in one set of the
/// cache.
const SIZE: usize = 16 * 1024 + 64;
/// How many there are at least and at most; a power of two.
const COUNT: (usize, usize) = (16, 1024);
/// The largest page that systems have.
const PAGE: usize = 64 * 1024;

/// Bytes in a buffer, which is ours until `give_back`.
#[derive(Debug)]
pub(super) struct Part {
    number: u16,
    length: u16,
}

impl Part {
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Parts that came on one connection, the first one first.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Queue {
    ends: Option<(u16, u16)>,
}

impl Queue {
    pub(super) fn is_empty(self) -> bool {
        self.ends.is_none()
    }
}

/// What is known of a buffer that the kernel has filled.
#[derive(Clone, Copy, Default)]
struct Filled {
    length: u16,
    next: Option<NonZero<u32>>,
}

pub(super) struct Buffers {
    /// The entries of the kernel's queue, then the buffers.
    memory: NonNull<u8>,
    layout: Layout,
    count: u16,
    /// The end of the kernel's queue.
    tail: u16,
    /// How many the kernel has.
    free: u16,
    filled: Box<[Filled]>,
    left: bool,
}

impl Buffers {
    /// Buffers for about this number of connections.
    pub(super) fn new(connections: usize) -> Self {
        let count = connections.saturating_mul(2).clamp(COUNT.0, COUNT.1).next_power_of_two();
        let entries = (count * size_of::<BufRingEntry>()).next_multiple_of(PAGE);
        let layout = Layout::from_size_align(entries + count * SIZE, PAGE).expect("a small layout");
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        let filled = vec![Filled::default(); count].into_boxed_slice();
        let count = u16::try_from(count).expect("at most 1024");
        let mut buffers = Self { memory, layout, count, tail: 0, free: 0, filled, left: false };
        (0..count).for_each(|number| buffers.provide(number));
        buffers
    }

    /// Address and number of the entries, for the kernel.
    pub(super) fn entries(&self) -> (u64, u16) {
        (self.memory.as_ptr() as u64, self.count)
    }

    /// How many the kernel can still fill.
    pub(super) fn free(&self) -> u16 {
        self.free
    }

    fn buffer(&self, number: u16) -> NonNull<u8> {
        assert!(number < self.count, "a number of a buffer");
        let at = self.layout.size() - (usize::from(self.count) - usize::from(number)) * SIZE;
        // SAFETY: inside the memory, as the number is.
        unsafe { self.memory.add(at) }
    }

    /// Gives a buffer that is ours to the kernel.
    fn provide(&mut self, number: u16) {
        let address = self.buffer(number).as_ptr() as u64;
        let entries = self.memory.as_ptr().cast::<BufRingEntry>();
        let place = usize::from(self.tail & (self.count - 1));
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
        // SAFETY: the memory begins with `count` entries, a power of two, and the kernel reads an
        // entry only when the tail has passed it. The tail lies in the unused part of the first.
        unsafe {
            let entry = &mut *entries.add(place);
            entry.set_addr(address);
            entry.set_len(SIZE as u32);
            entry.set_bid(number);
            let tail = BufRingEntry::tail(entries).cast_mut().cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }

    /// The kernel has filled a buffer.
    pub(super) fn filled(&mut self, number: u16, length: usize) -> Part {
        self.free -= 1;
        Part { number, length: u16::try_from(length.min(SIZE)).expect("a small buffer") }
    }

    /// What came.
    pub(super) fn bytes(&self, part: &Part) -> &[u8] {
        // SAFETY: the buffer is ours while there is a part of it, and was filled so far.
        unsafe { std::slice::from_raw_parts(self.buffer(part.number).as_ptr(), part.length.into()) }
    }

    /// What came has been looked at.
    #[expect(clippy::needless_pass_by_value, reason = "it is gone")]
    pub(super) fn give_back(&mut self, part: Part) {
        self.provide(part.number);
    }

    /// Appends a part.
    #[expect(clippy::needless_pass_by_value, reason = "a part has one owner")]
    pub(super) fn push(&mut self, queue: &mut Queue, part: Part) {
        self.filled[usize::from(part.number)] = Filled { length: part.length, next: None };
        queue.ends = match queue.ends {
            None => Some((part.number, part.number)),
            Some((first, last)) => {
                self.filled[usize::from(last)].next = NonZero::new(u32::from(part.number) + 1);
                Some((first, part.number))
            }
        };
    }

    /// The part that came first.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<Part> {
        let (number, last) = queue.ends?;
        let Filled { length, next } = self.filled[usize::from(number)];
        queue.ends = next.and_then(|next| Some((u16::try_from(next.get() - 1).ok()?, last)));
        Some(Part { number, length })
    }

    /// Leaves the memory to the kernel for ever.
    pub(super) fn leave(&mut self) {
        self.left = true;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if !self.left {
            // SAFETY: allocated so, and the kernel has no operation left that would use it.
            unsafe { dealloc(self.memory.as_ptr(), self.layout) };
        }
    }
}
