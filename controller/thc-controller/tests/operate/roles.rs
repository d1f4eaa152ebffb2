//! Who may do what: each role, by each way of having it, and each kind of request.

use crate::aggregator;
use crate::authority::Authority;
use crate::controller::{Controller, Ended, HANG, run};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// What URIs begin with.
const URIS: &str = "spiffe://example.org/thc";
/// Requests that look at everything, at the job `train`, and that change something.
const LOOK: [&[&str]; 5] =
    [&["job", "list"], &["table", "list"], &["target", "list"], &["counters"], &["events"]];
const LOOK_AT: [&[&str]; 4] = [
    &["job", "show", "train"],
    &["counters", "train"],
    &["diagnose", "train"],
    &["events", "--job", "train"],
];
const OPERATE: [&[&str]; 11] = [
    &["job", "create", "another", "--workers", "1"],
    &["job", "update", "nothing", "--workers", "2"],
    &["job", "delete", "nothing", "--yes"],
    &["session", "end", "nothing"],
    &["worker", "evict", "nothing", "0"],
    &["table", "install", "--workers", "3"],
    &["table", "delete", "77"],
    &["target", "rows", "ps1"],
    &["target", "diff", "ps1"],
    &["target", "drain", "nothing"],
    &["target", "undrain", "nothing"],
];

struct Secured {
    controller: Controller,
    _server: thc_ps::Server,
}

impl Secured {
    /// With roles that URIs say themselves, and some of single subjects.
    fn start() -> Secured {
        let folder = tempfile::tempdir().unwrap();
        Authority::with_certificate(folder.path(), "service");
        let members = Authority::new(folder.path(), "members");
        for (name, uri) in [
            ("olga", "operator"),
            ("rita", "reader"),
            ("tom", "trainer/train"),
            ("tina", "trainer/tr*"),
            ("otto", "trainer/other"),
        ] {
            members.give(name, |certificate| {
                certificate.set_subject(name, "people");
                certificate.uri(&format!("{URIS}/{uri}"));
            });
        }
        members.give("wolf", |certificate| certificate.uri("spiffe://example.org/ns/train/sa/worker"));
        members.give("lisa", |certificate| certificate.set_subject("lisa", "team-train"));
        members.give("nobody", |certificate| certificate.set_subject("nobody", "people"));
        let tls = format!(
            "[controller]\nhttps = \"127.0.0.1:0\"\n[controller.tls]\ncert = \"service.pem\"\n\
             key = \"service-key.pem\"\nclient_ca = \"members-ca.pem\"\nrole_uris = \"{URIS}\"\n\
             workers = [\"URI=spiffe://example.org/ns/train/sa/worker\"]\n\
             [controller.tls.trainers]\ntrain = [\"OU=team-train\"]\n"
        );
        let server = aggregator::start();
        let controller = Controller::start_in(folder, &(tls + &aggregator::target_section(&server, "ps1")));
        let secured = Secured { controller, _server: server };
        secured
            .controller
            .wait_until("connected", |_| secured.ask("olga", &["target", "list"]).out.contains("connected"));
        for name in ["train", "other"] {
            let made = secured.ask(
                "olga",
                &["job", "create", name, "--workers", "1", "--slots", "64", "--norm-slots", "16"],
            );
            assert_eq!(made.code, Some(0), "{made:?}");
        }
        secured
    }

    fn file(&self, name: &str) -> String {
        self.controller.folder().join(name).to_str().unwrap().to_owned()
    }

    fn ask(&self, who: &str, args: &[&str]) -> Ended {
        let address = self.controller.listen.to_string();
        let files = [
            self.file("service-ca.pem"),
            self.file(&format!("{who}.pem")),
            self.file(&format!("{who}-key.pem")),
        ];
        let more = ["--controller", &address, "--ca", &files[0], "--cert", &files[1], "--key", &files[2]];
        run(&[args, &more].concat(), &[])
    }

    /// Why somebody may not; empty if they may.
    fn refusal(&self, who: &str, args: &[&str]) -> String {
        let ended = self.ask(who, args);
        if !ended.err.contains(" may not ") {
            return String::new();
        }
        assert!(ended.code == Some(1) && ended.err.lines().count() == 1, "{who} {args:?}: {ended:?}");
        assert!(
            ended.err.contains("[controller.tls]") && ended.err.contains("which takes the role"),
            "{ended:?}"
        );
        ended.err
    }

    fn join(&self, who: &str, job: &str) -> Result<(), String> {
        let url = format!("thcs://localhost:{}/{job}", self.controller.listen.port());
        let mut asked = thc_worker::Controller::new(url.parse().unwrap());
        asked.ca = Some(self.file("service-ca.pem").into());
        asked.identity =
            Some((self.file(&format!("{who}.pem")).into(), self.file(&format!("{who}-key.pem")).into()));
        let config = thc_worker::GroupConfig { controller: Some(asked), ..Default::default() };
        // Whoever has just left may still have the only place.
        let begun = std::time::Instant::now();
        let group = loop {
            match thc_worker::Group::join(config.clone()).map_err(|error| error.to_string()) {
                Err(full) if full.contains("has its 1 workers") && begun.elapsed() < HANG => {}
                joined => break joined?,
            }
        };
        group.allreduce(&mut [1.0; 64]).map_err(|error| error.to_string())
    }

