//! Who may do what: roles by clients' certificates.
//!
//! | role | may |
//! |-|-|
//! | reader | look at everything that is no secret, also at the page |
//! | trainer of a job | join that job and report; look at that job |
//! | worker | the same of every job |
//! | operator | everything |
//!
//! Everybody whom the service lets in has the roles that the configuration does not mention.

mod subject;

pub use subject::{Caller, Subject};

use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::fmt;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Request};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// To look at all that there is.
    Look,
    /// To look at a job.
    LookAt(&'a str),
    /// To join a job and report.
    Join(&'a str),
    /// To create, delete and install.
    Operate,
}

/// A role by which something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role<'a> {
    Reader,
    Trainer(&'a str),
    Operator,
}

impl fmt::Display for Role<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Reader => f.write_str("reader"),
            Role::Trainer(job) => write!(f, "trainer of {job}"),
            Role::Operator => f.write_str("operator"),
        }
    }
}

/// Who has which role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Who may look at everything, beside operators.
    pub readers: Option<Vec<Subject>>,
    /// Who may join every job and report, beside operators.
    pub workers: Option<Vec<Subject>>,
    /// Who may do everything.
    pub operators: Option<Vec<Subject>>,
    /// Who may join jobs of these names, and, for a name that ends in `*`, of names that begin with it.
    pub trainers: BTreeMap<String, Vec<Subject>>,
    /// The beginning of URIs that say roles themselves: `PREFIX/operator`, `PREFIX/reader`,
    /// `PREFIX/trainer/JOB`. If this is given, all roles are restricted.
    pub uris: Option<String>,
}

/// Whether a name, or what it begins with, means a job.
fn means(pattern: &str, job: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => job.starts_with(beginning),
        None => pattern == job,
    }
}

