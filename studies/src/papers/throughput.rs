//! Steps of training on GPUs that are not at hand: layers of the real models, with as many operations as a GPU does in a second, and
//! all-reduces as `thc simulate` has them, or by what links and servers carry.

use super::costs;
use super::schemes::Named;
use super::shapes::Architecture;
use crate::error::Result;
use crate::simulate::{Case, Keys, Layout, simulate};
use crate::units::Rate;

/// A GPU.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    /// Operations a second that training gets out of it: a quarter of what its data sheet promises for the precision in use, where nothing
    /// else is said.
    pub flops: f64,
    /// Nanoseconds a coordinate to compress a gradient and to make a mean of a result: 0.0143 measured on an H100 (docs/measuring.md),
    /// as many times more as its memory is slower.
    pub codec_ns: f64,
}

/// TF32: 156 TFLOP/s; 1.6 TB/s.
pub const A100: Gpu = Gpu { flops: 39e12, codec_ns: 0.030 };
/// F32: 15.7 TFLOP/s. SlimGC's Table 3 has VGG19 at 11.6 of them, so a quarter would be too little; 0.9 TB/s.
pub const V100: Gpu = Gpu { flops: 12e12, codec_ns: 0.053 };
/// F16: 71 TFLOP/s; 0.94 TB/s.
pub const RTX3090: Gpu = Gpu { flops: 18e12, codec_ns: 0.051 };

/// Who averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum System {
    /// A ring of 32-bit floats (Horovod).
    Ring,
    /// THC, by place of the aggregator.
    Thc(Layout),
    /// A share of a parameter server on every host, as BytePS has it, and a scheme.
    Shares(Named),
    /// One parameter server, and a scheme.
    Server(Named),
}

/// Hosts and what connects them.
#[derive(Clone, Copy, Debug)]
pub struct Testbed {
    pub gpu: Gpu,
    pub workers: u16,
    pub gbit: f64,
    /// Sockets of the kernel rather than RDMA or DPDK.
    pub kernel: bool,
    /// Nanoseconds a coordinate to add up and spread within a host of several GPUs.
    pub inside_ns: f64,
}

/// The four hosts of THC's testbed.
pub const fn testbed(gbit: f64) -> Testbed {
    Testbed { gpu: A100, workers: 4, gbit, kernel: false, inside_ns: 0.0 }
}

/// Cores of a host that handle packets and messages.
const CORES: f64 = 4.0;
/// Bytes on the wire for a byte of a message.
const FRAMED: f64 = 1.035;
/// Coordinates of DDP's buckets, 25 MiB.
const BUCKET: u64 = 25 << 18;

/// What an all-reduce takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Seconds whatever its length.
    pub fixed: f64,
    /// Seconds a coordinate, of the link and of the server; the larger counts, since both work at the same time.
    pub link: f64,
    pub server: f64,
}

impl Pace {
    /// Seconds of so many coordinates.
    pub fn seconds(&self, coordinates: u64) -> f64 {
        self.fixed + self.link.max(self.server) * coordinates as f64
    }
}

impl Testbed {
    /// How fast a system averages.
    pub fn pace(&self, system: System, quick: bool) -> Result<Pace> {
        let layout = match system {
            System::Ring => Layout::RingFp32,
            System::Thc(layout) => layout,
            System::Shares(scheme) => return self.coded_pace(scheme, true),
            System::Server(scheme) => return self.coded_pace(scheme, false),
        };
        let (few, many) = if quick { (1 << 18, 1 << 19) } else { (1 << 20, 1 << 22) };
        // Packets are handled by several cores, compression is on the GPU's account.
        let packets = |ns: f64| Some(if self.kernel { ns } else { ns / CORES });
        let none = Some(0.0);
        let keys = Keys {
            norm_ns: none,
            compress_ns: none,
            feedback_ns: none,
            decompress_ns: none,
            send_ns: packets(120.0),
            receive_ns: packets(250.0),
            server_receive_ns: packets(150.0),
            server_send_ns: packets(150.0),
            wake_us: Some(if self.kernel { 10.0 } else { 1.0 }),
            tcp_byte_ns: Some(if self.kernel { 0.2 } else { 0.0 }),
            add_ns: none,
            ..Keys::default()
        };
        let settings = keys.validate()?;
        let rate = Rate((self.gbit * 1e9) as u64);
        let seconds = |coordinates| -> Result<f64> {
            Ok(simulate(&settings, &Case { layout, workers: self.workers, rate, coordinates })?.seconds())
        };
        let (short, long) = (seconds(few)?, seconds(many)?);
        let link = (long - short) / (many - few) as f64;
        Ok(Pace { fixed: (short - link * few as f64).max(0.0), link, server: 0.0 })
    }

