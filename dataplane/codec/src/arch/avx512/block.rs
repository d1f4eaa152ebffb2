//! Whole blocks.

use super::quantize;
use super::rht::{Floats, LEAF};
use crate::arch::blocks;

blocks::kernels!(true, "avx512f,avx512bw,avx512dq,avx512vl");
