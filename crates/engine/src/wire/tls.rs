//! TLS below the protocol: certificates and what is checked of them, and a tunnel of bytes on
//! rustls. Reads certificate files when it is set up; touches no socket.

use super::Fault;
use crate::conninfo::{
    CertificateCheck, Conninfo, RootCert, SslCertMode, SslNegotiation, TlsVersion,
};
use crate::error::{Error, Kind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
};
use rustls::{SignatureScheme, SupportedProtocolVersion};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use x509_cert::der::Decode as _;

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
        let roots = roots(conninfo)?;
        let check = conninfo.certificate_check();
        let verifier = Verifier { check, roots, provider: Arc::clone(&provider) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(conninfo)?)
            .map_err(|e| Error::new(Kind::Tls, format!("TLS cannot be set up: {e}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match client_certificate(conninfo)? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|e| {
                Error::new(
                    Kind::Tls,
                    format!("the client certificate and its key cannot be used: {e}"),
                )
            })?,
            None => builder.with_no_client_auth(),
        };
        let direct = conninfo.ssl_negotiation() == SslNegotiation::Direct;
        if direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        config.enable_sni = conninfo.ssl_sni();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::new(Kind::Tls, format!("\"{host}\" cannot be the name in a certificate"))
                .with_hint("give the server's host name, or sslmode=disable for a local socket")
        })?;
        Ok(Self { config: Arc::new(config), name, direct })
    }
}

fn versions(conninfo: &Conninfo) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let least = conninfo.tls_min().unwrap_or(TlsVersion::V1_2);
    let most = conninfo.tls_max().unwrap_or(TlsVersion::V1_3);
    let all =
        [(TlsVersion::V1_2, &rustls::version::TLS12), (TlsVersion::V1_3, &rustls::version::TLS13)];
    let chosen: Vec<_> =
        all.into_iter().filter(|(v, _)| (least..=most).contains(v)).map(|(_, v)| v).collect();
    if chosen.is_empty() {
        return Err(Error::new(
            Kind::Tls,
            "no TLS version is left between the minimum and maximum asked for",
        )
        .with_hint("pgpaces speaks TLS 1.2 and 1.3: set ssl_max_protocol_version to one of them"));
    }
    Ok(chosen)
}

fn unreadable(what: &str, path: &Path, error: impl std::fmt::Display) -> Error {
    Error::new(Kind::Tls, format!("{what} {} cannot be used: {error}", path.display()))
}

fn roots(conninfo: &Conninfo) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match conninfo.ssl_root_cert() {
        RootCert::None => {}
        RootCert::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
        }
        RootCert::File(path) => {
            for certificate in certificates("root certificate file", path)? {
                store.add(certificate).map_err(|e| unreadable("root certificate file", path, e))?;
            }
        }
    }
    if conninfo.ssl_crl().is_some() || conninfo.ssl_crl_dir().is_some() {
        return Err(Error::new(Kind::Tls, "certificate revocation lists are not supported")
            .with_hint("leave out sslcrl and sslcrldir"));
    }
    Ok(store)
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|e| unreadable(what, path, e))?;
    if found.is_empty() {
        return Err(unreadable(what, path, "it holds no certificate"));
    }
    Ok(found)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_certificate(conninfo: &Conninfo) -> Result<Option<Identity>> {
    let (Some(cert), Some(key)) = (conninfo.ssl_cert(), conninfo.ssl_key()) else {
        return Ok(None);
    };
    if conninfo.ssl_cert_mode() == SslCertMode::Disable {
        return Ok(None);
    }
    let chain = certificates("client certificate", cert)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| {
        unreadable("client key", key, e)
            .with_hint("keys with a pass phrase are not supported: use one without")
    })?;
    Ok(Some((chain, key)))
}

/// Checks a server's certificate as far as sslmode asks.
#[derive(Debug)]
struct Verifier {
    check: CertificateCheck,
    roots: RootCertStore,
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
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        if self.check != CertificateCheck::Chain {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// One TLS connection as bytes in and bytes out.
pub(super) struct Tunnel {
    tls: ClientConnection,
}

impl Tunnel {
    pub(super) fn new(settings: &Settings) -> Self {
        let config = Arc::clone(&settings.config);
        let tls = ClientConnection::new(config, settings.name.clone()).expect("a checked name");
        Self { tls }
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
            self.tls.read_tls(&mut bytes).map_err(|e| Fault::Tls(e.to_string()))?;
            let state = self.tls.process_new_packets().map_err(|e| Fault::Tls(explain(&e)))?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.tls
                .reader()
                .read_exact(&mut plain[start..])
                .map_err(|e| Fault::Tls(e.to_string()))?;
        }
        Ok(())
    }

    /// Appends to `sealed` the handshake's bytes and the encrypted `plain`.
    pub(super) fn encrypt(
        &mut self,
        plain: &[u8],
        sealed: &mut Vec<u8>,
    ) -> std::result::Result<(), Fault> {
        self.tls.writer().write_all(plain).map_err(|e| Fault::Tls(e.to_string()))?;
        while self.tls.wants_write() {
            self.tls.write_tls(sealed).map_err(|e| Fault::Tls(e.to_string()))?;
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

/// What rustls reports, in words that say what to look at.
fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate does not bear the name of the host".into(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the server's certificate is not signed by a root that we know".into()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the server's certificate has expired".into(),
        other => format!("TLS failed: {other}"),
    }
}
