//! A day of an operator: a controller with certificates, two servers and a switch, ten declared jobs, and all that goes wrong.
//! After each step every target has rows of exactly the jobs that it should have; what is refused says what to do.

use crate::aggregator;
use crate::authority::Authority;
use crate::controller::{Controller, Ended, HANG, run, target};
use crate::strict::Strict;
use p4runtime_proto::p4info;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thc_ps::{Server, ServerOptions};
use thc_worker::{Group, GroupConfig};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// Who is in the way of whom in messages.
const TARGETS: [&str; 3] = ["ps1", "ps2", "chip"];

fn secured_server(folder: &Path) -> Server {
    let tls = "cert = \"ps.pem\"\nkey = \"ps-key.pem\"\nclient_ca = \"controller-ca.pem\"\n";
    let file = folder.join("thc-ps.toml");
    let text = "listen = \"127.0.0.1:0\"\n[p4runtime]\nlisten = \"127.0.0.1:0\"\n[p4runtime.tls]\n";
    fs::write(&file, format!("{text}{tls}")).unwrap();
    Server::start(ServerOptions::read(&file).unwrap().validate().unwrap()).unwrap()
}

fn job(number: u32, workers: u32, places: &str) -> String {
    format!(
        "[[job]]\nname = \"j{number}\"\njob = {number}\nworkers = {workers}\ndata_slots = 128\nnorm_slots = 32\n{places}\n"
    )
}

/// The ten, and where each is.
fn declared_jobs(workers_of_last: u32) -> Vec<(u32, String, Vec<&'static str>)> {
    (1..=10)
        .map(|number| {
            let (places, targets) = match number {
                1..=3 => ("targets = [\"ps1\"]", vec!["ps1"]),
                4..=6 => ("targets = [\"ps2\"]", vec!["ps2"]),
                7 => ("servers = [\"ps1\", \"ps2\"]", vec!["ps1", "ps2"]),
                _ => ("targets = [\"chip\"]", vec!["chip"]),
            };
            let workers = if number == 10 { workers_of_last } else { 1 };
            (number, job(number, workers, places), targets)
        })
        .collect()
}

struct Day {
    folder: tempfile::TempDir,
    config: String,
    controller: Option<Controller>,
    started: usize,
    chip: Strict,
    jobs: Vec<(u32, String, Vec<&'static str>)>,
    /// What was refused, and to whom.
    refused: Vec<String>,
    servers: Vec<Server>,
}

impl Day {
    fn begin() -> Day {
        let folder = tempfile::tempdir().unwrap();
        for name in ["service", "ps", "controller"] {
            Authority::with_certificate(folder.path(), name);
        }
        let servers = vec![secured_server(folder.path()), secured_server(folder.path())];
        let info = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/build/thc.p4info.txtpb");
        let chip = Strict::start(p4info::parse(&fs::read(info).unwrap()).unwrap());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let mut config = format!(
            "[controller.tls]\ncert = \"{}\"\nkey = \"{}\"\n",
            file("service.pem"),
            file("service-key.pem")
        );
        for (name, server) in TARGETS.iter().zip(&servers) {
            let address = format!("https://localhost:{}", server.p4runtime().unwrap().port());
            config += &target(name, &address, server.local().port());
            config += &format!(
                "compare = \"1s\"\nca = \"{}\"\ncert = \"{}\"\nkey = \"{}\"\n",
                file("ps-ca.pem"),
                file("controller.pem"),
                file("controller-key.pem")
            );
        }
        config += &target("chip", &chip.address.to_string(), 9000);
        config += "compare = \"1s\"\npatience = \"2s\"\n";
        let mut day = Day {
            folder,
            config,
            controller: None,
            started: 0,
            chip,
            jobs: Vec::new(),
            refused: Vec::new(),
            servers,
        };
        day.controller = Some(day.start());
        day
    }

