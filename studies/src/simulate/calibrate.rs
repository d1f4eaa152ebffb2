//! What computing and packets cost on this machine.
//!
//! Everything is measured by processor time, so that what else runs here counts little; the median of some repetitions is taken.
//! The codec is measured by itself, packets by what all processes of `thc bench allreduce` use beyond the codec.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use thc_bench::{median, thread_time};
use thc_codec::block::Block;
use thc_codec::norm;
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Lookup, Shard, Sink};
use thc_protocol::wire::{Form, HEADER_LEN, Header, Kind};
use thc_protocol::{Cookie, Ecn, JobId, Round, SlotId, TableId, WorkerId};
use thc_ps::Simd;
use thc_transport::{PacketIo, Peer, UdpConfig, UdpIo};

use super::settings::Keys;
use crate::bench::{AllreduceArgs, Place, measure};
use crate::error::{Error, Result};
use crate::units::Link;

/// Coordinates of the tensor that is computed on, which no cache holds.
const LENGTH: usize = 1 << 23;
/// The usual block.
const BLOCK: usize = 1 << 13;
/// Coordinates of a packet.
const PACKET: usize = 1024;
/// Packets that go out in one piece, and how many of those before they are received.
const RUN: usize = 64;
const RUNS: usize = 4;
/// Slots, and workers that add to each.
const SLOTS: u32 = 512;
const WORKERS: u8 = 4;
/// Bytes of the tensor that processes reduce.
const MEASURED: u64 = 16 << 20;
/// Repetitions.
const REPEAT: usize = 9;
/// Times a packet goes to and fro.
const TRIPS: usize = 2000;
/// Bytes that TCP sends.
const STREAM: usize = 64 << 20;

/// `thc simulate calibrate`
#[derive(Args)]
#[command(
    after_help = "Measures the codec on 32 MiB in blocks of 2^13, packets by the processor time that `thc bench allreduce` takes for \
                  16 MiB\nand two workers beyond the codec's, and what rings do. It takes some seconds and prints a file for --config. \
                  Processor time counts,\nnot the clock; still, nothing else should run.\n\n\
                  Examples:\n  thc simulate calibrate > here.toml && thc simulate --config here.toml\n  \
                  sudo thc simulate calibrate --rate 10gbit > hosts.toml    (packets over namespaces on shaped links)"
)]
pub struct CalibrateArgs {
    /// Links over which packets are measured: loopback, or namespaces with links of this rate (as root)
    #[arg(long, value_name = "RATE", default_value = "loopback")]
    rate: Link,
}

/// Nanoseconds of one of `count` things, the median of some repetitions. The first warms up.
fn nanos_each(count: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut took = Vec::new();
    for turn in 0..=REPEAT {
        let began = thread_time();
        work()?;
        if turn > 0 {
            took.push(thread_time().saturating_sub(began).as_secs_f64() * 1e9 / count as f64);
        }
    }
    Ok(median(took))
}

fn failure(error: impl std::fmt::Display) -> Error {
    Error::Failure(format!("cannot calibrate: {error}"))
}

