//! The tests of the fake server's boundary, in one program, which builds faster than one of each file.

mod binary;
mod client;
mod login;
mod protocol;
mod timing;
