//! Authentication: TLS with a temporary certificate, and a proof that both ends know the job's secret.
//!
//! The server makes a key and a self-signed certificate when it starts; nobody has to hand files around, and a
//! restarted server needs none. What a certificate authority would vouch for, the job's secret does: both ends
//! send HMAC-SHA256(secret, exported key), where the exported key (RFC 5705) belongs to this TLS connection and to
//! this end of it alone. So the secret never travels, a recorded proof is worth nothing elsewhere, and somebody in the middle, who
//! has two connections with two exported keys, can show neither end a proof. What he can do is try secrets against a
//! proof he was sent, which is why they have at least 16 characters.

use std::fmt;
use std::sync::Arc;

use ring::hmac;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use thc_config::values::Secret;

use crate::error::ModelError;
use crate::wire::ALPN;

/// The least number of characters of a secret.
const SHORTEST: usize = 16;
/// Checks that nobody can find a secret by trying.
pub(crate) fn check(secret: &Secret) -> Result<(), String> {
    if secret.expose().chars().count() >= SHORTEST {
        return Ok(());
    }
    Err(format!(
        "the secret has fewer than {SHORTEST} characters, which can be found by trying: take a longer one"
    ))
}

/// The key of stateless resets. It is derived from the jobs' secrets, and is not random: a restarted server can inform workers of
/// the one before that their connections are gone, at their next packet and not after a silence.
pub(crate) fn reset_key<'a>(secrets: impl Iterator<Item = &'a Secret>) -> hmac::Key {
    let signed = secrets.map(|secret| hmac::sign(&key(secret), b"thc-model reset"));
    hmac::Key::new(hmac::HMAC_SHA256, &signed.flat_map(|tag| tag.as_ref().to_vec()).collect::<Vec<u8>>())
}

fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes())
}

/// An end of a connection.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Server,
    Worker,
}

/// The key that `role` signs, which no other connection, job or worker has.
fn export_key(role: Role, connection: &quinn::Connection, job: &str, worker: u16) -> Option<[u8; 32]> {
    let label: &[u8] = match role {
        Role::Server => b"EXPORTER-thc-model-server",
        Role::Worker => b"EXPORTER-thc-model-worker",
    };
    let mut key = [0; 32];
    let context = [job.as_bytes(), &[0], &worker.to_le_bytes()].concat();
    connection.export_keying_material(&mut key, label, &context).ok()?;
    Some(key)
}

/// The proof that `role` sends.
pub(crate) fn prove(
    role: Role,
    secret: &Secret,
    connection: &quinn::Connection,
    job: &str,
    worker: u16,
) -> Option<[u8; 32]> {
    let exported = export_key(role, connection, job, worker)?;
    hmac::sign(&key(secret), &exported).as_ref().try_into().ok()
}

/// Checks the proof of `role`.
pub(crate) fn verify(
    role: Role,
    secret: &Secret,
    connection: &quinn::Connection,
    job: &str,
    worker: u16,
    proof: &[u8],
) -> bool {
    let exported = export_key(role, connection, job, worker);
    exported.is_some_and(|exported| hmac::verify(&key(secret), &exported, proof).is_ok())
}

fn tls_failed(error: impl fmt::Display) -> ModelError {
    ModelError::Config(format!("TLS cannot be set up: {error}"))
}

/// TLS of a server, with a new key.
pub(crate) fn server_tls() -> Result<quinn::crypto::rustls::QuicServerConfig, ModelError> {
    let made = rcgen::generate_simple_self_signed(vec!["thc-model".to_owned()]).map_err(tls_failed)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(tls_failed)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_failed)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(tls_failed)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    quinn::crypto::rustls::QuicServerConfig::try_from(config).map_err(tls_failed)
}

/// TLS of a worker: whoever the certificate names, the proof decides.
pub(crate) fn worker_tls() -> Result<quinn::crypto::rustls::QuicClientConfig, ModelError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls_failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ProofDecides(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    quinn::crypto::rustls::QuicClientConfig::try_from(config).map_err(tls_failed)
}

/// Takes any certificate whose key the server has. Nothing but HELLO, which holds no secret, is sent before the server's proof.
#[derive(Debug)]
struct ProofDecides(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for ProofDecides {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long() {
        assert_eq!(check(&Secret::from("  sixteen letters!\n")), Ok(()));
        assert!(check(&Secret::from("fifteen letters\n")).is_err());
    }
}
