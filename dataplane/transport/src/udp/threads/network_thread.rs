//! One thread with its socket.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel},
    },
    time::{Duration, Instant},
};

use super::{
    counters::Counters,
    thread_handle::{Arrival, BURSTS, LETTERS, Letter, ThreadHandle},
};
use crate::{
    Handled, Handler, PacketIo, TransportError, UdpIo,
    udp::{
        bell::{self, Sleep, Sleeper},
        burst::Burst,
    },
};

/// How often it looks for work before it sleeps, which takes some 20 µs: a thread that is awake need not be
/// woken.
const LOOKS: u32 = 50;
/// How long it sleeps at most, if its handler has nothing to do before. Nothing depends on this time.
const SLEEP: Duration = Duration::from_secs(10);

pub(super) struct NetworkThread {
    number: usize,
    io: UdpIo,
    letters: Receiver<Letter>,
    /// The next one, if it is known already.
    letter: Option<Letter>,
    sent: SyncSender<Vec<u8>>,
    free: Receiver<Box<Burst>>,
    /// Memory for further bursts; without any, nothing is received. The memory that came last is used first,
    /// since it is in a cache.
    #[allow(clippy::vec_box, reason = "they come and go in boxes")]
    spare: Vec<Box<Burst>>,
    arrived: SyncSender<Arrival>,
    sleeper: Sleeper,
    handlers: Receiver<Option<Box<dyn Handler>>>,
    handler: Option<Box<dyn Handler>>,
    /// Whether [`Arrival::News`] is under way.
    news: Arc<AtomicBool>,
    /// When the backend's time began.
    start: Instant,
    counters: Arc<Counters>,
    /// Whether nobody sends any more.
    over: bool,
}

impl NetworkThread {
    pub fn start(
        number: usize,
        io: UdpIo,
        arrived: SyncSender<Arrival>,
        start: Instant,
    ) -> io::Result<ThreadHandle> {
        let (bell, sleeper) = bell::hang()?;
        let (to_send, letters) = sync_channel(LETTERS);
        let (sent, sent_by_now) = sync_channel(LETTERS);
        let (freed, free) = sync_channel(BURSTS);
        let (to_handle, handlers) = channel();
        let news = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Counters::default());
        for _ in 0..LETTERS {
            let _ = sent.try_send(Vec::new());
        }
        for _ in 0..BURSTS {
            let _ = freed.try_send(Burst::new());
        }
        let own = NetworkThread {
            number,
            io,
            letters,
            letter: None,
            sent,
            free,
            spare: Vec::with_capacity(BURSTS),
            arrived,
            sleeper,
            handlers,
            handler: None,
            news: Arc::clone(&news),
            start,
            counters: Arc::clone(&counters),
            over: false,
        };
        let thread = std::thread::Builder::new().name(format!("thc-network-{number}"));
        let thread = thread.spawn(move || own.work())?;
        let spare = Vec::with_capacity(LETTERS);
        let (letters, sent, free, handlers) = (to_send, sent_by_now, freed, to_handle);
        Ok(ThreadHandle { letters, sent, spare, free, bell, handlers, news, counters, thread })
    }

    fn work(mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.run()));
        let error = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => io::Error::other("a network thread has panicked: this is a fault of this program"),
        };
        self.tell(error);
    }

    /// Reports an error, unless an earlier one still waits to be taken.
    fn tell(&self, error: io::Error) {
        let _ = self.arrived.try_send(Arrival::Failed(error));
    }

    fn run(&mut self) -> io::Result<()> {
        let mut looks = 0;
        loop {
            let sent = self.send();
            let received = self.receive()?;
            let handled = self.handle();
            if sent || received || handled {
                self.counters.write(self.io.stats());
                looks = 0;
            } else if self.over {
                return Ok(());
            } else if looks < LOOKS {
                looks += 1;
                std::thread::yield_now();
            } else {
                self.sleep()?;
                looks = 0;
            }
        }
    }

    fn look_for_letter(&mut self) {
        if self.letter.is_none() {
            match self.letters.try_recv() {
                Ok(letter) => self.letter = Some(letter),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.over = true,
            }
        }
    }

    fn look_for_memory(&mut self) {
        self.spare.extend(self.free.try_iter());
    }

    /// Sends what there is, but no more than can have waited, so that receiving gets its turn.
    fn send(&mut self) -> bool {
        for count in 0..LETTERS {
            self.look_for_letter();
            let Some(Letter { to, segment, ecn, contents }) = self.letter.take() else { return count > 0 };
            if let Err(error) = self.io.send_run_with(to, &contents, segment, ecn) {
                self.tell(error);
            }
            let _ = self.sent.try_send(contents);
        }
        true
    }

    fn receive(&mut self) -> Result<bool, TransportError> {
        self.look_for_memory();
        if self.spare.is_empty() || self.io.receive()? == 0 {
            return Ok(false);
        }
        // Whoever has a datagram finds it counted.
        self.counters.write(self.io.stats());
        if let Some(spare) = self.spare.pop() {
            let mut full = std::mem::replace(&mut self.io.burst, spare);
            let now = self.start.elapsed();
            let left = match &mut self.handler {
                Some(handler) => full.take(|run| handler.take(now, run, &mut self.io)),
                None => true,
            };
            if left {
                let _ = self.arrived.try_send(Arrival::Burst(self.number, full));
            } else {
                self.spare.push(full);
            }
        }
        Ok(true)
    }

    /// Has the handler do what it has to do. Whether there was anything.
    fn handle(&mut self) -> bool {
        if let Some(handler) = self.handlers.try_iter().last() {
            self.handler = handler;
        }
        let Some(handler) = &mut self.handler else { return false };
        match handler.work(self.start.elapsed(), &mut self.io) {
            Ok(Handled { busy, news }) => {
                if news && !self.news.swap(true, Ordering::AcqRel) {
                    let _ = self.arrived.try_send(Arrival::News(self.number));
                }
                busy
            }
            Err(error) => {
                self.tell(error);
                true
            }
        }
    }

    /// Waits until there is something to send, or something to receive and memory for it.
    fn sleep(&mut self) -> io::Result<()> {
        let hungry = self.spare.is_empty();
        self.sleeper.lie_down(if hungry { Sleep::ForMemory } else { Sleep::ForLetters });
        self.look_for_letter();
        self.look_for_memory();
        let handled = self.handle();
        let waits = self.letter.is_none() && !self.over && !handled && self.spare.is_empty() == hungry;
        let deadline = self.handler.as_ref().and_then(|handler| handler.deadline());
        let at_most = deadline.map_or(SLEEP, |at| at.saturating_sub(self.start.elapsed()).min(SLEEP));
        let result = if waits { self.io.wait_beside(!hungry, self.sleeper.rope(), at_most) } else { Ok(()) };
        self.sleeper.rise()?;
        result
    }
}
