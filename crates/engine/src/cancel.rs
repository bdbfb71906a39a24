//! Asks a server to cancel statements, over connections of their own as the protocol has it.
//!
//! A request goes out in clear text; where a server takes only TLS, the statement ends when the
//! server notices that its client is gone.

use crate::destination::Place;
use crate::poll::Address;
use crate::route::connect;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A session with a statement to cancel.
#[derive(Debug, Clone)]
pub struct CancelKey {
    /// Where it is.
    pub place: Arc<Place>,
    /// Its process id and secret.
    pub key: (i32, i32),
}

/// How many requests are under way at once. A server serves each by a process of its own.
const TOGETHER: usize = 16;
/// How long a request may take, and all of them.
const ONE: Duration = Duration::from_millis(500);
const ALL: Duration = Duration::from_secs(2);

/// Sends a request for each key, several at once. Returns how many could not be sent in time.
///
/// What a server does with a request it does not say; it closes the connection when it is done.
#[must_use]
pub fn cancel(keys: Vec<CancelKey>) -> usize {
    let (deadline, threads) = (Instant::now() + ALL, keys.len().min(TOGETHER));
    let (keys, sent) = (Mutex::new(keys), AtomicUsize::new(0));
    let next = || keys.lock().ok()?.pop();
    let work = || {
        while Instant::now() < deadline
            && let Some(CancelKey { place, key }) = next()
        {
            let done = request(&place.address, key).is_some();
            sent.fetch_add(usize::from(done), Ordering::Relaxed);
        }
    };
    let all = keys.lock().map_or(0, |keys| keys.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Fewer threads take longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    all - sent.into_inner()
}

/// One request; None if it could not be sent.
fn request(address: &Address, (process, secret): (i32, i32)) -> Option<()> {
    let mut socket = connect(address, ONE).ok()?;
    let mut request = bytes::BytesMut::new();
    postgres_protocol::message::frontend::cancel_request(process, secret, &mut request);
    socket.write_all(&request).ok()?;
    let _ = socket.read(&mut [0; 1]);
    Some(())
}
