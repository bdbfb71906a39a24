//! One client at a desk: what comes from the server is given to it by hand, and what it sends is
//! looked at.

use super::backend::{complete, ready, welcome};
use super::trial::settings;
use pgpaces_engine::client::{Client, Moment, Next, Shared, TroubleOr};
use pgpaces_engine::control::{Control, NEVER};
use pgpaces_engine::feeds::first_variables;
use pgpaces_engine::pace::{Due, Ns};
use pgpaces_engine::plan::Plan;
use pgpaces_engine::record::Recorder;
use pgpaces_engine::script::Scripts;
use pgpaces_engine::script::random::Random;
use std::sync::Arc;

pub struct Desk {
    pub client: Client,
    pub record: Recorder,
    pub now: Ns,
}

impl Desk {
    /// A client that is logged in and free.
    pub fn new(plan: &Plan, script: &str) -> Self {
        let mut scripts = Scripts::default();
        scripts.add("script", 1, script.as_bytes()).expect("a script that parses");
        let variables = first_variables(&mut scripts, &plan.variables, &[]).expect("good names");
        let control = Arc::new(Control::new(NEVER, 1));
        let shared = Arc::new(Shared::new(plan, scripts, control));
        let client = Client::new(0, &shared, variables, Random::from_seed(plan.seed));
        let mut desk = Self { client, record: Recorder::new(0, 0), now: 0 };
        desk.client.open(&Arc::new(settings(None)));
        desk.take();
        desk.receive(&welcome()).expect("a login");
        desk
    }

    /// Starts a transaction.
    pub fn start(&mut self) -> TroubleOr<Next> {
        let due = Due { n: 0, at: self.now, script: 0 };
        self.client.start(due, self.now, true, &mut self.record)
    }

    pub fn receive(&mut self, bytes: &[u8]) -> TroubleOr<Next> {
        let at = Moment { arrived: self.now, now: self.now };
        self.client.receive(bytes, at, &mut self.record)
    }

    pub fn wake(&mut self) -> TroubleOr<Next> {
        self.client.wake(self.now, &mut self.record)
    }

    /// Everything before is answered without rows.
    pub fn ready(&mut self) -> TroubleOr<Next> {
        self.receive(&[complete("SELECT 0"), ready(b'I')].concat())
    }

    fn take(&mut self) -> Vec<u8> {
        let connection = self.client.connection().expect("a connection");
        let bytes = connection.outgoing().expect("no TLS").to_vec();
        connection.sent(bytes.len());
        bytes
    }

    /// What the client sent since the last look: type and body of each message.
    pub fn sent(&mut self) -> Vec<(char, Vec<u8>)> {
        let bytes = self.take();
        let (mut messages, mut rest) = (Vec::new(), &bytes[..]);
        while let [tag, a, b, c, d, behind @ ..] = rest {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize - 4;
            messages.push((char::from(*tag), behind[..length].to_vec()));
            rest = &behind[length..];
        }
        messages
    }

    /// The types of what the client sent since the last look.
    pub fn types(&mut self) -> String {
        self.sent().into_iter().map(|(tag, _)| tag).collect()
    }

    /// The one simple query that the client sent.
    pub fn query(&mut self) -> String {
        let [(tag, body)] = &self.sent()[..] else { panic!("one message") };
        assert_eq!(*tag, 'Q');
        String::from_utf8_lossy(body.strip_suffix(b"\0").expect("a NUL")).into_owned()
    }
}
