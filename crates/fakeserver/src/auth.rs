//! The server's half of every login method. Bytes in, a verdict out. Knows no sockets, and of a
//! session only the user's name.
//!
//! SCRAM-SHA-256 is RFC 5802 and RFC 7677 without channel binding. Passwords are taken as they
//! are: no SASLprep, which changes nothing for ASCII.

use std::cell::OnceCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha2::Sha256;

use crate::config::Auth;
use crate::frames::{Body, Malformed};
use crate::messages;
use crate::random::Random;

const ITERATIONS: u32 = 4096;
const MECHANISM: &[u8] = b"SCRAM-SHA-256";

const OK: u32 = 0;
const CLEARTEXT: u32 = 3;
const MD5: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// The password, and what a server derives from it once, at the first SCRAM login.
#[derive(Debug)]
pub(crate) struct Account {
    password: Box<[u8]>,
    salt: [u8; 16],
    keys: OnceCell<Keys>,
}

/// What SCRAM keeps instead of a password.
#[derive(Debug)]
struct Keys {
    stored: [u8; 32],
    server: [u8; 32],
}

impl Account {
    pub(crate) fn new(password: &str, random: &mut Random) -> Self {
        let salt: [u8; 16] = std::array::from_fn(|_| random.bits() as u8);
        Self { password: password.as_bytes().into(), salt, keys: OnceCell::new() }
    }

    fn keys(&self) -> &Keys {
        self.keys.get_or_init(|| Keys::new(&self.password, &self.salt))
    }
}

impl Keys {
    fn new(password: &[u8], salt: &[u8]) -> Self {
        let salted = salt_password(password, salt);
        Self {
            stored: Sha256::digest(hmac(&salted, b"Client Key")).into(),
            server: hmac(&salted, b"Server Key"),
        }
    }
}

/// A login that waits for the client's next message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Login {
    Cleartext,
    Md5 { salt: [u8; 4] },
    ScramFirst,
    ScramFinal { nonce: String, binding: String, transcript: String },
}

/// What a client's message leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client has to answer once more.
    More(Login),
    Accepted,
    /// The password is wrong.
    Denied,
}

/// Writes the first challenge, or that there is none.
pub(crate) fn challenge(auth: Auth, random: &mut Random, out: &mut Vec<u8>) -> Verdict {
    let login = match auth {
        Auth::Trust => return Verdict::Accepted,
        Auth::Reject => return Verdict::Denied,
        Auth::Password => {
            messages::authentication(out, CLEARTEXT, &[]);
            Login::Cleartext
        }
        Auth::Md5 => {
            let salt = (random.bits() as u32).to_be_bytes();
            messages::authentication(out, MD5, &salt);
            Login::Md5 { salt }
        }
        Auth::ScramSha256 => {
            messages::authentication(out, SASL, &[MECHANISM, b"\0\0"].concat());
            Login::ScramFirst
        }
    };
    Verdict::More(login)
}

