//! `thc demo`: a small language model trained data-parallel through THC, and the same run
//! with exact averaging to compare with.

pub mod adam;
pub mod controller;
pub mod curve;
pub mod event;
pub mod exact;
pub mod memif;
pub mod model;
pub mod plan;
pub mod processes;
pub mod report;
pub mod run;
pub mod server;
pub mod shared;
pub mod switch;
pub mod text;
pub mod training;
