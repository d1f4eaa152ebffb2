use super::*;
use std::io::Write;
use std::time::Duration;
use thc_transport::Backend;

fn config(args: &[&str]) -> Result<RunConfig, String> {
    let all = ["thc-worker", "--worker", "1", "--cookie", "0x10"].iter().chain(args);
    Flags::try_parse_from(all).map_err(|e| e.to_string())?.run_config()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn flags_win_over_the_file() {
    let file = file("job = 5\nps = \"127.0.0.1:7000\"\ntimeout = \"3s\"\ncoordinates = 10");
    let config = config(&["--config", file.path().to_str().unwrap(), "--job", "6"]).unwrap();
    assert_eq!(config.group.seat.job, 6);
    assert_eq!(config.group.seat.ps.port(), 7000);
    assert_eq!(config.group.timeouts.progress, Duration::from_secs(3));
    assert_eq!(config.source, TensorSource::MadeUp(10));
}

/// `-h` and `--print-config` show what the help of an option names as its default: given as a flag, it changes nothing.
#[test]
fn defaults_in_the_help_are_the_defaults() {
    use clap::CommandFactory;
    let with = |more: &[&str]| Some(format!("{:?}", config(&[&["--coordinates", "9"], more].concat()).ok()?));
    let mut compared = Vec::new();
    for arg in Flags::command().get_arguments().filter(|arg| arg.get_default_values().is_empty()) {
        let default = help::default_of(arg);
        let (Some(flag), Some(default)) = (arg.get_long(), default) else { continue };
        // Others are descriptions, or of DPDK.
        if let Some(given) = with(&[&format!("--{flag}={default}")]) {
            assert_eq!(Some(given), with(&[]), "--{flag} {default}");
            compared.push(flag.to_owned());
        }
    }
    let expected =
        ["ps", "job", "bind", "join-timeout", "timeout", "rejoin", "min-rto", "io", "repeat", "mode"];
    assert_eq!(compared, expected);
}

#[test]
fn flags_win_key_by_key_in_sections_too() {
    let file = file("[dpdk]\nmtu = 1400\ndevices = [\"a\"]");
    let flags = ["thc-worker", "--dpdk-device", "b", "--seed", "18446744073709551615"];
    let keys = Flags::try_parse_from(flags).unwrap().keys.merge_file(Some(file.path())).unwrap();
    assert_eq!((keys.dpdk.devices, keys.dpdk.mtu), (Some(vec!["b".to_owned()]), Some(1400)));
    assert_eq!(keys.seed, Some(u64::MAX));
}

#[test]
fn the_published_method_is_error_feedback_and_independent_rounding() {
    use thc_worker::Rounding::{Independent, Seed, Stratified};
    let of = |flags: &[&str]| {
        let found = config(&[&["--coordinates", "9"], flags].concat()).unwrap();
        (found.method, found.error_feedback, found.group.rounding)
    };
    assert_eq!(of(&[]), (Method::Default, false, Stratified));
    assert_eq!(of(&["--seed", "5"]), (Method::Default, false, Seed(5)));
    assert_eq!(of(&["--method", "thc-paper"]), (Method::ThcPaper, true, Independent));
    assert_eq!(of(&["--method", "thc-paper", "--seed", "5"]), (Method::ThcPaper, true, Seed(5)));
}

#[test]
fn errors_name_the_key() {
    for (args, says) in [
        (&[][..], "nothing to reduce"),
        (&["--coordinates", "0"], "coordinates is 0"),
        (&["--coordinates", "9", "--repeat", "0"], "repeat is 0"),
        (&["--coordinates", "9", "--ps", "nowhere"], "ps = \"nowhere\""),
        (&["--coordinates", "9", "--ps", "[fe80::1]:9"], "link-local"),
        (&["--coordinates", "9", "--timeout", "5"], "timeout = \"5\""),
        (&["--coordinates", "9", "--bind", "x"], "bind = \"x\""),
        (&["--coordinates", "9", "--inject", "loss=2"], "inject"),
        (&["--coordinates", "9", "--inject", "NaN"], "loss is NaN"),
        (
            &["--coordinates", "4294967296"],
            "coordinates is 4294967296: one all-reduce has 4294967295 at most",
        ),
        (&["--coordinates", "99999999999999"], "coordinates is 99999999999999"),
        (&["--coordinates", "9", "--output", "x.f32"], "--output needs --input"),
        (&["--input", ""], "a value is required for '--input"),
        (&["--input", "x", "--output", ""], "a value is required for '--output"),
        (&["--coordinates", "9", "--threads", "0"], "threads is 0"),
        (&["--coordinates", "9", "--threads", "99999999"], "threads is 99999999"),
        (&["--coordinates", "9", "--ps", ""], "ps = \"\""),
        (
            &["--coordinates", "9", "--method", "thc-paper", "--error-feedback=false"],
            "error_feedback is false, and method = thc-paper keeps it",
        ),
        (&["--coordinates", "9", "--ps", "127.0.0.1:0"], "port 0"),
        (&["--coordinates", "9", "--ps", "0.0.0.0:9000"], "not a server's address"),
        (&["--coordinates", "9", "--ps", "224.0.0.1:9000"], "not a server's address"),
        (&["--coordinates", "9", "--timeout=-1s"], "timeout = \"-1s\""),
        (&["--coordinates", "9", "--timeout", ""], "timeout = \"\""),
        (&["--coordinates", "9", "--timeout", "2years"], "a year is the longest"),
        (&["--coordinates", "9", "--join-timeout", "99999999999999999999s"], "join_timeout"),
        (&["--coordinates", "9", "--min-rto", "0ms"], "min_rto is 0"),
        (&["--coordinates", "9", "--config", "/"], "/: Is a directory"),
        (&["--coordinates", "9", "--config", "/nowhere/at/all"], "No such file"),
    ] {
        let error = config(args).unwrap_err();
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn a_server_has_the_usual_port_unless_one_is_given() {
    for (text, at) in [
        ("127.0.0.1", "127.0.0.1:9000"),
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("::1", "[::1]:9000"),
        ("[::1]", "[::1]:9000"),
        ("[::1]:7", "[::1]:7"),
    ] {
        let config = config(&["--coordinates", "16Mi", "--ps", text]).unwrap();
        assert_eq!(
            (config.group.seat.ps, config.source),
            (at.parse().unwrap(), TensorSource::MadeUp(1 << 24))
        );
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (args, says) in [
        (&["--worker", "64"][..], "worker is 64"),
        (&["--worker", "255"], "worker is 255"),
        (&["--worker", "256"], "256 is not in 0..=255"),
        (&["--worker=-1"], "-1 is not in 0..=255"),
        (&["--job", "65536", "--worker", "0"], "65536 is not in 0..=65535"),
        (&["--coordinates=-1", "--worker", "0"], "not a size"),
        (&["--coordinates=1e99", "--worker", "0"], "not a size"),
        (&["--coordinates=NaN", "--worker", "0"], "not a size"),
        (&["--repeat", "4294967296", "--worker", "0"], "4294967296 is not in"),
    ] {
        let flags = ["thc-worker", "--cookie", "1"].iter().chain(args);
        let flags = flags.chain(if args[0].contains("coord") { &[][..] } else { &["--coordinates", "9"] });
        let error =
            Flags::try_parse_from(flags).map_err(|e| e.to_string()).and_then(Flags::run_config).unwrap_err();
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn empty_paths_in_a_file_are_refused() {
    for (keys, says) in [
        ("input = \"\"", "input is empty"),
        ("input = \"x\"\noutput = \"\"", "output is empty"),
        ("coordinates = -9", "line 1"),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{keys}").unwrap();
        let error = config(&["--config", file.path().to_str().unwrap()]).unwrap_err();
        assert!(error.contains(says), "{keys}: {error}");
    }
}

#[test]
fn kernel_udp_is_the_default() {
    assert_eq!(config(&["--coordinates", "9"]).unwrap().group.io, Backend::Udp);
}

#[test]
fn errors_about_dpdk_name_the_key() {
    let device = ["--coordinates", "9", "--dpdk-device", "net_null0"];
    for (more, says) in [
        (&[][..], "io is not given"),
        (&["--io", "dpdk"], "address is missing"),
        (&["--io", "dpdk", "--dpdk-address", "10.0.0.1/99"], "prefix is 99"),
        (&["--io", "dpdk", "--bind", "10.0.0.1:0", "--dpdk-mtu", "9"], "mtu is 9"),
    ] {
        let args = [&device[..], more].concat();
        let error = config(&args).unwrap_err();
        let is_asked_for = more.contains(&"dpdk");
        let says = if is_asked_for && !cfg!(feature = "dpdk") { "built without DPDK" } else { says };
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn a_file_has_a_dpdk_section() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        file,
        "coordinates = 9\nio = \"dpdk\"\n[dpdk]\ndevices = [\"net_null0\"]\nhugepages = false\naddress = \"10.0.0.1/8\""
    )
    .unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    match config(&["--config", &path, "--dpdk-idle", "busy"]) {
        Ok(config) => {
            let Backend::Dpdk(dpdk) = config.group.io else { panic!("{config:?}") };
            assert_eq!((dpdk.prefix, dpdk.hugepages), (8, false));
            assert_eq!(dpdk.idle, thc_transport::Idle::BusyPoll);
        }
        Err(error) => assert!(!cfg!(feature = "dpdk") && error.contains("libdpdk-dev"), "{error}"),
    }
    writeln!(file, "devics = []").unwrap();
    let error = config(&["--config", &path]).unwrap_err();
    assert!(error.contains("line 7") && error.contains("devics"), "{error}");
}

#[test]
fn unknown_keys_are_refused_with_their_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "job = 5\nworkr = 3").unwrap();
    let error = config(&["--config", file.path().to_str().unwrap()]).unwrap_err();
    assert!(error.contains("line 2") && error.contains("workr"), "{error}");
}

#[test]
fn a_wrong_cookie_is_not_shown() {
    let flags = ["thc-worker", "--worker", "1", "--cookie", "secret77", "--coordinates", "1"];
    let error = Flags::try_parse_from(flags).unwrap().run_config().unwrap_err();
    assert!(error.contains("cookie") && !error.contains("secret77"), "{error}");
}
