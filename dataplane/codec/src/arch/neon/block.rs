//! Whole blocks.

use super::quantize;
use super::rht::{Floats, LEAF};
use crate::arch::blocks;

blocks::kernels!(true, "neon");
