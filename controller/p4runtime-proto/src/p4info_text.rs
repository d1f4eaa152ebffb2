//! P4Info in its text form.

use crate::config::P4Info;
use crate::p4info_error::P4InfoError;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::fmt::Display;

static DESCRIPTORS: &[u8] = include_bytes!("../generated/descriptors.bin");

fn text_error(error: impl Display) -> P4InfoError {
    P4InfoError::Text(error.to_string())
}

fn descriptor() -> Result<MessageDescriptor, P4InfoError> {
    let pool = DescriptorPool::decode(DESCRIPTORS).map_err(text_error)?;
    pool.get_message_by_name("p4.config.v1.P4Info").ok_or_else(|| text_error("its descriptor is missing"))
}

pub(crate) fn parse_text(text: &str) -> Result<P4Info, P4InfoError> {
    let message = DynamicMessage::parse_text_format(descriptor()?, text).map_err(text_error)?;
    message.transcode_to().map_err(text_error)
}

/// The text form, as p4c writes it.
///
/// # Errors
/// [`P4InfoError::Text`] if it cannot be described.
pub fn to_text(info: &P4Info) -> Result<String, P4InfoError> {
    let mut message = DynamicMessage::new(descriptor()?);
    message.transcode_from(info).map_err(text_error)?;
    Ok(message.to_text_format_with_options(&FormatOptions::new().pretty(true)))
}
