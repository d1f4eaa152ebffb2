//! What goes wrong at a switch, and what it must not take with it.

use crate::controller::{Controller, PROGRAM};
use crate::programs::{COOKIE, Site, TOFINO2, V1MODEL};
use crate::strict::Strict;
use p4runtime_proto::p4info;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thc_protocol::Cookie;
use thc_protocol::wire::{Join, Kind};
use thc_transport::frame::Datagram;
use tonic::Code;

fn create(controller: &Controller, name: &str, more: &[&str]) -> crate::controller::Ended {
    let cookie = COOKIE.to_string();
    let job =
        ["job", "create", name, "--workers", "2", "--data-slots", "64", "--norm-slots", "32", "--cookie"];
    controller.ask(&[&job[..], &[&cookie], more].concat())
}

/// Declares a job anew, with so many workers.
fn apply(controller: &Controller, name: &str, workers: u8) -> crate::controller::Ended {
    let job = format!("[[job]]\nname = {name:?}\nworkers = {workers}\ndata_slots = 64\nnorm_slots = 32\n");
    let file = controller.folder().join(format!("{name}.toml"));
    std::fs::write(&file, job).unwrap();
    controller.ask(&["apply", "--yes", "-f", file.to_str().unwrap()])
}

/// Programs that were loaded.
fn loads(site: &Site) -> usize {
    site.strict.state().loads
}

fn is_connected(controller: &Controller, target: usize) -> bool {
    controller.json(&["target", "list"])["targets"][target]["connected"] == true
}

/// A session that the registry has begun is there when the target is, whatever has failed in between.
#[test]
fn a_session_that_begins_in_a_bad_moment_has_its_rows() {
    let site = Site::start(V1MODEL);
    site.create();
    site.strict.state().faults.counter = Some(("events", usize::MAX));
    let said = |site: &Site| site.controller().log().matches("a bad moment").count();
    site.controller().wait_until("failed", |_| {
        site.join(7, 1);
        said(&site) > 0
    });
    for _ in 0..10 {
        site.join(7, 1);
        std::thread::sleep(Duration::from_millis(100));
    }
    site.strict.state().faults.counter = None;
    site.join_workers(1);
    site.controller().wait_until("a whole session", |_| site.rows() == site.with_session());
}

/// Only FAILED_PRECONDITION says that there is no program: whatever else goes wrong, what runs is not loaded again.
#[test]
fn a_switch_that_cannot_say_what_it_runs_is_not_loaded_again() {
    let site = Site::start(V1MODEL);
    site.create();
    site.join_workers(1);
    for code in
        [Code::Unavailable, Code::Internal, Code::DeadlineExceeded, Code::Unknown, Code::PermissionDenied]
    {
        site.strict.state().faults.program = Some(code);
        site.strict.cut();
        site.controller().wait_until("away", |controller| {
            controller.ask_done(&["target", "list"]).contains("asking for its program failed")
        });
        site.strict.state().faults.program = None;
        site.controller().wait_until("there again", |controller| is_connected(controller, 0));
        assert_eq!((loads(&site), site.rows()), (1, site.with_session()), "{code:?}");
    }
}

/// Another program in the configuration is loaded only if its operator says so: it costs the rows.
#[test]
fn a_program_is_replaced_when_its_operator_says_so() {
    let mut site = Site::start(V1MODEL);
    site.create();
    let session = site.join_workers(1);
    site.restart_controller(b"what a newer backend made");
    let log = site.controller().log();
    assert!(log.contains("with --replace-program to load that one, which empties the target"), "{log}");
    assert_eq!((loads(&site), site.rows()), (1, site.with_session()));
    site.restart_controller_with(b"what a newer backend made", &["--replace-program"]);
    site.controller().wait_until("there", |controller| is_connected(controller, 0));
    assert_eq!((loads(&site), site.rows()), (2, site.with_session()));
    assert_eq!(site.strict.values("jobs")[0]["cookie"], session.into(), "its session goes on");
}

