//! What the worker in Python does when others ask it, with a server that the test plays.

use super::{python, script, text};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Shard, Sink};
use thc_protocol::wire::{FLAG_NUDGE, HEADER_LEN, Header, Kind, Welcome};
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_tests::{Worker, write_gradient};

/// What the aggregator sends to the one worker that is real.
struct ToPython<'a>(&'a UdpSocket);

impl Sink for ToPython<'_> {
    fn unicast(&mut self, to: Endpoint, packet: &[u8]) {
        if to != other() {
            self.0.send_to(packet, to.addr).unwrap();
        }
    }

    fn multicast(&mut self, _job: JobId, members: &[Endpoint], packet: &[u8]) {
        members.iter().for_each(|&to| self.unicast(to, packet));
    }
}

/// Where worker 1 is, which the test plays.
fn other() -> Endpoint {
    Endpoint::udp(SocketAddrV4::new([127, 0, 0, 1].into(), 9))
}

/// The aggregator of a session: that of the first of the vectors.
fn aggregator(welcome: &Welcome, job: JobId, python: Endpoint) -> Aggregator {
    let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 24);
    aggregator.install_table(welcome.table, welcome.values).unwrap();
    let config = JobConfig {
        job,
        cookie: welcome.session,
        workers: 2,
        quorum: 2,
        data_slots: welcome.data_slots,
        norm_slots: welcome.norm_slots,
        lane: welcome.lane,
        tables: vec![welcome.table],
    };
    aggregator.install_job(config).unwrap();
    aggregator.set_member(job, WorkerId(0), python).unwrap();
    aggregator.set_member(job, WorkerId(1), other()).unwrap();
    aggregator
}

/// The test is the server, and worker 1, who does as the worker in Python does. When that has its mean, the aggregator loses
/// its state, and worker 1 still waits for a result: who has it long since must send its packet again (P17, P20).
#[test]
fn it_sends_again_what_another_worker_waits_for() {
    let Some(python) = python() else { return };
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../vectors/all_reduce.json")).unwrap();
    let text_of_welcome = vectors["sessions"][0]["welcomes"][0].as_str().unwrap();
    let mut welcome: Vec<u8> = (0..text_of_welcome.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text_of_welcome[i..i + 2], 16).unwrap())
        .collect();
    let (header, body) = Header::parse(&welcome).unwrap();
    let (job, body) = (header.job, Welcome::parse(body).unwrap());

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("0.f32"), dir.path().join("0.out"));
    write_gradient(&input, 1500, 0);
    let mut command = script(python, "all_reduce.py");
    command.args(["--ps", &socket.local_addr().unwrap().to_string(), "--worker", "0", "--cookie", "1"]);
    command.args(["--job", &job.0.to_string(), "--input", text(&input), "--output", text(&output)]);
    let worker = Worker::of(command);

    let mut running: Option<(Endpoint, Aggregator)> = None;
    let mut last = Vec::new();
    let (mut forgot, mut again) = (false, false);
    let mut buffer = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        let packet = &buffer[..len];
        let SocketAddr::V4(from) = from else { continue };
        let (header, payload) = Header::parse(packet).unwrap();
        match (header.kind, &mut running) {
            (Kind::Join, _) => {
                assert_eq!(header.cookie, Cookie(1));
                welcome[HEADER_LEN + 56..HEADER_LEN + 64].copy_from_slice(&payload[..8]);
                socket.send_to(&welcome, from).unwrap();
                running.get_or_insert_with(|| {
                    (Endpoint::udp(from), aggregator(&body, job, Endpoint::udp(from)))
                });
            }
            (Kind::Leave, Some((at, model))) => {
                assert_eq!(header.cookie, body.session);
                if again {
                    let bye = Header { kind: Kind::Bye, num_workers: 2, ..header };
                    let mut packet = [0; HEADER_LEN];
                    bye.emit(&mut packet);
                    socket.send_to(&packet, from).unwrap();
                    break;
                }
                if !forgot {
                    forgot = true;
                    *model = aggregator(&body, job, *at);
                    Header::set_flags(&mut last, FLAG_NUDGE);
                    model.handle(other(), &last, &mut ToPython(&socket));
                }
            }
            (Kind::Norm | Kind::Data, Some((at, model))) => {
                model.handle(*at, packet, &mut ToPython(&socket));
                if forgot {
                    assert_eq!(header.flags, 0);
                    let mut as_sent = last.clone();
                    as_sent[2] = 0;
                    as_sent[6] = 0;
                    assert_eq!(packet, as_sent, "what worker 1 waits for, as it was sent first");
                    again = true;
                } else {
                    last = packet.to_vec();
                    last[6] = 1;
                    model.handle(other(), &last, &mut ToPython(&socket));
                }
            }
            _ => {}
        }
    }
    let end = worker.finish();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(end.json()["answered"], 1);
}
