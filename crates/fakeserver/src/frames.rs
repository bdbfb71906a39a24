//! Takes client messages apart: bytes in, borrowed messages out. "Not all here yet" is `None`.
//! Knows no sockets and no meaning of any message.

/// Longest message that a client may send, as in PostgreSQL.
const LONGEST: usize = (1 << 30) - 1;
/// Longest message before a session exists.
const LONGEST_OPENING: usize = 10_000;

const PROTOCOL_MAJOR: u32 = 3;
const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// The bytes are not the PostgreSQL protocol; what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// One message of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) body: &'a [u8],
}

/// The first message of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening<'a> {
    /// The client asks for TLS or for GSS encryption.
    Encryption,
    /// The client wants another session's statement to end.
    Cancel(CancelKey),
    /// The client wants a session; `minor` is the protocol's minor version.
    Startup { minor: u16, body: &'a [u8] },
}

/// Names a session in a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CancelKey {
    pub(crate) process_id: u32,
    pub(crate) secret: u32,
}

/// The first whole message in `bytes` and the number of bytes it takes.
pub(crate) fn frame(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let [kind, rest @ ..] = bytes else {
        return Ok(None);
    };
    let body = sized(rest, LONGEST)?;
    Ok(body.map(|body| (Frame { kind: *kind, body }, body.len() + 5)))
}

/// The first whole message of a connection that has no session yet, and the bytes it takes.
pub(crate) fn opening(bytes: &[u8]) -> Result<Option<(Opening<'_>, usize)>, Malformed> {
    let Some(message) = sized(bytes, LONGEST_OPENING)? else {
        return Ok(None);
    };
    let mut body = Body(message);
    let opening = match body.u32()? {
        SSL_REQUEST | GSS_REQUEST => Opening::Encryption,
        CANCEL_REQUEST => {
            Opening::Cancel(CancelKey { process_id: body.u32()?, secret: body.u32()? })
        }
        code if code >> 16 == PROTOCOL_MAJOR => {
            Opening::Startup { minor: (code & 0xffff) as u16, body: body.0 }
        }
        _ => return Err(Malformed("unsupported frontend protocol")),
    };
    Ok(Some((opening, message.len() + 4)))
}

/// What follows a length word that counts itself.
fn sized(bytes: &[u8], longest: usize) -> Result<Option<&[u8]>, Malformed> {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if !(4..=longest).contains(&length) {
        return Err(Malformed("invalid message length"));
    }
    Ok(bytes.get(4..length))
}

/// Reads a message's body from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body<'a>(pub(crate) &'a [u8]);

impl<'a> Body<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<4>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*taken))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<2>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*taken))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    /// A string that ends with a zero byte, without it.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(SHORT)?;
        let string = self.bytes(end + 1)?;
        Ok(&string[..end])
    }
}

const SHORT: Malformed = Malformed("message is shorter than what it must hold");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_seen_only_when_all_of_it_is_there() {
        let bytes = b"Q\0\0\0\x06a\0rest";
        for cut in 0..7 {
            assert_eq!(frame(&bytes[..cut]), Ok(None), "{cut} bytes");
        }
        assert_eq!(frame(bytes), Ok(Some((Frame { kind: b'Q', body: b"a\0" }, 7))));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        assert!(frame(b"Q\0\0\0\x03").is_err());
        assert!(frame(b"Q\xff\xff\xff\xff").is_err());
        assert!(opening(b"\0\x01\0\0\0\x03\0\0").is_err());
        assert!(opening(b"\0\0\0\x08\0\x02\0\0").is_err());
    }

    #[test]
    fn a_cancel_request_names_its_session() {
        let bytes = b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x05\0\0\0\x09";
        let key = CancelKey { process_id: 5, secret: 9 };
        assert_eq!(opening(bytes), Ok(Some((Opening::Cancel(key), 16))));
    }

    #[test]
    fn a_body_that_ends_too_early_is_malformed() {
        assert!(Body(b"ab").u32().is_err());
        assert!(Body(b"ab").string().is_err());
        assert_eq!(Body(b"ab\0c").string(), Ok(&b"ab"[..]));
    }
}
