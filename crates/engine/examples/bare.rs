//! A client without schedule, record or report, which bounds what one thread can do. It repeats one
//! statement, which somebody else has prepared and whose parameter is a number of six digits, on
//! connections that come over the socket that is its standard input. Arguments: seconds, name of
//! the statement. Prints the transactions a second.

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const SYNC: &[u8] = b"S\0\0\0\x04";
const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
const DIGITS: usize = 6;

/// Bind, Execute and Sync for one transaction, and where the digits of its parameter are.
fn messages(statement: &str) -> (Vec<u8>, usize) {
    let mut body = [b"\0", statement.as_bytes(), b"\0\0\0\0\x01\0\0\0\x06"].concat();
    let parameter = 5 + body.len();
    body.extend([b'0'; DIGITS]);
    body.extend([0, 0]);
    let length = u32::try_from(4 + body.len()).expect("a short message").to_be_bytes();
    ([b"B", &length[..], &body, EXECUTE, SYNC].concat(), parameter)
}

/// The connections: one message has as many as the kernel allows.
fn connections() -> rustix::io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let slices = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(std::io::stdin(), slices, &mut ancillary, RecvFlags::empty())?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok(rights.flatten().collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().ok_or("seconds?")?.parse()?;
    let (mut message, parameter) = messages(&arguments.next().ok_or("a statement?")?);
    let mut poll = Poll::new()?;
    let sockets = connections()?;
    for (number, socket) in sockets.iter().enumerate() {
        let source = &mut SourceFd(&socket.as_raw_fd());
        poll.registry().register(source, Token(number), Interest::READABLE)?;
    }

    let mut random = 1_u64;
    let mut ask = |socket: &OwnedFd| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = 100_000 + (random >> 33) % 900_000;
        message[parameter..parameter + DIGITS].copy_from_slice(key.to_string().as_bytes());
        send(socket, &message, SendFlags::empty())
    };
    let mut events = Events::with_capacity(sockets.len().max(1));
    let mut reply = [0; 8192];
    let mut done = 0_u64;
    let begun = Instant::now();
    let end = begun + Duration::from_secs(seconds);
    for socket in &sockets {
        ask(socket)?;
    }
    while Instant::now() < end {
        poll.poll(&mut events, Some(Duration::from_millis(100)))?;
        for event in &events {
            let socket = &sockets[event.token().0];
            let (length, _) = recv(socket, &mut reply[..], RecvFlags::DONTWAIT)?;
            if length == 0 || reply[0] == b'E' {
                return Err("the server ended it, or refused".into());
            }
            // ReadyForQuery is the last of a reply, which is short enough to come at once.
            if reply[length - 6] == b'Z' {
                done += 1;
                ask(socket)?;
            }
        }
    }
    println!("{:.1}", done as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}
