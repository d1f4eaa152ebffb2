//! What a restart of a controller keeps: sessions, numbers of workers, and the state file.

use crate::aggregator::{self, Averager};
use crate::controller::{Controller, run};
use std::fs;
use std::path::Path;
use thc_control_proto::v1::control_client::ControlClient;
use thc_control_proto::v1::{JoinRequest, JoinResponse};

/// A worker that says who it is by `token` asks for a number.
fn join(controller: &Controller, token: u64) -> Result<JoinResponse, tonic::Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = ControlClient::connect(format!("http://{}", controller.listen)).await.unwrap();
        let request = JoinRequest { job: "a".to_owned(), rank: None, token };
        client.join(request).await.map(tonic::Response::into_inner)
    })
}

fn results(controller: &Controller) -> f64 {
    controller.metric("thc_results", &[("thc_job", "a")]).unwrap_or(0.0)
}

/// A controller with another state file leaves sessions alone, and says so.
#[test]
fn sessions_that_the_state_file_does_not_know_go_on() {
    let server = aggregator::start();
    let target = aggregator::target_section(&server, "ps1");
    let first = Controller::start(&target);
    first.until_connected();
    first.ask_done(&["job", "create", "a", "--workers", "1"]);
    let worker = Averager::join(first.listen, "a");
    first.wait_until("at work", |controller| results(controller) > 10.0);
    let folder = first.stop();
    let other = Controller::start_with(&target, &folder.path().join("other.state"));
    let says = "it holds sessions of jobs that the state file does not have (numbers 1)";
    other.wait_until("refused", |other| other.ask_done(&["target", "list"]).contains(says));
    drop(other);
    // The one that knows the session has all its rows, and its worker still averages.
    let again = Controller::start_in(folder, &target);
    again.until_connected();
    assert!(again.log().contains("its session of 1 worker goes on"), "{}", again.log());
    let before = results(&again);
    again.wait_until("still at work", |controller| results(controller) > before + 10.0);
    assert_eq!(again.json(&["job", "show", "a"])["places"][0]["sessions"], 1);
    drop(worker);
}

/// A job that is deleted while its target is away is no stranger there.
#[test]
fn a_job_that_was_deleted_meanwhile_goes_when_its_target_is_back() {
    let server = aggregator::start();
    let target = aggregator::target_section(&server, "ps1");
    let first = Controller::start(&target);
    first.until_connected();
    first.ask_done(&["job", "create", "a", "--workers", "1"]);
    let worker = Averager::join(first.listen, "a");
    first.wait_until("at work", |controller| results(controller) > 10.0);
    let folder = first.stop();
    let file = folder.path().join("jobs.state");
    let away = target.replace("address = \"127.0.0.1:", "address = \"127.0.0.2:");
    assert_ne!(away, target);
    let without = Controller::start_with(&away, &file);
    without.ask_done(&["job", "delete", "a", "--yes"]);
    drop(without);
    let again = Controller::start_in(folder, &target);
    again.until_connected();
    assert_eq!(aggregator::count_rows(&server, "jobs"), 0);
    drop(worker);
}

/// A target that was renamed or removed takes no session with it: the controller does not start.
#[test]
fn a_state_file_of_other_targets_is_refused() {
    let server = aggregator::start();
    let target = aggregator::target_section(&server, "ps1");
    let first = Controller::start(&target);
    first.until_connected();
    first.ask_done(&["job", "create", "a", "--workers", "1"]);
    let folder = first.stop();
    let (config, state) = (folder.path().join("renamed.toml"), folder.path().join("jobs.state"));
    fs::write(&config, target.replace("\"ps1\"", "\"ps-1\"")).unwrap();
    let (config, state) = (config.to_str().unwrap(), state.to_str().unwrap());
    for more in [&["--check"][..], &["--listen", "127.0.0.1:0"]] {
        let ended = run(&[&["run", "--config", config, "--state", state], more].concat(), &[]);
        assert_eq!((ended.code, ended.err.lines().count()), (Some(1), 1), "{ended:?}");
        assert!(ended.err.contains("has job a on target ps1, which the configuration lacks"), "{ended:?}");
    }
}

/// One controller at a time has a state file.
#[test]
fn a_second_controller_is_refused() {
    let target = crate::controller::target("ps1", crate::controller::NOWHERE, 9000);
    let first = Controller::start(&target);
    let (config, state) = (first.folder().join("thc-controller.toml"), first.folder().join("jobs.state"));
    let (config, state) = (config.to_str().unwrap(), state.to_str().unwrap());
    let ended = run(&["run", "--config", config, "--state", state, "--listen", "127.0.0.1:0"], &[]);
    assert_eq!((ended.code, ended.err.lines().count()), (Some(1), 1), "{ended:?}");
    let says = format!("process {} on ", first.id());
    assert!(ended.err.contains(&says) && ended.err.contains("has the state file"), "{ended:?}");
    let check = run(&["run", "--config", config, "--state", state, "--check"], &[]);
    assert_eq!(check.code, Some(0), "{check:?}");
}

/// A number that a worker has been told is nobody else's after a restart.
#[test]
fn numbers_outlast_a_controller() {
    let server = aggregator::start();
    let target = aggregator::target_section(&server, "ps1");
    let first = Controller::start(&target);
    first.until_connected();
    first.ask_done(&["job", "create", "a", "--workers", "2"]);
    assert_eq!(join(&first, 1).unwrap().worker, 0);
    let again = Controller::start_in(first.stop(), &target);
    again.until_connected();
    assert_eq!(join(&again, 2).unwrap().worker, 1);
    assert_eq!(join(&again, 1).unwrap().worker, 0);
}

/// Moves the times of a state file forward, as a clock does that goes back.
fn move_clock(state: &Path) {
    let mut kept: serde_json::Value = serde_json::from_str(&fs::read_to_string(state).unwrap()).unwrap();
    let asked = &mut kept["store"]["jobs"]["a"]["given"]["0"]["asked"];
    *asked = (asked.as_u64().unwrap() + 3600).into();
    fs::write(state, kept.to_string()).unwrap();
}

/// Workers that were there before the clock went back keep their numbers no longer than others.
#[test]
fn a_clock_that_goes_back_holds_no_numbers() {
    let server = aggregator::start();
    let target = aggregator::target_section(&server, "ps1");
    let first = Controller::start(&target);
    first.until_connected();
    first.ask_done(&["job", "create", "a", "--workers", "1"]);
    assert_eq!(join(&first, 1).unwrap().worker, 0);
    let folder = first.stop();
    move_clock(&folder.path().join("jobs.state"));
    let again = Controller::start_in(folder, &target);
    again.until_connected();
    assert_eq!(join(&again, 2).unwrap().worker, 0);
}
