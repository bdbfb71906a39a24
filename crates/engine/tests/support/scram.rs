//! The server's half of SCRAM-SHA-256 (RFC 5802, RFC 7677), to hold the client's against.

use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

const SALT: &[u8] = b"sixteen bytes ..";
/// A real server has 4096; the client takes what it is told.
const ITERATIONS: u32 = 64;

/// A server that has seen the client's first message.
pub struct Scram {
    client_first: String,
    server_first: String,
    salted: [u8; 32],
}

impl Scram {
    /// Answers `n,,n=,r=<nonce>` for an account with this password.
    pub fn begin(client_first: &str, password: &str) -> Self {
        let bare = client_first.strip_prefix("n,,").expect("no channel binding");
        let nonce = bare.strip_prefix("n=,r=").expect("the user is in the startup message");
        let mut salted = [0; 32];
        let iterations = NonZeroU32::new(ITERATIONS).expect("positive");
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, iterations, SALT, password.as_bytes(), &mut salted);
        Self {
            client_first: bare.to_owned(),
            server_first: format!("r={nonce}server,s={},i={ITERATIONS}", base64(SALT)),
            salted,
        }
    }

    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// The proof that the client must give, and the server's signature.
    pub fn proof_and_final(&self, client_final: &str) -> (String, String) {
        let (without_proof, _) = client_final.split_once(",p=").expect("a proof");
        let auth = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let client_key = sign(&self.salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, &client_key);
        let signature = sign(stored.as_ref(), auth.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server_key = sign(&self.salted, b"Server Key");
        let verifier = base64(&sign(&server_key, auth.as_bytes()));
        (base64(&proof), format!("v={verifier}"))
    }
}

fn sign(key: &[u8], data: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, data).as_ref().to_vec()
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let padded = [0, 1, 2].map(|at| u32::from(group.get(at).copied().unwrap_or(0)));
        let bits = padded[0] << 16 | padded[1] << 8 | padded[2];
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}
