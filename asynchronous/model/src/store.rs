//! The state of shards in files.
//!
//! `STATE/JOB/MODEL/` has `spec.json` and a file `shard-N` for each shard. A file is written beside its place, synced,
//! renamed, and the folder synced: at every moment there is the old or the new one, whole. It ends with the SHA-256 of
//! what is before. When they are written: at once when a value, an epoch's gradient or an epoch's end must not be
//! forgotten, because workers act on it; else every `durable` if something has changed. So what a killed server forgets is the
//! pushes since a moment at most that long ago, within one epoch.
//!
//! States that were kept are in `kept/NUMBER/`, whose files are links to what was the last state then: since files are
//! replaced and never changed, keeping one costs no writing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest;

use serde::{Deserialize, Serialize};

use crate::counters::Reason;
use crate::error::ModelError;
use crate::shard::{Phase, State};
use crate::spec::Spec;

const MAGIC: &[u8; 8] = b"THCMODL2";
/// The first bytes of files without an optimizer's vectors.
const FIRST_MAGIC: &[u8; 8] = b"THCMODL1";
const DIGEST: usize = 32;
const NEW: &str = ".new";

/// The folder of a model.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

fn io_error(path: &Path) -> impl Fn(std::io::Error) -> ModelError + '_ {
    |error| ModelError::State { path: path.to_owned(), reason: error.to_string() }
}

fn damaged_error(path: &Path, what: &str) -> ModelError {
    let reason = format!("{what}; remove the model's folder to begin it anew");
    ModelError::State { path: path.to_owned(), reason }
}

impl Folder {
    /// The folder of a job's model, which need not exist.
    pub fn new(state: &Path, job: &str, model: &str) -> Self {
        Self { path: state.join(job).join(model) }
    }

    /// The folder of a job's model; made if it does not exist.
    pub fn create(state: &Path, job: &str, model: &str) -> Result<Self, ModelError> {
        let path = state.join(job).join(model);
        fs::create_dir_all(&path).map_err(io_error(&path))?;
        // The names of new folders must last, too.
        for folder in [Some(path.as_path()), path.parent(), Some(state)].into_iter().flatten() {
            sync_folder(folder)?;
        }
        Ok(Self { path })
    }

    /// All that there are of a job, with the names of their models.
    pub fn of_job(state: &Path, job: &str) -> Result<Vec<(String, Self)>, ModelError> {
        let path = state.join(job);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(&path)(error)),
        };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io_error(&path))?;
            if let Ok(name) = entry.file_name().into_string()
                && crate::wire::is_name(&name)
                && entry.path().is_dir()
            {
                folders.push((name, Self { path: entry.path() }));
            }
        }
        folders.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(folders)
    }

    fn spec_file(&self) -> PathBuf {
        self.path.join("spec.json")
    }

    fn shard_file(&self, number: u32) -> PathBuf {
        self.path.join(format!("shard-{number}"))
    }

    pub fn write_spec(&self, spec: &Spec) -> Result<(), ModelError> {
        let file = self.spec_file();
        let text =
            serde_json::to_vec_pretty(spec).map_err(|error| damaged_error(&file, &error.to_string()))?;
        replace(&file, &text)
    }

    /// `None` for a model that was being made when the server died: nobody was told that it exists.
    pub fn read_spec(&self) -> Result<Option<Spec>, ModelError> {
        let file = self.spec_file();
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&file)(error)),
        };
        let spec: Spec =
            serde_json::from_slice(&text).map_err(|error| damaged_error(&file, &error.to_string()))?;
        spec.validate().map_err(|error| damaged_error(&file, &error.to_string()))?;
        Ok(Some(spec))
    }

    /// Why a model is not read.
    pub fn read_error(&self, reason: String) -> ModelError {
        ModelError::State { path: self.path.clone(), reason }
    }

    /// What is said of a shard that is not written any more.
    pub fn shard_error(&self, number: u32, reason: Reason) -> ModelError {
        ModelError::State { path: self.shard_file(number), reason: reason.message().to_owned() }
    }

    pub fn write_shard(&self, number: u32, bytes: &[u8]) -> Result<(), ModelError> {
        replace(&self.shard_file(number), bytes)
    }

    /// The last state of all shards.
    pub fn read_shards(&self, spec: &Spec) -> Result<Vec<Option<State>>, ModelError> {
        (0..spec.shards() as u32).map(|number| self.read_shard(spec, number)).collect()
    }

    /// `None` for a shard that was never written: it is empty.
    fn read_shard(&self, spec: &Spec, number: u32) -> Result<Option<State>, ModelError> {
        let file = self.shard_file(number);
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&file)(error)),
        };
        decode(&bytes, spec, number).map(Some).map_err(|what| damaged_error(&file, what))
    }
}

