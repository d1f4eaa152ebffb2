//! Tensors of f32 in files: NumPy's .npy, or raw little-endian f32 under any other name.

use anyhow::{Context, ensure};
use std::io::Write;
use std::path::Path;

/// The beginning of a .npy file of version 1, which NumPy writes; the length of the header follows in two bytes.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// Coordinates that are written at a time.
const CHUNK: usize = 1 << 16;

/// The tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The lengths of its axes as .npy has them, such as `2, 3`.
    pub shape: String,
    /// Its coordinates in the order of the file.
    pub data: Vec<f32>,
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npy")
}

/// Memory for so many coordinates.
pub fn room(coordinates: usize) -> anyhow::Result<Vec<f32>> {
    let mut data = Vec::new();
    reserve(&mut data, coordinates)?;
    Ok(data)
}

/// Makes room for so many coordinates in all.
pub fn reserve(data: &mut Vec<f32>, coordinates: usize) -> anyhow::Result<()> {
    let more = coordinates.saturating_sub(data.len());
    data.try_reserve_exact(more).map_err(|_| {
        anyhow::anyhow!("there is no memory for {coordinates} coordinates: reduce fewer at a time")
    })
}

/// Reads the tensor of a file.
pub fn read(path: &Path) -> anyhow::Result<Tensor> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    decode(path, &bytes)
}

/// The tensor of a file with these contents.
pub fn decode(path: &Path, bytes: &[u8]) -> anyhow::Result<Tensor> {
    let shown = path.display();
    let (shape, bytes) = match is_npy(path) {
        true => read_header(bytes).with_context(|| format!("{shown} is not a usable .npy file"))?,
        false => (format!("{},", bytes.len() / 4), bytes),
    };
    let length = bytes.len();
    ensure!(
        length.is_multiple_of(4),
        "{shown} has {length} bytes of coordinates, which is not a whole number of f32: is it cut short?"
    );
    ensure!(length > 0, "{shown} has no coordinates");
    let mut data = room(length / 4)?;
    data.extend(
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
    );
    Ok(Tensor { shape, data })
}

/// The shape in the header of a .npy file, and the bytes of its coordinates.
fn read_header(bytes: &[u8]) -> anyhow::Result<(String, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC).context("it does not begin as a .npy file of version 1")?;
    let header = rest.split_at_checked(2).and_then(|(length, rest)| {
        rest.split_at_checked(usize::from(u16::from_le_bytes([length[0], length[1]])))
    });
    let (header, data) = header.context("its header is cut short")?;
    let header = std::str::from_utf8(header)?;
    let value = |key: &str, end: &[char]| {
        let (_, after) = header.split_once(&format!("'{key}':"))?;
        Some(after.trim_start().split(end).next()?.trim())
    };
    let number = value("descr", &[',']).unwrap_or("unknown");
    ensure!(number == "'<f4'", "its coordinates are {number}: convert it with .astype('<f4')");
    let order = value("fortran_order", &[',']).unwrap_or("unknown");
    ensure!(order == "False", "its fortran_order is {order}: convert it with numpy.ascontiguousarray");
    let shape =
        value("shape", &[')']).and_then(|shape| shape.strip_prefix('(')).context("it has no shape")?;
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    let size =
        axes.map(|axis| axis.parse::<usize>().ok()).try_fold(4usize, |size, axis| size.checked_mul(axis?));
    let there = data.len();
    ensure!(
        size == Some(there),
        "its shape ({shape}) does not fit the {there} bytes of its coordinates: is it cut short, or was something appended?"
    );
    Ok((shape.to_owned(), data))
}

/// Writes a tensor in the format of the path's name.
pub fn write(path: &Path, out: &mut impl Write, Tensor { shape, data }: &Tensor) -> anyhow::Result<()> {
    if is_npy(path) {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
        // The magic bytes and the length take 10 bytes; the data begins at a multiple of 64.
        let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
        out.write_all(MAGIC)?;
        out.write_all(&u16::try_from(length)?.to_le_bytes())?;
        writeln!(out, "{text:0$}", length - 1)?;
    }
    for chunk in data.chunks(CHUNK) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn formats_round_trip() {
        let data = vec![1.0, -2.5, 3.0, 0.0, 1e-9, 7.0];
        for (name, shape) in [("a.npy", "2, 3"), ("a.npy", "6,"), ("a.f32", "6,")] {
            let tensor = Tensor { shape: shape.to_owned(), data: data.clone() };
            let mut bytes = Vec::new();
            write(Path::new(name), &mut bytes, &tensor).unwrap();
            assert_eq!(decode(Path::new(name), &bytes).unwrap(), tensor);
        }
        let scalar = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", &9f32.to_le_bytes());
        assert_eq!(decode(Path::new("a.npy"), &scalar).unwrap().data, [9.0]);
    }

    #[test]
    fn unusable_files_are_one_line_that_names_the_file() {
        let header = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
        };
        let whole = npy(&header("'<f4'", "False", "(2,)"), &[0; 8]);
        for (name, bytes, says) in [
            ("a.f32", vec![0; 6], "not a whole number of f32"),
            ("a.f32", vec![], "has no coordinates"),
            ("a.npy", b"hello".to_vec(), "does not begin as a .npy file"),
            ("a.npy", whole[..30].to_vec(), "its header is cut short"),
            ("a.npy", whole[..whole.len() - 1].to_vec(), "does not fit the 7 bytes"),
            ("a.npy", npy(&header("'>f4'", "False", "(2,)"), &[0; 8]), "convert it with .astype('<f4')"),
            ("a.npy", npy(&header("[('x', '<f4')]", "False", "(2,)"), &[0; 8]), "convert it with .astype"),
            ("a.npy", npy(&header("'<f4'", "True", "(2, 1)"), &[0; 8]), "numpy.ascontiguousarray"),
            (
                "a.npy",
                npy(&header("'<f4'", "False", "(4294967296, 4294967296)"), &[]),
                "does not fit the 0 bytes",
            ),
            ("a.npy", npy(&header("'<f4'", "False", "(-1,)"), &[0; 8]), "does not fit the 8 bytes"),
            ("a.npy", npy("{'descr': '<f4', 'fortran_order': False, }", &[0; 8]), "it has no shape"),
            ("a.npy", npy(&header("'<f4'", "False", "(0,)"), &[]), "has no coordinates"),
        ] {
            let error = format!("{:#}", decode(Path::new(name), &bytes).unwrap_err());
            assert!(error.contains(says) && error.contains(name), "{says}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