    fn start(&mut self) -> Controller {
        self.started += 1;
        Controller::start_with(&self.config, &self.folder.path().join("jobs.state"))
    }

    fn active(&self) -> &Controller {
        self.controller.as_ref().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Asks as an operator.
    fn ask(&self, args: &[&str]) -> Ended {
        let address = format!("localhost:{}", self.active().listen.port());
        let ca = self.file("service-ca.pem");
        let environment = [("THC_CONTROLLER", address.as_str()), ("THC_CONTROLLER_CA", ca.to_str().unwrap())];
        run(args, &environment)
    }

    fn ask_done(&self, args: &[&str]) -> String {
        let ended = self.ask(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}\n{}", self.active().log());
        ended.out
    }

    /// Asks for what is refused.
    fn expect_refusal(&mut self, args: &[&str], says: &str) {
        let ended = self.ask(args);
        assert!(ended.code == Some(1) && ended.err.contains(says), "{args:?}: {ended:?}");
        self.refused.push(ended.err);
    }

    /// The controller is killed and started anew.
    fn restart(&mut self) {
        drop(self.controller.take().unwrap().stop());
        self.controller = Some(self.start());
        self.active().wait_until("ready", |controller| controller.get("/readyz").0.contains("200 OK"));
    }

    /// Makes jobs what is declared.
    fn apply(&mut self, jobs: Vec<(u32, String, Vec<&'static str>)>) {
        let file = self.file("jobs.toml");
        fs::write(&file, jobs.iter().map(|(_, text, _)| text.as_str()).collect::<String>()).unwrap();
        self.ask_done(&["apply", "-f", file.to_str().unwrap(), "--yes", "--prune"]);
        self.jobs = jobs;
    }

    /// The numbers of jobs that a target has rows of.
    fn numbers(&self, target: &str) -> BTreeSet<u32> {
        let Some(place) = TARGETS[..2].iter().position(|name| *name == target) else {
            let rows = self.chip.values("job_tables");
            return rows.iter().filter_map(|row| Some(*row.get("job")? as u32)).collect();
        };
        let pem = |name: &str| fs::read(self.file(name)).unwrap();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(pem("ps-ca.pem")))
            .identity(Identity::from_pem(pem("controller.pem"), pem("controller-key.pem")));
        let address = format!("https://localhost:{}", self.servers[place].p4runtime().unwrap().port());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rows = runtime.block_on(async {
            let endpoint = Endpoint::from_shared(address).unwrap().tls_config(tls).unwrap();
            aggregator::rows(endpoint.connect().await.unwrap(), "job_tables").await
        });
        rows.iter().map(|key| key[0] as u32).collect()
    }

    /// Waits until no job has wrong or missing rows, but on those targets; and says nothing where nothing is wrong.
    fn wait_settled(&self, step: &str, but: &[&str]) {
        let start = Instant::now();
        // Alarms go by these.
        let up = || {
            let (_, metrics) = self.active().get("/metrics");
            let mut up = metrics.lines().filter(|line| line.starts_with("thc_target_up{"));
            up.all(|line| line.ends_with(" 1.0") || but.iter().any(|target| line.contains(target)))
        };
        let there = || {
            TARGETS.iter().filter(|target| !but.contains(target)).all(|target| {
                let wanted: BTreeSet<u32> = self
                    .jobs
                    .iter()
                    .filter(|(.., at)| at.contains(target))
                    .map(|(number, ..)| *number)
                    .collect();
                self.numbers(target) == wanted
            })
        };
        while !(up() && there()) {
            assert!(start.elapsed() < HANG, "{step}: {}", self.active().log());
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("{step}: settled within {:.1} s", start.elapsed().as_secs_f64());
        let names = self.ask_done(&["job", "list"]);
        for (number, ..) in &self.jobs {
            assert!(names.contains(&format!("j{number} ")), "{step}: {names}");
        }
        assert_eq!(self.chip.state().refused, Vec::<String>::new(), "{step}");
    }

    /// A worker of a job.
    fn join(&self, job: &str) -> Group {
        let url = format!("thcs://localhost:{}/{job}", self.active().listen.port());
        let mut asked = thc_worker::Controller::new(url.parse().unwrap());
        asked.ca = Some(self.file("service-ca.pem"));
        Group::join(GroupConfig { controller: Some(asked), ..GroupConfig::default() }).unwrap()
    }
}

/// Averages, alone: the mean is what went in.
fn average(group: &Group) {
    let mut data = vec![1.0; 5000];
    group.allreduce(&mut data).unwrap();
    let mean = data.iter().sum::<f32>() / data.len() as f32;
    assert!((mean - 1.0).abs() < 0.1, "{mean}");
}

#[test]
fn a_day_of_an_operator() {
    let mut day = Day::begin();
    // In the morning: ten jobs. What is killed at once has them done to the end, or its successor does.
    day.active()
        .wait_until("connected", |_| day.ask(&["target", "list"]).out.matches("connected").count() == 3);
    day.apply(declared_jobs(1));
    day.restart();
    day.wait_settled("ten jobs, and a killed controller", &[]);
    let trains = day.join("j1");
    average(&trains);
    average(&day.join("j7"));
    day.expect_refusal(&["job", "delete", "j1"], "give --yes");

    // Somebody else has his hands in the switch.
    day.chip.delete("job_tables", 8);
    day.chip.disturb("lookup");
    day.active().wait_until("repaired", |controller| controller.log().contains("updates repair them"));
    day.wait_settled("foreign rows", &[]);

    // The switch hangs. What is asked of it is refused in time, what is asked of others is done, and a killed controller changes nothing.
    day.chip.state().faults.hangs = Some("write");
    day.expect_refusal(&["job", "create", "x", "--workers", "1", "--target", "chip"], "no answer within 2s");
    day.chip.state().faults.hangs = Some("program");
    day.chip.cut();
    day.ask_done(&[
        "job",
        "create",
        "y",
        "--workers",
        "1",
        "--target",
        "ps2",
        "--data-slots",
        "32",
        "--norm-slots",
        "16",
    ]);
    day.expect_refusal(&["job", "create", "z", "--workers", "1", "--target", "chip"], "chip");
    day.ask_done(&["job", "delete", "y"]);
    day.wait_settled("a switch that hangs", &["chip"]);
    day.restart();
    average(&trains);
    day.wait_settled("a switch that hangs, and a killed controller", &["chip"]);
    day.chip.state().faults.hangs = None;
    day.wait_settled("a switch that answers again", &[]);

    // At noon the controller's certificate has expired.
    let service = Authority::with_certificate(&day.file(""), "service");
    service.give("service", |certificate| certificate.expire());
    day.restart();
    day.expect_refusal(&["job", "list"], "expired: replace it");
    average(&trains);
    service.give("service", |_| {});
    day.restart();
    day.wait_settled("a new certificate, and a killed controller", &[]);
    average(&trains);

    // What is declared changes: one job has more workers, and another one goes when its session is over.
    let without_first: Vec<_> = declared_jobs(2).into_iter().filter(|(number, ..)| *number != 1).collect();
    average(&trains);
    drop(trains);
    day.active().wait_until("idle", |_| {
        let job: serde_json::Value =
            serde_json::from_str(&day.ask_done(&["job", "show", "j1", "--json"])).unwrap();
        job["places"][0]["running"] == false
    });
    day.apply(without_first);
    day.restart();
    day.wait_settled("other jobs, and a killed controller", &[]);
    average(&day.join("j7"));

    for said in &day.refused {
        let ways = ["give", "replace", "restart", "start", "put", "try"];
        assert!(said.lines().count() == 1 && ways.iter().any(|way| said.contains(way)), "no way out: {said}");
    }
    println!("{} controllers were started", day.started);
}
