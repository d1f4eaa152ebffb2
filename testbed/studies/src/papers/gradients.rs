//! Gradients of real architectures, tensor by tensor, as `testbed/bench-torch/gradients.py` saves them: `index.json`, and for each model a folder
//! with a file for each worker and one with the sum of what was seen before.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};

/// The command that makes them.
pub const SCRIPT: &str = "testbed/bench-torch/gradients.py --out DIR";

/// A folder of gradients.
#[derive(Debug)]
pub struct Gradients {
    folder: PathBuf,
    /// The models.
    pub models: Vec<Model>,
}

/// A model in the index.
#[derive(Clone, Debug, Deserialize)]
pub struct Model {
    /// The name in figures.
    pub name: String,
    /// Its folder.
    folder: String,
    /// Workers, each with a gradient.
    workers: u8,
    tensors: Vec<Shape>,
}

#[derive(Clone, Debug, Deserialize)]
struct Shape {
    name: String,
    shape: Vec<usize>,
}

#[derive(Deserialize)]
struct Index {
    models: Vec<Model>,
}

/// A gradient whose tensors lie one after the other.
#[derive(Debug)]
pub struct Gradient {
    pub coordinates: Vec<f32>,
    /// Coordinates of each tensor.
    pub lengths: Vec<usize>,
}

impl Gradient {
    /// Its tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &[f32]> {
        let mut rest = &self.coordinates[..];
        self.lengths.iter().map(move |length| {
            let (tensor, others) = rest.split_at(*length);
            rest = others;
            tensor
        })
    }
}

impl Gradients {
    /// Reads the index.
    ///
    /// # Errors
    /// [`Error::Failure`] if it cannot be read, is none or names no model, or a model of no worker or tensor.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("index.json");
        let wrong = |reason: String| {
            Error::Failure(format!("{}: {reason} (make gradients with {SCRIPT})", path.display()))
        };
        let text = std::fs::read_to_string(&path).map_err(|source| wrong(source.to_string()))?;
        let Index { models } = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if models.is_empty() {
            return Err(wrong("it names no model".to_owned()));
        }
        for model in &models {
            if model.workers == 0 || model.tensors.is_empty() {
                return Err(wrong(format!("the model {:?} has no worker or no tensor", model.name)));
            }
            if let Some(empty) = model.tensors.iter().find(|tensor| tensor.length() == Some(0)) {
                return Err(wrong(format!("the tensor {:?} of {:?} is empty", empty.name, model.name)));
            }
        }
        Ok(Self { folder: folder.to_owned(), models })
    }

    /// The gradients of a model's workers.
    ///
    /// # Errors
    /// [`Error::File`] if a file cannot be read, [`Error::Failure`] if it is not as long as the index says or has a number that is not finite.
    pub fn workers(&self, model: &Model) -> Result<Vec<Gradient>> {
        (0..model.workers).map(|worker| self.read(model, &format!("worker-{worker}"))).collect()
    }

    /// The sum of the mean gradients of a model's last steps.
    ///
    /// # Errors
    /// The errors of [`Self::workers`].
    pub fn seen_gradient(&self, model: &Model) -> Result<Gradient> {
        self.read(model, "seen")
    }

    fn read(&self, model: &Model, name: &str) -> Result<Gradient> {
        let path = self.folder.join(&model.folder).join(format!("{name}.f32"));
        let bytes = std::fs::read(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        let wrong = |reason: String| Error::Failure(format!("{}: {reason}", path.display()));
        let lengths: Option<Vec<usize>> = model.tensors.iter().map(Shape::length).collect();
        let due = lengths.as_ref().and_then(|lengths| {
            lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length))?.checked_mul(4)
        });
        let Some(lengths) = lengths.filter(|_| due == Some(bytes.len())) else {
            let due = due.map_or("more than there can be".to_owned(), |due| due.to_string());
            return Err(wrong(format!(
                "it has {} bytes, but the tensors of the index take {due}",
                bytes.len()
            )));
        };
        let coordinates: Vec<f32> = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect();
        if coordinates.iter().any(|value| !value.is_finite()) {
            return Err(wrong("it has a NaN or an infinity".to_owned()));
        }
        Ok(Gradient { coordinates, lengths })
    }
}

impl Shape {
    fn length(&self) -> Option<usize> {
        self.shape.iter().try_fold(1_usize, |length, side| length.checked_mul(*side))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub mod tests {
    use super::*;

    /// Two tensors of a model with two workers.
    pub fn write(folder: &Path, values: impl Fn(usize, usize) -> f32) {
        std::fs::create_dir_all(folder.join("small")).unwrap();
        let index = r#"{"models": [{"name": "Small", "folder": "small", "workers": 2,
            "tensors": [{"name": "matrix", "shape": [64, 32]}, {"name": "bias", "shape": [40]}]}]}"#;
        std::fs::write(folder.join("index.json"), index).unwrap();
        for (number, name) in ["seen", "worker-0", "worker-1"].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..64 * 32 + 40).flat_map(|i| values(number, i).to_le_bytes()).collect();
            std::fs::write(folder.join(format!("small/{name}.f32")), bytes).unwrap();
        }
    }

    #[test]
    fn tensors_come_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), |file, i| file as f32 + i as f32 * 0.5);
        let gradients = Gradients::open(folder.path()).unwrap();
        let model = &gradients.models[0];
        let workers = gradients.workers(model).unwrap();
        assert_eq!(workers.len(), 2);
        let tensors: Vec<&[f32]> = workers[1].tensors().collect();
        assert_eq!((tensors.len(), tensors[0].len(), tensors[1].len()), (2, 2048, 40));
        assert_eq!((tensors[0][3], tensors[1][0]), (3.5, 1026.0));
        assert_eq!(gradients.seen_gradient(model).unwrap().coordinates[2], 1.0);
    }

    #[test]
    fn what_is_no_folder_of_gradients_is_one_clear_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let refused = || Gradients::open(path).map(|_| ()).unwrap_err().to_string();
        assert!(refused().contains("index.json") && refused().contains(SCRIPT));
        for (index, says) in [
            ("{", "EOF"),
            (r#"{"models": []}"#, "no model"),
            (r#"{"models": [{"name": "A", "folder": "a", "workers": 0, "tensors": []}]}"#, "no worker"),
            (
                r#"{"models": [{"name": "A", "folder": "a", "workers": 1, "tensors": [{"name": "b", "shape": [3, 0]}]}]}"#,
                "\"b\" of \"A\" is empty",
            ),
        ] {
            std::fs::write(path.join("index.json"), index).unwrap();
            assert!(refused().contains(says), "{index}: {}", refused());
        }
        write(path, |_, _| f32::NAN);
        let gradients = Gradients::open(path).unwrap();
        let read = || gradients.seen_gradient(&gradients.models[0]).map(|_| ()).unwrap_err().to_string();
        assert!(read().contains("seen.f32") && read().contains("NaN"), "{}", read());
        std::fs::write(path.join("small/seen.f32"), [0; 12]).unwrap();
        assert!(read().contains("12 bytes") && read().contains("8352"), "{}", read());
        std::fs::remove_file(path.join("small/seen.f32")).unwrap();
        assert!(matches!(gradients.seen_gradient(&gradients.models[0]), Err(Error::File { .. })));
    }
}
