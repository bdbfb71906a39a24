//! The client's half of SCRAM-SHA-256 (RFC 5802, RFC 7677).
//!
//! The hash of a password takes a millisecond in which no other client of the thread is served. It
//! depends on the password, the salt, and the number of rounds alone, which a server keeps for each
//! role, so a load computes it once.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::rand::SecureRandom as _;
use ring::{digest, hmac, pbkdf2, rand};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of randomness in a nonce, which is written in base 64.
const NONCE_BYTES: usize = 18;

/// What is derived from a password; shared by all logins with it.
#[derive(Clone, Default)]
pub struct Keys(Arc<Mutex<Option<Derived>>>);

#[derive(Clone)]
struct Derived {
    salt: Vec<u8>,
    rounds: u32,
    client: hmac::Tag,
    server: hmac::Tag,
}

impl Keys {
    /// The keys for a salt and a number of rounds.
    fn derive(&self, password: &str, salt: Vec<u8>, rounds: NonZeroU32) -> Derived {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref().filter(|k| k.salt == salt && k.rounds == rounds.get()) {
            return kept.clone();
        }
        // A password that the profile forbids is used as it is, as servers do.
        let prepared = stringprep::saslprep(password).unwrap_or(password.into());
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        let secret = prepared.as_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, secret, &mut salted);
        let (client, server) = (sign(&salted, b"Client Key"), sign(&salted, b"Server Key"));
        let derived = Derived { salt, rounds: rounds.get(), client, server };
        kept.insert(derived).clone()
    }
}

fn sign(key: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message)
}

/// How a login is bound to the TLS channel.
pub enum Binding {
    /// We could not.
    Unsupported,
    /// We could, but the server does not offer it.
    NotOffered,
    /// By the hash of the server's certificate.
    EndPoint(Vec<u8>),
}

impl Binding {
    fn header(&self) -> &'static str {
        match self {
            Self::Unsupported => "n,,",
            Self::NotOffered => "y,,",
            Self::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    fn encoded(&self) -> String {
        let mut bytes = self.header().as_bytes().to_vec();
        if let Self::EndPoint(hash) = self {
            bytes.extend(hash);
        }
        BASE64_STANDARD.encode(bytes)
    }
}

/// A login that is going on.
pub struct Scram {
    binding: Binding,
    nonce: String,
    /// What the server must sign once the password is proved to it, and with which key.
    expected: Option<(hmac::Key, String)>,
}

impl Scram {
    /// A login with a new nonce; None if the system has no random numbers.
    pub fn new(binding: Binding) -> Option<Self> {
        let mut nonce = [0; NONCE_BYTES];
        rand::SystemRandom::new().fill(&mut nonce).ok()?;
        Some(Self { binding, nonce: BASE64_STANDARD.encode(nonce), expected: None })
    }

    /// The first message to the server. It knows the role from the start of the session.
    pub fn first(&self) -> String {
        format!("{}n=,r={}", self.binding.header(), self.nonce)
    }

    /// The proof of the password, which answers a challenge.
    ///
    /// # Errors
    /// Why the challenge is not one.
    pub fn prove(
        &mut self,
        challenge: &[u8],
        password: &str,
        keys: &Keys,
    ) -> Result<String, &'static str> {
        if self.expected.is_some() {
            return Err("the server sent a second challenge");
        }
        let challenge = std::str::from_utf8(challenge).map_err(|_| "the challenge is not text")?;
        let mut parts = challenge.splitn(3, ',');
        let mut part = |name| parts.next().and_then(|part| part.strip_prefix(name));
        let nonce = part("r=").ok_or("the challenge has no nonce")?;
        let salt = part("s=").and_then(|salt| BASE64_STANDARD.decode(salt).ok());
        let rounds = part("i=").filter(|rounds| rounds.bytes().all(|b| b.is_ascii_digit()));
        if !nonce.starts_with(&self.nonce) {
            return Err("the challenge is for another login");
        }
        let salt = salt.ok_or("the challenge has no salt")?;
        let rounds = rounds.and_then(|rounds| rounds.parse().ok());
        let rounds = rounds.ok_or("the challenge has no number of iterations")?;
        let derived = keys.derive(password, salt, rounds);
        let message = format!("c={},r={nonce}", self.binding.encoded());
        let signed = format!("n=,r={},{challenge},{message}", self.nonce);
        let stored = digest::digest(&digest::SHA256, derived.client.as_ref());
        let signature = sign(stored.as_ref(), signed.as_bytes());
        let mut proof = derived.client.as_ref().to_vec();
        proof.iter_mut().zip(signature.as_ref()).for_each(|(proof, byte)| *proof ^= byte);
        let key = hmac::Key::new(hmac::HMAC_SHA256, derived.server.as_ref());
        self.expected = Some((key, signed));
        Ok(format!("{message},p={}", BASE64_STANDARD.encode(proof)))
    }

    /// Checks that the server knows the password, too.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check(&mut self, last: &[u8]) -> Result<(), &'static str> {
        let early = "the server signs before the password is proved";
        let (key, signed) = self.expected.take().ok_or(early)?;
        let signature = last.strip_prefix(b"v=").ok_or("the server rejects the proof")?;
        let signature = signature.split(|byte| *byte == b',').next().unwrap_or_default();
        let signature = BASE64_STANDARD.decode(signature).unwrap_or_default();
        hmac::verify(&key, signed.as_bytes(), &signature)
            .map_err(|_| "the server does not know the password")
    }
}
