//! Measurements of a model's layers: gradients in an `.npz` file, or a profile in TOML or JSON.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use npyz::{DType, NpyFile, TypeChar};
use serde::Deserialize;

use crate::error::{Error, Result};

/// A model's layers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The names of the choices, if layers have costs and errors of their own.
    #[serde(default)]
    pub choices: Vec<String>,
    /// The layers.
    #[serde(rename = "layer")]
    pub layers: Vec<Layer>,
}

/// One layer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// The layer's name.
    pub name: String,
    /// The number of its coordinates.
    pub size: usize,
    /// The L2 norm of its gradient, from which THC's errors follow.
    pub norm: Option<f64>,
    /// For other compressors, the cost of each choice, in bytes or seconds.
    pub costs: Option<Vec<f64>>,
    /// For other compressors, the error of each choice, as a squared L2 norm.
    pub errors: Option<Vec<f64>>,
}

impl Profile {
    /// Reads a file of one of the three kinds, which the extension of its name tells apart.
    ///
    /// # Errors
    /// [`Error::Profile`] for unusable contents, [`Error::File`] for a file that cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |reason: String| Error::Profile { path: path.to_owned(), reason };
        let failed = |source| Error::File { path: path.to_owned(), source };
        let profile: Self = match path.extension().and_then(|kind| kind.to_str()) {
            Some("npz") => Self { choices: Vec::new(), layers: gradients(path)? },
            Some("toml") => {
                let text = std::fs::read_to_string(path).map_err(failed)?;
                toml::from_str(&text).map_err(|error| {
                    let at = error.span().map_or(0, |span| span.start.min(text.len()));
                    let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
                    wrong(format!("line {line}: {}", error.message()))
                })?
            }
            Some("json") => {
                let text = std::fs::read_to_string(path).map_err(failed)?;
                serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
            }
            _ => return Err(wrong("give gradients as .npz, or a profile as .toml or .json".to_owned())),
        };
        if profile.layers.is_empty() {
            return Err(wrong("it has no layers".to_owned()));
        }
        for layer in &profile.layers {
            let whole = layer.costs.is_some() && layer.errors.is_some();
            let bare = layer.costs.is_none() && layer.errors.is_none();
            let ok = if profile.choices.is_empty() { bare && layer.norm.is_some() } else { whole };
            if !ok {
                let needs = if profile.choices.is_empty() {
                    "its norm, and no costs or errors (name the choices for those: choices = [\"rank 1\", …])"
                } else {
                    "costs and errors, one of each choice"
                };
                return Err(wrong(format!("layer {:?} needs {needs}", layer.name)));
            }
            if let Some(norm) = layer.norm.filter(|norm| !norm.is_finite() || *norm < 0.0) {
                return Err(wrong(format!("layer {:?} has a norm of {norm}", layer.name)));
            }
        }
        Ok(profile)
    }
}

/// Reads a layer for each array of an `.npz` file, as `numpy.savez` and `numpy.savez_compressed` write it.
fn gradients(path: &Path) -> Result<Vec<Layer>> {
    let wrong = |reason: String| Error::Profile { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let mut archive = zip::ZipArchive::new(BufReader::new(file))
        .map_err(|error| wrong(format!("no .npz file: {error}")))?;
    let mut layers = Vec::new();
    for at in 0..archive.len() {
        let member = archive.by_index(at).map_err(|error| wrong(error.to_string()))?;
        let name = member.name().map_err(|error| wrong(error.to_string()))?.into_owned();
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        let (size, square) = square(member).map_err(|reason| wrong(format!("array {name:?}: {reason}")))?;
        layers.push(Layer { name, size, norm: Some(square.sqrt()), costs: None, errors: None });
    }
    Ok(layers)
}

/// The number of coordinates and the squared norm of an array.
fn square(member: impl Read) -> std::result::Result<(usize, f64), String> {
    let array = NpyFile::new(BufReader::new(member)).map_err(|error| error.to_string())?;
    let width = match array.dtype() {
        DType::Plain(kind) if kind.type_char() == TypeChar::Float => kind.size_field(),
        _ => 0,
    };
    fn sum<T: npyz::Deserialize + Into<f64>>(
        array: NpyFile<impl Read>,
    ) -> std::result::Result<(usize, f64), String> {
        let (mut size, mut square) = (0, 0.0);
        for value in array.data::<T>().map_err(|error| error.to_string())? {
            let value: f64 = value.map_err(|error| error.to_string())?.into();
            size += 1;
            square += value * value;
        }
        if square.is_finite() { Ok((size, square)) } else { Err("it has a NaN or an infinity".to_owned()) }
    }
    match width {
        4 => sum::<f32>(array),
        8 => sum::<f64>(array),
        _ => Err("its type is neither f32 nor f64".to_owned()),
    }
}
