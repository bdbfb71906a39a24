//! TLS below the protocol: certificates and what is checked of them, and a tunnel of bytes on
//! rustls. Reads certificate files when it is set up; touches no socket.

use super::Fault;
use crate::conninfo::{
    CertificateCheck, Conninfo, RootCert, SslCertMode, SslNegotiation, TlsVersion,
};
use crate::error::{Error, Kind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature,
    verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
};
use rustls::{SignatureScheme, SupportedProtocolVersion};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

/// The protocol's name in ALPN.
const PROTOCOL: &[u8] = b"postgresql";

/// How the connections of a run use TLS.
#[derive(Debug, Clone)]
pub struct Settings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// Begin with the handshake, without asking first.
    pub direct: bool,
}

impl Settings {
    /// Reads what `conninfo` names for a server called `host`.
    ///
    /// # Errors
    /// `Kind::Tls` for files that cannot be used and versions that do not exist here.
    pub fn load(conninfo: &Conninfo, host: &str) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let (roots, given) = roots(conninfo)?;
        let check = conninfo.certificate_check();
        let verifier = Verifier {
            check,
            roots,
            given,
            host: host.to_owned(),
            provider: Arc::clone(&provider),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(conninfo))
            .expect("ring has both versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match client_certificate(conninfo)? {
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| Error::new(Kind::Tls, "client-certificate-and-key").because(e))?,
            None => builder.with_no_client_auth(),
        };
        let direct = conninfo.ssl_negotiation() == SslNegotiation::Direct;
        if direct {
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
        }
        config.enable_sni = conninfo.ssl_sni();
        let name = match ServerName::try_from(host.to_owned()) {
            Ok(name) => name,
            Err(_) if check != CertificateCheck::ChainAndName => {
                config.enable_sni = false;
                ServerName::try_from("name.invalid").expect("a valid name")
            }
            Err(_) => {
                return Err(Error::new(Kind::Tls, "host-not-in-certificates").with("host", host));
            }
        };
        Ok(Self { config: Arc::new(config), name, direct })
    }
}

/// At least one: `conninfo` has refused other bounds.
fn versions(conninfo: &Conninfo) -> Vec<&'static SupportedProtocolVersion> {
    let least = conninfo.tls_min().unwrap_or(TlsVersion::V1_2);
    let most = conninfo.tls_max().unwrap_or(TlsVersion::V1_3);
    let all =
        [(TlsVersion::V1_2, &rustls::version::TLS12), (TlsVersion::V1_3, &rustls::version::TLS13)];
    all.into_iter().filter(|(v, _)| (least..=most).contains(v)).map(|(_, v)| v).collect()
}

fn unusable(name: &'static str, path: &Path) -> Error {
    Error::new(Kind::Tls, name).with("path", path.display().to_string())
}

/// The roots, and the certificates of the root file as they are.
fn roots(conninfo: &Conninfo) -> Result<(RootCertStore, Vec<CertificateDer<'static>>)> {
    let mut store = RootCertStore::empty();
    let mut given = Vec::new();
    match conninfo.ssl_root_cert() {
        RootCert::None => {}
        RootCert::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
        }
        RootCert::File(path) => {
            for certificate in certificates("root-certificate-unusable", path)? {
                given.push(certificate.clone());
                let wrong = |e| unusable("root-certificate-unusable", path).because(e);
                store.add(certificate).map_err(wrong)?;
            }
        }
    }
    // Without roots nothing is checked, and no list is looked at.
    let listed = conninfo.ssl_crl().is_some() || conninfo.ssl_crl_dir().is_some();
    if listed && *conninfo.ssl_root_cert() != RootCert::None {
        return Err(Error::new(Kind::Tls, "revocation-lists-unsupported"));
    }
    Ok((store, given))
}

fn certificates(name: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|e| unread(unusable(name, path), e))?;
    if found.is_empty() {
        return Err(unusable("certificate-file-empty", path));
    }
    Ok(found)
}

