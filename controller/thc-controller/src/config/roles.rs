//! Roles, as they are written.

use super::options::AccessOptions;
use super::value;
use crate::error::ControllerError;
use crate::roles::{Roles, Subject};

fn subjects(tls: &AccessOptions, key: &str, texts: &[String]) -> Result<Vec<Subject>, ControllerError> {
    let key = format!("controller.tls.{key}");
    if tls.client_ca.is_none() {
        let mend = "give client_ca as well: roles are of clients' certificates";
        return Err(value(&key, format!("{texts:?}"), mend));
    }
    if texts.is_empty() {
        return Err(value(&key, "[]", "name at least one OU=NAME, CN=NAME or URI=URI, or leave it out"));
    }
    let subject = |text: &String| {
        let wrong = || {
            value(
                &key,
                format!("{text:?}"),
                "write OU=NAME, CN=NAME or URI=URI, such as URI=spiffe://example.org/team",
            )
        };
        Subject::read(text).ok_or_else(wrong)
    };
    texts.iter().map(subject).collect()
}

/// Who has which role.
///
/// # Errors
/// [`ControllerError::Value`]: something that names nobody, or roles that contradict each other.
pub fn read(tls: &AccessOptions) -> Result<Roles, ControllerError> {
    let of = |key, texts: &Option<Vec<String>>| {
        texts.as_deref().map(|texts| subjects(tls, key, texts)).transpose()
    };
    let mut roles = Roles {
        readers: of("readers", &tls.readers)?,
        workers: of("workers", &tls.workers)?,
        operators: of("operators", &tls.operators)?,
        ..Roles::default()
    };
    for (job, texts) in &tls.trainers {
        roles.trainers.insert(job.clone(), subjects(tls, &format!("trainers.{job:?}"), texts)?);
    }
    if let Some(prefix) = &tls.role_uris {
        let key = "controller.tls.role_uris";
        if tls.client_ca.is_none() {
            let mend = "give client_ca as well: roles are of clients' certificates";
            return Err(value(key, format!("{prefix:?}"), mend));
        }
        let prefix = prefix.trim_end_matches('/');
        if !prefix.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty()) {
            let mend = "give what the URIs begin with, such as spiffe://example.org/thc";
            return Err(value(key, format!("{prefix:?}"), mend));
        }
        roles.uris = Some(prefix.to_owned());
    }
    if tls.readers.is_some() && tls.operators.is_none() && tls.role_uris.is_none() {
        let mend = "give operators as well: whoever may change everything sees it";
        return Err(value("controller.tls.readers", format!("{:?}", tls.readers), mend));
    }
    Ok(roles)
}
