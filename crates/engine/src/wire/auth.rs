//! The login: the allowed methods of authentication, and each of them.

use super::scram::{Binding, Keys, Scram};
use super::{Fault, protocol};
use crate::conninfo::{AuthMethod, ChannelBinding};
use crate::error::{Error, Kind};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use std::fmt;

/// Who we are and how we may prove it.
#[derive(Clone)]
pub struct Credentials {
    /// The role.
    pub user: String,
    /// Its password, where we have one.
    pub password: Option<String>,
    /// Which methods may be used.
    pub allowed: Vec<AuthMethod>,
    /// Whether the login must be bound to the TLS channel, may be, or must not.
    pub binding: ChannelBinding,
    /// What earlier logins have derived from the password.
    pub keys: Keys,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("password", &password)
            .finish()
    }
}

enum Step {
    Begun,
    Scram(Box<Scram>),
    Proved,
    Done,
}

/// A login that is going on.
pub(super) struct Login {
    credentials: Credentials,
    encrypted: bool,
    channel: Option<Vec<u8>>,
    bound: bool,
    step: Step,
}

/// The most rounds of hashing that a server may ask for: 24 times PostgreSQL's default of 4096, and
/// some 30 ms in which no other client of the thread is served. The protocol has no limit: a server
/// that asks for 2^31 would stop the thread for ten minutes.
const ROUNDS_MAX: u64 = 100_000;

const PLUS: &str = "SCRAM-SHA-256-PLUS";
const SCRAM: &str = "SCRAM-SHA-256";

impl Login {
    /// `channel` is the TLS server end point, where the connection is encrypted and its
    /// certificate has one.
    pub(super) fn new(credentials: Credentials, encrypted: bool, channel: Option<Vec<u8>>) -> Self {
        Self { credentials, encrypted, channel, bound: false, step: Step::Begun }
    }