impl Roles {
    /// What a URI says after the prefix.
    fn name_in_uri<'a>(&self, part: &'a Subject) -> Option<&'a str> {
        match (part, &self.uris) {
            (Subject::Uri(uri), Some(prefix)) => uri.strip_prefix(prefix.as_str())?.strip_prefix('/'),
            _ => None,
        }
    }

    /// The subjects of the configuration that have a role.
    fn configured_subjects<'a>(&'a self, role: Role<'a>) -> Vec<&'a Subject> {
        match role {
            Role::Reader => self.readers.iter().flatten().collect(),
            Role::Operator => self.operators.iter().flatten().collect(),
            Role::Trainer(job) => {
                let own = self.trainers.iter().filter(|(pattern, _)| means(pattern, job));
                own.flat_map(|(_, subjects)| subjects).chain(self.workers.iter().flatten()).collect()
            }
        }
    }

    /// Whether a role is only for those who have it.
    fn is_restricted(&self, role: Role<'_>) -> bool {
        self.uris.is_some()
            || match role {
                Role::Reader => self.readers.is_some(),
                Role::Operator => self.operators.is_some(),
                Role::Trainer(job) => {
                    self.workers.is_some() || self.trainers.keys().any(|pattern| means(pattern, job))
                }
            }
    }

    fn has_role(&self, caller: &Caller, role: Role<'_>) -> bool {
        let named = self.configured_subjects(role);
        caller.parts().iter().any(|part| {
            named.contains(&part)
                || self.name_in_uri(part).is_some_and(|said| match role {
                    Role::Reader => said == "reader",
                    Role::Operator => said == "operator",
                    Role::Trainer(job) => said.strip_prefix("trainer/").is_some_and(|name| means(name, job)),
                })
        })
    }

    /// Checks whether a caller may do something.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`], with the role that it needs and who has it.
    pub fn check(&self, caller: &Caller, act: Act<'_>) -> Result<(), Refusal> {
        // The first is the one that is named to whoever has none.
        let roles: &[Role<'_>] = match act {
            Act::Look => &[Role::Reader, Role::Operator],
            Act::LookAt(job) => &[Role::Reader, Role::Trainer(job), Role::Operator],
            Act::Join(job) => &[Role::Trainer(job), Role::Operator],
            Act::Operate => &[Role::Operator],
        };
        // Looking at one job is everybody's only if looking at all is.
        if *caller == Caller::Local || !self.is_restricted(roles[0]) {
            return Ok(());
        }
        if roles.iter().any(|role| self.has_role(caller, *role)) {
            return Ok(());
        }
        Err(self.refusal(caller, act, roles))
    }

    /// The same of whoever has sent a request.
    ///
    /// # Errors
    /// As [`Roles::check`].
    pub fn check_request<T>(&self, request: &Request<T>, act: Act<'_>) -> Result<(), Refusal> {
        if request.extensions().get::<UdsConnectInfo>().is_some() {
            return self.check(&Caller::Local, act);
        }
        // The first certificate is the client's own; it was checked when the connection was made.
        let certificates = request.peer_certs();
        let own = certificates.as_ref().and_then(|chain| chain.first());
        self.check(&Caller::from_certificate(own.map(|own| own.as_ref())), act)
    }

    fn refusal(&self, caller: &Caller, act: Act<'_>, roles: &[Role<'_>]) -> Refusal {
        let may = match act {
            Act::Look => "look at everything".to_owned(),
            Act::LookAt(job) => format!("look at job {job}"),
            Act::Join(job) => format!("join and report to job {job}"),
            Act::Operate => "create, delete and install".to_owned(),
        };
        let mut who: Vec<String> = Vec::new();
        for &role in roles {
            who.extend(self.configured_subjects(role).into_iter().map(Subject::to_string));
            if let Some(prefix) = &self.uris {
                who.push(match role {
                    Role::Reader => format!("URI={prefix}/reader"),
                    Role::Operator => format!("URI={prefix}/operator"),
                    Role::Trainer(job) => format!("URI={prefix}/trainer/{job}"),
                });
            }
        }
        let names: Vec<String> = roles.iter().map(Role::to_string).collect();
        let message = format!(
            "{caller} may not {may}: use one of {}, which takes the role {}, or change roles in [controller.tls] of the controller",
            who.join(" or "),
            names.join(" or "),
        );
        Refusal { code: Code::PermissionDenied, message }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn subjects(texts: &[&str]) -> Vec<Subject> {
        texts.iter().map(|text| Subject::read(text).unwrap()).collect()
    }

    fn caller(texts: &[&str]) -> Caller {
        Caller::Certified { subject: "CN=x".to_owned(), parts: subjects(texts) }
    }

    /// Without roles all may do all; with roles whoever shows no certificate may not.
    #[test]
    fn roles_that_are_not_configured_are_everybodys() {
        for act in [Act::Look, Act::LookAt("a"), Act::Join("a"), Act::Operate] {
            Roles::default().check(&Caller::Anybody, act).unwrap();
        }
        let roles = Roles { operators: Some(subjects(&["CN=alice"])), ..Roles::default() };
        roles.check(&Caller::Anybody, Act::Join("a")).unwrap();
        roles.check(&Caller::Anybody, Act::LookAt("a")).unwrap();
        let refusal = roles.check(&Caller::Anybody, Act::Operate).unwrap_err();
        assert_eq!(refusal.code, Code::PermissionDenied);
        assert!(refusal.message.contains("no certificate may not create"), "{}", refusal.message);
        roles.check(&Caller::Local, Act::Operate).unwrap();
    }

    /// Each role by each way of having it, and what it may.
    #[test]
    fn each_role_may_what_it_is_for() {
        let listed = Roles {
            readers: Some(subjects(&["CN=r"])),
            workers: Some(subjects(&["OU=w"])),
            operators: Some(subjects(&["URI=spiffe://x/op"])),
            trainers: [("a".to_owned(), subjects(&["CN=a"])), ("team-*".to_owned(), subjects(&["CN=t"]))]
                .into(),
            uris: None,
        };
        let said = Roles { uris: Some("spiffe://x/thc".to_owned()), ..Roles::default() };
        let acts = [
            Act::Look,
            Act::LookAt("a"),
            Act::LookAt("team-1"),
            Act::Join("a"),
            Act::Join("team-1"),
            Act::Operate,
        ];
        let may = |roles: &Roles, caller: &Caller| acts.map(|act| u8::from(roles.check(caller, act).is_ok()));
        for (roles, part, wanted) in [
            (&listed, "CN=r", [1, 1, 1, 0, 0, 0]),
            (&listed, "OU=w", [0, 1, 1, 1, 1, 0]),
            (&listed, "CN=a", [0, 1, 0, 1, 0, 0]),
            (&listed, "CN=t", [0, 0, 1, 0, 1, 0]),
            (&listed, "URI=spiffe://x/op", [1, 1, 1, 1, 1, 1]),
            (&listed, "URI=spiffe://x/op2", [0; 6]),
            (&said, "URI=spiffe://x/thc/reader", [1, 1, 1, 0, 0, 0]),
            (&said, "URI=spiffe://x/thc/trainer/a", [0, 1, 0, 1, 0, 0]),
            (&said, "URI=spiffe://x/thc/trainer/team-*", [0, 0, 1, 0, 1, 0]),
            (&said, "URI=spiffe://x/thc/operator", [1; 6]),
            // What only begins like a role is none, nor is another's.
            (&said, "URI=spiffe://x/thc/operators", [0; 6]),
            (&said, "URI=spiffe://x/thc-other/operator", [0; 6]),
            (&said, "URI=spiffe://y/thc/operator", [0; 6]),
            (&said, "CN=spiffe://x/thc/operator", [0; 6]),
        ] {
            assert_eq!(may(roles, &caller(&[part])), wanted, "{part}");
        }
        for roles in [&listed, &said] {
            assert_eq!(may(roles, &Caller::Anybody), [0; 6]);
            assert_eq!(may(roles, &Caller::Local), [1; 6]);
        }
        let refusal = said.check(&caller(&["URI=spiffe://x/thc/trainer/a"]), Act::Join("b")).unwrap_err();
        for says in [
            "(URI=spiffe://x/thc/trainer/a) may not join and report to job b",
            "URI=spiffe://x/thc/trainer/b",
            "the role trainer of b or operator",
            "[controller.tls]",
        ] {
            assert!(refusal.message.contains(says), "{}", refusal.message);
        }
    }
}
