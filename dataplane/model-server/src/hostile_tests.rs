//! Peers that mean harm, or are broken: what they do is refused, counted, and nobody else's business.
#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connection, Endpoint};
use thc_config::values::{Interval, Secret};

use crate::counters::Reason;
use crate::payload;
use crate::proof::{self, Role};
use crate::shard::{PushHead, Stamp};
use crate::wire::{Answer, Frame, Request, read_frame, split};
use crate::{
    Client, ClientConfig, ModelBits, ModelJobConfig, ModelServer, ModelServerConfig, Pull, Push, Spec,
};

const SECRET: &str = "a secret for tests";
const LEN: usize = 1000;

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(600);

fn spec() -> Spec {
    Spec { bits: ModelBits::Fixed(32), workers: 8, ..Spec::sgd(LEN as u64, 1.0) }
}

fn server() -> ModelServer {
    let config = ModelServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        jobs: vec![ModelJobConfig::new("train", SECRET.into())],
        threads: 2,
        connections: 40,
        patience: Interval(Duration::from_millis(300)),
        ..ModelServerConfig::default()
    };
    ModelServer::start(config).unwrap()
}

fn client_of(server: &ModelServer, job: &str) -> Client {
    let config = ClientConfig {
        server: server.local().to_string(),
        job: job.to_owned(),
        secret: SECRET.into(),
        timeout: Duration::from_secs(30),
        ..ClientConfig::default()
    };
    let mut client = Client::open(config, "m", spec()).unwrap();
    assert!(client.initialise(&[0.0; LEN]).unwrap());
    client
}

/// Every push takes 1 from every coordinate: x is −version.
fn work(client: &mut Client) -> u64 {
    let mut x = vec![0.0; LEN];
    let pulled = client.pull(&mut x, Pull::default()).unwrap();
    let version = pulled.stamps().next().unwrap().version;
    assert!(x.iter().all(|v| *v == -(version as f32)), "{} at version {version}", x[0]);
    assert_eq!(client.push(&[1.0; LEN], Push::bits(32)).unwrap().accepted_shards, 1);
    version + 1
}

struct Peer {
    connection: Connection,
    _endpoint: Endpoint,
}

impl Peer {
    async fn connect(server: &ModelServer) -> Result<Self, String> {
        let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(proof::worker_tls().unwrap()));
        endpoint.set_default_client_config(config);
        let connection = endpoint.connect(server.local(), "x").unwrap().await.map_err(|e| e.to_string())?;
        Ok(Self { connection, _endpoint: endpoint })
    }

    /// Sends bytes on a new stream and returns the answer, or how the connection ended.
    async fn say(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (mut send, mut receive) = self.connection.open_bi().await.map_err(|e| e.to_string())?;
        send.write_all(bytes).await.map_err(|e| e.to_string())?;
        let mut buffer = Vec::new();
        match read_frame(&mut receive, 1 << 20, HANG, &mut buffer).await {
            Ok(()) => Ok(buffer),
            Err(_) => Err(self.connection.closed().await.to_string()),
        }
    }

    fn hello(&self, secret: &str, worker: u16) -> Vec<u8> {
        let secret = Secret::from(secret);
        let proof = proof::prove(Role::Worker, &secret, &self.connection, "train", worker).unwrap();
        frame(&Request::Hello { worker, job: "train", proof }, &[])
    }

    /// One that knows the secret.
    async fn insider(server: &ModelServer, worker: u16) -> (Self, u64) {
        let peer = Self::connect(server).await.unwrap();
        let welcome = peer.say(&peer.hello(SECRET, worker)).await.unwrap();
        let Some((Answer::Welcome { incarnation, .. }, [])) = split(&welcome) else {
            panic!("{welcome:?}");
        };
        (peer, incarnation)
    }
}

/// A request with bytes behind it.
fn frame(request: &Request<'_>, tail: &[u8]) -> Vec<u8> {
    let mut frame = Frame::new(request);
    frame.tail().extend(tail);
    frame.finish()
}

fn attach(shard: u32) -> Vec<u8> {
    frame(&Request::Attach { model: "m", shard }, &[])
}

