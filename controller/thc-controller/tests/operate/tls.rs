//! Certificates, both ways.

use crate::aggregator::Averager;
use crate::authority::Authority;
use crate::controller::{Controller, NOWHERE, run, target};
use std::fs;
use std::time::{Duration, Instant};
use thc_ps::{Server, ServerOptions};
use thc_worker::{Group, GroupConfig};

#[test]
fn the_right_certificate_passes_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["service", "client", "stranger"] {
        Authority::with_certificate(folder.path(), name);
    }
    let tls = "[controller.tls]\ncert = \"service.pem\"\nkey = \"service-key.pem\"\nclient_ca = \"client-ca.pem\"\n";
    let controller = Controller::start_in(folder, &(tls.to_owned() + &target("ps1", NOWHERE, 9000)));
    let file = |name: &str| controller.folder().join(name).to_str().unwrap().to_owned();
    let address = controller.listen.to_string();
    let ask = |ca: &str, cert: Option<&str>| {
        let mut args =
            vec!["target".to_owned(), "list".to_owned(), "--controller".to_owned(), address.clone()];
        args.extend(["--ca".to_owned(), file(ca)]);
        if let Some(cert) = cert {
            let key = file(&format!("{cert}-key.pem"));
            args.extend(["--cert".to_owned(), file(&format!("{cert}.pem")), "--key".to_owned(), key]);
        }
        run(&args.iter().map(String::as_str).collect::<Vec<_>>(), &[])
    };
    let right = ask("service-ca.pem", Some("client"));
    assert_eq!(right.code, Some(0), "{right:?}");
    assert!(right.out.contains("ps1"), "{right:?}");

    for (what, ended) in [
        ("no certificate", ask("service-ca.pem", None)),
        ("another authority's certificate", ask("service-ca.pem", Some("stranger"))),
        ("another controller's authority", ask("stranger-ca.pem", Some("client"))),
        ("no TLS at all", controller.ask(&["target", "list"])),
    ] {
        assert_eq!(ended.code, Some(1), "{what}: {ended:?}");
        assert!(ended.out.is_empty() && ended.err.lines().count() == 1, "{what}: {ended:?}");
        assert!(ended.err.contains("--ca"), "{what}: {ended:?}");
    }

    // By the environment, and by name instead of number.
    let name = format!("localhost:{}", controller.listen.port());
    let paths = [file("service-ca.pem"), file("client.pem"), file("client-key.pem")];
    let environment = [
        ("THC_CONTROLLER", name.as_str()),
        ("THC_CONTROLLER_CA", &paths[0]),
        ("THC_CONTROLLER_CERT", &paths[1]),
        ("THC_CONTROLLER_KEY", &paths[2]),
    ];
    let named = run(&["job", "list"], &environment);
    assert_eq!(named.code, Some(0), "{named:?}");
}

/// The error names the remedy, and comes before the time to join is over.
#[test]
fn a_worker_with_a_wrong_certificate_or_none_gets_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["service", "client", "stranger"] {
        Authority::with_certificate(folder.path(), name);
    }
    let tls = "[controller.tls]\ncert = \"service.pem\"\nkey = \"service-key.pem\"\nclient_ca = \"client-ca.pem\"\n";
    let controller = Controller::start_in(folder, &(tls.to_owned() + &target("ps1", NOWHERE, 9000)));
    let file = |name: &str| controller.folder().join(name);
    let own = |cert: &str, key: &str| Some((file(&format!("{cert}.pem")), file(&format!("{key}-key.pem"))));
    for (scheme, ca, identity, says) in [
        ("thc", "service", None, "does it want TLS"),
        // The alert that names the missing certificate may be lost with the connection.
        ("thcs", "service", None, "this worker's certificate"),
        ("thcs", "service", own("stranger", "stranger"), "does it want TLS"),
        ("thcs", "service", own("client", "stranger"), "KeyMismatch: give PEM files"),
        ("thcs", "stranger", own("client", "client"), "invalid peer certificate"),
        ("thcs", "service", own("client", "client"), "there is no job \"none\""),
    ] {
        let url = format!("{scheme}://localhost:{}/none", controller.listen.port());
        let mut asked = thc_worker::Controller::new(url.parse().unwrap());
        (asked.ca, asked.identity) = (Some(file(&format!("{ca}-ca.pem"))), identity);
        let began = Instant::now();
        let error = Group::join(GroupConfig { controller: Some(asked), ..GroupConfig::default() }).err();
        let error = error.unwrap().to_string();
        assert!(error.contains(says) && error.matches("localhost").count() == 1, "{says}: {error}");
        assert!(began.elapsed() < Duration::from_secs(30), "{error}");
    }
}

