//! A world in virtual time for tests of the load engine: a server behind `poll::Poll`, whole
//! trials on it, and the server's half of the protocol as bytes. No sockets, no sleeping.

pub mod backend;
pub mod desk;
pub mod line;
pub mod scram;
pub mod trial;
pub mod turns;
pub mod world;
