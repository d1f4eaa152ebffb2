//! What a certificate says of whose it is.

use std::fmt;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A part of a certificate's subject, exactly: `OU=NAME`, `CN=NAME`, or a URI of its subject alternative names, `URI=spiffe://…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An organizational unit.
    Unit(String),
    /// A common name.
    Name(String),
    /// A URI.
    Uri(String),
}

impl Subject {
    /// Reads one, if that is what it is.
    #[must_use]
    pub fn read(text: &str) -> Option<Subject> {
        let (kind, name) = text.split_once('=')?;
        let name = Some(name.to_owned()).filter(|name| !name.is_empty())?;
        match kind {
            "OU" => Some(Subject::Unit(name)),
            "CN" => Some(Subject::Name(name)),
            "URI" => name.contains("://").then_some(Subject::Uri(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Unit(name) => write!(f, "OU={name}"),
            Subject::Name(name) => write!(f, "CN={name}"),
            Subject::Uri(uri) => write!(f, "URI={uri}"),
        }
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A caller by the controller's socket on this machine; the file's permissions say who may use it.
    Local,
    /// Somebody without a certificate.
    Anybody,
    /// A caller whose certificate, signed by an authority of `client_ca`, has these names.
    Certified {
        /// The subject, as people write it.
        subject: String,
        /// Its units, common names and URIs.
        parts: Vec<Subject>,
    },
}

impl Caller {
    /// The caller whose certificate this is, in DER.
    #[must_use]
    pub fn from_certificate(certificate: Option<&[u8]>) -> Caller {
        let Some((_, own)) = certificate.and_then(|der| X509Certificate::from_der(der).ok()) else {
            return Caller::Anybody;
        };
        let subject = own.subject();
        let text =
            |part: &x509_parser::x509::AttributeTypeAndValue<'_>| part.as_str().ok().map(str::to_owned);
        let mut parts: Vec<Subject> =
            subject.iter_organizational_unit().filter_map(text).map(Subject::Unit).collect();
        parts.extend(subject.iter_common_name().filter_map(text).map(Subject::Name));
        if let Ok(Some(names)) = own.subject_alternative_name() {
            let uris = names.value.general_names.iter().filter_map(|name| match name {
                GeneralName::URI(uri) => Some(Subject::Uri((*uri).to_owned())),
                _ => None,
            });
            parts.extend(uris);
        }
        Caller::Certified { subject: subject.to_string(), parts }
    }

    /// What its certificate says.
    #[must_use]
    pub fn parts(&self) -> &[Subject] {
        match self {
            Caller::Certified { parts, .. } => parts,
            Caller::Local | Caller::Anybody => &[],
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Local => f.write_str("whoever asks by the socket on this machine"),
            Caller::Anybody => f.write_str("no certificate"),
            Caller::Certified { subject, parts } => {
                write!(f, "the certificate of {subject:?}")?;
                for part in parts.iter().filter(|part| matches!(part, Subject::Uri(_))) {
                    write!(f, " ({part})")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_read_and_written() {
        for text in ["OU=thc-operators", "CN=alice", "CN=a=b", "URI=spiffe://example.org/a=b"] {
            assert_eq!(Subject::read(text).unwrap().to_string(), text);
        }
        for wrong in ["", "OU", "OU=", "O=example", "alice", "URI=alice", "spiffe://example.org/a"] {
            assert_eq!(Subject::read(wrong), None, "{wrong}");
        }
    }
}
