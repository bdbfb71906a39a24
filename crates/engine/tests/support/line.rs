//! What goes in and comes out at a connection.

use pgpaces_engine::error::Kind;
use pgpaces_engine::wire::{Connection, Event, Fault};

/// What a connection makes of bytes.
pub fn feed(connection: &mut Connection, bytes: &[u8]) -> Result<Vec<Event>, Fault> {
    let mut events = Vec::new();
    connection.receive(bytes, |_, event| {
        events.push(event);
        Ok::<(), Fault>(())
    })?;
    Ok(events)
}

/// What a connection wants to send.
pub fn take(connection: &mut Connection) -> Vec<u8> {
    let bytes = connection.outgoing().expect("no TLS").to_vec();
    connection.sent(bytes.len());
    bytes
}

/// The kind of a fault that is ours, and its name and values.
pub fn own(fault: &Fault) -> (Kind, String) {
    let Fault::Own(error) = fault else { panic!("{fault:?}") };
    (error.kind, error.to_string())
}
