//! Values that are read from text and from a number.

use serde::de::{Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

struct TextVisitor<T> {
    expected: &'static str,
    value: PhantomData<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

/// Reads a value from text, or from a number as from that number's text. `expected` describes the values.
pub(crate) fn deserialize<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
    from: D,
    expected: &'static str,
) -> Result<T, D::Error> {
    from.deserialize_any(TextVisitor { expected, value: PhantomData })
}

/// Has serde read a type from text or a number, and write it as text: `$expected` describes the values, and `$text` is a
/// function that writes one.
macro_rules! textual {
    ($name:ident, $expected:literal, $text:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let text: fn(&$name) -> String = $text;
                to.serialize_str(&text(self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::values::deserialize(from, $expected)
            }
        }
    };
}
pub(crate) use textual;
