//! The threads that compute: the engine's, and others beside it while it receives and sends.
//!
//! Which thread does which task, and when, does not change the results: each task works on its own memory,
//! and random numbers are functions of the coordinate.

use super::Engine;
use super::calls::{Active, BufferPool, GROUP, Out, PartitionGroup, Stage};
use super::compressor::Compressor;
use super::loan::Bytes;
use super::memory::{Borrowed, CallMemory, Memory, Pieces};
use super::task::{Compress, Fed, Kind, Task, Work};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::partition::MAX_PARTITION;
use thc_transport::RetainedTx;

/// Tasks that each helper has in its queue, so that it finds one when it has done another.
const EACH: usize = 2;
/// The engine's thread receives and sends this many times in a row before it computes once.
const EXCHANGES: u32 = 8;
/// The engine's thread waits this long for a helper before it looks for packets again.
const GLANCE: Duration = Duration::from_micros(30);

/// A task that was done, and its result or the panic that ended it.
pub(super) type Done<'d> = (Task<'d>, Result<Result<(), CodecError>, Box<dyn Any + Send>>);

/// The threads that compute beside the engine's, for as long as some memory is lent.
pub(super) struct TaskPool<'c, 'd> {
    /// Hands a task to a helper, if there are any.
    spawn: Option<&'c dyn Fn(Task<'d>)>,
    /// The most tasks that helpers have at a time, and how many they have.
    most: usize,
    out: usize,
    done: &'c Receiver<Done<'d>>,
}

impl<'d> TaskPool<'_, 'd> {
    fn wants_more(&self) -> bool {
        self.out < self.most
    }

    fn give(&mut self, task: Task<'d>) {
        if let Some(spawn) = self.spawn {
            self.out += 1;
            spawn(task);
        }
    }

    fn next_done(&mut self) -> Option<Done<'d>> {
        let done = self.done.try_recv().ok()?;
        self.out -= 1;
        Some(done)
    }

    /// Waits a little for a helper.
    pub fn glance(&mut self) -> Option<Done<'d>> {
        let done = self.done.recv_timeout(GLANCE).ok()?;
        self.out -= 1;
        Some(done)
    }

    pub fn is_busy(&self) -> bool {
        self.out > 0
    }
}

/// Hands tasks to a pool's threads.
fn spawner<'d: 'scope, 'scope>(
    scope: &rayon::Scope<'scope>,
    compressor: &Arc<Compressor>,
    sender: &Sender<Done<'d>>,
) -> impl Fn(Task<'d>) {
    move |mut task| {
        let (compressor, sender) = (Arc::clone(compressor), sender.clone());
        scope.spawn(move |_| {
            let result = catch_unwind(AssertUnwindSafe(|| task.run(&compressor)));
            // The receiver is gone only if the engine's thread has panicked.
            let _ = sender.send((task, result));
        });
    }
}

impl<I: RetainedTx> Engine<I> {
    /// Lends the helpers to `work`, and the memory of the calls at work; when this returns, no thread has any of
    /// that memory.
    pub(super) fn with_memory<T>(
        &mut self,
        lent: &mut Borrowed<'_>,
        work: impl for<'c, 'd> FnOnce(&mut Self, &mut Memory<'d>, &mut TaskPool<'c, 'd>) -> T,
    ) -> T {
        let (first, at_work) = (self.calls.first(), self.calls.at_work());
        let feedback = std::mem::take(&mut self.feedback);
        let calls = self.calls.iter_mut().take(at_work);
        let mut taken: Vec<_> = calls.map(|(_, active)| active.take_memory()).collect();
        let mut memory = Memory { first, calls: Vec::with_capacity(taken.len()) };
        let mut lent = lent.get();
        for ((_, active), (owned, left)) in self.calls.iter_mut().zip(&mut taken) {
            let ticket = active.ticket;
            let mut borrowed = || lent.take_if(|(call, x)| *call == ticket && x.len() == active.length);
            let x = owned.as_deref_mut().or_else(|| borrowed().map(|(_, x)| x));
            memory.calls.push(CallMemory {
                x: x.map(Pieces::single).unwrap_or_default(),
                kept: active.feedback.as_ref().map_or(&[], |kept| feedback.chunks(kept.key)),
                left: Pieces::consecutive(left.iter_mut().map(|chunk| &mut **chunk)),
            });
        }
        let (sender, done) = unbounded();
        let result = match self.pool.clone() {
            None => work(self, &mut memory, &mut TaskPool { spawn: None, most: 0, out: 0, done: &done }),
            Some(pool) => {
                let most = EACH * pool.current_num_threads();
                let compressor = Arc::clone(&self.session.compressor);
                pool.in_place_scope(|scope| {
                    let spawn = spawner(scope, &compressor, &sender);
                    work(self, &mut memory, &mut TaskPool { spawn: Some(&spawn), most, out: 0, done: &done })
                })
            }
        };
        while let Ok(done) = done.try_recv() {
            self.take_done(&mut memory, done);
        }
        drop(memory);
        drop(done);
        drop(sender);
        for (number, memory) in (first..).zip(taken) {
            if let Some(active) = self.calls.get_mut(number) {
                active.put_memory(memory);
            }
        }
        self.feedback = feedback;
        self.deliver_done();
        result
    }

    /// Receives and sends, hands tasks to helpers, and does some itself, of as many coordinates as one group has, if
    /// nothing came and nothing was to be sent. Returns whether there was anything to do.
    pub(super) fn turn<'d>(&mut self, memory: &mut Memory<'d>, tasks: &mut TaskPool<'_, 'd>) -> bool {
        let busy = match self.exchange(memory) {
            Ok(busy) => busy,
            Err(error) => {
                self.end(error);
                return false;
            }
        };
        let sent = self.calls.submitted();
        let mut worked = busy;
        while let Some(done) = tasks.next_done() {
            worked = true;
            self.take_done(memory, done);
        }
        while tasks.wants_more() {
            let Some(task) = self.next_task(memory, sent) else { break };
            tasks.give(task);
        }
        // Packets go first, but their results must be computed as well.
        self.recent.exchanges = if busy { self.recent.exchanges + 1 } else { 0 };
        if busy && self.recent.exchanges < EXCHANGES {
            return true;
        }
        self.recent.exchanges = 0;
        let mut left = self.group_len();
        while left > 0
            && let Some(mut task) = self.next_task(memory, sent)
        {
            worked = true;
            left = left.saturating_sub(task.coordinates());
            let result = task.run(&self.session.compressor);
            self.take_done(memory, (task, Ok(result)));
        }
        worked
    }

