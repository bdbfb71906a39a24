//! The server's half of the protocol, as far as the engine's clients speak it: bytes of requests
//! in, bytes of answers out. Knows nothing of time and of sockets.

use std::collections::HashMap;

/// A frame with its tag and length.
pub fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a short body");
    let mut bytes = vec![tag];
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// An authentication request with its code and what belongs to it.
pub fn authentication(code: u32, rest: &[u8]) -> Vec<u8> {
    frame(b'R', &[&code.to_be_bytes(), rest].concat())
}

pub fn parameter(name: &str, value: &str) -> Vec<u8> {
    frame(b'S', format!("{name}\0{value}\0").as_bytes())
}

pub fn key(process: u32, secret: u32) -> Vec<u8> {
    let body = [process.to_be_bytes(), secret.to_be_bytes()].concat();
    frame(b'K', &body)
}

/// `status` is I, T or E.
pub fn ready(status: u8) -> Vec<u8> {
    frame(b'Z', &[status])
}

pub fn error(severity: &str, sqlstate: &str, message: &str) -> Vec<u8> {
    let body = format!("S{severity}\0V{severity}\0C{sqlstate}\0M{message}\0\0");
    frame(b'E', body.as_bytes())
}

/// One column of text.
pub fn row(value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).expect("a short value");
    let body = [&[0, 1], &length.to_be_bytes()[..], value].concat();
    frame(b'D', &body)
}

/// The description of one column of text.
pub fn columns() -> Vec<u8> {
    let rest = [0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0];
    frame(b'T', &[&[0, 1][..], b"c\0", &rest].concat())
}

pub fn complete(tag: &str) -> Vec<u8> {
    frame(b'C', format!("{tag}\0").as_bytes())
}

/// What a server says once it lets somebody in.
pub fn welcome() -> Vec<u8> {
    [
        authentication(0, &[]),
        parameter("server_version", "18.1"),
        parameter("in_hot_standby", "off"),
        key(4711, 42),
        ready(b'I'),
    ]
    .concat()
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Startup,
    Statement(String),
    Terminate,
}

/// The server's end of one connection.
#[derive(Debug)]
pub struct Backend {
    inbox: Vec<u8>,
    started: bool,
    status: u8,
    parsed: HashMap<String, String>,
    bound: String,
    extended: bool,
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            inbox: Vec::new(),
            started: false,
            status: b'I',
            parsed: HashMap::new(),
            bound: String::new(),
            extended: false,
        }
    }
}

impl Backend {
    /// The requests that these bytes complete.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<Request> {
        self.inbox.extend_from_slice(bytes);
        let mut requests = Vec::new();
        loop {
            let header = usize::from(self.started);
            let Some(length) = self.inbox.get(header..header + 4) else {
                return requests;
            };
            let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
            let total = header + length as usize;
            if self.inbox.len() < total {
                return requests;
            }
            let message: Vec<u8> = self.inbox.drain(..total).collect();
            requests.extend(self.message(&message));
        }
    }

    fn message(&mut self, message: &[u8]) -> Option<Request> {
        if !std::mem::replace(&mut self.started, true) {
            return Some(Request::Startup);
        }
        let body = &message[5..];
        match message[0] {
            b'Q' => {
                self.extended = false;
                return Some(Request::Statement(texts(body)[0].clone()));
            }
            b'P' => {
                let [name, sql] = &texts(body)[..2] else { panic!("Parse has two texts") };
                self.parsed.insert(name.clone(), sql.clone());
            }
            b'B' => {
                let name = &texts(body)[1];
                self.bound = self.parsed.get(name).expect("a statement that exists").clone();
            }
            b'S' => {
                self.extended = true;
                return Some(Request::Statement(std::mem::take(&mut self.bound)));
            }
            b'C' => drop(self.parsed.remove(&texts(&body[1..])[0])),
            b'X' => return Some(Request::Terminate),
            b'D' | b'E' => {}
            tag => panic!("the engine sent an unknown message '{}'", tag.escape_ascii()),
        }
        None
    }

    /// The answer to `sql`, which fails with `failure`, and what it does to a transaction block.
    pub fn answer(&mut self, sql: &str, failure: Option<&str>) -> Vec<u8> {
        let word = sql.split([' ', ';']).next().unwrap_or_default().to_uppercase();
        let ends = matches!(&*word, "COMMIT" | "END" | "ROLLBACK");
        let failure = failure.or((self.status == b'E' && !ends).then_some("25P02"));
        let mut bytes = Vec::new();
        if self.extended {
            bytes.extend([frame(b'1', &[]), frame(b'2', &[])].concat());
        }
        match failure {
            Some(sqlstate) => {
                bytes.extend(error("ERROR", sqlstate, "as asked"));
                self.status = if self.status == b'I' { b'I' } else { b'E' };
            }
            None => {
                bytes.extend([columns(), row(b"1"), complete(&word)].concat());
                match &*word {
                    "BEGIN" => self.status = b'T',
                    _ if ends => self.status = b'I',
                    _ => {}
                }
            }
        }
        bytes.extend(ready(self.status));
        bytes
    }
}

/// The texts of a message that end in a NUL, in order.
fn texts(body: &[u8]) -> Vec<String> {
    body.split(|&byte| byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}
