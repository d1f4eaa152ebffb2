//! What `packaging/` asks Prometheus for is what the programs serve: they run, a worker beside them, and a real Prometheus if there is one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thc_config::metrics::{self, MetricsServer};
use thc_support::openmetrics::{Family, names, parse, sum};
use thc_tests::{COOKIE_NUMBER, Ps, binary, free_port};
use thc_worker::{Group, GroupConfig, METRICS, MetricKind, Quantity, Seat};

type Families = std::collections::BTreeMap<String, Family>;

/// Killed with its value.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> std::io::Result<Running> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(at: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(thc_tests::HANG))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {at}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// Waits for something.
fn wait_until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < thc_tests::HANG, "{what}: it does not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn packaging_file(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(file)
}

const FILES: [&str; 3] = ["grafana/thc.json", "grafana/thc-servers.json", "prometheus/thc-alerts.yml"];

/// Everything in a file that looks like a metric of ours; there are two labels that do.
fn asked_for(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("thc_") && !["thc_job", "thc_model"].contains(word))
        .map(str::to_owned)
        .collect()
}

const SECRET: &str = "a secret for tests";

/// A worker of a model, which trains until this is dropped.
struct Trained {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Trained {
    fn start(server: String) -> Trained {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let config = |worker| thc_model::ClientConfig {
                server: server.clone(),
                job: "1".to_owned(),
                secret: SECRET.into(),
                worker,
                timeout: thc_tests::HANG,
                ..Default::default()
            };
            let mut client =
                thc_model::Client::open(config(0), "m", thc_model::Spec::sgd(100, 1e-3)).unwrap();
            client.initialise(&[1.0; 100]).unwrap();
            // One that is refused, so that there is something to count.
            let other = thc_model::Client::open(config(1), "m", thc_model::Spec::sgd(100, 2e-3));
            assert!(other.is_err_and(|error| error.to_string().contains("rate")));
            let mut x = [0.0; 100];
            while !stopped.load(Ordering::Relaxed) {
                client.pull(&mut x, thc_model::Pull::default()).unwrap();
                let _ = client.push(&x, thc_model::Push::bits(8)).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Trained { stop, thread: Some(thread) }
    }
}

impl Drop for Trained {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the worker of the model has failed");
        }
    }
}

/// A worker whose totals are served in the form of the Python package, until this is dropped.
struct Worker {
    stop: Arc<AtomicBool>,
    _served: MetricsServer,
}

