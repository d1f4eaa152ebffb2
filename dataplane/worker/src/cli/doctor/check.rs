//! The findings of doctor's checks.

use serde::Serialize;
use thc_protocol::wire::MAX_PACKET;
use thc_transport::{IPV4_UDP_HEADER_LEN, IPV6_UDP_HEADER_LEN};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could, or it may be a mistake.
    Warning,
    /// It will not work.
    Wrong,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Wrong => "wrong",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The subject, in one word.
    pub name: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// The finding.
    pub found: String,
    /// The remedy; absent where nothing needs to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Check {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, found: found.into(), mend: None }
    }

    pub fn warning(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Warning, found: found.into(), mend: Some(mend.into()) }
    }

    pub fn wrong(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Wrong, found: found.into(), mend: Some(mend.into()) }
    }

    /// An error whose text says what is wrong, and after a colon or semicolon what to do.
    pub fn failure(name: &'static str, error: &dyn std::error::Error) -> Check {
        let text = error.to_string();
        let text = text.strip_prefix("dpdk: ").unwrap_or(&text);
        let parts = text.split_once("; ").or_else(|| text.rsplit_once(": "));
        let (found, mend) = parts.unwrap_or((text, "see docs/dpdk.md"));
        Check::wrong(name, found, mend)
    }
}

/// Bytes of the longest packet of the protocol, with its headers.
pub fn longest_packet(ipv6: bool) -> usize {
    MAX_PACKET + if ipv6 { IPV6_UDP_HEADER_LEN } else { IPV4_UDP_HEADER_LEN }
}
