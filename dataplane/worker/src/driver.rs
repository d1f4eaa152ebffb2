//! The drivers of an engine: callers on their own threads, and a background thread for asynchronous calls.
//!
//! A panic on any of them is a bug in this program. It ends the group: every call under way and every later
//! one fails with an error that says so. Otherwise callers would wait for ever, or use an inconsistent state.

use crate::engine::{Borrowed, Engine};
use crate::{Call, WorkerError};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;
use thc_transport::{RetainedTx, Waker};

/// The interval at which an idle group looks whether another worker needs something of it.
pub(crate) const IDLE: Duration = Duration::from_millis(10);

pub(crate) struct Driver<I: RetainedTx> {
    engine: Mutex<Engine<I>>,
    /// Ends the background thread's wait for packets, in which it has the engine.
    waker: Option<Waker>,
    /// Callers that drive the engine themselves; the background thread gives way to them.
    foreground: AtomicUsize,
    /// Set when the group is being dropped.
    closing: AtomicBool,
    /// Set when the session is to be given up, until it is.
    giving_up: AtomicBool,
    /// Set, from outside, when this session and every later one are to be given up.
    stop: Arc<AtomicBool>,
    /// The message of the first panic.
    panicked: OnceLock<String>,
}

impl<I: RetainedTx> Driver<I> {
    /// # Errors
    /// The process has no file descriptors left.
    pub fn new(mut engine: Engine<I>, stop: Arc<AtomicBool>) -> io::Result<Driver<I>> {
        Ok(Driver {
            waker: engine.io_mut().waker()?,
            engine: Mutex::new(engine),
            foreground: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            giving_up: AtomicBool::new(false),
            stop,
            panicked: OnceLock::new(),
        })
    }

    /// Runs `work` with the engine on the caller's thread.
    ///
    /// # Errors
    /// Those of `work`, or [`WorkerError::Panicked`].
    pub fn with_engine<T>(
        &self,
        work: impl FnOnce(&mut Engine<I>) -> Result<T, WorkerError>,
    ) -> Result<T, WorkerError> {
        self.foreground.fetch_add(1, Ordering::SeqCst);
        let result = self.catch_panic(|| work(&mut *self.lock()?));
        self.foreground.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Replaces `data` by the mean, with the engine driven on this thread until it is there.
    pub fn call(&self, data: &mut [f32], call: Call<'_>) -> Result<(), WorkerError> {
        self.with_engine(|engine| {
            let number = engine.submit(data.len(), call)?;
            loop {
                self.drive(engine, &mut Borrowed::new(number, data), || false);
                if let Some(outcome) = engine.take_outcome(number) {
                    return outcome;
                }
            }
        })
    }

    /// Drives the engine until its oldest call is done, the session is given up, or `until` says so; without calls,
    /// by one step.
    fn drive(&self, engine: &mut Engine<I>, lent: &mut Borrowed<'_>, until: impl Fn() -> bool) {
        if engine.pending_calls() > 0 {
            let gives_up = || self.giving_up.load(Ordering::SeqCst) || self.stop.load(Ordering::SeqCst);
            engine.run(lent, || gives_up() || until());
        } else {
            engine.step(lent);
        }
        let given_up = self.giving_up.swap(false, Ordering::SeqCst) || self.stop.load(Ordering::SeqCst);
        if given_up && engine.failure().is_none() {
            engine.end(WorkerError::GivenUp);
        }
    }

    /// Drives asynchronous calls, and answers other workers while there are none, until [`Self::close`].
    pub fn run_background(&self) {
        let ended = self.catch_panic(|| {
            while !self.closing.load(Ordering::SeqCst) {
                if self.foreground.load(Ordering::SeqCst) == 0 && self.turn()? {
                    continue;
                }
                std::thread::park_timeout(IDLE);
            }
            Ok(())
        });
        if let Err(error) = ended {
            tracing::error!("{error}");
        }
    }

    /// One turn of the background thread; whether more is to be done at once.
    fn turn(&self) -> Result<bool, WorkerError> {
        let mut engine = self.lock()?;
        if engine.failure().is_some() {
            // The others may not have heard yet why this worker stopped.
            let _ = engine.serve_others();
        } else {
            let until = || self.foreground.load(Ordering::SeqCst) > 0 || self.closing.load(Ordering::SeqCst);
            self.drive(&mut engine, &mut Borrowed::empty(), until);
        }
        Ok(engine.failure().is_none() && engine.pending_calls() > 0)
    }

    /// Makes every call under way, and every later one of this session, fail, without waiting.
    pub fn give_up(&self) {
        self.giving_up.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// The flag that gives up this session and every later one.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Forgets a [`Self::give_up`] of the session before: another one begins.
    pub fn begin_anew(&self) {
        self.giving_up.store(false, Ordering::SeqCst);
    }

    /// Ends [`Self::run_background`].
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn lock(&self) -> Result<MutexGuard<'_, Engine<I>>, WorkerError> {
        let guard = match self.engine.try_lock() {
            Err(TryLockError::WouldBlock) => {
                self.wake();
                self.engine.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Ok(guard) => guard,
        };
        // The thread that panicked has poisoned the lock, and may not have recorded its message yet.
        match self.panicked.get() {
            Some(message) => Err(WorkerError::Panicked { message: message.clone() }),
            None if self.engine.is_poisoned() => {
                Err(WorkerError::Panicked { message: "it is being reported".to_owned() })
            }
            None => Ok(guard),
        }
    }

    fn catch_panic<T>(&self, work: impl FnOnce() -> Result<T, WorkerError>) -> Result<T, WorkerError> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(self.fail(panic.as_ref())))
    }