/// A state that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its number, by which a rollback names it.
    pub number: u64,
    /// Pushes that its first shard had taken.
    pub version: u64,
    /// When it was kept, in seconds since 1970.
    pub time: u64,
}

impl Folder {
    fn kept_state(&self, number: u64) -> Self {
        Self { path: self.path.join("kept").join(number.to_string()) }
    }

    /// The numbers of the kept states, ascending.
    fn kept_numbers(&self) -> Vec<u64> {
        let entries = fs::read_dir(self.path.join("kept")).into_iter().flatten().flatten();
        let mut numbers: Vec<u64> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// All that were kept, oldest first.
    pub fn kept_states(&self) -> Vec<Kept> {
        let one = |number| {
            let file = self.kept_state(number).shard_file(0);
            let time = fs::metadata(self.kept_state(number).path).and_then(|about| about.modified()).ok()?;
            let time = time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
            let mut head = [0; 8 + 1 + 3 * 8];
            File::open(file).and_then(|mut file| file.read_exact(&mut head)).ok()?;
            let version = head[25..].try_into().map(u64::from_le_bytes).ok()?;
            Some(Kept { number, version, time })
        };
        self.kept_numbers().into_iter().filter_map(one).collect()
    }

    /// Keeps the last state of `shards` shards beside itself, and forgets the oldest that are more than `most`: its number.
    /// Nobody may write the shards meanwhile.
    pub fn keep(&self, shards: usize, most: usize) -> Result<u64, ModelError> {
        let numbers = self.kept_numbers();
        let number = numbers.last().map_or(1, |last| last + 1);
        let (place, new) = (self.kept_state(number).path, self.path.join("kept").join("new"));
        let _ = fs::remove_dir_all(&new);
        fs::create_dir_all(&new).map_err(io_error(&new))?;
        for shard in 0..shards as u32 {
            let file = self.shard_file(shard);
            if file.exists() {
                fs::hard_link(&file, new.join(format!("shard-{shard}"))).map_err(io_error(&file))?;
            }
        }
        sync_folder(&new)?;
        fs::rename(&new, &place).map_err(io_error(&place))?;
        sync_folder(&self.path.join("kept"))?;
        for old in &numbers[..(numbers.len() + 1).saturating_sub(most.max(1)).min(numbers.len())] {
            let path = self.kept_state(*old).path;
            fs::remove_dir_all(&path).map_err(io_error(&path))?;
        }
        Ok(number)
    }

    /// The newest state that was kept and can be read.
    pub fn newest_kept(&self, spec: &Spec) -> Option<(u64, Vec<Option<State>>)> {
        self.kept_numbers().into_iter().rev().find_map(|number| {
            let states = self.kept_state(number).read_shards(spec).ok()?;
            states.iter().all(Option::is_some).then_some((number, states))
        })
    }

    fn rollback_file(&self) -> PathBuf {
        self.path.join("rollback")
    }

    /// Puts a kept state in the place of the last one. A crash meanwhile is made good by [`Self::finish_rollback`].
    pub fn rollback(&self, number: u64) -> Result<(), ModelError> {
        let kept = self.kept_state(number).path;
        if !kept.is_dir() {
            let numbers: Vec<String> = self.kept_numbers().iter().map(u64::to_string).collect();
            let there = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
            return Err(ModelError::Config(format!("there is no kept state {number}; there are: {there}")));
        }
        replace(&self.rollback_file(), number.to_string().as_bytes())?;
        self.finish_rollback()
    }

    /// What a crash has left of a rollback.
    pub fn finish_rollback(&self) -> Result<(), ModelError> {
        let marker = self.rollback_file();
        let Some(number) = fs::read_to_string(&marker).ok().and_then(|text| text.parse().ok()) else {
            return Ok(());
        };
        let kept = self.kept_state(number).path;
        for entry in fs::read_dir(&kept).map_err(io_error(&kept))?.flatten() {
            let place = self.path.join(entry.file_name());
            let new = self.path.join("restored");
            let _ = fs::remove_file(&new);
            let put = || {
                fs::hard_link(entry.path(), &new)?;
                fs::rename(&new, &place)?;
                // Renaming a link onto another of the same file does nothing, and leaves it.
                if new.exists() { fs::remove_file(&new) } else { Ok(()) }
            };
            put().map_err(io_error(&place))?;
        }
        sync_folder(&self.path)?;
        fs::remove_file(&marker).map_err(io_error(&marker))
    }

    /// Removes all of it.
    pub fn delete(&self) -> Result<(), ModelError> {
        // Without its spec it is no model, whatever a crash leaves.
        let file = self.spec_file();
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io_error(&file)(error)),
            _ => {}
        }
        sync_folder(&self.path)?;
        fs::remove_dir_all(&self.path).map_err(io_error(&self.path))
    }
}

