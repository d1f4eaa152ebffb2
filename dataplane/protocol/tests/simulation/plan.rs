//! What the workers of a job reduce, and what must come out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::aggregator::{JobConfig, Kernels, Level, Lookup, Racks, Scalar};
use thc_protocol::wire::{Choice, Form, Norm, Rack, Table, Tables};
use thc_protocol::worker::{PacketId, Parameters, PartSpec};
use thc_protocol::{Cookie, JobId, Lane, Policy, Rank, TableId, WorkerId};
use thc_support::random::Rng;

/// One all-reduce as each worker calls it.
#[derive(Clone, Debug)]
pub struct CallPlan {
    pub length: u32,
    pub key: u32,
    /// Packets by partition.
    pub packets: Vec<u32>,
    /// Which of the job's tables each partition takes, counted round and round, or RAW.
    pub choices: Vec<Option<u8>>,
    /// Norms by worker and partition.
    pub norms: Vec<Vec<u32>>,
}

impl CallPlan {
    /// A call of random size and norms, with zero partitions; `nan` is the chance that it must fail.
    pub fn random(rng: &mut Rng, workers: impl Into<u16>, largest: u64, nan: f64) -> CallPlan {
        let workers = workers.into();
        let partitions = rng.pick(&[1, 1, 1, 2, 3, 7]);
        let packets: Vec<u32> = (0..partitions).map(|_| rng.between(1, largest) as u32).collect();
        let zero: Vec<bool> = (0..partitions).map(|_| rng.chance(0.15)).collect();
        let mut norms: Vec<Vec<u32>> = (0..workers)
            .map(|_| {
                let value = |&zero: &bool, rng: &mut Rng| {
                    if zero || rng.chance(0.1) { 0 } else { (rng.below(1 << 20) as f32 + 0.5).to_bits() }
                };
                zero.iter().map(|zero| value(zero, rng)).collect()
            })
            .collect();
        while rng.chance(nan) {
            let worker = rng.below(u64::from(workers)) as usize;
            norms[worker][rng.below(partitions) as usize] = Norm::non_finite(Rank(worker as u16));
        }
        CallPlan {
            length: packets.iter().sum::<u32>() * 1024,
            choices: (0..partitions).map(|_| (!rng.chance(0.3)).then(|| rng.next() as u8)).collect(),
            key: rng.next() as u32,
            packets,
            norms,
        }
    }

    pub fn parts(&self, worker: u16, tables: &Tables) -> Vec<PartSpec> {
        let length = self.length;
        let norms = &self.norms[usize::from(worker)];
        let all = self.packets.iter().zip(norms).enumerate();
        all.map(|(i, (&packets, &norm))| PartSpec { choice: self.choice(i, tables), length, packets, norm })
            .collect()
    }

    /// How a partition travels.
    pub fn choice(&self, partition: usize, tables: &Tables) -> Choice {
        let place = self.choices[partition].map(|place| usize::from(place) % tables.len());
        place.map_or(Choice::Raw, |place| Choice::Table(tables[place].id))
    }

    /// The maximum of a partition.
    pub fn maximum(&self, partition: usize) -> u32 {
        self.norms.iter().map(|of| of[partition]).max().unwrap()
    }

    /// The worker that the error must name, if the call must fail: that of the first such partition.
    pub fn non_finite(&self) -> Option<Rank> {
        (0..self.packets.len()).find_map(|p| Norm::non_finite_worker(self.maximum(p)))
    }
}

/// A job and its calls.
#[derive(Clone, Debug)]
pub struct JobPlan {
    pub config: JobConfig,
    pub policy: Policy,
    pub deadline: Duration,
    pub timeout: Duration,
    pub min_rto: Duration,
    pub max_rto: Duration,
    pub first_seq: u64,
    pub tables: Tables,
    /// Members and quorum of each rack, if there are racks.
    pub racks: Vec<(u8, u8)>,
    pub calls: Vec<CallPlan>,
}

