#![allow(clippy::unwrap_used)]

use super::*;
use crate::job::{DEFAULT_DEADLINE, JobOptions};
use clap::{CommandFactory, Parser};
use std::time::Duration;
use thc_codec::table::choose;
use thc_protocol::wire::Form;
use thc_protocol::{Cookie, JobId, Lane, Policy, TableId};

const EXAMPLE: &str = include_str!("../../../ps/thc-ps.example.toml");
/// The smallest file that is complete.
const SMALL: &str = "[[job]]\njob = 1\ncookie = 0x77\nworkers = 4\n";

fn check(text: &str) -> Result<ServerConfig, String> {
    ServerOptions::parse(text).and_then(|options| options.validate()).map_err(|error| error.to_string())
}

/// A file with the small job and more keys of it.
fn job(more: &str) -> String {
    format!("{SMALL}{more}\n")
}

#[test]
fn the_example_is_a_configuration() {
    let config = check(EXAMPLE).unwrap();
    assert_eq!(config.listen.to_string(), "0.0.0.0:9000");
    let [first, second] = &config.jobs[..] else { panic!("{} jobs", config.jobs.len()) };
    assert_eq!((first.config.job, first.config.workers, first.config.quorum), (JobId(1), 4, 4));
    assert_eq!(first.config.cookie, Cookie(0x5eed_0001));
    let values = [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30];
    assert_eq!((first.welcome.tables.first().values, first.welcome.tables.first().granularity), (values, 30));
    assert_eq!(first.welcome.tables.first().fraction, 1.0 / 32.0);
    assert_eq!((first.welcome.policy, first.welcome.deadline), (Policy::Reliable, DEFAULT_DEADLINE));
    assert_eq!((second.welcome.tables.first().form.lane(), second.config.quorum), (Lane::Bits16, 29));
    assert_eq!(second.welcome.policy, Policy::BestEffort);
    assert_eq!(second.welcome.deadline, Duration::from_millis(50));
}

/// What the example shows as default must be one: with those lines read, nothing changes.
#[test]
fn the_examples_defaults_are_the_defaults() {
    let keys = [
        "shards",
        "busy_poll",
        "recv_buffer",
        "send_buffer",
        "memory_limit",
        "io",
        "quorum",
        "lane",
        "table_id",
        "data_slots",
        "norm_slots",
        "block",
        "policy",
    ];
    let mut shown = 0;
    let text: Vec<String> = EXAMPLE
        .lines()
        .map(|line| {
            let key = line.strip_prefix("# ").and_then(|rest| rest.split(" = ").next());
            if key.is_some_and(|key| keys.contains(&key)) {
                shown += 1;
                line[2..].to_owned()
            } else {
                line.to_owned()
            }
        })
        .collect();
    assert_eq!(shown, keys.len());
    let (plain, full) = (check(EXAMPLE).unwrap(), check(&text.join("\n")).unwrap());
    assert_eq!(format!("{plain:?}"), format!("{full:?}"));
}

/// `-h` and `--print-config` show what the help of an option names as its default: given as a flag, it changes nothing.
#[test]
fn defaults_in_the_help_are_the_defaults() {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        server: ServerOptions,
        #[command(flatten)]
        job: JobOptions,
    }
    let config = |more: &str| {
        let words = format!("p --workers=4 --cookie=7 {more}");
        let Flags { server, job } = Flags::try_parse_from(words.split_whitespace()).ok()?;
        let options = ServerOptions::default().with_flags(server, job).unwrap();
        Some(format!("{:?}", options.validate().ok()?))
    };
    let mut compared = Vec::new();
    for arg in Flags::command().get_arguments() {
        let (Some(flag), Some(default)) = (arg.get_long(), crate::help::default_of(arg)) else { continue };
        // Others are descriptions, or turn P4Runtime on.
        let given = config(&format!("--{flag}={default}")).filter(|_| !flag.starts_with("p4runtime"));
        if let Some(given) = given {
            assert_eq!(Some(given), config(""), "--{flag} {default}");
            compared.push(flag.to_owned());
        }
    }
    let expected = [
        "listen",
        "recv-buffer",
        "send-buffer",
        "memory-limit",
        "members",
        "io",
        "job",
        "bits",
        "data-slots",
        "block",
        "policy",
    ];
    assert!(expected.iter().all(|flag| compared.iter().any(|other| other == flag)), "{compared:?}");
}