    /// The most urgent task there is, of the oldest call that has any of its kind. The NORMs of `sent` calls are sent.
    fn next_task<'d>(&mut self, memory: &mut Memory<'d>, sent: u64) -> Option<Task<'d>> {
        // Packets that the window has room for are more urgent than other work.
        let worker = &mut self.session.worker;
        let urgent = worker.next_data().filter(|_| worker.has_room());
        let Self { calls, ready, .. } = self;
        let free = ready.count < ready.limit;
        let behind =
            calls.iter_mut().take(memory.calls.len()).any(|(_, active)| active.to_finish.len() > ready.limit);
        let mut task = if behind { calls.next_task(Kind::Finish, memory) } else { None };
        if let Some(at) = urgent.filter(|_| free && task.is_none()) {
            task = memory.call(at.call).and_then(|memory| calls.task_of(Kind::Compress, at.call, memory));
        }
        let others = [Kind::Measure, Kind::Finish, Kind::FeedBack, Kind::Compress];
        let mut kinds = others.into_iter().filter(|&kind| free || kind != Kind::Compress);
        let task = task.or_else(|| kinds.find_map(|kind| calls.next_task(kind, memory)));
        // NORMs go first: rotating fills the time until their results come.
        let is_sent = calls.submitted() == sent;
        let task = task.or_else(|| if is_sent { calls.next_rotation(memory) } else { None })?;
        ready.count += usize::from(matches!(task.work, Work::Compress(_)));
        Some(task)
    }

    /// Takes in the outcome of a task.
    pub(super) fn take_done<'d>(&mut self, memory: &mut Memory<'d>, (task, result): Done<'d>) {
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        self.stats.compression += task.took;
        task.count(&mut self.computed);
        self.calls.note(result);
        let Task { call, group, parts, x, work, .. } = task;
        let Some(offset) = parts.first().map(|at| at.part.offset) else { return };
        // A call that failed meanwhile has no memory any more.
        let (Some(memory), Some((active, buffers))) = (memory.call(call), self.calls.get_with_buffers(call))
        else {
            return;
        };
        if let Some(x) = x {
            memory.x.put(offset, x);
        }
        match work {
            Work::Measure { norms, .. } => {
                let places = active.groups[group].parts.clone();
                active.parts[places].iter_mut().zip(norms).for_each(|(at, norm)| at.norm = norm);
                if active.count_measured() {
                    self.submit_measured();
                }
            }
            Work::Rotate { work, .. } => match &mut active.groups[group].out {
                out @ Out::Rotating => *out = Out::Rotated(work),
                // All norms are zero, as the maxima have shown meanwhile.
                _ => buffers.take_work(work),
            },
            Work::Compress(Compress { fed, holds, work, packed, .. }) => {
                if let Some(Fed { left, .. }) = fed {
                    memory.left.put(offset, left);
                }
                let packets = Bytes::Own(packed);
                let residual = if holds {
                    Some(work)
                } else {
                    buffers.take_work(work);
                    None
                };
                if active.groups[group].packets > 0 {
                    active.groups[group].out = Out::Ready { packets, residual };
                    return;
                }
                buffers.take_packed(packets);
                if active.has_left_out(group) {
                    active.to_finish.push_back(group);
                }
                active.end_sending(group);
                self.ready.count -= 1;
            }
            Work::FeedBack { residual, left } => {
                memory.left.put(offset, left);
                buffers.take_work(residual);
                active.end_sending(group);
                self.ready.count -= 1;
            }
            Work::Finish { sums, work, .. } => {
                if let Some(sums) = sums {
                    buffers.take_sums(sums);
                }
                buffers.take_work(work);
                active.end_mean(group);
            }
        }
    }
}

