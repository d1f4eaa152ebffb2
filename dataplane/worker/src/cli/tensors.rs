//! Tensors in files: NumPy's .npy, and raw f32.

use anyhow::{Context, bail, ensure};
use std::io::Write;
use std::path::Path;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its coordinates, the last axis innermost.
    pub data: Vec<f32>,
}

/// The format of a file, which its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// NumPy's.
    Npy,
    /// Little-endian f32 alone.
    Raw,
}

impl FileFormat {
    /// The format of a file of this name.
    pub fn from_path(path: &Path) -> FileFormat {
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => FileFormat::Npy,
            _ => FileFormat::Raw,
        }
    }
}

/// Memory for `coordinates` coordinates.
pub fn room(coordinates: usize) -> anyhow::Result<Vec<f32>> {
    let mut data = Vec::new();
    reserve(&mut data, coordinates)?;
    Ok(data)
}

/// Makes room for `coordinates` coordinates in all.
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
    let tensor = match FileFormat::from_path(path) {
        FileFormat::Npy => read_npy(bytes).with_context(|| format!("{shown} is not a usable .npy file"))?,
        FileFormat::Raw => {
            ensure!(
                bytes.len().is_multiple_of(4),
                "{shown} has {} bytes, which is not a whole number of f32: is it cut short?",
                bytes.len()
            );
            let data = floats(bytes)?;
            Tensor { shape: vec![data.len()], data }
        }
    };
    ensure!(!tensor.data.is_empty(), "{shown} has no coordinates");
    Ok(tensor)
}

fn floats(bytes: &[u8]) -> anyhow::Result<Vec<f32>> {
    let mut data = room(bytes.len() / 4)?;
    data.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    Ok(data)
}

/// What stands before the header's text: eight bytes of magic and version, and its length.
const MAGIC: &[u8] = b"\x93NUMPY";

