//! Tensors in files: .npy and .safetensors of f32, f64, f16 and bf16, raw f32.

use anyhow::{Context, bail, ensure};
use half::{bf16, f16};
use npyz::DType;
use safetensors::{Dtype, SafeTensors, View};
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

/// The type of a file's coordinates. The mean of a tensor is written in the type of the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    F32,
    F64,
    F16,
    Bf16,
}

impl Number {
    const ALL: [Number; 4] = [Number::F32, Number::F64, Number::F16, Number::Bf16];

    fn bytes(self) -> usize {
        match self {
            Number::F64 => 8,
            Number::F32 => 4,
            Number::F16 | Number::Bf16 => 2,
        }
    }

    /// NumPy's name of the type, without the order of bytes. NumPy has no bf16, and writes that of ml_dtypes as raw data.
    fn npy(self) -> &'static str {
        match self {
            Number::F32 => "f4",
            Number::F64 => "f8",
            Number::F16 => "f2",
            Number::Bf16 => "V2",
        }
    }

    fn safetensors(self) -> Dtype {
        match self {
            Number::F32 => Dtype::F32,
            Number::F64 => Dtype::F64,
            Number::F16 => Dtype::F16,
            Number::Bf16 => Dtype::BF16,
        }
    }

    /// The coordinates in these bytes, each rounded to f32.
    fn decode(self, bytes: &[u8], is_big: bool) -> anyhow::Result<Vec<f32>> {
        let mut data = room(bytes.len() / self.bytes())?;
        data.extend(bytes.chunks_exact(self.bytes()).map(|chunk| {
            let mut number = [0; 8];
            number[..chunk.len()].copy_from_slice(chunk);
            if is_big {
                number[..chunk.len()].reverse();
            }
            let [a, b, c, d, ..] = number;
            match self {
                Number::F32 => f32::from_le_bytes([a, b, c, d]),
                Number::F64 => f64::from_le_bytes(number) as f32,
                Number::F16 => f16::from_le_bytes([a, b]).to_f32(),
                Number::Bf16 => bf16::from_le_bytes([a, b]).to_f32(),
            }
        }));
        Ok(data)
    }

    /// The coordinates as little-endian bytes, each rounded to the nearest number of the type: in f16, infinity from 65520 on.
    fn encode(self, data: &[f32]) -> Vec<u8> {
        match self {
            Number::F32 => data.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Number::F64 => data.iter().flat_map(|&value| f64::from(value).to_le_bytes()).collect(),
            Number::F16 => data.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect(),
            Number::Bf16 => data.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect(),
        }
    }
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in the file; empty in formats that have none.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its coordinates, the last axis innermost: in the same order on every worker, whatever order files have.
    pub data: Vec<f32>,
    /// `true` if the file has the first axis innermost.
    fortran: bool,
    /// The type of the file's coordinates.
    number: Number,
}

/// The format of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// NumPy's, one tensor.
    Npy,
    /// Any number of tensors.
    Safetensors,
    /// Little-endian f32 alone, one tensor.
    Raw,
}

impl FileFormat {
    /// The format of a file of this name.
    pub fn from_path(path: &Path) -> FileFormat {
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => FileFormat::Npy,
            Some("safetensors") => FileFormat::Safetensors,
            _ => FileFormat::Raw,
        }
    }

    /// Checks that so many tensors fit into one file.
    pub fn takes(self, tensors: usize) -> anyhow::Result<()> {
        let fits = self == FileFormat::Safetensors || tensors == 1;
        ensure!(fits, "{tensors} tensors do not fit into one file of this format: name it .safetensors");
        Ok(())
    }
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

/// Reads all tensors of a file, in the order of their names.
pub fn read(path: &Path) -> anyhow::Result<Vec<Tensor>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    decode(path, &bytes)
}

