//! Jobs that a file declares.

use crate::aggregator;
use crate::controller::{Controller, Ended, PROGRAM, run};
use std::fs;
use std::process::{Command, Stdio};

fn apply(controller: &Controller, jobs: &str, more: &[&str]) -> Ended {
    let file = controller.folder().join("jobs.toml");
    fs::write(&file, jobs).unwrap();
    controller.ask(&[&["apply", "-f", file.to_str().unwrap()], more].concat())
}

fn job(name: &str, workers: u32) -> String {
    format!("[[job]]\nname = \"{name}\"\nworkers = {workers}\ndata_slots = 64\nnorm_slots = 16\n")
}

/// Makes a job that no file declares.
fn create_by_hand(controller: &Controller) {
    let slots = ["--data-slots", "64", "--norm-slots", "16"];
    controller.ask_done(&[&["job", "create", "by-hand", "--workers", "2"][..], &slots].concat());
}

fn jobs(controller: &Controller) -> Vec<String> {
    let list = controller.json(&["job", "list"]);
    let name = |job: &serde_json::Value| job["spec"]["name"].as_str().unwrap().to_owned();
    list["jobs"].as_array().unwrap().iter().map(name).collect()
}

fn is_running(controller: &Controller, job: &str) -> bool {
    controller.json(&["job", "show", job])["places"][0]["running"] == true
}

#[test]
fn what_a_file_declares_is_so() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    controller.until_connected();
    create_by_hand(&controller);
    let both = job("a", 2) + &job("b", 3);
    let plan = apply(&controller, &both, &["--plan"]);
    assert_eq!(plan.out, "+ job a is created\n+ job b is created\n");
    assert_eq!(jobs(&controller), ["by-hand"]);
    // Nobody is there who could confirm it.
    let asked = apply(&controller, &both, &[]);
    assert!(asked.code == Some(1) && asked.err.contains("--yes"), "{asked:?}");
    assert_eq!(jobs(&controller), ["by-hand"]);
    assert_eq!(apply(&controller, &both, &["--yes"]).code, Some(0));
    assert_eq!(jobs(&controller), ["a", "b", "by-hand"]);
    let same = apply(&controller, &both, &[]);
    assert_eq!((same.code, same.out.as_str()), (Some(0), "  job a stays as it is\n  job b stays as it is\n"));
    // One is changed, and those that are not declared go.
    let other = job("a", 4);
    let plan = apply(&controller, &other, &["--plan", "--prune"]);
    assert!(plan.out.contains("~ job a changes\n") && plan.out.contains("workers: 2 -> 4"), "{plan:?}");
    assert!(!plan.out.contains("granularity:"), "what follows from a declared key: {plan:?}");
    assert!(plan.out.ends_with("- job b is deleted\n- job by-hand is deleted\n"), "{plan:?}");
    assert_eq!(apply(&controller, &other, &["--yes", "--prune"]).code, Some(0));
    assert_eq!(jobs(&controller), ["a"]);
    assert_eq!(controller.json(&["job", "show", "a"])["spec"]["workers"], 4);
    // All or nothing of what cannot be.
    let wrong = apply(&controller, &(job("a", 2) + &job("c", 65)), &["--yes"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("job c"), "{wrong:?}");
    assert_eq!(controller.json(&["job", "show", "a"])["spec"]["workers"], 4);
    let twice = apply(&controller, &(job("a", 2) + &job("a", 3)), &["--yes"]);
    assert!(twice.err.contains("job a: it is declared twice"), "{twice:?}");
    let log = controller.log();
    assert!(log.contains("job b: created on ps1") && log.contains("job b: deleted"), "{log}");
}

/// A job that runs is left as it is, and that is said.
#[test]
fn a_session_is_not_disturbed_by_what_is_declared() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    controller.until_connected();
    assert_eq!(apply(&controller, &job("a", 1), &["--yes"]).code, Some(0));
    let worker = aggregator::Averager::join(controller.listen, "a");
    controller.wait_until("running", |controller| is_running(controller, "a"));
    let changed = apply(&controller, &job("a", 2), &["--yes"]);
    assert!(changed.code == Some(1) && changed.err.contains("runs with 1 worker on ps1"), "{changed:?}");
    let pruned = apply(&controller, &job("b", 2), &["--yes", "--prune"]);
    assert!(pruned.code == Some(1) && pruned.err.contains("job delete a --yes"), "{pruned:?}");
    assert_eq!(jobs(&controller), ["a", "b"]);
    assert_eq!(controller.json(&["job", "show", "a"])["spec"]["workers"], 1);
    let refused = controller.ask(&["job", "delete", "a"]);
    assert!(
        refused.code == Some(1) && refused.err.contains("runs with 1 worker on ps1: give --yes"),
        "{refused:?}"
    );
    drop(worker);
    controller.wait_until("idle", |controller| !is_running(controller, "a"));
    assert_eq!(apply(&controller, &job("a", 2), &["--yes"]).code, Some(0));
    assert_eq!(controller.json(&["job", "show", "a"])["spec"]["workers"], 2);
}

/// The configuration's own jobs are made and changed with it.
#[test]
fn the_configuration_says_what_there_is() {
    let server = aggregator::start();
    let target = aggregator::target_section(&server, "ps1");
    let controller = Controller::start(&(target.clone() + &job("a", 2) + &job("b", 2)));
    controller.until_connected();
    create_by_hand(&controller);
    let folder = controller.stop();
    let controller = Controller::start_in(folder, &(target.clone() + &job("a", 3)));
    assert_eq!(jobs(&controller), ["a", "b", "by-hand"]);
    assert_eq!(controller.json(&["job", "show", "a"])["spec"]["workers"], 3);
    let file = controller.folder().join("c.toml");
    fs::write(&file, target + &job("a", 3)).unwrap();
    let state = controller.folder().join("jobs.state");
    let check =
        run(&["run", "--check", "--config", file.to_str().unwrap(), "--state", state.to_str().unwrap()], &[]);
    assert_eq!(
        (check.code, check.out.as_str()),
        (Some(0), "ok: 1 target, 1 declared job, 3 jobs in the state file\n")
    );
}

/// systemd hears that a controller is ready and alive, and probes find it.
#[test]
fn it_says_that_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let heard = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    heard.set_read_timeout(Some(crate::controller::HANG)).unwrap();
    let config = folder.path().join("c.toml");
    fs::write(&config, crate::controller::target("ps1", crate::controller::NOWHERE, 9000)).unwrap();
    let mut child = Command::new("sh")
        .args([
            "-c",
            "WATCHDOG_PID=$$ exec \"$0\" run --state none --listen 127.0.0.1:0 --config \"$1\"",
            PROGRAM,
        ])
        .arg(&config)
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "200000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut buffer = [0; 64];
    let mut next = || {
        let length = heard.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    assert_eq!(next(), "READY=1");
    assert_eq!((next(), next()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    while next() != "STOPPING=1" {}
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let target = crate::controller::target("ps1", crate::controller::NOWHERE, 9000);
    let controller = Controller::start(&target);
    for path in ["/healthz", "/readyz"] {
        assert!(controller.get(path).0.contains("200 OK"), "{path}");
    }
}
