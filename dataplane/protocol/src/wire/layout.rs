//! Packets as tables of fields: one declaration gives a struct, its length, and how it is read and written.

use crate::{Cookie, JobId, Rank, Round, SlotId, TableId, WorkerId};

/// A value at a fixed place of a packet, big endian.
pub(super) trait Value: Sized {
    /// Reads the value at the beginning of `from`; `None` if no packet has it there.
    fn read(from: &[u8]) -> Option<Self>;
    /// Writes the value to the beginning of `to`, which is long enough.
    fn write(&self, to: &mut [u8]);
}

macro_rules! integers {
    ($($integer:ident),*) => {$(
        impl Value for $integer {
            #[inline]
            fn read(from: &[u8]) -> Option<$integer> {
                from.first_chunk().map(|bytes| $integer::from_be_bytes(*bytes))
            }

            #[inline]
            fn write(&self, to: &mut [u8]) {
                to[..size_of::<$integer>()].copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

macro_rules! newtypes {
    ($($name:ident),*) => {$(
        impl Value for $name {
            #[inline]
            fn read(from: &[u8]) -> Option<$name> {
                Value::read(from).map($name)
            }

            #[inline]
            fn write(&self, to: &mut [u8]) {
                self.0.write(to);
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, f64);
newtypes!(Cookie, JobId, Rank, Round, SlotId, TableId, WorkerId);

impl<const N: usize> Value for [u8; N] {
    fn read(from: &[u8]) -> Option<[u8; N]> {
        from.first_chunk().copied()
    }

    fn write(&self, to: &mut [u8]) {
        to[..N].copy_from_slice(self);
    }
}

/// Four bytes: 1 or something else.
impl Value for bool {
    fn read(from: &[u8]) -> Option<bool> {
        u32::read(from).map(|word| word == 1)
    }

    fn write(&self, to: &mut [u8]) {
        u32::from(*self).write(to);
    }
}

/// Declares a payload: the offset, name and type of each field. Bytes that belong to no field are zero, and are not read.
macro_rules! payload {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident[$length:ident = $bytes:literal] {
            $($(#[$field_meta:meta])* $offset:literal $field:ident: $type:ty,)*
        }
    ) => {
        /// Length in bytes.
        $visibility const $length: usize = $bytes;

        $(#[$meta])*
        $visibility struct $name { $($(#[$field_meta])* $visibility $field: $type),* }

        impl $crate::wire::layout::Value for $name {
            #[inline]
            fn read(from: &[u8]) -> Option<$name> {
                let from = from.first_chunk::<$length>()?;
                Some($name { $($field: $crate::wire::layout::Value::read(&from[$offset..])?),* })
            }

            #[inline]
            fn write(&self, to: &mut [u8]) {
                $($crate::wire::layout::Value::write(&self.$field, &mut to[$offset..]);)*
            }
        }

        impl $name {
            /// Reads a payload; `None` if it has another length, or a value that it cannot have.
            #[inline]
            pub fn parse(payload: &[u8]) -> Option<$name> {
                if payload.len() == $length { $crate::wire::layout::Value::read(payload) } else { None }
            }

            /// The payload.
            #[inline]
            pub fn to_bytes(&self) -> [u8; $length] {
                let mut bytes = [0; $length];
                $crate::wire::layout::Value::write(self, &mut bytes);
                bytes
            }
        }
    };
}

/// Declares an enum whose variants have a byte each.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $byte:literal,)* }
    ) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $name { $($(#[$variant_meta])* $variant = $byte),* }

        impl $name {
            /// The variant of a byte.
            pub const fn from_byte(byte: u8) -> Option<$name> {
                match byte { $($byte => Some($name::$variant),)* _ => None }
            }
        }
    };
}

pub(super) use {codes, payload};
