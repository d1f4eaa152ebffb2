//! A group of workers that reduce together.

use crate::controller::Reporter;
use crate::driver::Driver;
use crate::engine::{Engine, EngineConfig, NAP, RestoredFeedback};
use crate::probe::{ProbeAnswer, ask};
use crate::rendezvous::rendezvous;
use crate::{AnyIo, Call, GroupConfig, Handle, Packed, PackedLayout, PackedTensor, Span, Stats, WorkerError};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::wire::MAX_PACKET;
use thc_protocol::worker::Parameters;
use thc_protocol::{JobId, WorkerId};

/// This process's membership in a job. Dropping it leaves the job.
pub struct Group {
    driver: Arc<Driver<AnyIo>>,
    background: Option<JoinHandle<()>>,
    reporter: Option<Reporter>,
    config: GroupConfig,
}

impl Group {
    /// Joins a job; returns when all its workers have joined.
    ///
    /// # Errors
    /// [`WorkerError::Silent`] if the parameter server does not answer, [`WorkerError::Join`] if it refuses, or workers are
    /// missing after [`Timeouts::join`](crate::Timeouts::join); [`WorkerError::Controller`] if the controller refuses;
    /// [`WorkerError::Io`] if socket or devices cannot be opened.
    pub fn join(config: GroupConfig) -> Result<Group, WorkerError> {
        Group::join_until(config, Arc::default())
    }

    /// Joins a job as [`Self::join`] does. Once `stop` is true, which a signal handler may do, joining, calls under way and
    /// later ones fail with [`WorkerError::GivenUp`].
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_until(mut config: GroupConfig, stop: Arc<AtomicBool>) -> Result<Group, WorkerError> {
        if let Some(controller) = &config.controller {
            config.seat = controller.find_seat(None, config.timeouts.join, &stop)?;
        }
        let mut io = AnyIo::open(&config)?;
        let (joiners, welcome) = rendezvous(&mut io, &config, &stop)?;
        let engine_config = EngineConfig {
            ps: config.seat.ps,
            job: JobId(config.seat.job),
            worker: WorkerId(config.seat.worker),
            timeout: config.timeouts.progress,
            patience: config.timeouts.patience,
            min_rto: config.timeouts.min_rto,
            rounding: config.rounding,
            threads: config.threads,
        };
        let capacity = io.recv_capacity(MAX_PACKET);
        let engine = Engine::new(io, engine_config, joiners, &welcome, capacity)?;
        let driver = Arc::new(Driver::new(engine, stop)?);
        let for_thread = Arc::clone(&driver);
        let background = std::thread::Builder::new()
            .name(format!("thc-worker-{}", config.seat.worker))
            .spawn(move || for_thread.run_background())?;
        let reporter = match &config.controller {
            Some(controller) => {
                let seen = Arc::downgrade(&driver);
                let stats = move || seen.upgrade()?.with_engine(|engine| Ok(engine.stats())).ok();
                Some(Reporter::start(controller.clone(), config.seat.worker, stats)?)
            }
            None => None,
        };
        Ok(Group { driver, background: Some(background), reporter, config })
    }

