//! Makes a long answer piece by piece: a number of rows of one value of a given size. Knows no
//! sockets; its caller decides how much memory a piece takes.

/// The value's bytes, and the unit in which a value is copied.
static FILLING: [u8; 16 * 1024] = [b'x'; 16 * 1024];

/// What is still to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Rows that have not been begun.
    left: u64,
    /// Bytes in each value.
    bytes: usize,
    /// Bytes missing in the row that has been begun.
    open: usize,
}

impl Rows {
    pub(crate) fn new(rows: u64, bytes: usize) -> Self {
        Self { left: rows, bytes, open: 0 }
    }

    /// Appends until `out` holds about `enough` bytes; true once all rows are complete.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, enough: usize) -> bool {
        while self.open > 0 || self.left > 0 {
            if out.len() >= enough {
                return false;
            }
            if self.open == 0 {
                self.begin(out);
            }
            let piece = self.open.min(FILLING.len());
            out.extend_from_slice(&FILLING[..piece]);
            self.open -= piece;
        }
        true
    }

    /// Ends after the row that has been begun.
    pub(crate) fn stop(&mut self) {
        self.left = 0;
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        let value = self.bytes as u32;
        out.push(b'D');
        out.extend_from_slice(&(value + 10).to_be_bytes());
        out.extend_from_slice(&1_u16.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
        self.left -= 1;
        self.open = self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut rows: Rows, enough: usize) -> (Vec<u8>, usize) {
        let (mut bytes, mut most) = (Vec::new(), 0);
        loop {
            let mut piece = Vec::new();
            let is_complete = rows.fill(&mut piece, enough);
            most = most.max(piece.len());
            bytes.extend(piece);
            if is_complete {
                return (bytes, most);
            }
        }
    }

    #[test]
    fn pieces_add_up_to_whole_rows_in_bounded_memory() {
        for (rows, bytes) in [(0, 5), (3, 0), (2, 1), (1, 1_000_000), (1000, 100)] {
            let (made, most) = all(Rows::new(rows, bytes), 65_536);
            assert_eq!(made.len(), rows as usize * (bytes + 11), "{rows} x {bytes}");
            assert!(most <= 65_536 + FILLING.len() + 11);
        }
        assert_eq!(all(Rows::new(2, 1), 1).0, b"D\0\0\0\x0b\0\x01\0\0\0\x01x".repeat(2));
    }

    #[test]
    fn a_stopped_answer_ends_with_a_whole_row() {
        let mut rows = Rows::new(100, 100_000);
        let mut out = Vec::new();
        assert!(!rows.fill(&mut out, 10));
        rows.stop();
        assert!(rows.fill(&mut out, usize::MAX));
        assert_eq!(out.len(), 100_011);
    }
}