/// The commented section of the example, read; nothing in it but addresses differs from the defaults.
#[test]
fn the_examples_dpdk_section_has_the_defaults() {
    let from = EXAMPLE.find("# [dpdk]").unwrap();
    let section = &EXAMPLE[from..from + EXAMPLE[from..].find("# [p4runtime]").unwrap()];
    let assigns =
        |line: &str| line.split(" = ").next().is_some_and(|key| key.chars().all(|c| c.is_ascii_lowercase()));
    let lines = section.lines().filter_map(|line| line.strip_prefix("# "));
    let lines: Vec<&str> =
        lines.filter(|line| line.starts_with('[') || line.contains(" = ") && assigns(line)).collect();
    assert_eq!(lines.len(), 13, "{lines:?}");
    let options = ServerOptions::parse(&lines.join("\n")).unwrap().dpdk;
    let default = thc_transport::DpdkConfig::new([10, 0, 0, 1].into());
    let shown = thc_transport::DpdkOptions {
        devices: Some(vec!["net_af_packet0,iface=eth1".into()]),
        address: Some("10.0.0.1/24".into()),
        gateway: Some("10.0.0.254".into()),
        neighbours: Some(vec!["10.0.0.2=02:00:00:00:00:02".into()]),
        mac: Some("02:00:00:00:00:01".into()),
        mtu: Some(default.mtu.into()),
        hugepages: Some(default.hugepages),
        packets: Some(default.packets.into()),
        descriptors: Some(default.descriptors.into()),
        checksums: Some(default.checksums),
        idle: Some("100us".into()),
        eal: Some(vec!["--log-level=lib.eal:info".into()]),
    };
    assert_eq!(default.idle, thc_transport::Idle::BackOff(Duration::from_micros(100)));
    assert_eq!((default.prefix, options), (24, shown));
}

/// So is this one.
#[test]
fn the_examples_p4runtime_section_has_the_defaults() {
    let from = EXAMPLE.find("# [p4runtime]").unwrap();
    let section = EXAMPLE[from..from + EXAMPLE[from..].find("# [p4runtime.tls]").unwrap()].replace("# ", "");
    let shown = check(&section).unwrap().p4runtime;
    assert_eq!(shown, check("[p4runtime]").unwrap().p4runtime);
    let shown = shown.unwrap();
    assert_eq!((shown.listen.to_string().as_str(), shown.device_id), ("127.0.0.1:9559", 0));
}

#[test]
fn p4runtime_takes_the_place_of_jobs() {
    let config = check("[p4runtime]\nlisten = \"[::1]:5\"\ndevice_id = 7").unwrap();
    assert_eq!((config.jobs.len(), config.p4runtime.unwrap().listen.port()), (0, 5));
    assert_eq!(check(SMALL).unwrap().p4runtime, None);
    assert_eq!(check(&format!("[p4runtime]\n{SMALL}")).unwrap().jobs.len(), 1);
    assert!(check("").unwrap_err().contains("or --p4runtime for a controller"));
    let error = check("[p4runtime]\nlisten = \"9559\"").unwrap_err();
    assert!(error.starts_with("p4runtime is \"9559\": give an address and a port"), "{error}");
    assert!(check("[p4runtime]\nport = 1").unwrap_err().starts_with("line 2: port: "));
    // Flags win, key by key.
    let file = ServerOptions::parse("[p4runtime]\nlisten = \"127.0.0.1:1\"\ndevice_id = 7").unwrap();
    let flag = P4RuntimeOptions { listen: Some("127.0.0.1:2".into()), ..P4RuntimeOptions::default() };
    let flags = ServerOptions { p4runtime: Some(flag), ..ServerOptions::default() };
    let both = file.with_flags(flags, JobOptions::default()).unwrap().validate().unwrap().p4runtime.unwrap();
    assert_eq!((both.listen.port(), both.device_id), (2, 7));
}

