//! What the fake server manages on this machine, so that a benchmark against it knows its ceiling:
//! `cargo run --release -p pgpaces-fakeserver --example ceiling`. The client is a thread with
//! blocking sockets, so the server manages more than this.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pgpaces_fakeserver::{Config, FakeServer};

const RUN: Duration = Duration::from_secs(2);

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// Connects and prepares `sql` as the statement `s`.
fn connect(port: u16, sql: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let startup = b"\0\0\0\x10\0\x03\0\0user\0u\0\0";
    stream.write_all(&[&[0, 0, 0, startup.len() as u8][..], &startup[4..]].concat())?;
    read_answer(&mut stream)?;
    let parse = frame(b'P', format!("s\0{sql}\0\0\0").as_bytes());
    stream.write_all(&[parse, frame(b'S', b"")].concat())?;
    read_answer(&mut stream)?;
    Ok(stream)
}

/// Reads until ReadyForQuery is the last thing that came.
fn read_answer(stream: &mut TcpStream) -> Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 || buffer[..count].ends_with(b"Z\0\0\0\x05I") {
            return Ok(());
        }
    }
}

/// Queries a second over so many connections, each with one query in flight.
fn throughput(connections: usize) -> Result<f64> {
    let server = FakeServer::start(Config::default())?;
    let mut streams =
        (0..connections).map(|_| connect(server.port(), "SELECT 1")).collect::<Result<Vec<_>>>()?;
    let bind = frame(b'B', b"\0s\0\0\0\0\0\0\0");
    let query = [bind, frame(b'E', &[0; 5]), frame(b'S', b"")].concat();
    let (start, mut queries) = (Instant::now(), 0);
    while start.elapsed() < RUN {
        for stream in &mut streams {
            stream.write_all(&query)?;
        }
        for stream in &mut streams {
            read_answer(stream)?;
        }
        queries += connections;
    }
    Ok(queries as f64 / start.elapsed().as_secs_f64())
}

/// By how many microseconds answers to `fake_sleep(1)` are late at the client: ascending.
fn lateness_us() -> Result<Vec<u128>> {
    let server = FakeServer::start(Config::default())?;
    let mut stream = connect(server.port(), "SELECT fake_sleep(1)")?;
    let bind = frame(b'B', b"\0s\0\0\0\0\0\0\0");
    let query = [bind, frame(b'E', &[0; 5]), frame(b'S', b"")].concat();
    let mut late = Vec::new();
    let start = Instant::now();
    while start.elapsed() < RUN {
        let sent = Instant::now();
        stream.write_all(&query)?;
        read_answer(&mut stream)?;
        late.push(sent.elapsed().as_micros().saturating_sub(1000));
    }
    late.sort_unstable();
    Ok(late)
}

fn main() -> Result<()> {
    for connections in [1, 16, 256] {
        let rate = throughput(connections)?;
        println!("{connections:>4} connections: {rate:.0} prepared selects a second");
    }
    let late = lateness_us()?;
    let (p50, p99) = (late[late.len() / 2], late[late.len() * 99 / 100]);
    println!("fake_sleep(1) is answered {p50} us late at p50, {p99} us at p99");
    Ok(())
}
