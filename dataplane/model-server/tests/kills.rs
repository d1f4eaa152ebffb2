//! A server is killed and starts again: nothing is forgotten beyond what is promised, and no number is wrong.
//!
//! What may be forgotten is what was taken while the last state was written, and since.
//! A shard's state in a file was read after the file before it had been written. So every push whose answer came before that
//! earlier file was written must be there after the kill. This holds whatever the machine does meanwhile: no duration is asserted.
#![allow(clippy::unwrap_used)]

mod program;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use program::{Running, SECRET, free_address};
use thc_model::{Client, ClientConfig, ModelBits, Optimizer, Pull, Push, Spec};

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(300);
const LEN: usize = 100;
const SHARD: usize = 16;
const SHARDS: usize = LEN.div_ceil(SHARD);

/// With a rate of 1 and momentum, so that more than x must survive.
fn spec() -> Spec {
    let optimizer = Optimizer::Momentum { beta: 0.5 };
    Spec {
        bits: ModelBits::Fixed(32),
        optimizer,
        shard: SHARD as u32,
        workers: 4,
        ..Spec::sgd(LEN as u64, 1.0)
    }
}

/// x after so many pushes of 1 with momentum 0.5, from 0.
fn expected_after(pushes: u64) -> f32 {
    let (mut x, mut m) = (0.0, 0.0);
    for _ in 0..pushes {
        m = 0.5 * m + 1.0;
        x -= m;
    }
    x
}

/// Versions of all shards.
type Versions = Vec<u64>;

/// Pulls and checks every number: the versions.
fn pull(client: &mut Client) -> Versions {
    let mut x = vec![0.0; LEN];
    let pulled = client.pull(&mut x, Pull::default()).unwrap();
    let versions: Versions = pulled.stamps().map(|stamp| stamp.version).collect();
    assert_eq!(versions.len(), SHARDS, "a shard is empty");
    for (version, x) in versions.iter().zip(x.chunks(SHARD)) {
        assert!(x.iter().all(|x| *x == expected_after(*version)), "{x:?} at version {version}");
    }
    versions
}

/// A push that all shards take: the versions after it.
fn push(client: &mut Client) -> Versions {
    loop {
        let versions = pull(client);
        if client.push(&[1.0; LEN], Push::bits(32)).unwrap().refused.is_empty() {
            return versions.iter().map(|version| version + 1).collect();
        }
    }
}

/// When a shard's file was written, and its version.
type Written = (SystemTime, u64);

/// The files of a model, as they are replaced: of each shard the last two that were seen.
struct Files {
    folder: PathBuf,
    seen: Vec<[Option<Written>; 2]>,
}

impl Files {
    fn new(state: &Path) -> Self {
        Self { folder: state.join("train/m"), seen: vec![[None; 2]; SHARDS] }
    }

    /// By one handle, since another file may be in its place at any moment.
    fn read(path: &Path) -> Option<Written> {
        let mut file = File::open(path).ok()?;
        let mut head = [0; 48];
        file.read_exact(&mut head).ok()?;
        // Behind the magic number are the phase, the epoch, the step and the version.
        let ([_, _, _, version], _) = postcard::take_from_bytes::<[u64; 4]>(&head[8..]).ok()?;
        Some((file.metadata().ok()?.modified().ok()?, version))
    }

    fn look(&mut self) {
        for (number, seen) in self.seen.iter_mut().enumerate() {
            let now = Self::read(&self.folder.join(format!("shard-{number}")));
            if now.is_some() && now != seen[1] {
                *seen = [seen[1], now];
            }
        }
    }
}

/// What was pushed, and when the answers were there.
struct Answered {
    pushes: Vec<(SystemTime, Versions)>,
}

impl Answered {
    /// The version of a shard that was known at a moment, or before.
    fn version_before(&self, shard: usize, moment: SystemTime) -> u64 {
        self.pushes.iter().rev().find(|(when, _)| *when < moment).map_or(0, |(_, versions)| versions[shard])
    }

