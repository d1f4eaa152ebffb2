//! Files of tensors: read or refused, and never larger than the file.

use crate::tensors::{Tensor, decode};
use std::path::Path;

/// `.npy`.
pub fn npy(data: &[u8]) {
    if let Some(tensors) = read("in.npy", data) {
        assert_eq!(tensors.len(), 1);
    }
}

/// `.safetensors`.
pub fn safetensors(data: &[u8]) {
    if let Some(tensors) = read("in.safetensors", data) {
        assert!(tensors.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}

fn read(name: &str, data: &[u8]) -> Option<Vec<Tensor>> {
    let tensors = match decode(Path::new(name), data) {
        Ok(tensors) => tensors,
        Err(error) => {
            assert!(format!("{error:#}").contains(name));
            return None;
        }
    };
    let coordinates: usize = tensors.iter().map(|tensor| tensor.data.len()).sum();
    assert!(coordinates * 2 <= data.len());
    for tensor in &tensors {
        assert_eq!(tensor.shape.iter().product::<usize>(), tensor.data.len());
    }
    Some(tensors)
}
