//! Real `thc-worker` processes through BMv2. The test is their cable: it puts what they send to a socket of the
//! loopback into frames and back. And it is their control plane: it answers JOIN by the code of thc-ps and writes
//! the session into the switch's tables.

use super::Readings;
use super::rows;
use super::switch::Switch;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thc_protocol::aggregator::{Endpoint, JobConfig, Level};
use thc_protocol::session::{Action, Registry, StaticJob};
use thc_protocol::wire::{Header, Join, Kind, MAX_PACKET, Welcome};
use thc_protocol::{Cookie, Ecn, JobId, WorkerId};
use thc_tests::traffic::frame::{CARRIER, Datagram, Mac};
use thc_tests::traffic::plant::{Member, OWN, OWN_MAC, PlacedJob, Plant};
use thc_tests::{COOKIE_NUMBER, Ps, WorkerProcess, write_gradients};

const WORKERS: u8 = 4;
/// The switch's one port: all hosts are behind it.
const PORT: u16 = 1;
/// So few that a socket's default buffer holds all windows.
const SLOTS: &str = "64";

fn mac(worker: u8) -> Mac {
    [0x02, 0, 0, 0, 1, worker]
}

/// What a parameter server tells workers of this job: sockets join it in their stead.
fn welcome() -> Welcome {
    let ps = Ps::start(WORKERS, &["--data-slots", SLOTS]);
    let sockets: Vec<UdpSocket> = (0..WORKERS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for (worker, socket) in (0..).zip(&sockets) {
        let header = Header::new(Kind::Join, WORKERS, JobId(1), WorkerId(worker), Cookie(COOKIE_NUMBER));
        let join = Join { nonce: u64::from(worker) + 1, ..Join::default() }.to_bytes();
        let mut packet = [0; MAX_PACKET];
        socket.send_to(header.emit_packet(&mut packet, &join), ps.addr).unwrap();
    }
    sockets[0].set_read_timeout(Some(thc_tests::HANG)).unwrap();
    loop {
        let mut packet = [0; MAX_PACKET];
        let len = sockets[0].recv(&mut packet).unwrap();
        let (header, payload) = Header::parse(&packet[..len]).unwrap();
        if header.kind == Kind::Welcome {
            return Welcome::parse(payload).unwrap();
        }
    }
}

/// Cable and control plane.
pub struct Host {
    socket: UdpSocket,
    pub switch: Switch,
    registry: Registry,
    plant: Plant,
    started: Instant,
    /// Sessions that were written to the switch.
    sessions: u32,
}

impl Host {
    fn new(switch: Switch, welcome: Welcome) -> Host {
        let config = JobConfig::from_welcome(JobId(1), Cookie(COOKIE_NUMBER), &welcome);
        Host::join(switch, StaticJob::new(config, welcome))
    }

    pub fn join(switch: Switch, job: StaticJob) -> Host {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut plant = Plant::new(&[Kind::Leave]);
        plant.tables = job.welcome.tables.iter().map(|table| (table.id.0, table.into())).collect();
        // Groups are set once; the rest follows when a session begins.
        plant.jobs = vec![placed_job(job.config.clone(), 0, &[])];
        rows::fresh(&plant, &switch, &[]);
        Host { socket, switch, registry: Registry::new([job]), plant, started: Instant::now(), sessions: 0 }
    }

    pub fn addr(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    fn control(&mut self, from: SocketAddr, packet: &[u8]) {
        let random = || fastrand::u32(..);
        let actions = self.registry.handle(self.started.elapsed(), from, packet, |_, _| None, random);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, bytes) => {
                    self.socket.send_to(&bytes, to).unwrap();
                }
                Action::Install(config, members) => {
                    self.sessions += 1;
                    self.plant.jobs = vec![placed_job(config, self.sessions, &members)];
                    rows::write(&self.plant, &self.switch);
                }
                Action::Remove(_) => {
                    self.plant.jobs.clear();
                    rows::write(&self.plant, &self.switch);
                }
                Action::Move(..) => panic!("no worker moves"),
                Action::RootDiffers(..) | Action::RootRefuses(..) => panic!("the root has another job"),
            }
        }
    }

    /// Carries packets until `end`.
    pub fn run(&mut self, end: &AtomicBool) {
        while !end.load(Ordering::Relaxed) {
            let due = self.registry.poll(self.started.elapsed(), |_, _| None);
            self.act(due);
            let mut packet = [0; 2048];
            // As many as are there, so that the socket does not overflow while BMv2 works.
            while let Ok((len, from)) = self.socket.recv_from(&mut packet) {
                let payload = packet[..len].to_vec();
                if len > 1 && payload[1] & 0x20 != 0 {
                    self.control(from, &payload);
                    continue;
                }
                let datagram =
                    Datagram { from: (mac(payload[6]), from), to: (OWN_MAC, OWN), ecn: Ecn::NotEct, payload };
                self.switch.send(PORT, &datagram.frame());
                self.deliver();
            }
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        for frame in self.switch.take().remove(&PORT).unwrap() {
            let to: [u8; 4] = frame[30..34].try_into().unwrap();
            let to = SocketAddr::from((to, u16::from_be_bytes([frame[36], frame[37]])));
            self.socket.send_to(&frame[CARRIER..], to).unwrap();
        }
    }
}