/// All tensors of a file with these contents, in the order of their names.
pub fn decode(path: &Path, bytes: &[u8]) -> anyhow::Result<Vec<Tensor>> {
    let shown = path.display();
    let tensors = match FileFormat::from_path(path) {
        FileFormat::Npy => {
            vec![read_npy(bytes).with_context(|| format!("{shown} is not a usable .npy file"))?]
        }
        FileFormat::Safetensors => {
            read_safetensors(bytes).with_context(|| format!("{shown} is not a usable .safetensors file"))?
        }
        FileFormat::Raw => {
            ensure!(
                bytes.len().is_multiple_of(4),
                "{shown} has {} bytes, which is not a whole number of f32: is it cut short?",
                bytes.len()
            );
            let number = Number::F32;
            let data = number.decode(bytes, false)?;
            vec![Tensor { name: String::new(), shape: vec![data.len()], data, fortran: false, number }]
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

fn read_npy(bytes: &[u8]) -> anyhow::Result<Tensor> {
    ensure!(
        nesting_depth(bytes) <= MAX_NESTING,
        "its header has brackets in brackets, more than {MAX_NESTING} deep"
    );
    ensure!(extent(bytes).is_some(), "its shape is more than memory can hold");
    let mut rest = bytes;
    let header = npyz::NpyHeader::from_reader(&mut rest)?;
    let dtype = header.dtype();
    let name = if let DType::Plain(plain) = &dtype { plain.to_string() } else { String::new() };
    let known = Number::ALL.into_iter().find(|number| name.get(1..) == Some(number.npy()));
    let Some(number) = known else {
        bail!(
            "its coordinates are {}, not floats of 16, 32 or 64 bits: convert it with .astype('float32')",
            dtype.descr()
        );
    };
    let shape: Vec<usize> =
        header.shape().iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
    let wanted = shape.iter().try_fold(number.bytes(), |n, &d| n.checked_mul(d));
    let wanted = wanted.with_context(|| format!("its shape {shape:?} is more than memory can hold"))?;
    let there = rest.len();
    ensure!(
        there == wanted,
        "its shape {shape:?} takes {wanted} bytes and {there} are there: is it cut short, or was something appended?"
    );
    let mut data = number.decode(rest, name.starts_with('>'))?;
    let fortran = header.order() == npyz::Order::Fortran;
    if fortran {
        data = reorder(&shape, &data, Order::LastInnermost)?;
    }
    Ok(Tensor { name: String::new(), shape, data, fortran, number })
}

/// Brackets in brackets of a header: the parser takes twice as long for each more.
const MAX_NESTING: usize = 8;

/// The header's text: as many bytes as the file says, line breaks among them.
fn header(bytes: &[u8]) -> &[u8] {
    // Behind magic and version: two bytes of length, or four from version 2 on.
    let (length, first) = match bytes {
        [_, _, _, _, _, _, 0..=1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 10),
        [_, _, _, _, _, _, _, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
        _ => return &[],
    };
    let text = &bytes[first..];
    &text[..length.min(text.len())]
}

/// The depth of nested brackets of any kind in a header.
fn nesting_depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in header(bytes) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The product of all numbers in parentheses in a header, if it is no more than memory can hold: npyz multiplies those of
/// a shape unchecked.
fn extent(bytes: &[u8]) -> Option<usize> {
    let inside = header(bytes).split(|&byte| byte == b'(').skip(1);
    let inside = inside.map(|part| part.split(|&byte| byte == b')').next().unwrap_or_default());
    let numbers = inside.flat_map(|part| part.split(|byte| !byte.is_ascii_digit()));
    numbers.filter(|digits| !digits.is_empty()).try_fold(4usize, |product, digits| {
        let number: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
        product.checked_mul(number)
    })
}

/// Which order of coordinates is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    LastInnermost,
    FirstInnermost,
}

/// The coordinates in the wanted order, from the other one.
fn reorder(shape: &[usize], data: &[f32], wanted: Order) -> anyhow::Result<Vec<f32>> {
    let mut out = room(data.len())?;
    out.resize(data.len(), 0.0);
    let strides: Vec<usize> =
        shape.iter().scan(1, |stride, &d| Some(std::mem::replace(stride, *stride * d))).collect();
    let mut index = vec![0; shape.len()];
    let mut first_innermost = 0;
    for last_innermost in 0..data.len() {
        match wanted {
            Order::LastInnermost => out[last_innermost] = data[first_innermost],
            Order::FirstInnermost => out[first_innermost] = data[last_innermost],
        }
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            first_innermost += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
            first_innermost -= strides[axis] * shape[axis];
        }
    }
    Ok(out)
}

fn read_safetensors(bytes: &[u8]) -> anyhow::Result<Vec<Tensor>> {
    let file = SafeTensors::deserialize(bytes)?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        let known = Number::ALL.into_iter().find(|number| number.safetensors() == view.dtype());
        let Some(number) = known else {
            bail!(
                "tensor {name:?} has {:?} coordinates, not F32, F64, F16 or BF16: convert it first",
                view.dtype()
            );
        };
        let (shape, data) = (view.shape().to_vec(), number.decode(view.data(), false)?);
        tensors.push(Tensor { name, shape, data, fortran: false, number });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// Writes tensors in a format.
pub fn write(format: FileFormat, out: &mut impl Write, tensors: &[Tensor]) -> anyhow::Result<()> {
    format.takes(tensors.len())?;
    tensors.iter().for_each(warn_of_overflow);
    match format {
        FileFormat::Npy => tensors.iter().try_for_each(|tensor| write_npy(out, tensor)),
        FileFormat::Safetensors => write_safetensors(out, tensors),
        FileFormat::Raw => {
            tensors.iter().try_for_each(|tensor| write_numbers(out, Number::F32, &tensor.data))
        }
    }
}

/// Coordinates that are encoded at a time.
const CHUNK: usize = 1 << 16;

fn write_numbers(out: &mut impl Write, number: Number, data: &[f32]) -> anyhow::Result<()> {
    Ok(data.chunks(CHUNK).try_for_each(|chunk| out.write_all(&number.encode(chunk)))?)
}

/// The number of finite coordinates that are too large for the type in which they are written.
fn overflows(tensor: &Tensor) -> usize {
    let overflows = |value: f32| value.is_finite() && f16::from_f32(value).is_infinite();
    if tensor.number == Number::F16 {
        tensor.data.iter().filter(|&&value| overflows(value)).count()
    } else {
        0
    }
}

/// Warns of coordinates that are too large for the type in which they are written.
fn warn_of_overflow(tensor: &Tensor) {
    let count = overflows(tensor);
    if count > 0 {
        let name = if tensor.name.is_empty() { "the mean" } else { &tensor.name };
        tracing::warn!(
            "{name}: {count} coordinates are too large for f16 and become infinite: reduce it as f32"
        );
    }
}

fn write_npy(out: &mut impl Write, tensor: &Tensor) -> anyhow::Result<()> {
    let (order, shape) = (if tensor.fortran { "True" } else { "False" }, &tensor.shape);
    let shape: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let descr = tensor.number.npy();
    let text = format!("{{'descr': '<{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    // Magic, version and length take 10 bytes; the data begins at a multiple of 64.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&u16::try_from(length)?.to_le_bytes())?;
    writeln!(out, "{text:0$}", length - 1)?;
    let data = match tensor.fortran {
        true => &reorder(&tensor.shape, &tensor.data, Order::FirstInnermost)?,
        false => &tensor.data,
    };
    write_numbers(out, tensor.number, data)
}

impl View for &Tensor {
    fn dtype(&self) -> Dtype {
        self.number.safetensors()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.number.encode(&self.data).into()
    }

    fn data_len(&self) -> usize {
        self.data.len() * self.number.bytes()
    }
}

fn write_safetensors(out: &mut impl Write, tensors: &[Tensor]) -> anyhow::Result<()> {
    let name =
        |tensor: &Tensor| if tensor.name.is_empty() { "tensor".to_owned() } else { tensor.name.clone() };
    let named = tensors.iter().map(|tensor| (name(tensor), tensor));
    Ok(out.write_all(&safetensors::serialize(named, None)?)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    fn write(path: &Path, tensors: &[Tensor]) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        super::write(FileFormat::from_path(path), &mut bytes, tensors)?;
        Ok(std::fs::write(path, bytes)?)
    }

    fn tensor(name: &str) -> Tensor {
        Tensor {
            name: name.into(),
            shape: vec![2, 3],
            data: vec![1.0, -2.5, 3.0, 0.0, 1e-9, 7.0],
            fortran: false,
            number: Number::F32,
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
    fn other_types_are_read_rounded_and_written_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        // 1.0, -2.5 and 2^-9 have few bits; 1 + 2^-11 rounds to 1 in f16 and in bf16.
        let data = [1.0f32, -2.5, 0.001_953_125, 1.000_488_3, 65504.0, 0.0];
        for (number, bytes) in [
            (Number::F64, data.iter().flat_map(|&v| f64::from(v).to_le_bytes()).collect::<Vec<u8>>()),
            (Number::F16, [0x3C00u16, 0xC100, 0x1800, 0x3C00, 0x7BFF, 0].map(u16::to_le_bytes).concat()),
            (Number::Bf16, [0x3F80u16, 0xC020, 0x3B00, 0x3F80, 0x4780, 0].map(u16::to_le_bytes).concat()),
        ] {
            let rounded = number.decode(&bytes, false).unwrap();
            for name in ["a.npy", "a.safetensors"] {
                let name_in_file = if name == "a.npy" { "" } else { "a" };
                let path = dir.path().join(name);
                let written = Tensor { number, data: data.to_vec(), ..tensor(name_in_file) };
                write(&path, std::slice::from_ref(&written)).unwrap();
                assert!(std::fs::read(&path).unwrap().ends_with(&bytes), "{number:?} {name}");
                assert_eq!(read(&path).unwrap(), [Tensor { data: rounded.clone(), ..written }]);
            }
            let big: Vec<u8> =
                bytes.chunks(number.bytes()).flat_map(|chunk| chunk.iter().rev().copied()).collect();
            assert_eq!(number.decode(&big, true).unwrap(), rounded);
        }
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

    /// A .npy file with this header, as NumPy writes it.
    fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
        let order = if fortran { "True" } else { "False" };
        let mut header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
        while (10 + header.len() + 1) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let len = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn what_is_wrong_with_a_npy_file_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        for (bytes, says) in [
            (npy("'<f2'", false, "(5,)", &[0; 8]), "shape [5] takes 10 bytes and 8 are there"),
            (npy("'<f8'", false, "(2,)", &[0; 15]), "shape [2] takes 16 bytes and 15 are there"),
            (npy("'<f4'", false, "(2,)", &[0; 9]), "shape [2] takes 8 bytes and 9 are there"),
            (npy("'<i4'", false, "(2,)", &[0; 8]), "'<i4', not floats of 16, 32 or 64 bits"),
            (npy("'|O'", false, "(2,)", &[0; 8]), "'|O', not floats"),
            (npy("[('x', '<f4')]", false, "(2,)", &[0; 8]), "not floats"),
            (npy("'<f4'", true, "(2, 3)", &[0; 20]), "shape [2, 3] takes 24 bytes and 20 are there"),
            (npy("'<f4'", false, "(4294967296, 4294967296)", &[]), "is more than memory can hold"),
            (npy("'<f4'", false, "(9223372036854775807,)", &[]), "is more than memory can hold"),
            (npy("'<f4'", false, "(3, 0)", &[]), "no coordinates"),
            (npy("'<f4'", false, "'x'", &[0; 8]), "not a usable .npy file"),
            (npy("'<f4'", false, "(-1,)", &[0; 8]), "not a usable .npy file"),
            (npy("\n'<f4'", false, "(4294967296, 4294967296)", &[0; 8]), "more than memory can hold"),
            (npy(&"{".repeat(40), false, "(2,)", &[0; 8]), "brackets in brackets"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains(says) && error.contains("a.npy"), "{says}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn the_order_and_endianness_of_a_file_do_not_change_what_is_averaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let le = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let be = |values: &[f32]| values.iter().flat_map(|v| v.to_be_bytes()).collect::<Vec<u8>>();
        let wanted = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let columns = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        for bytes in [
            npy("'<f4'", false, "(2, 3)", &le(&wanted)),
            npy("'>f4'", false, "(2, 3)", &be(&wanted)),
            npy("'<f4'", true, "(2, 3)", &le(&columns)),
            npy("'>f4'", true, "(2, 3)", &be(&columns)),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let [tensor] = &read(&path).unwrap()[..] else { panic!() };
            assert_eq!((&tensor.shape[..], &tensor.data[..]), (&[2, 3][..], &wanted[..]));
        }
        // A file in Fortran's order gets its mean in that order.
        let [tensor] = &read(&path).unwrap()[..] else { panic!() };
        write(&path, std::slice::from_ref(tensor)).unwrap();
        assert!(std::fs::read(&path).unwrap().ends_with(&le(&columns)));
        std::fs::write(&path, npy("'<f4'", true, "(2, 1, 2, 2)", &le(&[0., 4., 2., 6., 1., 5., 3., 7.])))
            .unwrap();
        assert_eq!(read(&path).unwrap()[0].data, [0., 1., 2., 3., 4., 5., 6., 7.]);
        std::fs::write(&path, npy("'<f4'", false, "()", &le(&[9.0]))).unwrap();
        assert_eq!(read(&path).unwrap()[0].data, [9.0]);
    }

    #[test]
    fn coordinates_that_are_too_large_for_f16_are_counted() {
        let data = vec![65519.0, -65520.0, 1e38, f32::INFINITY, 1.0, 0.0];
        let tensor = Tensor { number: Number::F16, data, ..tensor("") };
        assert_eq!(
            (overflows(&tensor), overflows(&Tensor { number: Number::F32, ..tensor.clone() })),
            (2, 0)
        );
        let encoded = Number::F16.encode(&tensor.data);
        assert_eq!(encoded[..4], [0xFF, 0x7B, 0x00, 0xFC]);
    }

    #[test]
    fn what_is_wrong_with_a_safetensors_file_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let half = TensorView::new(Dtype::I16, vec![2], &[0; 4]).unwrap();
        std::fs::write(&path, safetensors::serialize([("h", half)], None).unwrap()).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("tensor \"h\" has I16 coordinates, not F32"), "{error}");
        let none: [(&str, TensorView<'_>); 0] = [];
        std::fs::write(&path, safetensors::serialize(none, None).unwrap()).unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("has no tensors"));
    }
}
