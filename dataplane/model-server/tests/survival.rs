//! The server is killed at random moments; nothing is ever wrong, and work goes on.
#![allow(clippy::unwrap_used)]

mod program;
mod setup;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use program::{Running, free_address};
use setup::SECRET;
use thc_model::{Client, ClientConfig, ClientStats, ModelBits, Pull, Push, ShardState, Spec};

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(600);

/// Every push takes 1 from every coordinate, so in each shard x is −version: a mixture of versions, a push that was
/// applied twice or half, or an old file in the place of a newer one would show.
fn check(x: &[f32], states: &[ShardState], shard: usize) {
    for (x, state) in x.chunks(shard).zip(states) {
        if let ShardState::Running(stamp) = state {
            let wanted = -(stamp.version as f32);
            assert!(x.iter().all(|v| *v == wanted), "{:?} at version {}", &x[..3], stamp.version);
        }
    }
}

/// Pulls and pushes until told to stop: its totals, and the newest version it saw.
fn work(config: ClientConfig, spec: &Spec, stop: &AtomicBool, pushes: &AtomicU64) -> (ClientStats, u64) {
    let shard = spec.shard as usize;
    let d = spec.coordinates as usize;
    let worker = config.worker;
    let mut client = Client::open(config, "m", spec.clone()).unwrap();
    client.initialise(&vec![0.0; d]).unwrap();
    let (mut x, mut newest) = (vec![0.0; d], 0);
    // With correction the gradient comes from the server, and pushes are zero.
    let gradient = vec![if spec.corrected { 0.0 } else { 1.0 }; d];
    while !stop.load(Ordering::Relaxed) {
        let pulled = client.pull(&mut x, Pull::default()).unwrap();
        check(&x, &pulled.shards, shard);
        newest = pulled.stamps().map(|stamp| stamp.version).max().unwrap_or(newest);
        if let Some(epoch) = pulled.waiting_epoch() {
            let mut snapshot = vec![0.0; d];
            if client.snapshot(&mut snapshot).unwrap() == Some(epoch) {
                // All shards have ended as many epochs, of as many pushes.
                let wanted = -(epoch as f32) * spec.epoch.unwrap().get() as f32;
                assert!(snapshot.iter().all(|v| *v == wanted), "{} in epoch {epoch}", snapshot[0]);
                if worker == 0 {
                    client.begin(epoch, &vec![1.0; d]).unwrap();
                }
            }
        } else if pulled.is_running() {
            let _ = client.push(&gradient, Push::bits(32)).unwrap();
            pushes.fetch_add(1, Ordering::Relaxed);
        }
    }
    (client.stats().clone(), newest)
}

fn survives(spec: Spec, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut server = Running::start(address, folder.path());
    let (stop, pushes) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut forgotten, mut reconnections, mut newest) = (0, 0, 0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let config = ClientConfig {
                    server: address.to_string(),
                    secret: SECRET.into(),
                    worker,
                    timeout: Duration::from_secs(60),
                    ..ClientConfig::default()
                };
                let (spec, stop, pushes) = (&spec, &stop, &pushes);
                scope.spawn(move || work(config, spec, stop, pushes))
            })
            .collect();
        for _ in 0..6 {
            // Somebody has come back, or there would be nothing to lose.
            let before = pushes.load(Ordering::Relaxed);
            let patience = Instant::now() + HANG;
            while pushes.load(Ordering::Relaxed) == before && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(random.u64(20..400)));
            server.kill();
            server = Running::start(address, folder.path());
        }
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            let (stats, seen) = worker.join().unwrap();
            forgotten += stats.forgotten;
            reconnections += stats.reconnections;
            newest = newest.max(seen);
        }
    });
    assert!(reconnections >= 6, "{reconnections} reconnections");
    assert!(
        newest > 0 && newest <= pushes.load(Ordering::Relaxed),
        "version {newest} after {pushes:?} pushes"
    );
    if let Some(m) = spec.epoch {
        // At most an epoch at each kill, in each of three shards, as each of three workers saw it; once each.
        let most = 6 * 9 * u64::from(m.get());
        assert!(forgotten <= most, "{forgotten} steps forgotten, at most {most} may be");
    }
    println!("{newest} steps of {pushes:?} pushes, {forgotten} forgotten as seen by workers");
}

#[test]
fn killed_at_random_moments_sgd_goes_on() {
    survives(
        Spec { bits: ModelBits::Fixed(32), shard: 100, workers: 3, delay: Some(8), ..Spec::sgd(1000, 1.0) },
        1,
    );
}

#[test]
fn killed_at_random_moments_epochs_go_on() {
    let spec = Spec::asylpg(300, 1.0, NonZeroU32::new(20).unwrap());
    survives(Spec { bits: ModelBits::Fixed(32), shard: 100, workers: 3, ..spec }, 2);
}

