//! Writes server messages at the end of a buffer. Knows the layout of each message, and nothing
//! of when to send which.

use crate::frames::CancelKey;
use crate::sql::Column;

/// Where a session stands between its statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transaction {
    /// In no transaction block.
    Idle,
    /// In a transaction block.
    Open,
    /// In a transaction block that failed.
    Failed,
}

/// An error or a notice, as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) severity: &'static str,
    pub(crate) code: Box<str>,
    pub(crate) message: String,
}

impl Report {
    pub(crate) fn error(code: &str, message: impl Into<String>) -> Self {
        Self { severity: "ERROR", code: code.into(), message: message.into() }
    }

    pub(crate) fn fatal(code: &str, message: impl Into<String>) -> Self {
        Self { severity: "FATAL", ..Self::error(code, message) }
    }

    pub(crate) fn notice(message: impl Into<String>) -> Self {
        Self { severity: "NOTICE", ..Self::error("00000", message) }
    }

    /// An ErrorResponse, or a NoticeResponse for a notice.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let kind = if self.severity == "NOTICE" { b'N' } else { b'E' };
        message(out, kind, |out| {
            for (field, text) in [
                (b'S', self.severity),
                (b'V', self.severity),
                (b'C', &*self.code),
                (b'M', self.message.as_str()),
            ] {
                out.push(field);
                string(out, text);
            }
            out.push(0);
        });
    }
}

/// A message of this kind with the body that `body` writes.
pub(crate) fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// A message that has no body.
pub(crate) fn bare(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&[kind, 0, 0, 0, 4]);
}

/// One of the authentication messages, by its code.
pub(crate) fn authentication(out: &mut Vec<u8>, code: u32, data: &[u8]) {
    message(out, b'R', |out| {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(data);
    });
}

pub(crate) fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |out| {
        string(out, name);
        string(out, value);
    });
}

pub(crate) fn backend_key_data(out: &mut Vec<u8>, key: CancelKey) {
    message(out, b'K', |out| {
        out.extend_from_slice(&key.process_id.to_be_bytes());
        out.extend_from_slice(&key.secret.to_be_bytes());
    });
}

/// NegotiateProtocolVersion: we speak 3.0 and know none of these options.
pub(crate) fn negotiate_protocol(out: &mut Vec<u8>, options: &[&str]) {
    message(out, b'v', |out| {
        out.extend_from_slice(&0_u32.to_be_bytes());
        out.extend_from_slice(&(options.len() as u32).to_be_bytes());
        for option in options {
            string(out, option);
        }
    });
}

pub(crate) fn ready_for_query(out: &mut Vec<u8>, transaction: Transaction) {
    let status = match transaction {
        Transaction::Idle => b'I',
        Transaction::Open => b'T',
        Transaction::Failed => b'E',
    };
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
}

pub(crate) fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |out| string(out, tag));
}

/// RowDescription; `binary` says of column n whether its values come in binary.
pub(crate) fn row_description(
    out: &mut Vec<u8>,
    columns: &[Column],
    binary: impl Fn(usize) -> bool,
) {
    message(out, b'T', |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (number, column) in columns.iter().enumerate() {
            string(out, &column.name);
            out.extend_from_slice(&[0; 6]);
            out.extend_from_slice(&column.type_oid().to_be_bytes());
            out.extend_from_slice(&column.type_size().to_be_bytes());
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            out.extend_from_slice(&u16::from(binary(number)).to_be_bytes());
        }
    });
}

/// DataRow of values; `None` is NULL.
pub(crate) fn data_row(out: &mut Vec<u8>, values: &[Option<Vec<u8>>]) {
    message(out, b'D', |out| {
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            match value {
                None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
                Some(bytes) => {
                    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                    out.extend_from_slice(bytes);
                }
            }
        }
    });
}

pub(crate) fn parameter_description(out: &mut Vec<u8>, oids: &[u32]) {
    message(out, b't', |out| {
        out.extend_from_slice(&(oids.len() as u16).to_be_bytes());
        for oid in oids {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// CopyInResponse (`G`) or CopyOutResponse (`H`) of one text column.
pub(crate) fn copy_response(out: &mut Vec<u8>, kind: u8) {
    message(out, kind, |out| out.extend_from_slice(&[0, 0, 1, 0, 0]));
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|&byte| byte != 0));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_its_own_length() {
        let mut out = b"before".to_vec();
        command_complete(&mut out, "SELECT 1");
        assert_eq!(out, b"beforeC\0\0\0\x0dSELECT 1\0");
    }

    #[test]
    fn nulls_and_values_share_a_row() {
        let mut out = Vec::new();
        data_row(&mut out, &[None, Some(b"x".to_vec())]);
        assert_eq!(out, b"D\0\0\0\x0f\0\x02\xff\xff\xff\xff\0\0\0\x01x");
    }

    #[test]
    fn a_notice_is_no_error() {
        let mut out = Vec::new();
        Report::notice("n").write(&mut out);
        Report::error("40001", "e").write(&mut out);
        assert_eq!(out[0], b'N');
        assert!(out.windows(7).any(|part| part == b"C40001\0"));
    }
}