fn sync_folder(path: &Path) -> Result<(), ModelError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(io_error(path))
}

/// Puts a whole file in the place of another.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let mut new = path.as_os_str().to_owned();
    new.push(NEW);
    let new = PathBuf::from(new);
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(io_error(path))?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// The term of the server that wrote this folder last, 0 before a spare ever took over.
pub(crate) fn read_term(state: &Path) -> Result<u64, ModelError> {
    let file = state.join(".term");
    match fs::read_to_string(&file) {
        Ok(text) => text.trim().parse().map_err(|_| damaged_error(&file, "it is not a number")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(io_error(&file)(error)),
    }
}

/// Writes the term.
pub(crate) fn write_term(state: &Path, term: u64) -> Result<(), ModelError> {
    fs::create_dir_all(state).map_err(io_error(state))?;
    replace(&state.join(".term"), term.to_string().as_bytes())
}

/// A shard's file, all but its digest: [`seal`] appends that.
pub(crate) fn encode(state: &State) -> Vec<u8> {
    let vectors = state.vectors();
    let floats: usize = vectors.iter().map(|v| v.len()).sum();
    let mut out = Vec::with_capacity(128 + 16 * state.sequences.len() + 4 * floats + DIGEST);
    out.extend(MAGIC);
    out.push(state.phase.code());
    for number in [state.epoch, state.step, state.version, state.sequences.len() as u64] {
        out.extend(number.to_le_bytes());
    }
    for (worker, sequence) in &state.sequences {
        out.extend(u64::from(*worker).to_le_bytes());
        out.extend(sequence.to_le_bytes());
    }
    for vector in vectors {
        out.extend((vector.len() as u64).to_le_bytes());
        out.extend(vector.iter().flat_map(|v| v.to_le_bytes()));
    }
    out
}

/// Appends the digest of what is there.
pub(crate) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = digest::digest(&digest::SHA256, &bytes);
    bytes.extend(digest.as_ref());
    bytes
}

