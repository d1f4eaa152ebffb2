//! Authorities of certificates, and the certificates that they give.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use std::fs;
use std::path::{Path, PathBuf};

/// An authority, in a folder: `NAME-ca.pem`.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate that is about to be given.
pub struct Asked(CertificateParams);

impl Asked {
    /// That was over years ago.
    pub fn expire(&mut self) {
        (self.0.not_before, self.0.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    }
}

impl Authority {
    /// A new one.
    pub fn new(folder: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("authority {name}"));
        fs::write(folder.join(format!("{name}-ca.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder: folder.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// One with a certificate of its name.
    pub fn with_certificate(folder: &Path, name: &str) -> Authority {
        let authority = Authority::new(folder, name);
        authority.give(name, |_| {});
        authority
    }

    /// Gives a certificate for this machine, in place of the one that is there: `NAME.pem`, `NAME-key.pem`.
    pub fn give(&self, name: &str, asks: impl FnOnce(&mut Asked)) {
        let key = KeyPair::generate().unwrap();
        let mut asked =
            Asked(CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap());
        asks(&mut asked);
        let certificate = asked.0.signed_by(&key, &self.issuer).unwrap();
        for (name, text) in
            [(format!("{name}.pem"), certificate.pem()), (format!("{name}-key.pem"), key.serialize_pem())]
        {
            fs::write(self.folder.join(name), text).unwrap();
        }
    }
}
