//! What commands say, and their exit status.

use crate::aggregator;
use crate::controller::{Controller, NOWHERE, run, target};

fn says(ended: &crate::controller::Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    for word in words {
        assert!(ended.err.contains(word), "{word}: {}", ended.err);
    }
}

#[test]
fn without_a_controller_a_line_says_what_to_do() {
    let list = ["job", "list", "--controller", NOWHERE];
    let asked = std::time::Instant::now();
    says(&run(&list, &[]), 1, &["no controller at 127.0.0.1:1", "refused", "thc-controller run --config"]);
    // One on this machine may have been started just now: it is asked for a while.
    assert!(asked.elapsed().as_secs() >= 3);
    let port = run(&["job", "list"], &[("THC_CONTROLLER", "here")]);
    says(&port, 2, &["--controller here", "127.0.0.1:9700"]);
    let half = ["job", "list", "--cert", "a.pem", "--key", "b.pem"];
    says(&run(&half, &[]), 2, &["--ca"]);
    for server in
        [["run", "--cert", "a.pem", "--config", "c.toml"], ["--cert", "a.pem", "run", "--config", "c.toml"]]
    {
        let refused = run(&server, &[]);
        assert!(refused.code == Some(2) && refused.err.contains("[controller.tls]"), "{refused:?}");
    }
    let help = run(&["run", "--help"], &[]).out;
    assert!(!help.contains("--cert") && !help.contains("--controller") && help.contains("--state"), "{help}");
    let missing = run(&["run", "--config", "/nonexistent/thc.toml"], &[]);
    says(&missing, 2, &["cannot read /nonexistent/thc.toml"]);
    for wrong in [&["job", "create", "a"][..], &["job", "show", "a", "b"], &[]] {
        assert_eq!(run(wrong, &[]).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_wrong_configuration_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "[controller]\nlisten = \"127.0.0.1:0\"\nlissten = 3\n").unwrap();
    let ended = run(&["run", "--config", file.to_str().unwrap()], &[]);
    says(&ended, 2, &["c.toml", "line 3", "lissten"]);
    std::fs::write(&file, "[[target]]\nname = \"t\"\nip = \"127.0.0.1\"\n\n[[job]]\nname = \"a\"\nip = 3\n")
        .unwrap();
    let ended = run(&["run", "--config", file.to_str().unwrap()], &[]);
    says(&ended, 2, &["c.toml", "line 7", "unknown field `ip`"]);
}

#[test]
fn a_target_that_is_away_is_named() {
    let controller = Controller::start(&target("ps1", NOWHERE, 9000));
    controller.wait_until("tried", |controller| {
        controller.ask_done(&["target", "list"]).contains("cannot connect to http://127.0.0.1:1")
    });
    let text = controller.ask_done(&["target", "list"]);
    assert!(text.starts_with("TARGET  P4RUNTIME") && text.contains("away"), "{text}");
    assert!(controller.ask_done(&["job", "list"]).contains("no jobs"));
    let refused = controller.ask(&["job", "create", "train", "--workers", "2"]);
    says(
        &refused,
        1,
        &["target ps1 is away: cannot connect", "Connection refused", "is the switch running?"],
    );
    says(&controller.ask(&["job", "show", "other"]), 1, &["no job \"other\"", "job list"]);
    says(&controller.ask(&["diagnose", "other"]), 1, &["no job \"other\""]);
}

#[test]
fn the_first_job_waits_for_its_target() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    // Before the controller has connected to the target.
    controller.ask_done(&["job", "create", "train", "--workers", "2"]);
}

#[test]
fn a_job_from_creation_to_deletion() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    controller.until_connected();
    let create = ["job", "create", "train", "--workers", "2", "--granularity", "30", "--fraction", "1/32"];
    let text = controller.ask_done(&create);
    assert!(text.starts_with("job train, number 1, created 2"), "{text}");
    assert!(text.contains("b=4 g=30 p=1/32") && text.contains("waiting") && text.contains("0/2"), "{text}");
    assert_eq!(controller.ask_done(&["job", "show", "train"]), text);
    says(&controller.ask(&create), 1, &["there is a job \"train\" already"]);
    says(&controller.ask(&["job", "create", "x", "--workers", "65"]), 2, &["workers"]);
    let far = ["job", "create", "x", "--workers", "2", "--target", "ps9"];
    says(&controller.ask(&far), 1, &["no target \"ps9\""]);

    let list = controller.json(&["job", "list"]);
    assert_eq!(list["jobs"][0]["spec"]["name"], "train");
    assert!(list["jobs"][0]["spec"]["cookie"].is_null(), "{list}");
    let waiting = controller.ask(&["diagnose", "train"]);
    assert!(waiting.out.contains("no worker has joined") && waiting.out.contains("-> "), "{waiting:?}");
    assert_eq!(controller.ask(&["diagnose"]).out, waiting.out);
    controller.ask_done(&["job", "create", "second", "--workers", "1"]);
    let all = controller.ask(&["diagnose"]).out;
    assert!(all.contains("job second\n") && all.contains("job train\n"), "{all}");
    assert_eq!(controller.ask_done(&["job", "delete", "second"]), "job second deleted\n");

    assert_eq!(aggregator::count_rows(&server, "lookup"), 1);

    assert_eq!(controller.ask_done(&["job", "delete", "train"]), "job train deleted\n");
    says(&controller.ask(&["job", "delete", "train"]), 1, &["no job \"train\""]);
    let several = ["a", "b"].map(|name| controller.ask_done(&["job", "create", name, "--workers", "1"]));
    assert_eq!(
        controller.ask_done(&["job", "delete", "a", "b"]),
        "job a deleted\njob b deleted\n",
        "{several:?}"
    );
    assert_eq!(aggregator::count_rows(&server, "lookup"), 0);
}

#[test]
fn completions_and_manual_pages_know_all_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let text = run(&["--generate", shell], &[]).out;
        for word in ["diagnose", "granularity", "prune"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    let manual = run(&["--generate", "man"], &[]).out;
    for word in [".TH thc-controller 1", ".TH thc-controller-job-create 1", "quorum"] {
        assert!(manual.contains(word), "{word}: {manual}");
    }
    assert!(run(&["--help"], &[]).out.contains("Exit status"));
}