    /// Shares: every host receives the others' messages of its share and sends them the result. One server: its link carries all messages one
    /// way and all results the other.
    fn coded_pace(&self, scheme: Named, shared: bool) -> Result<Pace> {
        let n = f64::from(self.workers);
        let coordinates = costs::PARTITION as f64;
        let bits = scheme.scheme()?.bits(costs::PARTITION, self.workers.into())?;
        let carried = if shared {
            (n - 1.0) / n * (bits.up + bits.down) as f64
        } else {
            n * bits.up.max(bits.down) as f64
        };
        let bytes = FRAMED * carried / 8.0 / coordinates;
        // Sockets cost as much for a byte as a ring's, sent and received.
        let kernel = if self.kernel { 2.0 * 0.2e-9 * bytes } else { 0.0 };
        let link = (bytes * 8.0 / (self.gbit * 1e9)).max(kernel);
        let cost = costs::cost_of(scheme);
        let servers = if shared { n } else { 1.0 };
        let server = (n * cost.decode + cost.encode) / servers * 1e-9 / CORES;
        // The last piece of a bucket goes through one after the other.
        Ok(Pace { fixed: 20e-6 + link.min(server) * coordinates / 4.0, link, server })
    }

    /// What a step of a model takes: its parts, and the whole.
    pub fn step(&self, model: &Architecture, batch: f64, system: System, pace: &Pace) -> Step {
        let codec =
            if matches!(system, System::Ring | System::Shares(Named::Exact) | System::Server(Named::Exact)) {
                0.0
            } else {
                self.gpu.codec_ns
            };
        let forward = |operations: f64| batch * operations / self.gpu.flops;
        let computing = 3.0 * forward(model.forward());
        // The forward pass, then backward through the layers, whose gradients leave bucket by bucket.
        let (mut now, mut free, mut pending) = (forward(model.forward()), 0.0_f64, 0);
        let mut communicating = 0.0;
        for (number, layer) in model.layers.iter().enumerate().rev() {
            now += 2.0 * forward(layer.forward) + codec * 1e-9 * layer.parameters() as f64;
            pending += layer.parameters();
            if pending >= BUCKET || number == 0 {
                let takes = pace.seconds(pending) + self.inside_ns * 1e-9 * pending as f64;
                communicating += takes;
                free = free.max(now) + takes;
                pending = 0;
            }
        }
        let compressing = codec * 1e-9 * model.parameters() as f64;
        Step { computing, compressing, communicating, seconds: now.max(free) }
    }
}

/// Where a step's time goes; communication is what it takes by itself, hidden or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub computing: f64,
    pub compressing: f64,
    pub communicating: f64,
    pub seconds: f64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::shapes::{resnet, vgg16};
    use super::*;

    #[test]
    fn slow_links_bind_and_fast_ones_hide() {
        let exact = System::Shares(Named::Exact);
        let slow = testbed(1.0);
        let pace = slow.pace(exact, true).unwrap();
        let step = slow.step(&vgg16(), 32.0, exact, &pace);
        // Six bytes a coordinate each way at 1 Gb/s.
        let link = vgg16().parameters() as f64 * 6.0 * FRAMED * 8.0 / 1e9;
        assert!((step.seconds / link - 1.0).abs() < 0.1, "{step:?} {link}");
        let fast = testbed(1000.0);
        let pace = Pace { server: 0.0, ..fast.pace(exact, true).unwrap() };
        let step = fast.step(&resnet("ResNet-50", [3, 4, 6, 3]), 32.0, exact, &pace);
        assert!(step.seconds < 1.05 * step.computing, "{step:?}");
    }

    #[test]
    fn rings_and_thc_take_what_their_bytes_take() {
        let slow = testbed(10.0);
        let ring = slow.pace(System::Ring, true).unwrap();
        let thc = slow.pace(System::Thc(Layout::Switch), true).unwrap();
        // 6 bytes each way against 1.05 down.
        assert!((3.0..8.0).contains(&(ring.link / thc.link)), "{ring:?} {thc:?}");
    }
}
