//! The library in one process: several groups and a parameter server on threads.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thc_codec::feedback::ErrorFeedback;
use thc_ps::{JobOptions, Server, ServerOptions};
use thc_tests::{COOKIE_NUMBER, WorkerProcess, gradient};
use thc_worker::{Call, Group, GroupConfig, Mode, Plan, Seat, Timeouts, WorkerError};

fn server_jobs(jobs: &[(u16, u64)]) -> Vec<JobOptions> {
    let job = jobs.iter().map(|&(job, workers)| JobOptions {
        job: Some(u64::from(job)),
        workers: Some(workers),
        cookie: Some(u64::from(COOKIE_NUMBER).into()),
        ..JobOptions::default()
    });
    job.collect()
}

fn server(jobs: &[(u16, u64)]) -> Server {
    let options = ServerOptions {
        listen: Some("127.0.0.1:0".into()),
        job: server_jobs(jobs),
        ..ServerOptions::default()
    };
    Server::start(options.validate().unwrap()).unwrap()
}

fn config(ps: SocketAddr, job: u16, worker: u8) -> GroupConfig {
    let timeouts = Timeouts { progress: Duration::from_secs(20), ..Timeouts::default() };
    GroupConfig { seat: Seat { ps, job, worker, cookie: COOKIE_NUMBER }, timeouts, ..GroupConfig::default() }
}

