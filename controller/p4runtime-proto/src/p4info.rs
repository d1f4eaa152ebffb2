//! Reading P4Info, and finding things in it by name.

use crate::config::{Action, Counter, P4Info, Register, Table};
pub use crate::p4info_error::P4InfoError;
#[cfg(feature = "text")]
use crate::p4info_text::parse_text;
#[cfg(feature = "text")]
pub use crate::p4info_text::to_text;
use prost::Message;

/// Reads a P4Info in text or in binary form.
///
/// # Errors
/// [`P4InfoError::Text`] or [`P4InfoError::Binary`].
pub fn parse(contents: &[u8]) -> Result<P4Info, P4InfoError> {
    // A message's first byte is the tag of a field with a length; for P4Info's fields that is a control
    // character or '*' and above, and a NUL or another control character follows soon. Text has none.
    let text = std::str::from_utf8(contents)
        .ok()
        .filter(|text| !text.chars().any(|c| c.is_control() && !c.is_whitespace()));
    match text {
        Some(text) => parse_text(text),
        None => P4Info::decode(contents).map_err(P4InfoError::Binary),
    }
}

#[cfg(not(feature = "text"))]
fn parse_text(_: &str) -> Result<P4Info, P4InfoError> {
    Err(P4InfoError::Text("this build reads the binary form alone: it lacks the feature `text`".to_owned()))
}

macro_rules! finders {
    ($($(#[$doc:meta])* $find:ident, $field:ident, $type:ty, $kind:literal;)*) => {
        impl P4Info {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`P4InfoError::Missing`].
                pub fn $find(&self, name: &str) -> Result<&$type, P4InfoError> {
                    self.$field
                        .iter()
                        .find(|object| object.preamble.as_ref().is_some_and(|p| p.name == name || p.alias == name))
                        .ok_or_else(|| P4InfoError::Missing { kind: $kind, name: name.to_owned() })
                }
            )*
        }
    };
}

finders! {
    /// The table of this name or alias.
    table, tables, Table, "table";
    /// The action of this name or alias.
    action, actions, Action, "action";
    /// The counter of this name or alias.
    counter, counters, Counter, "counter";
    /// The register of this name or alias.
    register, registers, Register, "register";
}

macro_rules! ids {
    ($($type:ty),*) => {
        $(impl $type {
            /// Its number; 0, which no object has, if the P4Info gives none.
            #[must_use]
            pub fn id(&self) -> u32 {
                self.preamble.as_ref().map_or(0, |preamble| preamble.id)
            }

            /// Its name; empty if the P4Info gives none.
            #[must_use]
            pub fn name(&self) -> &str {
                self.preamble.as_ref().map_or("", |preamble| &preamble.name)
            }
        })*
    };
}

ids!(Table, Action, Counter, Register);

impl Table {
    /// The text of its annotation `@name("text")`, if it has one.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        let all = &self.preamble.as_ref()?.annotations;
        all.iter().find_map(|annotation| text_of(annotation, name))
    }

    /// Gives it the annotation `@name("text")`, in place of one of that name.
    pub fn annotate(&mut self, name: &str, text: &str) {
        let all = &mut self.preamble.get_or_insert_default().annotations;
        all.retain(|annotation| text_of(annotation, name).is_none());
        all.push(format!("@{name}(\"{text}\")"));
    }
}

fn text_of<'a>(annotation: &'a str, name: &str) -> Option<&'a str> {
    annotation.strip_prefix('@')?.strip_prefix(name)?.strip_prefix("(\"")?.strip_suffix("\")")
}

#[cfg(all(test, feature = "text"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../p4/build/thc.p4info.txtpb");

    #[test]
    fn annotations_are_read_and_replaced() {
        let mut table = parse(TEXT.as_bytes()).unwrap().table("lookup").unwrap().clone();
        assert!(table.annotation("forms").unwrap().contains("4/8"));
        assert_eq!((table.annotation("form"), table.annotation("other")), (None, None));
        table.annotate("forms", "1/2");
        table.annotate("other", "x");
        assert_eq!((table.annotation("forms"), table.annotation("other")), (Some("1/2"), Some("x")));
    }

    #[test]
    fn text_and_binary_form_say_the_same() {
        let info = parse(TEXT.as_bytes()).unwrap();
        assert_eq!(parse(&info.encode_to_vec()).unwrap(), info);
        assert_eq!(parse(to_text(&info).unwrap().as_bytes()).unwrap(), info);
        assert_eq!(info.pkg_info.as_ref().unwrap().arch, "v1model");
    }

    #[test]
    fn things_are_found_by_name() {
        let info = parse(TEXT.as_bytes()).unwrap();
        let jobs = info.table("jobs").unwrap();
        assert_eq!((jobs.name(), jobs.id() >> 24), ("jobs", 2));
        assert_eq!(jobs.match_fields[0].bitwidth, 16);
        assert_eq!(info.action("set_job").unwrap().id() >> 24, 1);
        assert_eq!(info.counter("drops").unwrap().id() >> 24, 0x12);
        assert_eq!(info.register("norm.state.seen").unwrap().id() >> 24, 0x16);
        let error = info.table("joobs").unwrap_err().to_string();
        assert!(error.contains("table \"joobs\""), "{error}");
    }

    #[test]
    fn what_is_no_p4info_is_refused() {
        let error = parse(b"tables { preamble { id: 1 nme: \"x\" } }").unwrap_err().to_string();
        assert!(error.contains("nme"), "{error}");
        assert!(parse(b"\x0a\xff\x00\x01").unwrap_err().to_string().contains("not a P4Info"));
        // An empty one is one.
        assert_eq!(parse(b"").unwrap(), P4Info::default());
    }
}
