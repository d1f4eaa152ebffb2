//! Many workers at a time, and one that is slow.
#![allow(clippy::unwrap_used)]

mod setup;

use std::time::Duration;

use setup::{client, server};
use thc_model::{ModelBits, Pull, Push, Spec};

#[test]
fn sixty_four_workers() {
    let running = [server(None)];
    let d = 2000;
    let spec = Spec {
        bits: ModelBits::Fixed(32),
        shard: 512,
        workers: 64,
        delay: Some(70),
        ..Spec::sgd(d as u64, 1.0)
    };
    std::thread::scope(|scope| {
        for worker in 0..64 {
            let (running, spec) = (&running, spec.clone());
            scope.spawn(move || {
                let mut client = client(running, worker, "m", spec);
                client.initialise(&vec![0.0; d]).unwrap();
                let mut x = vec![0.0; d];
                client.pull(&mut x, Pull::default()).unwrap();
                for _ in 0..8 {
                    let (pushed, pulled) =
                        client.push_pull(&vec![1.0; d], Push::bits(32), &mut x, Pull::default()).unwrap();
                    assert_eq!(pushed.accepted_shards, 4, "{pushed:?}");
                    assert!(pushed.delay <= 70);
                    for (x, stamp) in x.chunks(512).zip(pulled.stamps()) {
                        assert!(x.iter().all(|v| *v == -(stamp.version as f32)));
                    }
                }
            });
        }
    });
    let stats = server_of(&running);
    assert_eq!(stats.pushes, 4 * 64 * 8);
    for shard in &stats.models[0].shards {
        assert_eq!(shard.version, 64 * 8);
        assert!(shard.longest_delay <= 70);
    }
}

fn server_of(running: &[thc_model::ModelServer]) -> thc_model::ModelJobStats {
    running[0].stats().jobs["train"].clone()
}

#[test]
fn nobody_waits_for_a_slow_worker_until_the_bound() {
    for (delay, waits) in [(None, false), (Some(4), true)] {
        let running = [server(None)];
        let spec = Spec { bits: ModelBits::Fixed(32), workers: 3, delay, ..Spec::sgd(64, 1.0) };
        let steps = std::thread::scope(|scope| {
            let work = |worker: u16, pause: Duration, steps: u64| {
                let (running, spec) = (&running, spec.clone());
                move || {
                    let mut client = client(running, worker, "m", spec);
                    client.initialise(&[0.0; 64]).unwrap();
                    let mut x = vec![0.0; 64];
                    for _ in 0..steps {
                        client.pull(&mut x, Pull::default()).unwrap();
                        std::thread::sleep(pause);
                        let pushed = client.push(&[1.0; 64], Push::bits(32)).unwrap();
                        assert_eq!(pushed.accepted_shards, 1, "{pushed:?}");
                    }
                    client.stats().longest_delay
                }
            };
            let slow = scope.spawn(work(0, Duration::from_millis(50), 4));
            let quick = [1, 2].map(|worker| scope.spawn(work(worker, Duration::from_millis(1), 40)));
            let slow = slow.join().unwrap();
            for worker in quick {
                worker.join().unwrap();
            }
            slow
        });
        let stats = server_of(&running);
        assert_eq!(stats.pushes, 84);
        if waits {
            assert!(stats.waits > 0);
            assert!(steps <= 4, "delay {steps}");
        } else {
            assert_eq!(stats.waits, 0);
            assert!(steps > 4, "delay {steps}");
        }
    }
}

#[test]
fn several_models_and_jobs_share_a_server() {
    let config = thc_model::ModelServerConfig {
        jobs: ["train", "other"]
            .map(|name| thc_model::ModelJobConfig::new(name, setup::SECRET.into()))
            .into(),
        ..setup::server_config(None)
    };
    let running = [thc_model::ModelServer::start(config).unwrap()];
    for job in ["train", "other"] {
        for number in 0..4_u32 {
            let config = thc_model::ClientConfig { job: job.to_owned(), ..setup::config(&running, 0) };
            let length = 10 * (u64::from(number) + 1);
            let name = format!("model-{number}");
            let mut client = thc_model::Client::open(config, &name, Spec::sgd(length, 1.0)).unwrap();
            client.initialise(&vec![number as f32; length as usize]).unwrap();
            let mut x = vec![9.0; length as usize];
            client.pull(&mut x, Pull::default()).unwrap();
            assert!(x.iter().all(|v| *v == number as f32));
        }
    }
    assert_eq!(running[0].stats().jobs["other"].models.len(), 4);
}