/// Reads a shard's file.
pub(crate) fn decode(bytes: &[u8], spec: &Spec, number: u32) -> Result<State, &'static str> {
    const SHORT: &str = "it is damaged: too short";
    let (body, digest) = bytes.split_at_checked(bytes.len().saturating_sub(DIGEST)).ok_or(SHORT)?;
    let moments = body.starts_with(MAGIC);
    if !moments && !body.starts_with(FIRST_MAGIC) {
        return Err("it is not a shard of this version");
    }
    if digest::digest(&digest::SHA256, body).as_ref() != digest {
        return Err("it is damaged: its digest is wrong");
    }
    let mut body = crate::wire::Body(&body[MAGIC.len()..]);
    let phase = match body.u8().ok_or(SHORT)? {
        0 => Phase::Empty,
        1 => Phase::Waiting,
        2 => Phase::Running,
        _ => return Err("it is in an unknown phase"),
    };
    let mut number_of = || body.u64().ok_or(SHORT);
    let (epoch, step, version, workers) = (number_of()?, number_of()?, number_of()?, number_of()?);
    let mut sequences = BTreeMap::new();
    for _ in 0..workers {
        let worker = u16::try_from(number_of()?).map_err(|_| "it has a worker that cannot be")?;
        sequences.insert(worker, number_of()?);
    }
    let len = spec.range(number as usize).len();
    let mut vectors: [Arc<Vec<f32>>; 7] = Default::default();
    for (place, (vector, wanted)) in vectors.iter_mut().zip(spec.vectors()).enumerate() {
        let len = if wanted { len } else { 0 };
        let written = if place < 5 || moments { body.u64().ok_or(SHORT)? } else { 0 };
        if written != len as u64 {
            return Err("it does not fit spec.json");
        }
        let mut out = vec![0.0; len];
        crate::payload::take_floats(body.raw(4 * len).ok_or(SHORT)?, &mut out)
            .map_err(|_| "it has a number that is not finite")?;
        *vector = Arc::new(out);
    }
    let [x, snapshot, gradient, y, mean, first, second] = vectors;
    let state =
        State { phase, epoch, step, version, x, snapshot, gradient, y, mean, first, second, sequences };
    body.end().ok_or("it is too long")?;
    Ok(state)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn spec() -> Spec {
        Spec { accelerated: true, ..Spec::asylpg(20, 0.1, NonZeroU32::MIN) }
    }

    fn state() -> State {
        let vector = |from: u8| Arc::new((from..from + 20).map(f32::from).collect::<Vec<_>>());
        State {
            phase: Phase::Waiting,
            epoch: 3,
            step: 0,
            version: 77,
            x: vector(0),
            snapshot: vector(1),
            gradient: vector(2),
            y: vector(3),
            mean: vector(4),
            first: Arc::default(),
            second: Arc::default(),
            sequences: [(0, 9), (1023, 5)].into(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let model = Folder::create(folder.path(), "job", "model").unwrap();
        assert_eq!(model.read_spec().unwrap(), None);
        assert_eq!(model.read_shard(&spec(), 0).unwrap(), None);
        model.write_spec(&spec()).unwrap();
        model.write_shard(0, &seal(encode(&state()))).unwrap();
        let folders = Folder::of_job(folder.path(), "job").unwrap();
        assert_eq!(folders.len(), 1);
        assert_eq!(folders[0].0, "model");
        assert_eq!(folders[0].1.read_spec().unwrap(), Some(spec()));
        assert_eq!(folders[0].1.read_shard(&spec(), 0).unwrap(), Some(state()));
        assert!(Folder::of_job(folder.path(), "other").unwrap().is_empty());
    }

    #[test]
    fn every_damage_is_noticed() {
        let bytes = seal(encode(&state()));
        assert_eq!(decode(&bytes, &spec(), 0), Ok(state()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged, &spec(), 0).is_err(), "byte {at}");
            assert!(decode(&bytes[..at], &spec(), 0).is_err(), "up to {at}");
        }
        let other = Spec { accelerated: false, ..spec() };
        assert_eq!(decode(&bytes, &other, 0), Err("it does not fit spec.json"));
    }

    #[test]
    fn files_of_the_version_before_are_read() {
        let bytes = encode(&state());
        // Without the lengths of two empty vectors.
        let mut older = [FIRST_MAGIC, &bytes[8..bytes.len() - 16]].concat();
        assert_eq!(decode(&seal(older.clone()), &spec(), 0), Ok(state()));
        older.extend([0; 16]);
        assert_eq!(decode(&seal(older), &spec(), 0), Err("it is too long"));
    }

    #[test]
    fn the_newest_states_are_kept_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let model = Folder::create(folder.path(), "job", "model").unwrap();
        model.write_spec(&spec()).unwrap();
        assert_eq!(model.newest_kept(&spec()), None);
        for version in 1..=4 {
            model.write_shard(0, &seal(encode(&State { version, ..state() }))).unwrap();
            assert_eq!(model.keep(1, 2).unwrap(), version);
        }
        let kept: Vec<_> = model.kept_states().iter().map(|kept| (kept.number, kept.version)).collect();
        assert_eq!(kept, [(3, 3), (4, 4)]);
        let last = || model.read_shards(&spec()).unwrap()[0].as_ref().map(|state| state.version);
        for number in [3, 3, 4] {
            model.rollback(number).unwrap();
            assert_eq!(last(), Some(number));
        }
        let error = model.rollback(1).unwrap_err().to_string();
        assert!(error.contains("3, 4"), "{error}");
        // A crash between the files of a rollback.
        replace(&model.rollback_file(), b"3").unwrap();
        model.finish_rollback().unwrap();
        assert_eq!(last(), Some(3));
        // What cannot be read is passed over.
        fs::write(model.kept_state(4).shard_file(0), b"damaged").unwrap();
        assert_eq!(model.newest_kept(&spec()).map(|(number, _)| number), Some(3));
        model.delete().unwrap();
        assert!(Folder::of_job(folder.path(), "job").unwrap().is_empty());
    }

    #[test]
    fn what_was_left_half_written_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let model = Folder::create(folder.path(), "job", "model").unwrap();
        model.write_shard(0, &seal(encode(&state()))).unwrap();
        fs::write(folder.path().join("job/model/shard-0.new"), b"half").unwrap();
        assert_eq!(model.read_shard(&spec(), 0).unwrap(), Some(state()));
        model.write_shard(0, &seal(encode(&state()))).unwrap();
        assert_eq!(model.read_shard(&spec(), 0).unwrap(), Some(state()));
    }
}
