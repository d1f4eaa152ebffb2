//! Scales of coordinates, by the codec: `thc.torch.scales` says what they are for.

use crate::errors;
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use thc_codec::error::CodecError;
use thc_codec::scales::{self, Power};

fn py_result(py: Python<'_>, result: Result<(), CodecError>) -> PyResult<()> {
    result.map_err(|error| errors::config(py, &error.to_string()))
}

/// Multiplies a mean by its scales, if it has any, and takes its squares into `squares`, of which `memory` stays.
#[pyfunction]
#[pyo3(signature = (squares, mean, scale, memory))]
pub fn scales_learn(
    py: Python<'_>,
    mut squares: PyReadwriteArray1<'_, f32>,
    mut mean: PyReadwriteArray1<'_, f32>,
    scale: Option<PyReadonlyArray1<'_, f32>>,
    memory: f64,
) -> PyResult<()> {
    let (squares, mean) = (squares.as_slice_mut()?, mean.as_slice_mut()?);
    let scale = scale.as_ref().map(PyReadonlyArray1::as_slice).transpose()?;
    let (kept, fresh) = (memory as f32, (1.0 - memory) as f32);
    let done = py.detach(|| scales::learn(squares, mean, scale, kept, fresh));
    py_result(py, done)
}

/// Makes the scales of parameters: of each where it begins and ends, and its floor. What lies between them stays.
#[pyfunction]
#[pyo3(signature = (squares, scale, places, power))]
pub fn scales_derive(
    py: Python<'_>,
    squares: PyReadonlyArray1<'_, f32>,
    mut scale: PyReadwriteArray1<'_, f32>,
    places: Vec<(usize, usize, f64)>,
    power: f64,
) -> PyResult<()> {
    let (squares, scale) = (squares.as_slice()?, scale.as_slice_mut()?);
    let power = [(0.5, Power::Half), (0.75, Power::ThreeQuarters), (1.0, Power::One)]
        .into_iter()
        .find_map(|(number, named)| (number == power).then_some(named))
        .ok_or_else(|| {
            PyValueError::new_err(format!("{power} is not a power of a scale: 0.5, 0.75 or 1.0"))
        })?;
    let outside = |start, stop| {
        let (of, scales) = (squares.len(), scale.len());
        PyValueError::new_err(format!("{start} to {stop} is not a part of {of} squares and {scales} scales"))
    };
    for (start, stop, _) in &places {
        if start > stop || *stop > squares.len().min(scale.len()) {
            return Err(outside(start, stop));
        }
    }
    let done = py.detach(|| {
        places.into_iter().try_for_each(|(start, stop, floor)| {
            scales::derive(&squares[start..stop], floor as f32, power, &mut scale[start..stop])
        })
    });
    py_result(py, done)
}
