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
use serde::{Deserialize, Serialize};

use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload::{put_floats, take_floats};
use crate::shard::{Phase, State};
use crate::spec::Spec;

const MAGIC: &[u8; 8] = b"THCMODL3";
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

/// Makes the folder of the state, and a file in it for a moment: a server that cannot keep models must not begin.
pub(crate) fn check_state(state: &Path) -> Result<(), ModelError> {
    let trial = state.join(".trial");
    let tried =
        fs::create_dir_all(state).and_then(|()| File::create(&trial)).and_then(|_| fs::remove_file(&trial));
    tried.map_err(|error| {
        let reason = format!("{error}: give --state a folder in which this user may write");
        ModelError::State { path: state.to_owned(), reason }
    })
}

impl Folder {
    /// The folder of a job's model, which need not exist.
    pub fn new(job: &Path, model: &str) -> Self {
        Self { path: job.join(model) }
    }

    /// The names of all models of a job's folder.
    pub fn names(job: &Path) -> Result<Vec<String>, ModelError> {
        let entries = match fs::read_dir(job) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(job)(error)),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter(|name| crate::wire::is_name(name) && job.join(name).is_dir()).collect())
    }

    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    fn spec_file(&self) -> PathBuf {
        self.path.join("spec.json")
    }

    fn shard_file(&self, number: u32) -> PathBuf {
        self.path.join(format!("shard-{number}"))
    }

    /// Makes the folder of a new model.
    pub fn create(&self, spec: &Spec) -> Result<(), ModelError> {
        fs::create_dir_all(&self.path).map_err(io_error(&self.path))?;
        // The names of new folders must last, too: the model's, the job's, and the state's.
        self.path.ancestors().take(3).try_for_each(sync_folder)?;
        let file = self.spec_file();
        let text =
            serde_json::to_vec_pretty(spec).map_err(|error| damaged_error(&file, &error.to_string()))?;
        replace(&file, &text)
    }

    /// `None` for a model that was being made when the server died: no worker knows of it.
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

    /// The error of a shard that is not written any more.
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

/// The header in front of a file's vectors.
#[derive(Serialize, Deserialize)]
struct Head {
    phase: Phase,
    epoch: u64,
    step: u64,
    version: u64,
    sequences: BTreeMap<u16, u64>,
}

/// A shard's file, all but its digest: [`seal`] appends that.
pub(crate) fn encode(state: &State) -> Vec<u8> {
    let State { phase, epoch, step, version, ref sequences, .. } = *state;
    let head = Head { phase, epoch, step, version, sequences: sequences.clone() };
    let mut out = MAGIC.to_vec();
    // Writing into memory does not fail; a file without this would be refused.
    out.extend(postcard::to_allocvec(&head).unwrap_or_default());
    for vector in state.vectors() {
        put_floats(vector, &mut out);
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
    let (body, digest) = bytes.split_at(bytes.len().saturating_sub(DIGEST));
    if !body.starts_with(MAGIC) {
        return Err("it is not a shard of this version");
    }
    if digest::digest(&digest::SHA256, body).as_ref() != digest {
        return Err("it is damaged: its digest is wrong");
    }
    let (head, mut floats) = postcard::take_from_bytes::<Head>(&body[MAGIC.len()..])
        .map_err(|_| "it is damaged: its head cannot be read")?;
    let len = spec.range(number as usize).len();
    let mut vectors: [Arc<Vec<f32>>; 7] = Default::default();
    for (vector, wanted) in vectors.iter_mut().zip(spec.vectors()) {
        let mut out = vec![0.0; if wanted { len } else { 0 }];
        let (own, rest) = floats.split_at_checked(4 * out.len()).ok_or("it does not fit spec.json")?;
        take_floats(own, &mut out).map_err(|_| "it has a number that is not finite")?;
        (*vector, floats) = (Arc::new(out), rest);
    }
    if !floats.is_empty() {
        return Err("it does not fit spec.json");
    }
    let Head { phase, epoch, step, version, sequences } = head;
    let [x, snapshot, gradient, y, mean, first, second] = vectors;
    Ok(State { phase, epoch, step, version, x, snapshot, gradient, y, mean, first, second, sequences })
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
        let model = Folder::new(&folder.path().join("job"), "model");
        assert_eq!(model.read_spec().unwrap(), None);
        assert_eq!(model.read_shard(&spec(), 0).unwrap(), None);
        model.create(&spec()).unwrap();
        model.write_shard(0, &seal(encode(&state()))).unwrap();
        assert_eq!(Folder::names(&folder.path().join("job")).unwrap(), ["model"]);
        assert_eq!(model.read_spec().unwrap(), Some(spec()));
        assert_eq!(model.read_shard(&spec(), 0).unwrap(), Some(state()));
        assert!(Folder::names(&folder.path().join("other")).unwrap().is_empty());
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
        let model = Folder::new(&folder.path().join("job"), "model");
        model.create(&spec()).unwrap();
        model.write_shard(0, &seal(encode(&state()))).unwrap();
        model.delete().unwrap();
        assert!(!model.exists() && Folder::names(&folder.path().join("job")).unwrap().is_empty());
    }

    #[test]
    fn what_was_left_half_written_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let model = Folder::new(&folder.path().join("job"), "model");
        model.create(&spec()).unwrap();
        model.write_shard(0, &seal(encode(&state()))).unwrap();
        fs::write(folder.path().join("job/model/shard-0.new"), b"half").unwrap();
        assert_eq!(model.read_shard(&spec(), 0).unwrap(), Some(state()));
        model.write_shard(0, &seal(encode(&state()))).unwrap();
        assert_eq!(model.read_shard(&spec(), 0).unwrap(), Some(state()));
    }
}
