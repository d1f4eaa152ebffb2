//! `thc simulate row`: how well schemes hide gradients behind computing, by the simulator of AQGB's section 5.
//!
//! Computing and links are all that there is: no packets, no codec. A worker computes forward and backward, block by block;
//! gradients travel as fluids on links that are shared fairly (max-min); a block's next forward pass begins when everybody's
//! gradient of it is there.

mod arguments;
mod links;
mod report;
mod run;
mod scheme;
mod workload;

pub use arguments::RowArgs;
pub use run::Training;
pub use scheme::Scheme;
pub use workload::{Times, blocks};
