//! The tests of the engine's boundary. One program of all builds much faster than one of each file.

mod aborts;
mod actors;
mod allocations;
mod backlog;
mod connect_each;
mod connections;
mod corpus;
mod figures;
mod hostile;
mod hostile_client;
mod limits;
mod outages;
mod parts;
mod pipelines;
mod poll;
mod properties;
mod results;
mod retries;
mod steps;
mod support;
mod timings;
mod wire;