    /// What the page answers: its status and its text.
    fn page(&self, who: Option<&str>, path: &str) -> (u16, String) {
        let certificates = |name: String| -> Vec<CertificateDer<'static>> {
            CertificateDer::pem_file_iter(self.file(&name)).unwrap().map(Result::unwrap).collect()
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates("service-ca.pem".to_owned()) {
            roots.add(authority).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match who {
            None => config.with_no_client_auth(),
            Some(who) => {
                let key = PrivateKeyDer::from_pem_file(self.file(&format!("{who}-key.pem"))).unwrap();
                config.with_client_auth_cert(certificates(format!("{who}.pem")), key).unwrap()
            }
        };
        let stream = TcpStream::connect(self.controller.https.unwrap()).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

#[test]
fn each_role_may_what_it_is_for_and_nothing_else() {
    let secured = Secured::start();
    // Who; may they look at all, at this job, join it, join the other one, change things.
    for (who, [look, look_at, join, join_other, operate]) in [
        ("olga", [true, true, true, true, true]),
        ("rita", [true, true, false, false, false]),
        ("tom", [false, true, true, false, false]),
        ("tina", [false, true, true, false, false]),
        ("otto", [false, false, false, true, false]),
        ("wolf", [false, true, true, true, false]),
        ("lisa", [false, true, true, false, false]),
        ("nobody", [false, false, false, false, false]),
    ] {
        for (requests, may) in [(&LOOK[..], look), (&LOOK_AT, look_at), (&OPERATE, operate)] {
            for args in requests {
                let refusal = secured.refusal(who, args);
                assert_eq!(refusal.is_empty(), may, "{who} {args:?}: {refusal}");
            }
        }
        let jobs = secured.controller.folder().join("jobs.toml");
        std::fs::write(&jobs, "[[job]]\nname = \"train\"\nworkers = 1\ndata_slots = 64\nnorm_slots = 16\n")
            .unwrap();
        let refusal = secured.refusal(who, &["apply", "--plan", "-f", jobs.to_str().unwrap()]);
        assert_eq!(refusal.is_empty(), operate, "{who}: {refusal}");
        for (job, may) in [("train", join), ("other", join_other)] {
            let joined = secured.join(who, job);
            assert_eq!(joined.is_ok(), may, "{who} {job}: {joined:?}");
            if let Err(refused) = joined {
                assert!(
                    refused.contains(&format!("may not join and report to job {job}: use one of")),
                    "{refused}"
                );
            }
        }
        for path in ["/", "/api/status", "/metrics"] {
            let (status, body) = secured.page(Some(who), path);
            assert_eq!(status, if look { 200 } else { 403 }, "{who} {path}: {body}");
            assert!(
                look || body
                    .contains("may not look at everything: use one of URI=spiffe://example.org/thc/reader"),
                "{body}"
            );
        }
    }
    let refusal = secured.refusal("tom", &["job", "show", "other"]);
    assert!(
        refusal.contains("(URI=spiffe://example.org/thc/trainer/train) may not look at job other"),
        "{refusal}"
    );
    // Probes have no certificates, and whoever has none sees no more than they do, encrypted or not.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(secured.page(None, path).0, 200);
        assert!(secured.controller.get(path).0.contains("200 OK"));
    }
    for path in ["/", "/api/status", "/metrics"] {
        assert_eq!(secured.page(None, path).0, 403);
        let (head, body) = secured.controller.get(path);
        assert!(head.contains("403") && body.contains("ask with it by https://"), "{head} {body}");
    }
}

#[test]
fn roles_that_contradict_each_other_are_told() {
    let folder = tempfile::tempdir().unwrap();
    Authority::with_certificate(folder.path(), "service");
    let file = folder.path().join("c.toml");
    for (more, says) in [
        ("role_uris = \"spiffe://x\"\n", "controller.tls.role_uris = \"spiffe://x\": give client_ca as well"),
        ("client_ca = \"service-ca.pem\"\nrole_uris = \"thc\"\n", "give what the URIs begin with"),
        ("client_ca = \"service-ca.pem\"\nreaders = [\"CN=a\"]\n", "give operators as well"),
        (
            "client_ca = \"service-ca.pem\"\n[controller.tls.trainers]\na = [\"URI=a\"]\n",
            "controller.tls.trainers.\"a\" = \"URI=a\": write OU=NAME, CN=NAME or URI=URI",
        ),
    ] {
        let tls = "[controller.tls]\ncert = \"service.pem\"\nkey = \"service-key.pem\"\n";
        std::fs::write(
            &file,
            format!("{tls}{more}{}", crate::controller::target("ps1", crate::controller::NOWHERE, 9000)),
        )
        .unwrap();
        let ended = run(&["run", "--check", "--config", file.to_str().unwrap()], &[]);
        assert!(
            ended.code == Some(2) && ended.err.contains(says) && ended.err.lines().count() == 1,
            "{ended:?}"
        );
    }
}
