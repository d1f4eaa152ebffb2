//! Certificates that have expired, and those that replace them.

use crate::aggregator;
use crate::authority::Authority;
use crate::controller::{Controller, Ended, HANG, NOWHERE, run, target};
use std::fs;
use std::path::Path;
use std::time::Instant;
use thc_ps::{Server, ServerOptions};

const TLS: &str = "[controller.tls]\ncert = \"service.pem\"\nkey = \"service-key.pem\"\n";

fn ask(controller: &Controller, args: &[&str]) -> Ended {
    let ca = controller.folder().join("service-ca.pem");
    let address = controller.listen.to_string();
    run(&[args, &["--controller", &address, "--ca", ca.to_str().unwrap()]].concat(), &[])
}

/// An expired certificate is named in the log and to clients; a controller that is started again has the new one.
#[test]
fn an_expired_certificate_is_named_and_replaced_by_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::with_certificate(folder.path(), "service");
    authority.give("service", |certificate| certificate.expire());
    let config = TLS.to_owned() + &target("ps1", NOWHERE, 9000);
    let controller = Controller::start_in(folder, &config);
    let ended = ask(&controller, &["target", "list"]);
    assert!(ended.code == Some(1) && ended.err.lines().count() == 1, "{ended:?}");
    assert!(ended.err.contains("has expired: replace it"), "{ended:?}");
    assert!(controller.log().contains("it has expired; write a new one to"), "{}", controller.log());
    let (_, metrics) = controller.get("/metrics");
    assert!(metrics.contains("thc_certificate_expiry_timestamp_seconds "), "{metrics}");
    authority.give("service", |_| {});
    let controller = Controller::start_in(controller.stop(), &config);
    assert_eq!(ask(&controller, &["target", "list"]).code, Some(0));
}

/// A server with certificates, at these ports of P4Runtime and of its first shard; one that was there may still be ending.
fn server(folder: &Path, ports: [u16; 2]) -> Server {
    let file = folder.join("thc-ps.toml");
    let tls = "cert = \"ps.pem\"\nkey = \"ps-key.pem\"\nclient_ca = \"controller-ca.pem\"\n";
    let [p4runtime, udp] = ports.map(|port| format!("listen = \"127.0.0.1:{port}\"\n"));
    fs::write(&file, format!("{udp}[p4runtime]\n{p4runtime}[p4runtime.tls]\n{tls}")).unwrap();
    let start = Instant::now();
    loop {
        match Server::start(ServerOptions::read(&file).unwrap().validate().unwrap()) {
            Ok(server) => return server,
            Err(error) => assert!(start.elapsed() < HANG, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Between a controller and a target either side's certificate may have expired. A target is started again with a new one; a
/// controller reads its own each time that it connects.
#[test]
fn a_target_and_its_controller_find_each_other_with_new_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let [of_ps, of_controller] =
        ["ps", "controller"].map(|name| Authority::with_certificate(folder.path(), name));
    of_ps.give("ps", |certificate| certificate.expire());
    let expired = server(folder.path(), [0, 0]);
    let ports = [expired.p4runtime().unwrap().port(), expired.local().port()];
    let config = target("ps1", &format!("https://localhost:{}", ports[0]), ports[1])
        + "ca = \"ps-ca.pem\"\ncert = \"controller.pem\"\nkey = \"controller-key.pem\"\n";
    let controller = Controller::start_in(folder, &config);
    let error = |controller: &Controller| {
        controller.json(&["target", "list"])["targets"][0]["error"].as_str().unwrap().to_owned()
    };
    controller.wait_until("expired", |controller| error(controller).to_lowercase().contains("expired"));
    assert!(error(&controller).contains("are ca, cert and key"), "{}", error(&controller));
    of_ps.give("ps", |_| {});
    drop(expired);
    let renewed = server(controller.folder(), ports);
    controller.until_connected();
    controller.ask_done(&["job", "create", "a", "--workers", "1"]);
    let worker = aggregator::Averager::join(controller.listen, "a");
    controller.wait_until("running", |controller| {
        controller.json(&["job", "show", "a"])["places"][0]["running"] == true
    });

    // The controller's own has expired: the connection goes on, and the next one waits for a new certificate.
    of_controller.give("controller", |certificate| certificate.expire());
    assert_eq!(controller.json(&["target", "list"])["targets"][0]["connected"], true);
    drop(worker);
    drop(renewed);
    controller.wait_until("away", |controller| !error(controller).is_empty());
    let _server = server(controller.folder(), ports);
    controller.wait_until("refused", |controller| error(controller).contains("are ca, cert and key"));
    of_controller.give("controller", |_| {});
    controller.until_connected();
}
