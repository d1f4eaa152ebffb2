//! Files in TOML: reading, and errors that name the line.

use serde::de::DeserializeOwned;
use std::fmt;

/// An error in a TOML text. The message shows no more of the text than a key, since a value may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Counted from 1.
    line: usize,
    key: Option<String>,
    message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        self.key.iter().try_for_each(|key| write!(f, "{key}: "))?;
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// Reads TOML.
///
/// # Errors
/// The text is not TOML, has an unknown key, or has a value of the wrong type.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, SyntaxError> {
    toml::from_str(text).map_err(|error| syntax_error(text, &error))
}

fn syntax_error(text: &str, error: &toml::de::Error) -> SyntaxError {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let at = text.get(..at).map_or(0, |before| before.matches('\n').count());
    let mut message = error.message().replace('\n', " ");
    // The place of an unknown key can be that of its section, which the key's line follows.
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    let line = unknown.and_then(|key| {
        text.lines().skip(at).position(|line| key_of(line) == Some(key)).map(|after| at + after)
    });
    let line = line.unwrap_or(at);
    let content = text.lines().nth(line).unwrap_or_default();
    let value = content.split_once('=').map_or("", |(_, value)| value.trim_start());
    if error.span().is_some() && message.starts_with("invalid") && value.starts_with(char::is_alphanumeric) {
        message += " (a text needs quotes)";
    }
    SyntaxError { line: line + 1, key: key_of(content).map(str::to_owned), message }
}

/// The key that a line of TOML sets, if it sets one. Never more of the line: it may hold a secret.
fn key_of(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!key.is_empty() && key.chars().all(plain)).then_some(key)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_line_and_key() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[derive(Default)]
        struct Options {
            listen: String,
            workers: u64,
        }
        for (text, says) in [
            ("workers = 1\nlisten = 127.0.0.1:9000", "line 2: listen: "),
            ("listen = 127.0.0.1:9000", "(a text needs quotes)"),
            ("listen = localhost", "must be quoted"),
            ("\nwrokers = 4", "line 2: wrokers: unknown field `wrokers`, expected `listen` or `workers`"),
            ("workers = \"four\"", "line 1: workers: invalid type"),
            ("workers = 4 secret", "line 1: workers: "),
        ] {
            let error = parse::<Options>(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{text}: {error}");
        }
        let read: Options = parse("listen = \"a\"\nworkers = 3").unwrap();
        assert_eq!((read.listen.as_str(), read.workers), ("a", 3));
    }
}
