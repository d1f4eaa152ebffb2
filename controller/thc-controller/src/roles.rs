//! Who may do what: roles by the subjects of clients' certificates.

use crate::refusal::Refusal;
use std::fmt;
use tonic::{Code, Request};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To join jobs and report.
    Worker,
    /// To create, delete and install; an operator may do what workers may.
    Operator,
}

/// A part of a certificate's subject, exactly: `OU=NAME` or `CN=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    unit: bool,
    name: String,
}

impl Subject {
    /// Reads one, if that is what it is.
    #[must_use]
    pub fn read(text: &str) -> Option<Subject> {
        let (kind, name) = text.split_once('=')?;
        let unit = match kind {
            "OU" => true,
            "CN" => false,
            _ => return None,
        };
        (!name.is_empty()).then(|| Subject { unit, name: name.to_owned() })
    }

    fn is_of(&self, subject: &X509Name<'_>) -> bool {
        let same = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| part.as_str() == Ok(&self.name);
        match self.unit {
            true => subject.iter_organizational_unit().any(same),
            false => subject.iter_common_name().any(same),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", if self.unit { "OU" } else { "CN" }, self.name)
    }
}

/// Who has which role. A role that is not configured is everybody's whom the service lets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Who may join and report, beside operators.
    pub workers: Option<Vec<Subject>>,
    /// Who may create, delete and install.
    pub operators: Option<Vec<Subject>>,
}

impl Roles {
    /// Whether whoever sent a request has a role.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`], with what the certificate lacks.
    pub fn check<T>(&self, role: Role, request: &Request<T>) -> Result<(), Refusal> {
        let wanted = match role {
            Role::Worker => &self.workers,
            Role::Operator => &self.operators,
        };
        let Some(wanted) = wanted else { return Ok(()) };
        // An operator is a worker as well.
        let also = self.operators.iter().flatten().filter(|_| role == Role::Worker);
        let certificates = request.peer_certs();
        // The first is the client's own; it was checked when the connection was made.
        let own = certificates.as_ref().and_then(|chain| chain.first());
        let own = own.and_then(|own| X509Certificate::from_der(own).ok());
        let Some((_, own)) = own else { return Err(refused(role, "no certificate", wanted)) };
        let subject = own.subject();
        if wanted.iter().chain(also).any(|wanted| wanted.is_of(subject)) {
            return Ok(());
        }
        Err(refused(role, &format!("the certificate of {subject:?}", subject = subject.to_string()), wanted))
    }
}

fn refused(role: Role, what: &str, wanted: &[Subject]) -> Refusal {
    let (may, key) = match role {
        Role::Worker => ("join and report", "workers"),
        Role::Operator => ("create, delete and install", "operators"),
    };
    let names: Vec<String> = wanted.iter().map(Subject::to_string).collect();
    let message = format!(
        "{what} may not {may}: use one of {}, or change {key} in [controller.tls] of the controller",
        names.join(" or ")
    );
    Refusal { code: Code::PermissionDenied, message }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_read_and_written() {
        for text in ["OU=thc-operators", "CN=alice", "CN=a=b"] {
            assert_eq!(Subject::read(text).unwrap().to_string(), text);
        }
        for wrong in ["", "OU", "OU=", "O=example", "alice"] {
            assert_eq!(Subject::read(wrong), None, "{wrong}");
        }
    }

    /// Without roles all may do all; with roles whoever shows no certificate may not.
    #[test]
    fn roles_that_are_not_configured_are_everybodys() {
        let request = Request::new(());
        for role in [Role::Worker, Role::Operator] {
            Roles::default().check(role, &request).unwrap();
        }
        let roles = Roles { workers: None, operators: Some(vec![Subject::read("CN=alice").unwrap()]) };
        roles.check(Role::Worker, &request).unwrap();
        let refusal = roles.check(Role::Operator, &request).unwrap_err();
        assert_eq!(refusal.code, Code::PermissionDenied);
        assert!(refusal.message.contains("no certificate may not create"), "{}", refusal.message);
    }
}