impl Worker {
    fn start(ps: SocketAddr, at: &str) -> Worker {
        let seat = Seat { ps, cookie: COOKIE_NUMBER, ..Seat::default() };
        let group = Arc::new(Group::join(GroupConfig { seat, ..GroupConfig::default() }).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let (counted, stopped) = (Arc::clone(&group), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut data = vec![1.0; 100_000];
            while !stopped.load(Ordering::Relaxed) && group.allreduce(&mut data).is_ok() {}
        });
        let text = move || {
            let stats = counted.stats().unwrap();
            metrics::text("thc_group", move |encoder| {
                METRICS.iter().try_for_each(|metric| {
                    let value = match (metric.read)(&stats) {
                        Quantity::Count(count) => count as f64,
                        Quantity::Seconds(seconds) => seconds,
                    };
                    let row = [([("thc_job", "1".to_owned()), ("worker", "0".to_owned())], value)];
                    match metric.kind {
                        MetricKind::Counter => metrics::counters(encoder, metric.name, metric.help, row),
                        MetricKind::Gauge => metrics::gauges(encoder, metric.name, metric.help, row),
                    }
                })
            })
        };
        Worker { stop, _served: MetricsServer::serve(at.parse().unwrap(), text).unwrap() }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Three programs, a job of one worker that never ends, a model that is trained, and where each answers.
struct Site {
    at: [String; 4],
    // Before the servers that they need.
    _trained: Trained,
    _worker: Worker,
    _ps: Ps,
    _others: [Running; 2],
    _folder: tempfile::TempDir,
}

impl Site {
    fn start() -> Site {
        let at = [(); 4].map(|()| format!("127.0.0.1:{}", free_port()));
        let ps = Ps::start(1, &["--shards", "2", "--http", &at[1]]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("controller.toml");
        let target = format!("127.0.0.1:{}", free_port());
        let config = format!("[[target]]\nname = \"away\"\naddress = \"{target}\"\nip = \"127.0.0.1\"\n");
        fs::write(&file, config).unwrap();
        let mut controller = Command::new(binary("thc-controller"));
        controller
            .args(["run", "--state", "none", "--listen", "127.0.0.1:0", "--http", &at[0], "--config"])
            .arg(&file);
        let worker = Worker::start(ps.addr, &at[2]);
        let models = format!("127.0.0.1:{}", free_port());
        let mut model = Command::new(binary("thc-model"));
        model.args(["--listen", &models, "--job", "1", "--secret", SECRET, "--http", &at[3], "--state"]);
        model.arg(folder.path().join("models"));
        let others = [controller, model].map(|mut command| Running::start(&mut command).unwrap());
        Site {
            at,
            _trained: Trained::start(models),
            _worker: worker,
            _ps: ps,
            _others: others,
            _folder: folder,
        }
    }

    fn families(&self, place: usize) -> Families {
        wait_until(&self.at[place], || get(&self.at[place], "/metrics").ok().map(|text| parse(&text)))
    }
}

#[test]
fn dashboards_and_alerts_ask_for_what_is_served() {
    let site = Site::start();
    wait_until("a model", || site.families(3).contains_key("thc_model_refused").then_some(()));
    let there: BTreeSet<String> = (0..4).flat_map(|place| names(&site.families(place))).collect();
    for file in FILES {
        let asked = asked_for(&fs::read_to_string(packaging_file(file)).unwrap());
        assert!(asked.len() > 5, "{file}: {asked:?}");
        let missing: Vec<&String> = asked.difference(&there).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}, and there are {there:?}");
    }
    // Documentation may shorten names.
    let documented = asked_for(&fs::read_to_string(packaging_file("../docs/operate.md")).unwrap());
    let missing: Vec<&String> = documented.difference(&there).collect();
    assert!(missing.is_empty(), "docs/operate.md names {missing:?}");
}

/// Prometheus' own tool takes the files.
#[test]
fn promtool_takes_the_files() {
    for (what, file) in [("config", "prometheus/thc.yml"), ("rules", "prometheus/thc-alerts.yml")] {
        match Command::new("promtool").args(["check", what]).arg(packaging_file(file)).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(_) => println!("not run: promtool not found (Debian's package prometheus)"),
        }
    }
}

/// All expressions of a dashboard's panels, for job 1 and all targets.
fn expressions(file: &str) -> Vec<String> {
    let text = fs::read_to_string(packaging_file(file)).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let filled = [("$__rate_interval", "5s"), ("$job", "1"), ("$target", ".*")];
    let asked = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    asked.map(|text| filled.iter().fold(text, |text, (name, value)| text.replace(name, value))).collect()
}

#[test]
fn a_prometheus_reads_servers_and_workers_and_understands_their_dashboard() {
    let site = Site::start();
    let folder = tempfile::tempdir().unwrap();
    let mut config = fs::read_to_string(packaging_file("prometheus/thc.yml")).unwrap();
    for (usual, at) in
        ["127.0.0.1:9701", "127.0.0.1:9100", "127.0.0.1:9702", "127.0.0.1:9111"].iter().zip(&site.at)
    {
        assert!(config.contains(usual), "{config}");
        config = config.replace(usual, at);
    }
    config = config.replace("scrape_interval: 5s", "scrape_interval: 250ms");
    let alerts = packaging_file("prometheus/thc-alerts.yml").canonicalize().unwrap();
    let file = folder.path().join("prometheus.yml");
    fs::write(&file, format!("rule_files: [{alerts:?}]\n{config}")).unwrap();
    let at = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display())).arg(format!("--web.listen-address={at}"));
    command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    let Ok(_prometheus) = Running::start(&mut command) else {
        println!("not run: prometheus not found (Debian's package prometheus)");
        return;
    };
    let ask = |query: &str| -> Option<Vec<serde_json::Value>> {
        let escaped = query.bytes().fold(String::new(), |mut text, byte| {
            write!(text, "%{byte:02X}").unwrap();
            text
        });
        let answer: serde_json::Value =
            serde_json::from_str(&get(&at, &format!("/api/v1/query?query={escaped}")).ok()?).ok()?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().filter(|found| !found.is_empty())
    };
    let value = |found: &serde_json::Value| found["value"][1].as_str().unwrap().parse::<f64>().unwrap();
    wait_until("all four are read", || ask("sum(up)").filter(|found| value(&found[0]) == 4.0));

    let asked = expressions("grafana/thc-servers.json");
    assert!(asked.len() > 8, "{asked:?}");
    for query in asked {
        wait_until(&query, || ask(&query));
    }
    // The controller here has no job, so most of these have no answer; refused ones fail.
    let of_controller = expressions("grafana/thc.json");
    assert!(of_controller.len() > 12, "{of_controller:?}");
    of_controller.iter().for_each(|query| drop(ask(query)));
    wait_until("packets of both shards", || {
        let found = ask("rate(thc_ps_network_packets_total{direction=\"in\",job=\"thc-ps\"}[5s]) > 0")?;
        (found.len() == 2).then_some(())
    });
    // What Prometheus has is what was served: totals only grow, so it lies between two readings.
    let results = || sum(&site.families(1), "thc_ps_results", &[("thc_job", "1")]);
    let before = results();
    std::thread::sleep(Duration::from_secs(1));
    let read = value(&ask("sum(thc_ps_results_total{thc_job=\"1\"})").unwrap()[0]);
    assert!(before <= read && read <= results(), "{before} {read}");
}
