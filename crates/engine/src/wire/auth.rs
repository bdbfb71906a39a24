//! The login: the allowed methods of authentication, and each of them.

use super::Fault;
use crate::conninfo::{AuthMethod, ChannelBinding};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
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
    Scram(ScramSha256),
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
                self.permit(AuthMethod::Password, "a password in clear text")?;
                let password = self.password()?;
                send(frontend::password_message(password.as_bytes(), out))
            }
            Message::AuthenticationMd5Password(body) => {
                self.permit(AuthMethod::Md5, "an MD5 password")?;
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
                scram.update(body.data()).map_err(malformed)?;
                send(frontend::sasl_response(scram.message(), out))
            }
            Message::AuthenticationSaslFinal(body) => {
                let Step::Scram(scram) = &mut self.step else { return Err(out_of_turn()) };
                scram.finish(body.data()).map_err(malformed)?;
                self.step = Step::Proved;
                Ok(())
            }
            _ => Err(Fault::Login(
                "the server asks for a login method that pgpaces does not support (it supports trust, password, md5 and scram-sha-256)".into(),
            )),
        }
    }

    fn accepted(&mut self) -> Result<(), Fault> {
        match self.step {
            Step::Begun => self.permit(AuthMethod::None, "no password at all")?,
            Step::Proved => {}
            Step::Scram(_) | Step::Done => return Err(out_of_turn()),
        }
        if self.credentials.binding == ChannelBinding::Require && !self.bound {
            return Err(Fault::Login(
                "channel binding is required, but the server let us in without it".into(),
            ));
        }
        self.step = Step::Done;
        Ok(())
    }

    fn permit(&mut self, method: AuthMethod, what: &str) -> Result<(), Fault> {
        if !self.credentials.allowed.contains(&method) {
            return Err(Fault::Login(format!(
                "the server asks for {what}, which require_auth does not allow"
            )));
        }
        if self.credentials.binding == ChannelBinding::Require && method != AuthMethod::ScramSha256
        {
            return Err(Fault::Login(format!(
                "channel binding is required, but the server asks for {what}"
            )));
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
        self.permit(AuthMethod::ScramSha256, "SCRAM-SHA-256")?;
        let has = |name: &str| offered.iter().any(|m| m == name);
        let wish = self.credentials.binding;
        if has(PLUS) && !self.encrypted {
            // No server offers that by itself: a program in between removed the TLS.
            return Err(Fault::Login(
                "the server offers channel binding to TLS, but the connection has no TLS".into(),
            ));
        }
        if wish == ChannelBinding::Require && self.channel.is_none() {
            return Err(Fault::Login(if self.encrypted {
                "channel binding is required, but the server's certificate gives nothing to bind to"
                    .into()
            } else {
                "channel binding is required, but the connection has no TLS to bind to".into()
            }));
        }
        let channel = self.channel.take().filter(|_| wish != ChannelBinding::Disable);
        let (mechanism, binding) = match channel {
            Some(channel) if has(PLUS) => {
                self.bound = true;
                (PLUS, sasl::ChannelBinding::tls_server_end_point(channel))
            }
            _ if wish == ChannelBinding::Require => {
                return Err(Fault::Login(
                    "channel binding is required, but the server does not offer it".into(),
                ));
            }
            Some(_) if has(SCRAM) => (SCRAM, sasl::ChannelBinding::unrequested()),
            None if has(SCRAM) => (SCRAM, sasl::ChannelBinding::unsupported()),
            _ => {
                return Err(Fault::Login(format!(
                    "the server offers only login methods that pgpaces does not support ({})",
                    offered.join(", ")
                )));
            }
        };
        let scram = ScramSha256::new(self.password()?.as_bytes(), binding);
        send(frontend::sasl_initial_response(mechanism, scram.message(), out))?;
        self.step = Step::Scram(scram);
        Ok(())
    }

    fn password(&self) -> Result<&str, Fault> {
        self.credentials.password.as_deref().ok_or_else(|| {
            Fault::Login("the server asks for a password, and none was given".into())
        })
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
    Err(Fault::Login(format!(
        "the server asks for {shown} rounds of SCRAM hashing (scram_iterations), expected 1 to {ROUNDS_MAX}"
    )))
}

fn send(written: std::io::Result<()>) -> Result<(), Fault> {
    written.map_err(malformed)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn malformed(error: std::io::Error) -> Fault {
    Fault::Login(format!("the login failed: {error}"))
}

fn out_of_turn() -> Fault {
    Fault::Protocol("the server sent a login message out of turn".into())
}
