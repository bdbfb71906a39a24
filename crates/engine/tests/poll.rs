//! The ways to wait for sockets, each on real ones: what the seam promises holds for all of them.

#![cfg(unix)]

use allocation_counter::measure;
use pgpaces_engine::pace::{Ns, SECOND};
use pgpaces_engine::poll::readiness::Readiness;
use pgpaces_engine::poll::{Address, Backend, Ready, Received, Token};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{JoinHandle, spawn};

/// How long a test waits for what must come.
const PATIENCE: Ns = 60 * SECOND;

/// A poller, and what it reported and nobody has looked at.
struct Desk {
    poll: Box<dyn Backend>,
    ready: Vec<Ready>,
}

/// How a connection ended.
#[derive(Debug, PartialEq)]
enum End {
    Closed,
    Broken(io::ErrorKind),
}

/// Every way that this system has, for about so many connections.
fn desks(connections: usize) -> Vec<Desk> {
    let mut polls: Vec<Box<dyn Backend>> = vec![Box::new(Readiness::new().expect("a queue"))];
    polls.extend(uring(connections));
    polls.into_iter().map(|poll| Desk { poll, ready: Vec::new() }).collect()
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn uring(connections: usize) -> Option<Box<dyn Backend>> {
    match pgpaces_engine::poll::uring::Uring::new(connections) {
        Ok(uring) => Some(Box::new(uring)),
        Err(error) => {
            use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
            let is_absent = [InvalidInput, PermissionDenied, Unsupported].contains(&error.kind());
            assert!(is_absent, "io_uring: {error}");
            println!("io_uring is not tested: {error}");
            None
        }
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn uring(_: usize) -> Option<Box<dyn Backend>> {
    None
}

impl Desk {
    /// Waits until something is ready.
    fn wait(&mut self) {
        let begun = self.poll.now();
        while self.ready.is_empty() {
            let now = self.poll.now();
            assert!(now < begun + PATIENCE, "something must come");
            self.poll.wait(now + SECOND, false, &mut self.ready).expect("a wait");
        }
    }

    /// Connects, and sends the first bytes when the connection stands.
    fn open(&mut self, token: Token, address: &Address, first: &[u8]) {
        self.poll.connect(token, address).expect("a connection");
        let mut sent = self.poll.send(token, first).expect("a send");
        while sent < first.len() {
            self.wait();
            for ready in std::mem::take(&mut self.ready) {
                assert!(!ready.readable || ready.token != token, "nothing is said unasked");
                if ready.token == token && ready.writable {
                    sent += self.poll.send(token, &first[sent..]).expect("a send");
                }
            }
        }
        self.look();
    }

    /// Lets go what was sent, without waiting for anything.
    fn look(&mut self) {
        self.poll.wait(Ns::MIN / 2, false, &mut self.ready).expect("a wait");
    }

    /// Takes what has come on one connection; its end, if that has come.
    fn take(&mut self, token: Token, mut into: impl FnMut(&[u8])) -> Option<End> {
        loop {
            match self.poll.receive(token) {
                Received::Nothing => return None,
                Received::Closed(None) => return Some(End::Closed),
                Received::Closed(Some(error)) => return Some(End::Broken(error.kind())),
                Received::Bytes { bytes, more, .. } => {
                    into(bytes);
                    if !more {
                        return None;
                    }
                }
            }
        }
    }

    /// What comes on one connection until it ends, and its end.
    fn read_all(&mut self, token: Token, into: &mut Vec<u8>) -> End {
        loop {
            self.wait();
            for ready in std::mem::take(&mut self.ready) {
                if ready.token == token && ready.readable {
                    let end = self.take(token, |bytes| into.extend_from_slice(bytes));
                    if let Some(end) = end {
                        return end;
                    }
                }
            }
        }
    }

    /// Waits for so many bytes on one connection.
    fn read(&mut self, token: Token, count: usize) -> Vec<u8> {
        let mut found = Vec::new();
        while found.len() < count {
            self.wait();
            for ready in std::mem::take(&mut self.ready) {
                if ready.token == token && ready.readable {
                    let end = self.take(token, |bytes| found.extend_from_slice(bytes));
                    assert!(end.is_none() || found.len() == count, "{} bytes came", found.len());
                }
            }
        }
        found
    }
}

/// A server at the other end of a file.
struct Server {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Does this with a listener.
    fn new(serve: impl FnOnce(&UnixListener) + Send + 'static) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pgpaces-poll-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        Self { path, thread: Some(spawn(move || serve(&listener))) }
    }

    /// Does this with each of so many connections, one after the other.
    fn each(count: usize, serve: impl Fn(UnixStream) + Send + 'static) -> Self {
        Self::new(move |listener| {
            (0..count).for_each(|_| serve(listener.accept().expect("a client").0));
        })
    }

    fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }

    fn end(&mut self) {
        self.thread.take().expect("once").join().expect("a server that is content");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn echo(mut stream: UnixStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Bytes that tell where they are from.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8).collect()
}

#[test]
fn what_is_sent_is_answered() {
    for mut desk in desks(1) {
        let server = Server::each(1, echo);
        desk.open(0, &server.address(), b"hello");
        assert_eq!(desk.read(0, 5), b"hello");
    }
}

#[test]
fn a_connection_over_tcp_stands_when_it_is_said_to_be_writable() {
    for mut desk in desks(1) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = Address::Tcp(listener.local_addr().expect("bound"));
        desk.open(0, &address, b"hello");
        let (mut stream, _) = listener.accept().expect("a client");
        let mut found = [0; 5];
        stream.read_exact(&mut found).expect("what was sent");
        stream.write_all(&found).expect("a client that reads");
        drop(stream);
        let mut answer = Vec::new();
        assert_eq!(desk.read_all(0, &mut answer), End::Closed);
        assert_eq!(answer, b"hello");
    }
}

#[test]
fn a_refused_connection_is_known_by_the_first_send() {
    for mut desk in desks(1) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = Address::Tcp(listener.local_addr().expect("bound"));
        drop(listener);
        let refused = desk.poll.connect(0, &address).and_then(|()| {
            loop {
                if desk.poll.send(0, b"hello")? > 0 {
                    return Ok(());
                }
                desk.wait();
                desk.ready.clear();
            }
        });
        let kind = refused.expect_err("nobody listens").kind();
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
        desk.poll.close(0);
    }
}

#[test]
fn a_socket_that_is_absent_or_busy_is_known_at_once() {
    for mut desk in desks(1) {
        let absent = Address::Unix("/nowhere/at/all".into());
        let error = desk.poll.connect(0, &absent).expect_err("nobody is there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mut server = Server::new(|_| ());
        server.end();
        let error = desk.poll.connect(0, &server.address()).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn what_came_before_the_end_is_handed_out_before_it() {
    for mut desk in desks(1) {
        let said = pattern(300_000);
        let server = {
            let said = said.clone();
            Server::each(1, move |mut stream| {
                stream.read_exact(&mut [0; 5]).expect("a request");
                stream.write_all(&said).expect("a client that reads");
            })
        };
        desk.open(0, &server.address(), b"hello");
        let mut found = Vec::new();
        assert_eq!(desk.read_all(0, &mut found), End::Closed);
        assert!(found == said, "{} bytes", found.len());
    }
}

#[test]
fn a_send_to_a_server_that_left_loses_nothing_that_the_server_said() {
    for mut desk in desks(1) {
        let mut server = Server::each(1, |mut stream| {
            stream.read_exact(&mut [0; 5]).expect("a request");
            stream.write_all(b"farewell").expect("a client that reads");
        });
        desk.open(0, &server.address(), b"hello");
        server.end();
        // By readiness the send fails; by completion its failure is known later.
        let _ = desk.poll.send(0, b"too late");
        let mut found = Vec::new();
        let mut end = desk.take(0, |bytes| found.extend_from_slice(bytes));
        if end.is_none() {
            end = Some(desk.read_all(0, &mut found));
        }
        assert_eq!((&*found, end), (&b"farewell"[..], Some(End::Closed)));
    }
}

#[test]
fn more_than_a_socket_holds_is_sent_when_the_server_reads_it() {
    for mut desk in desks(1) {
        let sent = pattern(10 << 20);
        let server = {
            let expected = sent.clone();
            Server::each(1, move |mut stream| {
                let mut found = vec![0; expected.len()];
                stream.read_exact(&mut found).expect("all of it");
                stream
                    .write_all(if found == expected { b"same" } else { b"else" })
                    .expect("a client");
            })
        };
        desk.open(0, &server.address(), &sent);
        assert_eq!(desk.read(0, 4), b"same");
    }
}

#[test]
fn many_sends_in_one_turn_arrive_in_their_order() {
    for mut desk in desks(1) {
        let server = Server::each(1, echo);
        let all = pattern(1000);
        desk.open(0, &server.address(), &all[..1]);
        let (mut sent, mut found) = (1, Vec::new());
        while found.len() < all.len() {
            for _ in 0..10 {
                let end = all.len().min(sent + 3);
                sent += desk.poll.send(0, &all[sent..end]).expect("a send");
            }
            desk.wait();
            desk.ready.clear();
            assert_eq!(desk.take(0, |bytes| found.extend_from_slice(bytes)), None);
        }
        assert!(found == all);
    }
}

#[test]
fn what_comes_for_a_closed_connection_never_reaches_the_next_of_its_token() {
    const ROUNDS: usize = 200;
    for mut desk in desks(1) {
        let flood = Server::each(ROUNDS, |mut stream| {
            let _ = stream.read_exact(&mut [0; 5]);
            // As much as it takes, whether or not the client is still there.
            let _ = stream.write_all(&[b'x'; 100_000]);
        });
        let good = Server::each(ROUNDS, |mut stream| {
            stream.read_exact(&mut [0; 5]).expect("a request");
            stream.write_all(b"good").expect("a client that reads");
        });
        for round in 0..ROUNDS {
            desk.open(0, &flood.address(), b"hello");
            // Some go before anything came, some when it has been reported, some half-read.
            if round % 3 > 0 {
                desk.wait();
            }
            if round % 3 == 2 {
                let _ = desk.poll.receive(0);
            }
            desk.poll.close(0);
            desk.ready.clear();
            desk.open(0, &good.address(), b"hello");
            let mut found = Vec::new();
            assert_eq!(desk.read_all(0, &mut found), End::Closed);
            assert_eq!(found, b"good", "round {round}");
            desk.poll.close(0);
        }
    }
}

#[test]
fn a_connection_that_is_closed_at_once_leaves_nothing_behind() {
    for mut desk in desks(1) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let tcp = Address::Tcp(listener.local_addr().expect("bound"));
        for _ in 0..50 {
            desk.poll.connect(0, &tcp).expect("a connection");
            desk.poll.close(0);
        }
        let server = Server::each(51, echo);
        for _ in 0..50 {
            desk.poll.connect(0, &server.address()).expect("a connection");
            assert_eq!(desk.poll.send(0, b"farewell").expect("a send"), 8);
            desk.poll.close(0);
            // The server must be told, though nobody waits for an answer.
            desk.look();
            desk.ready.clear();
        }
        desk.open(0, &server.address(), b"hello");
        assert_eq!(desk.read(0, 5), b"hello");
    }
}

#[test]
fn what_was_sent_last_arrives_though_all_ends_at_once() {
    for mut desk in desks(1) {
        let mut server = Server::each(1, |mut stream| {
            let mut found = Vec::new();
            stream.read_to_end(&mut found).expect("an end");
            assert_eq!(found, b"hello, farewell");
        });
        desk.open(0, &server.address(), b"hello");
        assert_eq!(desk.poll.send(0, b", farewell").expect("a send"), 10);
        desk.poll.close(0);
        drop(desk);
        server.end();
    }
}

#[test]
fn hundreds_that_are_answered_at_once_all_get_their_answer() {
    // Many more than there are buffers, where there are buffers.
    const CLIENTS: usize = 400;
    const EACH: usize = 9000;
    for mut desk in desks(1) {
        let server = Server::new(|listener| {
            let accept = |_| listener.accept().expect("a client").0;
            let mut streams: Vec<_> = (0..CLIENTS).map(accept).collect();
            let mut number = [0; 4];
            for stream in &mut streams {
                stream.read_exact(&mut number).expect("a request");
                let answer = number.repeat(EACH / number.len());
                stream.write_all(&answer).expect("a client that reads");
            }
            // Nobody is left before all have their answer.
            let _ = streams[0].read_exact(&mut number);
        });
        for token in 0..CLIENTS {
            desk.open(token, &server.address(), &(token as u32).to_be_bytes());
        }
        let mut found = vec![Vec::new(); CLIENTS];
        let mut missing = CLIENTS * EACH;
        while missing > 0 {
            desk.wait();
            for ready in std::mem::take(&mut desk.ready) {
                let into = &mut found[ready.token];
                let end = desk.take(ready.token, |bytes| {
                    missing -= bytes.len();
                    into.extend_from_slice(bytes);
                });
                assert_eq!(end, None);
            }
        }
        for (token, found) in found.iter().enumerate() {
            assert!(found.chunks(4).all(|at| at == (token as u32).to_be_bytes()), "{token}");
        }
        desk.poll.send(0, b"done").expect("a send");
        drop(desk);
    }
}

#[test]
fn a_hundred_megabytes_pass_through_little_memory() {
    const ALL: usize = 100 << 20;
    for mut desk in desks(1) {
        let server = Server::each(1, |mut stream| {
            stream.read_exact(&mut [0; 5]).expect("a request");
            let piece = vec![b'r'; 1 << 20];
            (0..ALL >> 20).for_each(|_| stream.write_all(&piece).expect("a client that reads"));
        });
        desk.open(0, &server.address(), b"hello");
        let (mut count, mut end) = (0, None);
        let used = measure(|| {
            while end.is_none() {
                desk.wait();
                desk.ready.clear();
                end = desk.take(0, |bytes| count += bytes.len());
            }
        });
        assert_eq!((count, end), (ALL, Some(End::Closed)));
        assert!(used.bytes_max < 64 * 1024, "{} bytes", used.bytes_max);
    }
}

#[test]
fn question_and_answer_allocate_nothing() {
    for mut desk in desks(1) {
        let server = Server::each(1, echo);
        desk.open(0, &server.address(), b"hello");
        let mut turns = |count: usize| {
            for _ in 0..count {
                let mut found = 0;
                while found < 5 {
                    desk.wait();
                    desk.ready.clear();
                    assert_eq!(desk.take(0, |bytes| found += bytes.len()), None);
                }
                assert_eq!(desk.poll.send(0, b"hello").expect("a send"), 5);
            }
        };
        turns(100);
        assert_eq!(measure(|| turns(1000)).count_total, 0);
    }
}

#[test]
fn another_thread_ends_a_wait_and_one_that_has_not_begun() {
    for mut desk in desks(1) {
        for _ in 0..100 {
            let waker = desk.poll.waker();
            let thread = spawn(move || waker.wake());
            let now = desk.poll.now();
            desk.poll.wait(now + PATIENCE, false, &mut desk.ready).expect("a wait");
            assert!(desk.poll.now() < now + PATIENCE, "woken");
            thread.join().expect("a thread that wakes");
        }
    }
}

#[test]
fn a_wait_lasts_as_long_as_it_was_asked_to() {
    for mut desk in desks(1) {
        for length in [0, 1, 50_000, 1_500_000] {
            let until = desk.poll.now() + length;
            while desk.poll.now() < until {
                desk.poll.wait(until, true, &mut desk.ready).expect("a wait");
            }
            assert!(desk.ready.is_empty());
        }
    }
}

#[test]
fn a_shell_command_ends_a_wait() {
    for mut desk in desks(1) {
        let number = desk.poll.shell(3, b"echo 42".to_vec(), true);
        let ended = loop {
            if let Some(ended) = desk.poll.shell_ended() {
                break ended;
            }
            let now = desk.poll.now();
            desk.poll.wait(now + PATIENCE, false, &mut desk.ready).expect("a wait");
        };
        assert_eq!((ended.0, ended.1), (3, number));
        assert_eq!(ended.2.line.as_deref(), Some(&b"42\n"[..]));
    }
}
