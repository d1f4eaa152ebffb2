//! Certificates that are replaced while everything runs.

use crate::aggregator;
use crate::authority::Authority;
use crate::controller::{Controller, Ended, HANG, NOWHERE, run, target};
use std::fs;
use std::path::Path;
use std::time::Instant;
use thc_control_proto::v1::ListTargetsRequest;
use thc_control_proto::v1::control_client::ControlClient;
use thc_ps::{Server, ServerOptions};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

const TLS: &str = "[controller.tls]\ncert = \"service.pem\"\nkey = \"service-key.pem\"\n";

fn ask(controller: &Controller, args: &[&str]) -> Ended {
    let ca = controller.folder().join("service-ca.pem");
    let address = controller.listen.to_string();
    run(&[args, &["--controller", &address, "--ca", ca.to_str().unwrap()]].concat(), &[])
}

/// New connections get what is in the files now; those that are open go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_replaced_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::with_certificate(folder.path(), "service");
    let controller = Controller::start_in(folder, &(TLS.to_owned() + &target("ps1", NOWHERE, 9000)));
    let ca = Certificate::from_pem(fs::read(controller.folder().join("service-ca.pem")).unwrap());
    let endpoint = Endpoint::from_shared(format!("https://localhost:{}", controller.listen.port())).unwrap();
    let channel =
        endpoint.tls_config(ClientTlsConfig::new().ca_certificate(ca)).unwrap().connect().await.unwrap();
    let mut open = ControlClient::new(channel);
    open.list_targets(ListTargetsRequest {}).await.unwrap();
    assert_eq!(ask(&controller, &["target", "list"]).code, Some(0));

    // By itself.
    authority.give("service", |certificate| certificate.expire());
    let refused = |controller: &Controller| {
        let ended = ask(controller, &["target", "list"]);
        ended.code == Some(1) && ended.err.to_lowercase().contains("expired")
    };
    controller.wait_until("expired", refused);
    let ended = ask(&controller, &["target", "list"]);
    assert!(ended.err.lines().count() == 1 && ended.err.contains("has expired: replace it"), "{ended:?}");
    assert!(controller.log().contains("it has expired; write a new one to"), "{}", controller.log());
    open.list_targets(ListTargetsRequest {}).await.unwrap();

    // A certificate without its key is not taken, and that is said.
    let key = fs::read(controller.folder().join("service-key.pem")).unwrap();
    authority.give("service", |_| {});
    let new_key = fs::read(controller.folder().join("service-key.pem")).unwrap();
    fs::write(controller.folder().join("service-key.pem"), key).unwrap();
    controller.wait_until("half", |controller| {
        controller.log().contains("the certificates that were read before stay in use")
    });
    assert!(refused(&controller));
    fs::write(controller.folder().join("service-key.pem"), new_key).unwrap();

    controller.wait_until("new", |controller| ask(controller, &["target", "list"]).code == Some(0));
    open.list_targets(ListTargetsRequest {}).await.unwrap();
    let (_, metrics) = controller.get("/metrics");
    assert!(metrics.contains("thc_certificate_expiry_timestamp_seconds "), "{metrics}");
    assert_eq!(ask(&controller, &["target", "list"]).code, Some(0));
}

fn server(folder: &Path) -> Server {
    let file = folder.join("thc-ps.toml");
    let tls = "cert = \"ps.pem\"\nkey = \"ps-key.pem\"\nclient_ca = \"controller-ca.pem\"\n";
    let listen = "[p4runtime]\nlisten = \"127.0.0.1:0\"\n";
    fs::write(&file, format!("listen = \"127.0.0.1:0\"\n{listen}[p4runtime.tls]\n{tls}")).unwrap();
    Server::start(ServerOptions::read(&file).unwrap().validate().unwrap()).unwrap()
}

/// Between a controller and a target either side's certificate may have expired: with a new one in its place they find each other again,
/// and neither is restarted.
#[test]
fn a_target_and_its_controller_find_each_other_with_new_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let [of_ps, of_controller] =
        ["ps", "controller"].map(|name| Authority::with_certificate(folder.path(), name));
    of_ps.give("ps", |certificate| certificate.expire());
    let server = server(folder.path());
    let address = format!("https://localhost:{}", server.p4runtime().unwrap().port());
    let config = target("ps1", &address, server.local().port())
        + "ca = \"ps-ca.pem\"\ncert = \"controller.pem\"\nkey = \"controller-key.pem\"\n";
    let controller = Controller::start_in(folder, &config);
    let error = |controller: &Controller| {
        controller.json(&["target", "list"])["targets"][0]["error"].as_str().unwrap().to_owned()
    };
    controller.wait_until("expired", |controller| error(controller).to_lowercase().contains("expired"));
    assert!(error(&controller).contains("are ca, cert and key"), "{}", error(&controller));
    of_ps.give("ps", |_| {});
    controller.until_connected();
    controller.ask_done(&["job", "create", "a", "--workers", "1"]);
    let worker = aggregator::Averager::join(controller.listen, "a");
    controller.wait_until("running", |controller| {
        controller.json(&["job", "show", "a"])["places"][0]["running"] == true
    });

    // The controller's own has expired: the connection goes on, and the next one waits for a new certificate.
    of_controller.give("controller", |certificate| certificate.expire());
    assert_eq!(controller.json(&["target", "list"])["targets"][0]["connected"], true);
    let port = server.p4runtime().unwrap().port();
    drop(worker);
    drop(server);
    controller.wait_until("away", |controller| !error(controller).is_empty());
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[p4runtime]\nlisten = \"127.0.0.1:{port}\"\n[p4runtime.tls]\n\
        cert = \"ps.pem\"\nkey = \"ps-key.pem\"\nclient_ca = \"controller-ca.pem\"\n"
    );
    let file = controller.folder().join("thc-ps.toml");
    fs::write(&file, text).unwrap();
    let start = Instant::now();
    // The port is free again in a moment.
    let _server = loop {
        match Server::start(ServerOptions::read(&file).unwrap().validate().unwrap()) {
            Ok(server) => break server,
            Err(error) => assert!(start.elapsed() < HANG, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    controller.wait_until("refused", |controller| error(controller).contains("are ca, cert and key"));
    of_controller.give("controller", |_| {});
    controller.until_connected();
}