#[test]
fn certificates_are_read_beside_the_file_and_half_of_them_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        std::fs::write(folder.path().join(name), name).unwrap();
    }
    let file = folder.path().join("thc-ps.toml");
    std::fs::write(&file, "[p4runtime.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\nclient_ca = \"ca.pem\"")
        .unwrap();
    let options = ServerOptions::read(&file).unwrap();
    let tls = options.validate().unwrap().p4runtime.unwrap().tls.unwrap();
    let at = |name: &str| folder.path().join(name);
    assert_eq!((tls.cert, tls.key, tls.client_ca), (at("cert.pem"), at("key.pem"), Some(at("ca.pem"))));
    // Flags win, key by key.
    let tls = TlsOptions { key: Some(folder.path().join("ca.pem")), ..TlsOptions::default() };
    let flags = ServerOptions { p4runtime_tls: Some(tls), ..ServerOptions::default() };
    let both = options.with_flags(flags, JobOptions::default()).unwrap().validate().unwrap();
    let both = both.p4runtime.unwrap().tls.unwrap();
    assert_eq!((both.cert, both.key), (folder.path().join("cert.pem"), folder.path().join("ca.pem")));
    for (half, says) in [
        ("cert = \"a\"", "p4runtime.tls.key is missing"),
        ("client_ca = \"a\"", "p4runtime.tls.cert is missing"),
        ("cert = \"/nothing\"\nkey = \"/nothing\"", "cannot read /nothing"),
    ] {
        let error = check(&format!("[p4runtime.tls]\n{half}")).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn backends() {
    assert_eq!(check(SMALL).unwrap().io, Backend::Udp);
    let dpdk = |more: &str| check(&format!("io = \"dpdk\"\n{more}\n{SMALL}"));
    let device = "[dpdk]\ndevices = [\"net_null0\"]";
    for (more, says) in [
        (device.to_owned(), "dpdk: address is missing"),
        (format!("{device}\naddress = 5"), "line 4: address: "),
        (format!("{device}\nadress = \"10.0.0.1\""), "line 4: adress: "),
        (format!("{device}\naddress = \"10.0.0.1/40\""), "dpdk: prefix is 40: "),
        ("listen = \"10.0.0.1:9000\"".to_owned(), "dpdk: devices is empty: "),
    ] {
        let error = dpdk(&more).unwrap_err();
        // Values are checked where they can be used.
        let is_value = says.starts_with("dpdk: ");
        let says =
            if is_value && !cfg!(feature = "dpdk") { "this program was built without DPDK" } else { says };
        assert!(error.starts_with(says), "{more}: {error}");
    }
    assert!(check(&format!("{device}\n{SMALL}")).unwrap_err().contains("--io dpdk"));
    let listen = |listen: &str, address: &str| dpdk(&format!("{listen}\n{device}\naddress = \"{address}\""));
    let given = listen("listen = \"10.0.0.1:8000\"", "10.0.0.1");
    if !cfg!(feature = "dpdk") {
        assert!(given.unwrap_err().contains("libdpdk-dev"));
        return;
    }
    let given = given.unwrap();
    assert!(matches!(given.io, Backend::Dpdk(_)));
    assert_eq!(given.shards, 1, "a device may have one queue alone");
    assert_eq!(listen("", "10.0.0.1").unwrap().listen.to_string(), "10.0.0.1:9000");
    let error = listen("listen = \"10.0.0.2:8000\"", "10.0.0.1").unwrap_err();
    assert!(error.contains("listen is 10.0.0.2:8000") && error.contains("10.0.0.1 only"), "{error}");
}

#[test]
fn left_out_keys_get_defaults() {
    let config = check(SMALL).unwrap();
    assert_eq!(config.listen.to_string(), DEFAULT_LISTEN);
    assert_eq!((config.busy_poll, config.pin.len()), (false, 0));
    assert_eq!((config.recv_buffer, config.send_buffer), (16 << 20, 4 << 20));
    assert_eq!(config.memory_limit, 1 << 30);
    let [job] = &config.jobs[..] else { panic!("{} jobs", config.jobs.len()) };
    assert_eq!((job.config.data_slots, job.config.norm_slots, job.welcome.block), (1024, 1024, 13));
    let table = job.welcome.tables.first();
    assert_eq!((table.form, table.bits, job.welcome.shards), (Form::USUAL, 4, config.shards));
    // Chosen for 4 workers: it must fit, and be the codec's choice.
    let chosen = choose(4, 8, 4).unwrap().table;
    assert_eq!((table.granularity, table.fraction), (chosen.granularity(), chosen.fraction()));
    assert!(u32::from(table.granularity) * 4 <= 255);
    assert_eq!(table.values, chosen.values16());
    assert_eq!((job.config.tables.clone(), table.id), (vec![TableId(1)], TableId(1)));
}

#[test]
fn numbers_may_be_text() {
    for cookie in ["0x5eed", "24301", "\"0x5eed\"", "\"24301\"", "\"0x0000_5EED\""] {
        let text = format!("[[job]]\njob = 1\nworkers = 4\ncookie = {cookie}\n");
        assert_eq!(check(&text).unwrap().jobs[0].config.cookie, Cookie(0x5eed), "{cookie}");
    }
    for fraction in ["\"1/32\"", "0.03125", "\"0.03125\""] {
        let config = check(&job(&format!("granularity = 30\nfraction = {fraction}"))).unwrap();
        assert_eq!(config.jobs[0].welcome.tables.first().fraction, 0.03125, "{fraction}");
    }
    for size in ["1048576", "\"1MiB\"", "\"1048576\""] {
        assert_eq!(check(&format!("recv_buffer = {size}\n{SMALL}")).unwrap().recv_buffer, 1 << 20);
    }
    let seeded = check(&job("seed = \"0xffffffffffffffff\"")).unwrap();
    assert_eq!(seeded.jobs[0].welcome.job_seed, u64::MAX);
}

#[test]
fn welcome_has_the_number_of_shards() {
    assert_eq!(check(&format!("shards = 3\n{SMALL}")).unwrap().jobs[0].welcome.shards, 3);
}

#[test]
fn there_are_as_many_shards_as_cores_for_them() {
    let cores = [1, 2, 7, 8, 12, 16, 200].map(default_shards);
    assert_eq!(cores, [1, 1, 1, 2, 3, 4, 4]);
    assert_eq!(check(&format!("pin = [0, 1, 1]\n{SMALL}")).unwrap().shards, 3);
}

/// Every way to get it wrong: one line that names the key, the value (unless secret) and the mend.
#[test]
fn every_mistake_has_its_message() {
    let top = |line: &str| format!("{line}\n{SMALL}");
    let cases = [
        (String::new(), "no job is configured: add a [[job]] section"),
        (top("listen = \"here\""), "listen is \"here\": give an address"),
        (top("listen = \"[fe80::1]:9000\""), "give an address (no link-local one)"),
        (top("listen = 9000"), "line 1: listen: invalid type: integer `9000`, expected a string"),
        (
            top("listen = \"127.0.0.1:65535\"\nshards = 2"),
            "2 shards need as many ports, give one up to 65534",
        ),
        (top("share = \"1/2\""), "shares is missing: name the addresses of all shares, in order"),
        (top("shares = [\"127.0.0.1:1\"]"), "share is missing: say which of the shares this server has"),
        (top("share = \"1\"\nshares = [\"127.0.0.1:1\"]"), "share is 1: write it like 1/4"),
        (
            top("share = \"1/3\"\nshares = [\"127.0.0.1:1\", \"127.0.0.1:2\"]"),
            "share is 1/3: shares names 2 addresses, name one for each share",
        ),
        (
            top("share = \"2/2\"\nshares = [\"127.0.0.1:1\", \"127.0.0.1:2\"]"),
            "share is 2/2: the last of 2 shares is 1/2",
        ),
        (
            top("share = \"0/2\"\nshares = [\"127.0.0.1:1\", \"127.0.0.1:1\"]"),
            "shares: shares 0 and 1 overlap: 127.0.0.1:1 and 127.0.0.1:1, each with 1 ports in a row",
        ),
        (
            top("share = \"0/2\"\nshares = [\"127.0.0.1:1\", \"127.0.0.1:0\"]"),
            "shares: share 1 is at 127.0.0.1:0, which is not a server's address",
        ),
        (
            top("share = \"0/2\"\nshares = [\"127.0.0.1:1\", \"nowhere\"]"),
            "shares is \"nowhere\": write addresses",
        ),
        (
            top("share = \"1/2\"\nshares = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nlisten = \"127.0.0.1:3\""),
            "listen is 127.0.0.1:3: share 1 has port 2 in shares, give the same",
        ),
        (
            format!("share = \"1/2\"\nshares = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n{SMALL}quorum = 1\n"),
            "job 1: quorum is 1: shares of a server need all workers in every sum, leave quorum out",
        ),
        (top("shards = 0"), "shards is 0: use 1 to 64"),
        (top("shards = 65"), "shards is 65: use 1 to 64"),
        (top("shards = -1"), "line 1: shards: invalid value: integer `-1`"),
        (top("recv_buffer = 10"), "recv_buffer is 10 bytes: give at least 64KiB"),
        (top("send_buffer = \"1kB\""), "send_buffer is 1000 bytes: give at least 64KiB"),
        (top("recv_buffer = \"lots\""), "line 1: recv_buffer: \"lots\" is not a size: write it like 8Mi"),
        (top("memory_limit = \"1MiB\""), "memory_limit is 1.0 MiB: raise memory_limit or lower data_slots"),
        (top("busy_poll = 1"), "line 1: busy_poll: invalid type"),
        (top("shards = 1\npin = [0, 1]"), "pin is [0, 1]: name one core for each of the 1 shards"),
        (top("worker = 4"), "line 1: worker: unknown field `worker`, expected one of `listen`"),
        (top("faults = 1"), "unknown field `faults`"),
        (top("listen = "), "line 1: listen: "),
        (top("just words"), "line 1: "),
        (job("slots = 3"), "line 5: slots: unknown field `slots`, expected one of `job`"),
        (
            "[[job]]\ncookie = 1\nworkers = 4".to_owned(),
            "[[job]] section 1: job is missing: give the job a number",
        ),
        ("[[job]]\njob = 5\ncookie = 1".to_owned(), "job 5: workers is missing: say how many"),
        ("[[job]]\njob = 5\nworkers = 1".to_owned(), "job 5: cookie is missing: give a secret number"),
        (SMALL.replace("job = 1", "job = 65536"), "[[job]] section 1: job is 65536: use 0 to 65535"),
        (format!("{SMALL}{SMALL}"), "job 1 is configured twice"),
        (SMALL.replace("workers = 4", "workers = 0"), "job 1: workers is 0: use 1 to 64"),
        (SMALL.replace("workers = 4", "workers = 65"), "job 1: workers is 65: use 1 to 64"),
        (
            SMALL.replace("workers = 4", "workers = \"four\""),
            "line 4: workers: invalid type: string \"four\"",
        ),
        (job("quorum = 0"), "job 1: quorum is 0: use 1 to 4"),
        (job("quorum = 5"), "job 1: quorum is 5: use 1 to 4"),
        (job("bits = 0"), "job 1: bits is 0: indices have 1, 2, 3, 4 or 8 bits"),
        (job("bits = 5"), "job 1: bits is 5: indices have 1, 2, 3, 4 or 8 bits"),
        (job("lane = 3"), "job 1: lane is 3: use 4 to 16"),
        (job("lane = 264"), "job 1: lane is 264: use 4 to 16"),
        (job("data_slots = 7"), "job 1: data_slots is 7: use an even number, such as 8"),
        (job("data_slots = 0"), "job 1: data_slots is 0: use 2 to 65536"),
        (job("block = 9"), "job 1: block is 9: use 10 to 20"),
        (job("block = 21"), "job 1: block is 21: use 10 to 20"),
        (job("norm_slots = 65538"), "job 1: norm_slots is 65538: use 2 to 65536"),
        (
            job("policy = \"hopeful\""),
            "line 5: policy: unknown variant `hopeful`, expected `reliable` or `best-effort`",
        ),
        (job("deadline = \"1s\""), "job 1: deadline is 1s: policy = reliable gives no packet up"),
        (job("policy = \"best-effort\"\ndeadline = \"0ms\""), "job 1: deadline is 0s: use 1ms to 1h"),
        (job("policy = \"best-effort\"\ndeadline = \"2h\""), "job 1: deadline is 2h: use 1ms to 1h"),
        (job("deadline = \"soon\""), "line 5: deadline: \"soon\" is not a time"),
        (job("seed = \"tulip\""), "job 1: seed is not a number from 0 to 0xffffffffffffffff"),
        (job("granularity = 30"), "job 1: fraction is missing: give granularity and fraction, or neither"),
        (job("fraction = 0.1"), "job 1: granularity is missing: give granularity and fraction, or neither"),
        (job("fraction = 1.5\ngranularity = 30"), "line 5: fraction: \"1.5\" is not between 0 and 1"),
        (job("fraction = \"1/\"\ngranularity = 30"), "line 5: fraction: \"1/\" is not a fraction"),
        (job("granularity = 14\nfraction = 0.1"), "job 1: granularity is 14: use 15 to 255"),
        (job("granularity = 256\nfraction = 0.1"), "job 1: granularity is 256: use 15 to 255"),
        (
            job("granularity = 64\nfraction = 0.1"),
            "workers × granularity = 4 × 64 = 256 does not fit lanes of 8 bits, which hold 255: \
             use a granularity of at most 63, or lane = 16",
        ),
        (
            SMALL.replace("workers = 4", "workers = 20\nlane = 8\ngranularity = 15\nfraction = 0.1"),
            "= 300 does not fit lanes of 8 bits, which hold 255: use lane = 16, or fewer bits",
        ),
        (
            SMALL.replace("workers = 4", "workers = 20\nlane = 8"),
            "the sums of 20 workers with bits = 4 do not fit lanes of 8 bits: use lane = 16",
        ),
    ];
    for (text, message) in cases {
        let error = check(&text).expect_err(&text);
        assert!(error.contains(message), "\n{text}\ngave: {error}\nnot:  {message}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn lanes_are_as_wide_as_the_sums_of_all_workers_need() {
    for (workers, sums) in [(17, 8), (18, 16), (64, 16)] {
        let job =
            check(&SMALL.replace("workers = 4", &format!("workers = {workers}"))).unwrap().jobs.remove(0);
        assert_eq!(job.welcome.tables.first().form.sums(), sums, "{workers}");
    }
}

#[test]
fn cookies_never_show() {
    for cookie in ["\"c0ffee-secret\"", "0x1_0000_0000", "0", "-5", "1.5", "\"\""] {
        let text = SMALL.replace("0x77", cookie);
        let error = check(&text).unwrap_err();
        assert_eq!(
            error,
            "job 1: cookie is not a number from 1 to 0xffffffff: write it like 0x1234abcd or 305441741",
            "{cookie}"
        );
    }
    for broken in ["\"c0ffee-secret", "[ \"c0ffee-secret\" ]", "{ c0ffee = 1 }", "c0ffee"] {
        let error = check(&SMALL.replace("0x77", broken)).unwrap_err();
        assert!(!error.contains("c0ffee"), "{error}");
        assert!(error.starts_with("line 3: cookie: "), "{error}");
    }
    let options = ServerOptions::parse(&SMALL.replace("0x77", "0x5eed5eed")).unwrap();
    for shown in [format!("{options:?}"), format!("{:?}", options.validate().unwrap())] {
        assert!(!shown.to_lowercase().contains("5eed5eed") && !shown.contains("1592614637"), "{shown}");
    }
}

#[test]
fn an_unreadable_file_is_named() {
    let error = ServerOptions::read(std::path::Path::new("/no/such/thc-ps.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /no/such/thc-ps.toml: "), "{error}");
}

mod flags {
    use super::*;

    fn lay_flags(file: &str, server: ServerOptions, job: JobOptions) -> Result<ServerConfig, String> {
        ServerOptions::parse(file)
            .and_then(|options| options.with_flags(server, job))
            .and_then(|options| options.validate())
            .map_err(|error| error.to_string())
    }

    fn no_server() -> ServerOptions {
        ServerOptions::default()
    }

    #[test]
    fn win_over_the_file() {
        let server = ServerOptions { listen: Some("127.0.0.1:1".into()), ..no_server() };
        let flags = JobOptions { workers: Some(2), ..JobOptions::default() };
        let config =
            lay_flags(&format!("listen = \"127.0.0.1:2\"\nshards = 2\n{SMALL}"), server, flags).unwrap();
        assert_eq!((config.listen.port(), config.shards), (1, 2));
        assert_eq!((config.jobs.len(), config.jobs[0].config.workers), (1, 2));
    }

    #[test]
    fn make_a_job_without_a_file() {
        let flags =
            JobOptions { job: Some(3), cookie: Some(5.into()), workers: Some(2), ..JobOptions::default() };
        assert_eq!(lay_flags("", no_server(), flags.clone()).unwrap().jobs[0].config.job, JobId(3));
        // One that the file does not have is added to it.
        let both = lay_flags(SMALL, no_server(), flags).unwrap();
        assert_eq!(both.jobs.iter().map(|job| job.config.job.0).collect::<Vec<_>>(), [1, 3]);
        let incomplete = JobOptions { workers: Some(2), ..JobOptions::default() };
        assert!(lay_flags("", no_server(), incomplete).unwrap_err().contains("job 1: cookie is missing"));
    }

    #[test]
    fn name_their_job_where_there_are_several() {
        let two = format!("{SMALL}{}", SMALL.replace("job = 1", "job = 2"));
        let flags = JobOptions { quorum: Some(2), ..JobOptions::default() };
        let error = lay_flags(&two, no_server(), flags.clone()).unwrap_err();
        assert_eq!(error, "the flags of a job need --job, because the file configures 2 jobs");
        let config = lay_flags(&two, no_server(), JobOptions { job: Some(2), ..flags }).unwrap();
        assert_eq!(config.jobs.iter().map(|job| job.config.quorum).collect::<Vec<_>>(), [4, 2]);
    }

    #[test]
    fn a_cookie_alone_makes_no_job() {
        let cookie = JobOptions { cookie: Some(9.into()), ..JobOptions::default() };
        assert!(lay_flags("", no_server(), cookie.clone()).unwrap_err().contains("no job is configured"));
        assert_eq!(lay_flags(SMALL, no_server(), cookie).unwrap().jobs[0].config.cookie, Cookie(9));
    }
}

/// P41: of the credit that a server gives, nobody's packets overflow a port, however many workers.
#[test]
fn the_credit_of_all_fits_the_receive_buffer() {
    for (jobs, workers, shards, shares) in [(1, 64, 1, 1), (3, 16, 4, 1), (1, 4, 8, 2), (2, 2, 1, 1)] {
        let all: Vec<String> = (0..shares).map(|n| format!("\"127.0.0.1:{}\"", 9000 + 100 * n)).collect();
        let mut text = format!("shards = {shards}\n");
        if shares > 1 {
            text += &format!("share = \"0/{shares}\"\nshares = [{}]\n", all.join(", "));
        }
        for job in 1..=jobs {
            text += &format!("[[job]]\njob = {job}\ncookie = 7\nworkers = {workers}\nlane = 16\n");
        }
        let mut config = check(&text).unwrap();
        // What 16 MiB hold of packets to 2048 bytes, as the kernel accounts them.
        let room = (DEFAULT_RECV_BUFFER / 4 * 3) / 2304;
        config.give_credit(room);
        let credit = config.jobs[0].welcome.credit as usize;
        assert!(config.jobs.iter().all(|job| job.welcome.credit as usize == credit));
        // Of a window of so many slots in a row, wherever it begins, the most that one port has.
        let ports = shards * shares;
        let here = |seq: usize| (seq / 64).is_multiple_of(ports);
        let most = |slots: usize| {
            (0..64 * ports)
                .map(|first| (first..first + slots).filter(|&seq| here(seq)).count())
                .max()
                .unwrap()
        };
        let each = most(credit) + most((credit / 4).max(1));
        assert!(jobs * workers * each <= room, "{jobs} jobs of {workers}: {credit}");
        assert!(credit >= 64, "{jobs} jobs of {workers}: {credit}");
    }
    // However little there is.
    let mut config = check(SMALL).unwrap();
    config.give_credit(1);
    assert_eq!(config.jobs[0].welcome.credit, 4);
}