/// A file cannot be read. The error of `pem` does not give the system's as its source.
fn unread(error: Error, why: pem::Error) -> Error {
    let errno = match &why {
        pem::Error::Io(system) => system.raw_os_error(),
        _ => None,
    };
    match errno {
        Some(errno) => error.with("errno", i64::from(errno)).because(why),
        None => error.because(why),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_certificate(conninfo: &Conninfo) -> Result<Option<Identity>> {
    let Some(cert) = conninfo.ssl_cert() else { return Ok(None) };
    if conninfo.ssl_cert_mode() == SslCertMode::Disable {
        return Ok(None);
    }
    let Some(key) = conninfo.ssl_key() else {
        return Err(unusable("client-key-missing", cert));
    };
    let chain = certificates("client-certificate-unusable", cert)?;
    check_private(key)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| unread(unusable("client-key-unusable", key), e))?;
    Ok(Some((chain, key)))
}

/// A key is ours alone, or root's and readable by a group, as libpq has it.
fn check_private(key: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(about) = std::fs::metadata(key) else { return Ok(()) };
    let others = if about.uid() == 0 { 0o037 } else { 0o077 };
    if about.mode() & others == 0 {
        return Ok(());
    }
    Err(unusable("client-key-open-to-others", key))
}

/// Checks a server's certificate as far as sslmode asks.
#[derive(Debug)]
struct Verifier {
    check: CertificateCheck,
    roots: RootCertStore,
    /// The root file's certificates: a server may show one of them itself.
    given: Vec<CertificateDer<'static>>,
    host: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if self.check == CertificateCheck::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if self.given.contains(&end_entity.clone().into_owned()) {
            // Trusted as it stands, also where it may sign others, as PostgreSQL's own recipe
            // for a self-signed certificate makes it.
            check_dates(end_entity, now)?;
        } else {
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                &self.roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        if self.check == CertificateCheck::ChainAndName {
            verify_server_name(&certificate, server_name).or_else(|error| {
                common_name_is(end_entity, &self.host).then_some(()).ok_or(error)
            })?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        match self.check {
            CertificateCheck::Nothing => verify_by_key(message, cert, dss, known),
            _ => verify_tls12_signature(message, cert, dss, known),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        match self.check {
            CertificateCheck::Nothing => {
                let key = public_key(cert)?.to_der().map_err(|_| bad_encoding())?;
                verify_tls13_signature_with_raw_key(message, &key.into(), dss, known)
            }
            _ => verify_tls13_signature(message, cert, dss, known),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether the owner of a certificate signed the handshake, by the key in it alone: where nothing
/// else of it is checked, its version is of no concern either. What rustls does with whole
/// certificates takes none of version 1, as `openssl x509 -req` makes them before 3.2.
fn verify_by_key(
    message: &[u8],
    der: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
    known: &WebPkiSupportedAlgorithms,
) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
    let key = public_key(der)?;
    let id = key.algorithm.to_der().map_err(|_| bad_encoding())?;
    let bits = key.subject_public_key.raw_bytes();
    let fitting = known.mapping.iter().filter(|(scheme, _)| *scheme == dss.scheme);
    let verified = fitting.flat_map(|(_, algorithms)| algorithms.iter()).any(|algorithm| {
        // Its identifier is the content of the sequence, whose header has two bytes.
        id.get(2..) == Some(algorithm.public_key_alg_id().as_ref())
            && algorithm.verify_signature(bits, message, dss.signature()).is_ok()
    });
    if verified {
        return Ok(HandshakeSignatureValid::assertion());
    }
    Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature))
}

fn public_key(
    der: &CertificateDer<'_>,
) -> std::result::Result<SubjectPublicKeyInfoOwned, rustls::Error> {
    let certificate = x509_cert::Certificate::from_der(der).map_err(|_| bad_encoding())?;
    Ok(certificate.tbs_certificate().subject_public_key_info().clone())
}

fn bad_encoding() -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::BadEncoding)
}

fn check_dates(der: &CertificateDer<'_>, now: UnixTime) -> std::result::Result<(), rustls::Error> {
    let bad = |reason| Err(rustls::Error::InvalidCertificate(reason));
    let Ok(certificate) = x509_cert::Certificate::from_der(der) else {
        return bad(CertificateError::BadEncoding);
    };
    let validity = certificate.tbs_certificate().validity();
    let now = std::time::Duration::from_secs(now.as_secs());
    if now > validity.not_after.to_unix_duration() {
        return bad(CertificateError::Expired);
    }
    if now < validity.not_before.to_unix_duration() {
        return bad(CertificateError::NotValidYet);
    }
    Ok(())
}

/// Whether a certificate without alternative names has the host's name as its common name: what
/// libpq falls back to.
fn common_name_is(der: &CertificateDer<'_>, host: &str) -> bool {
    use x509_cert::ext::pkix::SubjectAltName;
    let Ok(certificate) = x509_cert::Certificate::from_der(der) else { return false };
    let about = certificate.tbs_certificate();
    if !matches!(about.get_extension::<SubjectAltName>(), Ok(None)) {
        return false;
    }
    let name = about.subject().common_name().ok().flatten().map(|name| name.value().to_string());
    let Some(name) = name else { return false };
    match name.strip_prefix("*.") {
        Some(rest) => host.split_once('.').is_some_and(|(_, own)| own.eq_ignore_ascii_case(rest)),
        None => name.eq_ignore_ascii_case(host),
    }
}

/// One TLS connection as bytes in and bytes out. direct: it began without PostgreSQL's request.
pub(super) struct Tunnel {
    tls: ClientConnection,
    direct: bool,
}

impl Tunnel {
    pub(super) fn new(settings: &Settings) -> Self {
        let config = Arc::clone(&settings.config);
        let mut tls = ClientConnection::new(config, settings.name.clone()).expect("a checked name");
        tls.set_buffer_limit(None);
        Self { tls, direct: settings.direct }
    }

    /// Whether the server took a direct connection for one of PostgreSQL's protocol.
    pub(super) fn check_protocol(&self) -> std::result::Result<(), Fault> {
        if self.direct && self.tls.alpn_protocol() != Some(PROTOCOL) {
            return Err(Error::new(Kind::Tls, "tls-protocol-not-agreed").into());
        }
        Ok(())
    }

    /// True once the handshake is done.
    pub(super) fn is_up(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Appends to `plain` what the encrypted `bytes` hold.
    pub(super) fn decrypt(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> std::result::Result<(), Fault> {
        while !bytes.is_empty() {
            if self.tls.read_tls(&mut bytes).map_err(failed)? == 0 {
                return Err(Fault::lost("the server closed the TLS connection"));
            }
            let state = self.tls.process_new_packets().map_err(|e| explain(&e))?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut plain[start..]).map_err(failed)?;
        }
        Ok(())
    }

    /// Appends to `sealed` the handshake's bytes and the encrypted `plain`.
    pub(super) fn encrypt(
        &mut self,
        plain: &[u8],
        sealed: &mut Vec<u8>,
    ) -> std::result::Result<(), Fault> {
        self.tls.writer().write_all(plain).map_err(failed)?;
        while self.tls.wants_write() {
            self.tls.write_tls(sealed).map_err(failed)?;
        }
        Ok(())
    }

    /// The hash of the server's certificate that SCRAM-SHA-256-PLUS is bound to (RFC 5929,
    /// tls-server-end-point): by the hash of its signature, SHA-256 instead of MD5 and SHA-1.
    pub(super) fn server_end_point(&self) -> Option<Vec<u8>> {
        let der = self.tls.peer_certificates()?.first()?;
        let certificate = x509_cert::Certificate::from_der(der).ok()?;
        let algorithm = match certificate.signature_algorithm().oid.to_string().as_str() {
            // RSA and ECDSA with MD5, SHA-1 and SHA-256
            "1.2.840.113549.1.1.4"
            | "1.2.840.113549.1.1.5"
            | "1.2.840.113549.1.1.11"
            | "1.2.840.10045.4.1"
            | "1.2.840.10045.4.3.2" => &::ring::digest::SHA256,
            "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => &::ring::digest::SHA384,
            "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => &::ring::digest::SHA512,
            _ => return None,
        };
        Some(::ring::digest::digest(algorithm, der).as_ref().to_vec())
    }
}

fn failed(error: std::io::Error) -> Fault {
    Error::new(Kind::Tls, "tls-failed").because(error).into()
}

/// What rustls reports, as what to look at.
fn explain(error: &rustls::Error) -> Fault {
    let name = match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "certificate-of-other-host",
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "certificate-issuer-unknown"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "certificate-expired",
        // rustls has no names for these two.
        other if other.to_string().contains("UnsupportedCertVersion") => "certificate-of-version-1",
        other if other.to_string().contains("CaUsedAsEndEntity") => "certificate-of-ca",
        other => return Error::new(Kind::Tls, "tls-failed").because(other.clone()).into(),
    };
    Error::new(Kind::Tls, name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Value;

    #[test]
    fn a_certificate_that_cannot_be_read_has_the_number_of_the_system() {
        let error = certificates("root-certificate-unusable", Path::new("/nonexistent"));
        assert_eq!(error.expect_err("no file").value("errno"), Some(&Value::Number(2)));
    }
}