    /// Joins anew after the session has ended (a worker restarted, workers disagreed). Error feedback and totals stay.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn rejoin(&self) -> Result<(), WorkerError> {
        self.driver.with_engine(|engine| {
            let mut config = self.config.clone();
            if let Some(controller) = &config.controller {
                // The server may be another one now. The worker keeps its number.
                config.seat = controller.find_seat(
                    Some(config.seat.worker),
                    config.timeouts.join,
                    self.driver.stop(),
                )?;
                engine.set_ps(config.seat.ps);
            }
            let (joiners, welcome) = rendezvous(engine.io_mut(), &config, self.driver.stop())?;
            let capacity = engine.io_mut().recv_capacity(MAX_PACKET);
            self.driver.begin_anew();
            engine.restart(joiners, &welcome, capacity)
        })
    }

    /// Returns whether the parameter server answers within `patience` and has this job. It is for callers that have
    /// lost the server: [`Self::rejoin`] would wait for an absent one. It takes no place in the job. Call it
    /// only between calls: packets for the session are dropped meanwhile.
    ///
    /// # Errors
    /// [`WorkerError::Controller`] if there is one and it does not answer or refuses; [`WorkerError::Io`]; [`WorkerError::Panicked`].
    pub fn find_server(&self, patience: Duration) -> Result<bool, WorkerError> {
        let mut config = self.config.clone();
        if let Some(controller) = &config.controller {
            config.seat = controller.find_seat(Some(config.seat.worker), patience, self.driver.stop())?;
        }
        self.driver.with_engine(|engine| {
            let found = ask(engine.io_mut(), &config, patience, 1)?;
            Ok(matches!(found.answer, Some(ProbeAnswer::Job { unusable: None, .. })))
        })
    }

    /// Gives the session up: every call under way fails with [`WorkerError::GivenUp`], and so does every
    /// later one until [`Self::rejoin`]. It may be called from any thread, whatever other threads are waiting
    /// for, and does not wait itself. The other workers only see that this one stops sending.
    pub fn give_up(&self) {
        self.driver.give_up();
        self.wake();
    }

    /// Replaces `data` by the mean over all workers, compressed, without error feedback: [`Self::call`] with
    /// what is usual.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn allreduce(&self, data: &mut [f32]) -> Result<(), WorkerError> {
        self.call(data, Call::default())
    }

    /// Replaces `data` by the mean over all workers, as `call` says. All workers must call with the same length
    /// and the same [`Call`], in the same order.
    ///
    /// # Errors
    /// [`WorkerError::Call`]: failed on every worker alike, `data` is unchanged, the group goes on.
    /// [`WorkerError::Session`]: the group must [`Self::rejoin`]; `data` may be partly overwritten.
    /// [`WorkerError::Plan`], [`WorkerError::EmptySpan`] and [`WorkerError::NoTable`] if the plan does not fit
    /// this tensor or this job. Error feedback is as before the call in all these cases.
    /// [`WorkerError::Panicked`]: the group is unusable.
    pub fn call(&self, data: &mut [f32], call: Call<'_>) -> Result<(), WorkerError> {
        let result = self.driver.call(data, call);
        self.wake();
        result
    }

    /// Starts an all-reduce of `data` and returns at once; several may be under way. They complete in the
    /// order in which they were started. [`Handle::wait`] returns the mean in the memory of `data`.
    ///
    /// # Errors
    /// [`WorkerError`] if the call itself is wrong; later errors, as of [`Self::call`], come from the handle.
    pub fn start(&self, data: Vec<f32>, call: Call<'_>) -> Result<Handle, WorkerError> {
        let result = self.driver.with_engine(|engine| engine.start(data, call));
        self.wake();
        result
    }

    /// Starts an all-reduce as [`Self::start`] does, of a tensor whose norms, indices and means are computed
    /// elsewhere, such as on a GPU. Norms come with it; [`Packed::numbers`] returns the parameters of compression;
    /// then [`Packed::send`] takes indices and [`Packed::receive`] returns sums, piece by piece. The results must
    /// be those that the codec defines (P28 to P32), so that in one call some workers may compute elsewhere and
    /// others not. Error feedback is the caller's. A [`Packed`] that is dropped before all its indices were sent
    /// ends the session.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_packed(&self, tensor: PackedTensor<'_>, call: Call<'_>) -> Result<Packed, WorkerError> {
        let result = self.driver.with_engine(|engine| engine.start_packed(tensor, call));
        self.wake();
        result
    }

    /// Wakes the background thread.
    fn wake(&self) {
        if let Some(thread) = &self.background {
            thread.thread().unpark();
        }
    }

    /// The partitions, and the pieces of 2^`piece` coordinates, of a [`PackedTensor`] of this plan.
    ///
    /// # Errors
    /// [`WorkerError`] if the plan does not fit the job.
    pub fn packed_layout(&self, plan: &[Span], piece: u8) -> Result<PackedLayout, WorkerError> {
        self.driver.with_engine(|engine| engine.packed_layout(plan, piece))
    }

    /// This worker's number, from the controller if there is one.
    #[must_use]
    pub fn worker(&self) -> u8 {
        self.config.seat.worker
    }

    /// The job's number, from the controller if there is one.
    #[must_use]
    pub fn job(&self) -> u16 {
        self.config.seat.job
    }

    /// Totals since the group was joined.
    ///
    /// # Errors
    /// [`WorkerError::Panicked`].
    pub fn stats(&self) -> Result<Stats, WorkerError> {
        self.driver.with_engine(|engine| Ok(engine.stats()))
    }

    /// The session's parameters: workers, slots, policy.
    ///
    /// # Errors
    /// [`WorkerError::Panicked`].
    pub fn parameters(&self) -> Result<Parameters, WorkerError> {
        self.driver.with_engine(|engine| Ok(*engine.parameters()))
    }

    /// log₂ of the coordinates of a full partition (P4).
    ///
    /// # Errors
    /// [`WorkerError::Panicked`].
    pub fn block(&self) -> Result<u8, WorkerError> {
        self.driver.with_engine(|engine| Ok(engine.block()))
    }

    /// The lookup table of calls that name none.
    ///
    /// # Errors
    /// [`WorkerError::Panicked`].
    pub fn table(&self) -> Result<LookupTable, WorkerError> {
        let first = |engine: &mut Engine<AnyIo>| engine.tables().next().map(|(_, table)| table.clone());
        self.driver.with_engine(|engine| first(engine).ok_or(WorkerError::Closed))
    }

    /// All error feedback, for a checkpoint: key and saved form. It is the feedback after the last successful
    /// call.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps any is under way: wait for its handle first.
    pub fn save_feedback(&self) -> Result<Vec<(u64, Vec<u8>)>, WorkerError> {
        // The engine is free while the snapshot is written, since it must go on answering other workers.
        Ok(self.driver.with_engine(|engine| engine.feedback())?.to_bytes())
    }

    /// Restores the error feedback of a tensor of `length` coordinates.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackState`] if it does not fit, [`WorkerError::FeedbackBusy`] while the tensor is being reduced.
    pub fn restore_feedback(&self, key: u64, length: usize, saved: &[u8]) -> Result<(), WorkerError> {
        let restored = RestoredFeedback::read(length, saved)
            .map_err(|error| WorkerError::FeedbackState { key, reason: error.to_string() })?;
        self.driver.with_engine(|engine| engine.put_feedback(key, restored))
    }

    /// Discards the error feedback of a tensor.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while it is being reduced.
    pub fn reset_feedback(&self, key: u64) -> Result<(), WorkerError> {
        self.driver.with_engine(|engine| engine.reset_feedback(key))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.driver.close();
        self.reporter = None;
        if let Some(thread) = self.background.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        // An error here has been reported before.
        let _ = self.driver.with_engine(|engine| {
            engine.leave();
            while !engine.has_left() {
                engine.serve_others()?;
                engine.wait(NAP);
            }
            Ok(())
        });
    }
}