    /// True once the server said that we are in.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.step, Step::Done)
    }

    /// Answers one authentication message.
    pub(super) fn answer(&mut self, message: Message, out: &mut BytesMut) -> Result<(), Fault> {
        match message {
            Message::AuthenticationOk => self.accepted(),
            Message::AuthenticationCleartextPassword => {
                self.permit(AuthMethod::Password)?;
                let password = self.password()?;
                send(frontend::password_message(password.as_bytes(), out))
            }
            Message::AuthenticationMd5Password(body) => {
                self.permit(AuthMethod::Md5)?;
                let user = self.credentials.user.clone();
                let hash = md5_hash(user.as_bytes(), self.password()?.as_bytes(), body.salt());
                send(frontend::password_message(hash.as_bytes(), out))
            }
            Message::AuthenticationSasl(body) => {
                let offered: Vec<String> =
                    body.mechanisms().map(|m| Ok(m.to_owned())).collect().map_err(malformed)?;
                self.begin_scram(&offered, out)
            }
            Message::AuthenticationSaslContinue(body) => {
                let Step::Scram(scram) = &mut self.step else { return Err(out_of_turn()) };
                check_rounds(body.data())?;
                let password = self.credentials.password.as_deref().unwrap_or_default();
                let proof = scram.prove(body.data(), password, &self.credentials.keys);
                send(frontend::sasl_response(proof.map_err(unproved)?.as_bytes(), out))
            }
            Message::AuthenticationSaslFinal(body) => {
                let Step::Scram(scram) = &mut self.step else { return Err(out_of_turn()) };
                scram.check(body.data()).map_err(unproved)?;
                self.step = Step::Proved;
                Ok(())
            }
            _ => Err(refused("login-method-unsupported").into()),
        }
    }

    fn accepted(&mut self) -> Result<(), Fault> {
        match self.step {
            Step::Begun => self.permit(AuthMethod::None)?,
            Step::Proved => {}
            Step::Scram(_) | Step::Done => return Err(out_of_turn()),
        }
        if self.credentials.binding == ChannelBinding::Require && !self.bound {
            return Err(refused("channel-binding-not-offered").into());
        }
        self.step = Step::Done;
        Ok(())
    }

    fn permit(&mut self, method: AuthMethod) -> Result<(), Fault> {
        if !self.credentials.allowed.contains(&method) {
            return Err(refused("login-method-not-allowed").with("method", method.name()).into());
        }
        if self.credentials.binding == ChannelBinding::Require && method != AuthMethod::ScramSha256
        {
            let error = refused("channel-binding-needs-scram");
            return Err(error.with("method", method.name()).into());
        }
        if !matches!(self.step, Step::Begun) {
            return Err(out_of_turn());
        }
        if matches!(method, AuthMethod::Password | AuthMethod::Md5) {
            self.step = Step::Proved;
        }
        Ok(())
    }

    fn begin_scram(&mut self, offered: &[String], out: &mut BytesMut) -> Result<(), Fault> {
        self.permit(AuthMethod::ScramSha256)?;
        let has = |name: &str| offered.iter().any(|m| m == name);
        let wish = self.credentials.binding;
        if has(PLUS) && !self.encrypted {
            // No server offers that by itself: a program in between removed the TLS.
            return Err(refused("channel-binding-without-tls").into());
        }
        if wish == ChannelBinding::Require && self.channel.is_none() {
            return Err(refused(if self.encrypted {
                "channel-binding-needs-certificate"
            } else {
                "channel-binding-needs-tls"
            })
            .into());
        }
        let channel = self.channel.take().filter(|_| wish != ChannelBinding::Disable);
        let (mechanism, binding) = match channel {
            Some(channel) if has(PLUS) => {
                self.bound = true;
                (PLUS, Binding::EndPoint(channel))
            }
            _ if wish == ChannelBinding::Require => {
                return Err(refused("channel-binding-not-offered").into());
            }
            Some(_) if has(SCRAM) => (SCRAM, Binding::NotOffered),
            None if has(SCRAM) => (SCRAM, Binding::Unsupported),
            _ => {
                let offered = offered.iter().map(|each| &**each).collect::<Vec<_>>();
                return Err(refused("login-methods-unsupported").with("methods", offered).into());
            }
        };
        self.password()?;
        let scram = Scram::new(binding).ok_or_else(|| unproved("no random numbers"))?;
        send(frontend::sasl_initial_response(mechanism, scram.first().as_bytes(), out))?;
        self.step = Step::Scram(Box::new(scram));
        Ok(())
    }

    fn password(&self) -> Result<&str, Fault> {
        let password = self.credentials.password.as_deref();
        password.ok_or_else(|| refused("password-required").into())
    }
}

/// Whether a challenge asks for a number of rounds that we are ready to do.
fn check_rounds(challenge: &[u8]) -> Result<(), Fault> {
    let text = String::from_utf8_lossy(challenge);
    // Where there is no number, the challenge is found malformed when it is read.
    let rounds = text.rsplit_once(",i=").map_or("", |(_, rounds)| rounds);
    if rounds.is_empty() || !rounds.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(());
    }
    if (1..=ROUNDS_MAX).contains(&rounds.parse().unwrap_or(u64::MAX)) {
        return Ok(());
    }
    let shown = &rounds[..rounds.len().min(20)];
    let error = refused("scram-iterations-out-of-range").with("iterations", shown);
    Err(error.with("most", i64::try_from(ROUNDS_MAX).expect("it is small")).into())
}

/// We refuse to log in as the server demands.
fn refused(name: &'static str) -> Error {
    Error::new(Kind::Auth, name)
}

fn send(written: std::io::Result<()>) -> Result<(), Fault> {
    written.map_err(malformed)
}

fn malformed(error: std::io::Error) -> Fault {
    refused("login-message-malformed").because(error).into()
}

fn unproved(why: &'static str) -> Fault {
    refused("login-message-malformed").with("why", why).into()
}

fn out_of_turn() -> Fault {
    protocol("login-message-out-of-turn").into()
}
