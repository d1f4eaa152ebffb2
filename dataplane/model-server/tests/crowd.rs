//! Many workers at a time, and one that is slow.
#![allow(clippy::unwrap_used)]

mod setup;

use setup::{client, server};
use thc_model::{ModelBits, Pull, Push, Reason, Spec};

#[test]
fn sixty_four_workers() {
    let running = server(None);
    let d = 2000;
    let spec = Spec { bits: ModelBits::Fixed(32), shard: 512, workers: 64, ..Spec::sgd(d as u64, 1.0) };
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
    }
}

fn server_of(running: &thc_model::ModelServer) -> thc_model::ModelJobStats {
    running.stats().jobs["train"].clone()
}

#[test]
fn a_slow_worker_is_waited_for_by_nobody() {
    for delay in [None, Some(4)] {
        let running = server(None);
        let spec = Spec { bits: ModelBits::Fixed(32), workers: 3, delay, ..Spec::sgd(64, 1.0) };
        let [mut slow, mut quick] = [0, 1].map(|worker| {
            let mut client = client(&running, worker, "m", spec.clone());
            client.initialise(&[0.0; 64]).unwrap();
            client
        });
        let mut x = vec![0.0; 64];
        slow.pull(&mut x, Pull::default()).unwrap();
        for _ in 0..5 {
            quick.pull(&mut x, Pull::default()).unwrap();
            assert_eq!(quick.push(&[1.0; 64], Push::bits(32)).unwrap().accepted_shards, 1);
        }
        let pushed = slow.push(&[1.0; 64], Push::bits(32)).unwrap();
        match delay {
            None => assert_eq!((pushed.accepted_shards, pushed.delay), (1, 5)),
            Some(_) => assert_eq!(pushed.refused, [(0, Reason::Late)]),
        }
        // In time again after another pull.
        slow.pull(&mut x, Pull::default()).unwrap();
        assert_eq!(slow.push(&[1.0; 64], Push::bits(32)).unwrap().accepted_shards, 1);
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
    let running = thc_model::ModelServer::start(config).unwrap();
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
    assert_eq!(running.stats().jobs["other"].models.len(), 4);
}

/// With six connections and two jobs, one job has three, whoever comes first.
#[test]
fn a_job_leaves_the_others_their_connections() {
    let jobs = ["train", "other"].map(|name| thc_model::ModelJobConfig::new(name, setup::SECRET.into()));
    let config =
        thc_model::ModelServerConfig { jobs: jobs.into(), connections: 6, ..setup::server_config(None) };
    let running = thc_model::ModelServer::start(config).unwrap();
    let open = |job: &str, worker, timeout| {
        let timeout = std::time::Duration::from_secs(timeout);
        let of = thc_model::ClientConfig { job: job.to_owned(), timeout, ..setup::config(&running, worker) };
        thc_model::Client::open(of, "m", Spec { workers: 8, ..Spec::sgd(4, 1.0) })
    };
    let mut held: Vec<_> = (0..3).map(|worker| open("train", worker, 60).unwrap()).collect();
    let error = open("train", 3, 5).err().unwrap().to_string();
    assert!(error.contains("--connections"), "{error}");
    assert!(server_of(&running).refused["full"] > 0);
    // A worker that comes again takes its own place.
    held.push(open("train", 0, 60).unwrap());
    held.extend((0..3).map(|worker| open("other", worker, 60).unwrap()));
}
