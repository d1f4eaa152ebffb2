//! `thc://controller:port/job`.

use std::fmt;
use std::str::FromStr;
use thc_control_proto::DEFAULT_PORT;

/// A job at a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerUrl {
    authority: String,
    job: String,
    tls: bool,
}

impl ControllerUrl {
    /// Returns whether a server's address is meant as a URL of this kind.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("thc://") || text.starts_with("thcs://")
    }

    /// The job's name.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns whether the connection is encrypted.
    #[must_use]
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// The controller's endpoint in gRPC's form.
    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl fmt::Display for ControllerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "thcs" } else { "thc" };
        write!(f, "{scheme}://{}/{}", self.authority, self.job)
    }
}

impl FromStr for ControllerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ControllerUrl, String> {
        let wrong = || {
            format!("{text:?} is not a controller's URL: write it like thc://controller:{DEFAULT_PORT}/job")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let tls = match scheme {
            "thc" => false,
            "thcs" => true,
            _ => return Err(wrong()),
        };
        let (authority, job) = rest.split_once('/').ok_or_else(wrong)?;
        let job = job.trim_end_matches('/');
        if job.is_empty() || job.contains(['/', '?', '#', ' ']) {
            return Err(wrong());
        }
        let authority = with_port(authority).ok_or_else(wrong)?;
        Ok(ControllerUrl { authority, job: job.to_owned(), tls })
    }
}

/// Host and port, with the default port unless one is given; `None` if the text is neither.
fn with_port(authority: &str) -> Option<String> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    if host.is_empty() || authority.contains(['@', ',']) {
        return None;
    }
    match authority.rsplit_once(':') {
        Some((_, port)) if !authority.ends_with(']') => {
            port.parse::<u16>().ok().filter(|port| *port > 0)?;
            Some(authority.to_owned())
        }
        _ => Some(format!("{authority}:{DEFAULT_PORT}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, shown, endpoint) in [
            ("thc://head:9700/train", "thc://head:9700/train", "http://head:9700"),
            ("thc://head/train/", "thc://head:9700/train", "http://head:9700"),
            ("thcs://10.0.0.1:1/a.b-c", "thcs://10.0.0.1:1/a.b-c", "https://10.0.0.1:1"),
            ("thc://[::1]/x", "thc://[::1]:9700/x", "http://[::1]:9700"),
        ] {
            let url: ControllerUrl = text.parse().unwrap();
            assert_eq!((url.to_string(), url.endpoint()), (shown.to_owned(), endpoint.to_owned()));
        }
        for text in [
            "head:9700",
            "http://head/x",
            "thc://head",
            "thc:///x",
            "thc://h:0/x",
            "thc://h:x/x",
            "thc://h/",
            "thc://h/a/b",
            "thc://u@h/a",
            "thc://h,/a",
            "thc://,h/a",
        ] {
            let error = text.parse::<ControllerUrl>().unwrap_err();
            assert!(error.contains(text) && error.contains("thc://controller:9700/job"), "{error}");
        }
    }
}