impl Login {
    /// Judges the body of a client's `p` message and writes what SCRAM has to reply.
    pub(crate) fn judge(
        self,
        body: &[u8],
        (user, account): (&str, &Account),
        random: &mut Random,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, Malformed> {
        let is_right = match self {
            Self::Cleartext => Body(body).string()? == &*account.password,
            Self::Md5 { salt } => Body(body).string()? == md5_answer(user, account, salt),
            Self::ScramFirst => return scram_first(body, account, random, out),
            Self::ScramFinal { nonce, binding, transcript } => {
                scram_final(body, account.keys(), &[&nonce, &binding, &transcript], out)?
            }
        };
        Ok(if is_right { Verdict::Accepted } else { Verdict::Denied })
    }
}

/// Writes that the client is let in.
pub(crate) fn accept(out: &mut Vec<u8>) {
    messages::authentication(out, OK, &[]);
}

/// "md5" + hex(md5(hex(md5(password + user)) + salt))
fn md5_answer(user: &str, account: &Account, salt: [u8; 4]) -> Vec<u8> {
    let hex = |parts: [&[u8]; 2]| -> String {
        Md5::digest(parts.concat()).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let inner = hex([&account.password, user.as_bytes()]);
    format!("md5{}", hex([inner.as_bytes(), &salt])).into_bytes()
}

fn scram_first(
    body: &[u8],
    account: &Account,
    random: &mut Random,
    out: &mut Vec<u8>,
) -> Result<Verdict, Malformed> {
    let mut body = Body(body);
    if body.string()? != MECHANISM {
        return Err(Malformed("client selected an invalid SASL authentication mechanism"));
    }
    let length = body.u32()? as usize;
    let message = utf8(body.bytes(length)?)?;
    // gs2-header client-first-message-bare: "n,," "n=user,r=nonce"
    let [flag, authzid, bare] = three_parts(message).ok_or(SCRAM)?;
    if !matches!(flag, "n" | "y") {
        return Err(Malformed("channel binding is not offered"));
    }
    let client_nonce = bare.split(',').find_map(|part| part.strip_prefix("r=")).ok_or(SCRAM)?;
    let nonce = format!("{client_nonce}{}", random.text(18));
    let server_first = format!("r={nonce},s={},i={ITERATIONS}", BASE64.encode(account.salt));
    messages::authentication(out, SASL_CONTINUE, server_first.as_bytes());
    Ok(Verdict::More(Login::ScramFinal {
        nonce,
        binding: BASE64.encode(format!("{flag},{authzid},")),
        transcript: format!("{bare},{server_first}"),
    }))
}

fn three_parts(message: &str) -> Option<[&str; 3]> {
    let (first, rest) = message.split_once(',')?;
    let (second, third) = rest.split_once(',')?;
    Some([first, second, third])
}

fn scram_final(
    body: &[u8],
    keys: &Keys,
    [nonce, binding, transcript]: &[&str; 3],
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let (without_proof, proof) = utf8(body)?.rsplit_once(",p=").ok_or(SCRAM)?;
    let proof: [u8; 32] = BASE64.decode(proof).map_err(|_| SCRAM)?.try_into().map_err(|_| SCRAM)?;
    if without_proof != format!("c={binding},r={nonce}") {
        return Err(SCRAM);
    }
    let transcript = format!("{transcript},{without_proof}");
    let signature = hmac(&keys.stored, transcript.as_bytes());
    let client_key: [u8; 32] = std::array::from_fn(|i| proof[i] ^ signature[i]);
    if Sha256::digest(client_key)[..] != keys.stored {
        return Ok(false);
    }
    let server_signature = BASE64.encode(hmac(&keys.server, transcript.as_bytes()));
    messages::authentication(out, SASL_FINAL, format!("v={server_signature}").as_bytes());
    Ok(true)
}

/// Hi() of RFC 5802: PBKDF2 with HMAC-SHA-256 and one block.
fn salt_password(password: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut block = hmac(password, &[salt, &1_u32.to_be_bytes()].concat());
    let mut salted = block;
    for _ in 1..ITERATIONS {
        block = hmac(password, &block);
        for (sum, byte) in salted.iter_mut().zip(block) {
            *sum ^= byte;
        }
    }
    salted
}

fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| SCRAM)
}

const SCRAM: Malformed = Malformed("malformed SCRAM message");

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account::new("pencil", &mut Random::new(1))
    }

    #[test]
    fn the_keys_and_signatures_are_those_of_the_rfc_7677_example() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let keys = Keys::new(b"pencil", &salt);
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let transcript =
            format!("n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let message = format!("c=biws,r={nonce},p={proof}");
        let mut out = Vec::new();
        let known = [nonce, "biws", &transcript];
        assert_eq!(scram_final(message.as_bytes(), &keys, &known, &mut out), Ok(true));
        let signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert!(out.ends_with(signature));
        let wrong = message.replace("dHzb", "dHzc");
        assert_eq!(scram_final(wrong.as_bytes(), &keys, &known, &mut out), Ok(false));
    }

    #[test]
    fn clear_and_md5_passwords_are_compared_whole() {
        let account = account();
        let judge = |login: Login, body: &[u8]| {
            let mut out = Vec::new();
            login.judge(body, ("user", &account), &mut Random::new(1), &mut out)
        };
        assert_eq!(judge(Login::Cleartext, b"pencil\0"), Ok(Verdict::Accepted));
        assert_eq!(judge(Login::Cleartext, b"penci\0"), Ok(Verdict::Denied));
        assert!(judge(Login::Cleartext, b"pencil").is_err());
        let salt = [1, 2, 3, 4];
        let mut answer = md5_answer("user", &account, salt);
        answer.push(0);
        assert_eq!(judge(Login::Md5 { salt }, &answer), Ok(Verdict::Accepted));
        assert_eq!(judge(Login::Md5 { salt: [0; 4] }, &answer), Ok(Verdict::Denied));
    }

    #[test]
    fn scram_messages_that_are_not_scram_are_malformed() {
        for body in [&b"SCRAM-SHA-1\0\0\0\0\0"[..], b"SCRAM-SHA-256\0\0\0\0\x03n,,"] {
            let mut out = Vec::new();
            let verdict = scram_first(body, &account(), &mut Random::new(1), &mut out);
            assert!(verdict.is_err());
        }
    }
}