fn read_npy(bytes: &[u8]) -> anyhow::Result<Tensor> {
    let (length, first) = match bytes {
        [_, _, _, _, _, _, 1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 10),
        [_, _, _, _, _, _, 2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
        _ => bail!("it does not begin as .npy files of version 1 to 3 do"),
    };
    ensure!(bytes.starts_with(MAGIC), "it does not begin as .npy files do");
    let header = bytes.get(first..first + length).and_then(|text| std::str::from_utf8(text).ok());
    let header = header.context("its header is cut short, or no text")?;
    let dtype = value(header, "descr")?.split(',').next().unwrap_or_default();
    ensure!(
        dtype == "'<f4'",
        "its coordinates are {dtype}, not little-endian 32-bit floats ('<f4'): convert it with .astype('<f4')"
    );
    ensure!(
        value(header, "fortran_order")?.starts_with("False"),
        "it has the first axis innermost: convert it with numpy.ascontiguousarray"
    );
    let shape = value(header, "shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let numbers = shape.context("its shape has no parentheses")?.0.split(',').map(str::trim);
    let shape: Vec<usize> = numbers
        .filter(|number| !number.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("its shape has something other than numbers")?;
    let wanted = shape.iter().try_fold(4usize, |n, &d| n.checked_mul(d));
    let wanted = wanted.with_context(|| format!("its shape {shape:?} is more than memory can hold"))?;
    let rest = &bytes[first + length..];
    let Some(present) = rest.get(..wanted) else {
        bail!("its shape {shape:?} takes {wanted} bytes, of which it has {}: is it cut short?", rest.len());
    };
    Ok(Tensor { data: floats(present)?, shape })
}

/// The text of a header from a key's value on. NumPy writes the header as a dictionary of Python.
fn value<'a>(header: &'a str, key: &str) -> anyhow::Result<&'a str> {
    let named = header.split_once(&format!("'{key}':"));
    Ok(named.with_context(|| format!("its header has no {key}"))?.1.trim_start())
}

/// Writes a tensor in a format.
pub fn write(format: FileFormat, out: &mut impl Write, tensor: &Tensor) -> anyhow::Result<()> {
    if format == FileFormat::Npy {
        let shape: String = tensor.shape.iter().map(|length| format!("{length}, ")).collect();
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
        // The data begins at a multiple of 64 bytes.
        let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
        let prefix = u16::try_from(length).context("its shape has too many axes")?.to_le_bytes();
        out.write_all(&[MAGIC, &[1, 0], &prefix].concat())?;
        writeln!(out, "{header:<width$}", width = length - 1)?;
    }
    Ok(tensor.data.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn encode(name: &str, tensor: &Tensor) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(FileFormat::from_path(Path::new(name)), &mut bytes, tensor).unwrap();
        bytes
    }

    fn tensor(shape: &[usize]) -> Tensor {
        let length = shape.iter().product::<usize>();
        Tensor { shape: shape.to_vec(), data: (0..length).map(|i| i as f32 - 1.5).collect() }
    }

    fn refusal(name: &str, bytes: &[u8]) -> String {
        let error = format!("{:#}", decode(Path::new(name), bytes).unwrap_err());
        assert!(error.contains(name) && error.lines().count() == 1, "{error}");
        error
    }

    #[test]
    fn formats_round_trip() {
        for shape in [&[6][..], &[2, 3], &[1, 2, 1, 3], &[]] {
            let bytes = encode("a.npy", &tensor(shape));
            assert_eq!(bytes.len() % 64, 4 * tensor(shape).data.len() % 64);
            assert_eq!(decode(Path::new("a.npy"), &bytes).unwrap(), tensor(shape));
        }
        let bytes = encode("a.f32", &tensor(&[2, 3]));
        assert_eq!(decode(Path::new("a.f32"), &bytes).unwrap().data, tensor(&[2, 3]).data);
    }

    #[test]
    fn the_header_is_the_one_that_numpy_writes() {
        let written = encode("a.npy", &tensor(&[3, 1]));
        assert_eq!(written[..written.len() - 12], npy("'<f4'", "False", "(3, 1)", &[])[..]);
        assert!(encode("a.npy", &tensor(&[3])).windows(4).any(|part| part == b"(3,)"));
    }

    #[test]
    fn broken_files_are_named_with_what_is_wrong() {
        let whole = encode("a.npy", &tensor(&[2, 3]));
        for cut in [0, 5, 9, 60, whole.len() - 1] {
            refusal("a.npy", &whole[..cut]);
        }
        assert!(refusal("a.f32", &[1, 2, 3]).contains("cut short"));
        assert!(refusal("a.f32", &[]).contains("no coordinates"));
    }

    /// A .npy file with this header, as NumPy writes it.
    fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let mut header = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}");
        while (10 + header.len() + 1) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let len = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn unusable_npy_files_are_refused_with_the_reason() {
        for (bytes, says) in [
            (npy("'<f2'", "False", "(4,)", &[0; 8]), "'<f2', not little-endian 32-bit floats"),
            (npy("'<f8'", "False", "(2,)", &[0; 16]), "'<f8', not little-endian 32-bit floats"),
            (npy("'>f4'", "False", "(2,)", &[0; 8]), "'>f4', not little-endian 32-bit floats"),
            (npy("[('x', '<f4')]", "False", "(2,)", &[0; 8]), "not little-endian 32-bit floats"),
            (npy("'<f4'", "True", "(2, 3)", &[0; 24]), "numpy.ascontiguousarray"),
            (npy("'<f4'", "False", "(2, 3)", &[0; 20]), "shape [2, 3] takes 24 bytes, of which it has 20"),
            (npy("'<f4'", "False", "(4294967296, 4294967296)", &[]), "is more than memory can hold"),
            (npy("'<f4'", "False", "(9223372036854775807,)", &[]), "is more than memory can hold"),
            (npy("'<f4'", "False", "(3, 0)", &[]), "no coordinates"),
            (npy("'<f4'", "False", "'x'", &[0; 8]), "its shape has no parentheses"),
            (npy("'<f4'", "False", "(-1,)", &[0; 8]), "something other than numbers"),
            (npy(&"{".repeat(40), "False", "(2,)", &[0; 8]), "not little-endian 32-bit floats"),
        ] {
            let error = refusal("a.npy", &bytes);
            assert!(error.contains(says), "{says}: {error}");
        }
    }
}
