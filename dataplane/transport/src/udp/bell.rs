//! Wakes a thread that waits for a socket.

use std::{
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering, fence},
    },
};

/// What a thread waits for beside its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Sleep {
    /// It does not wait.
    Awake = 0,
    /// It waits for something to send.
    ForLetters = 1,
    /// It waits for that, or for memory to receive into.
    ForMemory = 2,
}

/// The end that rings. As long as the thread is awake, this is a look at one word.
pub(super) struct Bell {
    sleep: Arc<AtomicU8>,
    rope: PipeWriter,
}

/// The end that is woken.
pub(super) struct Sleeper {
    sleep: Arc<AtomicU8>,
    rope: PipeReader,
}

pub(super) fn hang() -> io::Result<(Bell, Sleeper)> {
    let (reader, writer) = io::pipe()?;
    let sleep = Arc::new(AtomicU8::new(Sleep::Awake as u8));
    Ok((Bell { sleep: Arc::clone(&sleep), rope: writer }, Sleeper { sleep, rope: reader }))
}

impl Bell {
    /// Wakes the thread if it waits for that, after there is some.
    pub fn ring(&self, brought: Sleep) {
        // Either the sleeper sees what was brought, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::Relaxed) >= brought as u8
            && self.sleep.swap(Sleep::Awake as u8, Ordering::SeqCst) != Sleep::Awake as u8
        {
            // It can fail only if nobody is there any more.
            let _ = (&self.rope).write(&[0]);
        }
    }
}

impl Sleeper {
    /// From now on the bell rings. Look whether there is something meanwhile, wait for [`Self::rope`] to be readable, then
    /// [`Self::rise`].
    pub fn lie_down(&self, sleep: Sleep) {
        self.sleep.store(sleep as u8, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub fn rope(&self) -> BorrowedFd<'_> {
        self.rope.as_fd()
    }

    /// The bell does not ring any more. If it has, its byte is taken, which is written or about to be.
    pub fn rise(&self) -> io::Result<()> {
        if self.sleep.swap(Sleep::Awake as u8, Ordering::SeqCst) == Sleep::Awake as u8 {
            (&self.rope).read_exact(&mut [0])?;
        }
        Ok(())
    }
}
