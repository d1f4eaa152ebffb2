//! The server is killed at random moments; nothing is ever wrong, and work goes on.
#![allow(clippy::unwrap_used)]

mod setup;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use setup::SECRET;
use thc_model::{Client, ClientConfig, ClientStats, ModelBits, Pull, Push, ShardState, Spec};

struct Running(Child);

impl Running {
    fn start(address: SocketAddr, state: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_thc-model"))
            .args(["--job", "train", "--durable", "30ms", "--threads", "2", "--listen", &address.to_string()])
            .arg("--state")
            .arg(state)
            .env("THC_MODEL_SECRET", SECRET)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), format!("ready {address}"));
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

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
        if let Some(epoch) = pulled.waiting() {
            let mut snapshot = vec![0.0; d];
            if client.snapshot(&mut snapshot).unwrap() == Some(epoch) {
                // All shards have ended as many epochs, of as many pushes.
                let wanted = -(epoch as f32) * spec.epoch.unwrap().get() as f32;
                assert!(snapshot.iter().all(|v| *v == wanted), "{} in epoch {epoch}", snapshot[0]);
                if worker == 0 {
                    client.begin(epoch, &vec![1.0; d]).unwrap();
                }
            }
        } else if pulled.running() {
            client.push(&gradient, Push::bits(32)).unwrap();
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
                    servers: vec![address.to_string()],
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
            let patience = Instant::now() + Duration::from_secs(60);
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
    let spec = Spec::corrected(300, 1.0, NonZeroU32::new(20).unwrap());
    survives(Spec { bits: ModelBits::Fixed(32), shard: 100, workers: 3, ..spec }, 2);
}

#[test]
fn what_was_stopped_in_order_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec { bits: ModelBits::Fixed(32), shard: 100, ..Spec::sgd(1000, 1.0) };
    let mut version = 0;
    for _ in 0..3 {
        let running = [setup::server(Some(folder.path()))];
        let mut client = setup::client(&running, 0, "m", spec.clone());
        assert_eq!(client.initialise(&[0.0; 1000]).unwrap(), version == 0);
        let mut x = vec![0.0; 1000];
        for _ in 0..5 {
            let pulled = client.pull(&mut x, Pull::default()).unwrap();
            check(&x, &pulled.shards, 100);
            assert!(pulled.stamps().all(|stamp| stamp.version == version));
            client.push(&[1.0; 1000], Push::bits(32)).unwrap();
            version += 1;
        }
        let [server] = running;
        server.shutdown().unwrap();
    }
    // A damaged file is an error that says what to do, not a model that is wrong.
    let file = folder.path().join("train/m/shard-3");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error =
        thc_model::Server::start(setup::server_config(Some(folder.path()))).err().unwrap().to_string();
    assert!(error.contains("shard-3") && error.contains("remove the model's folder"), "{error}");
}

#[test]
fn a_server_without_state_forgets_and_says_so() {
    let address = free_address();
    let config = || thc_model::ServerConfig { listen: address, ..setup::server_config(None) };
    let running = [thc_model::Server::start(config()).unwrap()];
    let mut client = setup::client(&running, 0, "m", Spec::sgd(100, 1.0));
    client.initialise(&[1.0; 100]).unwrap();
    let mut x = vec![0.0; 100];
    client.pull(&mut x, Pull::default()).unwrap();
    drop(running);
    let _running = thc_model::Server::start(config()).unwrap();
    assert_eq!(client.pull(&mut x, Pull::default()).unwrap().shards, [ShardState::Empty]);
    assert!(client.initialise(&[1.0; 100]).unwrap());
}
