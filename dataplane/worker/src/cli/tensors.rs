//! Tensors in files: .npy, .safetensors, raw f32.

use anyhow::{Context, bail, ensure};
use npyz::WriterBuilder;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in the file; empty in formats that have none.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its coordinates in the file's order.
    pub data: Vec<f32>,
    /// Whether the file has the last axis outermost.
    fortran: bool,
}

/// How a file's name says what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Npy,
    Safetensors,
    Raw,
}

impl Format {
    fn of(path: &Path) -> Format {
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => Format::Npy,
            Some("safetensors") => Format::Safetensors,
            _ => Format::Raw,
        }
    }
}

/// Reads all tensors of a file, in the order of their names.
pub fn read(path: &Path) -> anyhow::Result<Vec<Tensor>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    decode(path, &bytes)
}

/// All tensors of a file with these contents, in the order of their names.
pub fn decode(path: &Path, bytes: &[u8]) -> anyhow::Result<Vec<Tensor>> {
    let shown = path.display();
    let tensors = match Format::of(path) {
        Format::Npy => vec![read_npy(bytes).with_context(|| format!("{shown} is no readable .npy file"))?],
        Format::Safetensors => {
            read_safetensors(bytes).with_context(|| format!("{shown} is no readable .safetensors file"))?
        }
        Format::Raw => {
            ensure!(
                bytes.len().is_multiple_of(4),
                "{shown} has {} bytes, which are no whole number of f32: is it cut short?",
                bytes.len()
            );
            let data = floats(bytes);
            vec![Tensor { name: String::new(), shape: vec![data.len()], data, fortran: false }]
        }
    };
    for tensor in &tensors {
        let name =
            if tensor.name.is_empty() { String::new() } else { format!(", tensor {:?},", tensor.name) };
        ensure!(!tensor.data.is_empty(), "{shown}{name} has no coordinates");
    }
    ensure!(!tensors.is_empty(), "{shown} has no tensors");
    Ok(tensors)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn read_npy(bytes: &[u8]) -> anyhow::Result<Tensor> {
    let file = npyz::NpyFile::new(bytes)?;
    let shape: Vec<usize> = file.shape().iter().map(|&n| n as usize).collect();
    let wanted = shape.iter().try_fold(4usize, |n, &d| n.checked_mul(d)).context("its shape overflows")?;
    ensure!(wanted <= bytes.len(), "its header promises {wanted} bytes of coordinates: is it cut short?");
    let fortran = file.order() == npyz::Order::Fortran;
    let dtype = file.dtype().descr();
    let data = match file.data::<f32>() {
        Ok(data) => data.collect::<Result<Vec<f32>, _>>().context("is it cut short?")?,
        Err(_) => bail!("its coordinates are {dtype}, not 32-bit floats: convert it with .astype('float32')"),
    };
    Ok(Tensor { name: String::new(), shape, data, fortran })
}

fn read_safetensors(bytes: &[u8]) -> anyhow::Result<Vec<Tensor>> {
    let file = SafeTensors::deserialize(bytes)?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        if view.dtype() != Dtype::F32 {
            bail!("tensor {name:?} has {:?} coordinates, not F32: convert it first", view.dtype());
        }
        let shape = view.shape().to_vec();
        tensors.push(Tensor { name, shape, data: floats(view.data()), fortran: false });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// Writes tensors in the format that the file's name says.
pub fn write(path: &Path, tensors: &[Tensor]) -> anyhow::Result<()> {
    let shown = path.display();
    match (Format::of(path), tensors) {
        (Format::Npy, [tensor]) => write_npy(path, tensor),
        (Format::Raw, [tensor]) => std::fs::write(path, bytes(&tensor.data)).map_err(Into::into),
        (Format::Safetensors, _) => write_safetensors(path, tensors),
        _ => bail!("{} tensors do not fit into one file of this format: name it .safetensors", tensors.len()),
    }
    .with_context(|| format!("cannot write {shown}"))
}

fn bytes(data: &[f32]) -> Vec<u8> {
    data.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn write_npy(path: &Path, tensor: &Tensor) -> anyhow::Result<()> {
    let shape: Vec<u64> = tensor.shape.iter().map(|&n| n as u64).collect();
    let order = if tensor.fortran { npyz::Order::Fortran } else { npyz::Order::C };
    let out = BufWriter::new(File::create(path)?);
    let mut writer =
        npyz::WriteOptions::new().default_dtype().shape(&shape).order(order).writer(out).begin_nd()?;
    writer.extend(&tensor.data)?;
    writer.finish()?;
    Ok(())
}

fn write_safetensors(path: &Path, tensors: &[Tensor]) -> anyhow::Result<()> {
    let data: Vec<Vec<u8>> = tensors.iter().map(|t| bytes(&t.data)).collect();
    let mut views = Vec::new();
    for (tensor, bytes) in tensors.iter().zip(&data) {
        let name = if tensor.name.is_empty() { "tensor" } else { &tensor.name };
        views.push((name, TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)?));
    }
    safetensors::serialize_to_file(views, None, path)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tensor(name: &str) -> Tensor {
        Tensor {
            name: name.into(),
            shape: vec![2, 3],
            data: vec![1.0, -2.5, 3.0, 0.0, 1e-9, 7.0],
            fortran: false,
        }
    }

    #[test]
    fn formats_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        for fortran in [false, true] {
            let path = dir.path().join("a.npy");
            let written = Tensor { fortran, ..tensor("") };
            write(&path, std::slice::from_ref(&written)).unwrap();
            assert_eq!(read(&path).unwrap(), [written]);
        }
        let path = dir.path().join("a.safetensors");
        write(&path, &[tensor("a"), tensor("b")]).unwrap();
        assert_eq!(read(&path).unwrap(), [tensor("a"), tensor("b")]);
        let path = dir.path().join("a.f32");
        write(&path, &[tensor("")]).unwrap();
        assert_eq!(read(&path).unwrap()[0].data, tensor("").data);
    }

    #[test]
    fn broken_files_are_named_with_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write(&path, &[tensor("")]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 5, 60, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains("a.npy"), "{error}");
        }
        let path = dir.path().join("a.safetensors");
        write(&path, &[tensor("a")]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 2]).unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("a.safetensors"));
        let path = dir.path().join("a.f32");
        std::fs::write(&path, [1, 2, 3]).unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("cut short"));
        std::fs::write(&path, []).unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("no coordinates"));
    }

    #[test]
    fn other_types_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        npyz::to_file_1d(&path, vec![1.0f64, 2.0]).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("float32"), "{error}");
    }
}
