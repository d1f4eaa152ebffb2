//! Rings, as the schedule of their messages: each of n ranks sends a piece of the tensor to the next one, n − 1 times to add up and
//! n − 1 times to tell (the all-reduce of gloo, NCCL and others).

use std::time::Duration;

use super::cores::Cores;

/// Payload of a TCP segment of 1500 bytes, and the headers around it.
const PAYLOAD: f64 = 1448.0;
const HEADERS: f64 = 52.0;
/// Parts of a piece: one is on the wire while another is added up.
const PARTS: usize = 2;

/// A ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Ranks.
    pub workers: usize,
    /// Coordinates of the tensor.
    pub coordinates: u64,
    /// That travel for each coordinate.
    pub bytes: f64,
    /// Bits a second of a rank's link, each way.
    pub rate: f64,
    /// Bytes around an IP packet.
    pub framing: f64,
    /// From a rank to the next.
    pub latency: Duration,
    /// Until a rank that waits runs.
    pub wake: Duration,
    /// Nanoseconds of a core for a byte that TCP sends, or receives.
    pub byte_ns: f64,
    /// Nanoseconds of a core for a coordinate that is added to one's own, and for one that is only taken over.
    pub add_ns: f64,
    pub take_ns: f64,
}

impl Ring {
    /// When each rank has the whole sum, if it began at its `start`. Ranks with the same number in `pools` share those cores.
    pub fn ends(
        &self,
        start: &[Duration],
        pools: &mut [Cores],
        of: impl Fn(usize) -> usize,
    ) -> Vec<Duration> {
        let n = self.workers;
        if n < 2 {
            return start.to_vec();
        }
        let coordinates = self.coordinates as f64 / n as f64 / PARTS as f64;
        let payload = coordinates * self.bytes;
        let on_wire = payload * (1.0 + (HEADERS + self.framing) / PAYLOAD);
        let wire = Duration::from_secs_f64(on_wire * 8.0 / self.rate);
        let nanos = |ns: f64| Duration::from_secs_f64(ns / 1e9);
        let (copy, add) = (nanos(payload * self.byte_ns), nanos(coordinates * self.add_ns));
        let take = nanos(coordinates * self.take_ns);
        // When each rank's thread, and its link, is free; and when each part of its latest piece has come.
        let mut thread = start.to_vec();
        let mut link = vec![Duration::ZERO; n];
        let mut here: Vec<[Duration; PARTS]> = start.iter().map(|at| [*at; PARTS]).collect();
        let steps = 2 * (n - 1);
        for step in 0..=steps {
            let mut next = vec![[Duration::ZERO; PARTS]; n];
            for part in 0..PARTS {
                for rank in 0..n {
                    let received = match step {
                        0 => Duration::ZERO,
                        _ if step < n => copy + add,
                        _ => copy + take,
                    };
                    let send = if step < steps { copy } else { Duration::ZERO };
                    let came = here[rank][part];
                    let waited = came > thread[rank] && step > 0;
                    let ready = came.max(thread[rank]) + if waited { self.wake } else { Duration::ZERO };
                    let pool = &mut pools[of(rank)];
                    let (begins, core) = pool.next(ready);
                    let done = begins + received + send;
                    pool.occupy(core, done);
                    thread[rank] = done;
                    if step < steps {
                        // The kernel sends while it copies.
                        let leaves = link[rank].max(begins + received) + wire;
                        link[rank] = leaves;
                        next[(rank + 1) % n][part] = leaves.max(done) + self.latency;
                    }
                }
            }
            here = next;
        }
        thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(workers: usize) -> Ring {
        Ring {
            workers,
            coordinates: 16 << 20,
            bytes: 4.0,
            rate: 1e9,
            framing: 14.0,
            latency: Duration::from_micros(5),
            wake: Duration::from_micros(5),
            byte_ns: 0.0,
            add_ns: 0.0,
            take_ns: 0.0,
        }
    }

    fn seconds(ring: &Ring, start: &[Duration]) -> f64 {
        let mut pools = vec![Cores::new(1); ring.workers];
        ring.ends(start, &mut pools, |rank| rank).into_iter().max().unwrap_or_default().as_secs_f64()
    }

    /// What costs nothing but the link takes 2(n − 1)/n of the tensor.
    #[test]
    fn a_ring_takes_its_share_of_the_tensor_on_each_link() {
        for workers in [2, 4, 8, 64] {
            let bytes = 4.0 * f64::from(16 << 20) * (1.0 + 66.0 / 1448.0);
            let limit = 2.0 * (workers as f64 - 1.0) / workers as f64 * bytes * 8.0 / 1e9;
            let took = seconds(&ring(workers), &vec![Duration::ZERO; workers]);
            let more = took - limit;
            assert!((0.0..0.05 * limit + 1e-3).contains(&more), "{workers}: {took} for {limit}");
        }
    }

    /// All wait for the last one.
    #[test]
    fn a_late_rank_delays_all() {
        let mut start = vec![Duration::ZERO; 4];
        let ring = Ring { add_ns: 0.3, byte_ns: 0.2, ..ring(4) };
        let on_time = seconds(&ring, &start);
        start[2] = Duration::from_secs(1);
        let late = seconds(&ring, &start);
        assert!((late - on_time - 1.0).abs() < 0.35 * on_time, "{late} {on_time}");
    }
}