fn push(sequence: u64, incarnation: u64, version: u64, scale: f32, vector: &[f32]) -> Vec<u8> {
    let stamp = Stamp { epoch: 0, step: version, version };
    let mut tail = Vec::new();
    payload::encode_full(vector, &mut tail);
    frame(&Request::Push { incarnation, head: PushHead { sequence, stamp, scale } }, &tail)
}

fn pull() -> Vec<u8> {
    frame(&Request::Pull { patient: false, held: None, snapshot: None }, &[])
}

#[test]
fn strangers_harm_nobody() {
    let server = server();
    let mut client = client_of(&server, "train");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Noise on the port.
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0, 1, 20, 1200, 1400] {
        for first in 0..=255_u8 {
            let _ = noise.send_to(&vec![first; length], server.local());
        }
    }
    work(&mut client);
    runtime.block_on(async {
        // Handshakes that go no further: more than there may be connections.
        let mut open = Vec::new();
        let mut refused = 0;
        for _ in 0..60 {
            match Peer::connect(&server).await {
                Ok(peer) => open.push(peer),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0, "more connections than there are places");
        // Those who were there work on.
        tokio::task::block_in_place(|| work(&mut client));
        drop(open);
        // Their places come free.
        let began = Instant::now();
        let peer = loop {
            match Peer::connect(&server).await {
                Ok(peer) => break peer,
                Err(error) => assert!(began.elapsed() < HANG, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let ended = peer.say(&peer.hello("not the secret at all", 1)).await.unwrap_err();
        assert!(ended.contains("the secret is not that of the job"), "{ended}");
        // A proof of another connection.
        let (one, two) = (Peer::connect(&server).await.unwrap(), Peer::connect(&server).await.unwrap());
        assert!(two.say(&one.hello(SECRET, 1)).await.unwrap_err().contains("secret"));
        // Of another worker.
        let mut other = one.hello(SECRET, 1);
        assert_eq!(other[5], 1);
        other[5] = 2;
        assert!(one.say(&other).await.unwrap_err().contains("secret"));
        for bytes in [
            vec![255, 255, 255, 255],
            vec![0, 0, 0, 0],
            vec![1, 0, 0, 0, 99],
            pull(),
            [&[9, 0, 0, 0], &frame(&Request::Hello { worker: 1, job: "train", proof: [0; 32] }, &[])[4..13]]
                .concat(),
            frame(&Request::Hello { worker: 1, job: "train", proof: [0; 32] }, &[0]),
        ] {
            let peer = Peer::connect(&server).await.unwrap();
            let ended = peer.say(&bytes).await.unwrap_err();
            assert!(ended.contains("not one of this protocol version"), "{ended}");
        }
        // A second stream before the introduction has no place.
        let peer = Peer::connect(&server).await.unwrap();
        let _first = peer.connection.open_bi().await.unwrap();
        let second = tokio::time::timeout(Duration::from_millis(200), peer.connection.open_bi()).await;
        assert!(second.is_err());
    });
    let done = work(&mut client);
    assert_eq!(done, 3);
    let counters = &server.stats().refused;
    assert_eq!((counters["proof"], counters["malformed"]), (3, 6));
    assert!(counters["limit"] > 0);
}

#[test]
fn insiders_spoil_no_state() {
    let server = server();
    let mut client = client_of(&server, "train");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut version = work(&mut client);
    runtime.block_on(async {
        // What is wrong with the form ends the connection, with one line.
        let malformed = [
            attach(1),
            frame(&Request::Attach { model: "other", shard: 0 }, &[]),
            [attach(0), push(1, 0, 0, 1.0, &[1.0; LEN - 1])].concat(),
            [attach(0), push(1, 0, 0, 1.0, &[1.0; LEN + 1])].concat(),
            [attach(0), vec![255, 255, 255, 63, 0]].concat(),
            [attach(0), frame(&Request::Initialise, &[0; 8])].concat(),
            [attach(0), frame(&Request::Numbers { snapshot: false }, &[0])].concat(),
            [attach(0), vec![1, 0, 0, 0, 99]].concat(),
            frame(&Request::Delete { model: "m" }, &[]),
            pull(),
        ];
        for bytes in &malformed {
            let (peer, _) = Peer::insider(&server, 1).await;
            let answer = peer.say(bytes).await;
            // The first answer may be that of ATTACH.
            if answer.is_ok() {
                let ended = tokio::time::timeout(HANG, peer.connection.closed()).await.unwrap();
                assert!(ended.to_string().contains("does not fit the model"), "{ended}");
            }
        }
        version = tokio::task::block_in_place(|| work(&mut client));

        // What is wrong with the content is answered.
        let (peer, incarnation) = Peer::insider(&server, 2).await;
        let (mut send, mut receive) = peer.connection.open_bi().await.unwrap();
        let mut buffer = Vec::new();
        let mut nan = vec![1.0; LEN];
        nan[7] = f32::NAN;
        let good = push(5, incarnation, version, 1.0, &[1.0; LEN]);
        let refused = |reason: Reason| Answer::Refused { reason, text: reason.message().to_owned() };
        let answers = [
            (push(1, incarnation, version, 1.0, &nan), refused(Reason::NotFinite)),
            (push(1, incarnation, version, f32::NAN, &[1.0; LEN]), refused(Reason::NotFinite)),
            (push(1, incarnation, version, -1.0, &[1.0; LEN]), refused(Reason::NotFinite)),
            (push(1, incarnation, version + 9, 1.0, &[1.0; LEN]), refused(Reason::Future)),
            (push(1, incarnation ^ 1, version, 1.0, &[1.0; LEN]), refused(Reason::Incarnation)),
            (good.clone(), Answer::Pushed { delay: Some(0) }),
            // Replays, and what was overtaken.
            (good.clone(), Answer::Pushed { delay: None }),
            (push(4, incarnation, version, 1.0, &[9.0; LEN]), Answer::Pushed { delay: None }),
            (push(5, incarnation ^ 1, version, 1.0, &[9.0; LEN]), Answer::Pushed { delay: None }),
        ];
        send.write_all(&attach(0)).await.unwrap();
        read_frame(&mut receive, 1 << 20, HANG, &mut buffer).await.unwrap();
        for (i, (request, wanted)) in answers.iter().enumerate() {
            send.write_all(request).await.unwrap();
            read_frame(&mut receive, 1 << 20, HANG, &mut buffer).await.unwrap();
            assert_eq!(split(&buffer), Some((wanted.clone(), &[][..])), "request {i}");
        }
        // A second stream for the same shard.
        assert!(peer.say(&attach(0)).await.is_err());

        // Half a request, and then nothing.
        let (peer, _) = Peer::insider(&server, 3).await;
        let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
        send.write_all(&[attach(0), good[..100].to_vec()].concat()).await.unwrap();
        let ended = tokio::time::timeout(HANG, peer.connection.closed()).await.unwrap();
        assert!(ended.to_string().contains("nothing came for too long"), "{ended}");

        // Pulls whose answers are never read.
        let (peer, _) = Peer::insider(&server, 4).await;
        let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
        let pull = pull();
        send.write_all(&attach(0)).await.unwrap();
        let flood = async { while send.write_all(&pull).await.is_ok() {} };
        tokio::time::timeout(HANG, flood).await.unwrap();

        // Another with an honest worker's number takes its place; that comes back by itself at its next call.
        let (thief, _) = Peer::insider(&server, 0).await;
        drop(thief);
    });
    version += 1;
    loop {
        match client.pull(&mut vec![0.0; LEN], Pull::default()) {
            Ok(_) => break,
            Err(error) => assert!(error.to_string().contains("another connection"), "{error}"),
        }
    }
    assert_eq!(work(&mut client), version + 1);
    let job = &server.stats().jobs["train"];
    for key in ["malformed", "not_finite", "future", "incarnation", "silent", "replaced"] {
        assert!(job.refused.contains_key(key), "{key}: {:?}", job.refused);
    }
}

#[test]
fn what_a_stranger_sends_is_bounded_by_four_kibibytes() {
    let server = server();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let peer = Peer::connect(&server).await.unwrap();
        let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
        let mut sent = 0;
        // A request of the longest size, and much more behind it.
        let mut next = 4096_u32.to_le_bytes().to_vec();
        next.resize(1024, 0);
        while sent < 1 << 20 && send.write_all(&next).await.is_ok() {
            sent += next.len();
            next.fill(0);
        }
        assert!(sent <= 4 * 4096, "{sent} bytes were taken");
    });
}
