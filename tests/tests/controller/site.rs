//! Aggregators, a controller, and workers: all of them real processes.

use super::certificates::{self, CONTROLLER, TARGET};
use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::{
    CapabilitiesRequest, Entity, MasterArbitrationUpdate, MulticastGroupEntry, PacketReplicationEngineEntry,
    ReadRequest, StreamMessageRequest, TableEntry, Uint128, entity, packet_replication_engine_entry,
    stream_message_request,
};
use std::collections::BTreeMap;
use std::fs;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thc_control_proto::v1::control_client::ControlClient;
use thc_control_proto::v1::finding::Severity;
use thc_control_proto::v1::{CreateJobRequest, DeleteJobRequest, DiagnoseRequest, GetJobRequest, Job};
use thc_controller::{JobSection, ProgramShape};
use thc_support::openmetrics::{self, Labels};
use thc_tests::{COOKIE, Network, WorkerProcess, binary, bmv2, free_port, switch_command, write_gradient};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// The longest that anything here may take.
const PATIENCE: Duration = thc_tests::HANG;
/// The switch's own address in its network.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ps,
    Bmv2,
}

/// A process that is ended with its value.
#[derive(Debug)]
struct Running(Child);

impl Running {
    fn start(command: &mut Command, log: &Path) -> Running {
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let output = log.try_clone().unwrap();
        Running(command.stdin(Stdio::null()).stdout(output).stderr(log).spawn().unwrap())
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Resident memory in KiB.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An aggregator.
struct Aggregator {
    kind: Kind,
    p4runtime: u16,
    udp: u16,
    process: Running,
}

/// A controller and what it controls.
pub struct Site {
    kind: Kind,
    /// Whether targets want certificates.
    secured: bool,
    aggregators: Vec<Aggregator>,
    network: Option<Network>,
    controller: Option<Running>,
    port: u16,
    http: u16,
    runtime: Runtime,
    dir: PathBuf,
    // Of the first controller's site; another's is not its own to remove.
    _temporary: Option<tempfile::TempDir>,
}

fn build(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build").join(file).canonicalize().unwrap()
}

fn info() -> P4Info {
    p4info::parse(&fs::read(build("thc.p4info.txtpb")).unwrap()).unwrap()
}

impl Site {
    /// Starts so many aggregators and their controller, and waits until it has them. Or says why not.
    pub fn start(kind: Kind, aggregators: usize, secured: bool) -> Result<Site, String> {
        let network = match kind {
            Kind::Ps => None,
            Kind::Bmv2 => {
                bmv2("simple_switch_grpc")?;
                let network = Network::with_cables(2)?;
                for host in network.hosts() {
                    host.assign()?;
                }
                Some(network)
            }
        };
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().to_owned();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        if secured {
            certificates::make(&dir);
        }
        let mut site = Site {
            kind,
            secured,
            aggregators: Vec::new(),
            network,
            controller: None,
            port: free_port(),
            http: free_port(),
            runtime,
            dir,
            _temporary: Some(temporary),
        };
        for number in 0..aggregators {
            let (p4runtime, udp) = (free_port(), free_port());
            let process = site.start_aggregator(number, p4runtime, udp);
            site.aggregators.push(Aggregator { kind, p4runtime, udp, process });
        }
        fs::write(site.dir.join("controller.toml"), site.configuration()).unwrap();
        site.start_controller();
        for number in 0..aggregators {
            let name = format!("s{}", number + 1);
            site.wait_until(&name, |site| {
                site.targets().iter().any(|t| t.name == name && t.connected).then_some(())
            });
        }
        Ok(site)
    }

    fn start_aggregator(&self, number: usize, p4runtime: u16, udp: u16) -> Running {
        let log = self.dir.join(format!("aggregator{number}"));
        let mut command = match self.kind {
            Kind::Ps => {
                let mut command = Command::new(binary("thc-ps"));
                command.args(["--listen", &format!("127.0.0.1:{udp}")]);
                command.args(["--p4runtime", &format!("127.0.0.1:{p4runtime}")]);
                if self.secured {
                    command.args(["--p4runtime-cert", &format!("{TARGET}.pem")]);
                    command.args(["--p4runtime-key", &format!("{TARGET}-key.pem")]);
                    command.args(["--p4runtime-client-ca", &format!("{CONTROLLER}-ca.pem")]);
                }
                command
            }
            Kind::Bmv2 => {
                let program = bmv2("simple_switch_grpc").unwrap();
                let network = self.network.as_ref().unwrap();
                // Workers are at the first; on their network there is one aggregator.
                let hosts = if number == 0 { network.hosts() } else { &[] };
                let mut command = switch_command(&program, hosts, p4runtime, &self.dir);
                if self.secured {
                    command.args(["--grpc-server-ssl", "--grpc-server-with-client-auth"]);
                    command.args(["--grpc-server-cert", &format!("{TARGET}.pem")]);
                    command.args(["--grpc-server-key", &format!("{TARGET}-key.pem")]);
                    command.args(["--grpc-server-cacert", &format!("{CONTROLLER}-ca.pem")]);
                }
                command
            }
        };
        let process = Running::start(command.current_dir(&self.dir), &log);
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", p4runtime)).is_err() {
            assert!(started.elapsed() < PATIENCE, "no P4Runtime: {}", fs::read_to_string(&log).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    fn configuration(&self) -> String {
        let mut text = format!(
            "[controller]\nlisten = \"127.0.0.1:{}\"\nhttp = \"127.0.0.1:{}\"\nstate = \"state\"\n",
            self.port, self.http
        );
        for (number, aggregator) in (1..).zip(&self.aggregators) {
            let scheme = if self.secured { "https" } else { "http" };
            text += &format!(
                "[[target]]\nname = \"s{number}\"\naddress = \"{scheme}://127.0.0.1:{}\"\n",
                aggregator.p4runtime
            );
            if self.secured {
                text += &format!(
                    "ca = \"{TARGET}-ca.pem\"\ncert = \"{CONTROLLER}.pem\"\nkey = \"{CONTROLLER}-key.pem\"\n"
                );
            }
            match aggregator.kind {
                Kind::Ps => text += &format!("ip = \"127.0.0.1\"\nudp_port = {}\n", aggregator.udp),
                Kind::Bmv2 => {
                    let own = Ipv4Addr::from_bits(OWN.to_bits() - (number - 1));
                    text += &format!("ip = \"{own}\"\ndevice_config = {:?}\n", build("thc.json"));
                    text += "pass_ports = [401, 402, 403, 404, 405, 406, 407]\n";
                    let hosts = if number == 1 { self.network.as_ref().unwrap().hosts() } else { &[] };
                    for (port, host) in (1..).zip(hosts) {
                        text += &format!("[[target.station]]\nmac = \"{}\"\nport = {port}\n", host.mac);
                    }
                }
            }
        }
        text
    }

    fn start_controller(&mut self) {
        let config = self.dir.join("controller.toml");
        let mut command = Command::new(binary("thc-controller"));
        command.args(["run", "--config", config.to_str().unwrap()]);
        self.controller = Some(Running::start(&mut command, &self.dir.join("controller.log")));
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(started.elapsed() < PATIENCE, "no controller: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks the controller something, which is killed so long after.
    pub fn killed_while<T>(&mut self, delay: Duration, question: impl FnOnce(&Site) -> T) -> T {
        let mut controller = self.controller.take().unwrap();
        let (answer, controller) = std::thread::scope(|scope| {
            let killer = scope.spawn(move || {
                std::thread::sleep(delay);
                controller.kill();
                controller
            });
            (question(self), killer.join().unwrap())
        });
        self.controller = Some(controller);
        answer
    }

    /// Whether a change takes tens of milliseconds.
    pub fn is_slow(&self) -> bool {
        self.kind == Kind::Bmv2
    }

    /// SIGKILL, and a new one with the same configuration.
    pub fn restart_controller(&mut self) {
        self.controller.as_mut().unwrap().kill();
        self.start_controller();
    }

    /// SIGKILL, and a new one, empty, at the same addresses.
    pub fn restart_target(&mut self, number: usize) {
        let (p4runtime, udp) = (self.aggregators[number].p4runtime, self.aggregators[number].udp);
        self.aggregators[number].process.kill();
        self.aggregators[number].process = self.start_aggregator(number, p4runtime, udp);
    }

    /// SIGKILL; returns when the controller has noticed.
    pub fn stop_target(&mut self, number: usize) {
        self.aggregators[number].process.kill();
        self.wait_until("the loss to be noticed", |site| (!site.targets()[number].connected).then_some(()));
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    /// What the controller has written.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("controller.log")).unwrap_or_default()
    }

    /// Resident memory of the controller and the first target, in KiB.
    pub fn memory(&self) -> [u64; 2] {
        [self.controller.as_ref().unwrap().memory(), self.aggregators[0].process.memory()]
    }

    /// Repeats until it is something.
    pub fn wait_until<T>(&self, what: &str, mut look: impl FnMut(&Site) -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(started.elapsed() < PATIENCE, "{what} did not come: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The URL of a job.
    pub fn url(&self, job: &str) -> String {
        format!("thc://127.0.0.1:{}/{job}", self.port)
    }

    fn ask<T>(
        &self,
        question: impl AsyncFnOnce(ControlClient<Channel>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        self.runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port)).unwrap();
            question(ControlClient::new(endpoint.connect_lazy())).await
        })
    }

    pub fn create(&self, job: &JobSection) -> Result<Job, Status> {
        let request = CreateJobRequest { section: job.to_toml().unwrap() };
        self.ask(async |mut client| Ok(client.create_job(request).await?.into_inner()))
    }

    pub fn delete(&self, name: &str) -> Result<(), Status> {
        let request = DeleteJobRequest { name: name.to_owned() };
        self.ask(async |mut client| client.delete_job(request).await.map(|_| ()))
    }

    pub fn job(&self, name: &str) -> Result<Job, Status> {
        let request = GetJobRequest { name: name.to_owned() };
        self.ask(async |mut client| Ok(client.get_job(request).await?.into_inner()))
    }

    pub fn jobs(&self) -> Vec<Job> {
        let request = thc_control_proto::v1::ListJobsRequest {};
        self.ask(async |mut client| Ok(client.list_jobs(request).await?.into_inner().jobs)).unwrap()
    }

    pub fn targets(&self) -> Vec<thc_control_proto::v1::Target> {
        let request = thc_control_proto::v1::ListTargetsRequest {};
        self.ask(async |mut client| Ok(client.list_targets(request).await?.into_inner().targets)).unwrap()
    }

    /// The samples of a metric of this job.
    pub fn samples(&self, family: &str, job: &str) -> Vec<(Labels, f64)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let mut families = openmetrics::parse(text.split_once("\r\n\r\n").unwrap().1);
        let mut samples = families.remove(family).unwrap_or_default().samples;
        samples.retain(|(labels, _)| labels.get("thc_job").is_some_and(|name| name == job));
        samples
    }

    /// Packets in sums of each worker of this job.
    pub fn sums(&self, job: &str) -> Vec<u64> {
        let mut sums = BTreeMap::<String, u64>::new();
        for (labels, packets) in self.samples("thc_packet_events", job) {
            let is_in = ["opened", "added"].contains(&labels["event"].as_str());
            *sums.entry(labels["worker"].clone()).or_default() += if is_in { packets as u64 } else { 0 };
        }
        sums.into_values().collect()
    }

    /// Findings, one a line.
    pub fn diagnose(&self, job: &str) -> String {
        let request = DiagnoseRequest { job: job.to_owned() };
        let answer = self.ask(async |mut client| Ok(client.diagnose(request).await?.into_inner())).unwrap();
        let lines = answer.findings.iter().map(|finding| {
            let severity = if finding.severity() == Severity::Problem { "PROBLEM " } else { "" };
            format!("{severity}{}: {}\n", finding.what, finding.mend)
        });
        lines.collect()
    }

    /// Calls that take a few seconds.
    pub fn rounds(&self) -> u32 {
        match self.kind {
            Kind::Ps => 15_000,
            Kind::Bmv2 => 60,
        }
    }

    /// A worker of job 1, told everything by flags.
    pub fn worker(&self, number: u8, coordinates: usize, repeat: u32, more: &[&str]) -> WorkerProcess {
        let input = self.dir.join(format!("{number}.f32"));
        write_gradient(&input, coordinates, number.into());
        let output = input.with_extension("out");
        let host = self.network.as_ref().map(|network| network.host(number.into()));
        let ps = match self.kind {
            Kind::Ps => format!("127.0.0.1:{}", self.aggregators[0].udp),
            Kind::Bmv2 => format!("{OWN}:9000"),
        };
        let (number, repeat) = (number.to_string(), repeat.to_string());
        let mut flags =
            vec!["--ps", &ps, "--worker", &number, "--cookie", COOKIE, "--repeat", &repeat, "--json"];
        flags.extend(["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()]);
        if self.kind == Kind::Bmv2 {
            // It takes milliseconds for a packet.
            flags.extend(["--min-rto", "500ms"]);
        }
        flags.extend(more);
        WorkerProcess::with_flags(host, &flags)
    }

    pub fn start_workers(&self, coordinates: usize, repeat: u32, more: &[&str]) -> Vec<WorkerProcess> {
        (0..2).map(|number| self.worker(number, coordinates, repeat, more)).collect()
    }

    /// One all-reduce of two workers; what each ends with.
    pub fn all_reduce(&self, coordinates: usize, more: &[&str]) -> Vec<Vec<u8>> {
        for end in self.start_workers(coordinates, 1, more).into_iter().map(WorkerProcess::finish) {
            assert_eq!(end.code, Some(0), "{end:?}\n{}", self.log());
        }
        (0..2).map(|number| fs::read(self.dir.join(format!("{number}.out"))).unwrap()).collect()
    }

    /// Jobs that there is room for at a time.
    pub fn room(&self) -> usize {
        let room = ProgramShape::from_p4info(&info()).unwrap().capacity(&[]).jobs as usize;
        if room < 64 {
            println!("not run: 64 jobs: the program has room for {room}");
        }
        room.min(64)
    }

    /// Jobs to make and delete again: until memory has settled, and all.
    pub fn cycles(&self) -> (usize, usize) {
        match self.kind {
            Kind::Ps => (100, 1000),
            Kind::Bmv2 => (100, 1000),
        }
    }

    /// The first target has nothing of any job.
    pub fn assert_empty(&self) {
        for table in ["job_tables", "jobs", "members", "addresses", "lookup"] {
            assert_eq!(self.rows_of(0, table), 0, "{table}");
        }
        assert_eq!(self.groups_of(0), 1, "the flooding group");
    }

    async fn client(&self, number: usize) -> P4RuntimeClient<Channel> {
        let address = format!("http://127.0.0.1:{}", self.aggregators[number].p4runtime);
        P4RuntimeClient::new(Endpoint::from_shared(address).unwrap().connect().await.unwrap())
    }

    /// Whether a target answers nothing to who comes without encryption.
    pub fn refuses_strangers(&self, number: usize) -> bool {
        let address = format!("http://127.0.0.1:{}", self.aggregators[number].p4runtime);
        self.runtime.block_on(async {
            let Ok(channel) = Endpoint::from_shared(address).unwrap().connect().await else { return true };
            P4RuntimeClient::new(channel).capabilities(CapabilitiesRequest {}).await.is_err()
        })
    }

    fn read(&self, number: usize, entity: entity::Entity) -> Vec<Entity> {
        self.runtime.block_on(async {
            let device_id = 0;
            let entities = vec![Entity { entity: Some(entity) }];
            let request = ReadRequest { device_id, entities, role: String::new() };
            let mut answers = self.client(number).await.read(request).await.unwrap().into_inner();
            let mut all = Vec::new();
            while let Some(answer) = answers.message().await.unwrap() {
                all.extend(answer.entities);
            }
            all
        })
    }

    /// What the targets are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many rows a target has in a table, as it says itself.
    pub fn rows_of(&self, number: usize, table: &str) -> usize {
        let table_id = info().table(table).unwrap().id();
        self.read(number, entity::Entity::TableEntry(TableEntry { table_id, ..TableEntry::default() })).len()
    }

    /// How many multicast groups a target has.
    pub fn groups_of(&self, number: usize) -> usize {
        let all = packet_replication_engine_entry::Type::MulticastGroupEntry(MulticastGroupEntry::default());
        let entry = PacketReplicationEngineEntry { r#type: Some(all) };
        self.read(number, entity::Entity::PacketReplicationEngineEntry(entry)).len()
    }

    /// Becomes a target's primary controller, as long as the value lives.
    pub fn usurp(&self, number: usize) -> Usurper {
        self.runtime.block_on(async {
            let (sender, receiver) = mpsc::channel(1);
            let hello = MasterArbitrationUpdate {
                device_id: 0,
                role: None,
                election_id: Some(Uint128 { high: 1, low: 0 }),
                status: None,
            };
            let update = Some(stream_message_request::Update::Arbitration(hello));
            sender.send(StreamMessageRequest { update }).await.unwrap();
            let mut client = self.client(number).await;
            let mut stream = client.stream_channel(ReceiverStream::new(receiver)).await.unwrap().into_inner();
            stream.message().await.unwrap().unwrap();
            Usurper { _sender: sender, _stream: stream }
        })
    }
}

/// See [`Site::usurp`].
pub struct Usurper {
    _sender: mpsc::Sender<StreamMessageRequest>,
    _stream: Streaming<p4runtime_proto::v1::StreamMessageResponse>,
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the controller said:\n{}", self.log());
        }
        // So that nothing complains of losing its targets.
        self.controller = None;
    }
}