#[test]
fn what_was_stopped_in_order_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec { bits: ModelBits::Fixed(32), shard: 100, ..Spec::sgd(1000, 1.0) };
    let mut version = 0;
    for _ in 0..3 {
        let running = setup::server(Some(folder.path()));
        let mut client = setup::client(&running, 0, "m", spec.clone());
        assert_eq!(client.initialise(&[0.0; 1000]).unwrap(), version == 0);
        let mut x = vec![0.0; 1000];
        for _ in 0..5 {
            let pulled = client.pull(&mut x, Pull::default()).unwrap();
            check(&x, &pulled.shards, 100);
            assert!(pulled.stamps().all(|stamp| stamp.version == version));
            let _ = client.push(&[1.0; 1000], Push::bits(32)).unwrap();
            version += 1;
        }
        running.shutdown().unwrap();
    }
}

/// A file with two jobs, whose secrets are alike.
fn two_jobs(folder: &Path) -> String {
    let file = folder.join("thc-model.toml");
    let job = |name| format!("[[job]]\nname = \"{name}\"\nsecret = \"{SECRET}\"\n");
    std::fs::write(&file, job("train") + &job("other")).unwrap();
    file.to_str().unwrap().to_owned()
}

fn of_job(address: SocketAddr, job: &str) -> ClientConfig {
    ClientConfig {
        server: address.to_string(),
        job: job.to_owned(),
        secret: SECRET.into(),
        timeout: Duration::from_secs(60),
        ..ClientConfig::default()
    }
}

#[test]
fn a_job_that_diverges_keeps_no_other_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = two_jobs(folder.path());
    let state = folder.path().join("state");
    let flags = ["--config", &file, "--durable", "30ms", "--state", state.to_str().unwrap()];
    let address = free_address();
    let mut server = Running::start_with(address, &flags);
    let mut x = vec![0.0; 64];
    let mut other = Client::open(of_job(address, "other"), "m", Spec::sgd(64, 1.0)).unwrap();
    other.initialise(&[5.0; 64]).unwrap();
    for spec in [
        Spec::sgd(64, 3.0),
        Spec { accelerated: true, ..Spec::asylpg(64, 3.0, NonZeroU32::new(50).unwrap()) },
    ] {
        let name = if spec.accelerated { "accelerated" } else { "plain" };
        let mut client = Client::open(of_job(address, "train"), name, spec.clone()).unwrap();
        client.initialise(&[1.0; 64]).unwrap();
        // x ← x − 3 x: twice as large at every step, until a float cannot hold it.
        let mut error = None;
        for _ in 0..2000 {
            let pulled = client.pull(&mut x, Pull::default()).unwrap();
            assert!(x.iter().all(|v| v.is_finite()));
            if let Some(epoch) = pulled.waiting_epoch() {
                client.snapshot(&mut x).unwrap();
                assert!(x.iter().all(|v| v.is_finite()));
                client.begin(epoch, &[0.0; 64]).unwrap();
                continue;
            }
            if let Err(refused) = client.push(&x.clone(), Push::bits(32)) {
                error = Some(refused.to_string());
                break;
            }
        }
        let error = error.unwrap();
        assert!(error.contains("diverges") && error.contains("lower rate"), "{error}");
        // The numbers are what they were.
        client.pull(&mut x, Pull::default()).unwrap();
        assert!(x.iter().all(|v| v.is_finite() && v.abs() > 1e30), "{}", x[0]);
    }
    std::thread::sleep(Duration::from_millis(300));
    server.kill();
    let mut server = Running::start_with(address, &flags);
    for name in ["plain", "accelerated"] {
        let file = state.join("train").join(name).join("shard-0");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[200] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }
    other.pull(&mut x, Pull::default()).unwrap();
    assert!(x.iter().all(|v| (v - 5.0).abs() < 0.1), "{}", x[0]);
    // A file that is damaged indeed concerns its model alone.
    server.kill();
    let mut server = Running::start_with(address, &flags);
    other.pull(&mut x, Pull::default()).unwrap();
    let mut third = Client::open(of_job(address, "train"), "third", Spec::sgd(64, 1.0)).unwrap();
    assert!(third.initialise(&[5.0; 64]).unwrap());
    let open = || Client::open(of_job(address, "train"), "plain", Spec::sgd(64, 3.0));
    let error = open().err().unwrap().to_string();
    assert!(error.contains("shard-0") && error.contains("remove the model's folder"), "{error}");
    // As it says; nobody has to start the server again.
    std::fs::remove_dir_all(state.join("train/plain")).unwrap();
    assert!(open().unwrap().initialise(&[5.0; 64]).unwrap());
    server.kill();
}

#[test]
fn a_server_without_state_forgets_and_says_so() {
    let address = free_address();
    let config = || thc_model::ModelServerConfig { listen: address, ..setup::server_config(None) };
    let running = thc_model::ModelServer::start(config()).unwrap();
    let mut client = setup::client(&running, 0, "m", Spec::sgd(100, 1.0));
    client.initialise(&[1.0; 100]).unwrap();
    let mut x = vec![0.0; 100];
    client.pull(&mut x, Pull::default()).unwrap();
    drop(running);
    let _running = thc_model::ModelServer::start(config()).unwrap();
    assert_eq!(client.pull(&mut x, Pull::default()).unwrap().shards, [ShardState::Empty]);
    assert!(client.initialise(&[1.0; 100]).unwrap());
}
