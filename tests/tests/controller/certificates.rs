//! Certificates of a target and of its controller, each given by an authority of its own.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::Path;

/// What targets and controllers are called here.
pub const TARGET: &str = "target";
pub const CONTROLLER: &str = "controller";

/// Makes `NAME-ca.pem`, `NAME.pem` and `NAME-key.pem` of both in a folder.
pub fn make(folder: &Path) {
    for name in [TARGET, CONTROLLER] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // OpenSSL takes a certificate for its own authority's if both are called alike.
        params.distinguished_name.push(DnType::CommonName, format!("{name} authority"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join(format!("{name}-ca.pem")), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    }
}
