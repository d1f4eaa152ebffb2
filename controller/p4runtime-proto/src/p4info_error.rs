//! The errors of a P4Info.

/// An error in a P4Info.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum P4InfoError {
    /// It is text, but not a P4Info's.
    #[error("not a P4Info in text form: {0}")]
    Text(String),
    /// It is neither text nor a message.
    #[error("not a P4Info: neither its text form nor its binary form ({0})")]
    Binary(prost::DecodeError),
    /// It lacks what is looked for.
    #[error("the P4Info has no {kind} {name:?}; compile the program that belongs to this version (make p4)")]
    Missing { kind: &'static str, name: String },
    /// A value is wider than its field.
    #[error("{table}.{field} = {value}: the program has {bits} bits for it")]
    Narrow { table: String, field: String, value: u128, bits: i32 },
    /// A table asks for something that rows of this version do not have.
    #[error(
        "the P4Info's {table} has {field:?}, which this version does not know; compile the program that belongs to it (make p4)"
    )]
    Unknown { table: String, field: String },
}