impl JobPlan {
    /// A reliable job of full quorum without calls.
    pub fn new(job: u16, workers: u8, data_slots: u32, norm_slots: u32, lane: Lane) -> JobPlan {
        let usual = Form::new(4, lane).unwrap();
        let fits = |form: &Form| {
            u32::from(workers) * u32::from(lookup(*form).granularity()) <= form.lane().max_sum()
        };
        let others = Form::ALL.into_iter().filter(|form| *form != usual && fits(form));
        let tables: Vec<Table> = [usual].into_iter().chain(others).map(table).collect();
        JobPlan {
            config: JobConfig {
                data_slots,
                norm_slots,
                ..JobConfig::new(
                    JobId(job),
                    Cookie(0xABCD_0000 + u32::from(job)),
                    workers,
                    tables.iter().map(|table| table.id).collect(),
                )
            },
            policy: Policy::Reliable,
            deadline: Duration::from_millis(50),
            timeout: Duration::from_secs(30),
            min_rto: Duration::from_millis(20),
            max_rto: Duration::from_secs(1),
            first_seq: 0,
            tables: Tables::new(&tables).unwrap(),
            racks: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Starts both streams so that rounds wrap after `rounds` rounds of the data slots.
    pub fn wrap_after(&mut self, rounds: u64) {
        let slots = u64::from(self.config.data_slots) * u64::from(self.config.norm_slots);
        self.first_seq = (slots << 32) - rounds * slots;
    }

    /// A reliable job of workers in racks of these sizes.
    pub fn in_racks(job: u16, sizes: &[u8], data_slots: u32, norm_slots: u32) -> JobPlan {
        let racks = Racks {
            count: sizes.len() as u8,
            largest: sizes.iter().copied().max().unwrap(),
            total: sizes.iter().map(|&size| u16::from(size)).sum(),
        };
        let fits = |form: &Form| {
            let config =
                JobConfig { level: Level::Root(racks), ..JobPlan::new(job, 1, 2, 2, Lane::Bits8).config };
            config.check_sum(&lookup(*form)).is_ok()
        };
        let tables: Vec<Table> = Form::ALL.into_iter().filter(fits).map(table).collect();
        let mut plan = JobPlan::new(job, 1, data_slots, norm_slots, Lane::Bits8);
        plan.config.tables = tables.iter().map(|table| table.id).collect();
        plan.config.level = Level::Root(racks);
        plan.tables = Tables::new(&tables).unwrap();
        plan.racks = sizes.iter().map(|&size| (size, size)).collect();
        plan
    }

    /// Workers, of all racks.
    pub fn workers(&self) -> u16 {
        self.config.level.racks().map_or(self.config.workers.into(), |racks| racks.total)
    }

    /// Workers that are in a sum at least.
    pub fn quorum(&self) -> u16 {
        if self.racks.is_empty() {
            return self.config.quorum.into();
        }
        self.racks.iter().map(|&(_, quorum)| u16::from(quorum)).sum()
    }

    /// A worker's rack, its number there, and what it is told of that.
    pub fn place(&self, worker: u16) -> (u8, u8, Option<Rack>) {
        let mut first = 0;
        for (rack, &(size, _)) in (0u8..).zip(&self.racks) {
            if worker < first + u16::from(size) {
                let told = Rack {
                    racks: self.racks.len() as u8,
                    rack: WorkerId(rack),
                    workers: self.workers(),
                    quorum: self.quorum(),
                    first: Rank(first),
                    layout: 0,
                };
                return (rack, (worker - first) as u8, Some(told));
            }
            first += u16::from(size);
        }
        (0, worker as u8, None)
    }

    pub fn parameters(&self, number: u16, shards: u8) -> Parameters {
        let (rack, worker, told) = self.place(number);
        let (workers, quorum) =
            self.racks.get(usize::from(rack)).copied().unwrap_or((self.config.workers, self.config.quorum));
        Parameters {
            job: self.config.job,
            cookie: self.config.cookie,
            worker: WorkerId(worker),
            workers,
            quorum,
            data_slots: self.config.data_slots,
            norm_slots: self.config.norm_slots,
            credit: 0,
            first_window: 1 << 16,
            policy: self.policy,
            deadline: self.deadline,
            tables: self.tables,
            shards,
            timeout: self.timeout,
            patience: Duration::ZERO,
            min_rto: self.min_rto,
            max_rto: self.max_rto,
            first_seq: self.first_seq,
            rack: told,
            marks: false,
        }
    }

    /// What a worker sends: random, and different for every worker, call, partition and packet.
    pub fn contribution(&self, worker: u16, place: PacketId, payload: &mut [u8]) {
        let mut rng = Rng::new(
            u64::from(self.config.job.0) << 56
                ^ u64::from(worker) << 40
                ^ place.call << 34
                ^ u64::from(place.partition) << 24
                ^ u64::from(place.packet),
        );
        for chunk in payload.chunks_exact_mut(8) {
            chunk.copy_from_slice(&rng.next().to_be_bytes());
        }
    }

    /// The exact sums of these workers' packets, as a RESULT carries them.
    pub fn sums(&self, workers: impl Iterator<Item = u16>, place: PacketId) -> Vec<u8> {
        let choice = self.calls[place.call as usize].choice(place.partition as usize, &self.tables);
        let Choice::Table(id) = choice else {
            let (mut sums, mut payload) = (vec![0; 1024], vec![0; 1024]);
            for worker in workers {
                self.contribution(worker, place, &mut payload);
                Scalar::raw_add(&mut sums, &payload);
            }
            return sums;
        };
        let table = &self.tables[self.tables.place(id).unwrap()];
        let (mut sums, mut payload) = (vec![0; table.form.result_len()], vec![0; table.form.data_len()]);
        for worker in workers {
            self.contribution(worker, place, &mut payload);
            Scalar::lookup(table.form, true, &mut sums, &table.values, &payload);
        }
        sums
    }
}

/// A table of this form, the same in every job.
pub fn lookup(form: Form) -> Lookup {
    let mut values = [0; 16];
    if !form.is_identity() {
        let factor = if form == Form::new(4, Lane::Bits16).unwrap() { 17 } else { 1 };
        (0u8..).zip(&mut values[..1 << form.width()]).for_each(|(i, value)| *value = i * factor);
    }
    Lookup { form, values }
}

fn table(form: Form) -> Table {
    let place = Form::ALL.iter().position(|known| *known == form).unwrap();
    let Lookup { values, .. } = lookup(form);
    Table { id: TableId(1 + place as u8), bits: form.width(), form, values, ..Table::default() }
}

/// Sums by call, partition and packet.
type Sums = HashMap<(u64, u32, u32), Rc<[u8]>>;

/// A job's plan with the exact sums that have been worked out already.
#[derive(Debug)]
pub struct Truth {
    pub plan: JobPlan,
    full: RefCell<Sums>,
}

impl Truth {
    pub fn new(plan: JobPlan) -> Truth {
        Truth { plan, full: RefCell::default() }
    }

    /// Checks that `sums` is the sum of exactly `count` different workers' packets of this place.
    pub fn check(&self, place: PacketId, count: u16, sums: &[u8]) {
        let n = self.plan.workers();
        if count == n {
            let key = (place.call, place.partition, place.packet);
            let mut full = self.full.borrow_mut();
            let expected = full.entry(key).or_insert_with(|| self.plan.sums(0..n, place).into());
            assert!(**expected == *sums, "job {}: wrong sum of {place:?}", self.plan.config.job);
            return;
        }
        assert!(count >= self.plan.quorum(), "{place:?}: {count} workers are no quorum");
        let matching = (0u64..1 << n)
            .filter(|set| set.count_ones() == u32::from(count))
            .filter(|set| self.plan.sums((0..n).filter(|w| set >> w & 1 == 1), place) == sums)
            .count();
        assert_eq!(matching, 1, "{place:?}: sums of {count} workers are those of no such set");
    }
}
