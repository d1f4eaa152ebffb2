//! Values that are read from text and from a number.

use serde::de::{Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// A type that is read from text, and from a number in a file as from that number's text.
pub trait Textual: FromStr<Err = String> {
    /// A description of the values.
    const EXPECTED: &'static str;
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Textual> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
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

/// Reads a value from text or from a number.
///
/// # Errors
/// The error of the value's `FromStr`.
pub fn deserialize<'de, T: Textual, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(TextVisitor(PhantomData))
}

/// Makes a type [`Textual`], and serde read and write it: `$expected` is what a value looks like, and `$text`
/// a function that writes one.
macro_rules! textual {
    ($name:ident, $expected:literal, $text:expr) => {
        impl $crate::values::Textual for $name {
            const EXPECTED: &'static str = $expected;
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let text: fn(&$name) -> String = $text;
                to.serialize_str(&text(self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::values::deserialize(from)
            }
        }
    };
}
pub(crate) use textual;
