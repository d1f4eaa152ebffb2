//! The state of shards in files.
//!
//! `STATE/JOB/MODEL/` has `spec.json` and a file `shard-N` for each shard. A file is written beside its place, synced,
//! renamed, and the folder synced: at every moment there is the old or the new one, whole. It ends with the SHA-256 of
//! what is before. When they are written: at once when a value, an epoch's gradient or an epoch's end must not be
//! forgotten, because workers act on it; else every `durable` if something has changed. So what a killed server forgets is the
//! pushes since a moment at most that long ago, within one epoch.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest;

use crate::counters::Reason;
use crate::error::ModelError;
use crate::shard::{Phase, State};
use crate::spec::Spec;

const MAGIC: &[u8; 8] = b"THCMODL2";
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
    if !body.starts_with(MAGIC) {
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
    for (vector, wanted) in vectors.iter_mut().zip(spec.vectors()) {
        let len = if wanted { len } else { 0 };
        if body.u64().ok_or(SHORT)? != len as u64 {
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
    fn a_deleted_model_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let model = Folder::create(folder.path(), "job", "model").unwrap();
        model.write_spec(&spec()).unwrap();
        model.write_shard(0, &seal(encode(&state()))).unwrap();
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
