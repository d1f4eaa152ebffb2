//! Commands on the controller's own machine, by its socket.

use crate::controller::{Controller, Ended, NOWHERE, PROGRAM, run, target};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// Asks whoever is found without being named.
fn ask(runtime: &Path, args: &[&str]) -> Ended {
    run(args, &[("XDG_RUNTIME_DIR", runtime.to_str().unwrap())])
}

fn target_section(socket: &Path) -> String {
    format!("[controller]\nsocket = {socket:?}\n{}", target("ps1", NOWHERE, 9000))
}

#[test]
fn commands_on_this_machine_find_the_controller_by_its_socket() {
    let runtime = tempfile::tempdir().unwrap();
    let socket = runtime.path().join("thc-controller.sock");
    // One that was killed has left its own.
    drop(UnixListener::bind(&socket).unwrap());
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    let controller = Controller::start(&target_section(&socket));
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let list = ask(runtime.path(), &["target", "list"]);
    assert!(list.code == Some(0) && list.out.contains("ps1"), "{list:?}");
    let named = run(&["target", "list", "--controller", &format!("unix:{}", socket.display())], &[]);
    assert_eq!((named.code, &named.out), (Some(0), &list.out));
    // A refusal is the same as by an address.
    let refused = ask(runtime.path(), &["job", "show", "nothing"]);
    assert!(refused.code == Some(1) && refused.err.contains("no job"), "{refused:?}");

    // Another one on this machine takes it from nobody.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    fs::write(&file, target_section(&socket)).unwrap();
    let file = file.to_str().unwrap();
    let second = run(&["run", "--listen", "127.0.0.1:0", "--config", file], &[]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.err.contains("another controller listens there; give another socket"), "{}", second.err);
    assert_eq!(ask(runtime.path(), &["target", "list"]).code, Some(0));

    // With the controller its socket goes, and commands say where they have looked.
    assert!(Command::new("kill").args(["-TERM", &controller.id().to_string()]).status().unwrap().success());
    controller.wait_until("gone", |_| !socket.exists());
    let gone = run(&["target", "list", "--controller", &format!("unix:{}", socket.display())], &[]);
    assert!(gone.code == Some(1) && gone.err.contains("is the controller running"), "{gone:?}");
}

/// Without a configuration it is in the folder of the service, or of the user; where something else is, nothing is touched.
#[test]
fn the_socket_is_where_a_service_or_a_user_has_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    fs::write(&file, target("ps1", NOWHERE, 9000)).unwrap();
    let start = |variable: &str, at: &Path| {
        let mut child = Command::new(PROGRAM)
            .args(["run", "--listen", "127.0.0.1:0", "--config"])
            .arg(&file)
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("RUNTIME_DIRECTORY")
            .env(variable, at)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
            .unwrap();
        assert!(line.starts_with("ready "), "{line}");
        child
    };
    for (variable, name) in
        [("XDG_RUNTIME_DIR", "thc-controller.sock"), ("RUNTIME_DIRECTORY", "controller.sock")]
    {
        let at = tempfile::tempdir().unwrap();
        let mut child = start(variable, at.path());
        let socket = format!("unix:{}", at.path().join(name).display());
        let list = run(&["target", "list", "--controller", &socket], &[]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(list.code, Some(0), "{list:?}");
    }
    let at = tempfile::tempdir().unwrap();
    let own = at.path().join("thc-controller.sock");
    fs::write(&own, "somebody's").unwrap();
    let mut child = start("XDG_RUNTIME_DIR", at.path());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "somebody's");
}
