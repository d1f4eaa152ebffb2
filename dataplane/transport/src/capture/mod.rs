//! A pcap file that any number of backends write to.
//!
//! The format is the classic one with nanoseconds and Ethernet frames, which every tool reads. Nothing is buffered
//! here: a burst's records are written in one call, so that the file has whole records however the process
//! ends.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    Peer, TransportError,
    frame::{Datagram, mac_of},
};

/// Identifies a pcap file in the writer's byte order whose times are in nanoseconds.
const MAGIC: u32 = 0xA1B2_3C4D;
/// Major and minor version, 16 bits each, as they lie in a little-endian word.
const VERSION: u32 = 0x0004_0002;
/// The longest frame that readers must expect.
const SNAP_LEN: u32 = 1 << 17;
/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;
/// Bytes of the file's header.
const FILE_HEADER_LEN: usize = 24;
/// Bytes in front of each frame.
const RECORD_HEADER_LEN: usize = 16;

/// Where a capture goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureConfig {
    /// The file; an old one is replaced.
    pub path: PathBuf,
    /// The most bytes that the file may have; packets beyond it are left out.
    pub limit: u64,
}

impl CaptureConfig {
    /// The limit unless another is given: 1 GiB.
    pub const DEFAULT_LIMIT: u64 = 1 << 30;

    /// A capture to `path` with the default limit.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), limit: Self::DEFAULT_LIMIT }
    }
}

/// What a [`Capture`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureStats {
    /// Packets in the file.
    pub written: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Packets left out because the limit was reached, the file could not be written, or the capture was closed.
    pub omitted: u64,
}

/// An open capture file. Clones write to the same file, from any thread.
#[derive(Clone)]
pub struct Capture(Arc<CaptureFile>);

struct CaptureFile {
    path: PathBuf,
    limit: u64,
    /// Whether records are still taken; checked before they are made.
    open: AtomicBool,
    omitted: AtomicU64,
    writer: Mutex<Writer>,
}

struct Writer {
    file: File,
    written: u64,
    bytes: u64,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("path", &self.0.path).field("stats", &self.stats()).finish()
    }
}

impl Capture {
    /// Makes the file and writes its header. Only its owner may read it: packets carry the job's cookie.
    ///
    /// # Errors
    /// [`TransportError::Capture`].
    pub fn create(config: &CaptureConfig) -> Result<Self, TransportError> {
        let failed = |cause| TransportError::Capture { path: config.path.clone(), cause };
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&config.path)
            .map_err(failed)?;
        let words = [MAGIC, VERSION, 0, 0, SNAP_LEN, ETHERNET];
        let header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&header).map_err(failed)?;
        Ok(Self(Arc::new(CaptureFile {
            path: config.path.clone(),
            limit: config.limit,
            open: AtomicBool::new(true),
            omitted: AtomicU64::new(0),
            writer: Mutex::new(Writer { file, written: 0, bytes: FILE_HEADER_LEN as u64 }),
        })))
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Counters up to now.
    #[must_use]
    pub fn stats(&self) -> CaptureStats {
        let writer = self.lock();
        CaptureStats {
            written: writer.written,
            bytes: writer.bytes,
            omitted: self.0.omitted.load(Ordering::Relaxed),
        }
    }

    /// Stops writing. When this returns, no other thread is in the middle of a record, so the process may
    /// end.
    pub fn close(&self) {
        let _writer = self.lock();
        self.0.open.store(false, Ordering::Relaxed);
    }

    /// No thread panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the records of `batch` and empties it.
    pub(crate) fn take(&self, batch: &mut Batch) {
        if batch.packets == 0 {
            return;
        }
        let mut writer = self.lock();
        let room = self.0.limit.saturating_sub(writer.bytes);
        let (packets, bytes) =
            if self.0.open.load(Ordering::Relaxed) { batch.count_fitting(room) } else { (0, 0) };
        match writer.file.write_all(&batch.records[..bytes]) {
            Ok(()) => {
                writer.written += packets;
                writer.bytes += bytes as u64;
                let omitted = batch.packets - packets;
                self.0.omitted.fetch_add(omitted, Ordering::Relaxed);
                if omitted > 0 && self.0.open.swap(false, Ordering::Relaxed) {
                    tracing::warn!(
                        "{} has reached its limit of {} bytes: what follows is not in it (--pcap-limit)",
                        self.0.path.display(),
                        self.0.limit
                    );
                }
            }
            Err(cause) => self.fail(&cause, batch.packets),
        }
        batch.clear();
    }

    /// A full disk must not stop the all-reduce.
    fn fail(&self, cause: &io::Error, packets: u64) {
        self.0.omitted.fetch_add(packets, Ordering::Relaxed);
        if self.0.open.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                "cannot write packets to {}: {cause}; what follows is not in it",
                self.0.path.display()
            );
        }
    }

    /// Whether records are still taken; if not, `packets` are counted as left out.
    pub(crate) fn wants(&self, packets: u64) -> bool {
        let open = self.0.open.load(Ordering::Relaxed);
        if !open {
            self.0.omitted.fetch_add(packets, Ordering::Relaxed);
        }
        open
    }
}

/// Records that go to the file together.
#[derive(Default)]
pub(crate) struct Batch {
    records: Vec<u8>,
    packets: u64,
}

impl Batch {
    /// Adds a datagram with these ECN bits that went by at `time` since 1970.
    pub fn push(&mut self, time: Duration, from: Peer, to: Peer, ecn: u8, payload: &[u8]) {
        // Seconds are unsigned 32 bits in this format: good until 2106.
        for word in [time.as_secs() as u32, time.subsec_nanos(), 0, 0] {
            self.records.extend_from_slice(&word.to_le_bytes());
        }
        let begin = self.records.len();
        let (from, to) = ((mac_of(from.ip()), from), (mac_of(to.ip()), to));
        Datagram { from, to, ecn, payload }.append_headers(&mut self.records);
        self.records.extend_from_slice(payload);
        // How much of it is in the file, and how long it was.
        let length = ((self.records.len() - begin) as u32).to_le_bytes();
        self.records[begin - 8..begin - 4].copy_from_slice(&length);
        self.records[begin - 4..begin].copy_from_slice(&length);
        self.packets += 1;
    }

    /// How many records, and bytes of them, fit into `room` bytes.
    fn count_fitting(&self, room: u64) -> (u64, usize) {
        if self.records.len() as u64 <= room {
            return (self.packets, self.records.len());
        }
        let (mut packets, mut at) = (0, 0);
        while let Some(length) = self.records.get(at + 8..at + 12) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            let end = at + RECORD_HEADER_LEN + length as usize;
            if end as u64 > room {
                break;
            }
            (packets, at) = (packets + 1, end);
        }
        (packets, at)
    }

    /// Bytes of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Takes the last record back; there were `len` bytes before it.
    pub fn undo(&mut self, len: usize) {
        self.records.truncate(len);
        self.packets -= 1;
    }

    fn clear(&mut self) {
        self.records.clear();
        self.packets = 0;
    }
}