/// A disk that takes nothing is no fault of a target. What waited for it is done when it takes files again.
#[test]
fn a_full_disk_takes_no_target_away() {
    let site = Site::start(V1MODEL);
    site.create();
    let controller = site.controller();
    // In the way of the new file, as a full disk is.
    let in_the_way = controller.folder().join("jobs.state.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let refused = create(controller, "b", &["--number", "8"]);
    assert!(refused.code == Some(1) && refused.err.contains("see to the disk"), "{refused:?}");
    assert_eq!(controller.json(&["job", "list"])["jobs"].as_array().unwrap().len(), 1);
    controller.wait_until("told", |controller| {
        site.join(7, 1);
        controller.log().contains("target chip: the state file")
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        site.join(7, 1);
        assert!(is_connected(controller, 0) && site.strict.rows("jobs") == 0, "{}", controller.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(site.sent_cookie(7, Kind::Welcome), None, "nobody is welcomed to a session that is not kept");
    std::fs::remove_dir(&in_the_way).unwrap();
    site.join_workers(1);
    assert_eq!(site.rows(), site.with_session());
}

/// What a switch has no place for is one job's affair.
#[test]
fn a_row_that_is_refused_takes_nothing_from_other_jobs() {
    let site = Site::start(V1MODEL);
    site.create();
    site.join_workers(1);
    let controller = site.controller();
    // At its session.
    assert_eq!(create(controller, "b", &["--number", "8"]).code, Some(0));
    site.strict.state().faults.full = Some(|table, job| table == "members" && job == 8);
    controller.wait_until("refused", |_| {
        site.join(8, 1);
        !site.strict.state().refused.is_empty()
    });
    controller.wait_until("told", |controller| {
        controller.ask(&["diagnose", "b"]).out.contains("target chip refuses rows of this job")
    });
    let row = |job: u128| site.strict.values("jobs").iter().any(|row| row["job"] == job);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        site.join(8, 1);
        assert!(is_connected(controller, 0) && row(7) && !row(8), "{}", controller.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(site.sent_cookie(8, Kind::Welcome), None, "nobody is welcomed to a session without rows");
    assert!(!controller.ask(&["diagnose", "a"]).out.contains("refuses"));
    site.strict.state().faults.full = None;
    site.joined_at(8, 1);
    assert!(row(7) && row(8));
    controller
        .wait_until("no more told", |controller| !controller.ask(&["diagnose", "b"]).out.contains("refuses"));

    // When it is made.
    site.strict.state().faults.full = Some(|table, job| table == "job_tables" && job == 9);
    let refused = create(controller, "c", &["--number", "9"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("created on no target: target chip refuses rows of job c"),
        "{}",
        refused.err
    );
    assert_eq!(controller.json(&["job", "list"])["jobs"].as_array().unwrap().len(), 2);

    // When it is changed: it has nothing there until it is changed again. And a table that is refused is none.
    assert_eq!(create(controller, "d", &["--number", "10"]).code, Some(0));
    let tables = site.strict.values("lookup");
    site.strict.state().faults.full = Some(|table, _| table == "lookup");
    let refused = apply(controller, "d", 5);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("job d is changed, but target chip refuses rows"), "{}", refused.err);
    assert_eq!(controller.json(&["job", "show", "d"])["spec"]["workers"], 5);
    assert_eq!(apply(controller, "d", 2).code, Some(0));
    assert_eq!(site.strict.values("lookup"), tables);
    assert!(is_connected(controller, 0) && row(7) && row(8));
    site.strict.state().faults.full = None;
    site.joined_at(10, 1);
    assert!(row(7) && row(8) && row(10));
}

/// Two switches, "hangs" and "works", and their controller, which waits so long for an answer.
fn two_switches(patience: &str) -> (Strict, Strict, Controller) {
    let info =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/build/thc.p4info.txtpb")).unwrap();
    let switches = ["hangs", "works"].map(|_| Strict::start(p4info::parse(&info).unwrap()));
    let config: String = ["hangs", "works"]
        .into_iter()
        .zip(&switches)
        .zip(["10.0.0.1", "10.0.0.2"])
        .map(|((name, switch), ip)| {
            let address = &switch.address;
            format!("[[target]]\nname = \"{name}\"\naddress = \"{address}\"\nip = \"{ip}\"\npatience = \"{patience}\"\n")
        })
        .collect();
    let controller = Controller::start(&config);
    controller.until_connected();
    let [hangs, works] = switches;
    (hangs, works, controller)
}

/// Two switches, of which one answers nothing of some kind: it is away in time, and nobody waits for it longer.
#[test]
fn a_switch_that_hangs_stops_nobody() {
    let (hangs, works, controller) = two_switches("1s");
    let silent = |controller: &Controller, request: &str| {
        let said = controller.json(&["target", "list"])["targets"][0]["error"].clone();
        said.as_str().is_some_and(|said| said.contains(request) && said.contains("no answer within 1"))
    };
    for (place, (request, said)) in [
        ("write", "a write"),
        ("read", "a read"),
        ("program", "asking for its program"),
        ("stream", "connecting"),
        ("load", "loading the program"),
    ]
    .into_iter()
    .enumerate()
    {
        hangs.state().faults.hangs = Some(request);
        match request {
            // Both are to have it, and so none has.
            "write" => {
                let refused = create(&controller, "both", &[]);
                assert_eq!(refused.code, Some(1), "{refused:?}");
                assert!(refused.err.contains("no answer within 1s"), "{}", refused.err);
                assert!(controller.ask_done(&["job", "list"]).contains("no jobs"));
            }
            "read" => {}
            "load" => hangs.restart(),
            _ => hangs.cut(),
        }
        if request != "write" {
            controller.wait_until(said, |controller| silent(controller, said));
        }
        let began = Instant::now();
        let name = format!("one{place}");
        let made = create(&controller, &name, &["--target", "works"]);
        assert_eq!(made.code, Some(0), "{request}: {made:?}");
        // What is changed there is no affair of the one that hangs either.
        let changed = apply(&controller, &name, 3);
        assert_eq!(changed.code, Some(0), "{request}: {changed:?}");
        controller.ask_done(&["job", "delete", &name]);
        assert!(began.elapsed() < Duration::from_secs(20), "{request}: {:?}", began.elapsed());
        hangs.state().faults.hangs = None;
        controller.wait_until("there again", |controller| is_connected(controller, 0));
    }
    assert_eq!(works.rows("job_tables"), 0);
    assert_eq!(create(&controller, "both", &[]).code, Some(0));
    assert_eq!((hangs.rows("job_tables"), works.rows("job_tables")), (1, 1));
}

/// While a change waits for a switch that hangs, others are made elsewhere; when it is taken back, they stay.
#[test]
fn who_waits_for_a_switch_that_hangs_holds_up_nobody() {
    let (hangs, works, controller) = two_switches("1m");
    assert_eq!(create(&controller, "old", &["--target", "works"]).code, Some(0));
    hangs.state().faults.hangs = Some("write");
    let mut waits = Command::new(PROGRAM)
        .args(["job", "create", "both", "--workers", "3", "--controller"])
        .arg(controller.listen.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    controller
        .wait_until("in the store", |controller| controller.ask(&["job", "show", "both"]).code == Some(0));
    // What is made, changed and deleted on the other one meanwhile.
    assert_eq!(create(&controller, "new", &["--target", "works"]).code, Some(0));
    let changed = apply(&controller, "old", 5);
    assert_eq!(changed.code, Some(0), "{changed:?}");
    assert_eq!(create(&controller, "gone", &["--target", "works"]).code, Some(0));
    controller.ask_done(&["job", "delete", "gone"]);
    // Of one file, too, in which the one that hangs is named first.
    let job = |name: &str, target: &str| {
        format!("[[job]]\nname = \"{name}\"\nworkers = 2\ntargets = [\"{target}\"]\n")
    };
    let file = controller.folder().join("jobs.toml");
    std::fs::write(&file, job("stuck", "hangs") + &job("free", "works")).unwrap();
    let mut applies = Command::new(PROGRAM)
        .args(["apply", "--yes", "-f", file.to_str().unwrap(), "--controller"])
        .arg(controller.listen.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    controller.wait_until("made", |controller| controller.log().contains("job free: created on works"));
    assert!(applies.try_wait().unwrap().is_none(), "it came after what hangs");
    assert!(waits.try_wait().unwrap().is_none(), "they came after it");
    hangs.state().faults.full = Some(|table, _| table == "job_tables");
    hangs.state().faults.hangs = None;
    let ended = waits.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.contains("job both was created on no target"), "{said}");
    let ended = applies.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap() + &String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.contains("job stuck was created on no target"), "{said}");
    let list = controller.json(&["job", "list"]);
    let jobs: Vec<_> = list["jobs"].as_array().unwrap().iter().map(|job| &job["spec"]).collect();
    let is = |at: usize| (jobs[at]["name"].as_str().unwrap(), jobs[at]["workers"].as_u64().unwrap());
    assert_eq!((jobs.len(), is(0), is(1), is(2)), (3, ("free", 2), ("new", 2), ("old", 5)));
    controller.wait_until("taken back", |_| works.rows("job_tables") == 3 && hangs.rows("job_tables") == 0);
}

/// A restart of the controller sets no counter back, nor does one of a switch that never had a session; and a job whose row somebody
/// has deleted while others have theirs gets it again, or ends where it must.
#[test]
fn who_has_lost_its_row_is_found() {
    let mut site = Site::start(V1MODEL);
    site.create();
    assert_eq!(create(site.controller(), "b", &["--number", "8", "--quorum", "1"]).code, Some(0));
    let (first, _) = (site.join_workers(1), site.joined_at(8, 1));
    let row = |site: &Site, job: u128| {
        site.strict.values("jobs").iter().find(|row| row["job"] == job).map(|row| row["cookie"])
    };
    for job in [7_u16, 8] {
        site.strict.delete("jobs", job.into());
        site.strict.cut();
        site.controller()
            .wait_until("there again", |controller| is_connected(controller, 0) && row(&site, 7).is_some());
    }
    assert_eq!(row(&site, 7), Some(first.into()), "with all workers in its sums it goes on");
    let ended = "job b: somebody else has deleted its row; its workers must join anew";
    site.controller().wait_until("ended", |controller| controller.log().contains(ended));
    assert_eq!(row(&site, 8), None);
    site.joined_at(8, 2);
    // Nobody is in a session when the controller restarts: what was counted stays.
    site.leave(1, first);
    site.controller().wait_until("left", |_| row(&site, 7).is_none());
    site.strict.state().count = 5;
    let packets = |site: &Site| {
        site.controller().metric("thc_packets", &[("thc_job", "a"), ("worker", "0")]).unwrap_or(0.0)
    };
    site.controller().wait_until("counted", |_| packets(&site) == 5.0);
    site.controller().ask_done(&["job", "delete", "b", "--yes"]);
    site.restart_controller(b"what the compiler's backend made");
    site.controller().wait_until("counted", |_| packets(&site) == 5.0);
}

/// Stratum refuses meters in rows. What only limits is left out, and the target is there.
#[test]
fn a_switch_that_refuses_meters_is_served_without_them() {
    let site = Site::start(TOFINO2);
    assert_eq!(site.strict.rows("control_ports"), 3);
    site.strict.state().faults.full = Some(|table, _| table == "control_ports");
    site.strict.restart();
    let controller = site.controller();
    controller.wait_until("told", |controller| controller.log().contains("target chip refuses meters"));
    controller.wait_until("there again", |controller| is_connected(controller, 0));
    assert_eq!(site.strict.rows("control_ports"), 0);
    site.create();
    site.join_workers(1);
}

/// A chip brings a whole counter up to date for each question: there are few.
#[test]
fn counters_are_asked_for_rarely() {
    let site = Site::start(TOFINO2);
    site.create();
    site.join_workers(1);
    site.strict.state().counters.clear();
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(4));
    let asked = site.strict.state().counters.clone();
    let most = 2.0 * began.elapsed().as_secs_f64() + 2.0;
    assert!(asked["packets"] > 2 && asked["carrier"] > 0, "{asked:?}");
    for (name, asked) in asked.iter().filter(|(name, _)| *name != "carrier") {
        assert!((*asked as f64) <= most, "{name}: {asked}");
    }
}

/// A job is made on all targets or on none, also when who asked for it goes away.
#[test]
fn who_goes_away_leaves_nothing_half_made() {
    let site = Site::start(V1MODEL);
    let controller = site.controller();
    site.strict.state().faults.hangs = Some("write");
    let mut asks = Command::new(PROGRAM)
        .args(["job", "create", "b", "--workers", "2", "--number", "8", "--controller"])
        .arg(controller.listen.to_string())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    controller.wait_until("in the store", |controller| controller.ask(&["job", "show", "b"]).code == Some(0));
    assert!(Command::new("kill").args(["-INT", &asks.id().to_string()]).status().unwrap().success());
    let _ = asks.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    site.strict.state().faults.full = Some(|table, job| table == "job_tables" && job == 8);
    site.strict.state().faults.hangs = None;
    controller
        .wait_until("taken back", |controller| controller.ask_done(&["job", "list"]).contains("no jobs"));
    controller.wait_until("gone there, too", |_| site.strict.rows("lookup") == 0);
}

/// Strangers, however many, take no address from those who are known.
#[test]
fn strangers_make_a_rack_forget_nobody() {
    let site = Site::start(V1MODEL);
    let root = "02:00:0a:09:00:02";
    let racks =
        ["--number", "7", "--racks", "2,2", "--rack", "0", "--root", "10.9.9.9:9000", "--root-mac", root];
    let cookie = COOKIE.to_string();
    let made = ["job", "create", "a", "--workers", "4", "--cookie", &cookie];
    site.controller().ask_done(&[&made[..], &racks].concat());
    let join = Join { nonce: 1, session: Cookie(0), ends: false, fingerprint: 0, definitions: 0 }.to_bytes();
    for stranger in 0..5000_u32 {
        let from = SocketAddr::from((Ipv4Addr::from_bits(0x0A50_0000 + stranger), 5000));
        site.send(from, 7, 0, Kind::Join, 1, &join);
    }
    let to_root =
        |site: &Site| {
            site.strict.state().sent.iter().any(|frame| {
                Datagram::parse(frame).is_ok_and(|datagram| datagram.to.0 == [2, 0, 10, 9, 0, 2])
            })
        };
    site.controller().wait_until("the root is asked", |_| {
        site.join(7, 1);
        to_root(&site)
    });
}