    fn fail(&self, panic: &(dyn Any + Send)) -> WorkerError {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = self.panicked.get_or_init(|| said.unwrap_or_else(|| "a panic".to_owned())).clone();
        let error = WorkerError::Panicked { message };
        // From now on the engine only fails calls.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).end(error.clone());
        error
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{EngineConfig, Rounding};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Instant;
    use thc_codec::table::LookupTable;
    use thc_protocol::session::{Joiner, Joiners};
    use thc_protocol::wire::{Form, Table, Tables, Welcome};
    use thc_protocol::{Cookie, JobId, TableId, WorkerId};
    use thc_support::wire_table;
    use thc_transport::{IoStats, PacketIo, Peer, Run};

    /// An interface on which nothing ever comes, until it panics.
    struct Faulty {
        started: Instant,
        panics: Arc<AtomicBool>,
    }

    impl RetainedTx for Faulty {}

    impl PacketIo for Faulty {
        fn recv_runs(&mut self, _: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
            assert!(!self.panics.load(Ordering::SeqCst), "the bug that this test has made");
            Ok(0)
        }

        fn send_run_with(&mut self, _: Peer, _: &[u8], _: usize, _: u8) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
            std::thread::sleep(timeout.min(Duration::from_millis(1)));
            Ok(false)
        }

        fn now(&self) -> Duration {
            self.started.elapsed()
        }

        fn local(&self) -> Peer {
            SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
        }

        fn stats(&self) -> IoStats {
            IoStats::default()
        }
    }

    fn driver(panics: &Arc<AtomicBool>) -> Arc<Driver<Faulty>> {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        let table = Table { id: TableId(3), ..wire_table(Form::USUAL, &table) };
        let welcome = Welcome { session: Cookie(1), block: 13, ..Welcome::new(2, Tables::one(table)) };
        let config = EngineConfig {
            ps: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
            job: JobId(1),
            worker: WorkerId(0),
            timeout: Duration::from_secs(60),
            patience: Duration::ZERO,
            min_rto: Duration::from_millis(20),
            rounding: Rounding::Stratified,
            threads: 1,
        };
        let io = Faulty { started: Instant::now(), panics: Arc::clone(panics) };
        let joiner = Joiner::new(JobId(1), WorkerId(0), Cookie(2), 3, 0, Duration::ZERO);
        Arc::new(
            Driver::new(
                Engine::new(io, config, Joiners::new(joiner), &welcome, 4096).unwrap(),
                Arc::default(),
            )
            .unwrap(),
        )
    }

    fn names_the_bug<T: std::fmt::Debug>(result: Result<T, WorkerError>) {
        let Err(WorkerError::Panicked { message }) = result else { panic!("{result:?}") };
        assert!(message.contains("the bug that this test has made"), "{message}");
    }

    #[test]
    fn a_panic_of_the_background_thread_reaches_every_call() {
        let panics = Arc::new(AtomicBool::new(false));
        let driver = driver(&panics);
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let start = |engine: &mut Engine<Faulty>| engine.start(vec![1.0; 5000], Call::default());
            waiting.push(driver.with_engine(start).unwrap());
        }
        let background = {
            let driver = Arc::clone(&driver);
            std::thread::spawn(move || driver.run_background())
        };
        assert!(!waiting[0].is_done(), "the call is under way");
        panics.store(true, Ordering::SeqCst);
        for handle in waiting {
            names_the_bug(handle.wait());
        }
        background.join().unwrap();
        names_the_bug(driver.call(&mut [1.0; 10], Call::default()));
        names_the_bug(driver.with_engine(|engine| Ok(engine.stats())));
        names_the_bug(driver.with_engine(|engine| engine.feedback()).map(|kept| kept.to_bytes()));
    }

    #[test]
    fn a_panic_of_a_caller_reaches_the_calls_of_others_and_ends_the_background_thread() {
        let panics = Arc::new(AtomicBool::new(false));
        let driver = driver(&panics);
        let start = |engine: &mut Engine<Faulty>| engine.start(vec![1.0; 5000], Call::default());
        let handle = driver.with_engine(start).unwrap();
        panics.store(true, Ordering::SeqCst);
        names_the_bug(driver.call(&mut [1.0; 10], Call::default()));
        names_the_bug(handle.wait());
        driver.run_background();
        names_the_bug(driver.call(&mut [1.0; 10], Call::default()));
        assert_eq!(driver.foreground.load(Ordering::SeqCst), 0);
    }
}