/// Measures everything, as the text of a file of settings.
///
/// # Errors
/// The loopback interface refuses.
pub fn calibrate(args: &CalibrateArgs) -> Result<String> {
    let mut keys = Keys::default();
    codec(&mut keys)?;
    packets(&mut keys)?;
    processes(&mut keys, args.rate)?;
    ring(&mut keys)?;
    keys.wake_us = Some(wake(keys.send_ns.unwrap_or(0.0) + keys.receive_ns.unwrap_or(0.0))?);
    keys.cores = thread::available_parallelism().ok().map(|cores| cores.get() as u16);
    let round = |value: &mut Option<f64>| *value = value.map(|value| (value * 1e3).round() / 1e3);
    for value in [
        &mut keys.norm_ns,
        &mut keys.compress_ns,
        &mut keys.feedback_ns,
        &mut keys.decompress_ns,
        &mut keys.send_ns,
        &mut keys.receive_ns,
        &mut keys.server_receive_ns,
        &mut keys.server_send_ns,
        &mut keys.wake_us,
        &mut keys.tcp_byte_ns,
        &mut keys.add_ns,
        &mut keys.requantize_ns,
    ] {
        round(value);
    }
    let settings = toml::to_string(&keys).map_err(failure)?;
    Ok(format!(
        "# What computing and packets cost here: thc simulate calibrate, version {}\n{settings}",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Norms, compression, means of a tensor in memory.
fn codec(keys: &mut Keys) -> Result<()> {
    let signs = SignKey { job_seed: 1, call: 0, partition: 0 };
    let words = signs.signs();
    let x: Vec<f32> =
        (0..LENGTH as u64).map(|i| (words.word(i) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
    let table = LookupTable::solve(4, 30, 1.0 / 32.0)?;
    let quantizer = Quantizer::new(&table);
    let kept = vec![0.01; LENGTH];
    let (mut left, mut mean) = (vec![0.0; LENGTH], vec![0.0; LENGTH]);
    let mut packed = vec![0; LENGTH / 2];
    let mut work = vec![0.0; BLOCK];
    let sums: Vec<u8> = (0..LENGTH).map(|i| (i % 61) as u8).collect();
    let norm = norm::l2(&x[..BLOCK]);
    let range = (table.t_p() / (BLOCK as f64).sqrt() * f64::from(norm)) as f32;
    let block = |at: usize, next: [&'static [f32]; 2]| Block {
        quantizer: &quantizer,
        key: SignKey { partition: at as u32, ..signs },
        rounding: Rounding::new(7, 0, at as u32),
        range,
        next,
    };
    let none: [&'static [f32]; 2] = [&[], &[]];
    let ranges = || (0..LENGTH / BLOCK).map(|at| (at, at * BLOCK..(at + 1) * BLOCK));
    keys.norm_ns = Some(nanos_each(LENGTH, || {
        black_box(ranges().map(|(_, range)| norm::l2(&x[range])).sum::<f32>());
        Ok(())
    })?);
    let plain = nanos_each(LENGTH, || {
        for (at, range) in ranges() {
            let out = &mut packed[range.start / 2..range.end / 2];
            block(at, none).compress_beside(&x[range], None, &mut work, out)?;
        }
        Ok(())
    })?;
    let fed = nanos_each(LENGTH, || {
        for (at, range) in ranges() {
            let out = &mut packed[range.start / 2..range.end / 2];
            let feedback = Some((&kept[range.clone()], &mut left[range.clone()]));
            block(at, none).compress_beside(&x[range], feedback, &mut work, out)?;
        }
        Ok(())
    })?;
    keys.compress_ns = Some(plain);
    keys.feedback_ns = Some((fed - plain).max(0.0));
    keys.decompress_ns = Some(nanos_each(LENGTH, || {
        for (at, range) in ranges() {
            let sums = &sums[range.clone()];
            block(at, none).decompress8(sums, 2, &mut work, &mut mean[range])?;
        }
        Ok(())
    })?);
    Ok(())
}

/// A header of a job's DATA.
fn header(worker: u8, slot: u16, round: u32) -> Header {
    Header {
        table: TableId(1),
        round: Round(round),
        slot: SlotId(slot),
        ..Header::new(Kind::Data, WORKERS, JobId(1), WorkerId(worker), Cookie(9))
    }
}

struct Count(usize);

impl Sink for Count {
    fn unicast(&mut self, _: Endpoint, _: Ecn, _: &[u8]) {
        self.0 += 1;
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.0 += members.len();
        black_box(packet);
    }
}

/// Sockets, and what is done with what they bring.
fn packets(keys: &mut Keys) -> Result<()> {
    let open = || UdpIo::bind(UdpConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).map_err(failure);
    let (mut one, mut other) = (open()?, open()?);
    let to = other.local();
    let mut exchange = |length: usize| -> Result<(f64, f64)> {
        let run = vec![0x5A; RUN * length];
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let mut all = vec![0; RUN * RUNS * length];
        for turn in 0..=20 * REPEAT {
            let began = thread_time();
            for _ in 0..RUNS {
                one.send_run(to, &run, length).map_err(failure)?;
            }
            let between = thread_time();
            let mut got = 0;
            // Whatever the kernel has dropped does not come.
            while got < RUN * RUNS && other.wait(Duration::from_millis(20)).map_err(failure)? {
                other
                    .recv_burst(&mut |_, packet| {
                        let place = got % (RUN * RUNS) * length;
                        all[place..place + packet.len()].copy_from_slice(packet);
                        got += 1;
                    })
                    .map_err(failure)?;
            }
            let ended = thread_time();
            if turn > 0 && got == RUN * RUNS {
                sent.push((between - began).as_secs_f64() * 1e9 / got as f64);
                received.push((ended - between).as_secs_f64() * 1e9 / got as f64);
            }
        }
        if sent.is_empty() {
            return Err(failure("packets do not come through the loopback interface"));
        }
        Ok((median(sent), median(received)))
    };
    let data = HEADER_LEN + PACKET / 2;
    let result = HEADER_LEN + PACKET;
    let (send_data, receive_data) = exchange(data)?;
    let (send_result, receive_result) = exchange(result)?;
    keys.send_ns = Some(send_data);
    keys.receive_ns = Some(receive_result);
    keys.server_send_ns = Some(send_result);
    keys.server_receive_ns = Some(receive_data + measure_adding()?);
    Ok(())
}

/// Raises what packets cost so that all processes of an all-reduce together use what they do: sockets by themselves, in full runs and
/// with nothing between sender and receiver, are cheaper than among others.
fn processes(keys: &mut Keys, rate: Link) -> Result<()> {
    let args = AllreduceArgs {
        workers: vec![2],
        jobs: vec![1],
        racks: 2,
        size: vec![MEASURED],
        rate: vec![rate],
        place: vec![Place::Switch],
        against: None,
        repeat: REPEAT as u32,
        threads: Some(1),
        feedback: false,
        pin: false,
        server: Vec::new(),
        json: true,
        plot: None,
    };
    let measured = measure(&args)?;
    let Some(measured) = measured.first() else { return Ok(()) };
    let coordinates = MEASURED as f64 / 4.0;
    let cpu_ns = measured.cpu_seconds_per_gib * MEASURED as f64 / (1_u64 << 30) as f64 * 1e9;
    let codec_ns = [keys.norm_ns, keys.compress_ns, keys.decompress_ns].into_iter().flatten().sum::<f64>()
        * 2.0
        * coordinates;
    // Each worker's packets are sent, received, answered and received: DATA, and a NORM for each block.
    let packets = 2.0 * (coordinates / PACKET as f64 + coordinates / BLOCK as f64);
    let mut parts =
        [&mut keys.send_ns, &mut keys.receive_ns, &mut keys.server_receive_ns, &mut keys.server_send_ns];
    let alone: f64 = parts.iter().filter_map(|part| **part).sum();
    let factor = ((cpu_ns - codec_ns) / packets / alone).max(1.0);
    parts.iter_mut().for_each(|part| **part = part.map(|ns| ns * factor));
    Ok(())
}

/// What the aggregator takes for a packet.
fn measure_adding() -> Result<f64> {
    let table = LookupTable::solve(4, 30, 1.0 / 32.0)?;
    let mut aggregator = Aggregator::<Simd>::new(Shard::WHOLE, 64 << 20);
    let lookup = Lookup { form: Form::USUAL, values: table.values16() };
    aggregator.install_table(TableId(1), lookup)?;
    let config = JobConfig {
        data_slots: SLOTS,
        norm_slots: SLOTS,
        ..JobConfig::new(JobId(1), Cookie(9), WORKERS, vec![TableId(1)])
    };
    aggregator.install_job(config)?;
    let at = |worker: u8| Peer::from((Ipv4Addr::new(10, 0, 0, worker + 1), 5000));
    for worker in 0..WORKERS {
        aggregator.set_member(JobId(1), WorkerId(worker), Endpoint::udp(at(worker)))?;
    }
    let mut packet = vec![0x3C; HEADER_LEN + PACKET / 2];
    let (mut round, mut sink) = (0, Count(0));
    nanos_each(SLOTS as usize * usize::from(WORKERS), || {
        for slot in 0..SLOTS as u16 {
            for worker in 0..WORKERS {
                header(worker, slot, round).emit(&mut packet);
                aggregator.handle(Endpoint::udp(at(worker)), &packet, &mut sink);
            }
        }
        round += 1;
        if sink.0 == round as usize * SLOTS as usize * usize::from(WORKERS) {
            Ok(())
        } else {
            Err(failure("a packet was dropped"))
        }
    })
}

/// Half of a round trip between two threads that sleep meanwhile, beside what their packets cost, in microseconds.
fn wake(packet_ns: f64) -> Result<f64> {
    let open = || UdpIo::bind(UdpConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).map_err(failure);
    let (mut one, mut other) = (open()?, open()?);
    let (here, there) = (one.local(), other.local());
    let echo = thread::spawn(move || {
        let patience = Duration::from_millis(500);
        let mut seen = 0;
        while seen < TRIPS && other.wait(patience).unwrap_or(false) {
            let got = other.recv_burst(&mut |_, _| {}).unwrap_or(0);
            seen += got;
            if got > 0 && other.send_run(here, &[1; 64], 64).is_err() {
                return;
            }
        }
    });
    let mut trips = Vec::new();
    for _ in 0..TRIPS {
        let began = Instant::now();
        one.send_run(there, &[1; 64], 64).map_err(failure)?;
        let mut got = 0;
        while got == 0 && one.wait(Duration::from_millis(100)).map_err(failure)? {
            got = one.recv_burst(&mut |_, _| {}).map_err(failure)?;
        }
        if got > 0 {
            trips.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    let _ = echo.join();
    Ok((median(trips) / 2.0 - packet_ns / 1e3).max(0.0))
}

/// What a ring does: bytes through TCP, additions, and for int8 the way there and back.
fn ring(keys: &mut Keys) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failure)?;
    let to = listener.local_addr().map_err(failure)?;
    let sender = thread::spawn(move || -> std::io::Result<Duration> {
        let mut stream = TcpStream::connect(to)?;
        let piece = vec![1; 1 << 20];
        let began = thread_time();
        for _ in 0..STREAM >> 20 {
            stream.write_all(&piece)?;
        }
        Ok(thread_time() - began)
    });
    let (mut stream, _) = listener.accept().map_err(failure)?;
    let (mut piece, began) = (vec![0; 1 << 20], thread_time());
    while stream.read(&mut piece).map_err(failure)? > 0 {}
    let received = thread_time() - began;
    let sent = sender.join().map_err(|_| failure("the sender has panicked"))?.map_err(failure)?;
    keys.tcp_byte_ns = Some((sent + received).as_secs_f64() * 1e9 / (2 * STREAM) as f64);
    let x: Vec<f32> = (0..LENGTH).map(|i| (i % 1000) as f32).collect();
    let mut sum = vec![0.5_f32; LENGTH];
    keys.add_ns = Some(nanos_each(LENGTH, || {
        sum.iter_mut().zip(&x).for_each(|(sum, x)| *sum += x);
        black_box(&mut sum);
        Ok(())
    })?);
    let mut bytes: Vec<i8> = (0..LENGTH).map(|i| (i % 255) as i8).collect();
    keys.requantize_ns = Some(nanos_each(LENGTH, || {
        for (bytes, x) in bytes.chunks_mut(2048).zip(x.chunks(2048)) {
            let scale = black_box(0.01_f32);
            let most = bytes
                .iter()
                .zip(x)
                .fold(0.0_f32, |most, (byte, x)| most.max((f32::from(*byte) * scale + x).abs()));
            let back = 127.0 / most.max(f32::MIN_POSITIVE);
            for (byte, x) in bytes.iter_mut().zip(x) {
                *byte = ((f32::from(*byte) * scale + x) * back) as i8;
            }
        }
        black_box(&mut bytes);
        Ok(())
    })?);
    Ok(())
}
