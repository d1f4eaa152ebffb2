//! What the worker in Python does when others ask it, with a server that the test plays.

use super::{python, script, text};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Shard, Sink};
use thc_protocol::wire::{Ask, FLAG_NUDGE, HEADER_LEN, Header, Join, Kind, Welcome};
use thc_protocol::{Cookie, Ecn, JobId, WorkerId};
use thc_tests::{WorkerProcess, write_gradient};

/// With which the worker in Python joins.
const CONFIGURED: Cookie = Cookie(1);

/// What the aggregator sends to the one worker that is real.
struct ToPython<'a>(&'a UdpSocket);

impl Sink for ToPython<'_> {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        if to != worker_address() {
            self.0.send_to(packet, to.addr).unwrap();
        }
    }

    fn multicast(&mut self, _job: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        members.iter().for_each(|&to| self.unicast(to, Ecn::NotEct, packet));
    }
}

/// Where worker 1 is, which the test plays: it sends what the worker in Python sends.
fn worker_address() -> Endpoint {
    Endpoint::udp(SocketAddr::from(([127, 0, 0, 1], 9)))
}

/// A server of two workers, with the session that is the first of the vectors.
struct Server {
    socket: UdpSocket,
    welcome: Vec<u8>,
    job: JobId,
    says: Welcome,
    /// Worker 0, once it has joined.
    python: Option<Endpoint>,
    aggregator: Aggregator,
    /// What worker 1 sent last.
    last: Vec<u8>,
}

impl Server {
    fn new() -> Server {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../vectors/all_reduce.json")).unwrap();
        let digits = vectors["sessions"][0]["welcomes"][0].as_str().unwrap();
        let byte = |i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap();
        let welcome: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let (header, body) = Header::parse(&welcome).unwrap();
        let (job, says) = (header.job, Welcome::parse(body).unwrap());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(thc_tests::HANG)).unwrap();
        let aggregator = Aggregator::new(Shard::WHOLE, 1 << 24);
        Server { socket, welcome, job, says, python: None, aggregator, last: Vec::new() }
    }

    /// Starts the worker.
    fn start(&self, python: &str, folder: &Path) -> WorkerProcess {
        let (input, output) = (folder.join("0.f32"), folder.join("0.out"));
        write_gradient(&input, 1500, 0);
        let mut command = script(python, "all_reduce.py");
        let address = self.socket.local_addr().unwrap().to_string();
        command.args(["--ps", &address, "--worker", "0", "--job", &self.job.0.to_string()]);
        command.args(["--cookie", &CONFIGURED.0.to_string()]);
        command.args(["--input", text(&input), "--output", text(&output)]);
        WorkerProcess::spawn(command)
    }

    fn receive(&self) -> (Header, Vec<u8>, SocketAddr) {
        let mut buffer = [0; 2048];
        let (len, from) = self.socket.recv_from(&mut buffer).unwrap();
        (Header::parse(&buffer[..len]).unwrap().0, buffer[..len].to_vec(), from)
    }

    /// The session begins, with empty slots.
    fn begin(&mut self, python: Endpoint) {
        self.python = Some(python);
        let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 24);
        let table = self.says.tables.first();
        aggregator.install_table(table.id, table.into()).unwrap();
        let config = JobConfig::from_welcome(self.job, self.says.session, &self.says);
        aggregator.install_job(config).unwrap();
        aggregator.set_member(self.job, WorkerId(0), python).unwrap();
        aggregator.set_member(self.job, WorkerId(1), worker_address()).unwrap();
        self.aggregator = aggregator;
    }

    /// Answers JOIN.
    fn admit(&mut self, packet: &[u8], from: SocketAddr) -> Join {
        let (header, payload) = Header::parse(packet).unwrap();
        assert_eq!(header.cookie, CONFIGURED);
        let join = Join::parse(payload).unwrap();
        self.welcome[HEADER_LEN + 56..HEADER_LEN + 64].copy_from_slice(&join.nonce.to_be_bytes());
        self.socket.send_to(&self.welcome, from).unwrap();
        if self.python.is_none() {
            self.begin(Endpoint::udp(from));
        }
        join
    }

    fn aggregate(&mut self, from: Endpoint, packet: &[u8]) {
        self.aggregator.handle(from, packet, &mut ToPython(&self.socket));
    }

    /// What both workers send.
    fn aggregate_both(&mut self, packet: &[u8]) {
        self.aggregate(self.python.unwrap(), packet);
        self.last = packet.to_vec();
        self.last[6] = 1;
        self.aggregate(worker_address(), &self.last.clone());
    }

    fn control(&self, kind: Kind, payload: &[u8]) {
        let header = Header::new(kind, 2, self.job, WorkerId(0), self.says.session);
        let mut buffer = [0; 64];
        let packet = header.emit_packet(&mut buffer, payload);
        self.socket.send_to(packet, self.python.unwrap().addr).unwrap();
    }
}

/// When the worker has its mean, the aggregator loses its state, and worker 1 still waits for a result: who has it long since
/// must send its packet again (P17, P20).
#[test]
fn it_sends_again_what_another_worker_waits_for() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::new();
    let worker = server.start(python, dir.path());
    let (mut forgot, mut again) = (false, false);
    loop {
        let (header, packet, from) = server.receive();
        match header.kind {
            Kind::Join => {
                server.admit(&packet, from);
            }
            Kind::Leave if again => break server.control(Kind::Bye, &[]),
            Kind::Leave if !forgot => {
                assert_eq!(header.cookie, server.says.session);
                forgot = true;
                server.begin(Endpoint::udp(from));
                let mut waits = server.last.clone();
                Header::set_flags(&mut waits, FLAG_NUDGE);
                server.aggregate(worker_address(), &waits);
            }
            Kind::Norm | Kind::Data if forgot => {
                let mut as_sent = server.last.clone();
                as_sent[6] = 0;
                assert_eq!(packet, as_sent, "what worker 1 waits for, as it was sent first");
                again = true;
            }
            Kind::Norm | Kind::Data => server.aggregate_both(&packet),
            _ => {}
        }
    }
    let end = worker.finish();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(end.json()["answered"], 1);
}

/// Somebody else wants its number (P24).
#[test]
fn it_says_that_it_still_runs() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::new();
    let worker = server.start(python, dir.path());
    let (mut nonce, mut asked, mut claims) = (0, false, 0);
    loop {
        let (header, packet, from) = server.receive();
        match header.kind {
            Kind::Join => {
                let join = server.admit(&packet, from);
                nonce = join.nonce;
                if join.session != Cookie(0) {
                    assert!(asked, "a claim that nobody asked for");
                    assert_eq!(
                        (join.session, join.fingerprint),
                        (server.says.session, server.says.fingerprint())
                    );
                    claims += 1;
                }
            }
            Kind::Norm if !asked => {
                asked = true;
                server.control(Kind::Ask, &Ask { nonce: nonce ^ 1 }.to_bytes());
                server.control(Kind::Ask, &Ask { nonce }.to_bytes());
                server.aggregate_both(&packet);
            }
            Kind::Norm | Kind::Data => server.aggregate_both(&packet),
            Kind::Leave => break server.control(Kind::Bye, &[]),
            _ => {}
        }
    }
    let end = worker.finish();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(claims, 1);
}
