//! Packed calls: norms, indices and means are computed in Python, on a GPU say, and sums come from the network.
//!
//! Memory has an owner at any time: Python, which reads and writes it at its address as long as it has not handed it over; or the
//! library, until it gives it back. So nothing here needs to trust that two do not touch it at once.

use crate::errors;
use crate::group::Group;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use thc_worker::{Call, Choice, Loan, PackedLayout};

/// Memory begins at a multiple of this, as what is to be pinned must.
const PAGE: usize = 4096;

/// So many bytes from the beginning of a page on.
struct Pages {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Pages {
        let rounded = len.div_ceil(PAGE) * PAGE;
        let bytes = vec![0; rounded + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Pages { bytes, start, len }
    }
}

/// Where memory is when nobody else has it.
type Home = Arc<Mutex<Option<Pages>>>;

/// Memory that the library has; dropping it gives it back.
struct Lent {
    pages: Option<Pages>,
    home: Home,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], |pages| &pages.bytes[pages.start..pages.start + pages.len])
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], |pages| &mut pages.bytes[pages.start..pages.start + pages.len])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = self.pages.take();
    }
}

/// Memory for the indices or the sums of a piece, at whole pages, as long as it lives at one address. NumPy's `asarray` shows it.
#[pyclass(module = "thc._native", frozen)]
pub struct Memory {
    home: Home,
    address: usize,
    bytes: usize,
}

impl Memory {
    fn lend(&self) -> PyResult<Box<dyn Loan>> {
        let pages = self.home.lock().unwrap_or_else(PoisonError::into_inner).take();
        let busy = || PyValueError::new_err("this memory is in use by a call: wait for its end");
        Ok(Box::new(Lent { pages: Some(pages.ok_or_else(busy)?), home: Arc::clone(&self.home) }))
    }
}

#[pymethods]
impl Memory {
    #[new]
    fn new(bytes: usize) -> Memory {
        let pages = Pages::new(bytes);
        let address = pages.bytes.as_ptr() as usize + pages.start;
        Memory { home: Arc::new(Mutex::new(Some(pages))), address, bytes }
    }

    /// Where it begins.
    #[getter]
    fn address(&self) -> usize {
        self.address
    }

    /// Its length.
    #[getter]
    fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no call has it.
    #[getter]
    fn free(&self) -> bool {
        self.home.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        found.set_item("shape", (self.bytes,))?;
        found.set_item("typestr", "|u1")?;
        found.set_item("data", (self.address, false))?;
        found.set_item("version", 3)?;
        Ok(found)
    }
}

/// A tensor whose norms, indices and mean are computed in Python: its coordinates, log₂ of those of a piece, the norm of
/// each partition, and memory for the sums of each piece.
#[pyclass(module = "thc._native", frozen)]
pub struct PackedTensor {
    length: usize,
    piece: u8,
    norms: Vec<f32>,
    sums: Vec<Py<Memory>>,
}

#[pymethods]
impl PackedTensor {
    #[new]
    #[pyo3(signature = (length, piece, norms, sums))]
    fn new(
        length: usize,
        piece: u8,
        norms: PyReadonlyArray1<'_, f32>,
        sums: Vec<Py<Memory>>,
    ) -> PyResult<PackedTensor> {
        Ok(PackedTensor { length, piece, norms: norms.as_slice()?.to_vec(), sums })
    }
}

impl PackedTensor {
    /// Starts its call.
    pub fn start(&self, group: &Group, py: Python<'_>, call: Call<'_>) -> PyResult<Packed> {
        let PackedTensor { length, piece, ref norms, ref sums } = *self;
        let sums = sums.iter().map(|memory| memory.get().lend()).collect::<PyResult<_>>()?;
        let tensor = thc_worker::PackedTensor { length, piece, norms, sums };
        let packed = group.work_with(py, |group| group.start_packed(tensor, call))?;
        let keys = packed.keys();
        Ok(Packed { inner: Mutex::new(packed), keys })
    }
}

/// A packed call under way.
#[pyclass(module = "thc._native", frozen)]
pub struct Packed {
    inner: Mutex<thc_worker::Packed>,
    keys: thc_worker::CallKeys,
}

impl Packed {
    fn work_with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut thc_worker::Packed) -> T + Send,
    ) -> T {
        py.detach(|| work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A row of f32 and one number of f64 for each.
pub type Rows<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<f64>>);

pub fn rows<'py, const N: usize>(
    py: Python<'py>,
    each: impl ExactSizeIterator<Item = ([f32; N], f64)>,
) -> PyResult<Rows<'py>> {
    let count = each.len();
    let (floats, raw): (Vec<[f32; N]>, Vec<f64>) = each.unzip();
    Ok((PyArray1::from_vec(py, floats.concat()).reshape([count, N])?, PyArray1::from_vec(py, raw)))
}

#[pymethods]
impl Packed {
    /// What signs and roundings of its partitions derive from, and the stratum of the roundings.
    #[getter]
    fn keys(&self) -> (u64, u64, u32) {
        (self.keys.signs, self.keys.roundings, self.keys.stratum)
    }

    /// Waits for the norms: of each partition −M, scale, bias and step; and of RAW ones the power of two. All 0 if the norm is.
    fn numbers<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        let numbers =
            self.work_with(py, |packed| packed.numbers()).map_err(|error| errors::worker(py, &error))?;
        let row = |n: &thc_worker::Numbers| {
            let thc_worker::Numbers { affine: a, raw } = *n;
            ([a.lo, a.scale, a.bias, a.step], raw)
        };
        rows(py, numbers.iter().map(row))
    }

    /// Hands over the indices of a piece.
    fn send(&self, py: Python<'_>, piece: usize, indices: &Memory) -> PyResult<()> {
        let lent = indices.lend()?;
        self.work_with(py, |packed| packed.send(piece, lent));
        Ok(())
    }

    /// Waits for the results of another piece: its number, and of each packet step and −M, and of RAW the factor. Nothing when
    /// the call is over.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Option<(usize, Rows<'py>)>> {
        let finished =
            self.work_with(py, |packed| packed.receive()).map_err(|error| errors::worker(py, &error))?;
        let Some(thc_worker::Finished { piece, estimates, .. }) = finished else { return Ok(None) };
        let rows = rows(py, estimates.iter().map(|at| ([at.step, at.lo], at.raw)))?;
        Ok(Some((piece, rows)))
    }
}

/// Two arrays of numbers.
pub type Tables<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray2<i64>>);

/// How a tensor is cut: a row for each partition (number, first coordinate, coordinates, with padding,
/// table or 0 for RAW, piece), and one for each piece (first and past the last partition, bytes of indices, bytes of sums,
/// packets).
pub fn tables<'py>(py: Python<'py>, layout: &PackedLayout) -> PyResult<Tables<'py>> {
    let parts: Vec<i64> = (layout.parts.iter())
        .flat_map(|at| {
            let table = if let Choice::Table(id) = at.choice { i64::from(id.0) } else { 0 };
            let part = at.part;
            let [offset, len, padded, piece] =
                [part.offset, part.len, part.padded, at.piece].map(|n| n as i64);
            [i64::from(part.index), offset, len, padded, table, piece]
        })
        .collect();
    let pieces: Vec<i64> = (layout.pieces.iter())
        .flat_map(|at| [at.parts.start, at.parts.end, at.indices, at.sums, at.packets].map(|n| n as i64))
        .collect();
    Ok((
        PyArray1::from_vec(py, parts).reshape([layout.parts.len(), 6])?,
        PyArray1::from_vec(py, pieces).reshape([layout.pieces.len(), 5])?,
    ))
}