/// Ends the carrier whatever happens, or a failing test would hang.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn placed_job(config: JobConfig, session: u32, members: &[(WorkerId, Endpoint)]) -> PlacedJob {
    let nowhere = Endpoint { ingress: PORT, addr: SocketAddr::from(([0, 0, 0, 0], 0)) };
    let mut all: BTreeMap<u8, Member> = (0..config.workers)
        .map(|worker| (worker, Member { mac: mac(worker), endpoint: nowhere, port: PORT }))
        .collect();
    for (worker, at) in members {
        all.get_mut(&worker.0).unwrap().endpoint.addr = at.addr;
    }
    let root = match config.level {
        Level::Rack { root, .. } => Some(Member { mac: mac(0xFF), endpoint: root, port: PORT }),
        _ => None,
    };
    PlacedJob { config, index: 1, epoch: 7 + session, data_base: 0, norm_base: 0, members: all, root }
}

/// One worker per input; what each wrote.
fn all_reduce(at: SocketAddr, inputs: &[PathBuf], mode: &str) -> Vec<Vec<u8>> {
    let workers: Vec<WorkerProcess> = (0..)
        .zip(inputs)
        .map(|(number, input)| {
            let output = input.with_extension("out");
            let files = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
            let mut args = files.to_vec();
            args.extend(["--json", "--repeat", "2", "--error-feedback=true", "--mode", mode]);
            WorkerProcess::start(at, number, &args)
        })
        .collect();
    for worker in workers {
        let end = worker.finish();
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap()).collect()
}

#[test]
fn four_worker_processes_get_what_they_get_from_thc_ps() {
    let switch = match Switch::start(&[PORT]) {
        Ok(switch) => switch,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, 1 << 18);
    let mut host = Host::new(switch, welcome());
    let addr = host.addr();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let carrier = scope.spawn(|| host.run(&end));
        let ending = Ending(&end);
        for mode in ["thc", "raw"] {
            let ps = Ps::start(WORKERS, &["--data-slots", SLOTS]);
            let expected = all_reduce(ps.addr, &inputs, mode);
            let begin = Instant::now();
            let got = all_reduce(addr, &inputs, mode);
            println!("mode {mode}: 2 x 1 MiB of {WORKERS} workers in {:.1} s", begin.elapsed().as_secs_f64());
            assert!(expected.iter().all(|mean| *mean == expected[0]), "all workers have the same mean");
            assert!(got == expected, "mode {mode}: through the switch comes another mean than from thc-ps");
            assert!(!carrier.is_finished());
        }
        drop(ending);
        carrier.join().unwrap();
    });
    // It was the switch that added: RESULTs of 2 modes, 2 calls.
    let results = host.switch.counters(&[("answers", 1 << 2)])[0].0;
    println!("{results} results");
    assert!(results >= 2 * (256 + 1) + 2 * (1024 + 1), "{results}");
    assert_eq!(host.sessions, 2);
}