#[test]
fn a_certificate_that_is_none_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["c.pem", "k.pem"] {
        fs::write(folder.path().join(name), "no certificate").unwrap();
    }
    let config =
        "[controller.tls]\ncert = \"c.pem\"\nkey = \"k.pem\"\n".to_owned() + &target("ps1", NOWHERE, 9000);
    let file = folder.path().join("c.toml");
    fs::write(&file, config).unwrap();
    let ended =
        run(&["run", "--state", "none", "--listen", "127.0.0.1:0", "--config", file.to_str().unwrap()], &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("certificates of the service"), "{ended:?}");
}

/// A target that wants to know who its controller is.
#[test]
fn a_target_lets_in_the_controller_with_the_right_certificate() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ps", "controller", "stranger"] {
        Authority::with_certificate(folder.path(), name);
    }
    let file = folder.path().join("thc-ps.toml");
    let tls = "cert = \"ps.pem\"\nkey = \"ps-key.pem\"\nclient_ca = \"controller-ca.pem\"\n";
    let listen = "[p4runtime]\nlisten = \"127.0.0.1:0\"\n";
    fs::write(&file, format!("listen = \"127.0.0.1:0\"\n{listen}[p4runtime.tls]\n{tls}")).unwrap();
    let server = Server::start(ServerOptions::read(&file).unwrap().validate().unwrap()).unwrap();
    let (port, udp) = (server.p4runtime().unwrap().port(), server.local().port());
    // No two targets have one address; only the first one's is true.
    let mut places = std::iter::once(udp).chain(9001..);
    let mut secured = |name: &str, address: &str, ca: &str, own: Option<&str>| {
        let at = format!("{address}:{port}");
        let mut text = target(name, &at, places.next().unwrap()) + &format!("ca = \"{ca}-ca.pem\"\n");
        if let Some(own) = own {
            text += &format!("cert = \"{own}.pem\"\nkey = \"{own}-key.pem\"\n");
        }
        text
    };
    let here = "https://127.0.0.1";
    let config = [
        secured("right", "https://localhost", "ps", Some("controller")),
        secured("nobody", here, "ps", None),
        secured("stranger", here, "ps", Some("stranger")),
        secured("unknown", here, "stranger", Some("controller")),
        target("plain", &format!("127.0.0.1:{port}"), 9000),
    ];
    let controller = Controller::start_in(folder, &config.concat());
    controller.wait_until("tried", |controller| {
        let list = controller.json(&["target", "list"]);
        let targets = list["targets"].as_array().unwrap();
        targets.iter().all(|target| target["connected"] == true || target["error"] != "")
    });
    let list = controller.json(&["target", "list"]);
    for target in list["targets"].as_array().unwrap() {
        let (name, error) = (target["name"].as_str().unwrap(), target["error"].as_str().unwrap());
        assert_eq!(target["connected"], name == "right", "{list}");
        let says: &[&str] = match name {
            "right" => &[""],
            "nobody" | "stranger" => &["are ca, cert and key"],
            "unknown" => &["invalid peer certificate", "are ca, cert and key"],
            "plain" => &["does it want TLS", "https://"],
            other => panic!("{other}"),
        };
        assert!(says.iter().all(|has| error.contains(has)), "{name}: {error}");
    }
    controller.ask_done(&["job", "create", "train", "--workers", "2", "--target", "right"]);
    let workers = [0, 1].map(|_| Averager::join(controller.listen, "train"));
    controller.wait_until("at work", |controller| {
        controller.metric("thc_results", &[("thc_job", "train")]).is_some_and(|results| results > 10.0)
    });
    drop(workers);
}

#[test]
fn a_server_without_a_certificate_in_its_file_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.pem"), "no certificate").unwrap();
    let file = folder.path().join("thc-ps.toml");
    let text = "listen = \"127.0.0.1:0\"\n[p4runtime]\nlisten = \"127.0.0.1:0\"\n[p4runtime.tls]\ncert = \"c.pem\"\nkey = \"c.pem\"\n";
    fs::write(&file, text).unwrap();
    let error = Server::start(ServerOptions::read(&file).unwrap().validate().unwrap()).unwrap_err();
    assert!(error.to_string().contains("certificates of P4Runtime"), "{error}");
}
