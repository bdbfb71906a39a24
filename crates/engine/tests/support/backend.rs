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
    /// A simple query, or everything up to a Sync.
    Work(Vec<Part>),
    /// There is nothing to copy.
    CopyFail,
    Terminate,
}

/// What is answered on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// SQL that is executed.
    Statement(String),
    /// A message that is answered by one without a body.
    Done(u8),
}

/// The server's end of one connection.
#[derive(Debug)]
pub struct Backend {
    inbox: Vec<u8>,
    started: bool,
    status: u8,
    parsed: HashMap<String, String>,
    bound: String,
    parts: Vec<Part>,
    extended: bool,
    copying: bool,
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            inbox: Vec::new(),
            started: false,
            status: b'I',
            parsed: HashMap::new(),
            bound: String::new(),
            parts: Vec::new(),
            extended: false,
            copying: false,
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
                return Some(Request::Work(vec![Part::Statement(texts(body)[0].clone())]));
            }
            b'P' => {
                let [name, sql] = &texts(body)[..2] else { panic!("Parse has two texts") };
                self.parsed.insert(name.clone(), sql.clone());
                self.parts.push(Part::Done(b'1'));
            }
            b'B' => {
                let name = &texts(body)[1];
                self.bound = self.parsed.get(name).expect("a statement that exists").clone();
                self.parts.push(Part::Done(b'2'));
            }
            b'E' => self.parts.push(Part::Statement(self.bound.clone())),
            b'S' => {
                self.extended = true;
                return Some(Request::Work(std::mem::take(&mut self.parts)));
            }
            b'C' => {
                self.parsed.remove(&texts(&body[1..])[0]);
                self.parts.push(Part::Done(b'3'));
            }
            b'X' => return Some(Request::Terminate),
            b'f' => return Some(Request::CopyFail),
            b'D' => {}
            tag => panic!("the engine sent an unknown message '{}'", tag.escape_ascii()),
        }
        None
    }

    /// The answer to `parts`, of which statement number `failing` fails with a SQLSTATE, and what
    /// that does to a transaction block. Behind a failure nothing is done.
    pub fn answer(&mut self, parts: &[Part], failing: Option<(usize, &str)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = 0;
        for part in parts {
            let Part::Statement(sql) = part else {
                let Part::Done(tag) = part else { unreachable!("there are two kinds") };
                bytes.extend(frame(*tag, &[]));
                continue;
            };
            let failure = failing.filter(|(at, _)| *at == number).map(|(_, sqlstate)| sqlstate);
            number += 1;
            if !self.execute(sql, failure, &mut bytes) {
                break;
            }
        }
        bytes.extend(ready(self.status));
        bytes
    }

    /// Whether it succeeded.
    fn execute(&mut self, sql: &str, failure: Option<&str>, bytes: &mut Vec<u8>) -> bool {
        let word = sql.split([' ', ';']).next().unwrap_or_default().to_uppercase();
        let ends = matches!(&*word, "COMMIT" | "END" | "ROLLBACK");
        let failure = failure.or((self.status == b'E' && !ends).then_some("25P02"));
        if let Some(sqlstate) = failure {
            bytes.extend(error("ERROR", sqlstate, "as asked"));
            self.status = if self.status == b'I' { b'I' } else { b'E' };
            return false;
        }
        bytes.extend([columns(), row(b"1"), complete(&word)].concat());
        match &*word {
            "BEGIN" => self.status = b'T',
            _ if ends => self.status = b'I',
            _ => {}
        }
        true
    }

    /// Asks for rows; a Sync that has come is swallowed.
    pub fn ask_for_rows(&mut self) -> Vec<u8> {
        self.copying = true;
        frame(b'G', &[0, 0, 0])
    }

    /// There are no rows.
    pub fn copy_failed(&mut self) -> Vec<u8> {
        assert!(std::mem::take(&mut self.copying), "nobody asked for rows");
        let mut bytes = error("ERROR", "57014", "COPY from stdin failed");
        if !self.extended {
            bytes.extend(ready(self.status));
        }
        bytes
    }
}

/// The texts of a message that end in a NUL, in order.
fn texts(body: &[u8]) -> Vec<String> {
    body.split(|&byte| byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}