impl Active {
    /// The call's next task of a kind, if there is one and its memory is there.
    pub(super) fn task<'d>(
        &mut self,
        kind: Kind,
        call: u64,
        memory: &mut CallMemory<'d>,
        buffers: &mut BufferPool,
    ) -> Option<Task<'d>> {
        if self.is_remote() {
            return None;
        }
        let group = match kind {
            Kind::Measure => match self.stage {
                Stage::Measuring { begun, .. } if begun < self.groups.len() => begun,
                _ => return None,
            },
            Kind::Rotate => self.next_to_rotate()?,
            Kind::Compress => self.next_to_compress()?,
            Kind::Finish => *self.to_finish.front()?,
            Kind::FeedBack => *self.to_feed_back.front()?,
        };
        let state = &mut self.groups[group];
        let range = state.range.clone();
        let parts = self.parts[state.parts.clone()].to_vec();
        let x = match kind {
            Kind::FeedBack => None,
            _ => Some(memory.x.take(range.clone())?),
        };
        let kept = || {
            let within = range.start % MAX_PARTITION;
            memory.kept.get(range.start / MAX_PARTITION)?.get(within..within + range.len())
        };
        let largest = || parts.iter().map(|at| at.part.padded).max().unwrap_or(0);
        let work = match kind {
            Kind::Measure => {
                if let Stage::Measuring { begun, .. } = &mut self.stage {
                    *begun += 1;
                }
                Work::Measure { kept: kept(), norms: Vec::with_capacity(parts.len()) }
            }
            Kind::Rotate => {
                state.out = Out::Rotating;
                Work::Rotate { kept: kept(), work: buffers.work(state.padded) }
            }
            Kind::Compress => {
                self.stage = Stage::Compressing { next: group + 1 };
                let before = std::mem::replace(&mut state.out, Out::Compressing);
                let fed = kept().and_then(|kept| Some(Fed { kept, left: memory.left.take(range.clone())? }));
                let holds = self.feedback.as_ref().is_some_and(|feedback| feedback.holds);
                let holds = holds && state.packets > 0 && state.form.is_some();
                let (rotated, work) = match before {
                    Out::Rotated(work) => (true, work),
                    _ => (false, buffers.work(if holds { state.padded } else { largest() })),
                };
                let packed = buffers.packed_buffer(state.padded * state.width() / 8);
                Work::Compress(Compress { fed, rotated, holds, work, packed })
            }
            Kind::Finish => {
                self.to_finish.pop_front();
                let apart = parts.iter().any(|at| at.far || at.part.len < at.part.padded);
                let work = if apart { buffers.work(largest()) } else { Buffer::zeroed(0) };
                Work::Finish { sums: state.sums.take(), held: std::mem::take(&mut state.held), work }
            }
            Kind::FeedBack => {
                let left = memory.left.take(range)?;
                self.to_feed_back.pop_front();
                let Out::Held(residual) = std::mem::replace(&mut state.out, Out::FeedingBack) else {
                    return None;
                };
                Work::FeedBack { residual, left }
            }
        };
        Some(Task { call, group, parts, x, work, took: Duration::ZERO })
    }

    /// The next group that is to be rotated before its range is known, in a call of [`GROUP`] coordinates at most. Of a larger
    /// call, what is rotated leaves the nearest cache, and the first packets hide the time that later groups take. RAW is not
    /// rotated.
    fn next_to_rotate(&self) -> Option<usize> {
        let waits = |group: &PartitionGroup| matches!(group.out, Out::Waiting) && group.form.is_some();
        let is_small = matches!(self.stage, Stage::Measured) && self.length <= GROUP;
        if is_small { self.groups.iter().position(waits) } else { None }
    }

    /// The next group that is to be compressed. One that a task still rotates comes before those behind it.
    fn next_to_compress(&mut self) -> Option<usize> {
        let Stage::Compressing { next } = self.stage else { return None };
        let rest = &self.groups[next..];
        let next = next + rest.iter().position(PartitionGroup::is_uncompressed).unwrap_or(rest.len());
        self.stage = Stage::Compressing { next };
        let group = self.groups.get(next)?;
        if matches!(group.out, Out::Rotating) { None } else { Some(next) }
    }
}