    fn last(&self) -> &Versions {
        &self.pushes.last().unwrap().1
    }
}

/// What a run has come to.
#[derive(Debug, Default)]
struct Outcome {
    kills: usize,
    pushes: usize,
    forgotten: Vec<u64>,
    recovery: Vec<Duration>,
}

impl Outcome {
    fn row(&self) -> String {
        let mut recovery = self.recovery.clone();
        recovery.sort();
        let seconds = |at: usize| recovery.get(at).map_or(0.0, Duration::as_secs_f64);
        format!(
            "| {} | {} | {} | {} | 0 | {:.1} | {:.1} |",
            self.kills,
            self.pushes,
            self.forgotten.iter().sum::<u64>(),
            self.forgotten.iter().max().unwrap_or(&0),
            seconds(recovery.len() / 2),
            seconds(recovery.len().saturating_sub(1)),
        )
    }
}

const HEAD: &str = "\
| kills | pushes taken | of them forgotten | most at one kill | forgotten beyond the promise | seconds to the next push, median | most |
|-|-|-|-|-|-|-|";

fn kills(count: usize, limit: Duration, seed: u64) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let config = ClientConfig {
        server: address.to_string(),
        secret: SECRET.into(),
        timeout: HANG,
        ..ClientConfig::default()
    };
    let mut serving = Running::start(address, folder.path());
    let mut client = Client::open(config, "m", spec()).unwrap();
    client.initialise(&[0.0; LEN]).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    let began = Instant::now();
    for round in 1..=count {
        if began.elapsed() > limit {
            println!("ended after {} of {count} kills: {limit:?} are over (THC_KILLS_LIMIT)", round - 1);
            break;
        }
        let mut files = Files::new(folder.path());
        let mut answered = Answered { pushes: Vec::new() };
        let until = Instant::now() + Duration::from_millis(random.u64(50..400));
        // Without two files there is nothing that must be there.
        let hung = Instant::now() + HANG;
        while Instant::now() < until || files.seen.iter().any(|[before, _]| before.is_none()) {
            assert!(Instant::now() < hung, "the shards' files are not replaced: {:?}", files.seen);
            let versions = push(&mut client);
            answered.pushes.push((SystemTime::now(), versions));
            files.look();
        }
        serving.kill();
        let killed = Instant::now();
        files.look();
        serving = Running::start(address, folder.path());
        let found = pull(&mut client);
        for (shard, version) in found.iter().enumerate() {
            let [before, last] = files.seen[shard].map(Option::unwrap);
            let promised = answered.version_before(shard, before.0).max(last.1);
            assert!(
                *version >= promised,
                "kill {round}: shard {shard} has version {version}, {promised} was promised: {:?}",
                files.seen[shard]
            );
            assert!(
                *version <= answered.last()[shard],
                "kill {round}: shard {shard} has more than was pushed"
            );
        }
        push(&mut client);
        outcome.recovery.push(killed.elapsed());
        let lost = found.iter().zip(answered.last()).map(|(found, last)| last - found);
        outcome.forgotten.push(lost.max().unwrap());
        outcome.pushes += answered.pushes.len() + 1;
        outcome.kills = round;
        if round % 10 == 0 {
            println!("{:5.0} s  {round} of {count} kills", began.elapsed().as_secs_f64());
        }
    }
    assert!(client.stats().reconnections >= outcome.kills as u64);
    outcome
}

#[test]
fn a_server_that_starts_again_lacks_no_more_than_is_promised() {
    println!("{HEAD}\n{}", kills(3, HANG, 2).row());
}

/// `make kills-async`
#[test]
#[ignore = "takes minutes"]
fn many_kills() {
    let variable = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let limit = Duration::from_secs(60 * variable("THC_KILLS_LIMIT", 20));
    println!("{HEAD}\n{}", kills(variable("THC_KILLS", 100) as usize, limit, 3).row());
}
