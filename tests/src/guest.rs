//! A Linux of its own as an ordinary process (User Mode Linux), for what the machine's kernel has not: traffic control
//! that sorts packets into the queues of an interface.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian's package has the modules, in a folder per version.
const MODULES: &str = "/usr/lib/uml/modules";
/// Seconds that a guest may take.
const PATIENCE: &str = "900";
/// What a script's end looks like that succeeds.
const SUCCESS: &str = "\nstatus 0\n";

/// A kernel that can be started. It sees this machine's files, has one core, and no network but what it makes itself.
#[derive(Debug)]
pub struct Guest {
    /// Its modules, below which `kernel/` lies.
    modules: PathBuf,
}

impl Guest {
    /// Finds the kernel, and tries whether it runs here.
    ///
    /// # Errors
    /// What is missing or fails, for `not run: …`.
    pub fn find() -> Result<Guest, String> {
        for (program, package) in [("linux.uml", "user-mode-linux"), ("insmod", "kmod"), ("tc", "iproute2")] {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
            if !std::env::split_paths(&folders).chain(usual).any(|folder| folder.join(program).is_file()) {
                return Err(format!("{program} not found (Debian: {package})"));
            }
        }
        let versions = std::fs::read_dir(MODULES).map_err(|e| format!("{MODULES}: {e}"))?;
        let modules = versions.flatten().map(|version| version.path()).max();
        let guest = Guest { modules: modules.ok_or_else(|| format!("{MODULES} is empty"))? };
        let said = guest.output("");
        if said.contains(SUCCESS) {
            return Ok(guest);
        }
        let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or("it says nothing");
        Err(format!("linux.uml does not run here: {last}"))
    }

    /// Starts it with a shell script as its only program, and waits until that is at its end. What the script wrote.
    ///
    /// # Panics
    /// If the script fails, or hangs.
    #[must_use]
    pub fn run(&self, script: &str) -> String {
        let said = self.output(script);
        assert!(said.contains(SUCCESS), "{said}");
        said
    }

    fn output(&self, script: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("init");
        let modules = self.modules.join("kernel");
        let mut file = std::fs::File::create(&path).unwrap();
        write!(
            file,
            "set -eu\n\
             export PATH=/usr/sbin:/usr/bin:/sbin:/bin NO_COLOR=1\n\
             trap 'echo status $?; echo o >/proc/sysrq-trigger; sleep 60' EXIT\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run\n\
             module() {{ insmod {}/$1.ko; }}\n\
             ip link set lo up\n\
             {script}",
            modules.display()
        )
        .unwrap();
        drop(file);
        // `timeout` ends it with all its processes; killed, it would leave some.
        let mut command = Command::new("timeout");
        command.args(["-k", "5", PATIENCE, "linux.uml", "mem=2G", "quiet", "rw"]);
        command.args(["root=/dev/root", "rootfstype=hostfs", "con=null", "con0=fd:0,fd:1"]);
        command.arg(format!("uml_dir={}", dir.path().display()));
        // What follows `--` goes to the first program.
        command.args(["init=/bin/sh", "--"]).arg(&path);
        let output = command.env_remove("TMPDIR").stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).replace('\r', "")
    }
}

/// A path as a word of a shell script.
#[must_use]
pub fn word(path: &Path) -> String {
    format!("'{}'", path.to_str().unwrap())
}
