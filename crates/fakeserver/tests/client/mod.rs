//! A small client of hand-written frames, so that the tests trust no library. Knows the protocol's
//! outer form only.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pgpaces_fakeserver::{Config, FakeServer};

/// Protocol 3.0.
pub const VERSION: u32 = 3 << 16;
pub const CANCEL: u32 = 80_877_102;
pub const SSL: u32 = 80_877_103;

/// One message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: u8,
    pub body: Vec<u8>,
}

impl Message {
    /// The SQLSTATE of an error or a notice.
    pub fn code(&self) -> String {
        let fields = self.body.split(|&byte| byte == 0);
        let code = fields.filter_map(|field| field.strip_prefix(b"C")).next();
        String::from_utf8(code.unwrap_or_default().to_vec()).unwrap()
    }
}

/// A connection to the server under test.
pub struct Client {
    pub stream: TcpStream,
    /// What BackendKeyData said.
    pub key: Vec<u8>,
}

pub fn start() -> FakeServer {
    FakeServer::start(Config::default()).unwrap()
}

/// Waits until something is so, and fails where it never is.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited for 120 s in vain");
        std::thread::yield_now();
    }
}

impl Client {
    /// Connects and says nothing.
    pub fn raw(server: &FakeServer) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, key: Vec::new() }
    }

    /// Connects and logs in where everybody is trusted.
    pub fn connect(server: &FakeServer) -> Self {
        let mut client = Self::raw(server);
        client.startup("user");
        let messages = client.read_until(b'Z');
        assert_eq!(messages[0], Message { kind: b'R', body: vec![0; 4] });
        let key = messages.into_iter().find(|message| message.kind == b'K');
        client.key = key.map(|key| key.body).unwrap_or_default();
        client
    }

    /// Sends the startup message.
    pub fn startup(&mut self, user: &str) {
        let body = format!("user\0{user}\0database\0base\0application_name\0test\0\0");
        self.opening(VERSION, body.as_bytes());
    }

    /// Sends a message without a type.
    pub fn opening(&mut self, code: u32, body: &[u8]) {
        let length = (body.len() as u32 + 8).to_be_bytes();
        self.write(&[&length, &code.to_be_bytes(), body].concat());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends messages in one write.
    pub fn send(&mut self, messages: &[Vec<u8>]) {
        self.write(&messages.concat());
    }

    /// The next message; `None` where the server has closed the connection.
    pub fn read(&mut self) -> Option<Message> {
        let mut head = [0; 5];
        match self.stream.read_exact(&mut head) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
            Err(_) => return None,
            Ok(()) => {}
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        self.stream.read_exact(&mut body).unwrap();
        Some(Message { kind: head[0], body })
    }

    /// All messages up to the first of this kind, or up to the end of the connection.
    pub fn read_until(&mut self, kind: u8) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.read() {
            messages.push(message);
            if messages.last().is_some_and(|last| last.kind == kind) {
                break;
            }
        }
        messages
    }

    /// All answers to a simple query.
    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(&[simple(sql)]);
        self.read_until(b'Z')
    }

    /// Sends messages and a Sync, and reads all answers.
    pub fn pipeline(&mut self, messages: &[Vec<u8>]) -> Vec<Message> {
        self.send(messages);
        self.send(&[frame(b'S', &[])]);
        self.read_until(b'Z')
    }
}

/// The types of messages as one string.
pub fn kinds(messages: &[Message]) -> String {
    messages.iter().map(|message| char::from(message.kind)).collect()
}

/// The SQLSTATE of the only error among messages.
pub fn error_code(messages: &[Message]) -> String {
    let mut errors = messages.iter().filter(|message| message.kind == b'E');
    let error = errors.next().expect("an error");
    assert_eq!(errors.next(), None);
    error.code()
}

/// The bodies of the messages of a kind, as text with dots for what is not printable.
pub fn bodies(messages: &[Message], kind: u8) -> Vec<String> {
    let printable = |&byte: &u8| {
        if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' }
    };
    messages
        .iter()
        .filter(|message| message.kind == kind)
        .map(|message| message.body.iter().map(printable).collect())
        .collect()
}

pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind], &length[..], body].concat()
}

pub fn simple(sql: &str) -> Vec<u8> {
    frame(b'Q', format!("{sql}\0").as_bytes())
}

/// Parse without parameter types.
pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    frame(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

/// Bind of the unnamed portal with text parameters.
pub fn bind(name: &str, parameters: &[&str]) -> Vec<u8> {
    let mut body = format!("\0{name}\0").into_bytes();
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
    for parameter in parameters {
        body.extend_from_slice(&(parameter.len() as u32).to_be_bytes());
        body.extend_from_slice(parameter.as_bytes());
    }
    body.extend_from_slice(&[0, 0]);
    frame(b'B', &body)
}

/// Execute of the unnamed portal.
pub fn execute() -> Vec<u8> {
    frame(b'E', &[0; 5])
}

/// Describe of the unnamed portal.
pub fn describe_portal() -> Vec<u8> {
    frame(b'D', b"P\0")
}