/// Runs `work` on a thread for each worker of a job and returns what each gives.
fn on_all<T: Send + 'static>(
    ps: SocketAddr,
    job: u16,
    workers: u8,
    work: impl Fn(u8, Group) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..workers)
        .map(|w| {
            let work = Arc::clone(&work);
            std::thread::spawn(move || work(w, Group::join(config(ps, job, w)).unwrap()))
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

fn nmse(truth: &[f32], estimate: &[f32]) -> f64 {
    let error: f64 = truth.iter().zip(estimate).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / truth.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
}

#[test]
fn idle_workers_make_themselves_known_to_a_server_that_was_restarted() {
    let options = |listen: String| ServerOptions {
        listen: Some(listen),
        job: server_jobs(&[(1, 2)]),
        ..ServerOptions::default()
    };
    let first = server(&[(1, 2)]);
    let at = first.local();
    let join = |worker| std::thread::spawn(move || Group::join(config(at, 1, worker)).unwrap());
    let groups = [join(0), join(1)].map(|thread| thread.join().unwrap());
    drop(first);
    let second = Server::start(options(at.to_string()).validate().unwrap()).unwrap();
    let end = Instant::now() + thc_tests::HANG;
    // Nobody calls anything.
    while !second.stats().job(1).unwrap().running {
        assert!(Instant::now() < end, "the session did not go on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let calls = groups.map(|group| std::thread::spawn(move || group.allreduce(&mut [1.0; 3000]).unwrap()));
    for call in calls {
        call.join().unwrap();
    }
    assert_eq!(second.stats().job(1).unwrap().sessions, 1, "and no worker has had to join anew");
}

#[test]
fn several_tensors_in_flight_complete_in_order() {
    let server = server(&[(1, 3)]);
    let lengths = [1, 1024, 5_000, 1_200_000, 17, 70_000];
    let results = on_all(server.local(), 1, 3, move |w, group| {
        let handles: Vec<_> = (0u64..)
            .zip(lengths)
            .map(|(i, n)| {
                let options = Call { feedback: Some(i), ..Call::default() };
                group.start(gradient(n, i * 10 + u64::from(w)), options).unwrap()
            })
            .collect();
        handles.into_iter().map(|h| h.wait().unwrap()).collect::<Vec<_>>()
    });
    for (i, n) in lengths.into_iter().enumerate() {
        assert!(results.iter().all(|r| r[i] == results[0][i]));
        if n >= 1024 {
            let all: Vec<_> = (0..3).map(|w| gradient(n, i as u64 * 10 + w)).collect();
            let mean: Vec<f32> = (0..n).map(|c| (all[0][c] + all[1][c] + all[2][c]) / 3.0).collect();
            assert!(nmse(&mean, &results[0][i]) < 0.05);
        }
    }
}

#[test]
fn mixed_modes_on_one_group() {
    let server = server(&[(1, 2)]);
    let results = on_all(server.local(), 1, 2, |w, group| {
        let mut out = Vec::new();
        for round in 0..6 {
            let mut data = gradient(40_000, round * 2 + u64::from(w));
            let mode = if round % 2 == 0 { Mode::Raw } else { Mode::Compressed };
            group.call(&mut data, Call { plan: Plan::Whole(mode), feedback: None }).unwrap();
            out.push(data);
        }
        out
    });
    for round in 0..6 {
        assert_eq!(results[0][round], results[1][round]);
        let (a, b) = (gradient(40_000, round as u64 * 2), gradient(40_000, round as u64 * 2 + 1));
        let mean: Vec<f32> = a.iter().zip(&b).map(|(a, b)| (a + b) / 2.0).collect();
        let error = nmse(&mean, &results[0][round]);
        assert!(error < if round % 2 == 0 { 1e-12 } else { 0.05 }, "round {round}: {error}");
    }
}

#[test]
fn jobs_on_one_server_do_not_disturb_each_other() {
    let server = server(&[(1, 2), (2, 3)]);
    let ps = server.local();
    let other = std::thread::spawn(move || {
        on_all(ps, 2, 3, |_, group| {
            for _ in 0..5 {
                let mut data = vec![2.0f32; 300_000];
                group.allreduce(&mut data).unwrap();
                let mean = data.iter().sum::<f32>() / 300_000.0;
                assert!((mean - 2.0).abs() < 0.05, "{mean}");
            }
        })
    });
    on_all(ps, 1, 2, |_, group| {
        for _ in 0..5 {
            let mut data = vec![-1.0f32; 300_000];
            group.allreduce(&mut data).unwrap();
            let mean = data.iter().sum::<f32>() / 300_000.0;
            assert!((mean + 1.0).abs() < 0.05, "{mean}");
        }
    });
    other.join().unwrap();
    let stats = server.shutdown();
    assert!(stats.job(1).unwrap().results > 0 && stats.job(2).unwrap().results > 0);
}

#[test]
fn a_failed_call_is_followed_by_a_good_one() {
    let server = server(&[(1, 2)]);
    let errors = on_all(server.local(), 1, 2, |w, group| {
        let mut data = gradient(9_000, u64::from(w));
        if w == 0 {
            data[8_999] = f32::INFINITY;
        }
        let before = data.clone();
        let error = group.allreduce(&mut data).unwrap_err();
        assert_eq!(data, before);
        let mut data = gradient(9_000, u64::from(w));
        group.allreduce(&mut data).unwrap();
        error.to_string()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("worker 0"), "{}", errors[0]);
}

#[test]
fn a_worker_that_restarts_ends_the_session_and_all_join_anew() {
    let server = server(&[(1, 2)]);
    let ps = server.local();
    let survivor = std::thread::spawn(move || {
        let group = Group::join(config(ps, 1, 0)).unwrap();
        // Until the other one is gone and comes back: then no call can succeed in the old session.
        let error = loop {
            if let Err(error) = group.allreduce(&mut gradient(20_000, 0)) {
                break error;
            }
        };
        assert!(matches!(error, WorkerError::Session(_)), "{error}");
        group.rejoin().unwrap();
        let mut data = gradient(20_000, 0);
        group.allreduce(&mut data).unwrap();
        data
    });
    // Worker 1 is a process that crashes: it says no good-bye.
    let mut crashes = WorkerProcess::start(ps, 1, &["--coordinates", "20000", "--repeat", "100000"]);
    while server.stats().job(1).is_none_or(|job| job.results < 20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    crashes.kill();
    let group = Group::join(config(ps, 1, 1)).unwrap();
    let mut data = gradient(20_000, 1);
    group.allreduce(&mut data).unwrap();
    assert_eq!(data, survivor.join().unwrap());
}

#[test]
fn error_feedback_can_be_saved_and_restored() {
    let server = server(&[(1, 2)]);
    on_all(server.local(), 1, 2, |w, group| {
        let options = Call { feedback: Some(77), ..Call::default() };
        let mut data = gradient(5_000, u64::from(w));
        group.call(&mut data, options).unwrap();
        let saved = group.save_feedback().unwrap();
        assert_eq!(saved.len(), 1);
        group.reset_feedback(77).unwrap();
        assert!(group.save_feedback().unwrap().is_empty());
        group.restore_feedback(77, 5_000, &saved[0].1).unwrap();
        assert_eq!(group.save_feedback().unwrap(), saved);
        let error = group.restore_feedback(77, 4_999, &saved[0].1).unwrap_err();
        assert!(error.to_string().contains("4999"), "{error}");
        let mut short = vec![1.0; 10];
        let error = group.call(&mut short, options).unwrap_err();
        assert!(matches!(error, WorkerError::FeedbackLength { before: 5_000, now: 10, .. }), "{error}");
    });
}

#[test]
fn who_saves_much_error_feedback_keeps_nobody_waiting_for_the_group() {
    let server = server(&[(1, 1)]);
    let group = Group::join(config(server.local(), 1, 0)).unwrap();
    let saved = ErrorFeedback::new(1 << 22).to_bytes();
    for key in 0..8 {
        group.restore_feedback(key, 1 << 22, &saved).unwrap();
    }
    // How long somebody else waits for the group at most, over how long saving takes: the least of some, for others want the
    // processor, too.
    let part = |_| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !done.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    group.parameters().unwrap();
                    longest = longest.max(began.elapsed());
                    std::thread::sleep(Duration::from_millis(1));
                }
                longest
            });
            let began = Instant::now();
            assert_eq!(group.save_feedback().unwrap().len(), 8);
            let took = began.elapsed();
            done.store(true, Ordering::SeqCst);
            asks.join().unwrap().as_secs_f64() / took.as_secs_f64()
        })
    };
    let least = (0..5).map(part).fold(f64::INFINITY, f64::min);
    assert!(least < 0.5, "{least}");
}

#[test]
fn an_empty_tensor_is_an_error_of_its_own() {
    let server = server(&[(1, 1)]);
    on_all(server.local(), 1, 1, |_, group| {
        assert!(matches!(group.allreduce(&mut []), Err(WorkerError::Empty)));
        group.allreduce(&mut [1.0, 2.0]).unwrap();
    });
}

/// A program that runs fewer workers than the job has would wait for those that do not exist.
#[test]
fn another_number_of_workers_is_an_error_at_once() {
    for (started, expected) in [(2, 2), (3, 4)] {
        let server = server(&[(1, 3)]);
        let began = Instant::now();
        let at = server.local();
        let joins = (0..started).map(|worker| {
            let config = GroupConfig { workers: Some(expected), ..config(at, 1, worker) };
            std::thread::spawn(move || Group::join(config).map(drop))
        });
        for join in joins.collect::<Vec<_>>() {
            let error = join.join().unwrap().unwrap_err().to_string();
            assert!(
                error.contains(&format!("job 1 has 3 workers, and this program runs {expected}")),
                "{error}"
            );
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
