//! Files of tensors: read or refused, and never larger than the file.

use crate::tensors::decode;
use std::path::Path;

/// `.npy`.
pub fn npy(data: &[u8]) {
    match decode(Path::new("in.npy"), data) {
        Ok(tensor) => assert!(tensor.data.len() * 4 <= data.len()),
        Err(error) => assert!(format!("{error:#}").contains("in.npy")),
    }
}
