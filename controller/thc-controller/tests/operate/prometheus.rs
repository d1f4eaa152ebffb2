//! A real Prometheus: it takes the files of the packaging, reads `/metrics`, and understands what the dashboard asks.

use crate::aggregator;
use crate::controller::{Controller, NOWHERE, get, target};
use std::fmt::Write;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MISSING: &str = "prometheus not found (Debian's package prometheus)";

fn packaging_file(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn promtool(args: &[&str], file: &Path) {
    match Command::new("promtool").args(args).arg(file).stdin(Stdio::null()).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => println!("not run: promtool: {MISSING}"),
    }
}

#[test]
fn its_own_tool_takes_the_files() {
    promtool(&["check", "config"], &packaging_file("prometheus/thc.yml"));
    promtool(&["check", "rules"], &packaging_file("prometheus/thc-alerts.yml"));
}

/// A Prometheus that runs with the packaged configuration, but for the address.
struct Prometheus {
    child: Child,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(controller: &Controller) -> Option<Prometheus> {
        let folder = tempfile::tempdir().unwrap();
        let text = fs::read_to_string(packaging_file("prometheus/thc.yml")).unwrap();
        assert!(text.contains("127.0.0.1:9701") && text.contains("scrape_interval: 5s"), "{text}");
        let text = text.replace("127.0.0.1:9701", &controller.http.to_string());
        let text = text.replace("scrape_interval: 5s", "scrape_interval: 250ms");
        let rules = format!(
            "rule_files: [{:?}]\n",
            packaging_file("prometheus/thc-alerts.yml").canonicalize().unwrap()
        );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, rules + &text).unwrap();
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={at}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .ok()?;
        let mut prometheus = Prometheus { child, at, _folder: folder };
        let started = Instant::now();
        while std::net::TcpStream::connect(at).is_err() {
            let log = || fs::read_to_string(prometheus._folder.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < crate::controller::HANG, "{}", log());
            assert!(prometheus.child.try_wait().unwrap().is_none(), "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(prometheus)
    }

    /// The answer to a query; refused ones fail the test.
    fn ask(&self, query: &str) -> serde_json::Value {
        let escaped = query.bytes().fold(String::new(), |mut text, byte| {
            write!(text, "%{byte:02X}").unwrap();
            text
        });
        let (_, body) = get(self.at, &format!("/api/v1/query?query={escaped}"));
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All expressions of the dashboard's panels.
fn expressions(dashboard: &serde_json::Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn it_reads_the_metrics_and_understands_the_dashboard() {
    let server = aggregator::start();
    let config = aggregator::target_section(&server, "ps1") + &target("away", NOWHERE, 9000);
    let controller = Controller::start(&config);
    let Some(prometheus) = Prometheus::start(&controller) else {
        println!("not run: {MISSING}");
        return;
    };
    controller
        .wait_until("connected", |controller| controller.ask_done(&["target", "list"]).contains("connected"));
    controller.ask_done(&["job", "create", "train", "--workers", "2", "--target", "ps1"]);
    controller.ask_done(&["job", "create", "other", "--workers", "3", "--target", "ps1"]);
    let workers = [0, 1].map(|_| aggregator::Averager::join(controller.listen, "train"));
    let text = fs::read_to_string(packaging_file("grafana/thc.json")).unwrap();
    let asked = expressions(&serde_json::from_str(&text).unwrap());
    assert!(asked.len() > 12, "{asked:?}");
    // What Grafana fills in, for one of the jobs.
    let filled = |text: &String| {
        text.replace("$__rate_interval", "5s").replace("$job", "train").replace("$target", ".*")
    };
    // These have something to show while a job runs and one target is away; of the others there is nothing to count.
    let rare = ["drops_total", "resent", "nudges"];
    for query in asked.iter().filter(|query| !rare.iter().any(|rare| query.contains(rare))) {
        controller.wait_until(query, |_| {
            prometheus.ask(&filled(query)).as_array().is_some_and(|found| !found.is_empty())
        });
    }
    for query in &asked {
        prometheus.ask(&filled(query));
    }
    let value = |found: &serde_json::Value| found[0]["value"][1].as_str().unwrap().parse::<f64>().unwrap();
    controller.wait_until("a rate", |_| value(&prometheus.ask("sum(rate(thc_packets_total[5s]))")) > 1.0);
    assert_eq!(value(&prometheus.ask("thc_target_up{target=\"away\"}")), 0.0);
    // Jobs are told apart. Prometheus has a label `job` of its own, the name of what it scrapes.
    for (job, workers, joined) in [("train", 2.0, 2.0), ("other", 3.0, 0.0)] {
        let of = |metric: &str| {
            let found = prometheus.ask(&format!("{metric}{{thc_job=\"{job}\"}}"));
            assert_eq!(
                (found.as_array().map(Vec::len), &found[0]["metric"]["job"]),
                (Some(1), &"thc".into()),
                "{found}"
            );
            value(&found)
        };
        assert_eq!((of("thc_job_workers"), of("thc_job_workers_joined")), (workers, joined), "{job}");
    }
    let of_other = prometheus.ask("sum(thc_packets_total{thc_job=\"other\"})");
    assert_eq!(value(&of_other), 0.0, "its workers have not come");
    drop(workers);
}
