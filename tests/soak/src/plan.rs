//! What happens is drawn from seeds: the calls of a session, their tensors, the server's configuration.

use crate::server::MAX_SHARDS;
use fastrand::Rng;
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::aggregator::JobConfig;
use thc_protocol::session::StaticJob;
use thc_protocol::wire::{BLOCKS, Form, Mode, Table, Tables, Welcome};
use thc_protocol::{Cookie, JobId, Lane, TableId};
use thc_support::wire_table;

/// The job of every trace.
pub const JOB: JobId = JobId(7);
/// Its configured cookie, which strangers know.
pub const COOKIE: Cookie = Cookie(0x00C0_0C1E);

/// Tensors that have error feedback, and their lengths in every session.
pub const KEYS: [usize; 3] = [700, 1024, 3000];

/// One all-reduce, the same for all members of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    pub mode: Mode,
    pub length: usize,
    /// Index of the tensor whose error feedback it uses.
    pub key: Option<usize>,
    /// Who has something in its tensor that is not finite.
    pub spoilt_by: Option<u8>,
}

fn rng(session: Cookie, call: u64, salt: u64) -> Rng {
    let mix = u64::from(session.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (call << 8) ^ salt;
    let mut rng = Rng::with_seed(mix);
    rng.u64(..);
    rng
}

impl CallPlan {
    pub fn draw(session: Cookie, call: u64, workers: u8) -> CallPlan {
        let mut rng = rng(session, call, 0);
        // Never the same tensor twice in a row, so that calls can be under way together.
        let key = (rng.u8(..10) < 6).then_some(call as usize % KEYS.len());
        let length = match (key, rng.u8(..20)) {
            (Some(key), _) => KEYS[key],
            (None, 0) => rng.usize(1..20_000),
            (None, _) => rng.usize(1..3000),
        };
        let mode = if key.is_none() && rng.bool() { Mode::Raw } else { Mode::Compressed };
        let spoilt_by = (rng.u8(..100) == 0).then(|| rng.u8(..workers));
        CallPlan { mode, length, key, spoilt_by }
    }

    /// The tensor of one worker.
    pub fn tensor(&self, session: Cookie, call: u64, worker: u8) -> Vec<f32> {
        let mut rng = rng(session, call, 1 + u64::from(worker));
        let scale = match rng.u8(..40) {
            0 => 0.0,
            1 => 1e30,
            2 => 1e-33,
            _ => 1.0,
        };
        let mut x: Vec<f32> = (0..self.length)
            .map(|_| {
                let bits = rng.u64(..);
                let half = |bits: u64| (bits as u32 >> 8) as f32 / (1 << 23) as f32 - 1.0;
                half(bits) * half(bits >> 32) * scale
            })
            .collect();
        if self.spoilt_by == Some(worker) {
            x[rng.usize(..self.length)] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][rng.usize(..3)];
        }
        x
    }
}

/// How a server may be configured for a job of so many workers.
pub fn configuration(rng: &mut Rng, workers: u8) -> StaticJob {
    let slots = |rng: &mut Rng, choices: &[u32]| choices[rng.usize(..choices.len())];
    let data_slots = slots(rng, &[2, 4, 16, 64, 200, 512]);
    let norm_slots = slots(rng, &[2, 4, 16, 64]);
    let lane = if rng.u8(..4) == 0 { Lane::Bits16 } else { Lane::Bits8 };
    let bits = if rng.u8(..4) == 0 { rng.u8(2..=4) } else { 4 };
    let granularity = [15, 20, 30][rng.usize(..3)];
    let fraction = [1.0 / 32.0, 1.0 / 512.0][rng.usize(..2)];
    let table = LookupTable::solve(bits, granularity, fraction).unwrap();
    let id = TableId(rng.u8(1..=2));
    let table = Table { id, ..wire_table(Form::new(bits, lane).unwrap(), &table) };
    let welcome = Welcome {
        data_slots,
        norm_slots,
        shards: if rng.u8(..3) == 0 { rng.u8(2..=MAX_SHARDS) } else { 1 },
        deadline: Duration::from_millis(50),
        job_seed: rng.u64(..4),
        block: rng.u8(BLOCKS),
        marks: true,
        ..Welcome::new(workers, Tables::one(table))
    };
    StaticJob::new(JobConfig::from_welcome(JOB, COOKIE, &welcome), welcome)
}
