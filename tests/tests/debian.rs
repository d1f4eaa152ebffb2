//! The Debian package: built of the programs that tests have, unpacked, its units checked, its programs started as the units say and with the
//! configurations that it brings, in a namespace of their own.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thc_tests::{Host, Network, WorkerProcess, built_in};

const PATIENCE: Duration = thc_tests::HANG;

/// Builds the package in a folder; `None`, and a line that says why, where it cannot be built.
fn build_package(folder: &Path) -> Option<String> {
    if Command::new("dpkg-shlibdeps").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("not run: dpkg-shlibdeps not found (Debian: apt-get install dpkg-dev)");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/debian/build");
    let mut command = Command::new(script);
    let built = command.arg(built_in()).arg(folder).env("COMPRESSION", "none").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(String::from_utf8(built.stdout).unwrap().trim().to_owned())
}

/// Builds the package and unpacks its files.
fn unpack_package(folder: &Path) -> Option<PathBuf> {
    let package = build_package(folder)?;
    let root = folder.join("root");
    let done = Command::new("dpkg-deb").args(["-x", &package]).arg(&root).status().unwrap();
    assert!(done.success());
    let control = Command::new("dpkg-deb").args(["-f", &package]).output().unwrap();
    let control = String::from_utf8(control.stdout).unwrap();
    assert!(control.contains("Package: thc-servers\n") && control.contains("Depends: "), "{control}");
    assert!(control.contains("libc6") && !control.contains(": @"), "{control}");
    Some(root)
}

/// A release has what was built for its version, and checksums. Where no image can be built it says so.
#[test]
fn a_release_has_the_files_of_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    if build_package(&path("deb")).is_none() {
        return;
    }
    let version = env!("CARGO_PKG_VERSION");
    fs::create_dir(path("wheels")).unwrap();
    for name in [format!("thc_allreduce-{version}.tar.gz"), "thc_allreduce-0.0.9-py3.whl".to_owned()] {
        fs::write(path("wheels").join(name), "made up").unwrap();
    }
    fs::write(path("deb/thc-servers_0.0.9_all.deb"), "made up").unwrap();
    fs::create_dir(path("bin")).unwrap();
    for builder in ["podman", "buildah", "docker"] {
        std::os::unix::fs::symlink("/bin/false", path("bin").join(builder)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/release");
    let tools = format!("{}:/usr/bin:/bin", path("bin").display());
    let ended = Command::new(script).arg(folder.path()).env("PATH", tools).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && said.contains("not run: the image"), "{said}{errors}");
    let sums = fs::read_to_string(path(&format!("thc-{version}/SHA256SUMS"))).unwrap();
    assert!(sums.lines().count() == 2 && !sums.contains("0.0.9"), "{sums}");
}

/// What a unit runs, with the paths of a file system below `root` and the state in it.
fn start_of(root: &Path, unit: &str) -> Vec<String> {
    let text = fs::read_to_string(root.join("lib/systemd/system").join(unit)).unwrap();
    assert!(text.contains("\nUser=thc\n") && !text.contains("DynamicUser"), "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let state = root.join("var/lib/thc-controller");
    fs::create_dir_all(&state).unwrap();
    let line = line.replace("%i", "ps").replace("${STATE_DIRECTORY}", "/var/lib/thc-controller");
    let below = |word: &str| {
        if word.starts_with('/') { format!("{}{word}", root.display()) } else { word.to_owned() }
    };
    line.split(' ').map(below).collect()
}

/// Ended with its value.
struct Service(Child);

impl Service {
    fn start(host: &Host, words: &[String]) -> Service {
        let mut command = host.command(Path::new(&words[0]));
        Service(command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_package_runs_as_its_units_and_configurations_say() {
    let folder = tempfile::tempdir().unwrap();
    let Some(root) = unpack_package(folder.path()) else { return };
    for file in [
        "usr/share/man/man1/thc-controller.1.gz",
        "usr/share/man/man1/thc-model.1.gz",
        "usr/share/man/man1/thc-ps.1.gz",
        "usr/share/man/man1/thc-worker.1.gz",
        "usr/share/bash-completion/completions/thc-ps",
        "usr/share/doc/thc-servers/copyright",
        "usr/share/thc/thc.json",
        "usr/bin/thc-model",
        "etc/thc/model.toml",
        "lib/systemd/system/thc-model.service",
    ] {
        assert!(fs::metadata(root.join(file)).unwrap().len() > 0, "{file}");
    }
    let network = match Network::star(1) {
        Ok(network) => network,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let host = network.host(0);
    let controller = start_of(&root, "thc-controller.service");
    let _ps = Service::start(host, &start_of(&root, "thc-ps@.service"));
    let _controller = Service::start(host, &controller);

    let ask = |words: &[&str]| host.command(Path::new(&controller[0])).args(words).output().unwrap();
    let began = Instant::now();
    while !String::from_utf8_lossy(&ask(&["target", "list"]).stdout).contains("connected") {
        assert!(began.elapsed() < PATIENCE, "{:?}", ask(&["target", "list"]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let made = ask(&["job", "create", "train", "--workers", "2"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let flags = ["--ps", "thc://127.0.0.1:9700/train", "--coordinates", "10000", "--json"];
    let workers = [0, 1].map(|_| WorkerProcess::with_flags(Some(host), &flags));
    for end in workers.map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    assert!(root.join("var/lib/thc-controller/jobs.state").is_file());
}

#[test]
fn systemd_takes_the_packages_units() {
    let folder = tempfile::tempdir().unwrap();
    let Some(root) = unpack_package(folder.path()) else { return };
    let units = root.join("lib/systemd/system");
    // An instance, and programs where they are here.
    let files: Vec<PathBuf> = ["thc-ps@.service", "thc-controller.service", "thc-model.service"]
        .iter()
        .map(|unit| {
            let text = fs::read_to_string(units.join(unit)).unwrap();
            let file = folder.path().join(unit.replace("@.", "@ps."));
            fs::write(&file, text.replace("/usr/bin/", &format!("{}/usr/bin/", root.display()))).unwrap();
            file
        })
        .collect();
    let mut command = Command::new("systemd-analyze");
    let output = match command.args(["verify", "--man=no", "--recursive-errors=no"]).args(&files).output() {
        Ok(output) => output,
        Err(error) => {
            println!("not run: systemd-analyze: {error}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<&str> =
        said.lines().filter(|line| line.contains("thc-") && !line.contains("network-online")).collect();
    assert!(ours.is_empty() && output.status.success(), "{said}");
}
