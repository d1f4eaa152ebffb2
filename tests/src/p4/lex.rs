//! Tokens of P4.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Word(String),
    /// `8w3`, `32s0` or `3`: bits if they are said, whether it has a sign, and its value.
    Number(Option<u32>, bool, u64),
    Text(String),
    /// An operator or a bracket. `>` is always alone: two of them end a type or shift.
    Sign(&'static str),
}

/// The longest first.
const SIGNS: [&str; 36] = [
    "|-|", "|+|", "&&&", "<<", "==", "!=", "<=", ">=", "&&", "||", "++", "{", "}", "(", ")", "[", "]", "<",
    ">", ";", ":", ",", ".", "=", "+", "-", "*", "/", "&", "|", "^", "~", "!", "@", "?", "%",
];

/// All tokens of a text, with the line of each.
///
/// # Panics
/// If it is none of P4's.
#[must_use]
pub fn tokens(text: &str) -> Vec<(Token, usize)> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#')) {
        let mut rest = text.trim_start();
        while !rest.is_empty() && !rest.starts_with("//") {
            let (token, len) = next(rest).unwrap_or_else(|| panic!("line {line}: no token: {rest}"));
            found.push((token, line));
            rest = rest[len..].trim_start();
        }
    }
    found
}

fn next(text: &str) -> Option<(Token, usize)> {
    let first = text.chars().next()?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(quoted) = text.strip_prefix('"') {
        let end = quoted.find('"')?;
        return Some((Token::Text(quoted[..end].to_owned()), end + 2));
    }
    if word(first) {
        let len = text.find(|c| !word(c)).unwrap_or(text.len());
        let token =
            if first.is_ascii_digit() { number(&text[..len])? } else { Token::Word(text[..len].to_owned()) };
        return Some((token, len));
    }
    let sign = SIGNS.into_iter().find(|sign| text.starts_with(sign))?;
    Some((Token::Sign(sign), sign.len()))
}

fn number(text: &str) -> Option<Token> {
    let (bits, signed, digits) = match text.find(['w', 's']) {
        Some(at) => (Some(text[..at].parse().ok()?), &text[at..=at] == "s", &text[at + 1..]),
        None => (None, false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(Token::Number(bits, signed, value))
}
