//! The status page, in a browser.

use crate::aggregator;
use crate::chromium::{document, text};
use crate::controller::{Controller, NOWHERE, target};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// 0x1D3C5B79, as it must not appear anywhere.
const COOKIE: u32 = 490_494_841;

#[test]
fn the_page_is_whole_in_itself() {
    let controller = Controller::start(&target("ps1", NOWHERE, 9000));
    let (head, page) = controller.get("/");
    assert!(head.contains("default-src 'none'") && head.contains("text/html"), "{head}");
    for foreign in ["src=\"http", "href=\"http", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for has in ["prefers-color-scheme: dark", "name=\"viewport\"", "max-width: 46rem", "lang=\"en\""] {
        assert!(page.contains(has), "{has}");
    }
    controller.wait_until("tried", |controller| controller.get("/api/status").1.contains("cannot connect"));
    let (head, status) = controller.get("/api/status");
    assert!(head.contains("no-store"), "{head}");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["targets"][0]["connected"], false);
    assert_eq!(controller.get("/other").0.split(' ').nth(1), Some("404"));
    let Some(document) = document(&format!("http://{}/", controller.http), 1500) else { return };
    let seen = text(&document);
    for has in ["0 jobs on 1 target, 1 problem", "ps1", "away", "cannot connect", "thc-controller job create"]
    {
        assert!(seen.contains(has), "{has}: {seen}");
    }
}

#[test]
fn the_page_shows_jobs_rates_and_the_silent_worker_but_no_secret() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    let workers = aggregator::at_work(&controller, "train", &format!("{COOKIE:#x}"));
    let status = |controller: &Controller| -> serde_json::Value {
        serde_json::from_str(&controller.get("/api/status").1).unwrap()
    };
    let worker =
        |status: &serde_json::Value, number: usize| status["jobs"][0]["places"][0]["workers"][number].clone();
    controller.wait_until("moving", |controller| {
        let status = status(controller);
        worker(&status, 0)["packets_per_second"].as_f64().is_some_and(|rate| rate > 1.0)
    });
    let now = status(&controller);
    let job = &now["jobs"][0];
    assert_eq!((&job["name"], &job["places"][0]["state"]), (&"train".into(), &"running".into()), "{now}");
    assert!(job["past"].as_array().is_some_and(|past| !past.is_empty()), "{now}");
    let url = format!("http://{}/", controller.http);
    if let Some(document) = document(&url, 1500) {
        let seen = text(&document);
        for has in [
            "1 job on 1 target",
            "train",
            " running 2 workers",
            "MB/s",
            "· b=4",
            "127.0.0.1:",
            "packets/s now",
        ] {
            assert!(seen.contains(has), "{has}: {seen}");
        }
        assert!(document.contains("<svg") && document.contains("aria-label=\"workers of job train on ps1\""));
    }

    // One stops sending; the other asks again and again for what it waits for.
    workers[1].hold(true);
    let silent = |status: &serde_json::Value| {
        let findings = status["jobs"][0]["findings"].as_array().unwrap().clone();
        findings
            .into_iter()
            .find(|f| f["severity"] == "problem" && f["what"].as_str().unwrap().contains("silent"))
    };
    controller.wait_until("noticed", |controller| silent(&status(controller)).is_some());
    let number = silent(&status(&controller)).unwrap()["worker"].as_u64().unwrap();
    let diagnosed = controller.ask(&["diagnose", "train"]);
    assert_eq!(diagnosed.code, Some(1), "{diagnosed:?}");
    assert!(diagnosed.out.contains(&format!("PROBLEM  worker {number} is silent")), "{diagnosed:?}");
    if let Some(document) = document(&url, 1500) {
        let row = document.split("<tr class=\"problem\">").nth(1).unwrap_or_else(|| panic!("{document}"));
        let row = text(row.split("</tr>").next().unwrap());
        assert!(row.starts_with(&format!("■ {number}")), "{row}");
        let seen = text(&document);
        assert!(seen.contains("is silent") && seen.contains("look at its process"), "{seen}");
    }
    workers[1].hold(false);

    // Nothing tells the secret.
    for told in [
        controller.get("/").1,
        controller.get("/api/status").1,
        controller.get("/metrics").1,
        controller.ask_done(&["job", "list", "--json"]),
        controller.ask_done(&["job", "show", "train"]),
        controller.ask_done(&["counters", "--json"]),
        controller.log(),
    ] {
        let told = told.to_lowercase();
        assert!(!told.contains(&COOKIE.to_string()) && !told.contains(&format!("{COOKIE:x}")), "{told}");
    }
}

/// Hands requests on, but for the status only the first one: after it nobody answers any more.
fn that_ends(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut answered = false;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(crate::controller::HANG)).unwrap();
            let mut request = Vec::new();
            let mut bytes = [0; 1024];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut bytes) {
                    Ok(count @ 1..) => request.extend(&bytes[..count]),
                    _ => break,
                }
            }
            let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
            let Some(path) = line.split(' ').nth(1) else { continue };
            if path == "/api/status" && std::mem::replace(&mut answered, true) {
                continue;
            }
            let mut onward = TcpStream::connect(to).unwrap();
            write!(onward, "GET {path} HTTP/1.0\r\nHost: {to}\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            onward.read_to_end(&mut answer).unwrap();
            let _ = stream.write_all(&answer);
        }
    });
    local
}

#[test]
fn the_page_says_that_the_controller_is_gone() {
    let controller = Controller::start(&target("ps1", NOWHERE, 9000));
    let Some(document) = document(&format!("http://{}/", that_ends(controller.http)), 6000) else { return };
    let seen = text(&document);
    assert!(seen.contains("The controller does not answer since"), "{seen}");
    assert!(document.contains("<body class=\"old\">"), "{document}");
    assert!(seen.contains("ps1"), "what was known is kept: {seen}");
}
