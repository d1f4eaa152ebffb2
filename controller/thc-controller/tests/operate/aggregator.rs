//! A software parameter server that is a target, and workers of its jobs.

use crate::controller::{Controller, target};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use thc_ps::{Server, ServerOptions};
use thc_worker::{Group, GroupConfig};

/// One on free ports, without jobs.
pub fn start() -> Server {
    let text = "listen = \"127.0.0.1:0\"\n[p4runtime]\nlisten = \"127.0.0.1:0\"\n";
    Server::start(ServerOptions::parse(text).unwrap().validate().unwrap()).unwrap()
}

/// As a target of a configuration.
pub fn target_section(server: &Server, name: &str) -> String {
    target(name, &server.p4runtime().unwrap().to_string(), server.local().port())
}

/// A worker that averages until it is told to stop.
pub struct Averager {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Averager {
    /// Joins a job by its name.
    pub fn join(listen: SocketAddr, job: &str) -> Averager {
        let url = format!("thc://{listen}/{job}").parse().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let controller = Some(thc_worker::Controller::new(url));
            let group = Group::join(GroupConfig { controller, ..GroupConfig::default() }).unwrap();
            let mut data = vec![1.0; 20_000];
            while !told.load(Ordering::Relaxed) {
                if group.allreduce(&mut data).is_err() {
                    // The others have gone: the test is over.
                    return;
                }
            }
        });
        Averager { stop, thread: Some(thread) }
    }
}

impl Drop for Averager {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // One that waits for another which has stopped fails when its time is over: nobody waits for that.
        drop(self.thread.take());
    }
}

/// A job of two workers at work, with this secret.
pub fn at_work(controller: &Controller, job: &str, cookie: &str) -> [Averager; 2] {
    controller.until_connected();
    controller.ask_done(&["job", "create", job, "--workers", "2", "--cookie", cookie]);
    let workers = [Averager::join(controller.listen, job), Averager::join(controller.listen, job)];
    controller.wait_until("at work", |controller| {
        let counters = controller.json(&["counters", job]);
        let workers = counters["jobs"][0]["workers"].as_array().cloned().unwrap_or_default();
        workers.len() == 2 && workers.iter().all(|worker| worker["packets"].as_u64().unwrap() > 100)
    });
    workers
}
